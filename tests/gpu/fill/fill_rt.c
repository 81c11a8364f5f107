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

static int runtime_graph_make(struct fill_graph *graph, size_t bytes, unsigned char byte, uintptr_t out,
                              size_t words)
{
    cudaStream_t stream = NULL;
    cudaGraph_t made = NULL;
    cudaGraphExec_t exec = NULL;
    void *block = NULL;
    cudaError_t rc = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), ended;
    if (!rc)
        rc = cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
    if (!rc) {
        rc = cudaMallocAsync(&block, bytes, stream);
        char *end = (char *)block + bytes - words * 4;
        if (!rc)
            rc = cudaMemsetAsync(end, byte, words * 4, stream);
        if (!rc)
            rc = cudaMemcpyAsync((void *)out, end, words * 4, cudaMemcpyDeviceToDevice, stream);
        if (!rc)
            rc = cudaFreeAsync(block, stream);
        ended = cudaStreamEndCapture(stream, &made);
        rc = rc ? rc : ended;
    }
    if (!rc)
        rc = cudaGraphInstantiate(&exec, made, 0);
    if (made)
        cudaGraphDestroy(made);
    cudaGetLastError();
    *graph = (struct fill_graph){stream, exec};
    return (int)rc;
}

static int runtime_graph_run(const struct fill_graph *graph)
{
    cudaError_t rc = cudaGraphLaunch((cudaGraphExec_t)graph->exec, (cudaStream_t)graph->stream);
    cudaGetLastError();
    return (int)(rc ? rc : cudaStreamSynchronize((cudaStream_t)graph->stream));
}

static int runtime_graph_end(struct fill_graph *graph)
{
    cudaError_t rc = graph->exec ? cudaGraphExecDestroy((cudaGraphExec_t)graph->exec) : cudaSuccess;
    cudaError_t ended = graph->stream ? cudaStreamDestroy((cudaStream_t)graph->stream) : cudaSuccess;
    *graph = (struct fill_graph){NULL, NULL};
    return (int)(rc ? rc : ended);
}

int main(int argc, char **argv)
{
    const struct fill_api api = {"runtime",         runtime_start,    runtime_info, runtime_alloc,
                                 runtime_release,   runtime_set,      runtime_read, runtime_graph_make,
                                 runtime_graph_run, runtime_graph_end};
    return fill_main(argc, argv, &api);
}
