/* The device that a training runs on: a CUDA device, one stream, and the table of operations that fits it. */
#ifndef HARNESS_CUDA_DEVICE_H
#define HARNESS_CUDA_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda_runtime_api.h>

#include "kernels/ops.h"
#include "harness/base/status.h"

enum { CUDA_DEVICE_NAME_BYTES = 256 };

struct cuda_device {
    char name[CUDA_DEVICE_NAME_BYTES]; /* without blanks, for the result line */
    cudaStream_t stream;
    struct ops *ops;
    void *kernels; /* libtrain_cuda.so, or NULL on simgpu */
};

enum status cuda_device_open(struct cuda_device *device, uint64_t index);

/* Whether that device is simgpu's, whose memory every table of operations can reach. */
bool cuda_device_is_simulated(int index);

/* Waits for the stream first. A device that was never opened but zeroed is allowed. */
void cuda_device_close(struct cuda_device *device);

/* STATUS_OK for cudaSuccess; else says what failed and by which CUDA error. */
enum status cuda_device_status(int error, const char *what);

#endif
