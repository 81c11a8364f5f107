/* The configuration of a pipeline, and the contents of a batch: the part of pipeline.h that mapper.h also
 * needs. */
#ifndef HARNESS_PIPELINE_CONFIG_H
#define HARNESS_PIPELINE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/data/dataset.h"
#include "kernels/ops.h" /* struct ops_crop */

/* Where pictures are cropped, resized and normalized: on the device by the operation image_prepare (a batch
 * then holds bytes and crops), or on the host (it then holds floats). */
enum pipeline_prepare { PREPARE_GPU, PREPARE_CPU };

/* A batch, in one block of memory. Members that do not apply are NULL. */
struct batch {
    size_t count;   /* samples; fewer than configured only at the end of a single pass */
    uint8_t *bytes; /* PREPARE_GPU: [count][raw_h][raw_w][c], each at a multiple of `stride` */
    size_t stride;
    struct coded_picture *coded;  /* [count]: which of them are JPEG files for the device to decode */
    struct ops_picture *pictures; /* [count], with `coded`: room for the decoder's table */
    uint8_t *target_bytes;        /* pairs: the target, with the same crops */
    struct ops_crop *crops;       /* [count] */
    float *floats;                /* PREPARE_CPU, and floats: [count][h][w][c] */
    float *target_floats;         /* pairs: the target */
    int32_t *labels;              /* [count]; tokens: [count][length], the token after each */
    int32_t *tokens;              /* [count][length] */
};

/* Allocates batch buffers. alloc returns NULL when there is no memory. */
struct pipeline_memory {
    void *(*alloc)(void *owner, size_t bytes);
    void (*free)(void *owner, void *block);
    void *owner;
};

struct pipeline_config {
    enum data_split split;
    size_t batch;
    uint64_t seed;
    bool augment; /* random crops and mirroring */
    bool once;    /* a single pass in order; else endless */
    enum pipeline_prepare prepare;
    bool coded; /* leave JPEG files that the device can decode as they are: pictures of files, PREPARE_GPU */
    uint64_t shuffle; /* size of the windows that are shuffled: 0: no shuffling, UINT64_MAX: everything */
    int workers;      /* threads (0: one per processor, at most 16) */
    int prefetch;     /* batches filled ahead (0: 2) */
    size_t budget;    /* bytes for all batch buffers (0: 1 GiB); reduces prefetch, down to 1 */
    size_t cache;     /* bytes for the cache of decoded samples (0: none; none with `coded`) */
    uint64_t shard, shards;        /* this replica's number, and how many there are (0: one) */
    struct pipeline_memory memory; /* all zero: malloc */
};

#endif
