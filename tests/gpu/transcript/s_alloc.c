/* Sections alloc, getinfo, pitch and churn: plain device memory. */
#include "tx.h"

#include <stdlib.h>
#include <string.h>

static void exact_size(size_t bytes)
{
    CUdeviceptr p = 0, base = 0, start = 0;
    size_t size = 0, range = 0;
    CUresult rc = drv.cuMemAlloc(&p, bytes);
    tx_say("%zu bytes -> %s, aligned to 256: %s, to 512: %s", bytes, tx_code(rc), tx_yes(p && p % 256 == 0),
           tx_yes(p && p % 512 == 0));
    rc = drv.cuMemGetAddressRange(&base, &size, p);
    tx_say("  address range -> %s, begins at the block: %s, size %zu", tx_code(rc), tx_yes(base == p), size);
    rc = drv.cuMemGetAddressRange(&base, &size, p + bytes - 1);
    tx_say("  of its last byte -> %s, begins at the block: %s, size %zu", tx_code(rc), tx_yes(base == p),
           size);
    rc = drv.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p);
    tx_say("  RANGE_START_ADDR -> %s, the block: %s", tx_code(rc), tx_yes(start == p));
    rc = drv.cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p);
    tx_say("  RANGE_SIZE -> %s, %zu", tx_code(rc), range);
    tx_say("  fresh memory, bytes not 0: %ld", tx_wrong_bytes(p, 0, bytes));
    rc = drv.cuMemsetD8(p, 0xa5, bytes);
    tx_say("  filled -> %s, wrong bytes: %ld", tx_code(rc), tx_wrong_bytes(p, 0xa5, bytes));
    tx_say("  freed -> %s", tx_code(drv.cuMemFree(p)));
    tx_say("  freed again -> %s", tx_code(drv.cuMemFree(p)));
}

static void refused(void)
{
    CUdeviceptr p = TX_UNTOUCHED, base = 0;
    size_t size = 0;
    int on_the_stack = 0;
    void *on_the_heap = malloc(4096);
    CU(cuMemAlloc, &p, 0);
    CU(cuMemAlloc, NULL, 4096);
    CU(cuMemAlloc, NULL, 0);
    tx_say("a call with a bad size left the pointer alone: %s", tx_yes(p == TX_UNTOUCHED));
    CU(cuMemAlloc, &p, (size_t)1 << 50);
    tx_say("a failed call left the pointer alone: %s", tx_yes(p == TX_UNTOUCHED));
    CU(cuMemAlloc, &p, SIZE_MAX);
    CU(cuMemAlloc, &p, SIZE_MAX - 4096);
    CU(cuMemFree, 0);
    CU(cuMemFree, (CUdeviceptr)(uintptr_t)&on_the_stack);
    CU(cuMemFree, (CUdeviceptr)(uintptr_t)on_the_heap);
    CU(cuMemFree, 0x1000);
    CU(cuMemFree, ~(CUdeviceptr)0);
    CU(cuMemGetAddressRange, &base, &size, (CUdeviceptr)(uintptr_t)&on_the_stack);
    CU(cuMemGetAddressRange, &base, &size, 0);
    CU(cuMemAlloc, &p, 4096);
    CU(cuMemFree, p);
    free(on_the_heap);
}

static void inside(void)
{
    CUdeviceptr p = 0, base = 0;
    size_t size = 0;
    CU(cuMemAlloc, &p, 5000000);
    CU(cuMemFree, p + 1);
    CU(cuMemFree, p + 512);
    CU(cuMemFree, p + 2 * TX_MIB);
    CU(cuMemGetAddressRange, NULL, NULL, p);
    CU(cuMemGetAddressRange, &base, NULL, p + 4096);
    tx_say("base alone: %s", tx_yes(base == p));
    CU(cuMemGetAddressRange, NULL, &size, p + 4096);
    tx_say("size alone: %zu", size);
    CU(cuMemsetD8, p, 3, 5000000);
    tx_say("after the refused frees, wrong bytes: %ld", tx_wrong_bytes(p, 3, 5000000));
    CU(cuMemFree, p);
    CU(cuMemGetAddressRange, &base, &size, p);
}

static void cleared(void)
{
    CUdeviceptr p = 0;
    CU(cuMemAlloc, &p, 8 * TX_MIB);
    CU(cuMemsetD8, p, 0xee, 8 * TX_MIB);
    CU(cuMemFree, p);
    CU(cuMemAlloc, &p, 8 * TX_MIB);
    tx_say("memory that was ours before, bytes not 0: %ld", tx_wrong_bytes(p, 0, 8 * TX_MIB));
    CU(cuMemFree, p);
}

void tx_run_alloc(void)
{
    static const size_t sizes[] = {1,
                                   255,
                                   256,
                                   257,
                                   512,
                                   513,
                                   4096,
                                   65536,
                                   1u << 20,
                                   2 * (1u << 20),
                                   2097153,
                                   5000000,
                                   33u * (1u << 20)};
    tx_start();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        exact_size(sizes[i]);
    refused();
    inside();
    cleared();
}

void tx_run_getinfo(void)
{
    size_t total = 0, again = 0, before = 0, during = 0, after = 0;
    CUdeviceptr p = 0, small = 0;
    tx_start();
    CU(cuMemGetInfo, NULL, NULL);
    CU(cuMemGetInfo, &before, NULL);
    CU(cuMemGetInfo, NULL, &total);
    CU(cuMemGetInfo, &before, &again);
    tx_say("free is not more than total: %s", tx_yes(before <= again));
    tx_say("something is free: %s", tx_yes(before > 0));
    tx_say("the context takes its share: %s", tx_yes(before < again));
    CU(cuMemAlloc, &p, 64 * TX_MIB);
    CU(cuMemGetInfo, &during, &total);
    tx_say("total does not change: %s", tx_yes(total == again));
    tx_say("free fell by 64 MiB: %s", tx_yes(before - during == 64 * TX_MIB));
    CU(cuMemAlloc, &small, 1);
    CU(cuMemGetInfo, &after, &total);
    tx_say("one byte takes at most 2 MiB: %s", tx_yes(after <= during && during - after <= 2 * TX_MIB));
    CU(cuMemFree, small);
    CU(cuMemFree, p);
    CU(cuMemGetInfo, &after, &total);
    tx_say("free is back: %s", tx_yes(after == before));
    CU(cuMemAlloc, &p, total);
    CU(cuMemAlloc, &p, total + 1);
    CU(cuMemGetInfo, &after, &total);
    tx_say("a refused call took nothing: %s", tx_yes(after == before));
}

static void pitched(size_t width, size_t height, unsigned element)
{
    CUdeviceptr p = 0, base = 0;
    size_t pitch = 0, size = 0;
    CUresult rc = drv.cuMemAllocPitch(&p, &pitch, width, height, element);
    tx_say("%zu x %zu of %u -> %s, pitch %zu", width, height, element, tx_code(rc), pitch);
    if (rc != CUDA_SUCCESS)
        return;
    rc = drv.cuMemGetAddressRange(&base, &size, p);
    tx_say("  address range -> %s, begins at the block: %s, size %zu", tx_code(rc), tx_yes(base == p), size);
    rc = drv.cuMemsetD2D8(p, pitch, 0x5a, width, height);
    long wrong = 0;
    for (size_t y = 0; y < height; y++)
        wrong += tx_wrong_bytes(p + y * pitch, 0x5a, width);
    tx_say("  filled by rows -> %s, wrong bytes: %ld", tx_code(rc), wrong);
    tx_say("  freed -> %s", tx_code(drv.cuMemFree(p)));
}

void tx_run_pitch(void)
{
    CUdeviceptr p = 0;
    size_t pitch = 0;
    tx_start();
    pitched(100, 10, 4);
    pitched(1, 1, 4);
    pitched(512, 3, 8);
    pitched(513, 3, 16);
    pitched(1000, 7, 4);
    pitched(100, 10, 3);
    pitched(100, 10, 0);
    pitched(0, 10, 4);
    pitched(100, 0, 4);
    CU(cuMemAllocPitch, NULL, &pitch, 100, 10, 4);
    CU(cuMemAllocPitch, &p, NULL, 100, 10, 4);
    p = pitch = TX_UNTOUCHED;
    CU(cuMemAllocPitch, &p, &pitch, (size_t)1 << 20, (size_t)1 << 25, 4);
    tx_say("too much: pointer left alone: %s, pitch left alone: %s", tx_yes(p == TX_UNTOUCHED),
           tx_yes(pitch == TX_UNTOUCHED));
    CU(cuMemAllocPitch, &p, &pitch, (size_t)1 << 40, (size_t)1 << 10, 4);
}

/* The same sequence everywhere: a small generator of our own, not rand(). */
static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

void tx_run_churn(void)
{
    enum { SLOTS = 64, STEPS = 600 };
    struct {
        CUdeviceptr p;
        uint32_t mark;
        size_t words;
    } slot[SLOTS];
    struct tx_kernels k;
    uint32_t seed = 1;
    long failed = 0, wrong = 0, overlaps = 0;
    memset(slot, 0, sizeof(slot));
    tx_start();
    if (tx_rc("kernels loaded", tx_load_kernels(&k)))
        return;
    for (uint32_t step = 1; step <= STEPS; step++) {
        size_t i = next_random(&seed) % SLOTS;
        if (slot[i].p) {
            long bad = tx_check(&k, slot[i].p, slot[i].mark, slot[i].words);
            wrong += bad ? 1 : 0;
            failed += drv.cuMemFree(slot[i].p) != CUDA_SUCCESS;
        }
        size_t range = (size_t)1 << (next_random(&seed) % 21);
        slot[i].words = 1 + next_random(&seed) % range;
        slot[i].mark = step * 2654435761u;
        failed += drv.cuMemAlloc(&slot[i].p, slot[i].words * 4) != CUDA_SUCCESS;
        for (size_t j = 0; j < SLOTS; j++) {
            overlaps += j != i && slot[j].p && slot[j].p < slot[i].p + slot[i].words * 4 &&
                        slot[i].p < slot[j].p + slot[j].words * 4;
        }
        failed += tx_fill(&k, slot[i].p, slot[i].mark, slot[i].words, NULL) != CUDA_SUCCESS;
    }
    for (size_t i = 0; i < SLOTS; i++) {
        if (slot[i].p) {
            wrong += tx_check(&k, slot[i].p, slot[i].mark, slot[i].words) ? 1 : 0;
            failed += drv.cuMemFree(slot[i].p) != CUDA_SUCCESS;
        }
    }
    tx_say("%d steps: failed calls %ld, wrong blocks %ld, overlaps %ld", STEPS, failed, wrong, overlaps);
}
