/* Whole models on the CPU table: the gradients that the backward pass gives are the slopes of the loss,
 * whether activations are kept or computed again, packed weights compute what bytes can hold of them, and no
 * memory stays behind. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/memory/mem.h"
#include "harness/model/net.h"
#include "unity.h"

enum { SAMPLES = 3, LENGTH = 8, PROBES = 3, INPUT_ROOM = 1 << 14 };

static struct cuda_device device;
static struct budget budget;
static struct supply supply;
static struct mem mem;
static struct model model;
static struct tensor x, labels, target;

void setUp(void)
{
    memset(&budget, 0, sizeof(budget));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, cuda_device_open(&device, 0));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, supply_open(&supply, ALLOC_CACHE, 0.5, &budget));
    mem_open(&mem, &supply, device.stream);
}

void tearDown(void)
{
    cudaStreamSynchronize(device.stream);
    model_close(&model);
    mem_drop(&mem, &x);
    mem_drop(&mem, &labels);
    mem_drop(&mem, &target);
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++)
        TEST_ASSERT_EQUAL_size_t_MESSAGE(0, mem.live[kind], mem_kind_name((enum mem_kind)kind));
    supply_close(&supply);
    cuda_device_close(&device);
    TEST_ASSERT_EQUAL_size_t(0, budget.used);
}

/* Device memory of the simulated GPU is host memory; the stream is drained before it is touched. */
static void *need(struct tensor *tensor, size_t bytes)
{
    TEST_ASSERT_EQUAL_INT(STATUS_OK, mem_need(&mem, tensor, bytes, MEM_INPUT));
    cudaStreamSynchronize(device.stream);
    return tensor->data;
}

/* Biases start at 0, where a rectifier of an input that is 0 has no slope: moves them away from there. */
static void shake_vectors(void)
{
    struct rng rng = rng_derive(7, 0);

    cudaStreamSynchronize(device.stream);
    for (int p = 0; p < model.param_count; p++) {
        float *weight = model.params[p].weight.data;

        for (size_t i = 0; i < param_count(&model.params[p]) && model.params[p].rows == 1; i++)
            weight[i] += model.params[p].trained ? 0.2f * rng_normal(&rng) : 0.0f;
    }
}

static void open_model(struct train_options *options, struct data_spec *spec, bool checkpointing)
{
    struct model_config config = {
        .device = &device, .mem = &mem, .type = OPS_F32, .checkpointing = checkpointing, .seed = 5};

    TEST_ASSERT_EQUAL_INT(STATUS_OK, net_fill_options(options));
    model_open(&model, &config);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, net_build(&model, options, spec));
    shake_vectors();
    model.n = SAMPLES;
    model.length = spec->length;
    model.training = true;
    model.frozen_statistics = true;
}

static void fill_input(const struct data_spec *spec)
{
    struct rng rng = rng_derive(3, 3);
    size_t count = (size_t)SAMPLES * (size_t)(spec->h * spec->w * spec->c);
    size_t rows = (size_t)SAMPLES * (size_t)(spec->length ? spec->length : 1);
    uint64_t classes = (uint64_t)(spec->length ? spec->vocabulary : spec->classes);
    float *values = need(&x, INPUT_ROOM * sizeof(float));
    float *wanted = need(&target, INPUT_ROOM * sizeof(float));
    int32_t *numbers = need(&labels, 2 * rows * sizeof(int32_t));

    TEST_ASSERT_TRUE(count <= INPUT_ROOM);
    for (size_t i = 0; i < count; i++) {
        values[i] = rng_normal(&rng);
        wanted[i] = rng_normal(&rng);
    }
    for (size_t i = 0; i < 2 * rows; i++)
        numbers[i] = classes ? (int32_t)rng_below(&rng, classes) : 0;
    model.tokens = numbers + rows;
    if (!spec->length)
        model.values[model.input].data.data = values;
}

static struct model_targets targets(void)
{
    return (struct model_targets){.labels = labels.data, .picture = target.data};
}

static double mean_loss(void)
{
    struct model_targets now = targets();
    int rows = model_loss_rows(&model);
    double sum = 0.0;

    TEST_ASSERT_EQUAL_INT(STATUS_OK, model_forward(&model, &now));
    TEST_ASSERT_EQUAL_INT(cudaSuccess, cudaStreamSynchronize(device.stream));
    for (int i = 0; i < rows; i++)
        sum += ((float *)model.losses.data)[i];
    return sum / rows;
}

static void backward(void)
{
    struct model_targets now = targets();

    TEST_ASSERT_EQUAL_INT(STATUS_OK,
                          model_backward(&model, &now, 1.0f / (float)model_loss_rows(&model), NULL));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, model_end(&model));
    TEST_ASSERT_EQUAL_INT(cudaSuccess, cudaStreamSynchronize(device.stream));
}

/* The loss a little to both sides of one weight. */
static double slope(float *weight, float step)
{
    float old = *weight;
    double right, left;

    *weight = old + step;
    right = mean_loss();
    model_drop_all(&model);
    *weight = old - step;
    left = mean_loss();
    model_drop_all(&model);
    *weight = old;
    return (right - left) / (2.0 * (double)step);
}

/* Rectifiers make the loss kink within a step: of several steps one must give the slope. */
static bool slope_is(float *weight, double analytic)
{
    static const float steps[] = {3e-3f, 1e-3f, 3e-4f, 1e-4f};

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        double numeric = slope(weight, steps[i]);
        double scale = fabs(analytic) > fabs(numeric) ? fabs(analytic) : fabs(numeric);

        if (fabs(analytic - numeric) <= 0.03 * scale + 4e-4)
            return true;
    }
    return false;
}

/* Near a kink no step does, so the share of good ones that is wanted depends on the network. */
static void check_slopes(int percent)
{
    struct rng rng = rng_derive(11, 0);
    int tried = 0, close = 0;
    float *grads[512] = {0};

    mean_loss();
    backward();
    for (int p = 0; p < model.param_count; p++) {
        size_t bytes = param_count(&model.params[p]) * sizeof(float);

        if (model.params[p].trained) {
            grads[p] = malloc(bytes);
            memcpy(grads[p], model.params[p].grad.data, bytes);
        }
    }
    model_drop_all(&model);
    for (int p = 0; p < model.param_count; p++) {
        struct param *param = &model.params[p];

        for (int i = 0; i < PROBES && param->trained; i++) {
            size_t at = rng_below(&rng, param_count(param));

            tried++;
            close += slope_is((float *)param->weight.data + at, (double)grads[p][at]);
        }
        free(grads[p]);
    }
    TEST_ASSERT_TRUE(tried >= 2 * PROBES);
    if (close * 100 < tried * percent) {
        char text[96];

        snprintf(text, sizeof(text), "only %d of %d slopes are close", close, tried);
        TEST_FAIL_MESSAGE(text);
    }
}

static struct data_spec pictures(int side, int channels)
{
    return (struct data_spec){.kind = DATA_IMAGES, .h = side, .w = side, .c = channels, .classes = 5};
}

static struct data_spec text(void)
{
    return (struct data_spec){.kind = DATA_TOKENS, .vocabulary = 17, .length = LENGTH};
}

static struct train_options gpt_options(void)
{
    return (struct train_options){
        .model = MODEL_GPT, .layers = 2, .width = 12, .heads = 3, .length = LENGTH, .vocabulary = 17};
}

static void test_slopes_of_the_perceptron(void)
{
    struct train_options options = {.model = MODEL_MLP, .hidden = {2, {9, 7}}};
    struct data_spec spec = pictures(4, 2);

    open_model(&options, &spec, false);
    fill_input(&spec);
    check_slopes(95);
}

static void test_slopes_of_the_cnn(void)
{
    struct train_options options = {.model = MODEL_CNN, .width = 3};
    struct data_spec spec = pictures(9, 2);

    open_model(&options, &spec, false);
    fill_input(&spec);
    check_slopes(95);
}

static void test_slopes_of_the_residual_networks(void)
{
    struct train_options options = {.model = MODEL_RESNET18, .width = 2};
    struct data_spec spec = pictures(16, 3);

    open_model(&options, &spec, false);
    fill_input(&spec);
    check_slopes(95);
}

static void test_slopes_of_the_transformer(void)
{
    struct train_options options = gpt_options();
    struct data_spec spec = text();

    open_model(&options, &spec, false);
    fill_input(&spec);
    check_slopes(95);
}

static void test_slopes_of_the_unet(void)
{
    struct train_options options = {.model = MODEL_UNET, .width = 2, .layers = 2, .image = 8};
    struct data_spec spec = pictures(8, 3);

    open_model(&options, &spec, false);
    fill_input(&spec);
    check_slopes(95);
}

/* All gradients of a pass, one after the other; to be freed. */
static float *all_grads(struct train_options options, struct data_spec spec, bool checkpointing,
                        size_t *count)
{
    float *all = NULL;

    *count = 0;
    open_model(&options, &spec, checkpointing);
    fill_input(&spec);
    mean_loss();
    backward();
    for (int p = 0; p < model.param_count; p++) {
        if (!model.params[p].trained)
            continue;
        all = realloc(all, (*count + param_count(&model.params[p])) * sizeof(float));
        memcpy(all + *count, model.params[p].grad.data, param_count(&model.params[p]) * sizeof(float));
        *count += param_count(&model.params[p]);
    }
    model_close(&model);
    return all;
}

static void test_activations_computed_again_give_the_same_gradients(void)
{
    struct train_options models[] = {{.model = MODEL_MLP, .hidden = {2, {9, 7}}},
                                     {.model = MODEL_CNN, .width = 3},
                                     {.model = MODEL_RESNET18, .width = 2},
                                     {.model = MODEL_RESNET50, .width = 2},
                                     {.model = MODEL_UNET, .width = 2, .layers = 2, .image = 16},
                                     gpt_options()};

    models[5].dropout = 0.2;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        struct data_spec spec = models[i].model == MODEL_GPT ? text() : pictures(16, 3);
        size_t count, again;
        float *kept = all_grads(models[i], spec, false, &count);
        float *repeated = all_grads(models[i], spec, true, &again);

        TEST_ASSERT_EQUAL_size_t(count, again);
        TEST_ASSERT_EQUAL_INT(0, memcmp(kept, repeated, count * sizeof(float)));
        free(kept);
        free(repeated);
    }
}

static void test_gradients_of_two_passes_add_up(void)
{
    struct train_options options = gpt_options();
    struct data_spec spec = text();
    size_t count;
    float *once = all_grads(options, spec, false, &count);
    size_t at = 0;

    open_model(&options, &spec, false);
    fill_input(&spec);
    for (int i = 0; i < 2; i++) {
        mean_loss();
        backward();
    }
    for (int p = 0; p < model.param_count; p++) {
        const float *twice = model.params[p].grad.data;

        for (size_t i = 0; i < param_count(&model.params[p]); i++, at++)
            TEST_ASSERT_FLOAT_WITHIN(1e-5f + 1e-4f * fabsf(once[at]), 2.0f * once[at], twice[i]);
    }
    TEST_ASSERT_EQUAL_size_t(count, at);
    free(once);
}

static void test_checkpointing_needs_less_memory(void)
{
    struct train_options options = gpt_options();
    struct data_spec spec = text();
    size_t peak[2], count;

    options.layers = 6;
    for (int checkpointing = 0; checkpointing < 2; checkpointing++) {
        mem.peak[MEM_ACTIVATIONS] = 0;
        free(all_grads(options, spec, checkpointing, &count));
        peak[checkpointing] = mem.peak[MEM_ACTIVATIONS];
    }
    TEST_ASSERT_TRUE(peak[1] < peak[0] / 2);
}

/* The bytes that a packed model holds of its parameters, and the largest that is unpacked at one time. */
static size_t packed_bytes(size_t *largest)
{
    size_t bytes = 0;

    *largest = 0;
    for (int l = 0; l < model.layer_count; l++) {
        size_t unpacked = 0;

        for (int i = 0; i < LAYER_PARAMS; i++) {
            int p = model.layers[l].param[i];

            if (p != NO_VALUE && param_can_pack(&model.params[p]))
                unpacked += param_count(&model.params[p]) * sizeof(float);
        }
        *largest = unpacked > *largest ? unpacked : *largest;
    }
    for (int p = 0; p < model.param_count; p++) {
        struct param *param = &model.params[p];

        bytes += param_can_pack(param) ? param_count(param) + (size_t)param->rows * sizeof(float)
                                       : param_count(param) * sizeof(float);
    }
    return bytes;
}

/* What a byte can hold of each weight of a matrix, as a float. */
static void round_weights(void)
{
    cudaStreamSynchronize(device.stream);
    for (int p = 0; p < model.param_count; p++) {
        struct param *param = &model.params[p];
        float *weight = param->weight.data;

        for (int row = 0; row < param->rows && param_can_pack(param); row++) {
            float *at = weight + (size_t)row * (size_t)param->cols;
            float most = 0.0f;

            for (int c = 0; c < param->cols; c++)
                most = fmaxf(most, fabsf(at[c]));
            for (int c = 0; c < param->cols && most > 0.0f; c++)
                at[c] = rintf(at[c] / (most / 127.0f)) * (most / 127.0f);
        }
    }
}

static void check_packed(struct train_options options, struct data_spec spec)
{
    size_t largest, bytes, before;
    double loss;

    open_model(&options, &spec, false);
    fill_input(&spec);
    model.training = false;
    round_weights();
    loss = mean_loss();
    model_end(&model);
    bytes = packed_bytes(&largest);
    for (int p = 0; p < model.param_count; p++) {
        if (param_can_pack(&model.params[p]))
            TEST_ASSERT_EQUAL_INT(STATUS_OK, param_pack(&model.params[p], &device, &mem));
    }
    TEST_ASSERT_EQUAL_size_t(bytes, mem.live[MEM_PARAMETERS]);
    before = mem.peak[MEM_WORKSPACE] = mem.live[MEM_WORKSPACE];
    TEST_ASSERT_TRUE(fabs(mean_loss() - loss) <= 1e-5 * fabs(loss));
    model_end(&model);
    TEST_ASSERT_EQUAL_size_t(bytes, mem.live[MEM_PARAMETERS]);
    TEST_ASSERT_EQUAL_size_t(before, mem.live[MEM_WORKSPACE]);
    TEST_ASSERT_EQUAL_size_t(before + largest, mem.peak[MEM_WORKSPACE]);
    model_close(&model);
}

static void test_packed_weights_compute_what_bytes_can_hold(void)
{
    check_packed((struct train_options){.model = MODEL_MLP, .hidden = {2, {9, 7}}}, pictures(4, 2));
    check_packed((struct train_options){.model = MODEL_CNN, .width = 3}, pictures(9, 2));
    check_packed((struct train_options){.model = MODEL_RESNET18, .width = 2}, pictures(16, 3));
    check_packed((struct train_options){.model = MODEL_UNET, .width = 2, .layers = 2, .image = 8},
                 pictures(8, 3));
    check_packed(gpt_options(), text());
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_slopes_of_the_perceptron);
    RUN_TEST(test_slopes_of_the_cnn);
    RUN_TEST(test_slopes_of_the_residual_networks);
    RUN_TEST(test_slopes_of_the_transformer);
    RUN_TEST(test_slopes_of_the_unet);
    RUN_TEST(test_activations_computed_again_give_the_same_gradients);
    RUN_TEST(test_gradients_of_two_passes_add_up);
    RUN_TEST(test_checkpointing_needs_less_memory);
    RUN_TEST(test_packed_weights_compute_what_bytes_can_hold);
    return UNITY_END();
}
