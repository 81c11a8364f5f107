/* tx: codes, starting, kernels, data checks and gates for the sections of a transcript. See tx.h.
 *
 * Never prints what differs between machines. The flag of a gate is the only thing that two threads
 * share.
 */
#include "tx.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The text of kernels.ptx, ended by a zero byte. */
__asm__(".section .rodata\n.global tx_ptx\ntx_ptx:\n.incbin \"" TX_PTX_PATH "\"\n.byte 0\n.previous\n");

const char *tx_code(CUresult rc)
{
    static const struct {
        int code;
        const char *name;
    } names[] = {{0, "SUCCESS"},
                 {1, "INVALID_VALUE"},
                 {2, "OUT_OF_MEMORY"},
                 {3, "NOT_INITIALIZED"},
                 {4, "DEINITIALIZED"},
                 {100, "NO_DEVICE"},
                 {101, "INVALID_DEVICE"},
                 {201, "INVALID_CONTEXT"},
                 {215, "UNSUPPORTED_LIMIT"},
                 {218, "INVALID_PTX"},
                 {400, "INVALID_HANDLE"},
                 {401, "ILLEGAL_STATE"},
                 {500, "NOT_FOUND"},
                 {600, "NOT_READY"},
                 {709, "CONTEXT_IS_DESTROYED"},
                 {712, "HOST_MEMORY_ALREADY_REGISTERED"},
                 {713, "HOST_MEMORY_NOT_REGISTERED"},
                 {801, "NOT_SUPPORTED"},
                 {900, "STREAM_CAPTURE_UNSUPPORTED"},
                 {901, "STREAM_CAPTURE_INVALIDATED"},
                 {906, "STREAM_CAPTURE_IMPLICIT"},
                 {DRIVER_ABSENT, "(the driver has no such function)"}};
    static _Thread_local char texts[4][64];
    static _Thread_local unsigned turn;
    char *text = texts[turn++ % 4];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].code == (int)rc) {
            snprintf(text, sizeof(texts[0]), "%d %s", (int)rc, names[i].name);
            return text;
        }
    }
    snprintf(text, sizeof(texts[0]), "%d", (int)rc);
    return text;
}

CUresult tx_rc(const char *what, CUresult rc)
{
    tx_say("%s -> %s", what, tx_code(rc));
    return rc;
}

CUdevice tx_start(void)
{
    CUdevice device = 0;
    CUcontext ctx = NULL;
    CUresult rc = drv.cuInit(0);
    if (rc == CUDA_SUCCESS)
        rc = drv.cuDeviceGet(&device, 0);
    if (rc == CUDA_SUCCESS)
        rc = drv.cuDevicePrimaryCtxRetain(&ctx, device);
    if (rc == CUDA_SUCCESS)
        rc = drv.cuCtxSetCurrent(ctx);
    if (rc != CUDA_SUCCESS) {
        tx_say("cannot start: %s", tx_code(rc));
        exit(1);
    }
    return device;
}

static CUresult launch(CUfunction f, void **args, unsigned blocks, unsigned threads, CUstream s)
{
    return drv.cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, s, args, NULL);
}

CUresult tx_fill(const struct tx_kernels *k, CUdeviceptr p, uint32_t value, size_t words, CUstream s)
{
    uint64_t count = words;
    return launch(k->fill_u32, (void *[]){&p, &value, &count}, 8, 128, s);
}

CUresult tx_copy(const struct tx_kernels *k, CUdeviceptr dst, CUdeviceptr src, size_t words, CUstream s)
{
    uint64_t count = words;
    return launch(k->copy_u32, (void *[]){&dst, &src, &count}, 8, 128, s);
}

/* The counter is host memory, so that a check takes nothing from the device. */
long tx_check(const struct tx_kernels *k, CUdeviceptr p, uint32_t expected, size_t words)
{
    uint64_t count = words;
    uint64_t *wrong = NULL;
    long result = -1;
    if (drv.cuMemHostAlloc((void **)&wrong, sizeof(*wrong),
                           CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP))
        return -1;
    *wrong = 0;
    if (!launch(k->check_u32, (void *[]){&p, &expected, &count, &wrong}, 8, 128, NULL) &&
        !drv.cuCtxSynchronize())
        result = (long)*wrong;
    drv.cuMemFreeHost(wrong);
    return result;
}

CUresult tx_load_kernels(struct tx_kernels *k)
{
    const struct {
        CUfunction *function;
        const char *name;
    } wanted[] = {{&k->spin_ns, "spin_ns"},
                  {&k->spin_flag, "spin_flag"},
                  {&k->fill_u32, "fill_u32"},
                  {&k->copy_u32, "copy_u32"},
                  {&k->check_u32, "check_u32"}};
    uint32_t *word = NULL;
    uint64_t none = 0;
    CUresult rc = drv.cuModuleLoadData(&k->module, tx_ptx);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]) && !rc; i++)
        rc = drv.cuModuleGetFunction(wanted[i].function, k->module, wanted[i].name);
    if (!rc)
        rc = drv.cuMemHostAlloc((void **)&word, 4 * sizeof(*word), CU_MEMHOSTALLOC_DEVICEMAP);
    if (rc)
        return rc;
    word[0] = 1;
    launch(k->spin_ns, (void *[]){&none}, 1, 1, NULL);
    launch(k->spin_flag, (void *[]){&word}, 1, 1, NULL);
    tx_fill(k, (CUdeviceptr)word, 1, 1, NULL);
    tx_copy(k, (CUdeviceptr)word, (CUdeviceptr)word, 1, NULL);
    tx_check(k, (CUdeviceptr)word, 1, 1);
    rc = drv.cuCtxSynchronize();
    drv.cuMemFreeHost(word);
    return rc;
}

long tx_wrong_bytes(CUdeviceptr p, uint8_t expected, size_t bytes)
{
    long wrong = -1;
    uint8_t *copy = malloc(bytes ? bytes : 1);
    if (copy && drv.cuMemcpyDtoH(copy, p, bytes) == CUDA_SUCCESS) {
        wrong = 0;
        for (size_t i = 0; i < bytes; i++)
            wrong += copy[i] != expected;
    }
    free(copy);
    return wrong;
}

bool tx_gate_new(struct tx_gate *g)
{
    *g = (struct tx_gate){0};
    return drv.cuMemHostAlloc((void **)&g->flag, 64, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) ==
           CUDA_SUCCESS;
}

CUresult tx_gate_close(struct tx_gate *g, const struct tx_kernels *k, CUstream s)
{
    __atomic_store_n(g->flag, 0, __ATOMIC_SEQ_CST);
    return launch(k->spin_flag, (void *[]){&g->flag}, 1, 1, s);
}

void tx_gate_open(struct tx_gate *g)
{
    __atomic_store_n(g->flag, 1, __ATOMIC_SEQ_CST);
}

bool tx_gate_is_open(const struct tx_gate *g)
{
    return __atomic_load_n(g->flag, __ATOMIC_SEQ_CST) != 0;
}

static void *open_after(void *arg)
{
    const double slice_s = 0.01;
    struct tx_gate *g = arg;
    for (double waited = 0; waited < g->open_after_s && !tx_gate_is_open(g); waited += slice_s)
        nanosleep(&(struct timespec){.tv_nsec = (long)(slice_s * 1e9)}, NULL);
    tx_gate_open(g);
    return NULL;
}

void tx_gate_open_later(struct tx_gate *g, double seconds)
{
    g->open_after_s = seconds;
    g->thread = malloc(sizeof(pthread_t));
    if (!g->thread || pthread_create(g->thread, NULL, open_after, g))
        abort();
}

void tx_gate_join(struct tx_gate *g)
{
    pthread_join(*(pthread_t *)g->thread, NULL);
    free(g->thread);
    g->thread = NULL;
}
