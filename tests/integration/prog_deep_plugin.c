/* prog_deep_plugin: a library that a program loads past preloaded libraries. It allocates memory and submits
 * work on a stream of its own. Linked with the driver, or with PLUGIN_RUNTIME with the static runtime, which
 * finds the driver itself by dlopen and dlsym. With PLUGIN_EARLY in the environment a constructor does so, or
 * takes 400 MiB. */
#include "prog_deep.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

void *plugin_load(const char *file)
{
    return dlopen(file, RTLD_NOW | RTLD_DEEPBIND);
}

#ifdef PLUGIN_RUNTIME
#include <cuda_runtime_api.h>

/* The runtime has looked the driver up when dlopen returns. */
__attribute__((constructor)) static void begin(void)
{
    if (getenv("PLUGIN_EARLY"))
        cudaFree(NULL);
}

int plugin_take(size_t bytes)
{
    void *block;

    return (int)cudaMalloc(&block, bytes);
}

#else
#include <cuda.h>

static CUstream stream;

__attribute__((constructor)) static void begin(void)
{
    CUdeviceptr block;

    if (getenv("PLUGIN_EARLY"))
        cuMemAlloc(&block, (size_t)400 << 20);
}

int plugin_take(size_t bytes)
{
    CUcontext context;
    CUdeviceptr block;

    if (cuCtxGetCurrent(&context) == CUDA_SUCCESS && context)
        return (int)cuMemAlloc(&block, bytes);
    /* in a namespace of its own it has a driver of its own */
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    return (int)cuMemAlloc(&block, bytes);
}

static void be_late(void *unused)
{
    (void)unused;
    usleep(2000);
}

int plugin_write(unsigned long long block, unsigned char byte, size_t bytes)
{
    if (!stream && cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return -1;
    cuLaunchHostFunc(stream, be_late, NULL);
    return (int)cuMemsetD8Async(block, byte, bytes, stream);
}

int plugin_finish(void)
{
    return (int)cuStreamSynchronize(stream);
}
#endif
