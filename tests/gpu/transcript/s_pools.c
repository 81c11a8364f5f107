/* Section pools: stream-ordered allocation and memory pools. */
#include "tx.h"

#include <string.h>

static void default_pool(CUdevice device)
{
    CUmemoryPool standard = NULL, current = NULL;
    cuuint64_t value = 77;
    CU(cuDeviceGetDefaultMemPool, &standard, device);
    CU(cuDeviceGetMemPool, &current, device);
    tx_say("the current pool is the default one: %s", tx_yes(standard && standard == current));
    CU(cuDeviceGetDefaultMemPool, NULL, device);
    CU(cuDeviceGetDefaultMemPool, &standard, 4096);
    drv.cuDeviceGetDefaultMemPool(&standard, device);
    CU(cuMemPoolGetAttribute, standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
    tx_say("release threshold %llu", (unsigned long long)value);
    CU(cuMemPoolGetAttribute, standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value);
    tx_say("used %llu", (unsigned long long)value);
    value = 64 * TX_MIB;
    CU(cuMemPoolSetAttribute, standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
    value = 0;
    CU(cuMemPoolGetAttribute, standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
    tx_say("release threshold %llu", (unsigned long long)value);
    CU(cuMemPoolDestroy, standard);
}

static void one_block(CUdevice device, CUstream stream)
{
    CUmemoryPool pool = NULL, owner = NULL;
    CUdeviceptr p = 0, base = 0;
    size_t size = 0;
    cuuint64_t used = 0, reserved = 0;
    unsigned type = 9;
    CUcontext ctx = NULL, current = NULL;
    drv.cuDeviceGetMemPool(&pool, device);
    drv.cuCtxGetCurrent(&current);
    CU(cuMemAllocAsync, &p, 5000000, stream);
    CU(cuMemsetD8Async, p, 0x31, 5000000, stream);
    CU(cuStreamSynchronize, stream);
    tx_say("aligned to 256: %s, wrong bytes: %ld", tx_yes(p % 256 == 0), tx_wrong_bytes(p, 0x31, 5000000));
    CU(cuMemGetAddressRange, &base, &size, p);
    tx_say("begins at the block: %s, size %zu", tx_yes(base == p), size);
    CU(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    CU(cuPointerGetAttribute, &ctx, CU_POINTER_ATTRIBUTE_CONTEXT, p);
    CU(cuPointerGetAttribute, &owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p);
    tx_say("memory type %u, context is NULL: %s, the current one: %s, pool is the current one: %s", type,
           tx_yes(!ctx), tx_yes(ctx == current), tx_yes(owner == pool));
    CU(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    CU(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
    tx_say("at least the block is used: %s, not more used than reserved: %s", tx_yes(used >= 5000000),
           tx_yes(used <= reserved));
    CU(cuMemFreeAsync, p, stream);
    CU(cuMemFreeAsync, p, stream);
    CU(cuStreamSynchronize, stream);
    CU(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    tx_say("used after the free: %llu", (unsigned long long)used);
    CU(cuMemPoolTrimTo, pool, 0);
    CU(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
    tx_say("reserved after the trim: %llu", (unsigned long long)reserved);
}

static void mixed(CUstream stream)
{
    CUdeviceptr p = 0;
    CU(cuMemAllocAsync, &p, 0, stream);
    CU(cuMemAllocAsync, NULL, 4096, stream);
    p = TX_UNTOUCHED;
    CU(cuMemAllocAsync, &p, (size_t)1 << 50, stream);
    tx_say("too much: pointer left alone: %s", tx_yes(p == TX_UNTOUCHED));
    CU(cuMemFreeAsync, 0, stream);
    CU(cuMemFreeAsync, 0x1000, stream);
    CU(cuMemAllocAsync, &p, 1 << 20, stream);
    CU(cuMemFree, p);
    CU(cuMemFree, p);
    CU(cuMemAlloc, &p, 1 << 20);
    CU(cuMemFreeAsync, p + 256, stream);
    CU(cuMemFreeAsync, p, stream);
    CU(cuStreamSynchronize, stream);
    CU(cuMemFree, p);
}

static void own_pool(CUdevice device, CUstream stream)
{
    CUmemPoolProps props;
    CUmemoryPool pool = NULL, current = NULL, standard = NULL;
    CUdeviceptr p = 0;
    memset(&props, 0, sizeof(props));
    CU(cuMemPoolCreate, &pool, &props);
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = device;
    CU(cuMemPoolCreate, NULL, &props);
    if (CU(cuMemPoolCreate, &pool, &props))
        return;
    CU(cuMemAllocFromPoolAsync, &p, 1 << 20, pool, stream);
    CU(cuMemFreeAsync, p, stream);
    CU(cuDeviceSetMemPool, device, pool);
    CU(cuDeviceGetMemPool, &current, device);
    tx_say("the pool of one's own is current: %s", tx_yes(current == pool));
    CU(cuMemAllocAsync, &p, 4096, stream);
    CU(cuMemFreeAsync, p, stream);
    CU(cuStreamSynchronize, stream);
    CU(cuMemPoolDestroy, pool);
    drv.cuDeviceGetDefaultMemPool(&standard, device);
    CU(cuDeviceGetMemPool, &current, device);
    tx_say("without it the default one is current again: %s", tx_yes(current == standard));
}

/* Says that the program's blocks and idle memory of a pool stay when its last context ends. */
static void outlives_contexts(CUdevice device)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemoryPool pool = NULL, destroyed = NULL, owner = NULL;
    CUdeviceptr p = 0, q = 0, idle = 0;
    cuuint64_t used = 0, keep = 256 * TX_MIB;
    CUstream stream = NULL;
    CUcontext ctx = NULL;
    unsigned long long flags = 7;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    if (CU(cuMemPoolCreate, &pool, &props) || CU(cuMemPoolCreate, &destroyed, &props))
        return;
    CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CU(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    CU(cuMemAllocFromPoolAsync, &p, 32 * TX_MIB, pool, stream);
    CU(cuMemAllocFromPoolAsync, &idle, 32 * TX_MIB, pool, stream);
    CU(cuMemAllocFromPoolAsync, &q, 32 * TX_MIB, destroyed, stream);
    CU(cuMemGetAccess, &flags, &here, p);
    tx_say("access flags %llu", flags);
    CU(cuMemsetD8Async, p, 0x47, 4096, stream);
    CU(cuMemFreeAsync, idle, stream);
    CU(cuStreamSynchronize, stream);
    CU(cuMemPoolDestroy, destroyed);
    CU(cuPointerGetAttribute, &owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, q);
    tx_say("names the destroyed pool: %s", tx_yes(owner == destroyed));
    CU(cuDevicePrimaryCtxRelease, device);
    CU(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    CU(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &keep);
    tx_say("without a context: used %llu, held %llu MiB", (unsigned long long)(used / TX_MIB),
           (unsigned long long)(keep / TX_MIB));
    CU(cuMemFree, p);
    CU(cuDevicePrimaryCtxRetain, &ctx, device);
    CU(cuCtxSetCurrent, ctx);
    tx_say("with a new one, wrong bytes: %ld", tx_wrong_bytes(p, 0x47, 4096));
    CU(cuMemFreeAsync, p, NULL);
    CU(cuMemFreeAsync, q, NULL);
    CU(cuCtxSynchronize);
    CU(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    tx_say("freed: used %llu", (unsigned long long)used);
    CU(cuMemPoolDestroy, pool);
}

/* A block of a pool is freed at once, also by cuMemFree. The pool goes on counting it as used. */
static void freed_beside_work(CUdevice device, CUstream stream)
{
    CUmemoryPool pool = NULL;
    cuuint64_t before = 0, used[2] = {0, 0}, held = 0;
    struct tx_kernels k;
    struct tx_gate gate;
    CUdeviceptr p = 0;
    CUstream other = NULL;
    if (tx_rc("kernels loaded", tx_load_kernels(&k)) || !tx_gate_new(&gate))
        return;
    CU(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    drv.cuDeviceGetMemPool(&pool, device);
    CU(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &before);
    CU(cuMemAllocAsync, &p, 100000, stream);
    CU(cuStreamSynchronize, stream);
    CU(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used[0]);
    tx_say("a block of 100000 counts %llu", (unsigned long long)(used[0] - before));
    tx_rc("gate closed", tx_gate_close(&gate, &k, other));
    tx_gate_open_later(&gate, 5);
    CU(cuMemFree, p);
    tx_say("cuMemFree waited for another stream: %s", tx_yes(tx_gate_is_open(&gate)));
    tx_gate_open(&gate);
    tx_gate_join(&gate);
    CU(cuStreamSynchronize, other);
    CU(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used[1]);
    CU(cuMemPoolTrimTo, pool, 0);
    CU(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held);
    tx_say("used as before: %s, held %llu", tx_yes(used[0] == used[1]), (unsigned long long)held);
}

void tx_run_pools(void)
{
    CUdevice device = tx_start();
    CUstream stream = NULL;
    CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    default_pool(device);
    one_block(device, stream);
    one_block(device, NULL);
    mixed(stream);
    own_pool(device, stream);
    freed_beside_work(device, stream);
    outlives_contexts(device);
}
