/* Sections copies and kernels: data moved and made by every usual call. */
#include "tx.h"

#include <stdlib.h>
#include <string.h>

#define BYTES 100000u

static void patterns(uint8_t *out)
{
    for (size_t i = 0; i < BYTES; i++)
        out[i] = (uint8_t)(i * 7 + i / 251);
}

static void plain(CUdeviceptr a, CUdeviceptr b)
{
    static uint8_t in[BYTES], out[BYTES];
    patterns(in);
    CU(cuMemcpyHtoD, a, in, BYTES);
    CU(cuMemcpyDtoD, b, a, BYTES);
    CU(cuMemcpyDtoH, out, b, BYTES);
    tx_say("there, across and back unchanged: %s", tx_yes(!memcmp(in, out, BYTES)));
    memset(out, 0, BYTES);
    CU(cuMemcpy, (CUdeviceptr)(uintptr_t)out, a, BYTES);
    tx_say("by cuMemcpy too: %s", tx_yes(!memcmp(in, out, BYTES)));
    CU(cuMemcpyHtoD, a + 1, in, BYTES - 1);
    CU(cuMemcpyDtoH, out, a + 1, BYTES - 1);
    tx_say("odd addresses and sizes: %s", tx_yes(!memcmp(in, out, BYTES - 1)));
    CU(cuMemcpyHtoD, a, in, 0);
    CU(cuMemcpyDtoH, NULL, a, 0);
    CU(cuMemcpyHtoD, 0, in, 16);
    CU(cuMemcpyDtoH, out, 0, 16);
    CU(cuMemcpyDtoD, 0, a, 16);
}

static void asynchronous(CUdeviceptr a, CUdeviceptr b)
{
    uint8_t *in = NULL, *out = NULL;
    CUstream s = NULL;
    CUcontext ctx = NULL;
    CU(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    CU(cuMemHostAlloc, (void **)&in, BYTES, 0);
    CU(cuMemHostAlloc, (void **)&out, BYTES, 0);
    if (!in || !out)
        return;
    patterns(in);
    memset(out, 0, BYTES);
    CU(cuMemcpyHtoDAsync, a, in, BYTES, s);
    CU(cuMemcpyDtoDAsync, b, a, BYTES, s);
    CU(cuMemcpyDtoHAsync, out, b, BYTES, s);
    CU(cuStreamSynchronize, s);
    tx_say("the same on a stream: %s", tx_yes(!memcmp(in, out, BYTES)));
    CU(cuMemcpyAsync, b, (CUdeviceptr)(uintptr_t)in, 16, s);
    CU(cuStreamSynchronize, s);
    drv.cuCtxGetCurrent(&ctx);
    CU(cuMemcpyPeer, b, ctx, a, ctx, BYTES);
    CU(cuCtxSynchronize);
    CU(cuMemFreeHost, in);
    CU(cuMemFreeHost, out);
    CU(cuStreamDestroy, s);
}

static void fills(CUdeviceptr a)
{
    uint32_t word = 0;
    uint16_t half = 0;
    CU(cuMemsetD8, a, 0x9c, BYTES);
    tx_say("wrong bytes: %ld", tx_wrong_bytes(a, 0x9c, BYTES));
    CU(cuMemsetD16, a, 0xbeef, 1000);
    CU(cuMemcpyDtoH, &half, a + 1998, 2);
    tx_say("the last half word: %x", half);
    CU(cuMemsetD32, a, 0xdeadbeef, 1000);
    CU(cuMemcpyDtoH, &word, a + 3996, 4);
    tx_say("the last word: %x", word);
    CU(cuMemsetD16, a + 1, 0, 4);
    CU(cuMemsetD32, a + 2, 0, 4);
    CU(cuMemsetD8, a, 0, 0);
    CU(cuMemsetD8, 0, 0, 16);
    CU(cuMemsetD8, 0, 0, 0);
    CU(cuMemsetD2D8, a, 1000, 0x1f, 900, 10);
    tx_say("rows: wrong bytes %ld, between them untouched: %s", tx_wrong_bytes(a + 9000, 0x1f, 900),
           tx_yes(tx_wrong_bytes(a + 9900, 0x9c, 100) == 0));
    CU(cuMemsetD2D32, a, 1024, 0x2e2e2e2e, 100, 10);
    tx_say("rows of words: wrong bytes %ld", tx_wrong_bytes(a + 9216, 0x2e, 400));
    CU(cuMemsetD8Async, a, 0x0f, BYTES, NULL);
    CU(cuMemsetD32Async, a, 0x0e0e0e0e, 10, NULL);
    tx_say("in order: %ld and %ld wrong", tx_wrong_bytes(a, 0x0e, 40),
           tx_wrong_bytes(a + 40, 0x0f, BYTES - 40));
}

static void two_dimensional(CUdeviceptr a, CUdeviceptr b)
{
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = a,
                          .srcPitch = 1000,
                          .srcXInBytes = 10,
                          .srcY = 2,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = b,
                          .dstPitch = 512,
                          .WidthInBytes = 300,
                          .Height = 20};
    CU(cuMemsetD8, a, 0, BYTES);
    CU(cuMemsetD8, b, 0, BYTES);
    CU(cuMemsetD2D8, a + 2010, 1000, 0x71, 300, 20);
    CU(cuMemcpy2D, &copy);
    tx_say("first row %ld wrong, last row %ld wrong, beside it %ld wrong", tx_wrong_bytes(b, 0x71, 300),
           tx_wrong_bytes(b + (CUdeviceptr)19 * 512, 0x71, 300), tx_wrong_bytes(b + 300, 0, 212));
    copy.WidthInBytes = 600;
    CU(cuMemcpy2D, &copy);
    copy.WidthInBytes = 0;
    CU(cuMemcpy2D, &copy);
    CU(cuMemcpy2D, NULL);
}

void tx_run_copies(void)
{
    CUdeviceptr a = 0, b = 0;
    tx_start();
    if (CU(cuMemAlloc, &a, BYTES) || CU(cuMemAlloc, &b, BYTES))
        return;
    plain(a, b);
    asynchronous(a, b);
    fills(a);
    two_dimensional(a, b);
    CU(cuMemFree, a);
    CU(cuMemFree, b);
}

static void launches(struct tx_kernels *k)
{
    CUdeviceptr a = 0, b = 0;
    CUstream s = NULL;
    uint64_t none = 0;
    void *args[] = {&none};
    CU(cuMemAlloc, &a, 4 * BYTES);
    CU(cuMemAlloc, &b, 4 * BYTES);
    CU(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    tx_rc("fill", tx_fill(k, a, 0x12345678, BYTES, s));
    tx_rc("copy", tx_copy(k, b, a, BYTES, s));
    CU(cuStreamSynchronize, s);
    tx_say("wrong words: %ld", tx_check(k, b, 0x12345678, BYTES));
    tx_say("wrong words when all are: %ld", tx_check(k, b, 0x12345679, BYTES));
    CU(cuLaunchKernel, k->spin_ns, 0, 1, 1, 1, 1, 1, 0, s, args, NULL);
    CU(cuLaunchKernel, k->spin_ns, 1, 1, 1, 0, 1, 1, 0, s, args, NULL);
    CU(cuLaunchKernel, k->spin_ns, 1, 1, 1, 1025, 1, 1, 0, s, args, NULL);
    CU(cuLaunchKernel, NULL, 1, 1, 1, 1, 1, 1, 0, s, args, NULL);
    CU(cuLaunchKernel, k->spin_ns, 1, 1, 1, 1, 1, 1, 0, s, args, NULL);
    CU(cuCtxSynchronize);
    CU(cuStreamDestroy, s);
    CU(cuMemFree, a);
    CU(cuMemFree, b);
}

void tx_run_kernels(void)
{
    struct tx_kernels k;
    CUmodule module = NULL;
    CUfunction f = NULL;
    CUdeviceptr p = 0;
    size_t size = 0;
    int threads = 0;
    tx_start();
    CU(cuModuleLoadData, NULL, tx_ptx);
    CU(cuModuleLoadData, &module, NULL);
    CU(cuModuleLoadData, &module, "this is no PTX\n");
    if (tx_rc("kernels loaded", tx_load_kernels(&k)))
        return;
    CU(cuModuleGetFunction, &f, k.module, "no_such_kernel");
    CU(cuModuleGetFunction, &f, k.module, NULL);
    CU(cuModuleGetFunction, NULL, k.module, "fill_u32");
    CU(cuModuleGetGlobal, &p, &size, k.module, "no_such_variable");
    CU(cuFuncGetAttribute, &threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k.fill_u32);
    tx_say("up to %d threads", threads);
    launches(&k);
    CU(cuModuleUnload, k.module);
}
