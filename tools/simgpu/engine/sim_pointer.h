/* sim_pointer: what the driver knows about an address (cuPointerGetAttribute). */
#ifndef SIMGPU_POINTER_H
#define SIMGPU_POINTER_H

#include "tools/simgpu/engine/sim_abi.h"

CUresult sim_pointer_get(void *out, CUpointer_attribute attribute, CUdeviceptr address);
CUresult sim_pointer_get_all(unsigned int count, const CUpointer_attribute *attributes, void **out,
                             CUdeviceptr address);
CUresult sim_pointer_set(const void *value, CUpointer_attribute attribute, CUdeviceptr address);

#endif
