/* Gradients in buckets, averaged by NCCL during the backward pass. See buckets.h. */
#include "harness/train/buckets.h"

#include <stdlib.h>
#include <string.h>

/* ---- the plan ---- */

/* Returns the layer after whose backward pass a parameter's gradient is complete: its first reader. */
static int last_writer(const struct model *model, int param)
{
    for (int l = 0; l < model->layer_count; l++)
        for (int i = 0; i < LAYER_PARAMS; i++)
            if (model->layers[l].param[i] == param)
                return l;
    return 0;
}

/* Orders the trained parameters by descending layer. Returns how many. */
static int order_params(struct buckets *buckets, const struct model *model)
{
    int count = 0;

    for (int l = model->layer_count - 1; l >= 0; l--)
        for (int i = 0; i < LAYER_PARAMS; i++) {
            int p = model->layers[l].param[i];

            if (p != NO_VALUE && model->params[p].trained && last_writer(model, p) == l)
                buckets->order[count++] = p;
        }
    return count;
}

static void plan(struct buckets *buckets, const struct model *model, size_t bytes)
{
    int count = order_params(buckets, model);
    struct bucket *bucket = NULL;
    size_t held = 0;

    for (int i = 0; i < count; i++) {
        int param = buckets->order[i];

        if (!bucket || held >= bytes) {
            bucket = &buckets->bucket[buckets->bucket_count++];
            *bucket = (struct bucket){.first = i};
            held = 0;
        }
        bucket->count++;
        bucket->last_layer = last_writer(model, param);
        held += param_count(&model->params[param]) * sizeof(float);
    }
}

static enum status new_event(cudaEvent_t *event)
{
    return cuda_device_status(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "creating an event");
}

enum status buckets_open(struct buckets *buckets, const struct model *model, struct nccl_comm *comm,
                         size_t bytes)
{
    size_t room = (size_t)model->param_count;
    enum status status = STATUS_OK;

    *buckets = (struct buckets){.comm = comm};
    buckets->order = calloc(room, sizeof(*buckets->order));
    buckets->parts = calloc(room, sizeof(*buckets->parts));
    buckets->bucket = calloc(room, sizeof(*buckets->bucket));
    if (!buckets->order || !buckets->parts || !buckets->bucket)
        return status_fail(STATUS_NO_MEMORY, "out of host memory");
    plan(buckets, model, bytes);
    for (int b = 0; b < buckets->bucket_count && !status; b++)
        status = new_event(&buckets->bucket[b].ready);
    if (!status)
        status = new_event(&buckets->averaged);
    if (!status)
        status = cuda_device_status(cudaStreamCreateWithFlags(&buckets->stream, cudaStreamNonBlocking),
                                    "creating a stream");
    return status;
}

void buckets_close(struct buckets *buckets)
{
    if (buckets->stream) {
        cudaStreamSynchronize(buckets->stream);
        cudaStreamDestroy(buckets->stream);
    }
    if (buckets->averaged)
        cudaEventDestroy(buckets->averaged);
    for (int b = 0; b < buckets->bucket_count; b++)
        if (buckets->bucket[b].ready)
            cudaEventDestroy(buckets->bucket[b].ready);
    free(buckets->order);
    free(buckets->parts);
    free(buckets->bucket);
    memset(buckets, 0, sizeof(*buckets));
}

/* ---- a step ---- */

static enum status queue_bucket(struct buckets *buckets, struct model *model, const struct bucket *bucket)
{
    enum status status =
        cuda_device_status(cudaEventRecord(bucket->ready, model->device->stream), "recording an event");
    size_t bytes = 0;

    for (int i = 0; i < bucket->count; i++) {
        struct param *param = &model->params[buckets->order[bucket->first + i]];

        buckets->parts[i] = (struct nccl_part){param->grad.data, param_count(param)};
        bytes += param_count(param) * sizeof(float);
    }
    if (!status)
        status = cuda_device_status(cudaStreamWaitEvent(buckets->stream, bucket->ready, 0),
                                    "waiting for gradients");
    if (!status)
        status =
            profile_begin_average(buckets->profile, buckets->stream, (int)(bucket - buckets->bucket), bytes);
    if (!status)
        status = nccl_average(buckets->comm, buckets->parts, bucket->count, buckets->stream);
    return status ? status : profile_end_average(buckets->profile, buckets->stream);
}

enum status buckets_layer_done(struct buckets *buckets, struct model *model, int layer)
{
    enum status status = STATUS_OK;

    while (buckets->next < buckets->bucket_count && buckets->bucket[buckets->next].last_layer >= layer &&
           !status)
        status = queue_bucket(buckets, model, &buckets->bucket[buckets->next++]);
    return status;
}

enum status buckets_join(struct buckets *buckets, struct model *model)
{
    enum status status = buckets_layer_done(buckets, model, 0);

    buckets->next = 0;
    if (!status)
        status =
            cuda_device_status(cudaEventRecord(buckets->averaged, buckets->stream), "recording an event");
    return status ? status
                  : cuda_device_status(cudaStreamWaitEvent(model->device->stream, buckets->averaged, 0),
                                       "waiting for the average");
}
