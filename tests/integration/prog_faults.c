/* prog_faults: programs with faults that guard=on and fill=on reveal, and correct ones that they must not
 * affect. One scenario per run; see prog_check.h. Runs only under the library.
 *
 * simgpu refuses copies and fills of unmapped memory with CUDA_ERROR_INVALID_VALUE; a kernel of a real card
 * would get CUDA_ERROR_ILLEGAL_ADDRESS. Natively simgpu knows the exact ends of blocks, which a real card
 * does not. */
#include "prog_check.h"

#include <stdlib.h>
#include <string.h>

#include "interpose/gpucap.h"

#define PAGE  (2 * MIB)
#define FRESH 0xCB
#define FREED 0xDF

static const size_t sizes[] = {1, 1000, 100000, 5 * MIB + 1, 16 * MIB};
enum { SIZES = sizeof(sizes) / sizeof(*sizes) };

static struct gpucap_stats stats(void)
{
    struct gpucap_stats s;

    MUST(0, gpucap_stats(0, &s, sizeof(s)));
    return s;
}

static size_t rounded(size_t bytes)
{
    return (bytes + 511) / 512 * 512;
}

/* ---- guard=on: overruns ---- */

static CUresult write_at(CUdeviceptr to, size_t bytes)
{
    return cuMemsetD8(to, 1, bytes);
}

static CUresult read_at(CUdeviceptr from)
{
    char byte;

    return cuMemcpyDtoH(&byte, from, 1);
}

static void overruns_fail(void)
{
    CUdeviceptr block;

    prog_context(0);
    for (int i = 0; i < SIZES; i++) {
        const size_t bytes = rounded(sizes[i]);

        MUST(0, cuMemAlloc(&block, sizes[i]));
        MUST(0, write_at(block, bytes));
        MUST(CUDA_ERROR_INVALID_VALUE, write_at(block, bytes + 1));
        MUST(CUDA_ERROR_INVALID_VALUE, read_at(block + bytes));
        MUST(CUDA_ERROR_INVALID_VALUE, read_at(block + bytes + PAGE - 1));
        MUST(CUDA_ERROR_INVALID_VALUE, read_at(block / PAGE * PAGE - 1));
    }
}

/* The same without guard: the fault goes unnoticed. */
static void overruns_pass(void)
{
    CUdeviceptr block;

    prog_context(0);
    for (int i = 0; i < SIZES - 1; i++) { /* the last one ends with its pages */
        MUST(0, cuMemAlloc(&block, sizes[i]));
        MUST(0, write_at(block, rounded(sizes[i]) + 1));
    }
}

/* ---- guard=on: uses after free ---- */

static void late_uses_fail(void)
{
    CUdeviceptr blocks[SIZES];

    prog_context(0);
    for (int i = 0; i < SIZES; i++)
        MUST(0, cuMemAlloc(&blocks[i], sizes[i]));
    for (int i = 0; i < SIZES; i++) {
        MUST(0, write_at(blocks[i], sizes[i]));
        MUST(0, cuCtxSynchronize());
        MUST(0, cuMemFree(blocks[i]));
        MUST(CUDA_ERROR_INVALID_VALUE, write_at(blocks[i], 1));
        MUST(CUDA_ERROR_INVALID_VALUE, read_at(blocks[i] + sizes[i] - 1));
        MUST(CUDA_ERROR_INVALID_VALUE, cuMemFree(blocks[i]));
    }
}

static void late_uses_pass(void)
{
    CUdeviceptr block;

    prog_context(0);
    for (int i = 0; i < SIZES; i++) {
        MUST(0, cuMemAlloc(&block, sizes[i]));
        MUST(0, cuMemFree(block));
        MUST(0, write_at(block, 1));
    }
}

/* ---- guard=on: what stays right ---- */

static void expect_block(CUdeviceptr block, size_t bytes)
{
    CUdeviceptr base;
    size_t size;

    MUST(0, block % 512);
    MUST(0, cuMemGetAddressRange(&base, &size, block + bytes / 2));
    MUST(block, base);
    MUST(bytes, size);
}

/* Blocks of many sizes come and go in any order within the cap; in the end everything is given back. */
static void within_the_cap(void)
{
    enum { SLOTS = 64 };
    CUdeviceptr blocks[SLOTS] = {0};
    size_t bytes[SLOTS], refused = 0;

    srand(7);
    prog_context(0);
    MUST(0, cuMemAlloc(&blocks[0], 1));
    MUST(0, cuMemFree(blocks[0]));
    blocks[0] = 0;
    const uint64_t before = stats().used;
    for (int i = 0; i < 700; i++) {
        const int slot = rand() % SLOTS;

        if (blocks[slot]) {
            expect_block(blocks[slot], bytes[slot]);
            MUST(0, prog_wrong(blocks[slot] + bytes[slot] - 1, (unsigned char)slot, 1));
            MUST(0, cuMemFree(blocks[slot]));
            blocks[slot] = 0;
            continue;
        }
        bytes[slot] = 1 + (size_t)rand() % ((size_t)1 << (4 + rand() % 22));
        const CUresult result = cuMemAlloc(&blocks[slot], bytes[slot]);
        MUST(true, result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
        MUST(true, stats().used <= stats().limit);
        refused += result != CUDA_SUCCESS;
        if (result == CUDA_SUCCESS)
            MUST(0, cuMemsetD8(blocks[slot], (unsigned char)slot, bytes[slot]));
        else
            blocks[slot] = 0;
    }
    MUST(true, refused > 0);
    for (int i = 0; i < SLOTS; i++) {
        if (blocks[i])
            MUST(0, cuMemFree(blocks[i]));
    }
    MUST(0, cuCtxSynchronize());
    MUST(0, stats().physical);
    MUST(before, stats().used);
}

/* All pages that are reported as free can be allocated, and again when they have been freed with work
 * pending. */
static void told_can_be_had(void)
{
    static CUdeviceptr blocks[512];
    size_t free_bytes, total, count;
    CUstream stream;

    prog_context(0);
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(0, cuMemAlloc(&blocks[0], 1)); /* the first one makes a stream, with fill=on */
    MUST(0, cuMemFree(blocks[0]));
    MUST(0, cuMemGetInfo(&free_bytes, &total));
    const size_t pages = free_bytes / PAGE;
    MUST(true, pages > 100 && pages < 512);
    for (int round = 0; round < 3; round++) {
        for (count = 0; count < pages; count++)
            MUST(0, cuMemAlloc(&blocks[count], 1 + count * 4096));
        MUST(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&blocks[count], 1));
        for (count = 0; count < pages; count++) {
            MUST(0, cuMemsetD8Async(blocks[count], 1, 1, stream));
            MUST(0, cuMemFree(blocks[count]));
        }
    }
}

/* ---- fill=on ---- */

static unsigned char fresh_byte = FRESH;

static void fresh_blocks(void)
{
    CUdeviceptr block;

    prog_context(0);
    for (int i = 0; i < 3 * SIZES; i++) { /* reused ones as well */
        const size_t bytes = sizes[i % SIZES];

        MUST(0, cuMemAlloc(&block, bytes));
        MUST(0, prog_wrong(block, fresh_byte, bytes));
        prog_fill(block, 7, bytes);
        MUST(0, cuMemFree(block));
    }
}

/* With zero=on too. */
static void fresh_blocks_cleared(void)
{
    fresh_byte = 0;
    fresh_blocks();
}

/* The pool keeps what is freed (decay=off), so that it can be looked at. */
static void freed_blocks(void)
{
    CUcontext context = prog_context(0);
    CUdeviceptr block;
    CUstream stream;

    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < SIZES; i++) {
        MUST(0, cuMemAlloc(&block, sizes[i]));
        MUST(0, cuMemsetD8Async(block, 7, sizes[i], stream)); /* the fill comes behind it */
        if (i % 2)
            MUST(0, cuCtxSetCurrent(NULL));
        MUST(0, cuMemFree(block));
        MUST(0, cuCtxSetCurrent(context));
        MUST(0, prog_wrong(block, FREED, sizes[i]));
    }
}

static void freed_in_stream_order(void)
{
    CUdeviceptr block;
    CUstream stream;

    prog_context(0);
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < SIZES; i++) {
        MUST(0, cuMemAlloc(&block, sizes[i]));
        MUST(0, cuMemsetD8Async(block, 7, sizes[i], stream));
        MUST(0, cuMemFreeAsync(block, stream));
        MUST(0, cuStreamSynchronize(stream));
        MUST(0, prog_wrong(block, FREED, sizes[i]));
    }
}

/* A block that another process may have open keeps its bytes. */
static void exported_blocks(void)
{
    CUipcMemHandle handle;
    CUdeviceptr block;

    prog_context(0);
    MUST(0, cuMemAlloc(&block, 4 * MIB));
    prog_fill(block, 7, 4 * MIB);
    MUST(0, cuIpcGetMemHandle(&handle, block));
    MUST(0, cuMemFree(block));
    MUST(0, prog_wrong(block, 7, 4 * MIB));
}

/* ---- beside captures ---- */

static void captures_live(void)
{
    CUdeviceptr block;
    CUstream stream;
    CUgraph graph;

    prog_context(0);
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < SIZES; i++) {
        MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        MUST(0, cuMemAlloc(&block, sizes[i]));
        MUST(0, cuMemsetD8Async(block, 1, sizes[i], stream));
        MUST(0, cuStreamEndCapture(stream, &graph));
        MUST(0, cuGraphDestroy(graph));
        MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        MUST(0, cuMemFree(block));
        MUST(0, cuStreamEndCapture(stream, &graph));
        MUST(0, cuGraphDestroy(graph));
    }
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"overruns_fail", overruns_fail},     {"overruns_pass", overruns_pass},
        {"late_uses_fail", late_uses_fail},   {"late_uses_pass", late_uses_pass},
        {"within_the_cap", within_the_cap},   {"told_can_be_had", told_can_be_had},
        {"fresh_blocks", fresh_blocks},       {"fresh_blocks_cleared", fresh_blocks_cleared},
        {"freed_blocks", freed_blocks},       {"freed_in_stream_order", freed_in_stream_order},
        {"exported_blocks", exported_blocks}, {"captures_live", captures_live},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
