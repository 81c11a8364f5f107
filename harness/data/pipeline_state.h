/* What pipeline.c (the consumer's side) and pipeline_work.c (the workers) share. A buffer (slot) goes FREE
 * -> FILLING -> READY -> TAKEN -> FREE. pipeline->lock guards everything except the mapper, and is never
 * held while a sample is made. */
#ifndef HARNESS_PIPELINE_STATE_H
#define HARNESS_PIPELINE_STATE_H

#include <pthread.h>

#include "harness/data/mapper.h"
#include "harness/data/pipeline.h"

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_TAKEN };

struct slot {
    struct batch batch; /* must be first: pipeline_release casts it to the slot */
    enum slot_state state;
    uint8_t *block;
    uint64_t number; /* of the batch, counted from the last seek */
    uint64_t first;  /* number of its first sample */
    size_t handed;   /* samples assigned to workers */
    size_t pending;  /* samples not finished */
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
    pthread_cond_t work;  /* signalled when a slot may be filled, or on stop */
    pthread_cond_t ready; /* signalled when a batch is ready, or no worker is busy */
    /* under the lock: */
    uint64_t seed;
    uint64_t base;  /* position of the first batch since the last seek */
    uint64_t begun; /* batches begun since that seek */
    uint64_t taken; /* batches returned since that seek */
    struct slot *filling;
    int busy; /* workers that are making samples */
    bool stop, pause;
    bool failed; /* no more batches until the next seek */
    double wait_seconds;
};

/* Returns the number of samples of batch `index` since the last seek, and sets *first to its first. The
 * caller holds the lock. */
size_t pipeline_extent(const struct pipeline *pipeline, uint64_t index, uint64_t *first);

/* Starts up to `count` workers. Prints a message and fails if not even one starts. */
enum status pipeline_start_workers(struct pipeline *pipeline, int count);

#endif
