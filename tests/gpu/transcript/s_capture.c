/* Sections capture and graphs: what each mode of stream capture forbids, and what captured work does when
 * launched. */
#include "tx.h"

#include <string.h>
#include <unistd.h>

struct probe {
    CUstream stream, other;
    CUdeviceptr p; /* a live block */
    CUevent event;
    CUevent done; /* of another stream, before */
    CUdevice device;
    CUmemoryPool pool;                  /* the stream's, with nothing in it */
    CUmemGenericAllocationHandle chunk; /* that can be exported */
    int exported;                       /* a descriptor of it */
    const struct tx_kernels *k;
};

static CUresult probe_alloc(struct probe *c)
{
    CUdeviceptr q = 0;
    (void)c;
    return drv.cuMemAlloc(&q, 4096);
}

static CUresult probe_alloc_zero(struct probe *c)
{
    CUdeviceptr q = 0;
    (void)c;
    return drv.cuMemAlloc(&q, 0);
}

static CUresult probe_free(struct probe *c)
{
    CUresult rc = drv.cuMemFree(c->p);
    if (rc == CUDA_SUCCESS)
        c->p = 0;
    return rc;
}

static CUresult probe_free_null(struct probe *c)
{
    (void)c;
    return drv.cuMemFree(0);
}

static CUresult probe_pitch(struct probe *c)
{
    CUdeviceptr q = 0;
    size_t pitch = 0;
    (void)c;
    return drv.cuMemAllocPitch(&q, &pitch, 100, 10, 4);
}

static CUresult probe_managed(struct probe *c)
{
    CUdeviceptr q = 0;
    (void)c;
    return drv.cuMemAllocManaged(&q, 4096, CU_MEM_ATTACH_GLOBAL);
}

static CUresult probe_host_alloc(struct probe *c)
{
    void *q = NULL;
    (void)c;
    return drv.cuMemHostAlloc(&q, 4096, 0);
}

static CUresult probe_get_info(struct probe *c)
{
    size_t free_bytes = 0, total = 0;
    (void)c;
    return drv.cuMemGetInfo(&free_bytes, &total);
}

static CUresult probe_address_range(struct probe *c)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    return drv.cuMemGetAddressRange(&base, &size, c->p);
}

static CUresult probe_attribute(struct probe *c)
{
    unsigned type = 0;
    return drv.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, c->p);
}

static CUresult probe_vmm(struct probe *c)
{
    const size_t unit = 2 * TX_MIB;
    CUmemAllocationProp prop;
    CUmemAccessDesc rw;
    CUmemGenericAllocationHandle h = 0;
    CUdeviceptr va = 0;
    memset(&prop, 0, sizeof(prop));
    memset(&rw, 0, sizeof(rw));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = rw.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = rw.location.id = c->device;
    rw.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUresult rc = drv.cuMemAddressReserve(&va, unit, 0, 0, 0);
    rc = rc ? rc : drv.cuMemCreate(&h, unit, &prop, 0);
    rc = rc ? rc : drv.cuMemMap(va, unit, 0, h, 0);
    rc = rc ? rc : drv.cuMemSetAccess(va, unit, &rw, 1);
    rc = rc ? rc : drv.cuMemUnmap(va, unit);
    rc = rc ? rc : drv.cuMemRelease(h);
    return rc ? rc : drv.cuMemAddressFree(va, unit);
}

static CUresult probe_ctx_event(struct probe *c)
{
    CUcontext ctx = NULL;
    drv.cuCtxGetCurrent(&ctx);
    return drv.cuCtxRecordEvent(ctx, c->event);
}

static CUresult probe_ctx_sync(struct probe *c)
{
    (void)c;
    return drv.cuCtxSynchronize();
}

static CUresult probe_stream_sync(struct probe *c)
{
    return drv.cuStreamSynchronize(c->stream);
}

static CUresult probe_stream_query(struct probe *c)
{
    return drv.cuStreamQuery(c->stream);
}

static CUresult probe_other_query(struct probe *c)
{
    return drv.cuStreamQuery(c->other);
}

static CUresult probe_event_query(struct probe *c)
{
    return drv.cuEventQuery(c->done);
}

static CUresult probe_event_sync(struct probe *c)
{
    return drv.cuEventSynchronize(c->done);
}

static CUresult probe_copy(struct probe *c)
{
    char bytes[16] = {0};
    return drv.cuMemcpyHtoD(c->p, bytes, sizeof(bytes));
}

static CUresult probe_legacy_memset(struct probe *c)
{
    return drv.cuMemsetD8Async(c->p, 1, 16, NULL);
}

static CUresult probe_memset(struct probe *c)
{
    return drv.cuMemsetD8Async(c->p, 1, 16, c->stream);
}

static CUresult probe_kernel(struct probe *c)
{
    return tx_fill(c->k, c->p, 1, 16, c->stream);
}

static CUresult probe_event_record(struct probe *c)
{
    return drv.cuEventRecord(c->event, c->stream);
}

static CUresult probe_begin_again(struct probe *c)
{
    return drv.cuStreamBeginCapture(c->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult probe_async_pair(struct probe *c)
{
    CUdeviceptr q = 0;
    CUresult rc = drv.cuMemAllocAsync(&q, 4096, c->stream);
    return rc ? rc : drv.cuMemFreeAsync(q, c->stream);
}

static CUresult probe_pool_read(struct probe *c)
{
    cuuint64_t bytes = 0;
    return drv.cuMemPoolGetAttribute(c->pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes);
}

static CUresult probe_pool_set(struct probe *c)
{
    cuuint64_t bytes = 0;
    return drv.cuMemPoolSetAttribute(c->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes);
}

static CUresult probe_pool_trim(struct probe *c)
{
    return drv.cuMemPoolTrimTo(c->pool, 0);
}

static CUresult probe_graph_read(struct probe *c)
{
    cuuint64_t bytes = 0;
    return drv.cuDeviceGetGraphMemAttribute(c->device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);
}

static CUresult probe_graph_trim(struct probe *c)
{
    return drv.cuDeviceGraphMemTrim(c->device);
}

static CUresult probe_export(struct probe *c)
{
    int fd = -1;
    CUresult rc =
        drv.cuMemExportToShareableHandle(&fd, c->chunk, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (fd >= 0)
        close(fd);
    return rc;
}

static CUresult probe_import(struct probe *c)
{
    CUmemGenericAllocationHandle imported = 0;
    CUresult rc = drv.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)c->exported,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return rc ? rc : drv.cuMemRelease(imported);
}

static CUresult relaxed(struct probe *c, CUresult (*run)(struct probe *))
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult rc = drv.cuThreadExchangeStreamCaptureMode(&mode);
    rc = rc ? rc : run(c);
    drv.cuThreadExchangeStreamCaptureMode(&mode);
    return rc;
}

static CUresult probe_exchanged_alloc(struct probe *c)
{
    return relaxed(c, probe_alloc);
}

static CUresult probe_exchanged_sync(struct probe *c)
{
    return relaxed(c, probe_event_sync);
}

struct from_thread {
    struct probe *c;
    CUresult (*run)(struct probe *);
    CUresult rc;
};

static void run_in_thread(void *arg)
{
    struct from_thread *t = arg;
    CUcontext ctx = NULL;
    drv.cuDevicePrimaryCtxRetain(&ctx, t->c->device);
    drv.cuCtxSetCurrent(ctx);
    t->rc = t->run(t->c);
    drv.cuDevicePrimaryCtxRelease(t->c->device);
}

static CUresult elsewhere(struct probe *c, CUresult (*run)(struct probe *))
{
    struct from_thread t = {c, run, DRIVER_ABSENT};
    tx_in_thread(run_in_thread, &t);
    return t.rc;
}

static CUresult probe_alloc_elsewhere(struct probe *c)
{
    return elsewhere(c, probe_alloc);
}

static CUresult probe_free_elsewhere(struct probe *c)
{
    return elsewhere(c, probe_free);
}

static CUresult probe_ctx_sync_elsewhere(struct probe *c)
{
    return elsewhere(c, probe_ctx_sync);
}

static CUresult probe_event_query_elsewhere(struct probe *c)
{
    return elsewhere(c, probe_event_query);
}

static CUresult probe_event_sync_elsewhere(struct probe *c)
{
    return elsewhere(c, probe_event_sync);
}

static CUresult probe_exchanged_sync_elsewhere(struct probe *c)
{
    return elsewhere(c, probe_exchanged_sync);
}

static CUresult probe_pool_read_elsewhere(struct probe *c)
{
    return elsewhere(c, probe_pool_read);
}

static CUresult probe_exchanged_pool_read(struct probe *c)
{
    return relaxed(c, probe_pool_read);
}

static CUresult probe_graph_read_elsewhere(struct probe *c)
{
    return elsewhere(c, probe_graph_read);
}

static CUresult probe_export_elsewhere(struct probe *c)
{
    return elsewhere(c, probe_export);
}

static const struct {
    const char *name;
    CUresult (*run)(struct probe *);
} probes[] = {{"nothing", NULL},
              {"cuMemAlloc", probe_alloc},
              {"cuMemAlloc of 0 bytes", probe_alloc_zero},
              {"cuMemFree", probe_free},
              {"cuMemFree of NULL", probe_free_null},
              {"cuMemAllocPitch", probe_pitch},
              {"cuMemAllocManaged", probe_managed},
              {"cuMemHostAlloc", probe_host_alloc},
              {"cuMemGetInfo", probe_get_info},
              {"cuMemGetAddressRange", probe_address_range},
              {"cuPointerGetAttribute", probe_attribute},
              {"reserve, create, map, enable, unmap, release", probe_vmm},
              {"cuCtxRecordEvent", probe_ctx_event},
              {"cuCtxSynchronize", probe_ctx_sync},
              {"cuStreamSynchronize of the stream", probe_stream_sync},
              {"cuStreamQuery of the stream", probe_stream_query},
              {"cuStreamQuery of another stream", probe_other_query},
              {"cuMemcpyHtoD", probe_copy},
              {"a memset on the legacy stream", probe_legacy_memset},
              {"a memset on the stream", probe_memset},
              {"a kernel on the stream", probe_kernel},
              {"cuEventRecord on the stream", probe_event_record},
              {"cuStreamBeginCapture again", probe_begin_again},
              {"cuMemAllocAsync and cuMemFreeAsync", probe_async_pair},
              {"cuMemAlloc in a thread that relaxed itself", probe_exchanged_alloc},
              {"cuMemAlloc in another thread", probe_alloc_elsewhere},
              {"cuMemFree in another thread", probe_free_elsewhere},
              {"cuEventQuery of another stream's event", probe_event_query},
              {"cuEventSynchronize with another stream's event", probe_event_sync},
              {"the same in a thread that relaxed itself", probe_exchanged_sync},
              {"cuCtxSynchronize in another thread", probe_ctx_sync_elsewhere},
              {"cuEventQuery in another thread", probe_event_query_elsewhere},
              {"cuEventSynchronize in another thread", probe_event_sync_elsewhere},
              {"the same in another thread that relaxed itself", probe_exchanged_sync_elsewhere},
              {"cuMemPoolGetAttribute", probe_pool_read},
              {"the same in a thread that relaxed itself", probe_exchanged_pool_read},
              {"cuMemPoolGetAttribute in another thread", probe_pool_read_elsewhere},
              {"cuMemPoolSetAttribute", probe_pool_set},
              {"cuMemPoolTrimTo", probe_pool_trim},
              {"cuDeviceGetGraphMemAttribute", probe_graph_read},
              {"cuDeviceGetGraphMemAttribute in another thread", probe_graph_read_elsewhere},
              {"cuDeviceGraphMemTrim", probe_graph_trim},
              {"cuMemExportToShareableHandle", probe_export},
              {"cuMemExportToShareableHandle in another thread", probe_export_elsewhere},
              {"cuMemImportFromShareableHandle", probe_import}};

static void try_all(struct probe *c, CUstreamCaptureMode mode, const char *mode_name)
{
    for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++) {
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        CUgraph graph = NULL;
        if (!c->p)
            drv.cuMemAlloc(&c->p, 4096);
        CUresult begin = drv.cuStreamBeginCapture(c->stream, mode);
        CUresult rc = probes[i].run ? probes[i].run(c) : CUDA_SUCCESS;
        drv.cuStreamIsCapturing(c->stream, &status);
        CUresult end = drv.cuStreamEndCapture(c->stream, &graph);
        tx_say("%s, %s: begin %s, call %s, status %d, end %s, a graph: %s", mode_name, probes[i].name,
               tx_code(begin), tx_code(rc), (int)status, tx_code(end), tx_yes(graph != NULL));
        if (graph)
            drv.cuGraphDestroy(graph);
    }
}

static bool prepare_memory(struct probe *c)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->device}};

    return !CU(cuDeviceGetDefaultMemPool, &c->pool, c->device) &&
           !CU(cuMemCreate, &c->chunk, 2 * TX_MIB, &prop, 0) &&
           !CU(cuMemExportToShareableHandle, &c->exported, c->chunk, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
               0);
}

static bool prepare(struct probe *c, struct tx_kernels *k)
{
    memset(c, 0, sizeof(*c));
    c->device = tx_start();
    c->k = k;
    return !tx_rc("kernels loaded", tx_load_kernels(k)) &&
           !CU(cuStreamCreate, &c->stream, CU_STREAM_NON_BLOCKING) &&
           !CU(cuStreamCreate, &c->other, CU_STREAM_NON_BLOCKING) && !CU(cuEventCreate, &c->event, 0) &&
           !CU(cuEventCreate, &c->done, 0) && !CU(cuMemAlloc, &c->p, 4096) &&
           !CU(cuEventRecord, c->done, c->other) && !CU(cuStreamSynchronize, c->other);
}

void tx_run_capture(void)
{
    struct probe c;
    struct tx_kernels k;
    CUgraph graph = NULL;
    if (!prepare(&c, &k) || !prepare_memory(&c))
        return;
    CU(cuStreamEndCapture, c.stream, &graph);
    CU(cuStreamBeginCapture, NULL, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CU(cuStreamBeginCapture, c.stream, (CUstreamCaptureMode)9);
    try_all(&c, CU_STREAM_CAPTURE_MODE_GLOBAL, "global");
    try_all(&c, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "thread-local");
    try_all(&c, CU_STREAM_CAPTURE_MODE_RELAXED, "relaxed");
    close(c.exported);
    CU(cuMemRelease, c.chunk);
    CU(cuMemFree, c.p);
}

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec = NULL;
    size_t nodes = 0;
    CU(cuGraphGetNodes, graph, NULL, &nodes);
    tx_say("%zu nodes", nodes);
    CU(cuGraphInstantiateWithFlags, &exec, graph, 0);
    return exec;
}

static void memory_nodes(struct probe *c)
{
    CUgraph graph = NULL;
    CUdeviceptr q = 0;
    CU(cuMemsetD8, c->p, 0, 4096);
    CU(cuCtxSynchronize);
    CU(cuStreamBeginCapture, c->stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CU(cuMemAllocAsync, &q, 4096, c->stream);
    CU(cuMemsetD8Async, q, 0x55, 4096, c->stream);
    CU(cuMemcpyDtoDAsync, c->p, q, 4096, c->stream);
    CU(cuMemFreeAsync, q, c->stream);
    CU(cuStreamEndCapture, c->stream, &graph);
    if (!graph)
        return;
    CUgraphExec exec = instantiate(graph);
    CU(cuGraphLaunch, exec, c->stream);
    CU(cuStreamSynchronize, c->stream);
    tx_say("through memory of the graph, wrong bytes: %ld", tx_wrong_bytes(c->p, 0x55, 4096));
    CU(cuGraphExecDestroy, exec);
    CU(cuGraphDestroy, graph);
}

void tx_run_graphs(void)
{
    struct probe c;
    struct tx_kernels k;
    CUgraph graph = NULL;
    if (!prepare(&c, &k))
        return;
    CU(cuMemsetD8, c.p, 0, 4096);
    CU(cuStreamBeginCapture, c.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CU(cuMemsetD8Async, c.p, 0x11, 4096, c.stream);
    tx_rc("fill by kernel", tx_fill(&k, c.p, 0x22222222, 512, c.stream));
    CU(cuStreamEndCapture, c.stream, &graph);
    tx_say("captured work has not run, wrong bytes: %ld", tx_wrong_bytes(c.p, 0, 4096));
    if (graph) {
        CUgraphExec exec = instantiate(graph);
        for (int i = 0; i < 2; i++) {
            CU(cuMemsetD8, c.p, 0, 4096);
            CU(cuCtxSynchronize); /* the fill is on the legacy stream, the launch on one that does not wait
                                     for it */
            CU(cuGraphLaunch, exec, c.stream);
            CU(cuStreamSynchronize, c.stream);
            tx_say("launched, wrong bytes: %ld and %ld", tx_wrong_bytes(c.p, 0x22, 2048),
                   tx_wrong_bytes(c.p + 2048, 0x11, 2048));
        }
        CU(cuGraphExecDestroy, exec);
        CU(cuGraphDestroy, graph);
    }
    memory_nodes(&c);
}
