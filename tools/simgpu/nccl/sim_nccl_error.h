/* sim_nccl_error: texts of NCCL's error codes, and the reason for a thread's last failure. Owns no lock. */
#ifndef SIMGPU_NCCL_ERROR_H
#define SIMGPU_NCCL_ERROR_H

#include "tools/simgpu/nccl/sim_nccl_abi.h"

/* Stores the reason for ncclGetLastError() and returns the code. */
__attribute__((format(printf, 2, 3))) ncclResult_t sim_nccl_fail(ncclResult_t result, const char *format,
                                                                 ...);

/* Returns ncclSuccess, or ncclUnhandledCudaError with the runtime's text as the reason. */
ncclResult_t sim_nccl_cuda(cudaError_t error, const char *what);

#endif
