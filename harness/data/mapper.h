/* Makes the samples of a pipeline. Sample `number` counts through all epochs. It depends on the seed and
 * the number alone, so that any thread may make any sample. */
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
    bool coded; /* JPEG files may be left to the device */
    uint64_t shuffle;
    uint64_t count; /* samples in an epoch */
    struct sample_cache *cache;
    _Atomic uint8_t *bad; /* a bit per sample, set if it cannot be read; NULL: all can */
    _Atomic uint64_t corrupt;
};

/* A thread's own buffers. Zeroed at first. */
struct mapper_scratch {
    struct scratch file;
    struct scratch picture;
    struct scratch worse;
};

enum status mapper_open(struct mapper *mapper, struct dataset *dataset, const struct pipeline_config *config);
void mapper_close(struct mapper *mapper);
void mapper_free_scratch(struct mapper_scratch *scratch);

/* Sets the members of `batch` to their places in `block`. Returns the bytes of a batch of `count` samples. */
size_t mapper_layout(const struct mapper *mapper, size_t count, uint8_t *block, struct batch *batch);

/* Where a sample goes: place `place` of the batch. `decoded`: decode a JPEG file here even if the device
 * could. */
struct mapper_target {
    struct batch *batch;
    size_t place;
    bool decoded;
};

/* Makes sample `number`. */
enum status mapper_make(struct mapper *mapper, struct mapper_scratch *scratch, uint64_t seed, uint64_t number,
                        const struct mapper_target *target);

#endif
