/* Batches on their way to the device: pinned buffers (pinned.h), a copy stream of its own and events, so that
 * the copy of the next batch overlaps the computing of this one. Used by one thread. With two sets of device
 * buffers in turn, a step is
 *
 *     feed_next(feed, &batch);                        the next batch, in host memory
 *     feed_begin(feed, compute);                      copies wait for what compute has been given so far,
 * which may still use their destination feed_copy(feed, next_set, batch->labels, ...); feed_end(feed, batch,
 * &next_copied);            the batch goes back by itself when its copies are done
 *     ... queue the work on this set on compute ...   runs while the copies do
 *     feed_wait(feed, next_copied, compute);          before the work on the next set is queued
 */
#ifndef HARNESS_FEED_H
#define HARNESS_FEED_H

#include <cuda_runtime_api.h>

#include "harness/data/pipeline.h"

struct feed;

/* Pinned memory is taken from the device that is current. config->memory is ignored. */
enum status feed_open(struct feed **out, struct dataset *dataset, const struct pipeline_config *config);

/* Waits for its copies. */
void feed_close(struct feed *feed);

/* *out is NULL at the end of a single pass. */
enum status feed_next(struct feed *feed, struct batch **out);
enum status feed_begin(struct feed *feed, cudaStream_t compute);
enum status feed_copy(struct feed *feed, void *device, const void *host, size_t bytes);

/* *copied is good for feed_wait until 100 more batches have ended. */
enum status feed_end(struct feed *feed, struct batch *batch, cudaEvent_t *copied);
enum status feed_wait(struct feed *feed, cudaEvent_t copied, cudaStream_t compute);

/* For position, seeking and statistics. */
struct pipeline *feed_pipeline(struct feed *feed);

#endif
