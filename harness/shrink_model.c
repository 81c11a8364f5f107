/* Pruning and quantization for evaluation. Matrices only: biases and norms are small and matter much. The
 * weights are changed in place; what comes after training is the end of them. */
#include "shrink_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

enum { HIGH_BITS = 16, LOW_BITS = 15, BUCKETS = 1 << HIGH_BITS };

/* The bits of |x| without the sign: larger numbers have larger bits. */
static uint32_t magnitude(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits & 0x7fffffffu;
}

/* The magnitude below which `fraction` of the numbers lie: a histogram of the upper bits, then one of the
 * lower bits of those in the bucket that was found. */
static float threshold_of(const float *x, size_t count, double fraction, uint64_t *histogram)
{
    uint64_t wanted = (uint64_t)((double)count * fraction);
    uint32_t high = 0;
    uint32_t low = 0;
    uint32_t bits;
    uint64_t below = 0;
    float threshold;

    memset(histogram, 0, BUCKETS * sizeof(*histogram));
    for (size_t i = 0; i < count; i++)
        histogram[magnitude(x[i]) >> LOW_BITS]++;
    while (high + 1 < BUCKETS && below + histogram[high] <= wanted)
        below += histogram[high++];
    memset(histogram, 0, BUCKETS * sizeof(*histogram));
    for (size_t i = 0; i < count; i++) {
        if (magnitude(x[i]) >> LOW_BITS == high)
            histogram[magnitude(x[i]) & ((1u << LOW_BITS) - 1)]++;
    }
    while (low + 1 < 1u << LOW_BITS && below + histogram[low] <= wanted)
        below += histogram[low++];
    bits = high << LOW_BITS | low;
    memcpy(&threshold, &bits, sizeof(threshold));
    return threshold;
}

static enum status read_weight(struct trainer *trainer, const struct param *param, float *host)
{
    cudaStream_t stream = trainer->device->stream;
    enum status status =
        device_status(cudaMemcpyAsync(host, param->weight.data, param_count(param) * sizeof(float),
                                      cudaMemcpyDeviceToHost, stream),
                      "copying weights");

    return status ? status : device_status(cudaStreamSynchronize(stream), "copying weights");
}

/* Without the zeros, and with one bit per weight that says which are left. */
static enum status prune_param(struct trainer *trainer, struct param *param, uint64_t *histogram,
                               uint64_t *bytes)
{
    struct model *model = &trainer->model;
    size_t count = param_count(param);
    float *host = malloc(count * sizeof(float));
    uint64_t left = 0;
    enum status status;

    if (!host)
        return status_fail(STATUS_NO_MEMORY, "no host memory for %zu weights", count);
    status = read_weight(trainer, param, host);
    if (!status)
        status = MODEL_OP(model, prune, .x = param->weight.data, .count = count,
                          .threshold = threshold_of(host, count, trainer->options.prune, histogram));
    if (!status)
        status = param_refresh(param, trainer->device, model->type);
    if (!status)
        status = read_weight(trainer, param, host);
    for (size_t i = 0; i < count; i++)
        left += host[i] != 0.0f;
    *bytes += left * sizeof(float) + (count + 7) / 8;
    free(host);
    return status;
}

/* To bytes and back: the model reads what bytes can hold. */
static enum status quantize_param(struct trainer *trainer, struct param *param, uint64_t *bytes)
{
    struct model *model = &trainer->model;
    struct tensor q = {0};
    struct tensor scale = {0};
    enum status status = mem_need(model->mem, &q, param_count(param), MEM_PARAMETERS);

    if (!status)
        status = mem_need(model->mem, &scale, (size_t)param->rows * sizeof(float), MEM_PARAMETERS);
    if (!status)
        status = MODEL_OP(model, quantize, .x = param->weight.data, .q = q.data, .scale = scale.data,
                          .rows = param->rows, .cols = param->cols);
    if (!status)
        status = MODEL_OP(model, dequantize, .q = q.data, .scale = scale.data, .x = param->weight.data,
                          .type = OPS_F32, .rows = param->rows, .cols = param->cols);
    if (!status)
        status = param_refresh(param, trainer->device, model->type);
    *bytes += param_count(param) + (size_t)param->rows * sizeof(float);
    mem_drop(model->mem, &q);
    mem_drop(model->mem, &scale);
    return status;
}

static enum status shrink_all(struct trainer *trainer, bool prune, uint64_t *before, uint64_t *after)
{
    struct model *model = &trainer->model;
    uint64_t *histogram = malloc(BUCKETS * sizeof(*histogram));
    enum status status = STATUS_OK;

    if (!histogram)
        return status_fail(STATUS_NO_MEMORY, "no host memory for a histogram");
    *before = *after = 0;
    for (int p = 0; p < model->param_count && !status; p++) {
        struct param *param = &model->params[p];

        *before += param_count(param) * sizeof(float);
        if (param->rows == 1 || !param->trained)
            *after += param_count(param) * sizeof(float);
        else
            status =
                prune ? prune_param(trainer, param, histogram, after) : quantize_param(trainer, param, after);
    }
    free(histogram);
    return status;
}

static enum status shrink(struct trainer *trainer, bool prune)
{
    struct trainer_evaluation first, second;
    uint64_t before = 0;
    uint64_t after = 0;
    enum status status = trainer_evaluate(trainer, &first);

    if (!status)
        status = shrink_all(trainer, prune, &before, &after);
    if (!status)
        status = trainer_evaluate(trainer, &second);
    if (status)
        return status;
    printf("shrink=%s", prune ? "prune" : "int8");
    if (prune)
        printf(" fraction=%g", trainer->options.prune);
    printf(" bytes_before=%llu bytes_after=%llu val_loss_before=%.6g val_loss_after=%.6g",
           (unsigned long long)before, (unsigned long long)after, first.loss, second.loss);
    if (first.accuracy >= 0.0)
        printf(" accuracy_before=%.5f accuracy_after=%.5f", first.accuracy, second.accuracy);
    putchar('\n');
    return STATUS_OK;
}

enum status shrink_model_evaluate(struct trainer *trainer)
{
    enum status status = STATUS_OK;

    if (trainer->options.prune > 0.0)
        status = shrink(trainer, true);
    if (!status && trainer->options.quantize == QUANTIZE_INT8)
        status = shrink(trainer, false);
    return status;
}
