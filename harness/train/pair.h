/* Trains two models in one process: in turn on one stream, in turn on two streams, or in two threads; with
 * a shared supply of memory or one each, under one budget. */
#ifndef HARNESS_PAIR_H
#define HARNESS_PAIR_H

#include "harness/base/train_options.h"
#include "harness/base/status.h"

/* Runs --pair and prints a result line for each model and one for both. */
enum status pair_run(const struct train_options *options);

#endif
