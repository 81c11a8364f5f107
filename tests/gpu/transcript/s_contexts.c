/* Sections primary and contexts: contexts come, go, and take their memory with them. */
#include "tx.h"

static void say_state(CUdevice device)
{
    unsigned flags = 77;
    int active = 77;
    CUresult rc = drv.cuDevicePrimaryCtxGetState(device, &flags, &active);
    tx_say("cuDevicePrimaryCtxGetState -> %s, flags %u, active %d", tx_code(rc), flags, active);
}

static void say_current(CUcontext expected)
{
    CUcontext current = (CUcontext)1;
    CUresult rc = drv.cuCtxGetCurrent(&current);
    tx_say("cuCtxGetCurrent -> %s, %s", tx_code(rc),
           !current              ? "none"
           : current == expected ? "the expected one"
                                 : "another one");
}

static size_t free_now(void)
{
    size_t free_bytes = 0, total = 0;
    return drv.cuMemGetInfo(&free_bytes, &total) == CUDA_SUCCESS ? free_bytes : 0;
}

static void reset(CUdevice device)
{
    CUcontext ctx = NULL;
    CUdeviceptr p = 0, q = 0;
    CU(cuDevicePrimaryCtxRetain, &ctx, device);
    CU(cuCtxSetCurrent, ctx);
    size_t before = free_now();
    CU(cuMemAlloc, &p, 64 * TX_MIB);
    CU(cuDevicePrimaryCtxReset, device);
    say_state(device);
    CU(cuMemFree, p);
    CU(cuMemAlloc, &q, 4096);
    CU(cuDevicePrimaryCtxRetain, &ctx, device);
    CU(cuCtxSetCurrent, ctx);
    say_state(device);
    tx_say("the reset gave the memory back: %s", tx_yes(free_now() + 32 * TX_MIB >= before));
    CU(cuMemAlloc, &q, 4096);
    CU(cuMemsetD8, q, 1, 4096);
    tx_say("wrong bytes: %ld", tx_wrong_bytes(q, 1, 4096));
    CU(cuMemFree, q);
    CU(cuDevicePrimaryCtxReset, 4096);
}

void tx_run_primary(void)
{
    CUcontext one = NULL, two = NULL;
    CUdevice device = -1;
    CUdeviceptr p = 0, q = 0;
    unsigned flags = 0;
    CU(cuInit, 0);
    say_state(0);
    CU(cuDevicePrimaryCtxRelease, 0);
    CU(cuDevicePrimaryCtxRetain, NULL, 0);
    CU(cuDevicePrimaryCtxRetain, &one, 4096);
    CU(cuDevicePrimaryCtxRetain, &one, 0);
    say_state(0);
    say_current(one);
    CU(cuDevicePrimaryCtxRetain, &two, 0);
    tx_say("a second retain gives the same context: %s", tx_yes(one == two));
    CU(cuCtxSetCurrent, one);
    say_current(one);
    CU(cuCtxGetDevice, &device);
    CU(cuCtxGetFlags, &flags);
    CU(cuMemAlloc, &p, 64 * TX_MIB);
    CU(cuDevicePrimaryCtxRelease, 0);
    say_state(0);
    CU(cuMemsetD8, p, 7, 4096);
    tx_say("after one of two releases the memory is there, wrong bytes: %ld", tx_wrong_bytes(p, 7, 4096));
    CU(cuDevicePrimaryCtxRelease, 0);
    say_state(0);
    CU(cuMemAlloc, &q, 4096);
    CU(cuMemFree, p);
    CU(cuDevicePrimaryCtxRelease, 0);
    CU(cuDevicePrimaryCtxRetain, &two, 0);
    CU(cuCtxSetCurrent, two);
    CU(cuMemFree, p);
    CU(cuMemAlloc, &q, 4096);
    CU(cuMemFree, q);
    CU(cuDevicePrimaryCtxRelease, 0);
    reset(0);
}

static void two_at_once(CUcontext a, CUcontext b)
{
    CUdeviceptr in_a = 0, in_b = 0;
    CUcontext owner = NULL, popped = NULL;
    CU(cuCtxSetCurrent, a);
    CU(cuMemAlloc, &in_a, 1000);
    CU(cuCtxPushCurrent, b);
    say_current(b);
    CU(cuMemAlloc, &in_b, 2000);
    CU(cuPointerGetAttribute, &owner, CU_POINTER_ATTRIBUTE_CONTEXT, in_a);
    tx_say("a block remembers its own context while another is current: %s", tx_yes(owner == a));
    CU(cuPointerGetAttribute, &owner, CU_POINTER_ATTRIBUTE_CONTEXT, in_b);
    tx_say("and the new block has the current one: %s", tx_yes(owner == b));
    CU(cuMemcpyDtoD, in_b, in_a, 1000);
    CU(cuCtxSynchronize); /* a free waits for the context of its block, and this copy ran in the other one */
    CU(cuMemFree, in_a);
    CU(cuCtxPopCurrent, &popped);
    tx_say("popped what was pushed: %s", tx_yes(popped == b));
    say_current(a);
    CU(cuMemFree, in_b);
    CU(cuMemFree, in_b);
}

void tx_run_contexts(void)
{
    CUdevice device = tx_start();
    CUcontext primary = NULL, a = NULL, b = NULL;
    CUdeviceptr p = 0;
    unsigned version = 0, flags = 0;
    drv.cuCtxGetCurrent(&primary);
    size_t before = free_now();
    CU(cuCtxCreate, NULL, 0, device);
    CU(cuCtxCreate, &a, 0xffff0000, device);
    CU(cuCtxCreate, &a, 0, 4096);
    CU(cuCtxCreate, &a, CU_CTX_SCHED_BLOCKING_SYNC, device);
    say_current(a);
    CU(cuCtxGetApiVersion, a, &version);
    tx_say("API version at least 3020: %s", tx_yes(version >= 3020));
    CU(cuCtxGetFlags, &flags);
    tx_say("blocking sync is set: %s", tx_yes((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC));
    CU(cuCtxCreate, &b, 0, device);
    say_current(b);
    tx_say("a context takes memory: %s", tx_yes(free_now() < before));
    two_at_once(a, b);
    CU(cuCtxSetCurrent, a);
    CU(cuMemAlloc, &p, 64 * TX_MIB);
    CU(cuCtxDestroy, a);
    say_current(NULL);
    CU(cuCtxSetCurrent, primary);
    CU(cuMemFree, p);
    CU(cuCtxDestroy, b);
    say_current(primary);
    tx_say("all the memory came back: %s", tx_yes(free_now() + 32 * TX_MIB >= before));
    CU(cuCtxDestroy, NULL);
    CU(cuCtxSetCurrent, NULL);
    say_current(NULL);
    CU(cuCtxPushCurrent, NULL);
}
