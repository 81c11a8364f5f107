/* Batches on their way to the device: two pinned host buffers in turn, so that the host fills one while the
 * device still copies from the other. Everything is queued on the device's stream. */
#ifndef HARNESS_STAGING_H
#define HARNESS_STAGING_H

#include "data.h"
#include "device.h"
#include "mem.h"

enum { STAGING_SLOTS = 2 };

struct staging_slot {
    float *x;
    int32_t *labels;
    cudaEvent_t copied; /* the device has read this slot */
};

struct staging {
    struct device *device;
    struct data *data;
    size_t batch;
    size_t turn;
    struct staging_slot slot[STAGING_SLOTS];
};

enum status staging_open(struct staging *staging, struct device *device, struct data *data, size_t batch);
void staging_close(struct staging *staging);

/* Queues the copy of the next batch into x[batch][features] and labels[batch]. */
enum status staging_next(struct staging *staging, struct mem *mem, struct tensor *x, struct tensor *labels);

#endif
