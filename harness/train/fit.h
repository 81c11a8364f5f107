/* Fits a training into the available memory: finds the largest batch, or splits the batch into parts. */
#ifndef HARNESS_FIT_H
#define HARNESS_FIT_H

#include "harness/base/cuda_device.h"
#include "harness/base/train_options.h"
#include "harness/memory/supply.h"

/* Sets batch and accumulate as --find-batch and --auto-accum ask, by running real steps and validations.
 * Recovers from every out-of-memory and leaves nothing allocated. */
enum status fit_options(struct train_options *options, struct cuda_device *device, struct supply *supply);

/* Sets the next smaller batch, when the one found runs out of memory after all. Returns false if there is
 * none, or if no search was requested. */
bool fit_less(struct train_options *options);

#endif
