/* sim_state: the life of the driver in this process: not yet started, ready, forked away, over.
 *
 * cuInit starts it once. A child of fork() of a started parent can never use it; at process exit it says so
 * too.
 */
#ifndef SIMGPU_STATE_H
#define SIMGPU_STATE_H

#include "tools/simgpu/engine/sim_abi.h"

CUresult sim_state_init(unsigned int flags); /* cuInit */
CUresult sim_state_check(void);              /* SUCCESS when ready, else what every call has to answer */

#endif
