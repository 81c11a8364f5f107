/* sim_pool: stream-ordered memory. See sim_pool.h. */
#include "tools/simgpu/engine/sim_pool.h"

#include "tools/simgpu/engine/sim_alloc.h"
#include "tools/simgpu/engine/sim_capture.h"
#include "tools/simgpu/engine/sim_device.h"
#include "tools/simgpu/engine/sim_graph_memory.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"
#include "tools/simgpu/engine/sim_pool_chunk.h"
#include "tools/simgpu/engine/sim_stream_work.h"

#include <stdlib.h>

static struct sim_link pools = {&pools, &pools};

/* ---- pools ---- */

/* Gives the chunks of a device's pools in which nothing lives back to its card. What a stream freed counts
 * only after a synchronization with it (measured). */
static void give_back_idle(CUdevice device)
{
    struct sim_link *at;

    for (at = pools.next; at != &pools; at = at->next) {
        struct CUmemPoolHandle_st *pool = LIST_ITEM(at, struct CUmemPoolHandle_st, link);

        if (pool->device == device)
            sim_chunk_trim(pool, 0);
    }
}

static struct CUmemPoolHandle_st *new_pool(CUdevice device, uint64_t max_size)
{
    struct CUmemPoolHandle_st *pool = calloc(1, sizeof(*pool));
    int i;

    if (!pool || !sim_object_add(pool, OBJECT_POOL)) {
        free(pool);
        return NULL;
    }
    pool->device = device;
    pool->max_size = max_size;
    for (i = 0; i < 3; i++)
        pool->reuse[i] = 1;
    if (device != PHYS_HOST)
        pool->access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    sim_list_init(&pool->free);
    sim_phys_set_keeper(give_back_idle);
    sim_list_append(&pools, &pool->link);
    return pool;
}

static void free_if_over(struct CUmemPoolHandle_st *pool)
{
    if (!pool->dead || pool->blocks > 0)
        return;
    sim_extent_settle(&pool->free, 0);
    sim_chunk_trim(pool, 0);
    if (pool->reserved > 0)
        return; /* a stream has not reached its free yet: the next settle tries again */
    sim_chunk_end(pool);
    sim_list_remove(&pool->link);
    free(pool);
}

void sim_pool_settle_all(uint64_t stream)
{
    struct sim_link *at, *next;

    sim_graph_memory_settle();
    for (at = pools.next; at != &pools; at = next) {
        struct CUmemPoolHandle_st *pool = LIST_ITEM(at, struct CUmemPoolHandle_st, link);

        next = at->next;
        sim_extent_settle(&pool->free, stream);
        sim_chunk_trim(pool, pool->threshold);
        free_if_over(pool);
    }
}

static struct CUmemPoolHandle_st *default_pool(CUdevice ordinal)
{
    struct sim_device *device = sim_device_get(ordinal);

    if (!device->pool)
        device->pool = new_pool(ordinal, 0);
    return device->pool;
}

static struct CUmemPoolHandle_st *current_pool(CUdevice ordinal)
{
    struct sim_device *device = sim_device_get(ordinal);

    return device->pool_used ? device->pool_used : default_pool(ordinal);
}

CUresult sim_pool_create(CUmemoryPool *out, const CUmemPoolProps *props)
{
    if (!out || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_get(props->location.id))
        return CUDA_ERROR_INVALID_VALUE;
    if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    SIM_LOCKED();
    *out = new_pool(props->location.id, props->maxSize);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_pool_destroy(CUmemoryPool pool)
{
    SIM_LOCKED();
    if (!sim_object_is(pool, OBJECT_POOL) || pool->device == PHYS_HOST ||
        sim_device_get(pool->device)->pool == pool)
        return CUDA_ERROR_INVALID_VALUE;
    sim_object_remove(pool);
    if (sim_device_get(pool->device)->pool_used == pool)
        sim_device_get(pool->device)->pool_used = NULL;
    pool->dead = true;
    free_if_over(pool);
    return CUDA_SUCCESS;
}

static uint64_t *counter_of(struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

static int *switch_of(struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute)
{
    if (attribute < CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
        attribute > CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
        return NULL;
    return &pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
}

/* A high-water mark can only be set to 0, which resets it to the current value. */
static CUresult set_counter(struct CUmemPoolHandle_st *pool, CUmemPool_attribute attribute, uint64_t value)
{
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->threshold = value;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && value == 0)
        pool->reserved_high = pool->reserved;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && value == 0)
        pool->used_high = pool->used;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* To ask, set or trim a pool is unsafe beside a capture (measured). */
CUresult sim_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    int *flag;

    SIM_LOCKED();
    if (!value || !sim_object_is(pool, OBJECT_POOL))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_capture_check_unsafe());
    flag = switch_of(pool, attribute);
    if (!flag && !counter_of(pool, attribute))
        return CUDA_ERROR_INVALID_VALUE;
    if (!flag)
        return set_counter(pool, attribute, *(cuuint64_t *)value);
    *flag = *(int *)value;
    return CUDA_SUCCESS;
}

CUresult sim_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    const uint64_t *counter;
    const int *flag;

    SIM_LOCKED();
    if (!value || !sim_object_is(pool, OBJECT_POOL))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_capture_check_unsafe());
    flag = switch_of(pool, attribute);
    counter = counter_of(pool, attribute);
    if (flag)
        *(int *)value = *flag;
    else if (counter)
        *(cuuint64_t *)value = *counter;
    return flag || counter ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_pool_trim(CUmemoryPool pool, size_t keep)
{
    SIM_LOCKED();
    if (!sim_object_is(pool, OBJECT_POOL))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_TRY(sim_capture_check_unsafe());
    sim_extent_settle(&pool->free, 0); /* a trim also takes what streams have reached meanwhile */
    sim_chunk_trim(pool, keep);
    return CUDA_SUCCESS;
}

CUresult sim_pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *list, size_t count)
{
    size_t i;

    SIM_LOCKED();
    if (!sim_object_is(pool, OBJECT_POOL) || (!list && count > 0))
        return CUDA_ERROR_INVALID_VALUE;
    for (i = 0; i < count; i++)
        if (list[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_get(list[i].location.id) ||
            (list[i].location.id == pool->device && list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
            return CUDA_ERROR_INVALID_VALUE;
    for (i = 0; i < count; i++)
        pool->access[list[i].location.id] = list[i].flags;
    return CUDA_SUCCESS;
}

CUresult sim_pool_get_access(CUmemAccess_flags *out, CUmemoryPool pool, const CUmemLocation *where)
{
    SIM_LOCKED();
    if (!out || !where || !sim_object_is(pool, OBJECT_POOL) || where->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !sim_device_get(where->id))
        return CUDA_ERROR_INVALID_VALUE;
    *out = pool->access[where->id];
    return CUDA_SUCCESS;
}

static CUresult answer_pool(CUmemoryPool *out, CUdevice ordinal,
                            struct CUmemPoolHandle_st *(*which)(CUdevice ordinal))
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_get(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    SIM_LOCKED();
    *out = which(ordinal);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_pool_host(CUmemoryPool *out)
{
    static struct CUmemPoolHandle_st *host; /* guarded by sim_lock */

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    if (!host)
        host = new_pool(PHYS_HOST, 0);
    *out = host;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_pool_default(CUmemoryPool *out, CUdevice ordinal)
{
    return answer_pool(out, ordinal, default_pool);
}

CUresult sim_pool_current(CUmemoryPool *out, CUdevice ordinal)
{
    return answer_pool(out, ordinal, current_pool);
}

CUresult sim_pool_set_current(CUdevice ordinal, CUmemoryPool pool)
{
    if (!sim_device_get(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    SIM_LOCKED();
    if (!sim_object_is(pool, OBJECT_POOL) || pool->device != ordinal)
        return CUDA_ERROR_INVALID_VALUE;
    sim_device_get(ordinal)->pool_used = pool;
    return CUDA_SUCCESS;
}

/* ---- blocks ---- */

static CUresult take_block(struct CUmemPoolHandle_st *pool, struct CUstream_st *stream, uint64_t size,
                           struct sim_block **out)
{
    /* Of no context: it outlives the stream's (measured). */
    struct sim_block *block = sim_block_new(BLOCK_POOLED, NULL, pool->device);
    CUresult result;

    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->extent = sim_chunk_round(size);
    block->range.size = size;
    result = block->extent < size ? CUDA_ERROR_OUT_OF_MEMORY
                                  : sim_chunk_take(pool, stream, block->extent, &block->range.start);
    block->pool = pool;
    if (result == CUDA_SUCCESS && !sim_block_publish(block)) {
        sim_chunk_give(pool, block->range.start, block->extent);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        sim_block_delete(block);
        return result;
    }
    pool->blocks++;
    pool->used += size; /* not rounded (measured) */
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    *out = block;
    return CUDA_SUCCESS;
}

/* The pool goes on counting it as used (measured). */
void sim_pool_give(struct sim_block *block)
{
    struct CUmemPoolHandle_st *pool = block->pool;

    pool->blocks--;
    sim_chunk_give(pool, block->range.start, block->extent);
    sim_block_delete(block);
    sim_chunk_trim(pool, pool->threshold);
    free_if_over(pool);
}

static CUresult alloc_in(CUdeviceptr *out, size_t size, struct CUmemPoolHandle_st *pool,
                         struct CUstream_st *stream)
{
    struct sim_block *block;

    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = 0;
    if (size == 0) /* success without memory (measured) */
        return CUDA_SUCCESS;
    if (stream->capture && pool->device == PHYS_HOST)
        return CUDA_ERROR_NOT_SUPPORTED; /* not simulated */
    if (stream->capture)
        return sim_capture_add_alloc(stream, pool->device, size, out);
    SIM_TRY(sim_capture_check_implicit(stream));
    SIM_TRY(take_block(pool, stream, size, &block));
    *out = block->range.start;
    return CUDA_SUCCESS;
}

CUresult sim_pool_alloc(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream handle)
{
    struct CUstream_st *stream;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    return sim_object_is(pool, OBJECT_POOL) ? alloc_in(out, size, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_pool_alloc_default(CUdeviceptr *out, size_t size, CUstream handle)
{
    struct CUstream_st *stream;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    return alloc_in(out, size, current_pool(stream->context->device), stream);
}

/* Runs on the worker thread when the stream reaches the cuMemFreeAsync of a block of cuMemAlloc. */
static void CUDA_CB free_now(void *data)
{
    sim_lock_take();
    sim_alloc_give_back(data);
    sim_lock_drop();
}

static CUresult free_device(struct sim_block *block, struct CUstream_st *stream)
{
    struct sim_work *work = sim_work_new(WORK_HOST);

    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->host.function = free_now;
    work->host.data = block;
    sim_block_withdraw(block);
    return sim_stream_submit(stream, work, false);
}

static CUresult free_pooled(struct sim_block *block, struct CUstream_st *stream)
{
    struct CUmemPoolHandle_st *pool = block->pool;
    struct sim_ops pending;

    if (!sim_stream_pending(stream, &pending))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!sim_chunk_give_later(pool, block->range.start, block->extent, stream, &pending)) {
        sim_ops_clear(&pending);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_block_withdraw(block);
    pool->blocks--;
    pool->used -= block->range.size;
    sim_block_delete(block);
    free_if_over(pool);
    return CUDA_SUCCESS;
}

static CUresult free_in(CUdeviceptr address, struct CUstream_st *stream)
{
    struct sim_block *block = sim_block_find(address);

    if (address == 0)
        return CUDA_SUCCESS;
    if (!block || block->range.start != address ||
        (block->kind != BLOCK_POOLED && block->kind != BLOCK_DEVICE))
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
        return sim_capture_add_free(stream, address);
    if (block->graph) {
        sim_graph_memory_free(block->graph, stream);
        return CUDA_SUCCESS;
    }
    SIM_TRY(sim_capture_check_implicit(stream));
    return block->kind == BLOCK_POOLED ? free_pooled(block, stream) : free_device(block, stream);
}

CUresult sim_pool_free(CUdeviceptr address, CUstream handle)
{
    struct CUstream_st *stream;

    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    return free_in(address, stream);
}
