/* Hooks on memory: route_enter, the driver's own call, route_leave. They decide nothing. */
#include "interpose/account/drivers_pools.h"
#include "interpose/base/lock.h"
#include "interpose/hook/hooks.h"
#include "interpose/hook/seen.h"
#include "interpose/pool/capture.h"
#include "interpose/route.h"

/* Leaves the address as the driver does when it refuses. */
static CUresult refused(CUdeviceptr *address, CUresult result)
{
    if (address)
        *address = 0;
    return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    struct route_ticket ticket;
    CUresult result;

    OWNER_CALL();
    if (route_pool_alloc(address, bytes, &result)) {
        if (events_are_on() && result == CUDA_SUCCESS)
            seen_note(result, RECORDING_MALLOC, ROUTE_CURRENT, *address, bytes, NULL);
        return result;
    }
    result = route_enter(&ticket, BLOCKS_LINEAR, bytes);
    if (result != CUDA_SUCCESS)
        return refused(address, result);
    result = ROUTE_TRY(driver.cuMemAlloc_v2(address, bytes), ROUTE_CURRENT, bytes);
    route_leave(&ticket, result, result == CUDA_SUCCESS ? *address : 0);
    return SEEN(result, RECORDING_MALLOC, route_card_of(&ticket), *address, bytes, NULL);
}

/* The driver chooses the pitch: it rounds a row up to at most this many bytes. */
#define PITCH_ALIGNMENT_MAX 512

static uint64_t pitched_bytes(size_t width, size_t height)
{
    uint64_t row, bytes;

    if (__builtin_add_overflow(width, PITCH_ALIGNMENT_MAX - 1, &row) ||
        __builtin_mul_overflow(row & ~(uint64_t)(PITCH_ALIGNMENT_MAX - 1), height, &bytes))
        return UINT64_MAX;
    return bytes;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned int element)
{
    struct route_ticket ticket;

    OWNER_CALL();
    CUresult result = route_enter(&ticket, BLOCKS_LINEAR, pitched_bytes(width, height));

    if (result == CUDA_ERROR_OUT_OF_MEMORY && address && pitch) {
        *address = 0; /* as the driver leaves them */
        *pitch = pitched_bytes(width, 1);
    }
    if (result != CUDA_SUCCESS)
        return result;
    result = ROUTE_TRY(driver.cuMemAllocPitch_v2(address, pitch, width, height, element), ROUTE_CURRENT,
                       pitched_bytes(width, height));
    route_leave(&ticket, result, result == CUDA_SUCCESS ? *address : 0);
    return SEEN(result, RECORDING_MALLOC, route_card_of(&ticket), *address, pitched_bytes(width, height),
                NULL);
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    struct route_ticket ticket;

    OWNER_CALL();
    CUresult result = route_enter(&ticket, BLOCKS_MANAGED, bytes);

    if (result != CUDA_SUCCESS)
        return result;
    result = ROUTE_TRY(driver.cuMemAllocManaged(address, bytes, flags), ROUTE_CURRENT, bytes);
    route_leave(&ticket, result, result == CUDA_SUCCESS ? *address : 0);
    return SEEN(result, RECORDING_MANAGED, route_card_of(&ticket), *address, bytes, NULL);
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    CUresult result;

    if (route_pool_free(address, &result))
        return result;
    struct route_release release = route_free_at_once_begin(address);

    return route_free_end(&release, SEEN_FREE(RECORDING_MALLOC, address, NULL, driver.cuMemFree_v2(address)));
}

/* In a capture a stream-ordered call takes no memory: it adds a node to a graph. */
static void note_async(const struct route_ticket *ticket, CUresult result, const CUdeviceptr *address,
                       size_t bytes, CUstream stream)
{
    if (!capture_takes(stream))
        seen_note(result, RECORDING_ASYNC, route_card_of(ticket), result == CUDA_SUCCESS ? *address : 0,
                  bytes, stream);
}

static inline CUresult seen_async(const struct route_ticket *ticket, CUresult result,
                                  const CUdeviceptr *address, size_t bytes, CUstream stream)
{
    if (events_are_on() || __builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0))
        note_async(ticket, result, address, bytes, stream);
    return result;
}

/* Stream-ordered memory: the per-thread default stream has entry points of its own. */
#define SUFFIX
#include "interpose/hook/hook_memory_async.inc"
#undef SUFFIX
#define SUFFIX _ptsz
#include "interpose/hook/hook_memory_async.inc"
#undef SUFFIX

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    const bool on_device = properties && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    struct route_ticket ticket;

    OWNER_CALL();
    CUresult result = route_enter_on(&ticket, BLOCKS_HANDLE, on_device ? bytes : 0,
                                     on_device ? properties->location.id : 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = on_device ? ROUTE_TRY(driver.cuMemCreate(handle, bytes, properties, flags),
                                   properties->location.id, bytes)
                       : driver.cuMemCreate(handle, bytes, properties, flags);
    route_leave(&ticket, result, result == CUDA_SUCCESS ? *handle : 0);
    return on_device ? SEEN(result, RECORDING_VMM, properties->location.id, *handle, bytes, NULL) : result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct route_release release = route_free_begin(BLOCKS_HANDLE, handle);

    return route_free_end(&release, SEEN_FREE(RECORDING_VMM, handle, NULL, driver.cuMemRelease(handle)));
}

/* Notes on which card a pool's memory is, or that it is on the host. A pool of managed memory without a card
 * is not noted: it counts on the card of the stream. */
static CUresult seen_pool(CUresult result, const CUmemoryPool *pool, const CUmemLocation *location,
                          CUmemAllocationType type)
{
    if (result != CUDA_SUCCESS || !route_active())
        return result;
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        drivers_pools_find(*pool, location->id);
    else if (type != CU_MEM_ALLOCATION_TYPE_MANAGED)
        drivers_pools_find(*pool, DRIVERS_POOLS_HOST);
    return result;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    const CUresult result = driver.cuMemPoolCreate(pool, properties);

    return result == CUDA_SUCCESS ? seen_pool(result, pool, &properties->location, properties->allocType)
                                  : result;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    return seen_pool(driver.cuMemGetDefaultMemPool(pool, location, type), pool, location, type);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    return seen_pool(driver.cuMemGetMemPool(pool, location, type), pool, location, type);
}

/* A thread that is cancelled in the driver's call must tell the change after it as well: another thread may
 * just have been told the pool before it. */
CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    lock_disable_cancel();
    drivers_pools_current_changes();
    const CUresult result = driver.cuDeviceSetMemPool(device, pool);
    drivers_pools_current_changes();
    lock_restore_cancel();
    return result;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    lock_disable_cancel();
    drivers_pools_current_changes();
    const CUresult result = driver.cuMemSetMemPool(location, type, pool);
    drivers_pools_current_changes();
    lock_restore_cancel();
    return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    if (!route_active())
        return driver.cuMemPoolDestroy(pool);
    const CUdevice ordinal = drivers_pools_destroy_begin(pool);
    const CUresult result = driver.cuMemPoolDestroy(pool);

    if (result == CUDA_SUCCESS)
        drivers_pools_destroy_end();
    else
        drivers_pools_destroy_abort(pool, ordinal);
    lend_freed_somewhere();
    return result;
}
