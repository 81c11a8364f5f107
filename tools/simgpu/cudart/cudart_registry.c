/* cudart_registry: the kernels that a program registers. See cudart_registry.h. Owns registry_lock, which
 * guards the list and is held while a kernel is first loaded.
 */
#include "tools/simgpu/cudart/cudart_registry.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector_types.h>

#define MAX_PARAMETERS 64

struct binary {
    void *image; /* embedded by nvcc: machine code, which is never read */
    struct binary *next;
    struct kernel *kernels;
};

struct kernel {
    const void *host_function;
    char *name;
    CUlibrary library; /* made at first use */
    CUkernel kernel;
    struct kernel *next;
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct binary *binaries;

void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *name,
                            int thread_limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size,
                       int constant, int global);
void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext,
                              size_t size, int constant, int global);
void __cudaRegisterHostVar(void **handle, const char *device_name, char *host, size_t size);
char __cudaInitModule(void **handle);
cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host_function);

void **__cudaRegisterFatBinary(void *image)
{
    struct binary *binary = calloc(1, sizeof(*binary));
    if (!binary)
        return NULL;
    binary->image = image;
    pthread_mutex_lock(&registry_lock);
    binary->next = binaries;
    binaries = binary;
    pthread_mutex_unlock(&registry_lock);
    return (void **)binary;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *name,
                            int thread_limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp)
{
    (void)device_function, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    struct binary *binary = (struct binary *)handle;
    struct kernel *kernel = calloc(1, sizeof(*kernel));
    if (kernel)
        kernel->name = strdup(name);
    if (!binary || !kernel || !kernel->name) {
        free(kernel); /* a launch will fail with cudaErrorInvalidDeviceFunction */
        return;
    }
    kernel->host_function = host_function;
    pthread_mutex_lock(&registry_lock);
    kernel->next = binary->kernels;
    binary->kernels = kernel;
    pthread_mutex_unlock(&registry_lock);
}

/* Device variables have no memory in simgpu; nothing looks them up. */
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size,
                       int constant, int global)
{
    (void)handle, (void)host, (void)device, (void)name, (void)ext, (void)size, (void)constant, (void)global;
}

void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext,
                              size_t size, int constant, int global)
{
    (void)handle, (void)host, (void)device, (void)name, (void)ext, (void)size, (void)constant, (void)global;
}

void __cudaRegisterHostVar(void **handle, const char *device_name, char *host, size_t size)
{
    (void)handle, (void)device_name, (void)host, (void)size;
}

char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

static void free_kernels(struct kernel *kernel)
{
    while (kernel) {
        struct kernel *next = kernel->next;
        if (kernel->library)
            DRV(cuLibraryUnload)(kernel->library); /* at exit this may fail because the driver is shut down */
        free(kernel->name);
        free(kernel);
        kernel = next;
    }
}

void __cudaUnregisterFatBinary(void **handle)
{
    struct kernel *kernels = NULL;
    pthread_mutex_lock(&registry_lock);
    for (struct binary **at = &binaries; *at; at = &(*at)->next) {
        if (*at == (struct binary *)handle) {
            struct binary *gone = *at;
            *at = gone->next;
            kernels = gone->kernels;
            free(gone);
            break;
        }
    }
    pthread_mutex_unlock(&registry_lock);
    free_kernels(kernels);
}

static struct kernel *find(const void *host_function)
{
    for (struct binary *b = binaries; b; b = b->next) {
        for (struct kernel *k = b->kernels; k; k = k->next) {
            if (k->host_function == host_function || k == host_function)
                return k;
        }
    }
    return NULL;
}

static void *program_symbol(const char *prefix, const char *name)
{
    char symbol[512];
    int length = snprintf(symbol, sizeof(symbol), "%s%s", prefix, name);
    return length > 0 && (size_t)length < sizeof(symbol) ? dlsym(RTLD_DEFAULT, symbol) : NULL;
}

/* Writes the part of a kernel's PTX that simgpu reads. The caller frees it. */
static char *make_ptx(const char *name)
{
    const unsigned *sizes = program_symbol("simgpu_params_", name);
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    if (!out)
        return NULL;
    fprintf(out, ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry %s(", name);
    for (int i = 0; sizes && sizes[i] && i < MAX_PARAMETERS; i++)
        fprintf(out, "%s\n.param .align 8 .b8 %s_param_%d[%u]", i ? "," : "", name, i, sizes[i]);
    fprintf(out, "\n)\n{\nret;\n}\n");
    if (fclose(out)) {
        free(text);
        return NULL;
    }
    return text;
}

static CUresult load(struct kernel *kernel)
{
    if (!program_symbol("simgpu_kernel_", kernel->name))
        return (CUresult)cudaErrorInvalidDeviceFunction;
    char *ptx = make_ptx(kernel->name);
    if (!ptx)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = DRV(cuLibraryLoadData)(&kernel->library, ptx, NULL, NULL, 0, NULL, NULL, 0);
    free(ptx);
    if (result)
        return result;
    result = DRV(cuLibraryGetKernel)(&kernel->kernel, kernel->library, kernel->name);
    if (result) {
        DRV(cuLibraryUnload)(kernel->library);
        kernel->library = NULL;
    }
    return result;
}

CUresult cudart_registry_kernel(const void *host_function, CUkernel *out)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&registry_lock);
    struct kernel *kernel = find(host_function);
    if (!kernel)
        result = (CUresult)cudaErrorInvalidDeviceFunction;
    else if (!kernel->kernel)
        result = load(kernel);
    if (!result)
        *out = kernel->kernel;
    pthread_mutex_unlock(&registry_lock);
    return result;
}

CUresult cudart_registry_function(const void *host_function, CUfunction *out)
{
    CUkernel kernel;
    return cudart_registry_kernel(host_function, &kernel) ?: DRV(cuKernelGetFunction)(out, kernel);
}

/* The handle is our own structure, so that this needs no driver. */
cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host_function)
{
    if (!out)
        return cudart_end(cudaErrorInvalidValue);
    pthread_mutex_lock(&registry_lock);
    struct kernel *kernel = find(host_function);
    pthread_mutex_unlock(&registry_lock);
    *out = (cudaKernel_t)kernel;
    return cudart_end(kernel ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaGetKernel(cudaKernel_t *out, const void *host_function)
{
    return __cudaGetKernel(out, host_function);
}
