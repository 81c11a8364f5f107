/* Sections fork, threads, visible and leave: several processes, several threads, and the end of one. */
#include "tx.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void in_child(const char *what, void (*fn)(void))
{
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        fn();
        fflush(stdout);
        _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0)
        ;
    tx_say("child that %s: exit %d, signal %d", what, WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static void child_uses_cuda(void)
{
    CUdeviceptr p = 0;
    tx_start();
    CU(cuMemAlloc, &p, 1 << 20);
    CU(cuMemsetD8, p, 1, 1 << 20);
    tx_say("in the child, wrong bytes: %ld", tx_wrong_bytes(p, 1, 1 << 20));
    CU(cuMemFree, p);
}

static void child_too_late(void)
{
    CUdeviceptr p = 0;
    size_t free_bytes = 0, total = 0;
    int n = 0;
    CUcontext ctx = NULL;
    CU(cuMemAlloc, &p, 1 << 20);
    CU(cuMemGetInfo, &free_bytes, &total);
    CU(cuDeviceGetCount, &n);
    CU(cuInit, 0);
    CU(cuDevicePrimaryCtxRetain, &ctx, 0);
    CU(cuMemAlloc, &p, 0);
    CU(cuMemFree, 0);
    CU(cuCtxSynchronize);
}

static void child_does_nothing(void) {}

void tx_run_fork(void)
{
    CUdeviceptr p = 0;
    size_t before = 0, after = 0, total = 0;
    in_child("uses CUDA before the parent does", child_uses_cuda);
    tx_start();
    CU(cuMemAlloc, &p, 8 * TX_MIB);
    CU(cuMemsetD8, p, 5, 8 * TX_MIB);
    CU(cuMemGetInfo, &before, &total);
    in_child("uses CUDA after the parent did", child_too_late);
    in_child("does not use it", child_does_nothing);
    CU(cuMemGetInfo, &after, &total);
    tx_say("the parent's memory is where it was, free: %s, wrong bytes: %ld", tx_yes(before == after),
           tx_wrong_bytes(p, 5, 8 * TX_MIB));
    CU(cuMemFree, p);
    tx_say("a started program that uses CUDA, exit %d",
           tx_run_self((const char *[]){"--section=limits", NULL}));
    CU(cuMemGetInfo, &after, &total);
    tx_say("and the free is counted: %s", tx_yes(after == before + 8 * TX_MIB));
}

static void bare_thread(void *arg)
{
    CUdeviceptr given = *(CUdeviceptr *)arg, p = 0, va = 0, base = 0;
    CUcontext ctx = (CUcontext)1;
    size_t free_bytes = 0, total = 0;
    unsigned type = 9;
    CU(cuCtxGetCurrent, &ctx);
    tx_say("a new thread has no context: %s", tx_yes(!ctx));
    CU(cuMemAlloc, &p, 4096);
    CU(cuMemGetInfo, &free_bytes, &total);
    CU(cuCtxSynchronize);
    CU(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, given);
    CU(cuMemGetAddressRange, &base, &total, given);
    CU(cuMemsetD8, given, 6, 4096);
    CU(cuMemAddressReserve, &va, 2 * TX_MIB, 0, 0, 0);
    CU(cuMemAddressFree, va, 2 * TX_MIB);
    CU(cuMemFree, given);
    CU(cuMemFree, given);
    CU(cuDevicePrimaryCtxRetain, &ctx, 0);
    CU(cuCtxSetCurrent, ctx);
    CU(cuMemAlloc, &p, 4096);
    CU(cuMemFree, p);
    CU(cuDevicePrimaryCtxRelease, 0);
}

enum { WORKERS = 8, ROUNDS = 50 };

static void *worker(void *arg)
{
    long *failed = arg;
    CUcontext ctx = NULL;
    *failed += drv.cuDevicePrimaryCtxRetain(&ctx, 0) != CUDA_SUCCESS;
    *failed += drv.cuCtxSetCurrent(ctx) != CUDA_SUCCESS;
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr p = 0, base = 0;
        size_t bytes = (size_t)(1 + i) * 1000, size = 0;
        *failed += drv.cuMemAlloc(&p, bytes) != CUDA_SUCCESS;
        *failed += drv.cuMemGetAddressRange(&base, &size, p) != CUDA_SUCCESS || base != p || size != bytes;
        *failed += drv.cuMemsetD8(p, (unsigned char)i, bytes) != CUDA_SUCCESS;
        *failed += tx_wrong_bytes(p, (uint8_t)i, bytes) != 0;
        *failed += drv.cuMemFree(p) != CUDA_SUCCESS;
    }
    drv.cuDevicePrimaryCtxRelease(0);
    return NULL;
}

void tx_run_threads(void)
{
    CUdeviceptr p = 0, q = 0;
    pthread_t thread[WORKERS];
    long failed[WORKERS] = {0}, sum = 0;
    tx_start();
    CU(cuMemAlloc, &p, 4096);
    tx_in_thread(bare_thread, &p);
    CU(cuMemAlloc, &q, 4096);
    for (int i = 0; i < WORKERS; i++)
        pthread_create(&thread[i], NULL, worker, &failed[i]);
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(thread[i], NULL);
        sum += failed[i];
    }
    tx_say("%d threads, %d rounds each, failed steps: %ld", WORKERS, ROUNDS, sum);
    CU(cuMemFree, q);
}

static void count_devices(const char *visible)
{
    int n = -1;
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    CU(cuInit, 0);
    CU(cuDeviceGetCount, &n);
    tx_say("CUDA_VISIBLE_DEVICES=\"%s\": devices %d", visible, n);
}

static void child_sees_none(void)
{
    count_devices("");
}

static void child_sees_bad_number(void)
{
    count_devices("-1");
}

static void child_sees_first(void)
{
    CUdeviceptr p = 0;
    count_devices("0");
    tx_start();
    CU(cuMemAlloc, &p, 4096);
}

static void child_sees_text(void)
{
    count_devices("nonsense");
}

static void child_sees_up_to_bad(void)
{
    count_devices("0,77,0");
}

void tx_run_visible(void)
{
    in_child("sees nothing", child_sees_none);
    in_child("sees a bad number", child_sees_bad_number);
    in_child("sees the first card", child_sees_first);
    in_child("is given nonsense", child_sees_text);
    in_child("is given a bad number after a good one", child_sees_up_to_bad);
}

static void at_the_end(void)
{
    tx_say("exit handlers run");
}

/* The section ends by exit() with memory, streams and a running kernel left: the process must still end with
 * status 0. */
void tx_run_leave(void)
{
    struct tx_kernels k;
    CUdeviceptr p = 0;
    CUstream s = NULL;
    uint64_t ns = 20000000;
    atexit(at_the_end);
    tx_start();
    CU(cuMemAlloc, &p, 8 * TX_MIB);
    CU(cuMemAllocAsync, &p, 8 * TX_MIB, NULL);
    CU(cuStreamCreate, &s, 0);
    if (!tx_rc("kernels loaded", tx_load_kernels(&k)))
        CU(cuLaunchKernel, k.spin_ns, 1, 1, 1, 1, 1, 1, 0, s, (void *[]){&ns}, NULL);
}
