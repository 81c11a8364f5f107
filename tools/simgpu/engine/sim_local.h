/* sim_local: the local memory (stack and local arrays) of kernels.
 *
 * A context has as much for every thread that the card can run at once as the largest kernel so far needed:
 * it grows at a launch or when the stack limit is raised, and never shrinks. An H200 took 3.9 GiB more for a
 * kernel with 16 KiB of local arrays (measured): 132 multiprocessors of 2048 threads. What a fresh context
 * has is part of its own bytes. Guarded by the engine's lock.
 */
#ifndef SIMGPU_LOCAL_H
#define SIMGPU_LOCAL_H

#include "tools/simgpu/engine/sim_context.h"

#define LOCAL_FIRST 1024 /* bytes a thread: the stack limit of a fresh context */

/* Lets every thread of the context have that many bytes. OUT_OF_MEMORY: the card has not as much; nothing has
 * changed. */
CUresult sim_local_grow(struct CUctx_st *context, uint64_t bytes);
void sim_local_end_context(struct CUctx_st *context);

#endif
