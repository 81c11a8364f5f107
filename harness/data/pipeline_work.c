/* The workers of a pipeline. They take pieces of the batch being filled, in order, and begin the next batch
 * when a slot is free. With no free slot they sleep, so memory stays bounded. */
#include "harness/data/pipeline_state.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PIECE = 16 /* samples that a worker takes at once */ };

size_t pipeline_extent(const struct pipeline *pipeline, uint64_t index, uint64_t *first)
{
    *first = pipeline->base + (index * pipeline->shards + pipeline->shard) * pipeline->batch;
    if (!pipeline->once)
        return pipeline->batch;
    if (*first >= pipeline->mapper.count)
        return 0;
    return pipeline->mapper.count - *first < pipeline->batch ? pipeline->mapper.count - *first
                                                             : pipeline->batch;
}

/* Returns the slot with samples to assign, a new one if a slot is free, or NULL if there is nothing to do. */
static struct slot *slot_to_fill(struct pipeline *pipeline)
{
    uint64_t first;
    size_t count;

    if (pipeline->pause || pipeline->failed)
        return NULL;
    if (pipeline->filling)
        return pipeline->filling;
    count = pipeline_extent(pipeline, pipeline->begun, &first);
    for (int i = 0; i < pipeline->slot_count && count; i++) {
        struct slot *slot = &pipeline->slot[i];

        if (slot->state != SLOT_FREE)
            continue;
        slot->state = SLOT_FILLING;
        slot->first = first;
        slot->handed = 0;
        slot->pending = count;
        slot->status = STATUS_OK;
        slot->batch.count = count;
        slot->number = pipeline->begun++;
        pipeline->filling = slot;
        return slot;
    }
    return NULL;
}

/* Pieces are small enough that all workers help with one batch. */
static size_t piece_size(const struct pipeline *pipeline)
{
    size_t size = pipeline->batch / (size_t)pipeline->worker_count / 2;

    return size < 1 ? 1 : size > MAX_PIECE ? MAX_PIECE : size;
}

static enum status make_samples(struct pipeline *pipeline, struct mapper_scratch *scratch, struct slot *slot,
                                uint64_t seed, size_t from, size_t to)
{
    enum status status = STATUS_OK;

    for (size_t i = from; i < to && !status; i++)
        status = mapper_make(&pipeline->mapper, scratch, seed, slot->first + i,
                             &(struct mapper_target){&slot->batch, i, false});
    return status;
}

/* Fills one piece. Called and returns with the lock held. */
static void work_on(struct pipeline *pipeline, struct mapper_scratch *scratch, struct slot *slot)
{
    size_t from = slot->handed, size = piece_size(pipeline);
    size_t to = slot->batch.count - from < size ? slot->batch.count : from + size;
    uint64_t seed = pipeline->seed;
    enum status status;

    slot->handed = to;
    if (to == slot->batch.count)
        pipeline->filling = NULL;
    pipeline->busy++;
    pthread_mutex_unlock(&pipeline->lock);
    status = make_samples(pipeline, scratch, slot, seed, from, to);
    pthread_mutex_lock(&pipeline->lock);
    pipeline->busy--;
    if (status) {
        slot->status = slot->status ? slot->status : status;
        pipeline->failed = true;
    }
    slot->pending -= to - from;
    if (slot->pending == 0)
        slot->state = SLOT_READY;
    if (slot->pending == 0 || pipeline->busy == 0 || status)
        pthread_cond_broadcast(&pipeline->ready);
}

static void *worker_main(void *argument)
{
    struct pipeline *pipeline = argument;
    struct mapper_scratch scratch = {0};
    struct slot *slot;

    pthread_mutex_lock(&pipeline->lock);
    while (!pipeline->stop) {
        slot = slot_to_fill(pipeline);
        if (slot)
            work_on(pipeline, &scratch, slot);
        else
            pthread_cond_wait(&pipeline->work, &pipeline->lock);
    }
    pthread_mutex_unlock(&pipeline->lock);
    mapper_free_scratch(&scratch);
    return NULL;
}

/* Signals are for the program's own threads. */
enum status pipeline_start_workers(struct pipeline *pipeline, int count)
{
    sigset_t all, before;
    int error = 0;

    pipeline->worker = calloc((size_t)count, sizeof(*pipeline->worker));
    if (!pipeline->worker)
        return status_fail(STATUS_NO_MEMORY, "no host memory for %d workers", count);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < count && !error; i++) {
        pthread_mutex_lock(&pipeline->lock);
        error = pthread_create(&pipeline->worker[i], NULL, worker_main, pipeline);
        pipeline->worker_count += !error;
        pthread_mutex_unlock(&pipeline->lock);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error && pipeline->worker_count == 0)
        return status_fail(STATUS_FAILED, "no thread can be started to read data: %s", strerror(error));
    return STATUS_OK;
}
