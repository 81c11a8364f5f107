/* What pipeline.c (the consumer's side) and pipeline_work.c (the workers) share. Each buffer (slot) goes FREE
 * -> FILLING -> READY -> TAKEN -> FREE. One lock (pipeline->lock) guards everything but the mapper; it is
 * never held while a sample is made. */
#ifndef HARNESS_PIPELINE_STATE_H
#define HARNESS_PIPELINE_STATE_H

#include <pthread.h>

#include "harness/data/mapper.h"
#include "harness/data/pipeline.h"

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
    bool failed; /* nothing more is handed out until the next seek */
    double wait_seconds;
};

/* How many samples batch `index` since the last seek has, and where it begins. Under the lock. */
size_t pipeline_extent(const struct pipeline *pipeline, uint64_t index, uint64_t *first);

/* At least one worker, or a message. */
enum status pipeline_start_workers(struct pipeline *pipeline, int count);

#endif
