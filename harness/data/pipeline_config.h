/* What a pipeline is asked for, and what a batch of it holds: the part of pipeline.h that mapper.h needs,
 * too. */
#ifndef HARNESS_PIPELINE_CONFIG_H
#define HARNESS_PIPELINE_CONFIG_H

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

#endif
