/* bridge_procaddr: cuGetProcAddress: one name, several ABIs, picked by version and by the stream flags. */
#ifndef SIMGPU_PROCADDR_H
#define SIMGPU_PROCADDR_H

#include "tools/simgpu/engine/sim_abi.h"

#include <stddef.h>

CUresult sim_procaddr_find(const char *name, void **out, int version, cuuint64_t flags,
                           CUdriverProcAddressQueryResult *status);

#endif
