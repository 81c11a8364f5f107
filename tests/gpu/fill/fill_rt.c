/* fill_rt: fill.h through the CUDA runtime; linked once with the static and once with the shared one. Owns no
 * lock. */
#include "fill.h"

#include <cuda_runtime_api.h>

static int runtime_start(void)
{
    return (int)cudaFree(NULL);
}

static int runtime_info(size_t *free_bytes, size_t *total)
{
    return (int)cudaMemGetInfo(free_bytes, total);
}

static int runtime_alloc(uintptr_t *p, size_t bytes)
{
    void *d = NULL;
    cudaError_t rc = cudaMalloc(&d, bytes);
    *p = (uintptr_t)d;
    cudaGetLastError();
    return (int)rc;
}

static int runtime_release(uintptr_t p)
{
    return (int)cudaFree((void *)p);
}

/* The runtime fills bytes only: the marks are spread by doubling copies. */
static int runtime_set(uintptr_t p, uint32_t value, size_t words)
{
    cudaError_t rc = cudaMemcpy((void *)p, &value, sizeof(value), cudaMemcpyHostToDevice);
    for (size_t done = 1; done < words && !rc; done *= 2) {
        size_t n = done < words - done ? done : words - done;
        rc = cudaMemcpy((void *)(p + done * 4), (void *)p, n * 4, cudaMemcpyDeviceToDevice);
    }
    return (int)(rc ? rc : cudaDeviceSynchronize());
}

static int runtime_read(uint32_t *into, uintptr_t p, size_t words)
{
    return (int)cudaMemcpy(into, (void *)p, words * 4, cudaMemcpyDeviceToHost);
}

int main(int argc, char **argv)
{
    const struct fill_api api = {"runtime",       runtime_start, runtime_info, runtime_alloc,
                                 runtime_release, runtime_set,   runtime_read};
    return fill_main(argc, argv, &api);
}
