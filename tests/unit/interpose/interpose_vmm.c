/* vmm: chunks and mappings over a driver that can refuse each call; everything either happens or does not.
 * And fills (route_fill.c), which use the same driver. */
#include "interpose/pool/vmm.h"

#include <errno.h>
#include <string.h>
#include <unity.h>

#include "interpose/pool/capture.h"
#include "interpose/pool/pool_blocks.h"
#include "interpose/route.h"
#include "interpose/route_fill.h"

#define BASE  (UINT64_C(1) << 40)
#define TOTAL (UINT64_C(64) << 30)
#define CARD  3
#define PAGES 64

static struct fake {
    int attributes;        /* a bit for each that the card has */
    uint64_t largest_span; /* that can be reserved */
    size_t granularity;
    bool no_exports, no_rdma, no_decompression; /* memory with that is refused */
    CUresult create;
    int fail_create, fail_map, fail_access, fail_unmap, fail_release; /* so many calls fail */
    int map_after, access_after;                                      /* after so many more that succeed */
} fake;

static struct {
    uint64_t handles, live;                   /* created ever, and not released */
    CUmemGenericAllocationHandle page[PAGES]; /* mapped there; 0: none */
    CUmemAccess_flags access[PAGES][40];      /* of each card */
    uint64_t span;                            /* reserved; 0: none */
    int streams, fills, waits, destroyed;
    CUcontext pushed;
    uint64_t fill_bytes;
    int value;
    CUstream stream;
} got;

enum { HAS_VMM = 1, HAS_EXPORTS = 2, HAS_RDMA = 4, HAS_DECOMPRESSION = 8, HAS_ALL = 15 };

static bool fails(int *left, int *after)
{
    if (after && *after > 0) {
        (*after)--;
        return false;
    }
    return *left > 0 && (*left)--;
}

static CUresult CUDAAPI get_attribute(int *value, CUdevice_attribute attribute, CUdevice ordinal)
{
    TEST_ASSERT_EQUAL_INT(CARD, ordinal);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *value = fake.attributes & HAS_VMM;
        break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        *value = fake.attributes & HAS_EXPORTS;
        break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        *value = fake.attributes & HAS_RDMA;
        break;
    default:
        *value = fake.attributes & HAS_DECOMPRESSION;
    }
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_total(size_t *total, CUdevice ordinal)
{
    (void)ordinal;
    *total = TOTAL;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_granularity(size_t *granularity, const CUmemAllocationProp *properties,
                                        CUmemAllocationGranularity_flags option)
{
    (void)properties, (void)option;
    *granularity = fake.granularity;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI reserve(CUdeviceptr *base, size_t bytes, size_t alignment, CUdeviceptr wish,
                                unsigned long long flags)
{
    (void)alignment, (void)wish, (void)flags;
    if (bytes > fake.largest_span)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *base = BASE;
    got.span = bytes;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI free_span(CUdeviceptr base, size_t bytes)
{
    TEST_ASSERT_EQUAL_UINT64(BASE, base);
    TEST_ASSERT_EQUAL_UINT64(got.span, bytes);
    TEST_ASSERT_EQUAL_UINT64(0, got.live); /* all chunks are released */
    got.span = 0;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI create(CUmemGenericAllocationHandle *handle, size_t bytes,
                               const CUmemAllocationProp *p, unsigned long long flags)
{
    (void)bytes, (void)flags;
    if (fails(&fake.fail_create, NULL))
        return fake.create;
    if ((fake.no_exports && p->requestedHandleTypes) ||
        (fake.no_rdma && p->allocFlags.gpuDirectRDMACapable) ||
        (fake.no_decompression && p->allocFlags.usage))
        return CUDA_ERROR_NOT_SUPPORTED;
    *handle = ++got.handles;
    got.live++;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI release(CUmemGenericAllocationHandle handle)
{
    (void)handle;
    if (fails(&fake.fail_release, NULL))
        return CUDA_ERROR_UNKNOWN;
    got.live--;
    return CUDA_SUCCESS;
}

static void paint(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle)
{
    for (uint64_t i = (address - BASE) / VMM_PAGE; i < (address + bytes - BASE) / VMM_PAGE; i++) {
        TEST_ASSERT_EQUAL_INT(handle != 0, got.page[i] == 0);
        got.page[i] = handle;
        memset(got.access[i], 0, sizeof(got.access[i]));
    }
}

static CUresult CUDAAPI map(CUdeviceptr address, size_t bytes, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)offset, (void)flags;
    if (fails(&fake.fail_map, &fake.map_after))
        return CUDA_ERROR_UNKNOWN;
    paint(address, bytes, handle);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI unmap(CUdeviceptr address, size_t bytes)
{
    if (fails(&fake.fail_unmap, NULL))
        return CUDA_ERROR_UNKNOWN;
    paint(address, bytes, 0);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *list,
                                   size_t count)
{
    if (fails(&fake.fail_access, &fake.access_after))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint64_t i = (address - BASE) / VMM_PAGE; i < (address + bytes - BASE) / VMM_PAGE; i++) {
        for (size_t k = 0; k < count; k++)
            got.access[i][list[k].location.id] = list[k].flags;
    }
    return CUDA_SUCCESS;
}

/* ---- for fills ---- */

static struct fake_fill {
    CUresult grow, stream, set, wait, push;
    bool block, pinned;
    struct pool *other; /* another thread gets a stream for this pool first */
} filling;

CUresult route_grow_begin(struct route_growth *growth, uint64_t bytes)
{
    TEST_ASSERT_EQUAL_UINT64(0, bytes);
    growth->device = NULL;
    return filling.grow;
}

void route_grow_end(const struct route_growth *growth)
{
    TEST_ASSERT_EQUAL_INT(0, filling.stream);
    (void)growth;
}

void route_grow_abort(const struct route_growth *growth)
{
    TEST_ASSERT_NOT_EQUAL_INT(0, filling.stream);
    (void)growth;
}

CUresult capture_wait_stream(CUstream stream)
{
    TEST_ASSERT_EQUAL_PTR(got.stream, stream);
    got.waits++;
    return filling.wait;
}

int pool_block(struct pool *pool, uint64_t address, bool inside, struct pool_block *block)
{
    (void)pool;
    TEST_ASSERT_FALSE(inside);
    *block = (struct pool_block){.address = address, .asked = 5000, .pins = filling.pinned};
    return filling.block ? 0 : -EINVAL;
}

static CUresult CUDAAPI stream_create(CUstream *stream, unsigned int flags)
{
    TEST_ASSERT_EQUAL_UINT(CU_STREAM_NON_BLOCKING, flags);
    if (filling.other)
        atomic_store(&filling.other->filling, (CUstream)(uintptr_t)++got.streams);
    *stream = (CUstream)(uintptr_t)++got.streams;
    return filling.stream;
}

static CUresult CUDAAPI stream_destroy(CUstream stream)
{
    (void)stream;
    got.destroyed++;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI set_bytes(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream)
{
    TEST_ASSERT_EQUAL_UINT64(BASE, address);
    got.fills++;
    got.fill_bytes = bytes;
    got.value = value;
    got.stream = stream;
    return filling.set;
}

static CUresult CUDAAPI push(CUcontext context)
{
    if (filling.push == CUDA_SUCCESS)
        got.pushed = context;
    return filling.push;
}

static CUresult CUDAAPI pop(CUcontext *context)
{
    *context = got.pushed;
    got.pushed = NULL;
    return CUDA_SUCCESS;
}

static struct vmm vmm;

void setUp(void)
{
    driver_entries = (struct driver_table){.cuDeviceGetAttribute = get_attribute,
                                           .cuDeviceTotalMem_v2 = get_total,
                                           .cuMemGetAllocationGranularity = get_granularity,
                                           .cuMemAddressReserve = reserve,
                                           .cuMemAddressFree = free_span,
                                           .cuMemCreate = create,
                                           .cuMemRelease = release,
                                           .cuMemMap = map,
                                           .cuMemUnmap = unmap,
                                           .cuMemSetAccess = set_access,
                                           .cuStreamCreate = stream_create,
                                           .cuStreamDestroy_v2 = stream_destroy,
                                           .cuMemsetD8Async = set_bytes,
                                           .cuCtxPushCurrent_v2 = push,
                                           .cuCtxPopCurrent_v2 = pop};
    fake = (struct fake){.attributes = HAS_ALL,
                         .largest_span = VMM_SPAN,
                         .granularity = VMM_PAGE,
                         .create = CUDA_ERROR_UNKNOWN};
    filling = (struct fake_fill){.block = true};
    memset(&got, 0, sizeof(got));
}

void tearDown(void) {}

static void open_vmm(void)
{
    TEST_ASSERT_EQUAL_INT(0, vmm_open(&vmm, CARD));
}

static void close_vmm(void)
{
    vmm_close(&vmm);
    TEST_ASSERT_EQUAL_UINT64(0, got.span);
}

/* Makes chunks of these numbers of pages. */
static void make(struct vmm_chunk *chunks, const uint64_t *pages, int count)
{
    for (int i = 0; i < count; i++)
        TEST_ASSERT_EQUAL_INT(0, vmm_create(&vmm, pages[i] * VMM_PAGE, &chunks[i]));
}

/* ---- opening ---- */

static void test_a_card_that_cannot_do_it_is_refused(void)
{
    fake.attributes = HAS_ALL & ~HAS_VMM;
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, vmm_open(&vmm, CARD));
    fake.attributes = HAS_ALL;
    fake.granularity = 0;
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, vmm_open(&vmm, CARD));
    fake.granularity = 3 << 20;
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, vmm_open(&vmm, CARD));
    fake.granularity = VMM_PAGE / 4;
    fake.largest_span = 2 * TOTAL;
    open_vmm();
    TEST_ASSERT_EQUAL_UINT64(2 * TOTAL, vmm.span); /* clearly more than the card has */
    close_vmm();
    fake.largest_span = 2 * TOTAL - 1;
    TEST_ASSERT_EQUAL_INT(-ENOMEM, vmm_open(&vmm, CARD));
}

static void test_memory_has_the_properties_that_card_and_platform_can_give(void)
{
    struct vmm_chunk chunk;

    open_vmm();
    TEST_ASSERT_EQUAL_INT(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, vmm.properties.requestedHandleTypes);
    TEST_ASSERT_EQUAL_INT(1, vmm.properties.allocFlags.gpuDirectRDMACapable);
    TEST_ASSERT_TRUE(vmm_decompresses(&vmm));
    fake.no_decompression = true;
    TEST_ASSERT_EQUAL_INT(0, vmm_create(&vmm, VMM_PAGE, &chunk));
    TEST_ASSERT_FALSE(vmm_decompresses(&vmm));
    TEST_ASSERT_EQUAL_INT(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, vmm.properties.requestedHandleTypes);
    fake.no_exports = true; /* too late: these properties are final */
    struct vmm_chunk other;
    TEST_ASSERT_EQUAL_INT(-EIO, vmm_create(&vmm, VMM_PAGE, &other));
    TEST_ASSERT_EQUAL_UINT64(VMM_PAGE, vmm.physical);
    vmm_release(&vmm, &chunk);
    close_vmm();
    fake.no_rdma = true;
    open_vmm();
    TEST_ASSERT_EQUAL_INT(0, vmm_create(&vmm, VMM_PAGE, &chunk));
    TEST_ASSERT_EQUAL_INT(CU_MEM_HANDLE_TYPE_NONE, vmm.properties.requestedHandleTypes);
    vmm_release(&vmm, &chunk);
    close_vmm();
}

static void test_a_passing_failure_costs_no_property(void)
{
    struct vmm_chunk chunk;

    open_vmm();
    fake.fail_create = 1;
    TEST_ASSERT_EQUAL_INT(0, vmm_create(&vmm, VMM_PAGE, &chunk));
    TEST_ASSERT_TRUE(vmm_decompresses(&vmm));
    vmm_release(&vmm, &chunk);
    close_vmm();
    open_vmm();
    fake.fail_create = 99; /* whatever is asked for: the cause is another one */
    TEST_ASSERT_EQUAL_INT(-EIO, vmm_create(&vmm, VMM_PAGE, &chunk));
    fake.fail_create = 1;
    fake.create = CUDA_ERROR_OUT_OF_MEMORY;
    TEST_ASSERT_EQUAL_INT(-ENOMEM, vmm_create(&vmm, VMM_PAGE, &chunk));
    TEST_ASSERT_TRUE(vmm_decompresses(&vmm));
    TEST_ASSERT_EQUAL_INT(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, vmm.properties.requestedHandleTypes);
    TEST_ASSERT_EQUAL_UINT64(0, vmm.physical);
    close_vmm();
}

static void test_the_trial_leaves_nothing(void)
{
    open_vmm();
    TEST_ASSERT_EQUAL_INT(0, vmm_try(&vmm));
    TEST_ASSERT_EQUAL_UINT64(0, vmm.physical + vmm.calls + got.page[0]);
    fake.fail_unmap = 1;
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, vmm_try(&vmm));
    TEST_ASSERT_EQUAL_UINT64(0, got.page[0]); /* tried again */
    fake.fail_map = 1;
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, vmm_try(&vmm));
    TEST_ASSERT_EQUAL_UINT64(0, got.live);
    fake.fail_create = 1;
    fake.create = CUDA_ERROR_OUT_OF_MEMORY;
    TEST_ASSERT_EQUAL_INT(0, vmm_try(&vmm)); /* a full card is no failure */
    close_vmm();
}

/* ---- chunks ---- */

static void test_what_the_driver_will_not_release_is_tried_again(void)
{
    struct vmm_chunk chunks[2];

    open_vmm();
    make(chunks, (const uint64_t[]){1, 3}, 2);
    TEST_ASSERT_EQUAL_UINT64(4 * VMM_PAGE, vmm.physical);
    fake.fail_release = 3;
    TEST_ASSERT_FALSE(vmm_release(&vmm, &chunks[0]));
    TEST_ASSERT_FALSE(vmm_release(&vmm, &chunks[1]));
    TEST_ASSERT_EQUAL_UINT64(4 * VMM_PAGE, vmm.physical);
    TEST_ASSERT_EQUAL_UINT64(3 * VMM_PAGE, vmm_release_left(&vmm));
    TEST_ASSERT_EQUAL_UINT64(VMM_PAGE, vmm.physical);
    close_vmm(); /* once more */
}

static void test_no_more_is_left_than_can_be_noted(void)
{
    struct vmm_chunk chunk = {.bytes = VMM_PAGE};

    open_vmm();
    fake.fail_release = VMM_LEFT_MAX + 1;
    for (int i = 0; i <= VMM_LEFT_MAX; i++)
        TEST_ASSERT_FALSE(vmm_release(&vmm, &chunk));
    TEST_ASSERT_EQUAL_UINT(VMM_LEFT_MAX, vmm.left_count);
    vmm.left_count = 0;
    close_vmm();
}

static void test_chunks_are_mapped_side_by_side_and_found_by_address(void)
{
    struct vmm_chunk chunks[2], chunk;
    uint64_t stuck = 9, start, bytes;

    open_vmm();
    make(chunks, (const uint64_t[]){2, 3}, 2);
    TEST_ASSERT_EQUAL_INT(0, vmm_map(&vmm, BASE + VMM_PAGE, chunks, 2, &stuck));
    TEST_ASSERT_EQUAL_UINT64(0, stuck);
    TEST_ASSERT_EQUAL_INT(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, got.access[1][CARD]);
    TEST_ASSERT_EQUAL_INT(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, got.access[5][CARD]);
    TEST_ASSERT_FALSE(vmm_chunk_at(&vmm, BASE + VMM_PAGE - 1, &start, &bytes));
    for (uint64_t page = 3; page < 6; page++) {
        TEST_ASSERT_TRUE(vmm_chunk_at(&vmm, BASE + page * VMM_PAGE + 7, &start, &bytes));
        TEST_ASSERT_EQUAL_UINT64(BASE + 3 * VMM_PAGE, start);
        TEST_ASSERT_EQUAL_UINT64(3 * VMM_PAGE, bytes);
    }
    TEST_ASSERT_EQUAL_UINT64(chunks[1].handle, vmm_chunk_from(&vmm, BASE + 3 * VMM_PAGE).handle);
    fake.fail_unmap = 1;
    TEST_ASSERT_EQUAL_INT(-EIO, vmm_unmap(&vmm, BASE + VMM_PAGE, &chunk));
    TEST_ASSERT_TRUE(vmm_chunk_at(&vmm, BASE + VMM_PAGE, &start, &bytes));
    TEST_ASSERT_EQUAL_INT(0, vmm_unmap(&vmm, BASE + VMM_PAGE, &chunk));
    TEST_ASSERT_EQUAL_UINT64(chunks[0].handle, chunk.handle);
    TEST_ASSERT_EQUAL_UINT64(2 * VMM_PAGE, chunk.bytes);
    TEST_ASSERT_FALSE(vmm_chunk_at(&vmm, BASE + 2 * VMM_PAGE, &start, &bytes));
    chunk = vmm_leave(&vmm, BASE + 3 * VMM_PAGE);
    TEST_ASSERT_EQUAL_UINT64(3 * VMM_PAGE, chunk.bytes);
    TEST_ASSERT_FALSE(vmm_chunk_at(&vmm, BASE + 5 * VMM_PAGE, &start, &bytes));
    vmm_remember(&vmm, BASE + 3 * VMM_PAGE, &chunk);
    TEST_ASSERT_TRUE(vmm_chunk_at(&vmm, BASE + 5 * VMM_PAGE, &start, &bytes));
    vmm_leave(&vmm, BASE + 3 * VMM_PAGE);
    fake.fail_unmap = 1;
    TEST_ASSERT_EQUAL_INT(-EIO, vmm_unmap_left(&vmm, BASE + 3 * VMM_PAGE, 3 * VMM_PAGE));
    TEST_ASSERT_EQUAL_INT(0, vmm_unmap_left(&vmm, BASE + 3 * VMM_PAGE, 3 * VMM_PAGE));
    vmm_release(&vmm, &chunks[0]);
    vmm_release(&vmm, &chunks[1]);
    close_vmm();
}

static void test_a_mapping_that_fails_in_the_middle_is_undone(void)
{
    struct vmm_chunk chunks[3];
    uint64_t stuck, start, bytes;

    open_vmm();
    make(chunks, (const uint64_t[]){1, 2, 1}, 3);
    fake.map_after = 2;
    fake.fail_map = 1;
    TEST_ASSERT_EQUAL_INT(-EIO, vmm_map(&vmm, BASE, chunks, 3, &stuck));
    TEST_ASSERT_EQUAL_UINT64(0, stuck + got.page[0] + got.page[1] + got.page[2]);
    TEST_ASSERT_FALSE(vmm_chunk_at(&vmm, BASE, &start, &bytes));
    fake.fail_access = 1;
    TEST_ASSERT_EQUAL_INT(-ENOMEM, vmm_map(&vmm, BASE, chunks, 3, &stuck));
    TEST_ASSERT_EQUAL_UINT64(0, stuck + got.page[0] + got.page[3]);
    fake.fail_access = 1;
    fake.fail_unmap = 1; /* all at once; one by one they go */
    TEST_ASSERT_EQUAL_INT(-ENOMEM, vmm_map(&vmm, BASE, chunks, 3, &stuck));
    TEST_ASSERT_EQUAL_UINT64(0, stuck + got.page[0] + got.page[1] + got.page[3]);
    fake.fail_access = 1;
    fake.fail_unmap = 2;
    TEST_ASSERT_EQUAL_INT(-ENOMEM, vmm_map(&vmm, BASE, chunks, 3, &stuck));
    TEST_ASSERT_EQUAL_UINT64(3, stuck); /* nor does the last of them */
    TEST_ASSERT_EQUAL_INT(0, vmm_unmap_left(&vmm, BASE, 4 * VMM_PAGE));
    for (int i = 0; i < 3; i++)
        vmm_release(&vmm, &chunks[i]);
    close_vmm();
}

/* ---- other cards ---- */

static void test_another_card_reaches_all_memory_until_it_is_removed_as_often(void)
{
    const uint64_t end = BASE + 8 * VMM_PAGE;
    struct vmm_chunk chunks[2];
    uint64_t stuck;

    open_vmm();
    make(chunks, (const uint64_t[]){2, 1}, 2);
    TEST_ASSERT_EQUAL_INT(0, vmm_map(&vmm, BASE, &chunks[0], 1, &stuck));
    TEST_ASSERT_EQUAL_INT(0, vmm_map(&vmm, BASE + 4 * VMM_PAGE, &chunks[1], 1, &stuck));
    fake.access_after = 1;
    fake.fail_access = 1;
    TEST_ASSERT_EQUAL_INT(-EIO, vmm_add_peer(&vmm, 5, end));
    TEST_ASSERT_EQUAL_INT(0, got.access[0][5]); /* the first is taken back */
    TEST_ASSERT_EQUAL_INT(0, vmm_add_peer(&vmm, 5, end));
    TEST_ASSERT_EQUAL_INT(0, vmm_add_peer(&vmm, 5, end));
    TEST_ASSERT_EQUAL_INT(0, vmm_add_peer(&vmm, 6, end));
    TEST_ASSERT_EQUAL_INT(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, got.access[1][5]);
    TEST_ASSERT_EQUAL_INT(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, got.access[4][6]);
    vmm_remove_peer(&vmm, 5, end);
    TEST_ASSERT_EQUAL_INT(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, got.access[0][5]);
    vmm_remove_peer(&vmm, 5, end);
    TEST_ASSERT_EQUAL_INT(0, got.access[0][5] + got.access[4][5]);
    vmm_remove_peer(&vmm, 9, end);    /* never added */
    vmm_remove_peer(&vmm, CARD, end); /* the card itself keeps its access */
    TEST_ASSERT_EQUAL_INT(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, got.access[0][CARD]);
    struct vmm_chunk chunk;
    TEST_ASSERT_EQUAL_INT(0, vmm_unmap(&vmm, BASE, &chunk));
    TEST_ASSERT_EQUAL_INT(0, vmm_map(&vmm, BASE, &chunk, 1, &stuck));
    TEST_ASSERT_EQUAL_INT(CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                          got.access[1][6]); /* what is mapped later too */
    TEST_ASSERT_EQUAL_INT(0, got.access[1][5]);
    TEST_ASSERT_EQUAL_INT(0, vmm_unmap(&vmm, BASE, &chunk));
    TEST_ASSERT_EQUAL_INT(0, vmm_unmap(&vmm, BASE + 4 * VMM_PAGE, &chunk));
    vmm_release(&vmm, &chunks[0]);
    vmm_release(&vmm, &chunks[1]);
    for (CUdevice card = 7; card < 7 + VMM_PEERS_MAX - 2; card++)
        TEST_ASSERT_EQUAL_INT(0, vmm_add_peer(&vmm, card, BASE));
    TEST_ASSERT_EQUAL_INT(-ENOSPC, vmm_add_peer(&vmm, 39, BASE)); /* no room for another */
    TEST_ASSERT_EQUAL_INT(0, vmm_add_peer(&vmm, 6, BASE));
    close_vmm();
}

/* ---- fills ---- */

static struct pool pool = {.context = (CUcontext)&pool};

static void test_a_fill_is_awaited_on_a_stream_of_its_own(void)
{
    got.pushed = NULL;
    filling.grow = CUDA_ERROR_OUT_OF_MEMORY;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, fill_block(&pool, BASE, 100, FILL_FRESH));
    filling.grow = CUDA_SUCCESS;
    filling.stream = CUDA_ERROR_UNKNOWN;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, fill_block(&pool, BASE, 100, FILL_FRESH));
    TEST_ASSERT_EQUAL_INT(0, got.fills);
    filling.stream = CUDA_SUCCESS;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, fill_block(&pool, BASE, 100, FILL_FRESH));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, fill_block(&pool, BASE, 100, FILL_FRESH));
    TEST_ASSERT_EQUAL_INT(2, got.streams); /* the one that failed, and one for all fills */
    TEST_ASSERT_EQUAL_INT(2, got.waits);
    TEST_ASSERT_EQUAL_INT(FILL_FRESH, got.value);
    filling.wait = CUDA_ERROR_UNKNOWN;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, fill_block(&pool, BASE, 100, FILL_FRESH));
    filling.set = CUDA_ERROR_INVALID_VALUE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, fill_block(&pool, BASE, 100, FILL_FRESH));
    TEST_ASSERT_EQUAL_INT(3, got.waits);
    TEST_ASSERT_NULL(got.pushed); /* the stack of contexts is as before */
    filling.push = CUDA_ERROR_INVALID_CONTEXT;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_CONTEXT, fill_block(&pool, BASE, 100, FILL_FRESH));
}

static void test_of_two_threads_that_make_a_stream_for_fills_both_use_the_first(void)
{
    struct pool fresh = {.context = (CUcontext)&pool};

    got.streams = got.destroyed = 0;
    filling.other = &fresh;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, fill_block(&fresh, BASE, 100, FILL_FRESH));
    TEST_ASSERT_EQUAL_PTR(1, got.stream);
    TEST_ASSERT_EQUAL_INT(2, got.streams);
    TEST_ASSERT_EQUAL_INT(1, got.destroyed);
}

static void test_a_freed_block_is_filled_in_its_own_context(void)
{
    got.pushed = NULL;
    TEST_ASSERT_TRUE(fill_freed(&pool, BASE));
    TEST_ASSERT_EQUAL_UINT64(5000, got.fill_bytes);
    TEST_ASSERT_EQUAL_INT(FILL_FREED, got.value);
    TEST_ASSERT_NULL(got.pushed); /* the stack of contexts is as before */
    filling.wait = CUDA_ERROR_UNKNOWN;
    TEST_ASSERT_FALSE(fill_freed(&pool, BASE)); /* it may still be running */
    TEST_ASSERT_NULL(got.pushed);
    filling.push = CUDA_ERROR_INVALID_CONTEXT;
    got.fills = 0;
    TEST_ASSERT_TRUE(fill_freed(&pool, BASE));
    filling.push = CUDA_SUCCESS;
    filling.pinned = true; /* others have it open */
    TEST_ASSERT_TRUE(fill_freed(&pool, BASE));
    fill_freed_behind(&pool, BASE, (CUstream)9);
    filling.pinned = filling.block = false;
    TEST_ASSERT_TRUE(fill_freed(&pool, BASE));
    TEST_ASSERT_EQUAL_INT(0, got.fills);
    filling.block = true;
    fill_freed_behind(&pool, BASE, (CUstream)9);
    TEST_ASSERT_EQUAL_PTR(9, got.stream);
    TEST_ASSERT_EQUAL_UINT64(5000, got.fill_bytes);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_card_that_cannot_do_it_is_refused);
    RUN_TEST(test_memory_has_the_properties_that_card_and_platform_can_give);
    RUN_TEST(test_a_passing_failure_costs_no_property);
    RUN_TEST(test_the_trial_leaves_nothing);
    RUN_TEST(test_what_the_driver_will_not_release_is_tried_again);
    RUN_TEST(test_no_more_is_left_than_can_be_noted);
    RUN_TEST(test_chunks_are_mapped_side_by_side_and_found_by_address);
    RUN_TEST(test_a_mapping_that_fails_in_the_middle_is_undone);
    RUN_TEST(test_another_card_reaches_all_memory_until_it_is_removed_as_often);
    RUN_TEST(test_a_fill_is_awaited_on_a_stream_of_its_own);
    RUN_TEST(test_of_two_threads_that_make_a_stream_for_fills_both_use_the_first);
    RUN_TEST(test_a_freed_block_is_filled_in_its_own_context);
    return UNITY_END();
}
