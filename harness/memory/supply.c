/* The allocation modes. A block that was given back can be taken again at once, although queued work may
 * still use it: the stream keeps both in order. If several streams share an arena, the taking stream waits
 * for the others first; a cache never moves a block to another stream. */
#include "harness/memory/supply.h"

#include <string.h>

#include "harness/memory/caching_allocator.h"
#include "harness/base/cuda_device.h"
#include "interpose/gpucap.h"

static bool budget_take(struct budget *budget, size_t bytes)
{
    size_t used = atomic_fetch_add(&budget->used, bytes) + bytes;

    if (!budget->limit || used <= budget->limit)
        return true;
    atomic_fetch_sub(&budget->used, bytes);
    return false;
}

static void count_held(struct supply *supply, size_t bytes)
{
    size_t used = atomic_load(&supply->budget->used);
    size_t peak = atomic_load(&supply->budget->peak);

    while (used > peak && !atomic_compare_exchange_weak(&supply->budget->peak, &peak, used)) {
    }
    supply->held += bytes;
    supply->peak = supply->held > supply->peak ? supply->held : supply->peak;
}

/* Allocates from the device within the budget. Returns cudaErrorMemoryAllocation also when the budget is
 * used up. */
static cudaError_t take_budgeted(struct supply *supply, bool async, cudaStream_t stream, void **out,
                                 size_t bytes)
{
    cudaError_t error;

    if (!budget_take(supply->budget, bytes))
        return cudaErrorMemoryAllocation;
    error = async ? cudaMallocAsync(out, bytes, stream) : cudaMalloc(out, bytes);
    if (error) {
        atomic_fetch_sub(&supply->budget->used, bytes);
        /* Clears the error: it is returned here, and the next launch must not report it again. */
        cudaGetLastError();
        return error;
    }
    count_held(supply, bytes);
    return cudaSuccess;
}

static cudaError_t device_take(struct supply *supply, void **out, size_t bytes)
{
    return take_budgeted(supply, false, NULL, out, bytes);
}

static cudaError_t device_give(struct supply *supply, void *data, size_t bytes)
{
    supply->held -= bytes;
    atomic_fetch_sub(&supply->budget->used, bytes);
    return cudaFree(data);
}

/* Tags the segment with the cache's name, because it serves tensors of all kinds. */
static cudaError_t cache_take(void *owner, void **data, size_t bytes)
{
    struct supply *supply = owner;

    if (gpucap_tag)
        gpucap_tag(supply->tag);
    return device_take(supply, data, bytes);
}

static cudaError_t cache_give(void *supply, void *data, size_t bytes)
{
    return device_give(supply, data, bytes);
}

static enum status open_cache(struct supply *supply)
{
    struct caching_allocator_source source = {.take = cache_take, .give = cache_give, .owner = supply};

    supply->cache = caching_allocator_open(source);
    if (!supply->cache)
        return status_fail(STATUS_NO_MEMORY, "out of host memory for the cache's records");
    return STATUS_OK;
}

static enum status open_arena(struct supply *supply, double fraction)
{
    size_t free_bytes;
    size_t total;
    size_t bytes;
    enum status status = cuda_device_status(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
    cudaError_t error;

    if (status)
        return status;
    if (supply->budget->limit && supply->budget->limit < free_bytes)
        free_bytes = supply->budget->limit;
    bytes = (size_t)((double)free_bytes * fraction) / ARENA_ALIGN * ARENA_ALIGN;
    if (gpucap_tag)
        gpucap_tag("arena");
    error = bytes ? device_take(supply, (void **)&supply->base, bytes) : cudaErrorMemoryAllocation;
    if (gpucap_tag)
        gpucap_tag(NULL);
    if (error == cudaErrorMemoryAllocation) {
        supply_explain(supply, bytes, "the arena");
        return STATUS_NO_MEMORY;
    }
    if (error)
        return cuda_device_status(error, "cudaMalloc");
    if (!arena_open(&supply->arena, bytes))
        return status_fail(STATUS_NO_MEMORY, "out of host memory for the arena's records");
    return cuda_device_status(cudaEventCreateWithFlags(&supply->passed, cudaEventDisableTiming),
                              "creating an event");
}

static cudaError_t default_pool(cudaMemPool_t *pool)
{
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);

    return error ? error : cudaDeviceGetDefaultMemPool(pool, device);
}

/* Freed memory stays in the pool: programs that use cudaMallocAsync in a loop set the threshold this way. */
static enum status open_async(void)
{
    uint64_t all = UINT64_MAX;
    cudaMemPool_t pool = NULL;
    enum status status = cuda_device_status(default_pool(&pool), "cudaDeviceGetDefaultMemPool");

    if (!status)
        status = cuda_device_status(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all),
                                    "cudaMemPoolSetAttribute");
    return status;
}

enum status supply_open(struct supply *supply, enum alloc_mode mode, double fraction, struct budget *budget)
{
    memset(supply, 0, sizeof(*supply));
    supply->mode = mode;
    supply->tag = "cache";
    supply->budget = budget;
    pthread_mutex_init(&supply->lock, NULL);
    if (mode == ALLOC_ARENA)
        return open_arena(supply, fraction);
    if (mode == ALLOC_ASYNC)
        return open_async();
    if (mode == ALLOC_CACHE)
        return open_cache(supply);
    return STATUS_OK;
}

void supply_close(struct supply *supply)
{
    cudaError_t error = cudaSuccess;

    if (!supply->budget)
        return;
    if (supply->cache)
        error = caching_allocator_close(supply->cache);
    if (supply->base)
        error = device_give(supply, supply->base, supply->arena.size);
    if (supply->passed)
        cudaEventDestroy(supply->passed);
    arena_close(&supply->arena);
    pthread_mutex_destroy(&supply->lock);
    memset(supply, 0, sizeof(*supply));
    cuda_device_status(error, "giving memory back to the device");
}

/* Makes the stream wait for the work queued so far on all other streams of this supply. */
static cudaError_t wait_for_others(struct supply *supply, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    bool known = false;

    for (int i = 0; i < supply->streams && !error; i++) {
        if (supply->stream[i] == stream) {
            known = true;
            continue;
        }
        error = cudaEventRecord(supply->passed, supply->stream[i]);
        if (!error)
            error = cudaStreamWaitEvent(stream, supply->passed, 0);
    }
    if (!known && supply->streams < SUPPLY_MAX_STREAMS)
        supply->stream[supply->streams++] = stream;
    return error;
}

static cudaError_t arena_supply_take(struct supply *supply, cudaStream_t stream, size_t bytes, void **data)
{
    size_t offset;

    if (!arena_take(&supply->arena, bytes, &offset))
        return cudaErrorMemoryAllocation;
    *data = supply->base + offset;
    return wait_for_others(supply, stream);
}

enum status supply_take(struct supply *supply, cudaStream_t stream, size_t bytes, const char *kind,
                        void **data, void **block)
{
    cudaError_t error = cudaErrorInvalidValue;

    *data = NULL;
    *block = NULL;
    bytes = bytes ? bytes : 1;
    if (gpucap_tag)
        gpucap_tag(kind);
    pthread_mutex_lock(&supply->lock);
    switch (supply->mode) {
    case ALLOC_NAIVE:
    case ALLOC_STATIC:
        error = device_take(supply, data, bytes);
        break;
    case ALLOC_CACHE:
        error = caching_allocator_take(supply->cache, stream, bytes, data, block);
        break;
    case ALLOC_ARENA:
        error = arena_supply_take(supply, stream, bytes, data);
        break;
    case ALLOC_ASYNC:
        error = take_budgeted(supply, true, stream, data, bytes);
        break;
    }
    pthread_mutex_unlock(&supply->lock);
    if (gpucap_tag)
        gpucap_tag(NULL);
    return error == cudaErrorMemoryAllocation ? STATUS_NO_MEMORY
                                              : cuda_device_status(error, "allocating device memory");
}

enum status supply_give(struct supply *supply, cudaStream_t stream, void *data, void *block, size_t bytes)
{
    cudaError_t error = cudaSuccess;

    bytes = bytes ? bytes : 1;
    pthread_mutex_lock(&supply->lock);
    switch (supply->mode) {
    case ALLOC_NAIVE:
    case ALLOC_STATIC:
        error = device_give(supply, data, bytes);
        break;
    case ALLOC_CACHE:
        caching_allocator_give(supply->cache, block);
        break;
    case ALLOC_ARENA:
        if (!arena_give(&supply->arena, (size_t)((char *)data - supply->base)))
            error = cudaErrorInvalidValue;
        break;
    case ALLOC_ASYNC:
        supply->held -= bytes;
        atomic_fetch_sub(&supply->budget->used, bytes);
        error = cudaFreeAsync(data, stream);
        break;
    }
    pthread_mutex_unlock(&supply->lock);
    return cuda_device_status(error, "freeing device memory");
}

size_t supply_held(struct supply *supply)
{
    size_t held;

    pthread_mutex_lock(&supply->lock);
    held = supply->held;
    pthread_mutex_unlock(&supply->lock);
    return held;
}

void supply_pin(struct supply *supply, bool pinned)
{
    pthread_mutex_lock(&supply->lock);
    if (supply->cache)
        caching_allocator_pin(supply->cache, pinned);
    pthread_mutex_unlock(&supply->lock);
}

enum status supply_trim(struct supply *supply, cudaStream_t stream)
{
    cudaError_t error = cudaStreamSynchronize(stream);
    cudaMemPool_t pool = NULL;
    int device = 0;

    pthread_mutex_lock(&supply->lock);
    if (supply->cache && !error)
        error = caching_allocator_trim(supply->cache);
    if (supply->mode == ALLOC_ASYNC && !error)
        error = default_pool(&pool);
    if (supply->mode == ALLOC_ASYNC && !error)
        error = cudaMemPoolTrimTo(pool, 0);
    pthread_mutex_unlock(&supply->lock);
    if (gpucap_trim && !error && !(error = cudaGetDevice(&device)))
        gpucap_trim(device, UINT64_MAX, NULL);
    return cuda_device_status(error, "giving memory back to the device");
}

void supply_explain(struct supply *supply, size_t bytes, const char *kind)
{
    size_t free_bytes = 0;
    size_t total = 0;

    cudaMemGetInfo(&free_bytes, &total);
    status_fail(STATUS_NO_MEMORY,
                "out of memory: asked for %zu bytes (%s), %zu bytes free of %zu on the device", bytes, kind,
                free_bytes, total);
    if (supply->budget->limit)
        status_fail(STATUS_NO_MEMORY, "--budget is %zu bytes, of which %zu are taken", supply->budget->limit,
                    atomic_load(&supply->budget->used));
    pthread_mutex_lock(&supply->lock);
    if (supply->base)
        status_fail(STATUS_NO_MEMORY, "the arena has %zu bytes free of %zu, the largest range %zu",
                    supply->arena.size - supply->arena.taken, supply->arena.size,
                    arena_largest_free(&supply->arena));
    if (supply->cache)
        status_fail(STATUS_NO_MEMORY, "the cache holds %zu bytes, of which %zu are handed out", supply->held,
                    caching_allocator_live(supply->cache));
    pthread_mutex_unlock(&supply->lock);
}
