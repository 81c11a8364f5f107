/* sim_alloc: memory for blocks. See sim_alloc.h. */
#include "tools/simgpu/engine/sim_alloc.h"

#include "tools/simgpu/engine/sim_ipc.h"
#include "tools/simgpu/engine/sim_slab.h"
#include "tools/simgpu/engine/sim_va.h"

#include <sys/mman.h>

/* A block with granules of its own. */
static CUresult take_granules(struct sim_block *block, uint64_t size)
{
    /* Managed memory shows in no figure of the card (measured, H200): it moves as it is used. */
    const CUdevice charged = block->kind == BLOCK_MANAGED ? PHYS_HOST : block->device;
    CUresult result = sim_phys_create(charged, size, false, &block->phys);

    if (result != CUDA_SUCCESS)
        return result;
    block->extent = block->phys->size;
    block->range.size = size;
    block->range.start = sim_va_reserve(block->extent, 0, 0);
    if (!block->range.start) {
        sim_phys_drop(block->phys);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!sim_va_back(block->range.start, block->phys, PROT_READ | PROT_WRITE)) {
        sim_va_release(block->range.start, block->extent);
        sim_phys_drop(block->phys);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

void sim_alloc_give_back(struct sim_block *block)
{
    if (block->exported)
        sim_ipc_retire(block);
    if (block->slab) {
        sim_slab_give(block);
    } else {
        sim_va_release(block->range.start, block->extent);
        sim_phys_drop(block->phys);
    }
    sim_block_delete(block);
}

CUresult sim_alloc_take(struct sim_block *block, uint64_t size)
{
    if (size <= SLAB_LIMIT && block->kind == BLOCK_DEVICE)
        return sim_slab_take(block, size);
    return take_granules(block, size);
}

CUresult sim_alloc_block(struct CUctx_st *context, enum sim_block_kind kind, uint64_t size,
                         struct sim_block **out)
{
    struct sim_block *block = sim_block_new(kind, context, context->device);
    CUresult result;

    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_alloc_take(block, size);
    if (result != CUDA_SUCCESS) {
        sim_block_delete(block);
        return result;
    }
    if (!sim_block_publish(block)) {
        sim_alloc_give_back(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = block;
    return CUDA_SUCCESS;
}
