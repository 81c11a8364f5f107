/* One training run from options to result. Everything it opens it closes, also when it fails half-way. */
#ifndef HARNESS_TRAIN_H
#define HARNESS_TRAIN_H

#include <stddef.h>

#include "device.h"
#include "options.h"
#include "status.h"

struct train_result {
    float loss_first;
    float loss_last;
    double step_ms; /* mean by the device's clock, without the first step, which warms up */
    size_t peak_bytes;
    char device[DEVICE_NAME_BYTES];
};

enum status train_run(const struct options *options, struct train_result *result);

#endif
