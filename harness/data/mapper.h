/* The parallel map of a pipeline: makes sample `number` of the endless stream of samples, all epochs one
 * after the other, into its place in a batch. What comes out follows from the seed and the number alone, so
 * that any thread may make any sample. */
#ifndef HARNESS_MAPPER_H
#define HARNESS_MAPPER_H

#include <stdatomic.h>

#include "harness/data/sample_cache.h"
#include "harness/data/pipeline_config.h"
#include "harness/data/dataset_source.h"

struct mapper {
    struct dataset *dataset;
    enum data_split split;
    enum pipeline_prepare prepare;
    bool augment;
    uint64_t shuffle;
    uint64_t count; /* samples of an epoch */
    struct sample_cache *cache;
    _Atomic uint8_t *bad; /* one bit per sample that cannot be read; NULL: all can */
    _Atomic uint64_t corrupt;
    _Atomic uint64_t made;
};

/* A thread's own buffers; all zero at first. */
struct mapper_scratch {
    struct scratch file;
    struct scratch picture;
    struct scratch worse;
};

enum status mapper_open(struct mapper *mapper, struct dataset *dataset, const struct pipeline_config *config);
void mapper_close(struct mapper *mapper);
void mapper_free_scratch(struct mapper_scratch *scratch);

/* Bytes of a batch, and its parts set to their places in block. */
size_t mapper_layout(const struct mapper *mapper, size_t count, uint8_t *block, struct batch *batch);

enum status mapper_make(struct mapper *mapper, struct mapper_scratch *scratch, uint64_t seed, uint64_t number,
                        struct batch *batch, size_t place);

#endif
