/* prog_rival: another library that puts itself in front of the driver, as tracers and other allocators do: it
 * defines an entry point, counts, and asks dlsym(RTLD_NEXT) for the next one. Says at the end how often it
 * was called. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>

static unsigned long calls;

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    CUresult (*next)(CUdeviceptr *, size_t) =
        (CUresult(*)(CUdeviceptr *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");

    calls++;
    return next ? next(address, bytes) : CUDA_ERROR_NOT_INITIALIZED;
}

__attribute__((destructor)) static void end(void)
{
    fprintf(stderr, "rival calls=%lu\n", calls);
}
