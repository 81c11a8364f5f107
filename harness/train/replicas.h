/* Data-parallel training: several replicas of one model, each with its share of the data, whose gradients are
 * averaged before every update, so that all of them stay equal. Replicas are threads of this process, on one
 * card (each with a stream and memory of its own; averaged by an operation) or on one card each (averaged by
 * NCCL), or processes that MPI started. When one fails, the run ends. */
#ifndef HARNESS_REPLICAS_H
#define HARNESS_REPLICAS_H

#include "harness/base/train_options.h"
#include "harness/base/status.h"

enum status replicas_run(const struct train_options *options);

/* What replicas_run calls for --replicas=mpi. */
enum status replicas_run_mpi(const struct train_options *options);

#endif
