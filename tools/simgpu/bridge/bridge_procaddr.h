/* bridge_procaddr: cuGetProcAddress: finds the symbol of a name by version and by the flags for the default
 * stream. */
#ifndef SIMGPU_PROCADDR_H
#define SIMGPU_PROCADDR_H

#include "tools/simgpu/engine/sim_abi.h"

#include <stddef.h>

/* Like cuGetProcAddress_v2. Needs no lock. */
CUresult sim_procaddr_find(const char *name, void **out, int version, cuuint64_t flags,
                           CUdriverProcAddressQueryResult *status);

#endif
