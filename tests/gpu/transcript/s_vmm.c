/* Sections vmm and share: reserve, create, map, enable, unmap, release, and handles that leave the process.
 */
#include "tx.h"

#include <string.h>
#include <unistd.h>

static CUmemAllocationProp on_device(CUdevice device)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    return prop;
}

static CUmemAccessDesc read_write(CUdevice device)
{
    CUmemAccessDesc desc;
    memset(&desc, 0, sizeof(desc));
    desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    desc.location.id = device;
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return desc;
}

static size_t granularity(const CUmemAllocationProp *prop)
{
    size_t bytes = 0;
    CU(cuMemGetAllocationGranularity, &bytes, prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    tx_say("granularity %zu", bytes);
    CU(cuMemGetAllocationGranularity, &bytes, prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    tx_say("recommended %zu", bytes);
    return bytes ? bytes : 2 * TX_MIB;
}

static void reservations(size_t unit)
{
    CUdeviceptr va = 0, fixed = 0;
    CU(cuMemAddressReserve, &va, 0, 0, 0, 0);
    CU(cuMemAddressReserve, &va, 12345, 0, 0, 0);
    CU(cuMemAddressReserve, NULL, unit, 0, 0, 0);
    CU(cuMemAddressReserve, &va, unit, 12345, 0, 0);
    CU(cuMemAddressReserve, &va, unit, 0, 0, 77);
    CU(cuMemAddressReserve, &va, (size_t)8 << 30, 0, 0, 0);
    CU(cuMemAddressFree, va, (size_t)8 << 30);
    CU(cuMemAddressReserve, &va, 16 * unit, 16 * unit, 0, 0);
    tx_say("aligned as asked: %s", tx_yes(va % (16 * unit) == 0));
    CU(cuMemAddressFree, va + unit, unit);
    CU(cuMemAddressFree, va, unit);
    CU(cuMemAddressFree, va, 16 * unit);
    CU(cuMemAddressFree, va, 16 * unit);
    CU(cuMemAddressReserve, &fixed, 16 * unit, 0, va, 0);
    tx_say("a hint to free space is followed: %s", tx_yes(fixed == va));
    CU(cuMemAddressFree, fixed, 16 * unit);
}

static void creations(CUdevice device, const CUmemAllocationProp *prop, size_t unit)
{
    CUmemGenericAllocationHandle h = 0;
    CUmemAllocationProp bad = *prop, told;
    CU(cuMemCreate, &h, 0, prop, 0);
    CU(cuMemCreate, &h, 1, prop, 0);
    CU(cuMemCreate, NULL, unit, prop, 0);
    CU(cuMemCreate, &h, unit, NULL, 0);
    CU(cuMemCreate, &h, unit, prop, 1);
    bad.location.id = 4096;
    CU(cuMemCreate, &h, unit, &bad, 0);
    bad = *prop;
    bad.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    CU(cuMemCreate, &h, unit, &bad, 0);
    h = TX_UNTOUCHED;
    CU(cuMemCreate, &h, (size_t)1 << 50, prop, 0);
    tx_say("too much: handle left alone: %s", tx_yes(h == TX_UNTOUCHED));
    CU(cuMemRelease, 0);
    CU(cuMemCreate, &h, unit, prop, 0);
    memset(&told, 0, sizeof(told));
    CU(cuMemGetAllocationPropertiesFromHandle, &told, h);
    tx_say("its properties: type %d, on a device: %s, this one: %s", (int)told.type,
           tx_yes(told.location.type == CU_MEM_LOCATION_TYPE_DEVICE), tx_yes(told.location.id == device));
    CU(cuMemRelease, h);
}

static void attributes(CUdeviceptr va, size_t unit, size_t reserved)
{
    CUcontext owner = (CUcontext)1;
    CUdeviceptr base = 0;
    size_t size = 0;
    unsigned on = 1, type = 9;
    int legacy = 9, managed = 9, mapped = 9;
    CUipcMemHandle handle;
    CU(cuPointerGetAttribute, &owner, CU_POINTER_ATTRIBUTE_CONTEXT, va);
    tx_say("context is NULL: %s", tx_yes(!owner));
    CU(cuPointerGetAttribute, &base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, va + unit);
    CU(cuPointerGetAttribute, &size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, va + unit);
    tx_say("the range is the whole reservation: %s", tx_yes(base == va && size == reserved));
    CU(cuMemGetAddressRange, &base, &size, va + unit + 100);
    tx_say("the address range is the handle's: %s", tx_yes(base == va + unit && size == unit));
    CU(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, va);
    CU(cuPointerGetAttribute, &managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, va);
    CU(cuPointerGetAttribute, &mapped, CU_POINTER_ATTRIBUTE_MAPPED, va);
    CU(cuPointerGetAttribute, &legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, va);
    tx_say("memory type %u, managed %d, mapped %d, legacy IPC %d", type, managed & 1, mapped & 1, legacy & 1);
    CU(cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, va);
    CU(cuIpcGetMemHandle, &handle, va);
    CU(cuMemFree, va);
}

static void mappings(const CUmemAllocationProp *prop, CUdevice device, size_t unit)
{
    CUdeviceptr va = 0;
    CUmemGenericAllocationHandle one = 0, two = 0;
    CUmemAccessDesc rw = read_write(device);
    unsigned long long flags = 9;
    CU(cuMemAddressReserve, &va, 4 * unit, 0, 0, 0);
    CU(cuMemCreate, &one, unit, prop, 0);
    CU(cuMemCreate, &two, unit, prop, 0);
    CU(cuMemSetAccess, va, unit, &rw, 1);
    CU(cuMemUnmap, va, unit);
    CU(cuMemMap, va, unit / 2, 0, one, 0);
    CU(cuMemMap, va, unit, unit, one, 0);
    CU(cuMemMap, va, 2 * unit, 0, one, 0);
    CU(cuMemMap, va + 100, unit, 0, one, 0);
    CU(cuMemMap, va, unit, 0, one, 1);
    CU(cuMemMap, va, unit, 0, 0, 0);
    CU(cuMemMap, va, unit, 0, one, 0);
    CU(cuMemMap, va, unit, 0, two, 0);
    CU(cuMemGetAccess, &flags, &rw.location, va);
    tx_say("access before it is enabled: %llu", flags);
    CU(cuMemMap, va + unit, unit, 0, two, 0);
    CU(cuMemSetAccess, va, 2 * unit, &rw, 1);
    CU(cuMemSetAccess, va, 3 * unit, &rw, 1);
    CU(cuMemGetAccess, &flags, &rw.location, va);
    tx_say("access: %llu", flags);
    tx_say("fresh, bytes not 0: %ld", tx_wrong_bytes(va, 0, 2 * unit));
    CU(cuMemsetD8, va, 0x66, 2 * unit);
    tx_say("one copy over two handles, wrong bytes: %ld", tx_wrong_bytes(va, 0x66, 2 * unit));
    attributes(va, unit, 4 * unit);
    CU(cuMemMap, va + 2 * unit, unit, 0, one, 0);
    CU(cuMemSetAccess, va + 2 * unit, unit, &rw, 1);
    CU(cuMemsetD8, va, 0x77, unit);
    tx_say("the same handle at a second address, wrong bytes: %ld",
           tx_wrong_bytes(va + 2 * unit, 0x77, unit));
    CU(cuMemRelease, one);
    CU(cuMemRelease, two);
    tx_say("mapped memory outlives its handle, wrong bytes: %ld", tx_wrong_bytes(va, 0x77, unit));
    CU(cuMemAddressFree, va, 4 * unit);
    CU(cuMemUnmap, va, unit / 2);
    CU(cuMemUnmap, va + unit, unit);
    CU(cuMemUnmap, va + unit, unit);
    CU(cuMemUnmap, va, unit);
    CU(cuMemUnmap, va + 2 * unit, unit);
    CU(cuMemAddressFree, va, 4 * unit);
}

static void on_the_host(size_t unit)
{
    CUmemAllocationProp prop = on_device(0);
    CUmemGenericAllocationHandle h = 0;
    size_t bytes = 0;
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    prop.location.id = 0;
    CU(cuMemGetAllocationGranularity, &bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    tx_say("granularity of host memory %zu", bytes);
    if (!CU(cuMemCreate, &h, unit, &prop, 0))
        CU(cuMemRelease, h);
}

void tx_run_vmm(void)
{
    CUdevice device = tx_start();
    CUmemAllocationProp prop = on_device(device);
    size_t before = 0, during = 0, after = 0, total = 0;
    CUmemGenericAllocationHandle h = 0;
    size_t unit = granularity(&prop);
    reservations(unit);
    creations(device, &prop, unit);
    drv.cuMemGetInfo(&before, &total);
    CU(cuMemCreate, &h, 8 * unit, &prop, 0);
    drv.cuMemGetInfo(&during, &total);
    CU(cuMemRelease, h);
    drv.cuMemGetInfo(&after, &total);
    tx_say("a handle takes its size: %s, and gives it back: %s", tx_yes(before - during == 8 * unit),
           tx_yes(after == before));
    mappings(&prop, device, unit);
    on_the_host(unit);
}

static void exported(CUdevice device, size_t unit)
{
    CUmemAllocationProp prop = on_device(device);
    CUmemGenericAllocationHandle plain = 0, shared = 0, imported = 0;
    CUmemAccessDesc rw = read_write(device);
    CUdeviceptr va = 0;
    int fd = -1;
    CU(cuMemCreate, &plain, unit, &prop, 0);
    CU(cuMemExportToShareableHandle, &fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    CU(cuMemRelease, plain);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CU(cuMemCreate, &shared, unit, &prop, 0);
    if (CU(cuMemExportToShareableHandle, &fd, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
        return;
    tx_say("a descriptor came: %s", tx_yes(fd >= 0));
    CU(cuMemImportFromShareableHandle, &imported, (void *)(intptr_t)fd,
       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    CU(cuMemAddressReserve, &va, 2 * unit, 0, 0, 0);
    CU(cuMemMap, va, unit, 0, shared, 0);
    CU(cuMemMap, va + unit, unit, 0, imported, 0);
    CU(cuMemSetAccess, va, 2 * unit, &rw, 1);
    CU(cuMemsetD8, va, 0x21, unit);
    tx_say("both views are one memory, wrong bytes: %ld", tx_wrong_bytes(va + unit, 0x21, unit));
    CU(cuMemUnmap, va, 2 * unit);
    CU(cuMemRelease, shared);
    CU(cuMemRelease, imported);
    CU(cuMemAddressFree, va, 2 * unit);
}

void tx_run_share(void)
{
    CUdevice device = tx_start();
    CUmemAllocationProp prop = on_device(device);
    CUmemAccessDesc rw = read_write(device);
    CUmemGenericAllocationHandle h = 0, retained = 0;
    CUdeviceptr va = 0, plain = 0;
    const size_t unit = 2 * TX_MIB;
    CU(cuMemAddressReserve, &va, unit, 0, 0, 0);
    CU(cuMemCreate, &h, unit, &prop, 0);
    CU(cuMemMap, va, unit, 0, h, 0);
    CU(cuMemSetAccess, va, unit, &rw, 1);
    CU(cuMemRetainAllocationHandle, &retained, (void *)(va + 4096));
    tx_say("the retained handle is the same: %s", tx_yes(retained == h));
    CU(cuMemRelease, retained);
    CU(cuMemUnmap, va, unit);
    CU(cuMemRelease, h);
    CU(cuMemRelease, h);
    CU(cuMemAddressFree, va, unit);
    CU(cuMemAlloc, &plain, unit);
    CU(cuMemRetainAllocationHandle, &retained, (void *)plain);
    CU(cuMemFree, plain);
    CU(cuMemRetainAllocationHandle, &retained, &h);
    exported(device, unit);
}
