/* Batches on their way to the device: pinned buffers (pinned.h), a copy stream of its own and events, so that
 * the copy of the next batch overlaps the computing of this one. Used by one thread. A step is
 *
 *     feed_next(feed, &batch);              host memory, ready to be copied
 *     feed_begin(feed, compute);            copies wait for what compute has been given so far, where the
 *                                           destination may still be in use; left out with fresh memory
 *     feed_copy(feed, device, batch->labels, bytes); ...
 *     feed_end(feed, batch, compute);       compute waits for the copies; the batch goes back by itself when
 *                                           they are done
 *
 * To overlap, do this for the next batch before the work of this one is queued, into a second set of device
 * buffers. */
#ifndef HARNESS_FEED_H
#define HARNESS_FEED_H

#include <cuda_runtime_api.h>

#include "pipeline.h"

struct feed;

/* Pinned memory is taken from the device that is current. config->memory is ignored. */
enum status feed_open(struct feed **out, struct dataset *dataset, const struct pipeline_config *config);

/* Waits for its copies. */
void feed_close(struct feed *feed);

/* *out is NULL at the end of a single pass. */
enum status feed_next(struct feed *feed, struct batch **out);
enum status feed_begin(struct feed *feed, cudaStream_t compute);
enum status feed_copy(struct feed *feed, void *device, const void *host, size_t bytes);
enum status feed_end(struct feed *feed, struct batch *batch, cudaStream_t compute);

/* For position, seeking and statistics. */
struct pipeline *feed_pipeline(struct feed *feed);

#endif
