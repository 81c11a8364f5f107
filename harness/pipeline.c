/* Buffers, workers and the consumer's side of a pipeline. Each buffer (slot) goes FREE -> FILLING -> READY ->
 * TAKEN -> FREE. Workers take pieces of the batch that is being filled, in order, and begin the next batch as
 * soon as a slot is free; with none free they sleep, which is the back-pressure. One lock (pipeline->lock)
 * guards everything but the mapper; it is never held while a sample is made. */
#include "pipeline.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mapper.h"

enum {
    DEFAULT_PREFETCH = 2,
    CONSUMER_SLOTS = 2, /* one that the device copies from, one that the consumer looks at */
    MAX_PREFETCH = 64,
    MAX_WORKERS = 256,
    MAX_DEFAULT_WORKERS = 16,
    MAX_PIECE = 16 /* samples that a worker takes at once */
};

#define MAX_POSITION (UINT64_MAX / 4) /* far from where the arithmetic of positions would wrap */

static const size_t default_budget = (size_t)1 << 30;

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_TAKEN };

struct slot {
    struct batch batch; /* first: pipeline_release finds its slot by it */
    enum slot_state state;
    uint8_t *block;
    uint64_t first; /* number of its first sample */
    size_t handed;  /* samples that workers have taken */
    size_t pending; /* samples that are not done */
    enum status status;
};

struct pipeline {
    struct mapper mapper;
    struct pipeline_memory memory;
    size_t batch;
    uint64_t shard, shards;
    bool once;
    int slot_count, worker_count;
    size_t block_bytes;
    struct slot *slot;
    pthread_t *worker;

    pthread_mutex_t lock;
    pthread_cond_t work;  /* there may be something to fill, or stop */
    pthread_cond_t ready; /* a batch is done, or nobody fills any more */
    /* under the lock: */
    uint64_t seed;
    uint64_t base;    /* position of the first batch since the last seek */
    uint64_t begun;   /* batches begun since then */
    uint64_t taken;   /* batches given out since then */
    uint64_t numbers; /* batches given out since the pipeline was opened */
    struct slot *filling;
    int busy; /* workers that make samples right now */
    bool stop, pause;
    double wait_seconds;
};

static void *plain_alloc(void *owner, size_t bytes)
{
    (void)owner;
    return malloc(bytes);
}

static void plain_free(void *owner, void *block)
{
    (void)owner;
    free(block);
}

/* How many samples batch `index` since the last seek has, and where it begins. */
static size_t batch_extent(const struct pipeline *pipeline, uint64_t index, uint64_t *first)
{
    *first = pipeline->base + (index * pipeline->shards + pipeline->shard) * pipeline->batch;
    if (!pipeline->once)
        return pipeline->batch;
    if (*first >= pipeline->mapper.count)
        return 0;
    return pipeline->mapper.count - *first < pipeline->batch ? pipeline->mapper.count - *first
                                                             : pipeline->batch;
}

/* The slot that has samples to hand out, a new one if there is room; NULL when there is nothing to do. */
static struct slot *slot_to_fill(struct pipeline *pipeline)
{
    uint64_t first;
    size_t count;

    if (pipeline->pause)
        return NULL;
    if (pipeline->filling)
        return pipeline->filling;
    count = batch_extent(pipeline, pipeline->begun, &first);
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
        slot->batch.epoch = first / pipeline->mapper.count;
        slot->batch.number = pipeline->begun++;
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
        status = mapper_make(&pipeline->mapper, scratch, seed, slot->first + i, &slot->batch, i);
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
    if (status && !slot->status)
        slot->status = status;
    slot->pending -= to - from;
    if (slot->pending == 0)
        slot->state = SLOT_READY;
    if (slot->pending == 0 || pipeline->busy == 0)
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
static enum status start_workers(struct pipeline *pipeline, int count)
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

/* As many slots as were asked for and fit the budget. */
static enum status make_slots(struct pipeline *pipeline, const struct pipeline_config *config)
{
    size_t budget = config->budget ? config->budget : default_budget;
    int prefetch = config->prefetch > 0 ? config->prefetch : DEFAULT_PREFETCH;
    int wanted = (prefetch > MAX_PREFETCH ? MAX_PREFETCH : prefetch) + CONSUMER_SLOTS;
    size_t fit;

    pipeline->block_bytes = mapper_layout(&pipeline->mapper, pipeline->batch, NULL, &(struct batch){0});
    fit = budget / pipeline->block_bytes;
    if (fit < 2)
        return status_fail(STATUS_FAILED,
                           "two batches of %zu samples take %zu bytes each, more than the budget of %zu: "
                           "a smaller --batch or a larger --data-budget is needed",
                           pipeline->batch, pipeline->block_bytes, budget);
    wanted = fit < (size_t)wanted ? (int)fit : wanted;
    pipeline->slot = calloc((size_t)wanted, sizeof(*pipeline->slot));
    if (!pipeline->slot)
        return status_fail(STATUS_NO_MEMORY, "no host memory for %d batches", wanted);
    for (; pipeline->slot_count < wanted; pipeline->slot_count++) {
        struct slot *slot = &pipeline->slot[pipeline->slot_count];

        slot->block = pipeline->memory.alloc(pipeline->memory.owner, pipeline->block_bytes);
        if (!slot->block && pipeline->slot_count >= 2)
            break;
        if (!slot->block)
            return status_fail(STATUS_NO_MEMORY, "no host memory for a batch of %zu samples (%zu bytes)",
                               pipeline->batch, pipeline->block_bytes);
        mapper_layout(&pipeline->mapper, pipeline->batch, slot->block, &slot->batch);
    }
    return STATUS_OK;
}

static int default_workers(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);

    return processors < 1 ? 1 : processors > MAX_DEFAULT_WORKERS ? MAX_DEFAULT_WORKERS : (int)processors;
}

enum status pipeline_open(struct pipeline **out, struct dataset *dataset,
                          const struct pipeline_config *config)
{
    struct pipeline *pipeline = calloc(1, sizeof(*pipeline));
    int workers = config->workers > 0 ? config->workers : default_workers();
    enum status status;

    *out = NULL;
    if (!pipeline)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the data pipeline");
    pipeline->memory = config->memory;
    if (!pipeline->memory.alloc)
        pipeline->memory = (struct pipeline_memory){plain_alloc, plain_free, NULL};
    pipeline->batch = config->batch;
    pipeline->seed = config->seed;
    pipeline->once = config->once;
    pipeline->shard = config->shard;
    pipeline->shards = config->shards ? config->shards : 1;
    pthread_mutex_init(&pipeline->lock, NULL);
    pthread_cond_init(&pipeline->work, NULL);
    pthread_cond_init(&pipeline->ready, NULL);
    status = mapper_open(&pipeline->mapper, dataset, config);
    if (!status && (pipeline->batch == 0 || pipeline->shard >= pipeline->shards))
        status = status_fail(STATUS_FAILED, "a batch needs samples, and shard %llu must be one of %llu",
                             (unsigned long long)pipeline->shard, (unsigned long long)pipeline->shards);
    if (!status)
        status = make_slots(pipeline, config);
    if (!status)
        status = start_workers(pipeline, workers > MAX_WORKERS ? MAX_WORKERS : workers);
    if (status)
        pipeline_close(pipeline);
    else
        *out = pipeline;
    return status;
}

void pipeline_close(struct pipeline *pipeline)
{
    if (!pipeline)
        return;
    pthread_mutex_lock(&pipeline->lock);
    pipeline->stop = true;
    pthread_cond_broadcast(&pipeline->work);
    pthread_mutex_unlock(&pipeline->lock);
    for (int i = 0; i < pipeline->worker_count; i++)
        pthread_join(pipeline->worker[i], NULL);
    for (int i = 0; i < pipeline->slot_count; i++)
        pipeline->memory.free(pipeline->memory.owner, pipeline->slot[i].block);
    free(pipeline->slot);
    free(pipeline->worker);
    mapper_close(&pipeline->mapper);
    pthread_cond_destroy(&pipeline->ready);
    pthread_cond_destroy(&pipeline->work);
    pthread_mutex_destroy(&pipeline->lock);
    free(pipeline);
}

/* The slot of the next batch to give out, or NULL; *all_out: the consumer holds every
 * slot, so it never comes. */
static struct slot *next_slot(struct pipeline *pipeline, bool *all_out)
{
    int held = 0;

    for (int i = 0; i < pipeline->slot_count; i++) {
        struct slot *slot = &pipeline->slot[i];

        if (slot->state == SLOT_READY && slot->batch.number == pipeline->taken)
            return slot;
        held += slot->state == SLOT_TAKEN;
    }
    *all_out = held == pipeline->slot_count;
    return NULL;
}

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static enum status wait_for_slot(struct pipeline *pipeline, struct slot **out)
{
    bool all_out = false;
    double start = 0.0;

    while (!(*out = next_slot(pipeline, &all_out)) && !all_out) {
        start = start > 0.0 ? start : seconds_now();
        pthread_cond_wait(&pipeline->ready, &pipeline->lock);
    }
    if (start > 0.0)
        pipeline->wait_seconds += seconds_now() - start;
    if (all_out)
        return status_fail(STATUS_FAILED, "all %d batches are out: one must be released before the next",
                           pipeline->slot_count);
    return (*out)->status;
}

enum status pipeline_next(struct pipeline *pipeline, struct batch **out)
{
    enum status status = STATUS_OK;
    struct slot *slot = NULL;
    uint64_t first;

    *out = NULL;
    pthread_mutex_lock(&pipeline->lock);
    if (batch_extent(pipeline, pipeline->taken, &first) > 0)
        status = wait_for_slot(pipeline, &slot);
    if (!status && slot) {
        slot->state = SLOT_TAKEN;
        slot->batch.number = pipeline->numbers++;
        pipeline->taken++;
        *out = &slot->batch;
    }
    pthread_mutex_unlock(&pipeline->lock);
    return status;
}

void pipeline_release(struct pipeline *pipeline, struct batch *batch)
{
    struct slot *slot = (struct slot *)batch;

    pthread_mutex_lock(&pipeline->lock);
    slot->state = SLOT_FREE;
    pthread_cond_broadcast(&pipeline->work);
    pthread_mutex_unlock(&pipeline->lock);
}

void pipeline_tell(struct pipeline *pipeline, struct pipeline_position *position)
{
    pthread_mutex_lock(&pipeline->lock);
    position->seed = pipeline->seed;
    position->samples = pipeline->base + pipeline->taken * pipeline->shards * pipeline->batch;
    if (pipeline->once && position->samples > pipeline->mapper.count)
        position->samples = pipeline->mapper.count;
    pthread_mutex_unlock(&pipeline->lock);
}

enum status pipeline_seek(struct pipeline *pipeline, const struct pipeline_position *position)
{
    if (position->samples > MAX_POSITION)
        return status_fail(STATUS_FAILED, "no run has seen %llu samples: the saved position is damaged",
                           (unsigned long long)position->samples);
    pthread_mutex_lock(&pipeline->lock);
    pipeline->pause = true;
    while (pipeline->busy > 0)
        pthread_cond_wait(&pipeline->ready, &pipeline->lock);
    for (int i = 0; i < pipeline->slot_count; i++) {
        if (pipeline->slot[i].state != SLOT_TAKEN)
            pipeline->slot[i].state = SLOT_FREE;
    }
    pipeline->filling = NULL;
    pipeline->seed = position->seed;
    pipeline->base = position->samples;
    pipeline->begun = 0;
    pipeline->taken = 0;
    pipeline->pause = false;
    pthread_cond_broadcast(&pipeline->work);
    pthread_mutex_unlock(&pipeline->lock);
    return STATUS_OK;
}

void pipeline_get_stats(struct pipeline *pipeline, struct pipeline_stats *stats)
{
    struct mapper *mapper = &pipeline->mapper;

    pthread_mutex_lock(&pipeline->lock);
    *stats = (struct pipeline_stats){
        .batches = pipeline->numbers,
        .samples = atomic_load_explicit(&mapper->made, memory_order_relaxed),
        .corrupt = atomic_load_explicit(&mapper->corrupt, memory_order_relaxed),
        .cache_hits = cache_hits(mapper->cache),
        .cache_bytes = cache_bytes(mapper->cache),
        .buffer_bytes = pipeline->block_bytes * (size_t)pipeline->slot_count,
        .workers = pipeline->worker_count,
        .slots = pipeline->slot_count,
        .prefetch = pipeline->slot_count > CONSUMER_SLOTS ? pipeline->slot_count - CONSUMER_SLOTS : 1,
        .wait_seconds = pipeline->wait_seconds,
    };
    pthread_mutex_unlock(&pipeline->lock);
}
