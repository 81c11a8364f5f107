/* Copies batches to the device from pinned buffers, on a stream of its own, so that the copy of
 * the next batch overlaps the computing of this one. Belongs to one thread. With two sets of device buffers
 * in turn, a step is:
 *
 *     feed_next(feed, &batch);                   gets the next batch, in host memory
 *     feed_begin(feed, compute);                 later copies wait for the work queued on compute so far,
 *                                                which may still read the set to be overwritten
 *     feed_copy(feed, next_set, batch->labels, ...);
 *     feed_end(feed, batch, &next_copied);       releases the batch once its copies have finished
 *     ... queue the work on this set ...         it runs while the copies do
 *     feed_wait(next_copied, compute);           call before queueing work on the next set
 */
#ifndef HARNESS_FEED_H
#define HARNESS_FEED_H

#include <cuda_runtime_api.h>

#include "harness/data/pipeline.h"

struct feed;

/* Takes pinned memory with the current device. Ignores config->memory. */
enum status feed_open(struct feed **out, struct dataset *dataset, const struct pipeline_config *config);

/* Waits for outstanding copies first. */
void feed_close(struct feed *feed);

/* Sets *out to the next batch, or to NULL at the end of a single pass. */
enum status feed_next(struct feed *feed, struct batch **out);

/* Makes the copies that follow wait for the work queued on `compute` so far. */
enum status feed_begin(struct feed *feed, cudaStream_t compute);

/* Queues a copy from the batch to the device. */
enum status feed_copy(struct feed *feed, void *device, const void *host, size_t bytes);

/* Ends the copies of this batch and sets *copied, which is valid for feed_wait until 100 more batches have
 * ended. The batch is released when its copies have finished. */
enum status feed_end(struct feed *feed, struct batch *batch, cudaEvent_t *copied);

/* Makes later work on `compute` wait for those copies. */
enum status feed_wait(cudaEvent_t copied, cudaStream_t compute);

/* Returns the stream of the copies, for work between feed_begin and feed_end that goes with them. */
cudaStream_t feed_stream(struct feed *feed);

/* Returns the pipeline, for its position and statistics. */
struct pipeline *feed_pipeline(struct feed *feed);

#endif
