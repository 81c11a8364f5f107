/* Batches on the host: dataset -> shuffle -> parallel map (read, decode, augment) -> batch -> prefetch, with
 * a cache of decoded samples. The batches that a pipeline gives follow from the dataset, the seed and the
 * position alone: not from the number of workers, the cache or who was faster. Its memory is bounded: a fixed
 * number of batch buffers (workers wait when all are full) and a cache that stops growing at its budget.
 *
 * No CUDA here: buffers come from `memory`, which feed.h fills with pinned memory; copying to the device is
 * feed.h's work too. One thread consumes a pipeline; the workers are its own. */
#ifndef HARNESS_PIPELINE_H
#define HARNESS_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/data/dataset.h"
#include "kernels/ops.h" /* struct ops_crop */

/* Where pictures are cut, resized and normalized: by the operation image_prepare on the device (a batch then
 * has bytes and crops), or here (it then has floats). */
enum pipeline_prepare { PREPARE_GPU, PREPARE_CPU };

/* What a batch holds; what does not apply is NULL. All of it lies in one block of pinned memory. */
struct batch {
    uint64_t number;        /* of this pipeline, from 0 */
    uint64_t epoch;         /* of its first sample */
    size_t count;           /* samples; less than asked for only at the end of a single pass */
    uint8_t *bytes;         /* PREPARE_GPU: [count][raw_h][raw_w][c] */
    uint8_t *target_bytes;  /* the same for pairs; cut by the same crops */
    struct ops_crop *crops; /* [count] */
    float *floats;          /* PREPARE_CPU, and floats: [count][h][w][c] */
    float *target_floats;   /* the same for pairs */
    int32_t *labels;        /* [count]; tokens: [count][length], what follows each token */
    int32_t *tokens;        /* [count][length] */
};

/* Memory for batches. alloc returns NULL when there is none. */
struct pipeline_memory {
    void *(*alloc)(void *owner, size_t bytes);
    void (*free)(void *owner, void *block);
    void *owner;
};

struct pipeline_config {
    enum data_split split;
    size_t batch;
    uint64_t seed;
    bool augment; /* random cuts and mirrors */
    bool once;    /* a single pass in order, then the end; else for ever */
    enum pipeline_prepare prepare;
    uint64_t shuffle; /* samples that are mixed with each other: 0 none, UINT64_MAX all */
    int workers;      /* threads (0: one per processor, at most 16) */
    int prefetch;     /* batches filled ahead (0: 2) */
    size_t budget;    /* bytes for all batch buffers (0: 1 GiB): prefetch shrinks to fit, at least to 1 */
    size_t cache;     /* bytes of decoded samples to keep (0: none) */
    uint64_t shard, shards;        /* of replicas: this one's number and how many there are (0: one) */
    struct pipeline_memory memory; /* all zero: malloc */
};

/* All that is needed to go on where a run was: save it with a checkpoint as it is. Counted in samples, so it
 * holds for another batch size, too. */
struct pipeline_position {
    uint64_t seed;
    uint64_t samples; /* given out so far, by all shards together */
};

struct pipeline_stats {
    uint64_t batches; /* given out */
    uint64_t samples; /* made */
    uint64_t corrupt; /* files or records left out, each counted once */
    uint64_t cache_hits;
    size_t cache_bytes;
    size_t buffer_bytes; /* of all batch buffers */
    int workers, prefetch;
    int slots;           /* batch buffers */
    double wait_seconds; /* the consumer waited for data */
};

struct pipeline;

/* Starts the workers. The dataset must outlive the pipeline; several pipelines may share one. */
enum status pipeline_open(struct pipeline **out, struct dataset *dataset,
                          const struct pipeline_config *config);

/* Stops and joins the workers and gives back all memory, also batches that are still out. */
void pipeline_close(struct pipeline *pipeline);

/* The next batch, NULL at the end of a single pass. It is the caller's until pipeline_release. A failure of a
 * worker (with its message) comes out here, after the batches before it. */
enum status pipeline_next(struct pipeline *pipeline, struct batch **out);
void pipeline_release(struct pipeline *pipeline, struct batch *batch);

/* How much pipeline_next has given out, and going there: batches filled ahead are dropped. Batches that are
 * out stay valid. */
void pipeline_tell(struct pipeline *pipeline, struct pipeline_position *position);
enum status pipeline_seek(struct pipeline *pipeline, const struct pipeline_position *position);

void pipeline_get_stats(struct pipeline *pipeline, struct pipeline_stats *stats);

#endif
