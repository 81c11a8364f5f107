/* Pruning and quantization for evaluation, of matrices only: biases and norms are small and sensitive.
 * Pruned weights stay floats on the device; their reported size is what storing them would take. Quantized
 * ones are bytes on the device (param_pack); their size is from the memory accounting. The trained weights
 * are lost: this runs last. */
#include "harness/train/shrink_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/train/trainer.h"

enum { HIGH_BITS = 16, LOW_BITS = 15, BUCKETS = 1 << HIGH_BITS };

struct footprint {
    struct trainer_evaluation evaluation;
    uint64_t parameters; /* bytes */
    size_t held;         /* bytes held from the device, all kinds together */
    size_t workspace;    /* peak during the evaluation, including unpacked weights */
};

/* The bits of |x| without the sign: larger numbers have larger bits. */
static uint32_t magnitude(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits & 0x7fffffffu;
}

/* Returns the magnitude below which `fraction` of the numbers are, by a histogram of the upper bits, then
 * one of the lower bits within the bucket found. */
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
        cuda_device_status(cudaMemcpyAsync(host, param->weight.data, param_count(param) * sizeof(float),
                                           cudaMemcpyDeviceToHost, stream),
                           "copying weights");

    return status ? status : cuda_device_status(cudaStreamSynchronize(stream), "copying weights");
}

/* Bytes to store the weights without zeros, with one bit per weight that marks those left. */
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

/* Sets the fraction of weights given by --prune to zero in every matrix. */
static enum status prune_all(struct trainer *trainer, struct footprint *before, struct footprint *after)
{
    struct model *model = &trainer->model;
    uint64_t *histogram = malloc(BUCKETS * sizeof(*histogram));
    enum status status = STATUS_OK;

    if (!histogram)
        return status_fail(STATUS_NO_MEMORY, "no host memory for a histogram");
    before->parameters = after->parameters = 0;
    for (int p = 0; p < model->param_count && !status; p++) {
        struct param *param = &model->params[p];

        before->parameters += param_count(param) * sizeof(float);
        if (param_can_pack(param))
            status = prune_param(trainer, param, histogram, &after->parameters);
        else
            after->parameters += param_count(param) * sizeof(float);
    }
    free(histogram);
    return status;
}

/* Packs every matrix and gives the freed memory back to the device. */
static enum status pack_all(struct trainer *trainer)
{
    struct model *model = &trainer->model;
    enum status status = STATUS_OK;

    for (int p = 0; p < model->param_count && !status; p++) {
        if (param_can_pack(&model->params[p]))
            status = param_pack(&model->params[p], trainer->device, model->mem);
    }
    return status ? status : trainer_forget_steps(trainer);
}

static void say(const struct trainer *trainer, const char *what, const struct footprint *before,
                const struct footprint *after)
{
    const double kib = 1024.0;

    if (trainer->options.quiet)
        return;
    fprintf(stderr, "%s: parameters %.1f KiB before, %.1f KiB after", what, (double)before->parameters / kib,
            (double)after->parameters / kib);
    if (before->evaluation.rows)
        fprintf(stderr, "; loss %.4f before, %.4f after", before->evaluation.loss, after->evaluation.loss);
    if (before->evaluation.accuracy >= 0.0)
        fprintf(stderr, "; accuracy %.4f before, %.4f after", before->evaluation.accuracy,
                after->evaluation.accuracy);
    fputc('\n', stderr);
}

static void print_rest(const struct footprint *before, const struct footprint *after)
{
    printf(" bytes_before=%llu bytes_after=%llu", (unsigned long long)before->parameters,
           (unsigned long long)after->parameters);
    if (before->evaluation.rows)
        printf(" val_loss_before=%.6g val_loss_after=%.6g", before->evaluation.loss, after->evaluation.loss);
    if (before->evaluation.accuracy >= 0.0)
        printf(" accuracy_before=%.5f accuracy_after=%.5f", before->evaluation.accuracy,
               after->evaluation.accuracy);
}

static enum status prune(struct trainer *trainer)
{
    struct footprint before, after;
    enum status status = trainer_evaluate(trainer, &before.evaluation);

    if (!status)
        status = prune_all(trainer, &before, &after);
    if (!status)
        status = trainer_evaluate(trainer, &after.evaluation);
    if (status)
        return status;
    printf("shrink=prune fraction=%g", trainer->options.prune);
    print_rest(&before, &after);
    putchar('\n');
    say(trainer, "prune", &before, &after);
    return STATUS_OK;
}

/* Validates, and records the device memory in use. */
static enum status measure(struct trainer *trainer, struct footprint *footprint)
{
    enum status status;

    footprint->parameters = trainer->mem.live[MEM_PARAMETERS];
    footprint->held = supply_held(trainer->supply);
    trainer->mem.peak[MEM_WORKSPACE] = trainer->mem.live[MEM_WORKSPACE];
    status = trainer_evaluate(trainer, &footprint->evaluation);
    footprint->workspace = trainer->mem.peak[MEM_WORKSPACE];
    return status;
}

static enum status quantize(struct trainer *trainer)
{
    struct footprint before, after;
    /* The graphs of the steps read the weights, and pin the memory that is to be given back. */
    enum status status = trainer_forget_steps(trainer);

    if (!status)
        status = measure(trainer, &before);
    if (!status)
        status = pack_all(trainer);
    if (!status)
        status = measure(trainer, &after);
    if (status == STATUS_NO_MEMORY)
        status_fail(status, "--quantize=int8: the training is done, but its evaluation ran out of memory");
    if (status)
        return status;
    printf("shrink=int8");
    print_rest(&before, &after);
    printf(" held_before=%zu held_after=%zu workspace_before=%zu workspace_after=%zu\n", before.held,
           after.held, before.workspace, after.workspace);
    say(trainer, "int8", &before, &after);
    return STATUS_OK;
}

enum status shrink_model_evaluate(struct trainer *trainer)
{
    enum status status = STATUS_OK;

    if (trainer->options.prune > 0.0)
        status = prune(trainer);
    if (!status && trainer->options.quantize == QUANTIZE_INT8)
        status = quantize(trainer);
    return status;
}
