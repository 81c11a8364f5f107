/* prog_plugin: a library that a program loads, linked with the driver, with names of its own that look like
 * those of NVIDIA's libraries. With PLUGIN_CUDA in the environment its constructor creates a context and
 * allocates, as a library with a global device buffer does. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

void *plugin_ask(void *handle, const char *name);
void *plugin_ask_after_failure(void *handle, const char *name);
int cudnnCreate(void);
int cublasCreate_v2(void);
int cudaMalloc(void);
int cuSomethingOfOurOwn(void);
int nvmlSomethingOfOurOwn(void);
int nvshmem_init(void);

void *plugin_ask(void *handle, const char *name)
{
    void *found = dlsym(handle, name);

    __asm__ volatile("" ::: "memory"); /* not a tail call: the return address must be ours */
    return found;
}

/* After a look-up that failed and whose dlerror was never read. */
void *plugin_ask_after_failure(void *handle, const char *name)
{
    (void)dlsym(handle, "no_such_name_anywhere");
    void *found = dlsym(handle, name);

    __asm__ volatile("" ::: "memory");
    return found;
}

int cudnnCreate(void)
{
    return 1;
}

int cublasCreate_v2(void)
{
    return 2;
}

int cudaMalloc(void)
{
    return 3;
}

int cuSomethingOfOurOwn(void)
{
    return 4;
}

int nvmlSomethingOfOurOwn(void)
{
    return 5;
}

int nvshmem_init(void)
{
    return 6;
}

__attribute__((constructor)) static void begin(void)
{
    CUcontext context;
    CUdeviceptr block;
    size_t free_bytes = 0, total = 0;

    if (!getenv("PLUGIN_CUDA"))
        return;
    int a = cuInit(0), b = cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    int c = cuMemAlloc(&block, 1 << 20);
    cuMemGetInfo(&free_bytes, &total);
    printf("constructor %d %d %d total=%zu\n", a, b, c, total >> 20);
    fflush(stdout);
    if (getenv("PLUGIN_EXIT"))
        exit(0);
}
