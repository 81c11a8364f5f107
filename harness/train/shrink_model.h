/* Smaller models: after training, the share of weights that --prune names is set to zero, or the weights are
 * kept as bytes (--quantize=int8), and the validation runs again. */
#ifndef HARNESS_SHRINK_MODEL_H
#define HARNESS_SHRINK_MODEL_H

#include "harness/base/status.h"

struct trainer;

/* Prints one result line per kind of shrinking asked for. */
enum status shrink_model_evaluate(struct trainer *trainer);

#endif
