/* One run of `train`, from options to results. Closes everything that it opened, also after a failure. */
#ifndef HARNESS_TRAIN_H
#define HARNESS_TRAIN_H

#include "harness/base/status.h"
#include "harness/base/train_options.h"

/* Runs what the options ask for and prints the result lines on stdout. */
enum status train_run(const struct train_options *options);

#endif
