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

static int driver_graph_make(struct fill_graph *graph, size_t bytes, unsigned char byte, uintptr_t out,
                             size_t words)
{
    CUstream stream = NULL;
    CUgraph made = NULL;
    CUgraphExec exec = NULL;
    CUdeviceptr block = 0;
    CUresult rc = CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), ended;
    if (!rc)
        rc = CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (!rc) {
        rc = CU(cuMemAllocAsync)(&block, bytes, stream);
        CUdeviceptr end = block + bytes - words * 4;
        if (!rc)
            rc = CU(cuMemsetD8Async)(end, byte, words * 4, stream);
        if (!rc)
            rc = CU(cuMemcpyDtoDAsync)((CUdeviceptr)out, end, words * 4, stream);
        if (!rc)
            rc = CU(cuMemFreeAsync)(block, stream);
        ended = CU(cuStreamEndCapture)(stream, &made);
        rc = rc ? rc : ended;
    }
    if (!rc)
        rc = CU(cuGraphInstantiateWithFlags)(&exec, made, 0);
    if (made)
        CU(cuGraphDestroy)(made);
    *graph = (struct fill_graph){stream, exec};
    return (int)rc;
}

static int driver_graph_run(const struct fill_graph *graph)
{
    CUresult rc = CU(cuGraphLaunch)((CUgraphExec)graph->exec, (CUstream)graph->stream);
    return (int)(rc ? rc : CU(cuStreamSynchronize)((CUstream)graph->stream));
}

static int driver_graph_end(struct fill_graph *graph)
{
    CUresult rc = graph->exec ? CU(cuGraphExecDestroy)((CUgraphExec)graph->exec) : CUDA_SUCCESS;
    CUresult ended = graph->stream ? CU(cuStreamDestroy)((CUstream)graph->stream) : CUDA_SUCCESS;
    *graph = (struct fill_graph){NULL, NULL};
    return (int)(rc ? rc : ended);
}

#endif
