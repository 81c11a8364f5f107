/* Batches in host memory: dataset -> shuffle -> parallel map (read, decode, augment) -> batch -> prefetch,
 * with a cache of decoded samples. The batches depend on the dataset, the seed and the position alone, not
 * on the number of workers, the cache or the timing. Memory is bounded: there is a fixed number of batch
 * buffers (workers wait when all are full), and the cache stops growing at its budget.
 *
 * Does not use CUDA: buffers come from config->memory, for which feed.h passes pinned memory; feed.h also
 * copies to the device. One thread consumes a pipeline; the workers are its own threads. */
#ifndef HARNESS_PIPELINE_H
#define HARNESS_PIPELINE_H

#include <stddef.h>
#include <stdint.h>

#include "harness/data/dataset.h"
#include "harness/data/pipeline_config.h"

/* The position of a run, to be saved in a checkpoint. Counted in samples, so that it is valid for another
 * batch size. */
struct pipeline_position {
    uint64_t seed;
    uint64_t samples; /* returned so far, by all shards together */
};

struct pipeline_stats {
    uint64_t corrupt;    /* files or records skipped, each counted once */
    int slots;           /* batch buffers */
    double wait_seconds; /* that pipeline_next waited for data */
};

struct pipeline;

/* Returns STATUS_OK if the buffers of such a pipeline fit its budget. Opens nothing. */
enum status pipeline_check(struct dataset *dataset, const struct pipeline_config *config);

/* Returns how many workers pipeline_open starts: one per processor, up to 16, if the options name no number.
 */
int pipeline_workers(const struct pipeline_config *config);

/* Starts the workers. The dataset must outlive the pipeline; several pipelines may share it. */
enum status pipeline_open(struct pipeline **out, struct dataset *dataset,
                          const struct pipeline_config *config);

/* Stops and joins the workers and frees all memory, including batches not yet released. */
void pipeline_close(struct pipeline *pipeline);

/* Sets *out to the next batch, which is the caller's until pipeline_release, or to NULL at the end of a
 * single pass. Returns a worker's failure after the batches before it; its message was printed. */
enum status pipeline_next(struct pipeline *pipeline, struct batch **out);
void pipeline_release(struct pipeline *pipeline, struct batch *batch);

/* Makes the coded samples of a batch again, decoded: what to do when the device could not decode them. A file
 * that cannot be decoded is treated as always: named, and replaced or refused. */
enum status pipeline_decode(struct pipeline *pipeline, struct batch *batch);

/* Get and set the position: how much pipeline_next has returned. pipeline_seek discards batches filled
 * ahead; batches that the caller holds stay valid. */
void pipeline_tell(struct pipeline *pipeline, struct pipeline_position *position);
enum status pipeline_seek(struct pipeline *pipeline, const struct pipeline_position *position);

void pipeline_get_stats(struct pipeline *pipeline, struct pipeline_stats *stats);

#endif
