/* sim_state: the state of the driver in this process: not initialized, ready, forked, shut down.
 *
 * cuInit makes it ready, once. After fork() in a process where it is ready, the child can never use it.
 * During process exit every call returns CUDA_ERROR_DEINITIALIZED.
 */
#ifndef SIMGPU_STATE_H
#define SIMGPU_STATE_H

#include "tools/simgpu/engine/sim_abi.h"

CUresult sim_state_init(unsigned int flags); /* cuInit */
CUresult sim_state_check(void); /* CUDA_SUCCESS when ready, else the error that every call returns */

#endif
