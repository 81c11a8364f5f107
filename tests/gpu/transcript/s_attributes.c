/* Section attributes: what cuPointerGetAttribute says of device, host and foreign memory. */
#include "tx.h"

#include <stdlib.h>
#include <string.h>

static unsigned long long buffer_id(CUdeviceptr p)
{
    unsigned long long id = 0;
    CUresult rc = drv.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p);
    tx_say("BUFFER_ID -> %s, not 0: %s", tx_code(rc), tx_yes(id != 0));
    return id;
}

static void ids(void)
{
    CUdeviceptr a = 0, b = 0;
    unsigned long long first, second, third;
    drv.cuMemAlloc(&a, 1000);
    drv.cuMemAlloc(&b, 1000);
    first = buffer_id(a);
    second = buffer_id(b);
    tx_say("two blocks have two: %s", tx_yes(first != second));
    tx_say("the same one inside: %s", tx_yes(buffer_id(a + 999) == first));
    drv.cuMemFree(a);
    drv.cuMemAlloc(&a, 1000);
    third = buffer_id(a);
    tx_say("a block never gets one that was used: %s", tx_yes(third != first && third != second));
    drv.cuMemFree(a);
    drv.cuMemFree(b);
}

/* The amounts that the driver writes for an attribute are of different sizes: a zeroed word takes them all.
 */
static void say(const char *name, CUpointer_attribute attribute, CUdeviceptr p, uint64_t mask)
{
    uint64_t word[2] = {0, 0};
    CUresult rc = drv.cuPointerGetAttribute(word, attribute, p);
    tx_say("%s -> %s, %llu", name, tx_code(rc), (unsigned long long)(rc ? 0 : word[0] & mask));
}

static void of_device(CUdeviceptr p)
{
    CUcontext ctx = NULL, current = NULL;
    CUdeviceptr device = 0;
    void *host = NULL;
    const uint64_t byte = 0xff, word = 0xffffffff, all = ~(uint64_t)0;
    drv.cuCtxGetCurrent(&current);
    CU(cuPointerGetAttribute, &ctx, CU_POINTER_ATTRIBUTE_CONTEXT, p);
    tx_say("the current context: %s", tx_yes(ctx == current));
    CU(cuPointerGetAttribute, &device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p + 10);
    tx_say("the pointer itself: %s", tx_yes(device == p + 10));
    CU(cuPointerGetAttribute, &host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p);
    say("MEMORY_TYPE", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p, word);
    say("IS_MANAGED", CU_POINTER_ATTRIBUTE_IS_MANAGED, p, byte);
    say("DEVICE_ORDINAL", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p, word);
    say("IS_LEGACY_CUDA_IPC_CAPABLE", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p, byte);
    say("RANGE_SIZE", CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 5, all);
    say("MAPPED", CU_POINTER_ATTRIBUTE_MAPPED, p, byte);
    say("ALLOWED_HANDLE_TYPES", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p, all);
    say("ACCESS_FLAGS", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p, word);
    say("MEMPOOL_HANDLE", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p, all);
    say("SYNC_MEMOPS", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p, byte);
    say("an unknown attribute", (CUpointer_attribute)1000, p, all);
    CU(cuPointerGetAttribute, NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
}

static void sync_memops(CUdeviceptr p)
{
    unsigned on = 1, got = 0;
    CU(cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    CU(cuPointerGetAttribute, &got, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    tx_say("SYNC_MEMOPS is %u", got & 0xff);
    on = 0;
    CU(cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    CU(cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    CU(cuPointerSetAttribute, NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    CU(cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 0x1000);
}

static void several(CUdeviceptr p, const char *what)
{
    CUcontext ctx = (CUcontext)1;
    unsigned type = 99;
    CUdeviceptr start = 99;
    size_t size = 99;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *into[] = {&ctx, &type, &start, &size};
    CUresult rc = drv.cuPointerGetAttributes(4, wanted, into, p);
    tx_say("four of %s at once -> %s, context NULL: %s, type %u, start is the block: %s, size %zu", what,
           tx_code(rc), tx_yes(!ctx), type, tx_yes(start == p), size);
}

void tx_run_attributes(void)
{
    CUdeviceptr p = 0;
    unsigned type = 99;
    void *own = malloc(4096), *pinned = NULL;
    CUpointer_attribute unknown = (CUpointer_attribute)1000;
    uint64_t room[2] = {0, 0};
    void *into = room;
    tx_start();
    CU(cuMemAlloc, &p, 5000000);
    of_device(p);
    sync_memops(p);
    ids();
    several(p, "a device block");
    several((CUdeviceptr)(uintptr_t)own, "malloc memory");
    CU(cuPointerGetAttributes, 0, &unknown, &into, p);
    CU(cuPointerGetAttributes, 1, &unknown, &into, p);
    CU(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)own);
    CU(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0);
    CU(cuMemFree, p);
    CU(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    several(p, "a freed block");
    if (!CU(cuMemHostAlloc, &pinned, 4096, CU_MEMHOSTALLOC_PORTABLE)) {
        void *host = NULL;
        CUdeviceptr view = (CUdeviceptr)(uintptr_t)pinned;
        say("MEMORY_TYPE of pinned memory", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, view, 0xffffffff);
        CU(cuPointerGetAttribute, &host, CU_POINTER_ATTRIBUTE_HOST_POINTER, view);
        tx_say("its host pointer is the pointer: %s", tx_yes(host == pinned));
        CU(cuMemFreeHost, pinned);
    }
    free(own);
}
