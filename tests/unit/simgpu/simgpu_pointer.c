/* simgpu_pointer: pointer attributes of the simulated driver, compared with those of an H200 (driver 580):
 * code, bytes written, value.
 */
#include "tests/unit/simgpu/simgpu_support.h"

#include <string.h>
#include <unistd.h>

#define BYTES 5000000u
#define PAGES (6 * MIB) /* that BYTES take */
#define ROOM  24        /* more than any answer */

void setUp(void)
{
    sim_begin();
}

void tearDown(void)
{
    sim_end();
}

struct answer {
    int code, width;
    uint64_t value;
};

/* Asks twice, over different bytes, to see which of them are written. */
static struct answer ask(CUpointer_attribute attribute, CUdeviceptr at)
{
    unsigned char first[ROOM], second[ROOM];
    struct answer answer = {.width = ROOM};

    memset(first, 0xa5, ROOM);
    memset(second, 0x5a, ROOM);
    answer.code = (int)cuPointerGetAttribute(first, attribute, at);
    IS(answer.code, cuPointerGetAttribute(second, attribute, at));
    while (answer.width && first[answer.width - 1] == 0xa5 && second[answer.width - 1] == 0x5a)
        answer.width--;
    memcpy(&answer.value, first, answer.width < 8 ? (size_t)answer.width : 8);
    return answer;
}

static void expect(CUpointer_attribute attribute, CUdeviceptr at, int code, int width, uint64_t value)
{
    const struct answer got = ask(attribute, at);
    char which[16] = "attribute ..";

    which[10] = (char)('0' + attribute / 10);
    which[11] = (char)('0' + attribute % 10);
    TEST_ASSERT_EQUAL_INT_MESSAGE(code, got.code, which);
    TEST_ASSERT_EQUAL_INT_MESSAGE(width, got.width, which);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(value, got.value, which);
}

struct flags {
    bool managed, legacy_ipc, rdma, decompress;
};

static void expect_flags(CUdeviceptr at, struct flags flags)
{
    expect(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at, 0, 4, flags.managed);
    expect(CU_POINTER_ATTRIBUTE_IS_MANAGED, at, 0, 4, flags.managed);
    expect(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at, 0, 4, flags.legacy_ipc);
    expect(CU_POINTER_ATTRIBUTE_MAPPED, at, 0, 4, 1);
    expect(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, at, 0, 4, flags.rdma);
    expect(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, at, 0, 4, flags.decompress);
}

static void expect_mapping(CUdeviceptr at, CUdeviceptr base, size_t bytes)
{
    expect(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, at, 0, 8, base);
    expect(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, at, 0, 8, bytes);
}

/* Memory on the card has tokens, and asking for them sets SYNC_MEMOPS. */
static void expect_tokens(CUdeviceptr block)
{
    expect(CU_POINTER_ATTRIBUTE_P2P_TOKENS, block + 100, 0, 12, 0);
    expect(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block, 0, 4, 1);
}

static void test_a_large_block(void)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, BYTES));
    for (CUdeviceptr at = p; at < p + BYTES; at += BYTES - 1) {
        expect(CU_POINTER_ATTRIBUTE_HOST_POINTER, at, CUDA_ERROR_INVALID_VALUE, 8, 0);
        expect_flags(at, (struct flags){.legacy_ipc = true, .rdma = true, .decompress = true});
        expect_mapping(at, p, PAGES);
    }
    expect_tokens(p);
    OK(cuMemFree(p));
}

static void test_small_blocks_share_a_mapping(void)
{
    CUdeviceptr first, second, rows;
    size_t pitch;

    OK(cuMemAlloc(&first, 1000));
    OK(cuMemAlloc(&second, 1000));
    OK(cuMemAllocPitch(&rows, &pitch, 1000, 100, 4));
    expect_mapping(first, first, 2 * MIB);
    expect_mapping(second + 999, first, 2 * MIB);
    expect_mapping(rows, first, 2 * MIB);
    expect_flags(rows, (struct flags){.legacy_ipc = true, .rdma = true, .decompress = true});
    expect_tokens(second);
    expect(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, first, 0, 4, 0);
    OK(cuMemFree(rows));
    OK(cuMemFree(second));
    OK(cuMemFree(first));
}

static void test_managed_memory(void)
{
    CUdeviceptr p;

    OK(cuMemAllocManaged(&p, BYTES, CU_MEM_ATTACH_GLOBAL));
    expect(CU_POINTER_ATTRIBUTE_HOST_POINTER, p, 0, 8, p);
    expect_flags(p, (struct flags){.managed = true});
    expect_mapping(p, p, PAGES);
    expect_tokens(p);
    OK(cuMemFree(p));
}

static void test_memory_of_a_pool(void)
{
    CUdeviceptr p;

    OK(cuMemAllocAsync(&p, BYTES, NULL));
    expect(CU_POINTER_ATTRIBUTE_HOST_POINTER, p, CUDA_ERROR_INVALID_VALUE, 8, 0);
    expect_flags(p, (struct flags){false});
    expect_mapping(p, p, 32 * MIB);
    expect_tokens(p);
    OK(cuMemFree(p));
}

static void test_pinned_memory_has_no_tokens(void)
{
    CUdeviceptr p;
    void *host;

    OK(cuMemHostAlloc(&host, 5000, CU_MEMHOSTALLOC_DEVICEMAP));
    p = (CUdeviceptr)(uintptr_t)host;
    expect(CU_POINTER_ATTRIBUTE_HOST_POINTER, p, 0, 8, p);
    expect_flags(p, (struct flags){false});
    expect_mapping(p, p, 2 * MIB);
    expect(CU_POINTER_ATTRIBUTE_P2P_TOKENS, p, CUDA_ERROR_INVALID_VALUE, 12, 0);
    expect(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p, 0, 4, 0);
    OK(cuMemFreeHost(host));
}

static void test_mapped_memory(void)
{
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                 .allocFlags = {.gpuDirectRDMACapable = 1}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;

    OK(cuMemCreate(&handle, 2 * MIB, &props, 0));
    OK(cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0));
    OK(cuMemMap(p, 2 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(p, 2 * MIB, &access, 1));
    expect_flags(p, (struct flags){.rdma = true});
    expect_tokens(p); /* although a program cannot set SYNC_MEMOPS there */
    OK(cuMemUnmap(p, 2 * MIB));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(p, 4 * MIB));
}

static void test_several_at_once_are_the_same(void)
{
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, CU_POINTER_ATTRIBUTE_P2P_TOKENS};
    uint64_t host[2] = {~UINT64_C(0)}, legacy[2] = {0}, tokens[2] = {7}, sync[2] = {7}, size[2] = {0};
    void *into[] = {host, legacy, sync, size, tokens};
    CUdeviceptr p;

    OK(cuMemAlloc(&p, BYTES));
    OK(cuPointerGetAttributes(4, which, into, p));
    TEST_ASSERT_EQUAL_UINT64(0, host[0]);
    TEST_ASSERT_EQUAL_UINT64(1, legacy[0]);
    TEST_ASSERT_EQUAL_UINT64(0, sync[0]);
    TEST_ASSERT_EQUAL_UINT64(PAGES, size[0]);
    IS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(5, which, into, p)); /* tokens only alone */
    TEST_ASSERT_EQUAL_UINT64(7, tokens[0]);
    OK(cuMemFree(p));
}

/* ---- dma-buf ---- */

static CUresult dma_buf(CUdeviceptr at, size_t bytes)
{
    int fd = -1;
    const CUresult result =
        cuMemGetHandleForAddressRange(&fd, at, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

    TEST_ASSERT_EQUAL_INT(result == CUDA_SUCCESS ? 0 : -1, fd < 0 ? -1 : close(fd));
    return result;
}

static void test_a_dma_buf_is_whole_pages_of_a_block(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    CUdeviceptr p, small;

    OK(cuMemAlloc(&p, 4 * MIB));
    OK(dma_buf(p, page));
    OK(dma_buf(p, 4 * MIB));
    OK(dma_buf(p + page, 16 * page));
    IS(CUDA_ERROR_INVALID_VALUE, dma_buf(p + 100, 16 * page));
    IS(CUDA_ERROR_INVALID_VALUE, dma_buf(p, page + 100));
    IS(CUDA_ERROR_INVALID_VALUE, dma_buf(p, 0));
    IS(CUDA_ERROR_INVALID_VALUE, dma_buf(p, 4 * MIB + page));
    OK(cuMemFree(p));
    IS(CUDA_ERROR_INVALID_VALUE, dma_buf(p, page));
    OK(cuMemAlloc(&small, 1000));
    IS(CUDA_ERROR_INVALID_VALUE, dma_buf(small, 1000));
    OK(dma_buf(small / page * page, page)); /* includes other blocks on the page */
    OK(cuMemFree(small));
}

static int exported(CUdeviceptr at, size_t bytes)
{
    int fd = -1;

    OK(cuMemGetHandleForAddressRange(&fd, at, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    return fd;
}

/* Measured on an H200: 64 MiB stayed used until the descriptor was closed. */
static void test_memory_stays_used_while_a_descriptor_of_it_is_open(void)
{
    const size_t before = sim_free(), block = 64 * MIB;
    CUdeviceptr p, small;
    int first, copy, of_page;

    OK(cuMemAlloc(&p, block));
    first = exported(p, block);
    copy = dup(first);
    OK(cuMemFree(p));
    TEST_ASSERT_EQUAL_UINT64(before - block, sim_free());
    TEST_ASSERT_EQUAL_INT(0, close(first));
    TEST_ASSERT_EQUAL_UINT64(before - block, sim_free());
    TEST_ASSERT_EQUAL_INT(0, close(copy));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
    TEST_ASSERT_EQUAL_UINT64(block, simgpu_most_used(0) - simgpu_used(0)); /* more than any other test */
    OK(cuMemAlloc(&small, 1000));
    of_page = exported(small & ~UINT64_C(4095), (size_t)sysconf(_SC_PAGESIZE));
    OK(cuMemFree(small));
    TEST_ASSERT_EQUAL_UINT64(before - 2 * MIB, sim_free());
    TEST_ASSERT_EQUAL_INT(0, close(of_page));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
}

static void test_the_same_holds_of_mapped_memory(void)
{
    const CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc access = {.location = props.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const size_t before = sim_free();
    CUmemGenericAllocationHandle handles[2];
    CUdeviceptr at;
    int fd;

    OK(cuMemAddressReserve(&at, 8 * MIB, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        OK(cuMemCreate(&handles[i], 4 * MIB, &props, 0));
        OK(cuMemMap(at + (size_t)i * 4 * MIB, 4 * MIB, 0, handles[i], 0));
    }
    OK(cuMemSetAccess(at, 8 * MIB, &access, 1));
    fd = exported(at + 2 * MIB, 4 * MIB); /* of both */
    for (int i = 0; i < 2; i++) {
        OK(cuMemUnmap(at + (size_t)i * 4 * MIB, 4 * MIB));
        OK(cuMemRelease(handles[i]));
    }
    OK(cuMemAddressFree(at, 8 * MIB));
    TEST_ASSERT_EQUAL_UINT64(before - 8 * MIB, sim_free());
    TEST_ASSERT_EQUAL_INT(0, close(fd));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
}

int main(void)
{
    sim_machine("1x1G");
    UNITY_BEGIN();
    RUN_TEST(test_a_large_block);
    RUN_TEST(test_small_blocks_share_a_mapping);
    RUN_TEST(test_managed_memory);
    RUN_TEST(test_memory_of_a_pool);
    RUN_TEST(test_pinned_memory_has_no_tokens);
    RUN_TEST(test_mapped_memory);
    RUN_TEST(test_several_at_once_are_the_same);
    RUN_TEST(test_a_dma_buf_is_whole_pages_of_a_block);
    RUN_TEST(test_memory_stays_used_while_a_descriptor_of_it_is_open);
    RUN_TEST(test_the_same_holds_of_mapped_memory);
    return UNITY_END();
}
