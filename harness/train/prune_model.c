/* Which weights become zero is decided on the host: the smallest of a matrix, or two in every four. */
#include "harness/train/prune_model.h"

#include <stdlib.h>
#include <string.h>

#include "harness/train/trainer.h"

enum { HIGH_BITS = 16, LOW_BITS = 15, BUCKETS = 1 << HIGH_BITS, GROUP = 4, GROUP_KEEPS = 2 };

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

/* Zeros the smaller two of every four weights beside each other in a row; of equal ones the later. What is
 * left over at the end of a row stays. */
static void keep_two_of_four(float *x, size_t rows, size_t cols)
{
    for (size_t row = 0; row < rows; row++) {
        for (size_t c = 0; c + GROUP <= cols; c += GROUP) {
            float *four = x + row * cols + c;
            uint32_t bits[GROUP];

            for (int i = 0; i < GROUP; i++)
                bits[i] = magnitude(four[i]);
            for (int i = 0; i < GROUP; i++) {
                int larger = 0;

                for (int j = 0; j < GROUP; j++)
                    larger += bits[j] > bits[i] || (bits[j] == bits[i] && j < i);
                if (larger >= GROUP_KEEPS)
                    four[i] = 0.0f;
            }
        }
    }
}

static enum status prune_param(struct trainer *trainer, struct param *param, float *host, uint64_t *histogram)
{
    struct model *model = &trainer->model;
    size_t count = param_count(param);
    enum status status =
        cuda_device_read(trainer->device, host, param->weight.data, count * sizeof(float), "copying weights");

    if (status)
        return status;
    if (trainer->options.prune_pattern == PRUNE_TWO_OF_FOUR) {
        keep_two_of_four(host, (size_t)param->rows, (size_t)param->cols);
        status = cuda_device_write(trainer->device, param->weight.data, host, count * sizeof(float),
                                   "copying weights");
    } else {
        status = MODEL_OP(model, prune, .x = param->weight.data, .count = count,
                          .threshold = threshold_of(host, count, trainer->options.prune, histogram));
    }
    param->keep_zeros = true;
    return status ? status : param_refresh(param, trainer->device, model->type);
}

static enum status count_param(struct trainer *trainer, const struct param *param, float *host,
                               struct prune_model_sizes *sizes)
{
    size_t count = param_count(param), bytes = count * sizeof(float), zeros = 0;
    enum status status = STATUS_OK;

    sizes->dense += bytes;
    sizes->sparse += bytes;
    if (!param_can_pack(param))
        return STATUS_OK;
    status = cuda_device_read(trainer->device, host, param->weight.data, bytes, "copying weights");
    for (size_t i = 0; i < count && !status; i++)
        zeros += host[i] == 0.0f;
    sizes->weights += count;
    sizes->zeros += zeros;
    sizes->sparse += (count + 7) / 8 - zeros * sizeof(float); /* a bit for each weight */
    return status;
}

/* Returns host memory for the largest parameter, or NULL with a message. */
static float *host_room(const struct trainer *trainer)
{
    size_t largest = 1;
    float *host;

    for (int p = 0; p < trainer->model.param_count; p++) {
        size_t count = param_count(&trainer->model.params[p]);

        largest = count > largest ? count : largest;
    }
    host = malloc(largest * sizeof(float));
    if (!host)
        status_fail(STATUS_NO_MEMORY, "no host memory for %zu weights", largest);
    return host;
}

enum status prune_model(struct trainer *trainer)
{
    uint64_t *histogram = malloc(BUCKETS * sizeof(*histogram));
    float *host = host_room(trainer);
    enum status status = host && histogram ? STATUS_OK : STATUS_NO_MEMORY;

    for (int p = 0; p < trainer->model.param_count && !status; p++) {
        if (param_can_pack(&trainer->model.params[p]))
            status = prune_param(trainer, &trainer->model.params[p], host, histogram);
    }
    free(host);
    free(histogram);
    return status;
}

enum status prune_model_count(struct trainer *trainer, struct prune_model_sizes *sizes)
{
    float *host = host_room(trainer);
    enum status status = host ? STATUS_OK : STATUS_NO_MEMORY;

    *sizes = (struct prune_model_sizes){0};
    for (int p = 0; p < trainer->model.param_count && !status; p++)
        status = count_param(trainer, &trainer->model.params[p], host, sizes);
    free(host);
    return status;
}
