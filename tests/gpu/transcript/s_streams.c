/* Sections events and streams: order, queries, flags, and the two default streams. */
#include "tx.h"

#include <string.h>

#define LEGACY_STREAM     ((CUstream)0x1)
#define PER_THREAD_STREAM ((CUstream)0x2)

static void events_behind_work(struct tx_kernels *k, struct tx_gate *gate)
{
    CUstream one = NULL, two = NULL;
    CUevent event = NULL;
    CU(cuStreamCreate, &one, CU_STREAM_NON_BLOCKING);
    CU(cuStreamCreate, &two, CU_STREAM_NON_BLOCKING);
    CU(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    tx_gate_close(gate, k, one);
    CU(cuEventRecord, event, one);
    CU(cuEventQuery, event);
    CU(cuStreamQuery, one);
    CU(cuStreamQuery, two);
    CU(cuStreamWaitEvent, two, event, 0);
    CU(cuStreamQuery, two);
    tx_gate_open(gate);
    CU(cuStreamSynchronize, two);
    CU(cuEventQuery, event);
    CU(cuEventSynchronize, event);
    tx_gate_close(gate, k, one);
    CU(cuEventRecord, event, one);
    CU(cuEventDestroy, event);
    CU(cuStreamQuery, one);
    CU(cuStreamDestroy, one);
    tx_gate_open(gate);
    CU(cuCtxSynchronize);
    CU(cuStreamDestroy, two);
}

static void context_event(struct tx_kernels *k, struct tx_gate *gate)
{
    CUstream one = NULL;
    CUevent event = NULL;
    CUcontext ctx = NULL;
    drv.cuCtxGetCurrent(&ctx);
    CU(cuStreamCreate, &one, CU_STREAM_NON_BLOCKING);
    CU(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    tx_gate_close(gate, k, one);
    CU(cuCtxRecordEvent, ctx, event);
    CU(cuEventQuery, event);
    tx_gate_open(gate);
    CU(cuEventSynchronize, event);
    CU(cuStreamQuery, one);
    CU(cuEventDestroy, event);
    CU(cuStreamDestroy, one);
}

void tx_run_events(void)
{
    struct tx_kernels k;
    struct tx_gate gate;
    CUevent a = NULL, b = NULL, untimed = NULL;
    float ms = -1;
    tx_start();
    if (tx_rc("kernels loaded", tx_load_kernels(&k)) || !tx_gate_new(&gate))
        return;
    CU(cuEventCreate, NULL, 0);
    CU(cuEventCreate, &a, 0x1000);
    CU(cuEventCreate, &a, CU_EVENT_DEFAULT);
    CU(cuEventCreate, &b, CU_EVENT_BLOCKING_SYNC);
    CU(cuEventCreate, &untimed, CU_EVENT_DISABLE_TIMING);
    CU(cuEventCreate, &untimed, CU_EVENT_INTERPROCESS);
    CU(cuEventQuery, a);
    CU(cuEventSynchronize, a);
    CU(cuEventElapsedTime, &ms, a, b);
    CU(cuEventRecord, a, NULL);
    CU(cuEventRecord, b, NULL);
    CU(cuEventSynchronize, b);
    CU(cuEventElapsedTime, &ms, a, b);
    tx_say("time does not run backwards: %s", tx_yes(ms >= 0));
    CU(cuEventElapsedTime, NULL, a, b);
    CU(cuEventRecord, untimed, NULL);
    CU(cuEventSynchronize, untimed);
    CU(cuEventElapsedTime, &ms, a, untimed);
    CU(cuEventDestroy, a);
    CU(cuEventDestroy, b);
    CU(cuEventDestroy, untimed);
    events_behind_work(&k, &gate);
    context_event(&k, &gate);
}

static void properties(void)
{
    CUstream s = NULL;
    unsigned flags = 9;
    int priority = 9, least = 9, greatest = 9;
    CUcontext ctx = NULL, current = NULL;
    drv.cuCtxGetCurrent(&current);
    CU(cuStreamCreate, NULL, 0);
    CU(cuStreamCreate, &s, 0x80);
    CU(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    CU(cuStreamGetFlags, s, &flags);
    CU(cuStreamGetPriority, s, &priority);
    tx_say("flags %u, priority %d", flags, priority);
    CU(cuStreamGetCtx, s, &ctx);
    tx_say("of the current context: %s", tx_yes(ctx == current));
    CU(cuStreamQuery, s);
    CU(cuStreamDestroy, s);
    CU(cuCtxGetStreamPriorityRange, &least, &greatest);
    tx_say("least priority %d, the greatest is below: %s", least, tx_yes(greatest < least));
    CU(cuStreamCreateWithPriority, &s, CU_STREAM_DEFAULT, greatest);
    CU(cuStreamGetPriority, s, &priority);
    tx_say("priority is the greatest: %s", tx_yes(priority == greatest));
    CU(cuStreamDestroy, s);
    CU(cuStreamDestroy, NULL);
    CU(cuStreamSynchronize, NULL);
    CU(cuStreamSynchronize, LEGACY_STREAM);
    CU(cuStreamSynchronize, PER_THREAD_STREAM);
    CU(cuStreamQuery, PER_THREAD_STREAM);
    CU(cuStreamGetFlags, NULL, &flags);
    tx_say("flags of the legacy stream %u", flags);
}

static void add_one(void *counter)
{
    ++*(int *)counter;
}

static void host_functions(struct tx_kernels *k, struct tx_gate *gate)
{
    CUstream s = NULL;
    int calls = 0;
    CU(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    tx_gate_close(gate, k, s);
    CU(cuLaunchHostFunc, s, add_one, &calls);
    CU(cuLaunchHostFunc, s, add_one, &calls);
    tx_say("behind a waiting kernel, calls so far: %d", *(volatile int *)&calls);
    tx_gate_open(gate);
    CU(cuStreamSynchronize, s);
    tx_say("calls: %d", calls);
    CU(cuStreamDestroy, s);
}

/* The entry points of programs built with --default-stream per-thread: stream 0 is the thread's own stream.
 */
static void per_thread(struct tx_kernels *k, struct tx_gate *gate)
{
    PFN_cuLaunchKernel_v7000_ptsz launch = driver_symbol("cuLaunchKernel_ptsz");
    PFN_cuStreamQuery_v7000_ptsz query = driver_symbol("cuStreamQuery_ptsz");
    PFN_cuStreamSynchronize_v7000_ptsz synchronize = driver_symbol("cuStreamSynchronize_ptsz");
    PFN_cuMemsetD8Async_v7000_ptsz set = driver_symbol("cuMemsetD8Async_ptsz");
    PFN_cuMemcpyDtoH_v7000_ptds copy = driver_symbol("cuMemcpyDtoH_v2_ptds");
    CUstream other = NULL;
    CUdeviceptr p = 0;
    unsigned char bytes[64];
    tx_say("the per-thread entry points are there: %s",
           tx_yes(launch && query && synchronize && set && copy));
    if (!launch || !query || !synchronize || !set || !copy)
        return;
    CU(cuMemAlloc, &p, 64);
    CU(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    __atomic_store_n(gate->flag, 0, __ATOMIC_SEQ_CST);
    tx_rc("cuLaunchKernel_ptsz(waits)",
          launch(k->spin_flag, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&gate->flag}, NULL));
    tx_rc("cuStreamQuery_ptsz(0)", query(NULL));
    CU(cuStreamQuery, PER_THREAD_STREAM);
    tx_rc("cuStreamQuery_ptsz(legacy)", query(LEGACY_STREAM));
    CU(cuStreamQuery, other);
    tx_rc("cuMemsetD8Async_ptsz", set(p, 0x61, 64, NULL));
    tx_gate_open(gate);
    tx_rc("cuStreamSynchronize_ptsz(0)", synchronize(NULL));
    tx_rc("cuMemcpyDtoH_v2_ptds", copy(bytes, p, 64));
    tx_say("the bytes came in order: %s", tx_yes(bytes[0] == 0x61 && bytes[63] == 0x61));
    CU(cuMemFree, p);
    CU(cuStreamDestroy, other);
}

/* The legacy stream waits for blocking streams and they for it; non-blocking ones stay apart. */
static void legacy_order(struct tx_kernels *k, struct tx_gate *gate)
{
    CUstream blocking = NULL, apart = NULL;
    CUdeviceptr p = 0, q = 0;
    CU(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    CU(cuStreamCreate, &apart, CU_STREAM_NON_BLOCKING);
    CU(cuMemAlloc, &p, 4096);
    CU(cuMemAlloc, &q, 4096);
    tx_gate_close(gate, k, blocking);
    tx_rc("fill on the legacy stream", tx_fill(k, p, 1, 1024, NULL));
    CU(cuStreamQuery, NULL);
    tx_rc("fill on a non-blocking stream", tx_fill(k, q, 1, 1024, apart));
    CU(cuStreamSynchronize, apart);
    tx_gate_open(gate);
    CU(cuStreamSynchronize, NULL);
    CU(cuStreamQuery, blocking);
    tx_gate_close(gate, k, NULL);
    tx_rc("fill on a blocking stream", tx_fill(k, p, 2, 1024, blocking));
    CU(cuStreamQuery, blocking);
    tx_gate_open(gate);
    CU(cuStreamSynchronize, blocking);
    CU(cuMemFree, p);
    CU(cuMemFree, q);
    CU(cuStreamDestroy, blocking);
    CU(cuStreamDestroy, apart);
}

void tx_run_streams(void)
{
    struct tx_kernels k;
    struct tx_gate gate;
    tx_start();
    properties();
    if (tx_rc("kernels loaded", tx_load_kernels(&k)) || !tx_gate_new(&gate))
        return;
    host_functions(&k, &gate);
    legacy_order(&k, &gate);
    per_thread(&k, &gate);
}
