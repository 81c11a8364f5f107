/* Hooks on queries about addresses. Pooled memory is stitched from chunks, and the driver would describe
 * those. We still ask the driver wherever its answer is the native one, so that its order of checks, its
 * error codes and the width of what it writes stay its own. For an address in no block of the program we ask
 * about one that the driver does not know. */
#include <string.h>
#include <unistd.h>

#include "interpose/hook/hooks.h"
#include "interpose/hook/memops.h"
#include "interpose/hook/pointer.h"
#include "interpose/pool/pools.h"
#include "interpose/route.h"

#define FLAG_BYTES sizeof(unsigned int) /* bytes that the driver writes for a boolean (H200, driver 580) */
#define ID_BASE    (UINT64_C(1) << 61)  /* our BUFFER_IDs: apart from the driver's, which count from 1 */

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct pointer_block block;
    const enum pointer_place place = pointer_look(address, &block);

    if (place == POINTER_NOTHING)
        address = POINTER_NOWHERE;
    CUresult result = driver.cuMemGetAddressRange_v2(base, bytes, address);
    if (place == POINTER_BLOCK && result == CUDA_SUCCESS) {
        if (base)
            *base = block.start;
        if (bytes)
            *bytes = block.bytes;
    }
    return result;
}

/* ---- attributes ---- */

static void put(void *data, uint64_t value, size_t width)
{
    memcpy(data, &value, width); /* all machines with a driver are little-endian */
}

/* A native mapping consists of the pages on which a block lies. */
static uint64_t mapping_start(const struct pointer_block *block)
{
    return block->start / VMM_PAGE * VMM_PAGE;
}

static uint64_t mapping_bytes(const struct pointer_block *block)
{
    return (block->start + block->bytes - mapping_start(block) + VMM_PAGE - 1) / VMM_PAGE * VMM_PAGE;
}

/* Writes an attribute that the driver does not know of the block. Returns false if the driver knows it. */
static bool answer(const struct pointer_block *block, void *data, CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        put(data, (uintptr_t)block->context, sizeof(CUcontext));
        return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        if (!block->pool)
            return false;
        put(data, block->sync_memops, FLAG_BYTES);
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        put(data, ID_BASE + block->id, sizeof(uint64_t));
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        put(data, block->start, sizeof(CUdeviceptr));
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        put(data, block->bytes, sizeof(size_t));
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        put(data, mapping_start(block), sizeof(CUdeviceptr));
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        put(data, mapping_bytes(block), sizeof(size_t));
        return true;
    default:
        return false;
    }
}

/* Corrects what the driver has written of the chunk and would not say of the block. Changes only the first
 * byte: the rest of a wider value is 0. An opened block has neither capability, as natively. */
static void correct(const struct pointer_block *block, void *data, CUpointer_attribute attribute)
{
    if (attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)
        put(data, block->pool != NULL, 1);
    else if (attribute == CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE)
        put(data, block->pool && vmm_decompresses(&block->pool->vmm), 1);
    else if (attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES)
        put(data, CU_MEM_HANDLE_TYPE_NONE, 1);
}

/* Sets SYNC_MEMOPS. Programs set it on memory that other devices access outside all streams, such as memory
 * registered with a network card. */
static CUresult set_sync_memops(struct pointer_block *block, bool on)
{
    if (on) {
        atomic_store(&memops_synchronous, true);
        if (block->pool && pool_expose(block->pool, block->start))
            return CUDA_ERROR_INVALID_VALUE;
        if (block->pool)
            pool_wait_all(block->pool);
    }
    if (block->pool && pool_set_sync_memops(block->pool, block->start, on))
        return CUDA_ERROR_INVALID_VALUE;
    block->sync_memops = on;
    return CUDA_SUCCESS;
}

static CUresult attribute_of(struct pointer_block *block, void *data, CUpointer_attribute attribute,
                             CUdeviceptr address)
{
    if (data && answer(block, data, attribute))
        return CUDA_SUCCESS;
    /* The driver keeps these per chunk: the first chunk of an opened block stands for all. */
    if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS || attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        address = block->start;
    CUresult result = driver.cuPointerGetAttribute(data, attribute, address);
    if (data && result == CUDA_SUCCESS)
        correct(block, data, attribute);
    if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS && result == CUDA_SUCCESS)
        set_sync_memops(block, true); /* as the driver does */
    return result;
}

/* Puts the program's address where the driver repeats the one that it was asked about. */
static void repeat(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    CUdeviceptr repeated;

    if (attribute != CU_POINTER_ATTRIBUTE_HOST_POINTER && attribute != CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
        return;
    memcpy(&repeated, data, sizeof(repeated));
    if (repeated == POINTER_NOWHERE)
        put(data, address, sizeof(address));
}

static CUresult attribute_of_nothing(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    CUresult result = driver.cuPointerGetAttribute(data, attribute, POINTER_NOWHERE);

    if (data && result == CUDA_SUCCESS)
        repeat(data, attribute, address);
    return result;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct pointer_block block;

    switch (pointer_look(address, &block)) {
    case POINTER_BLOCK:
        return attribute_of(&block, data, attribute, address);
    case POINTER_NOTHING:
        return attribute_of_nothing(data, attribute, address);
    case POINTER_FOREIGN:
        break;
    }
    return driver.cuPointerGetAttribute(data, attribute, address);
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address)
{
    struct pointer_block block;
    const enum pointer_place place = pointer_look(address, &block);
    CUresult result;

    if (place == POINTER_FOREIGN)
        return driver.cuPointerGetAttributes(count, attributes, data, address);
    /* Checks the arguments, and writes the values for "no answer". */
    result = driver.cuPointerGetAttributes(count, attributes, data, POINTER_NOWHERE);
    for (unsigned int i = 0; result == CUDA_SUCCESS && i < count; i++) {
        if (data[i] && place == POINTER_BLOCK)
            attribute_of(&block, data[i], attributes[i], address); /* one without an answer is no error */
        else if (data[i])
            repeat(data[i], attributes[i], address);
    }
    return result;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct pointer_block block;
    const enum pointer_place place = pointer_look(address, &block);
    unsigned int on;

    if (place == POINTER_NOTHING)
        address = POINTER_NOWHERE;
    if (place != POINTER_BLOCK || !block.pool || !value)
        return driver.cuPointerSetAttribute(value, attribute, address);
    if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE; /* only this one can be set; for a chunk the driver returns 801 */
    memcpy(&on, value, sizeof(on));
    return set_sync_memops(&block, on != 0);
}

/* ---- the memory behind a block ---- */

static uint64_t host_page(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Returns true if the range ends on or before the last page of the block. */
static bool ends_in(CUdeviceptr address, size_t bytes, const struct pointer_block *block)
{
    const uint64_t page = host_page();

    return bytes <= VMM_SPAN && address + bytes <= (block->start + block->bytes + page - 1) / page * page;
}

/* Finds the block of a range of whole host pages. Natively a block larger than a page begins on a page, as do
 * ranges that programs round out to pages; ours may begin anywhere on the first page. */
static enum pointer_place look_at_pages(CUdeviceptr address, size_t bytes, struct pointer_block *block)
{
    enum pointer_place place = pointer_look(address, block);

    if (place != POINTER_FOREIGN && !(place == POINTER_BLOCK && ends_in(address, bytes, block)))
        place = pointer_look(address | (host_page() - 1), block);
    if (place == POINTER_BLOCK && !ends_in(address, bytes, block))
        place = POINTER_NOTHING;
    return place;
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes,
                                       CUmemRangeHandleType type, unsigned long long flags)
{
    struct pointer_block block;
    const enum pointer_place place = look_at_pages(address, bytes, &block);

    if (place == POINTER_NOTHING)
        address = POINTER_NOWHERE;
    else if (place == POINTER_BLOCK && block.pool && pool_expose(block.pool, block.start) == 0)
        pool_wait_all(block.pool);
    return driver.cuMemGetHandleForAddressRange(handle, address, bytes, type, flags);
}

/* ---- other cards ---- */

static struct pool *pool_of_context(CUcontext context)
{
    struct pool *pool = NULL;

    if (route_active() && driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {
        pool = pools_current();
        driver.cuCtxPopCurrent_v2(&context);
    }
    return pool;
}

/* The driver's own call covers its own memory; pooled memory is made accessible to the other card as well. */
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    CUresult result = driver.cuCtxEnablePeerAccess(peer, flags);
    struct pool *pool = result == CUDA_SUCCESS ? pool_of_context(peer) : NULL;
    CUdevice card;

    if (result == CUDA_SUCCESS)
        pools_distrust();
    if (pool && driver.cuCtxGetDevice(&card) == CUDA_SUCCESS && pool_add_peer(pool, card)) {
        driver.cuCtxDisablePeerAccess(peer);
        result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    return result;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    CUresult result = driver.cuCtxDisablePeerAccess(peer);
    struct pool *pool = result == CUDA_SUCCESS ? pool_of_context(peer) : NULL;
    CUdevice card;

    if (pool && driver.cuCtxGetDevice(&card) == CUDA_SUCCESS)
        pool_remove_peer(pool, card);
    return result;
}
