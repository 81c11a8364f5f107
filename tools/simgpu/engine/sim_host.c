/* sim_host: page-locked memory of the host. See sim_host.h. */
#include "tools/simgpu/engine/sim_host.h"

#include "tools/simgpu/engine/sim_capture.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_stream.h"

#include <sys/mman.h>

#define ALLOC_FLAGS (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
#define REGISTER_FLAGS                                                                                       \
    (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |              \
     CU_MEMHOSTREGISTER_READ_ONLY)
#define PAGE 4096u

static uint64_t value_of(const void *address)
{
    return (uint64_t)(uintptr_t)address;
}

void sim_host_end_block(struct sim_block *block)
{
    if (block->kind == BLOCK_HOST)
        munmap((void *)(uintptr_t)block->range.start, block->extent);
    sim_block_delete(block);
}

static CUresult publish(enum sim_block_kind kind, struct CUctx_st *context, uint64_t start, uint64_t size,
                        unsigned int flags)
{
    struct sim_block *block = sim_block_new(kind, context, context->device);

    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->range.start = start;
    block->range.size = size;
    block->extent = (size + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    block->flags = flags;
    if (!sim_block_publish(block)) {
        sim_block_delete(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult sim_host_alloc(void **out, size_t size, unsigned int flags)
{
    struct CUctx_st *context;
    CUresult result;
    void *memory;

    if (!out || (flags & ~(unsigned int)ALLOC_FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    SIM_TRY(sim_capture_check_unsafe());
    if (size == 0) {
        *out = NULL; /* size 0: success without memory (measured) */
        return CUDA_SUCCESS;
    }
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = publish(BLOCK_HOST, context, value_of(memory), size, flags);
    if (result == CUDA_SUCCESS)
        *out = memory;
    else
        munmap(memory, size);
    return result;
}

/* Withdraws the block of that kind at that address, waits for work that may use it, and frees it. */
static CUresult end(void *address, enum sim_block_kind kind, CUresult unknown)
{
    struct CUctx_st *context;
    struct sim_block *block;

    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    block = sim_block_find(value_of(address));
    if (!block || block->kind != kind || block->range.start != value_of(address))
        return unknown;
    SIM_TRY(sim_capture_check_unsafe());
    sim_block_withdraw(block);
    sim_stream_wait_context(block->context);
    sim_host_end_block(block);
    return CUDA_SUCCESS;
}

CUresult sim_host_free(void *address)
{
    return address ? end(address, BLOCK_HOST, CUDA_ERROR_INVALID_VALUE) : sim_context_check_current();
}

CUresult sim_host_register(void *address, size_t size, unsigned int flags)
{
    struct CUctx_st *context;

    if (!address || size == 0 || (flags & ~(unsigned int)REGISTER_FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    if (sim_block_overlaps(value_of(address), size))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return publish(BLOCK_REGISTERED, context, value_of(address), size, flags);
}

CUresult sim_host_unregister(void *address)
{
    return end(address, BLOCK_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static bool is_host(const struct sim_block *block)
{
    return block && (block->kind == BLOCK_HOST || block->kind == BLOCK_REGISTERED);
}

CUresult sim_host_device_pointer(CUdeviceptr *out, void *address, unsigned int flags)
{
    struct CUctx_st *context;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    if (!is_host(sim_block_find(value_of(address))))
        return CUDA_ERROR_INVALID_VALUE;
    *out = value_of(address);
    return CUDA_SUCCESS;
}

CUresult sim_host_flags(unsigned int *out, void *address)
{
    struct CUctx_st *context;
    struct sim_block *block;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_context_current(&context));
    block = sim_block_find(value_of(address));
    if (!is_host(block))
        return CUDA_ERROR_INVALID_VALUE;
    *out = block->flags | CU_MEMHOSTALLOC_DEVICEMAP; /* unified addressing maps all host memory */
    return CUDA_SUCCESS;
}
