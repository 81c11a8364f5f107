/* Pinned staging buffers. The only wait is for the copy that last read the slot to be filled, two batches
 * ago. */
#include "staging.h"

#include <string.h>

static enum status host_malloc(void **out, size_t bytes)
{
    cudaError_t error = cudaMallocHost(out, bytes);

    if (error == cudaErrorMemoryAllocation)
        return status_fail(STATUS_NO_MEMORY, "out of memory: asked for %zu bytes of pinned host memory",
                           bytes);
    return device_status(error, "cudaMallocHost");
}

enum status staging_open(struct staging *staging, struct device *device, struct data *data, size_t batch)
{
    enum status status = STATUS_OK;

    memset(staging, 0, sizeof(*staging));
    staging->device = device;
    staging->data = data;
    staging->batch = batch;
    for (int i = 0; i < STAGING_SLOTS && !status; i++) {
        struct staging_slot *slot = &staging->slot[i];

        status = host_malloc((void **)&slot->x, batch * (size_t)data->features * sizeof(float));
        if (!status)
            status = host_malloc((void **)&slot->labels, batch * sizeof(int32_t));
        if (!status)
            status = device_status(cudaEventCreateWithFlags(&slot->copied, cudaEventDisableTiming),
                                   "creating an event");
    }
    return status;
}

void staging_close(struct staging *staging)
{
    for (int i = 0; i < STAGING_SLOTS; i++) {
        struct staging_slot *slot = &staging->slot[i];

        if (slot->copied)
            cudaEventDestroy(slot->copied);
        if (slot->labels)
            cudaFreeHost(slot->labels);
        if (slot->x)
            cudaFreeHost(slot->x);
    }
    memset(staging, 0, sizeof(*staging));
}

enum status staging_next(struct staging *staging, struct mem *mem, struct tensor *x, struct tensor *labels)
{
    struct staging_slot *slot = &staging->slot[staging->turn++ % STAGING_SLOTS];
    cudaStream_t stream = staging->device->stream;
    size_t x_bytes = staging->batch * (size_t)staging->data->features * sizeof(float);
    size_t label_bytes = staging->batch * sizeof(int32_t);
    enum status status;

    /* An event that was never recorded counts as done. */
    status = device_status(cudaEventSynchronize(slot->copied), "waiting for a copy");
    if (!status)
        status = mem_need(mem, x, x_bytes, MEM_INPUT);
    if (!status)
        status = mem_need(mem, labels, label_bytes, MEM_INPUT);
    if (status)
        return status;
    staging->data->next(staging->data, staging->batch, slot->x, slot->labels);
    status = device_status(cudaMemcpyAsync(x->data, slot->x, x_bytes, cudaMemcpyHostToDevice, stream),
                           "copying samples");
    if (!status)
        status = device_status(
            cudaMemcpyAsync(labels->data, slot->labels, label_bytes, cudaMemcpyHostToDevice, stream),
            "copying labels");
    if (!status)
        status = device_status(cudaEventRecord(slot->copied, stream), "recording an event");
    return status;
}
