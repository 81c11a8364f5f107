/* Data-parallel training: replicas of one model, each with its shard of the data. Their gradients are
 * averaged before each update, so that all stay equal. Replicas are threads of this process, on one card
 * (each with its own stream and memory; averaged by an operation) or on one card each (averaged by NCCL),
 * or processes started by MPI. When one fails, the run ends. */
#ifndef HARNESS_REPLICAS_H
#define HARNESS_REPLICAS_H

#include "harness/base/train_options.h"
#include "harness/base/status.h"

/* Runs --replicas and prints the result lines. */
enum status replicas_run(const struct train_options *options);

/* The part of replicas_run for --replicas=mpi. */
enum status replicas_run_mpi(const struct train_options *options);

#endif
