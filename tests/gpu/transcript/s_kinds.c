/* Sections managed, host and arrays: memory that is not plain device memory. */
#include "tx.h"

#include <stdlib.h>
#include <string.h>

#define SMALL (64 * 1024)

void tx_run_managed(void)
{
    CUdeviceptr p = 0, base = 0;
    size_t size = 0;
    unsigned managed = 9, type = 9;
    tx_start();
    CU(cuMemAllocManaged, &p, 0, CU_MEM_ATTACH_GLOBAL);
    CU(cuMemAllocManaged, &p, SMALL, 0);
    CU(cuMemAllocManaged, &p, SMALL, 0x80);
    CU(cuMemAllocManaged, NULL, SMALL, CU_MEM_ATTACH_GLOBAL);
    if (CU(cuMemAllocManaged, &p, SMALL, CU_MEM_ATTACH_GLOBAL))
        return;
    CU(cuPointerGetAttribute, &managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p);
    CU(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    tx_say("managed %u, memory type %u", managed, type);
    CU(cuMemGetAddressRange, &base, &size, p + 100);
    tx_say("begins at the block: %s, size %zu", tx_yes(base == p), size);
    memset((void *)p, 0x11, SMALL);
    tx_say("written by the host, wrong bytes: %ld", tx_wrong_bytes(p, 0x11, SMALL));
    CU(cuMemsetD8, p, 0x22, SMALL);
    CU(cuCtxSynchronize);
    tx_say("written by the device, the host reads it: %s", tx_yes(((uint8_t *)p)[SMALL - 1] == 0x22));
    CU(cuMemFree, p);
    CU(cuMemFree, p);
    CU(cuMemAllocManaged, &p, SMALL, CU_MEM_ATTACH_HOST);
    CU(cuMemFree, p);
}

static void registered(void)
{
    const size_t page = 4096;
    CUdeviceptr device_view = 0;
    unsigned flags = 0;
    uint8_t *own = aligned_alloc(page, 4 * page);
    memset(own, 0x33, 4 * page);
    CU(cuMemHostUnregister, own);
    CU(cuMemHostRegister, own, 0, 0);
    CU(cuMemHostRegister, NULL, page, 0);
    CU(cuMemHostRegister, own, 4 * page, CU_MEMHOSTREGISTER_DEVICEMAP);
    CU(cuMemHostRegister, own, 4 * page, CU_MEMHOSTREGISTER_DEVICEMAP);
    CU(cuMemHostGetDevicePointer, &device_view, own, 0);
    tx_say("one address for both sides: %s", tx_yes(device_view == (CUdeviceptr)(uintptr_t)own));
    CU(cuMemHostGetFlags, &flags, own);
    CU(cuMemFreeHost, own);
    CU(cuMemsetD8, device_view, 0x44, 4 * page);
    CU(cuCtxSynchronize);
    tx_say("the device wrote into it: %s", tx_yes(own[0] == 0x44 && own[4 * page - 1] == 0x44));
    CU(cuMemHostUnregister, own);
    CU(cuMemHostUnregister, own);
    free(own);
}

void tx_run_host(void)
{
    void *p = NULL, *pinned = NULL;
    CUdeviceptr view = 0, none = 0;
    unsigned flags = 0, type = 9;
    tx_start();
    CU(cuMemHostAlloc, &p, 0, 0);
    CU(cuMemHostAlloc, NULL, SMALL, 0);
    CU(cuMemHostAlloc, &p, SMALL, 0x1000);
    CU(cuMemAllocHost, &p, 0);
    CU(cuMemFreeHost, NULL);
    if (CU(cuMemHostAlloc, &pinned, SMALL, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP))
        return;
    CU(cuMemHostGetFlags, &flags, pinned);
    tx_say("flags %u", flags);
    CU(cuMemHostGetDevicePointer, &view, pinned, 0);
    tx_say("one address for both sides: %s", tx_yes(view == (CUdeviceptr)(uintptr_t)pinned));
    CU(cuMemHostGetDevicePointer, &none, pinned, 1);
    CU(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, view);
    tx_say("memory type %u", type);
    memset(pinned, 0x12, SMALL);
    tx_say("wrong bytes: %ld", tx_wrong_bytes(view, 0x12, SMALL));
    CU(cuMemFree, view);
    CU(cuMemFreeHost, pinned);
    CU(cuMemFreeHost, pinned);
    CU(cuMemHostAlloc, &p, SMALL, CU_MEMHOSTALLOC_WRITECOMBINED);
    CU(cuMemFreeHost, p);
    CU(cuMemAllocHost, &p, 100);
    CU(cuMemFreeHost, p);
    registered();
}

static void copy_through(CUarray array)
{
    enum { W = 64, H = 32 };
    static uint32_t in[H][W], out[H][W];
    CUDA_MEMCPY2D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = in,
                        .srcPitch = sizeof(in[0]),
                        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                        .dstArray = array,
                        .WidthInBytes = sizeof(in[0]),
                        .Height = H};
    CUDA_MEMCPY2D down = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = array,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = sizeof(out[0]),
                          .WidthInBytes = sizeof(out[0]),
                          .Height = H};
    for (int y = 0; y < H; y++) {
        for (int x = 0; x < W; x++)
            in[y][x] = (uint32_t)(y * W + x);
    }
    CU(cuMemcpy2D, &up);
    CU(cuMemcpy2D, &down);
    tx_say("through the array and back unchanged: %s", tx_yes(!memcmp(in, out, sizeof(in))));
}

void tx_run_arrays(void)
{
    CUarray array = NULL, cube = NULL;
    CUmipmappedArray mips = NULL;
    CUDA_ARRAY_DESCRIPTOR flat = {.Width = 64, .Height = 32, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_ARRAY_DESCRIPTOR told, bad = flat;
    CUDA_ARRAY3D_DESCRIPTOR deep = {
        .Width = 16, .Height = 16, .Depth = 16, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4};
    memset(&told, 0, sizeof(told));
    tx_start();
    CU(cuArrayCreate, NULL, &flat);
    CU(cuArrayCreate, &array, NULL);
    bad.NumChannels = 3;
    CU(cuArrayCreate, &array, &bad);
    bad.NumChannels = 1;
    bad.Width = 0;
    CU(cuArrayCreate, &array, &bad);
    if (!CU(cuArrayCreate, &array, &flat)) {
        CU(cuArrayGetDescriptor, &told, array);
        tx_say("%zu x %zu, format %u, channels %u", told.Width, told.Height, (unsigned)told.Format,
               told.NumChannels);
        copy_through(array);
        CU(cuArrayDestroy, array);
    }
    if (!CU(cuArray3DCreate, &cube, &deep))
        CU(cuArrayDestroy, cube);
    deep.Depth = 0;
    if (!CU(cuMipmappedArrayCreate, &mips, &deep, 3))
        CU(cuMipmappedArrayDestroy, mips);
}
