/* sim_local: the local memory (stack and local arrays) of kernels.
 *
 * A context has local memory for every thread that the card can run at once, enough for the largest kernel so
 * far. It grows at a launch or when the stack limit is raised, and never shrinks. On an H200 a kernel with 16
 * KiB of local arrays took 3.9 GiB (measured): 132 multiprocessors of 2048 threads. The local memory of a
 * fresh context is part of the bytes of the context. Guarded by the engine's lock.
 */
#ifndef SIMGPU_LOCAL_H
#define SIMGPU_LOCAL_H

#include "tools/simgpu/engine/sim_context.h"

#define LOCAL_FIRST 1024 /* bytes per thread: the stack limit of a fresh context */

/* Grows the context's local memory to that many bytes per thread. Returns OUT_OF_MEMORY, with nothing
 * changed, if the card has not enough. */
CUresult sim_local_grow(struct CUctx_st *context, uint64_t bytes);
void sim_local_end_context(struct CUctx_st *context);

#endif
