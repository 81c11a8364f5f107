/* prog_pointers: attributes of blocks of cuMemAlloc, and operations on them. One scenario per run. */
#include "prog_check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ODD_BYTES 5000000u
#define CARD_PAGE (2 * MIB)

/* ---- blocks from many chunks ---- */

#define PIECES 96
#define PIECE  (2 * MIB)

/* Returns a block that a pool has to stitch: allocates many blocks, frees every other one, and asks for one
 * of all their bytes. */
static CUdeviceptr stitched(size_t *bytes)
{
    CUdeviceptr pieces[PIECES], block;

    for (int i = 0; i < PIECES; i++)
        MUST(0, cuMemAlloc(&pieces[i], PIECE));
    for (int i = 0; i < PIECES; i += 2)
        MUST(0, cuMemFree(pieces[i]));
    *bytes = PIECES / 2 * PIECE - 100;
    MUST(0, cuMemAlloc(&block, *bytes));
    for (int i = 1; i < PIECES; i += 2)
        MUST(0, cuMemFree(pieces[i]));
    return block;
}

/* ---- ranges ---- */

static void expect_range(CUdeviceptr at, CUdeviceptr start, size_t bytes)
{
    CUdeviceptr base = 0;
    size_t size = 0;

    MUST(0, cuMemGetAddressRange(&base, &size, at));
    MUST(start, base);
    MUST(bytes, size);
}

static void ranges(void)
{
    static const size_t sizes[] = {1, 255, 512, 513, 65536, MIB, 2 * MIB, 2 * MIB + 1, ODD_BYTES, 33 * MIB};
    CUdeviceptr block, base = 0;
    size_t bytes = 0;

    prog_context(0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        MUST(0, cuMemAlloc(&block, sizes[i]));
        expect_range(block, block, sizes[i]);
        expect_range(block + sizes[i] / 2, block, sizes[i]);
        expect_range(block + sizes[i] - 1, block, sizes[i]);
        MUST(0, cuMemGetAddressRange(&base, NULL, block + sizes[i] / 2));
        MUST(block, base);
        MUST(0, cuMemGetAddressRange(NULL, &bytes, block));
        MUST(sizes[i], bytes);
        MUST(0, cuMemFree(block));
        MUST(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &bytes, block));
    }
    block = stitched(&bytes);
    expect_range(block, block, bytes);
    expect_range(block + bytes - 1, block, bytes);
    MUST(0, cuMemFree(block));
}

/* The last bytes of a block and the first ones behind it may be in one unit of the allocator. */
static void ends(void)
{
    CUdeviceptr a, b, base;
    size_t bytes;

    prog_context(0);
    MUST(0, cuMemAlloc(&a, 100));
    MUST(0, cuMemAlloc(&b, 100));
    MUST(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &bytes, a + 100));
    MUST(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &bytes, b + 100));
    MUST(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, a + 100));
    MUST(CUDA_ERROR_INVALID_VALUE, cuMemFree(a + 1));
}

/* ---- attributes ---- */

static uint64_t attribute(CUpointer_attribute which, CUdeviceptr at)
{
    uint64_t word[2] = {0, 0};

    MUST(0, cuPointerGetAttribute(word, which, at));
    return word[0];
}

/* A mapping is whole pages of the card, which small blocks share. */
static void expect_mapping(CUdeviceptr block, size_t bytes, CUdeviceptr at)
{
    const CUdeviceptr base = block / CARD_PAGE * CARD_PAGE;

    MUST(base, attribute(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, at));
    MUST((block + bytes - base + CARD_PAGE - 1) / CARD_PAGE * CARD_PAGE,
         attribute(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, at));
}

static void expect_native_attributes(CUdeviceptr block, size_t bytes, CUcontext context, int card)
{
    for (size_t at = 0; at < bytes; at += bytes / 2 + 1) {
        void *host = &host;

        MUST((uintptr_t)context, attribute(CU_POINTER_ATTRIBUTE_CONTEXT, block + at));
        MUST(CU_MEMORYTYPE_DEVICE, attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block + at));
        MUST(block + at, attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, block + at));
        MUST(CUDA_ERROR_INVALID_VALUE,
             cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, block + at));
        MUST(0, (uintptr_t)host);
        MUST(0, attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block + at));
        MUST(0, attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, block + at));
        MUST(card, attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block + at));
        MUST(1, attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, block + at));
        MUST(block, attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, block + at));
        MUST(bytes, attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, block + at));
        MUST(1, attribute(CU_POINTER_ATTRIBUTE_MAPPED, block + at));
        MUST(0, attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, block + at));
        MUST(1, attribute(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, block + at));
        MUST(3, attribute(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, block + at));
        MUST(0, attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, block + at));
        MUST(1, attribute(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, block + at));
        expect_mapping(block, bytes, block + at);
        MUST(attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, block),
             attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, block + at));
        MUST(attribute(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, block),
             attribute(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, block + at));
    }
}

static void attributes(void)
{
    static const size_t sizes[] = {1000, 1000, 65536, MIB, ODD_BYTES, 64 * MIB + 1};
    CUcontext context = prog_context(0);
    CUdeviceptr block;
    size_t bytes;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        MUST(0, cuMemAlloc(&block, sizes[i]));
        expect_native_attributes(block, sizes[i], context, 0);
    }
    block = stitched(&bytes);
    expect_native_attributes(block, bytes, context, 0);
}

/* The library must write exactly as many bytes as the driver does for an attribute. */
static void widths(void)
{
    static const struct {
        CUpointer_attribute which;
        size_t bytes;
    } all[] = {{CU_POINTER_ATTRIBUTE_CONTEXT, 8},
               {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4},
               {CU_POINTER_ATTRIBUTE_P2P_TOKENS, 12},
               {CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 4},
               {CU_POINTER_ATTRIBUTE_BUFFER_ID, 8},
               {CU_POINTER_ATTRIBUTE_IS_MANAGED, 4},
               {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 4},
               {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 4},
               {CU_POINTER_ATTRIBUTE_RANGE_SIZE, 8},
               {CU_POINTER_ATTRIBUTE_MAPPED, 4},
               {CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 8},
               {CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, 4},
               {CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, 4},
               {CU_POINTER_ATTRIBUTE_MAPPING_SIZE, 8},
               {CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, 4}};
    CUdeviceptr block;

    prog_context(0);
    MUST(0, cuMemAlloc(&block, ODD_BYTES));
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        unsigned char room[2][16];
        size_t written = sizeof(*room);

        for (int turn = 0; turn < 2; turn++) {
            memset(room[turn], turn ? 0xa5 : 0x5a, sizeof(*room));
            MUST(0, cuPointerGetAttribute(room[turn], all[i].which, block));
        }
        while (written && room[0][written - 1] == 0x5a && room[1][written - 1] == 0xa5)
            written--;
        MUST(all[i].bytes, written);
    }
}

static void several_attributes(void)
{
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   (CUpointer_attribute)1000};
    CUcontext context, current = prog_context(0);
    void *host = &host, *into[] = {&context, &host, NULL, NULL, &host};
    int card = 7;
    CUdeviceptr block;
    size_t size = 99;

    into[2] = &size;
    into[3] = &card;
    MUST(0, cuMemAlloc(&block, ODD_BYTES));
    MUST(0, cuPointerGetAttributes(4, which, into, block + 5));
    MUST((uintptr_t)current, (uintptr_t)context);
    MUST(0, (uintptr_t)host); /* there is none, and that is no error here */
    MUST(ODD_BYTES, size);
    MUST(0, card);
    MUST(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(5, which, into, block));
    MUST(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(0, which, into, block));
    MUST(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(1, NULL, into, block));
    MUST(0, cuMemFree(block));
    size = 99;
    MUST(0, cuPointerGetAttributes(4, which, into, block)); /* a freed block is nothing, and no error */
    MUST(0, (uintptr_t)context);
    MUST(99, size);
    MUST(-2, card);
}

/* Each attribute is the same as when asked for alone; tokens can only be asked for alone. */
static void several_as_alone(void)
{
    CUpointer_attribute which[CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE];
    const unsigned count = sizeof(which) / sizeof(*which) - 1;
    uint64_t alone[sizeof(which) / sizeof(*which)][2], together[sizeof(which) / sizeof(*which)][2];
    void *into[sizeof(which) / sizeof(*which)];
    CUdeviceptr block;

    prog_context(0);
    MUST(0, cuMemAlloc(&block, ODD_BYTES));
    memset(alone, 0, sizeof(alone));
    memset(together, 0, sizeof(together));
    for (unsigned i = 0; i < count; i++) {
        which[i] = (CUpointer_attribute)(i + 1 + (i + 1 >= CU_POINTER_ATTRIBUTE_P2P_TOKENS));
        into[i] = together[i];
    }
    which[count] = CU_POINTER_ATTRIBUTE_P2P_TOKENS;
    into[count] = together[count];
    MUST(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(count + 1, which, into, block + 1000));
    MUST(0, cuPointerGetAttributes(count, which, into, block + 1000));
    MUST(0, attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    for (unsigned i = 0; i < count; i++) {
        cuPointerGetAttribute(alone[i], which[i], block + 1000);
        MUST(0, memcmp(alone[i], together[i], sizeof(*alone)));
    }
}

static void freed(void)
{
    CUdeviceptr blocks[8];
    uint64_t word;
    unsigned on = 1;

    prog_context(0);
    for (int i = 0; i < 8; i++)
        MUST(0, cuMemAlloc(&blocks[i], 3 * MIB));
    for (int i = 0; i < 8; i += 2)
        MUST(0, cuMemFree(blocks[i]));
    for (int i = 0; i < 8; i++) {
        const CUresult known = i % 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

        MUST(known, cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, blocks[i] + 4096));
        MUST(known, cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_CONTEXT, blocks[i]));
        MUST(known, cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MAPPED, blocks[i]));
        MUST(known, cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_BUFFER_ID, blocks[i]));
        MUST(known, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, blocks[i]));
    }
}

/* ---- identities ---- */

#define ID_BLOCKS 500

static uint64_t seen[4 * ID_BLOCKS];
static size_t seen_count;

static void expect_new_id(CUdeviceptr block)
{
    const uint64_t id = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, block);

    MUST(true, id != 0);
    for (size_t i = 0; i < seen_count; i++)
        MUST(true, seen[i] != id);
    seen[seen_count++] = id;
}

static void ids(void)
{
    CUdeviceptr block, managed;
    CUcontext context;

    prog_context(0);
    for (int i = 0; i < ID_BLOCKS; i++) {
        MUST(0, cuMemAlloc(&block, 1000));
        expect_new_id(block);
        MUST(0, cuMemFree(block));
        MUST(0, cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL));
        expect_new_id(managed);
        MUST(0, cuMemFree(managed));
    }
    for (int i = 0; i < 4; i++) { /* contexts come and go, and so do their pools */
        MUST(0, cuCtxCreate(&context, NULL, 0, 0));
        MUST(0, cuMemAlloc(&block, 1000));
        expect_new_id(block);
        MUST(0, cuCtxDestroy(context));
    }
}

/* ---- synchronous operations ---- */

static atomic_bool late;

static void be_late(void *unused)
{
    (void)unused;
    usleep(50000);
    atomic_store(&late, true);
}

/* The attribute is on for one block and off for the other: operations on the one return when they are done.
 */
static void expect_synchronous(CUdeviceptr a, CUdeviceptr b)
{
    MUST(1, attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    MUST(0, attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, b));
    for (int i = 0; i < 2; i++) {
        atomic_store(&late, false);
        MUST(0, cuLaunchHostFunc(NULL, be_late, NULL));
        if (i)
            MUST(0, cuMemsetD8(a, 1, MIB));
        else
            MUST(0, cuMemcpyDtoD(a, b, MIB));
        MUST(true, atomic_load(&late)); /* it did not return before the work in front of it was done */
    }
}

/* In a capture an operation is recorded, and there is nothing to wait for. */
static void sync_memops_in_a_capture(void)
{
    CUresult (*set)(CUdeviceptr, unsigned char, size_t) = NULL;
    const unsigned int on = 1;
    CUdeviceptr block;
    CUgraph graph;

    prog_context(0);
    *(void **)&set = dlsym(RTLD_DEFAULT, "cuMemsetD8_v2_ptds");
    MUST(0, cuMemAlloc(&block, MIB));
    MUST(0, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
    MUST(0, cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(0, set(block, 1, MIB));
    MUST(0, cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
}

/* Asking for tokens sets SYNC_MEMOPS: the program is about to let another device access the block. */
static void sync_memops_by_tokens(void)
{
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
    CUdeviceptr a, b;

    prog_context(0);
    MUST(0, cuMemAlloc(&a, MIB));
    MUST(0, cuMemAlloc(&b, MIB));
    MUST(0, attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    MUST(0, cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, a + 10));
    expect_synchronous(a, b);
}

static void sync_memops(void)
{
    CUdeviceptr a, b;
    unsigned on = 1, off = 0;

    prog_context(0);
    MUST(0, cuMemAlloc(&a, MIB));
    MUST(0, cuMemAlloc(&b, MIB));
    MUST(0, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a + 10));
    expect_synchronous(a, b);
    MUST(0, cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    MUST(0, attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    MUST(0, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    MUST(0, cuMemFree(a));
    for (int i = 0; i < 4; i++) { /* the next block there, and any other, begins without it */
        MUST(0, cuMemAlloc(&a, MIB));
        MUST(0, attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    }
    MUST(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a));
    MUST(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
}

/* SYNC_MEMOPS is for devices that do not know streams: when it is set, earlier work on the block has ended.
 */
static void sync_memops_at_rest(void)
{
    CUstream streams[2];
    CUdeviceptr block;
    unsigned on = 1;

    prog_context(0);
    for (int i = 0; i < 2; i++)
        MUST(0, cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) {
        MUST(0, cuMemAlloc(&block, 96 * MIB));
        MUST(0, cuMemsetD8Async(block, 0, MIB, streams[i]));
        MUST(0, cuCtxSynchronize());
        atomic_store(&late, false);
        MUST(0, cuLaunchHostFunc(streams[0], be_late, NULL));
        MUST(0, cuMemsetD8Async(block, 1, MIB, streams[0]));
        MUST(0, cuMemFree(block));
        MUST(0, cuMemAlloc(&block, 96 * MIB));
        MUST(0, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
        MUST(true, atomic_load(&late));
        MUST(0, cuMemFree(block));
    }
}

/* ---- what is behind a block ---- */

static void backing(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block;

    prog_context(0);
    MUST(0, cuMemAlloc(&block, 4 * MIB));
    MUST(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&handle, (void *)block));
    MUST(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(NULL, (void *)block));
}

static CUresult dma_buf(CUdeviceptr at, size_t bytes)
{
    int fd = -1;
    CUresult result = cuMemGetHandleForAddressRange(&fd, at, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

    MUST(result == CUDA_SUCCESS, fd >= 0 && close(fd) == 0);
    return result;
}

/* Of a block, rounded out to pages, as programs for networks ask for it. */
static CUresult dma_buf_around(CUdeviceptr block, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const CUdeviceptr first = block / page * page;

    return dma_buf(first, (block + bytes - first + page - 1) / page * page);
}

/* A handle for other devices is of whole pages of the host. */
static void dma_bufs(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    CUdeviceptr block, neighbour;

    prog_context(0);
    MUST(0, cuMemAlloc(&block, 4 * MIB));
    MUST(0, cuMemAlloc(&neighbour, 4 * MIB));
    MUST(0, dma_buf_around(block, 4 * MIB));
    MUST(0, dma_buf_around(neighbour, 4 * MIB));
    const CUdeviceptr first = (block + page - 1) / page * page, end = (block + 4 * MIB) / page * page;
    MUST(0, dma_buf(first, page));
    MUST(0, dma_buf(first, end - first));
    MUST(0, dma_buf(first + page, 16 * page));
    MUST(CUDA_ERROR_INVALID_VALUE, dma_buf(first + 100, 16 * page));
    MUST(CUDA_ERROR_INVALID_VALUE, dma_buf(first, page + 100));
    MUST(0, cuMemFree(block));
    MUST(CUDA_ERROR_INVALID_VALUE, dma_buf(first, page));
    /* A refused handle holds nothing back. */
    for (int i = 0; i < 200; i++) {
        MUST(0, cuMemAlloc(&block, 64 * MIB));
        MUST(CUDA_ERROR_INVALID_VALUE, dma_buf(block + 100, page));
        MUST(0, cuMemFree(block));
    }
}

/* A copy, a fill and a picture over a whole block, whatever it is made of. */
static void whole_copies(void)
{
    size_t bytes;
    prog_context(0);
    CUdeviceptr from = stitched(&bytes), to = stitched(&bytes);
    const CUDA_MEMCPY2D picture = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                   .srcDevice = from,
                                   .srcPitch = 4096,
                                   .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                   .dstDevice = to,
                                   .dstPitch = 4096,
                                   .WidthInBytes = 4000,
                                   .Height = bytes / 4096};

    prog_fill(from, 0x11, bytes);
    prog_fill(to, 0x22, bytes);
    MUST(0, cuMemcpyDtoD(to, from, bytes));
    MUST(0, prog_wrong(to, 0x11, bytes));
    prog_fill(from, 0x33, bytes);
    MUST(0, cuMemcpy2D(&picture));
    MUST(0, prog_wrong(to + (picture.Height - 1) * 4096, 0x33, 4000));
    MUST(0, prog_wrong(to + 4000, 0x11, 96));
    MUST(0, cuMemcpyPeer(from, prog_context(0), to, prog_context(0), 1000));
}

/* ---- several cards ---- */

static uint64_t access_of(CUdeviceptr block, int card)
{
    const CUmemLocation where = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = card};
    unsigned long long flags = 99;

    MUST(0, cuMemGetAccess(&flags, &where, block));
    return flags;
}

/* Natively these codes, whatever is pooled. */
static void peers(void)
{
    CUcontext first = prog_context(0), second = prog_context(1);
    CUdeviceptr block;
    char bytes[16] = "from the other!";

    MUST(0, cuMemAlloc(&block, 10 * MIB)); /* on the second card */
    MUST(0, cuCtxSetCurrent(first));
    MUST(0, cuCtxEnablePeerAccess(second, 0));
    MUST(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(second, 0));
    MUST(CUDA_ERROR_INVALID_DEVICE, cuCtxEnablePeerAccess(first, 0));
    MUST(0, cuMemcpyHtoD(block + 9 * MIB, bytes, sizeof(bytes)));
    memset(bytes, 0, sizeof(bytes));
    MUST(0, cuMemcpyDtoH(bytes, block + 9 * MIB, sizeof(bytes)));
    MUST(0, strcmp(bytes, "from the other!"));
    MUST((uintptr_t)second, attribute(CU_POINTER_ATTRIBUTE_CONTEXT, block));
    MUST(1, attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block));
    MUST(0, cuCtxDisablePeerAccess(second));
    MUST(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(second));
}

/* Of pooled memory only: the mappings follow. */
static void peers_pooled(void)
{
    CUcontext first = prog_context(0), second = prog_context(1), again;
    CUdeviceptr before, after;

    MUST(0, cuMemAlloc(&before, 10 * MIB));
    MUST(0, access_of(before, 0));
    MUST(3, access_of(before, 1));
    MUST(0, cuCtxSetCurrent(first));
    MUST(0, cuCtxEnablePeerAccess(second, 0));
    MUST(3, access_of(before, 0));
    MUST(3, access_of(before + 9 * MIB, 0));
    MUST(0, cuCtxSetCurrent(second));
    MUST(0, cuMemAlloc(&after, 40 * MIB));
    MUST(3, access_of(after + 39 * MIB, 0));
    MUST(0, cuCtxCreate(&again, NULL, 0, 0)); /* a second context of the first card */
    MUST(0, cuCtxEnablePeerAccess(second, 0));
    MUST(0, cuCtxSetCurrent(first));
    MUST(0, cuCtxDisablePeerAccess(second));
    MUST(3, access_of(before, 0)); /* the other one still has it */
    MUST(0, cuCtxSetCurrent(again));
    MUST(0, cuCtxDisablePeerAccess(second));
    MUST(0, access_of(before, 0));
    MUST(0, access_of(after, 0));
    MUST(3, access_of(after, 1));
    MUST(0, cuCtxSetCurrent(second));
    MUST(0, cuMemAlloc(&after, 100 * MIB));
    MUST(0, access_of(after + 99 * MIB, 0));
}

/* Enabled before the other context has any memory. */
static void peers_early(void)
{
    CUcontext first = prog_context(0), second = prog_context(1);
    CUdeviceptr block;

    MUST(0, cuCtxSetCurrent(first));
    MUST(0, cuCtxEnablePeerAccess(second, 0));
    MUST(0, cuCtxSetCurrent(second));
    MUST(0, cuMemAlloc(&block, 10 * MIB));
    MUST(3, access_of(block, 0));
    MUST(3, access_of(block, 1));
}

/* ---- threads ---- */

static void *come_and_go(void *context)
{
    CUdeviceptr block;
    size_t bytes;

    MUST(0, cuCtxSetCurrent(context));
    for (unsigned i = 0; i < 300; i++) {
        const size_t asked = 1 + (i * 7919u) % (3 * MIB);

        MUST(0, cuMemAlloc(&block, asked));
        MUST(0, cuMemGetAddressRange(NULL, &bytes, block + asked / 2));
        MUST(asked, bytes);
        MUST(asked, attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, block + asked - 1));
        MUST(0, cuMemFree(block));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t ids_[4];
    CUcontext context = prog_context(0);

    for (int i = 0; i < 4; i++)
        MUST(0, pthread_create(&ids_[i], NULL, come_and_go, context));
    for (int i = 0; i < 4; i++)
        MUST(0, pthread_join(ids_[i], NULL));
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"ranges", ranges},
        {"ends", ends},
        {"attributes", attributes},
        {"widths", widths},
        {"several_attributes", several_attributes},
        {"several_as_alone", several_as_alone},
        {"freed", freed},
        {"ids", ids},
        {"sync_memops", sync_memops},
        {"sync_memops_in_a_capture", sync_memops_in_a_capture},
        {"sync_memops_by_tokens", sync_memops_by_tokens},
        {"sync_memops_at_rest", sync_memops_at_rest},
        {"backing", backing},
        {"dma_bufs", dma_bufs},
        {"whole_copies", whole_copies},
        {"peers", peers},
        {"peers_pooled", peers_pooled},
        {"peers_early", peers_early},
        {"threads", threads},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
