/* Pruning: sets weights of every matrix to zero, and marks the matrices so that updates keep those zeros.
 * Biases and norms stay: they are small and sensitive. Waits for the device. */
#ifndef HARNESS_PRUNE_MODEL_H
#define HARNESS_PRUNE_MODEL_H

#include <stdint.h>

#include "harness/base/status.h"

struct trainer;

/* The bytes of all parameters in a checkpoint: as floats, and without the zeros of matrices. */
struct prune_model_sizes {
    uint64_t dense, sparse;
    uint64_t weights, zeros; /* of matrices */
};

/* Prunes by --prune and --prune-pattern. */
enum status prune_model(struct trainer *trainer);

/* Counts the zeros that the weights have now. */
enum status prune_model_count(struct trainer *trainer, struct prune_model_sizes *sizes);

#endif
