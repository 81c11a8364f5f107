/* sim_alloc_calls: cuMemAlloc, its variants and cuMemFree. See sim_alloc_calls.h. */
#include "tools/simgpu/engine/sim_alloc_calls.h"

#include "tools/simgpu/engine/sim_alloc.h"
#include "tools/simgpu/engine/sim_capture.h"
#include "tools/simgpu/engine/sim_context.h"
#include "tools/simgpu/engine/sim_device.h"
#include "tools/simgpu/engine/sim_graph_memory.h"
#include "tools/simgpu/engine/sim_host.h"
#include "tools/simgpu/engine/sim_ipc.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_pool.h"
#include "tools/simgpu/engine/sim_stream.h"

#define PITCH_ALIGNMENT 512u

/* Checks in the driver's order: context, capture, arguments. A call that fails leaves 0 in *out. */
static CUresult alloc_kind(CUdeviceptr *out, size_t size, enum sim_block_kind kind, unsigned int flags)
{
    struct CUctx_st *context;
    struct sim_block *block;

    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    SIM_TRY(sim_capture_check_unsafe());
    if (!out || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    SIM_TRY(sim_alloc_block(context, kind, size, &block));
    block->flags = flags;
    *out = block->range.start;
    return CUDA_SUCCESS;
}

CUresult sim_alloc_device(CUdeviceptr *out, size_t size)
{
    if (out && size == 0)
        *out = 0; /* as the driver does */
    return alloc_kind(out, size, BLOCK_DEVICE, 0);
}

CUresult sim_alloc_pitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element)
{
    size_t row, size;

    if (!out || !pitch || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_add_overflow(width, PITCH_ALIGNMENT - 1, &row))
        return CUDA_ERROR_INVALID_VALUE;
    row &= ~(size_t)(PITCH_ALIGNMENT - 1);
    if (__builtin_mul_overflow(row, height, &size))
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = row; /* the driver writes it even if the memory is refused */
    return alloc_kind(out, size, BLOCK_DEVICE, 0);
}

CUresult sim_alloc_managed(CUdeviceptr *out, size_t size, unsigned int flags)
{
    if (!out || size == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    return alloc_kind(out, size, BLOCK_MANAGED, flags);
}

/* Finds the block that cuMemFree may free and withdraws it, so that a second free of it fails while the first
 * still waits. Memory of a graph is freed here: *out is then NULL. */
static CUresult claim(CUdeviceptr address, struct sim_block **out)
{
    struct sim_block *block = sim_block_find(address);

    if (!block || block->range.start != address)
        return CUDA_ERROR_INVALID_VALUE;
    if (block->kind != BLOCK_DEVICE && block->kind != BLOCK_MANAGED && block->kind != BLOCK_POOLED)
        return CUDA_ERROR_INVALID_VALUE;
    if (block->graph) {
        if (block->context)
            sim_stream_wait_context(block->context);
        sim_graph_memory_free(block->graph, NULL);
        return CUDA_SUCCESS;
    }
    sim_block_withdraw(block);
    *out = block;
    return CUDA_SUCCESS;
}

CUresult sim_alloc_free(CUdeviceptr address)
{
    struct CUctx_st *context;
    struct sim_block *block = NULL;
    CUresult result;

    sim_lock_take();
    result = sim_context_current(&context);
    if (result == CUDA_ERROR_INVALID_CONTEXT)
        result = CUDA_SUCCESS; /* no current context is needed: the block knows its context (measured) */
    if (result == CUDA_SUCCESS)
        result = sim_capture_check_unsafe();
    if (result == CUDA_SUCCESS && address != 0)
        result = claim(address, &block);
    if (block && block->kind == BLOCK_POOLED) {
        sim_pool_give(block); /* waits for nothing (measured) */
    } else if (block) {
        sim_stream_wait_context(block->context);
        sim_alloc_give_back(block);
    }
    sim_lock_drop();
    return result;
}

CUresult sim_alloc_info(size_t *free_bytes, size_t *total_bytes)
{
    struct CUctx_st *context;
    uint64_t capacity, used;

    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    capacity = sim_device_info(context->device)->capacity;
    used = sim_card_used(sim_device_get(context->device)->card);
    if (free_bytes)
        *free_bytes = used < capacity ? capacity - used : 0;
    if (total_bytes)
        *total_bytes = capacity;
    return CUDA_SUCCESS;
}

CUresult sim_alloc_range(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    struct CUctx_st *context;
    struct sim_block *block;

    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    block = sim_block_find(address);
    if (!block || (block->kind == BLOCK_MAPPED && !block->flags))
        return CUDA_ERROR_NOT_FOUND; /* also if it is mapped without access (measured) */
    if (base)
        *base = block->range.start;
    if (size)
        *size = block->range.size;
    return CUDA_SUCCESS;
}

void sim_alloc_end_context(struct CUctx_st *context)
{
    struct sim_link *at, *next;

    for (at = context->blocks.next; at != &context->blocks; at = next) {
        struct sim_block *block = LIST_ITEM(at, struct sim_block, link);

        next = at->next;
        sim_block_withdraw(block);
        switch (block->kind) {
        case BLOCK_HOST:
        case BLOCK_REGISTERED:
            sim_host_end_block(block);
            break;
        case BLOCK_IMPORTED:
            sim_ipc_end_block(block);
            break;
        default:
            sim_alloc_give_back(block);
        }
    }
    sim_graph_memory_end_context(context);
    sim_pool_settle_all(0);
}
