/* nccl_error: what NCCL's codes are called, and the reason of a thread's last failure. Owns no lock. */
#ifndef SIMGPU_NCCL_ERROR_H
#define SIMGPU_NCCL_ERROR_H

#include "tools/simgpu/nccl/nccl_abi.h"

/* Keeps the reason for ncclGetLastError and returns the code. */
__attribute__((format(printf, 2, 3))) ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...);

/* ncclSuccess, or ncclUnhandledCudaError with the runtime's own words. */
ncclResult_t nccl_cuda(cudaError_t error, const char *what);

#endif
