/* sim_local: the local memory of kernels. See sim_local.h. */
#include "tools/simgpu/engine/sim_local.h"

#include "tools/simgpu/engine/sim_card.h"
#include "tools/simgpu/engine/sim_device.h"
#include "tools/simgpu/engine/sim_phys.h"

#define MULTIPROCESSORS            132
#define THREADS_PER_MULTIPROCESSOR 2048

CUresult sim_local_grow(struct CUctx_st *context, uint64_t bytes)
{
    const uint64_t threads = (uint64_t)MULTIPROCESSORS * THREADS_PER_MULTIPROCESSOR;
    uint64_t total, more;

    if (bytes <= context->local_bytes)
        return CUDA_SUCCESS;
    if (__builtin_mul_overflow(bytes - LOCAL_FIRST, threads, &total))
        return CUDA_ERROR_OUT_OF_MEMORY;
    more = sim_phys_round(total) - context->local_charged;
    if (sim_card_charge(sim_device_get(context->device)->card, more) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->local_charged += more;
    context->local_bytes = bytes;
    return CUDA_SUCCESS;
}

void sim_local_end_context(struct CUctx_st *context)
{
    sim_card_uncharge(sim_device_get(context->device)->card, context->local_charged);
    context->local_charged = 0;
}
