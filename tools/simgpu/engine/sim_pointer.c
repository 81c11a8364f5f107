/* sim_pointer: what the driver knows about an address. See sim_pointer.h. Takes the engine's lock; changes
 * SYNC_MEMOPS only. */
#include "tools/simgpu/engine/sim_pointer.h"

#include "tools/simgpu/engine/sim_block.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_pool_chunk.h"
#include "tools/simgpu/engine/sim_vmm.h"

#include <string.h>

#define TOKEN_BYTES    12   /* bytes that the driver writes for CU_POINTER_ATTRIBUTE_P2P_TOKENS (measured) */
#define UNKNOWN_DEVICE (-2) /* ordinal that cuPointerGetAttributes reports for an unknown pointer */

static bool is_host(const struct sim_block *block)
{
    return block->kind == BLOCK_HOST || block->kind == BLOCK_REGISTERED ||
           (block->kind == BLOCK_MAPPED && block->device == PHYS_HOST);
}

static bool has_host_pointer(const struct sim_block *block)
{
    return is_host(block) || block->kind == BLOCK_MANAGED;
}

/* The range of the RANGE attributes: the reservation for mapped memory (measured), else the allocation. */
static struct sim_range range_of(const struct sim_block *block)
{
    return block->kind == BLOCK_MAPPED ? sim_vmm_reservation(block->range.start)->range : block->range;
}

/* The range of the MAPPING attributes: whole granules, which small blocks share, or the chunk in which
 * a block of a pool begins. Pinned host memory has a mapping of its own (measured). */
static struct sim_range mapping_of(const struct sim_block *block)
{
    const uint64_t start =
        is_host(block) ? block->range.start : block->range.start & ~(uint64_t)(PHYS_GRANULE - 1);

    if (block->pool)
        return sim_chunk_at(block->pool, block->range.start);
    return (struct sim_range){.start = start,
                              .size = sim_phys_round(block->range.start + block->range.size - start)};
}

/* Also used for flags: the driver writes four bytes for each (measured). Like put_address it always succeeds.
 */
static CUresult put_int(void *out, int value)
{
    memcpy(out, &value, sizeof(value));
    return CUDA_SUCCESS;
}

static CUresult put_address(void *out, uint64_t value)
{
    memcpy(out, &value, sizeof(value));
    return CUDA_SUCCESS;
}

static unsigned int handle_types(struct sim_block *block)
{
    return block->kind == BLOCK_MAPPED ? (unsigned int)sim_vmm_props(block)->requestedHandleTypes
                                       : CU_MEM_HANDLE_TYPE_NONE;
}

/* True even on a card without a decompression engine (measured). */
static bool is_decompressible(struct sim_block *block)
{
    return block->kind == BLOCK_MAPPED
               ? (sim_vmm_props(block)->allocFlags.usage & CU_MEM_CREATE_USAGE_HW_DECOMPRESS) != 0
               : block->kind == BLOCK_DEVICE;
}

/* Asking for tokens also sets SYNC_MEMOPS (measured): they let another device access the block. */
static CUresult get_tokens(void *out, struct sim_block *block)
{
    memset(out, 0, TOKEN_BYTES);
    if (is_host(block))
        return CUDA_ERROR_INVALID_VALUE;
    block->sync_memops = true;
    return CUDA_SUCCESS;
}

static CUresult get_number(void *out, CUpointer_attribute attribute, struct sim_block *block,
                           CUdeviceptr address)
{
    struct sim_range range = range_of(block);

    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return put_address(out, block->pool ? 0 : (uint64_t)(uintptr_t)block->context);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return put_address(out, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        put_address(out, has_host_pointer(block) ? address : 0);
        return has_host_pointer(block) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return put_address(out, block->id);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return put_address(out, range.start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return put_address(out, range.size);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return put_address(out, mapping_of(block).start);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return put_address(out, mapping_of(block).size);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return put_address(out, handle_types(block));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return put_address(out, (uint64_t)(uintptr_t)block->pool);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult get(void *out, CUpointer_attribute attribute, struct sim_block *block, CUdeviceptr address)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return put_int(out, is_host(block) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return put_int(out, block->device);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return put_int(out, block->sync_memops || block->kind == BLOCK_MANAGED);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return put_int(out, block->kind == BLOCK_MANAGED);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return put_int(out, block->kind == BLOCK_DEVICE);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return put_int(out, true);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return put_int(out, block->kind == BLOCK_MAPPED ? sim_vmm_reaches_bus(block)
                                                        : block->kind == BLOCK_DEVICE);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return put_int(out,
                       block->kind == BLOCK_MAPPED ? (int)block->flags : CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return put_int(out, is_decompressible(block));
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return get_tokens(out, block);
    default:
        return get_number(out, attribute, block, address);
    }
}

CUresult sim_pointer_get(void *out, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct sim_block *block;

    SIM_LOCKED();
    block = sim_block_find(address);
    return out && block ? get(out, attribute, block, address) : CUDA_ERROR_INVALID_VALUE;
}

/* Writes the value for an unknown pointer, or for an attribute that this memory does not have. */
static void put_nothing(void *out, CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        put_int(out, UNKNOWN_DEVICE);
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        put_int(out, 0);
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        break; /* the driver writes nothing (measured) */
    default:
        put_address(out, 0);
    }
}

CUresult sim_pointer_get_all(unsigned int count, const CUpointer_attribute *attributes, void **out,
                             CUdeviceptr address)
{
    struct sim_block *block;
    unsigned int i;

    if (count == 0 || !attributes || !out)
        return CUDA_ERROR_INVALID_VALUE;
    for (i = 0; i < count; i++)
        if (attributes[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
            attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE ||
            attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
            return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    block = sim_block_find(address);
    for (i = 0; i < count; i++)
        if (out[i] && (!block || get(out[i], attributes[i], block, address) != CUDA_SUCCESS))
            put_nothing(out[i], attributes[i]);
    return CUDA_SUCCESS;
}

CUresult sim_pointer_set(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct sim_block *block;

    SIM_LOCKED();
    block = sim_block_find(address);
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !block)
        return CUDA_ERROR_INVALID_VALUE;
    if (block->kind == BLOCK_MAPPED)
        return CUDA_ERROR_NOT_SUPPORTED;
    block->sync_memops = *(const unsigned int *)value != 0;
    return CUDA_SUCCESS;
}
