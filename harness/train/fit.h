/* Fitting a training into the memory there is: the largest batch, or the same effective batch in parts. */
#ifndef HARNESS_FIT_H
#define HARNESS_FIT_H

#include "harness/base/cuda_device.h"
#include "harness/base/train_options.h"
#include "harness/memory/supply.h"

/* Changes batch and accumulate as --find-batch and --auto-accum ask. Tries real steps and validations; every
 * out-of-memory is recovered from here, and nothing stays allocated. */
enum status fit_options(struct train_options *options, struct cuda_device *device, struct supply *supply);

/* After the batch that was found has run out of memory all the same: the next smaller one. False if there is
 * none, or if none was asked for. */
bool fit_less(struct train_options *options);

#endif
