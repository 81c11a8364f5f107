/* Smaller models: after the training, sets the fraction of weights given by --prune to zero and trains on
 * with them (--prune-steps), or rounds weights to bytes (--quantize=int8), validates again, and with --save
 * writes the weights alone to a small checkpoint. */
#ifndef HARNESS_SHRINK_MODEL_H
#define HARNESS_SHRINK_MODEL_H

#include "harness/base/status.h"

struct trainer;

/* Prints one result line for each option given. */
enum status shrink_model_evaluate(struct trainer *trainer);

#endif
