/* Where samples come from. A source fills host memory, one batch after the other, for ever, and gives the
 * same batches for the same seed. It knows nothing of the device. */
#ifndef HARNESS_DATA_H
#define HARNESS_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

struct data {
    int features; /* floats of a sample */
    int classes;  /* labels are in [0, classes) */
    /* x[count][features], labels[count] */
    void (*next)(struct data *data, size_t count, float *x, int32_t *labels);
    void (*close)(struct data *data);
};

/* Clouds of points around one random centre per class: needs no file, and can be learned. */
enum status data_open_synthetic(struct data **out, uint64_t seed);

/* MNIST's training set from the folder dir, in a new order each epoch. */
enum status data_open_mnist(struct data **out, const char *dir, uint64_t seed);

#endif
