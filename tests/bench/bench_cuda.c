/* bench_cuda: loads the CUDA runtime by name. See bench_cuda.h. */
#include "bench_cuda.h"

#include <ctype.h>
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "interpose/gpucap.h"

#define RUNTIME "libcudart.so.13"
#define DRIVER  "libcuda.so.1"

struct bench_cuda bench_cuda;

void bench_fail(const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static void *open_library(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);

    if (!library)
        bench_fail("%s", dlerror());
    return library;
}

static void *entry(void *library, const char *name)
{
    void *address = dlsym(library, name);

    if (!address)
        bench_fail("there is no %s", name);
    return address;
}

void bench_cuda_start(void)
{
    void *library = open_library(RUNTIME);
    uint64_t keep = UINT64_MAX;
    cudaMemPool_t pool;

    bench_cuda = (struct bench_cuda){
        .malloc = entry(library, "cudaMalloc"),
        .free = entry(library, "cudaFree"),
        .malloc_async = entry(library, "cudaMallocAsync"),
        .free_async = entry(library, "cudaFreeAsync"),
        .memset_async = entry(library, "cudaMemsetAsync"),
        .synchronize = entry(library, "cudaDeviceSynchronize"),
        .context_wait = entry(open_library(DRIVER), "cuCtxSynchronize"),
        .last_error = entry(library, "cudaGetLastError"),
        .set_device = entry(library, "cudaSetDevice"),
        .default_pool = entry(library, "cudaDeviceGetDefaultMemPool"),
        .pool_set = entry(library, "cudaMemPoolSetAttribute"),
        .memory = entry(library, "cudaMemGetInfo"),
    };
    cudaError_t result = bench_cuda.set_device(0);
    if (result == cudaSuccess)
        result = bench_cuda.free(NULL);
    if (result != cudaSuccess)
        bench_fail("no CUDA device (error %d)", (int)result);
    if (bench_cuda.default_pool(&pool, 0) == cudaSuccess)
        bench_cuda.pool_set(pool, cudaMemPoolAttrReleaseThreshold, &keep);
}

/* ---- the driver's own calls; its numbers of errors are the runtime's where they are told apart here ---- */

static struct {
    CUresult (*alloc)(CUdeviceptr *pointer, size_t bytes);
    CUresult (*free)(CUdeviceptr pointer);
    CUresult (*alloc_async)(CUdeviceptr *pointer, size_t bytes, CUstream stream);
    CUresult (*free_async)(CUdeviceptr pointer, CUstream stream);
} driver;

static cudaError_t driver_malloc(void **pointer, size_t bytes)
{
    return (cudaError_t)driver.alloc((CUdeviceptr *)pointer, bytes);
}

static cudaError_t driver_free(void *pointer)
{
    return (cudaError_t)driver.free((CUdeviceptr)pointer);
}

static cudaError_t driver_malloc_async(void **pointer, size_t bytes, cudaStream_t stream)
{
    return (cudaError_t)driver.alloc_async((CUdeviceptr *)pointer, bytes, stream);
}

static cudaError_t driver_free_async(void *pointer, cudaStream_t stream)
{
    return (cudaError_t)driver.free_async((CUdeviceptr)pointer, stream);
}

void bench_cuda_by_driver(void)
{
    void *library = open_library(DRIVER);

    driver.alloc = entry(library, "cuMemAlloc_v2");
    driver.free = entry(library, "cuMemFree_v2");
    driver.alloc_async = entry(library, "cuMemAllocAsync");
    driver.free_async = entry(library, "cuMemFreeAsync");
    bench_cuda.malloc = driver_malloc;
    bench_cuda.free = driver_free;
    bench_cuda.malloc_async = driver_malloc_async;
    bench_cuda.free_async = driver_free_async;
}

uint64_t bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

uint64_t bench_bytes(const char *text)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    const uint64_t number = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    const unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;

    if (!isdigit((unsigned char)*text) || errno || (*end && (!unit || end[1])) ||
        number > UINT64_MAX >> shift)
        bench_fail("\"%s\" is no number, such as 1000 or 8G", text);
    return number << shift;
}

struct bench_stats bench_stats(void)
{
    int (*ask)(int, struct gpucap_stats *, size_t) = dlsym(RTLD_DEFAULT, "gpucap_stats");
    struct gpucap_stats stats = {0};

    if (!ask || ask(0, &stats, sizeof(stats)))
        return (struct bench_stats){0};
    return (struct bench_stats){stats.stitches, stats.driver_calls};
}
