/* nvjpeg_abi: the part of nvJPEG's interface that simgpu implements. Includes the toolkit's nvjpeg.h if it is
 * installed, so that the compiler checks this library against it; otherwise declares the same here.
 * Declarations only; never contains anything that nvJPEG does not have. */
#ifndef SIMGPU_NVJPEG_ABI_H
#define SIMGPU_NVJPEG_ABI_H

#if __has_include(<nvjpeg.h>)
#include <nvjpeg.h>
#else
#include <cuda_runtime_api.h>
#include <stddef.h>

#define NVJPEG_MAX_COMPONENT 4

typedef enum {
    NVJPEG_STATUS_SUCCESS = 0,
    NVJPEG_STATUS_NOT_INITIALIZED = 1,
    NVJPEG_STATUS_INVALID_PARAMETER = 2,
    NVJPEG_STATUS_BAD_JPEG = 3,
    NVJPEG_STATUS_JPEG_NOT_SUPPORTED = 4,
    NVJPEG_STATUS_ALLOCATOR_FAILURE = 5,
    NVJPEG_STATUS_EXECUTION_FAILED = 6,
    NVJPEG_STATUS_ARCH_MISMATCH = 7
} nvjpegStatus_t;

typedef enum { NVJPEG_OUTPUT_RGBI = 5 } nvjpegOutputFormat_t;
typedef enum { NVJPEG_BACKEND_DEFAULT = 0, NVJPEG_BACKEND_HARDWARE = 3 } nvjpegBackend_t;

typedef struct {
    unsigned char *channel[NVJPEG_MAX_COMPONENT];
    size_t pitch[NVJPEG_MAX_COMPONENT];
} nvjpegImage_t;

typedef struct {
    int (*dev_malloc)(void **, size_t);
    int (*dev_free)(void *);
} nvjpegDevAllocator_t;

typedef struct {
    int (*pinned_malloc)(void **, size_t, unsigned int flags);
    int (*pinned_free)(void *);
} nvjpegPinnedAllocator_t;

struct nvjpegHandle;
typedef struct nvjpegHandle *nvjpegHandle_t;
struct nvjpegJpegState;
typedef struct nvjpegJpegState *nvjpegJpegState_t;

nvjpegStatus_t nvjpegCreateEx(nvjpegBackend_t backend, nvjpegDevAllocator_t *dev_allocator,
                              nvjpegPinnedAllocator_t *pinned_allocator, unsigned int flags,
                              nvjpegHandle_t *handle);
nvjpegStatus_t nvjpegDestroy(nvjpegHandle_t handle);
nvjpegStatus_t nvjpegJpegStateCreate(nvjpegHandle_t handle, nvjpegJpegState_t *jpeg_handle);
nvjpegStatus_t nvjpegJpegStateDestroy(nvjpegJpegState_t jpeg_handle);
nvjpegStatus_t nvjpegDecodeBatchedInitialize(nvjpegHandle_t handle, nvjpegJpegState_t jpeg_handle,
                                             int batch_size, int max_cpu_threads,
                                             nvjpegOutputFormat_t output_format);
nvjpegStatus_t nvjpegDecodeBatched(nvjpegHandle_t handle, nvjpegJpegState_t jpeg_handle,
                                   const unsigned char *const *data, const size_t *lengths,
                                   nvjpegImage_t *destinations, cudaStream_t stream);
#endif
#endif
