/* The device that a training runs on: a CUDA device, one stream on it, and the table of operations that
 * compute on it (kernels/ops.h): CUDA kernels on a GPU, host functions on simgpu. Owns no lock. */
#ifndef HARNESS_CUDA_DEVICE_H
#define HARNESS_CUDA_DEVICE_H

#include <stdint.h>
#include <cuda_runtime_api.h>

#include "kernels/ops.h"
#include "harness/base/status.h"

enum { CUDA_DEVICE_NAME_BYTES = 256 };

struct cuda_device {
    char name[CUDA_DEVICE_NAME_BYTES]; /* blanks replaced, because the result line separates its words by
                                          blanks */
    cudaStream_t stream;
    struct ops *ops;
    void *kernels; /* handle of libtrain_cuda.so; NULL on simgpu */
};

/* Selects CUDA device `index`, creates the stream and loads the operations. On failure prints a message and
 * leaves the device zeroed. */
enum status cuda_device_open(struct cuda_device *device, uint64_t index);

/* Waits for the stream, then releases everything. Accepts a zeroed device that was never opened. */
void cuda_device_close(struct cuda_device *device);

/* Turns a cudaError_t into a status. On an error, prints `what` and the error's name. Out of memory is
 * STATUS_NO_MEMORY. */
enum status cuda_device_status(int error, const char *what);

/* Copies from the device to the host, or back, on the device's stream, and waits for it. */
enum status cuda_device_read(const struct cuda_device *device, void *host, const void *from, size_t bytes,
                             const char *what);
enum status cuda_device_write(const struct cuda_device *device, void *to, const void *host, size_t bytes,
                              const char *what);

#endif
