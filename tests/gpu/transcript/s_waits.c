/* Section waits: which calls wait for running work, and which must not.
 *
 * A kernel waits at a gate that the host opens. A call that waits is made with the gate opening by itself a
 * little later: when it has returned, the gate must be open and the kernel done. A call that does not wait is
 * made with the gate opening only after a long while: it must return with the kernel still running. Neither
 * answer depends on how fast the machine is.
 */
#include "tx.h"

#include <string.h>

#define SOON_S  0.05
#define NEVER_S 5.0 /* only so that a call that waits against all rules ends as a line and not as a hang */

struct scene {
    struct tx_kernels k;
    struct tx_gate gate;
    CUstream non_blocking, blocking, idle;
    CUdeviceptr a, b;
    CUdevice device;
    CUdeviceptr va;
    CUmemGenericAllocationHandle handle;
};

#define UNIT (2 * TX_MIB)

static CUresult call_free(struct scene *s)
{
    CUresult rc = drv.cuMemFree(s->a);
    s->a = 0;
    return rc;
}

static CUresult call_free_null(struct scene *s)
{
    (void)s;
    return drv.cuMemFree(0);
}

static CUresult call_alloc(struct scene *s)
{
    return drv.cuMemAlloc(&s->a, 1 << 20);
}

static CUresult call_alloc_large(struct scene *s)
{
    return drv.cuMemAlloc(&s->a, 64 * TX_MIB);
}

static CUresult call_free_async(struct scene *s)
{
    CUresult rc = drv.cuMemFreeAsync(s->b, s->idle);
    s->b = 0;
    return rc;
}

static CUresult call_alloc_async(struct scene *s)
{
    return drv.cuMemAllocAsync(&s->b, 1 << 20, s->idle);
}

static CUresult call_map(struct scene *s)
{
    CUmemAccessDesc rw;
    memset(&rw, 0, sizeof(rw));
    rw.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    rw.location.id = s->device;
    rw.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUresult rc = drv.cuMemMap(s->va, UNIT, 0, s->handle, 0);
    return rc ? rc : drv.cuMemSetAccess(s->va, UNIT, &rw, 1);
}

static CUresult call_unmap(struct scene *s)
{
    return drv.cuMemUnmap(s->va, UNIT);
}

static CUresult call_get_info(struct scene *s)
{
    size_t free_bytes, total;
    (void)s;
    return drv.cuMemGetInfo(&free_bytes, &total);
}

static CUresult call_address_range(struct scene *s)
{
    CUdeviceptr base;
    size_t size;
    return drv.cuMemGetAddressRange(&base, &size, s->a);
}

static CUresult call_ctx_sync(struct scene *s)
{
    (void)s;
    return drv.cuCtxSynchronize();
}

static CUresult call_idle_sync(struct scene *s)
{
    return drv.cuStreamSynchronize(s->idle);
}

static CUresult call_legacy_sync(struct scene *s)
{
    (void)s;
    return drv.cuStreamSynchronize(NULL);
}

static CUresult call_copy(struct scene *s)
{
    char bytes[16] = {0};
    return drv.cuMemcpyHtoD(s->a, bytes, sizeof(bytes));
}

static CUresult call_kernel_elsewhere(struct scene *s)
{
    CUresult rc = tx_fill(&s->k, s->a, 5, 16, s->idle);
    return rc ? rc : drv.cuStreamSynchronize(s->idle);
}

static const struct step {
    const char *name;
    CUresult (*call)(struct scene *);
    bool waits_non_blocking; /* with the kernel on a non-blocking stream */
    bool waits_blocking;     /* with the kernel on a blocking stream */
} steps[] = {{"cuMemAlloc of 1 MiB", call_alloc, false, false},
             {"cuMemGetInfo", call_get_info, false, false},
             {"cuMemGetAddressRange", call_address_range, false, false},
             {"a kernel on another non-blocking stream", call_kernel_elsewhere, false, false},
             {"cuStreamSynchronize of another non-blocking stream", call_idle_sync, false, false},
             {"cuMemcpyHtoD of pageable memory", call_copy, false, true},
             {"cuStreamSynchronize of the legacy stream", call_legacy_sync, false, true},
             {"cuMemFree", call_free, true, true},
             {"cuMemFree of NULL", call_free_null, false, false},
             {"cuMemAlloc of 64 MiB", call_alloc_large, false, false},
             {"cuMemFree", call_free, true, true},
             {"cuMemMap and cuMemSetAccess", call_map, false, false},
             {"cuMemUnmap", call_unmap, false, false},
             {"cuMemAllocAsync on another stream", call_alloc_async, false, false},
             {"cuMemFreeAsync on another stream", call_free_async, false, false},
             {"cuCtxSynchronize", call_ctx_sync, true, true}};

static void try_step(struct scene *s, const struct step *step, CUstream stream, const char *where, bool waits)
{
    CUresult launched = tx_gate_close(&s->gate, &s->k, stream);
    tx_gate_open_later(&s->gate, waits ? SOON_S : NEVER_S);
    CUresult rc = step->call(s);
    bool open = tx_gate_is_open(&s->gate);
    CUresult state = drv.cuStreamQuery(stream);
    tx_gate_open(&s->gate);
    tx_gate_join(&s->gate);
    drv.cuStreamSynchronize(stream);
    tx_say("behind a kernel on a %s stream (%s), %s -> %s, waited: %s, the kernel then: %s", where,
           tx_code(launched), step->name, tx_code(rc), tx_yes(open), tx_code(state));
}

static bool prepare(struct scene *s)
{
    CUmemAllocationProp prop;
    memset(s, 0, sizeof(*s));
    memset(&prop, 0, sizeof(prop));
    s->device = tx_start();
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = s->device;
    if (tx_rc("kernels loaded", tx_load_kernels(&s->k)) || !tx_gate_new(&s->gate))
        return false;
    CU(cuStreamCreate, &s->non_blocking, CU_STREAM_NON_BLOCKING);
    CU(cuStreamCreate, &s->blocking, CU_STREAM_DEFAULT);
    CU(cuStreamCreate, &s->idle, CU_STREAM_NON_BLOCKING);
    CU(cuMemAddressReserve, &s->va, UNIT, 0, 0, 0);
    CU(cuMemCreate, &s->handle, UNIT, &prop, 0);
    /* The first use of the pool and of each stream may set things up: not what is asked here. */
    call_alloc_async(s);
    call_free_async(s);
    tx_fill(&s->k, s->va, 0, 0, s->idle);
    return drv.cuCtxSynchronize() == CUDA_SUCCESS;
}

void tx_run_waits(void)
{
    struct scene s;
    if (!prepare(&s))
        return;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        try_step(&s, &steps[i], s.non_blocking, "non-blocking", steps[i].waits_non_blocking);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        try_step(&s, &steps[i], s.blocking, "blocking", steps[i].waits_blocking);
    CU(cuMemRelease, s.handle);
    CU(cuMemAddressFree, s.va, UNIT);
}
