/* The driver half of fill.h, written once and compiled twice: CU(name) is how a driver function is called.
 *
 * fill_dl.c defines it as a pointer from dlsym(), fill_direct.c as the linked symbol itself.
 */
#ifndef TESTS_GPU_FILL_DRIVER_H
#define TESTS_GPU_FILL_DRIVER_H

static int driver_start(void)
{
    CUdevice device;
    CUcontext ctx;
    CUresult rc = CU(cuInit)(0);
    if (!rc)
        rc = CU(cuDeviceGet)(&device, 0);
    if (!rc)
        rc = CU(cuDevicePrimaryCtxRetain)(&ctx, device);
    return (int)(rc ? rc : CU(cuCtxSetCurrent)(ctx));
}

static int driver_info(size_t *free_bytes, size_t *total)
{
    return (int)CU(cuMemGetInfo)(free_bytes, total);
}

static int driver_alloc(uintptr_t *p, size_t bytes)
{
    CUdeviceptr d = 0;
    CUresult rc = CU(cuMemAlloc)(&d, bytes);
    *p = (uintptr_t)d;
    return (int)rc;
}

static int driver_release(uintptr_t p)
{
    return (int)CU(cuMemFree)((CUdeviceptr)p);
}

static int driver_set(uintptr_t p, uint32_t value, size_t words)
{
    CUresult rc = CU(cuMemsetD32)((CUdeviceptr)p, value, words);
    return (int)(rc ? rc : CU(cuCtxSynchronize)());
}

static int driver_read(uint32_t *into, uintptr_t p, size_t words)
{
    return (int)CU(cuMemcpyDtoH)(into, (CUdeviceptr)p, words * 4);
}

#endif
