/* The copy stream, and the batches that it is still reading. feed_next releases the batches whose copies
 * have finished; it waits only for the oldest copy, and only when too many are in flight. */
#include "harness/data/feed.h"

#include <stdlib.h>

enum { MAX_FLIGHTS = 128 };

struct flight {
    struct batch *batch;
    cudaEvent_t copied;
};

struct feed {
    struct pipeline *pipeline;
    cudaStream_t copies;
    cudaEvent_t computed;
    struct flight flight[MAX_FLIGHTS]; /* a ring; events are created when first needed */
    int first, count;                  /* in flight */
    int limit;                         /* most flights */
};

static enum status check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return STATUS_OK;
    return status_fail(error == cudaErrorMemoryAllocation ? STATUS_NO_MEMORY : STATUS_FAILED, "%s: %s", what,
                       cudaGetErrorString(error));
}

/* A pipeline takes its buffers once, all of one size, and gives them back when it is closed: no allocator
 * in front of the runtime would save a call (docs/decisions/080). */
static void *take_pinned(void *owner, size_t bytes)
{
    void *block = NULL;

    (void)owner;
    if (cudaHostAlloc(&block, bytes, cudaHostAllocPortable) == cudaSuccess)
        return block;
    cudaGetLastError(); /* clears the error, so that the next call does not report it */
    return NULL;
}

static void give_pinned(void *owner, void *block)
{
    (void)owner;
    cudaFreeHost(block);
}

enum status feed_open(struct feed **out, struct dataset *dataset, const struct pipeline_config *config)
{
    struct pipeline_config own = *config;
    struct pipeline_stats stats;
    struct feed *feed = calloc(1, sizeof(*feed));
    enum status status;

    *out = NULL;
    if (!feed)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the feed of data");
    status = check(cudaStreamCreateWithFlags(&feed->copies, cudaStreamNonBlocking), "making a stream");
    if (!status)
        status = check(cudaEventCreateWithFlags(&feed->computed, cudaEventDisableTiming), "making an event");
    own.memory = (struct pipeline_memory){take_pinned, give_pinned, NULL};
    if (!status)
        status = pipeline_open(&feed->pipeline, dataset, &own);
    if (status) {
        feed_close(feed);
        return status;
    }
    pipeline_get_stats(feed->pipeline, &stats);
    feed->limit = stats.slots > 2 ? stats.slots - 2 : 1;
    *out = feed;
    return STATUS_OK;
}

void feed_close(struct feed *feed)
{
    if (!feed)
        return;
    if (feed->copies) {
        cudaStreamSynchronize(feed->copies);
        cudaStreamDestroy(feed->copies);
    }
    for (int i = 0; i < MAX_FLIGHTS; i++) {
        if (feed->flight[i].copied)
            cudaEventDestroy(feed->flight[i].copied);
    }
    if (feed->computed)
        cudaEventDestroy(feed->computed);
    pipeline_close(feed->pipeline);
    free(feed);
}

static void land(struct feed *feed)
{
    pipeline_release(feed->pipeline, feed->flight[feed->first].batch);
    feed->first = (feed->first + 1) % MAX_FLIGHTS;
    feed->count--;
}

/* Releases the batches whose copies have finished. Waits only while more than the limit are in flight. */
static enum status land_all(struct feed *feed)
{
    while (feed->count > 0) {
        cudaEvent_t copied = feed->flight[feed->first].copied;
        cudaError_t error = feed->count > feed->limit ? cudaEventSynchronize(copied) : cudaEventQuery(copied);

        if (error == cudaErrorNotReady)
            break;
        if (error)
            return check(error, "copying a batch");
        land(feed);
    }
    return STATUS_OK;
}

enum status feed_next(struct feed *feed, struct batch **out)
{
    enum status status = land_all(feed);

    *out = NULL;
    return status ? status : pipeline_next(feed->pipeline, out);
}

enum status feed_begin(struct feed *feed, cudaStream_t compute)
{
    enum status status = check(cudaEventRecord(feed->computed, compute), "recording an event");

    return status ? status
                  : check(cudaStreamWaitEvent(feed->copies, feed->computed, 0), "making a stream wait");
}

enum status feed_copy(struct feed *feed, void *device, const void *host, size_t bytes)
{
    return check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, feed->copies),
                 "copying a batch to the device");
}

enum status feed_end(struct feed *feed, struct batch *batch, cudaEvent_t *copied)
{
    struct flight *flight = &feed->flight[(feed->first + feed->count) % MAX_FLIGHTS];
    enum status status = STATUS_OK;

    if (!flight->copied)
        status = check(cudaEventCreateWithFlags(&flight->copied, cudaEventDisableTiming), "making an event");
    if (!status)
        status = check(cudaEventRecord(flight->copied, feed->copies), "recording an event");
    if (status)
        return status;
    flight->batch = batch;
    feed->count++;
    *copied = flight->copied;
    return STATUS_OK;
}

enum status feed_wait(cudaEvent_t copied, cudaStream_t compute)
{
    return check(cudaStreamWaitEvent(compute, copied, 0), "making a stream wait");
}

struct pipeline *feed_pipeline(struct feed *feed)
{
    return feed->pipeline;
}

cudaStream_t feed_stream(struct feed *feed)
{
    return feed->copies;
}
