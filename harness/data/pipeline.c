/* The buffers and the consumer's side of a pipeline; see pipeline_state.h for the lock. */
#include "harness/data/pipeline_state.h"

#include <stdlib.h>
#include <unistd.h>

#include "harness/base/now.h"

enum {
    DEFAULT_PREFETCH = 2,
    CONSUMER_SLOTS = 2, /* one being copied to the device, one held by the consumer */
    MAX_PREFETCH = 64,
    MAX_WORKERS = 256,
    MAX_DEFAULT_WORKERS = 16
};

#define MAX_POSITION (UINT64_MAX / 4) /* far from where the arithmetic of positions would wrap */

static const size_t default_budget = (size_t)1 << 30;

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

/* Computes the bytes of a batch, and how many the budget has room for: two at least, or it fails. */
static enum status fit_batches(const struct mapper *mapper, const struct pipeline_config *config,
                               size_t *bytes, size_t *fit)
{
    size_t budget = config->budget ? config->budget : default_budget;

    *bytes = mapper_layout(mapper, config->batch, NULL, &(struct batch){0});
    *fit = budget / *bytes;
    if (*fit >= 2)
        return STATUS_OK;
    return status_fail(STATUS_NO_MEMORY,
                       "two batches of %zu samples take %zu bytes each, more than the budget of %zu: "
                       "a smaller --%s or a larger --data-budget is needed",
                       config->batch, *bytes, budget,
                       config->split == DATA_VALIDATION ? "val-batch" : "batch");
}

enum status pipeline_check(struct dataset *dataset, const struct pipeline_config *config)
{
    struct pipeline_config plain = *config;
    struct mapper mapper;
    size_t bytes, fit;
    enum status status;

    plain.cache = 0;
    status = mapper_open(&mapper, dataset, &plain);
    if (!status)
        status = fit_batches(&mapper, &plain, &bytes, &fit);
    mapper_close(&mapper);
    return status;
}

/* Allocates as many slots as requested, as far as the budget allows. */
static enum status make_slots(struct pipeline *pipeline, const struct pipeline_config *config)
{
    int prefetch = config->prefetch > 0 ? config->prefetch : DEFAULT_PREFETCH;
    int wanted = (prefetch > MAX_PREFETCH ? MAX_PREFETCH : prefetch) + CONSUMER_SLOTS;
    size_t fit;
    enum status status = fit_batches(&pipeline->mapper, config, &pipeline->block_bytes, &fit);

    if (status)
        return status;
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

int pipeline_workers(const struct pipeline_config *config)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);

    if (config->workers > 0)
        return config->workers;
    return processors < 1 ? 1 : processors > MAX_DEFAULT_WORKERS ? MAX_DEFAULT_WORKERS : (int)processors;
}

enum status pipeline_open(struct pipeline **out, struct dataset *dataset,
                          const struct pipeline_config *config)
{
    struct pipeline *pipeline = calloc(1, sizeof(*pipeline));
    int workers = pipeline_workers(config);
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
        status = pipeline_start_workers(pipeline, workers > MAX_WORKERS ? MAX_WORKERS : workers);
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

/* Returns the slot of the next batch, or NULL if it is not ready. Sets *all_out if the consumer holds every
 * slot, so that waiting would never end. */
static struct slot *next_slot(struct pipeline *pipeline, bool *all_out)
{
    int held = 0;

    for (int i = 0; i < pipeline->slot_count; i++) {
        struct slot *slot = &pipeline->slot[i];
        bool over = slot->state == SLOT_READY || (slot->state == SLOT_FILLING && slot->status);

        if (over && slot->number == pipeline->taken)
            return slot;
        held += slot->state == SLOT_TAKEN;
    }
    *all_out = held == pipeline->slot_count;
    return NULL;
}

static enum status wait_for_slot(struct pipeline *pipeline, struct slot **out)
{
    bool all_out = false;
    double start = 0.0;

    while (!(*out = next_slot(pipeline, &all_out)) && !all_out) {
        start = start > 0.0 ? start : now_s();
        pthread_cond_wait(&pipeline->ready, &pipeline->lock);
    }
    if (start > 0.0)
        pipeline->wait_seconds += now_s() - start;
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
    if (pipeline_extent(pipeline, pipeline->taken, &first) > 0)
        status = wait_for_slot(pipeline, &slot);
    if (!status && slot) {
        slot->state = SLOT_TAKEN;
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

enum status pipeline_decode(struct pipeline *pipeline, struct batch *batch)
{
    const struct slot *slot = (const struct slot *)batch;
    struct mapper_scratch scratch = {0};
    enum status status = STATUS_OK;
    uint64_t seed;

    pthread_mutex_lock(&pipeline->lock);
    seed = pipeline->seed;
    pthread_mutex_unlock(&pipeline->lock);
    for (size_t i = 0; i < batch->count && !status; i++) {
        if (batch->coded && batch->coded[i].bytes)
            status = mapper_make(&pipeline->mapper, &scratch, seed, slot->first + i,
                                 &(struct mapper_target){batch, i, true});
    }
    mapper_free_scratch(&scratch);
    return status;
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
        return status_fail(STATUS_FAILED, "the saved position is damaged: no run can have read %llu samples",
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
    pipeline->failed = false;
    pipeline->pause = false;
    pthread_cond_broadcast(&pipeline->work);
    pthread_mutex_unlock(&pipeline->lock);
    return STATUS_OK;
}

void pipeline_get_stats(struct pipeline *pipeline, struct pipeline_stats *stats)
{
    pthread_mutex_lock(&pipeline->lock);
    *stats = (struct pipeline_stats){
        .corrupt = atomic_load_explicit(&pipeline->mapper.corrupt, memory_order_relaxed),
        .slots = pipeline->slot_count,
        .wait_seconds = pipeline->wait_seconds,
    };
    pthread_mutex_unlock(&pipeline->lock);
}
