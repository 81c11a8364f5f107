/* hooks_fake: see hooks_fake.h. */
#include "hooks_fake.h"

#include <pthread.h>
#include <string.h>
#include <unity.h>

#include "interpose/account/drivers_pools.h"
#include "interpose/pool/capture.h"
#include "interpose/see/events.h"
#include "interpose/see/owner.h"

static struct device device = {.ordinal = HOOKS_FAKE_CARD};

struct hooks_fake hooks_fake;

struct hooks_got hooks_got;

/* ---- the test's own library ---- */

static CUresult answer(void)
{
    hooks_got.calls++;
    return hooks_fake.full > 0 && hooks_fake.full-- ? CUDA_ERROR_OUT_OF_MEMORY : hooks_fake.result;
}

static CUresult enter(struct route_ticket *ticket, enum blocks_kind kind, uint64_t bytes)
{
    *ticket = (struct route_ticket){.device = hooks_fake.refuse ? NULL : &device};
    hooks_got.enters++;
    hooks_got.kind = kind;
    hooks_got.bytes = bytes;
    return hooks_fake.refuse;
}

CUresult route_enter(struct route_ticket *ticket, enum blocks_kind kind, uint64_t bytes)
{
    hooks_got.ordinal = ROUTE_CURRENT;
    return enter(ticket, kind, bytes);
}

CUresult route_enter_on(struct route_ticket *ticket, enum blocks_kind kind, uint64_t bytes, CUdevice ordinal)
{
    hooks_got.ordinal = ordinal;
    return enter(ticket, kind, bytes);
}

CUresult route_enter_async(struct route_ticket *ticket, uint64_t bytes, CUmemoryPool pool, CUstream stream)
{
    hooks_got.pool = pool;
    hooks_got.stream = stream;
    return enter(ticket, BLOCKS_ASYNC, bytes);
}

void route_leave(struct route_ticket *ticket, CUresult result, uint64_t key)
{
    (void)ticket;
    hooks_got.leaves++;
    hooks_got.left_with = result;
    hooks_got.left_key = key;
}

void route_take_promise_back(struct route_ticket *ticket)
{
    (void)ticket;
}

bool route_active(void)
{
    return !hooks_fake.inactive;
}

uint64_t route_given_back(void)
{
    return 0;
}

bool route_retry(struct route_attempt *attempt)
{
    hooks_got.retries++;
    hooks_got.attempt = attempt->ordinal;
    hooks_got.attempt_bytes = attempt->bytes;
    return true;
}

struct route_release route_free_at_once_begin(uint64_t address)
{
    hooks_got.begins_at_once++;
    return route_free_begin(BLOCKS_LINEAR, address);
}

struct route_release route_free_begin(enum blocks_kind kind, uint64_t key)
{
    hooks_got.begins++;
    hooks_got.kind = kind;
    hooks_got.freed = key;
    TEST_ASSERT_EQUAL_INT(0,
                          hooks_got.calls); /* before the driver: a new block may get the address at once */
    return (struct route_release){.known = true};
}

CUresult route_free_end(const struct route_release *release, CUresult result)
{
    TEST_ASSERT_TRUE(release->known);
    hooks_got.ends++;
    hooks_got.freed_with = result;
    return result;
}

bool route_pool_alloc(CUdeviceptr *address, size_t bytes, CUresult *result)
{
    (void)bytes;
    if (hooks_fake.pooled && !hooks_fake.result)
        *address = HOOKS_FAKE_KEY;
    *result = hooks_fake.result;
    return hooks_fake.pooled;
}

bool route_pool_free(CUdeviceptr address, CUresult *result)
{
    (void)address;
    *result = hooks_fake.result;
    return hooks_fake.pooled;
}

bool route_pool_free_async(CUdeviceptr address, CUstream stream, CUresult *result)
{
    hooks_got.stream = stream;
    return route_pool_free(address, result);
}

void lend_freed_somewhere(void)
{
    hooks_got.lends++;
}

struct drivers_pool *drivers_pools_find(CUmemoryPool pool, CUdevice ordinal)
{
    TEST_ASSERT_EQUAL_PTR(HOOKS_FAKE_KEY, pool);
    hooks_got.found++;
    hooks_got.found_card = ordinal;
    return NULL;
}

void drivers_pools_current_changes(void)
{
    hooks_got.changes += hooks_got.calls ? 10 : 1;
}

CUdevice drivers_pools_destroy_begin(CUmemoryPool pool)
{
    TEST_ASSERT_EQUAL_PTR(HOOKS_FAKE_KEY, pool);
    TEST_ASSERT_EQUAL_INT(0, hooks_got.calls); /* another pool may get the handle at once */
    hooks_got.forgotten++;
    return HOOKS_FAKE_CARD;
}

void drivers_pools_destroy_end(void)
{
    TEST_ASSERT_EQUAL_INT(1, hooks_got.calls);
    hooks_got.forgotten += 10;
}

void drivers_pools_destroy_abort(CUmemoryPool pool, CUdevice ordinal)
{
    drivers_pools_find(pool, ordinal);
    drivers_pools_destroy_end();
}

bool capture_takes(CUstream stream)
{
    (void)stream;
    return hooks_fake.captures;
}

void events_publish(struct recording_event *event)
{
    hooks_got.notes++;
    hooks_got.seen_kind = event->kind;
    hooks_got.seen_address = event->address;
}

void owner_enter(void *return_address)
{
    TEST_ASSERT_NOT_NULL(return_address);
}

void seen_note(CUresult result, enum recording_kind kind, CUdevice ordinal, uint64_t address, uint64_t bytes,
               CUstream stream)
{
    (void)stream;
    hooks_got.notes++;
    hooks_got.seen_result = result;
    hooks_got.seen_kind = kind;
    hooks_got.seen_card = ordinal;
    hooks_got.seen_address = address;
    hooks_got.seen_bytes = bytes;
}

/* ---- the driver ---- */

static CUresult give(CUdeviceptr *address)
{
    const CUresult result = answer();

    if (result == CUDA_SUCCESS)
        *address = HOOKS_FAKE_KEY;
    return result;
}

static CUresult CUDAAPI mem_alloc(CUdeviceptr *address, size_t bytes)
{
    (void)bytes;
    return give(address);
}

static CUresult CUDAAPI mem_pitch(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                                  unsigned int element)
{
    (void)height, (void)element;
    *pitch = width;
    return give(address);
}

static CUresult CUDAAPI mem_managed(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    (void)bytes, (void)flags;
    return give(address);
}

static CUresult CUDAAPI mem_async(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    (void)bytes, (void)stream;
    return give(address);
}

static CUresult CUDAAPI mem_from_pool(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    (void)bytes, (void)pool, (void)stream;
    return give(address);
}

static CUresult CUDAAPI mem_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                                   const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)bytes, (void)properties, (void)flags;
    return give((CUdeviceptr *)handle);
}

static CUresult CUDAAPI mem_free(CUdeviceptr address)
{
    TEST_ASSERT_EQUAL_UINT64(HOOKS_FAKE_KEY, address);
    return answer();
}

static CUresult CUDAAPI mem_free_async(CUdeviceptr address, CUstream stream)
{
    (void)stream;
    return mem_free(address);
}

static CUresult CUDAAPI mem_release(CUmemGenericAllocationHandle handle)
{
    return mem_free(handle);
}

static CUresult CUDAAPI array_create(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d)
{
    (void)d;
    return give((CUdeviceptr *)array);
}

static CUresult CUDAAPI array3d_create(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    (void)d;
    return give((CUdeviceptr *)array);
}

static CUresult CUDAAPI mipmap_create(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *d,
                                      unsigned int levels)
{
    (void)d, (void)levels;
    return give((CUdeviceptr *)array);
}

static CUresult CUDAAPI array_destroy(CUarray array)
{
    return mem_free((uintptr_t)array);
}

static CUresult CUDAAPI mipmap_destroy(CUmipmappedArray array)
{
    return mem_free((uintptr_t)array);
}

static CUresult CUDAAPI pool_create(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    (void)properties;
    return give((CUdeviceptr *)pool);
}

static CUresult CUDAAPI pool_get(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    (void)location, (void)type;
    return give((CUdeviceptr *)pool);
}

/* A thread that is cancelled here could not tell the change after the call. */
static void cannot_be_cancelled(void)
{
    int state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_setcancelstate(state, NULL);
    TEST_ASSERT_EQUAL_INT(PTHREAD_CANCEL_DISABLE, state);
}

static CUresult CUDAAPI pool_set(CUdevice ordinal, CUmemoryPool pool)
{
    (void)ordinal;
    cannot_be_cancelled();
    return mem_free((uintptr_t)pool);
}

static CUresult CUDAAPI pool_set_at(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    (void)location, (void)type;
    cannot_be_cancelled();
    return mem_free((uintptr_t)pool);
}

static CUresult CUDAAPI pool_destroy(CUmemoryPool pool)
{
    return mem_free((uintptr_t)pool);
}

void hooks_fake_setup(void)
{
    driver_entries = (struct driver_table){.cuMemAlloc_v2 = mem_alloc,
                                           .cuMemAllocPitch_v2 = mem_pitch,
                                           .cuMemAllocManaged = mem_managed,
                                           .cuMemAllocAsync = mem_async,
                                           .cuMemAllocAsync_ptsz = mem_async,
                                           .cuMemAllocFromPoolAsync = mem_from_pool,
                                           .cuMemAllocFromPoolAsync_ptsz = mem_from_pool,
                                           .cuMemCreate = mem_create,
                                           .cuMemFree_v2 = mem_free,
                                           .cuMemFreeAsync = mem_free_async,
                                           .cuMemFreeAsync_ptsz = mem_free_async,
                                           .cuMemRelease = mem_release,
                                           .cuArrayCreate_v2 = array_create,
                                           .cuArray3DCreate_v2 = array3d_create,
                                           .cuMipmappedArrayCreate = mipmap_create,
                                           .cuArrayDestroy = array_destroy,
                                           .cuMipmappedArrayDestroy = mipmap_destroy,
                                           .cuMemPoolCreate = pool_create,
                                           .cuMemGetDefaultMemPool = pool_get,
                                           .cuMemGetMemPool = pool_get,
                                           .cuDeviceSetMemPool = pool_set,
                                           .cuMemSetMemPool = pool_set_at,
                                           .cuMemPoolDestroy = pool_destroy};
    atomic_store(&events_on, true);
    hooks_fake = (struct hooks_fake){.refuse = CUDA_SUCCESS};
    memset(&hooks_got, 0, sizeof(hooks_got));
}
