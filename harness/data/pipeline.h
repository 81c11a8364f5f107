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
#include "harness/data/pipeline_config.h"

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
