/* cudart_registry: the kernels that a program compiled by nvcc registers when it is loaded.
 *
 * Registration always succeeds, so that such a program loads. A kernel NAME can be launched if the program
 * also has a host function simgpu_kernel_NAME (simgpu.h) that dlsym() finds; the sizes of its parameters are
 * in an array of unsigned int, simgpu_params_NAME, which ends with 0 (without that array it has no
 * parameters).
 */
#ifndef SIMGPU_CUDART_REGISTRY_H
#define SIMGPU_CUDART_REGISTRY_H

#include "tools/simgpu/cudart/cudart_runtime.h"

/* Finds the driver's kernel for a host function of the program, or for a handle from __cudaGetKernel. Returns
 * cudaErrorInvalidDeviceFunction if it is not registered or has no host function. Needs a context. */
CUresult cudart_registry_kernel(const void *host_function, CUkernel *out);
CUresult cudart_registry_function(const void *host_function, CUfunction *out);

#endif
