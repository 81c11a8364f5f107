/* cudart_registry: the kernels that a program compiled by nvcc registers when it is loaded, and how simgpu
 * runs them.
 *
 * Registration always succeeds, so that such a program loads. A kernel NAME can be launched if the program
 * also has a host function simgpu_kernel_NAME (simgpu.h) that dlsym() finds; its parameters' sizes are in an
 * array of unsigned int, simgpu_params_NAME, ended by 0 (no such array: no parameters).
 */
#ifndef SIMGPU_CUDART_REGISTRY_H
#define SIMGPU_CUDART_REGISTRY_H

#include "tools/simgpu/cudart/cudart_runtime.h"

/* The driver's kernel for a host function of the program, or for the handle that __cudaGetKernel gave:
 * cudaErrorInvalidDeviceFunction if it is not registered or has no host function. Needs a context. */
CUresult cudart_registry_kernel(const void *host_function, CUkernel *out);
CUresult cudart_registry_function(const void *host_function, CUfunction *out);

#endif
