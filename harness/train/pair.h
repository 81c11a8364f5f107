/* Two models trained in one process: in turn on one stream, in turn on two streams, or in two threads; with
 * one supply of memory for both or one each, under one budget. */
#ifndef HARNESS_PAIR_H
#define HARNESS_PAIR_H

#include "harness/base/train_options.h"
#include "harness/base/status.h"

enum status pair_run(const struct train_options *options);

#endif
