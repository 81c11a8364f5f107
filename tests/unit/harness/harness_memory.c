/* The supplies of device memory on the simulated GPU: the cache rounds, splits, merges and gives back as
 * PyTorch's does, streams do not share blocks, a budget holds for all supplies together, and a search for a
 * batch that runs out of memory many times leaves nothing behind. */
#include <string.h>

#include "harness/base/cuda_device.h"
#include "harness/train/fit.h"
#include "harness/memory/mem.h"
#include "tools/simgpu/simgpu.h"
#include "harness/memory/supply.h"
#include "unity.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static struct budget budget;
static struct supply supply;
static cudaStream_t first, second;

void setUp(void)
{
    memset(&budget, 0, sizeof(budget));
    TEST_ASSERT_EQUAL_INT(cudaSuccess, cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    TEST_ASSERT_EQUAL_INT(cudaSuccess, cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
}

void tearDown(void)
{
    supply_close(&supply);
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
    TEST_ASSERT_EQUAL_size_t(0, budget.used);
    TEST_ASSERT_EQUAL_UINT64(0, simgpu_leaks());
}

static void open_supply(enum alloc_mode mode)
{
    TEST_ASSERT_EQUAL_INT(STATUS_OK, supply_open(&supply, mode, 0.5, &budget));
}

static void *take(cudaStream_t stream, size_t bytes, void **block)
{
    void *data = NULL;

    TEST_ASSERT_EQUAL_INT(STATUS_OK, supply_take(&supply, stream, bytes, "test", &data, block));
    return data;
}

static void give(cudaStream_t stream, void *data, void *block, size_t bytes)
{
    TEST_ASSERT_EQUAL_INT(STATUS_OK, supply_give(&supply, stream, data, block, bytes));
}

static void test_small_requests_share_a_segment_of_two_mebibytes(void)
{
    void *blocks[3], *data[3];

    open_supply(ALLOC_CACHE);
    data[0] = take(first, 1, &blocks[0]);
    data[1] = take(first, 513, &blocks[1]);
    data[2] = take(first, MIB, &blocks[2]);
    TEST_ASSERT_EQUAL_size_t(2 * MIB, supply.held);
    TEST_ASSERT_EQUAL_PTR((char *)data[0] + 512, data[1]);
    TEST_ASSERT_EQUAL_PTR((char *)data[1] + 1024, data[2]);
    for (int i = 0; i < 3; i++)
        give(first, data[i], blocks[i], 1);
    /* The pieces are one block again. */
    data[0] = take(first, MIB, &blocks[0]);
    data[1] = take(first, MIB, &blocks[1]);
    TEST_ASSERT_EQUAL_size_t(2 * MIB, supply.held);
    give(first, data[0], blocks[0], 1);
    give(first, data[1], blocks[1], 1);
}

static void test_large_requests_get_segments_as_pytorch_makes_them(void)
{
    void *blocks[3], *data[3];

    open_supply(ALLOC_CACHE);
    data[0] = take(first, MIB + 1, &blocks[0]);
    TEST_ASSERT_EQUAL_size_t(20 * MIB, supply.held);
    data[1] = take(first, 9 * MIB, &blocks[1]);
    TEST_ASSERT_EQUAL_size_t(20 * MIB, supply.held);
    data[2] = take(first, 10 * MIB + 1, &blocks[2]);
    TEST_ASSERT_EQUAL_size_t(32 * MIB, supply.held);
    for (int i = 0; i < 3; i++)
        give(first, data[i], blocks[i], 1);
    TEST_ASSERT_EQUAL_size_t(32 * MIB, supply.held);
}

static void test_a_freed_block_serves_its_own_stream_only(void)
{
    void *block, *other_block, *again_block;
    void *data, *other, *again;

    open_supply(ALLOC_CACHE);
    data = take(first, 64 * KIB, &block);
    give(first, data, block, 64 * KIB);
    other = take(second, 64 * KIB, &other_block);
    TEST_ASSERT_TRUE(other != data);
    again = take(first, 64 * KIB, &again_block);
    TEST_ASSERT_EQUAL_PTR(data, again);
    give(second, other, other_block, 64 * KIB);
    give(first, again, again_block, 64 * KIB);
}

static void test_cached_segments_go_back_when_the_device_has_no_more(void)
{
    void *block, *data, *none, *no_block;

    budget.limit = 64 * MIB;
    open_supply(ALLOC_CACHE);
    data = take(first, 40 * MIB, &block);
    give(first, data, block, 40 * MIB);
    TEST_ASSERT_EQUAL_size_t(40 * MIB, supply.held);
    data = take(first, 48 * MIB, &block);
    TEST_ASSERT_EQUAL_size_t(48 * MIB, supply.held);
    TEST_ASSERT_EQUAL_INT(STATUS_NO_MEMORY, supply_take(&supply, first, 20 * MIB, "test", &none, &no_block));
    TEST_ASSERT_EQUAL_INT(cudaSuccess, cudaGetLastError());
    TEST_ASSERT_NULL(none);
    give(first, data, block, 48 * MIB);
}

static void test_a_pinned_cache_keeps_its_segments(void)
{
    void *block, *data, *kept, *kept_block;

    budget.limit = 64 * MIB;
    open_supply(ALLOC_CACHE);
    kept = take(first, 40 * MIB, &kept_block);
    give(first, kept, kept_block, 40 * MIB);
    supply_pin(&supply, true);
    TEST_ASSERT_EQUAL_INT(STATUS_NO_MEMORY, supply_take(&supply, first, 48 * MIB, "test", &data, &block));
    TEST_ASSERT_EQUAL_size_t(40 * MIB, supply.held);
}

static void test_done_tensors_stay_in_static_mode_only(void)
{
    static const enum alloc_mode modes[] = {ALLOC_NAIVE, ALLOC_CACHE, ALLOC_ARENA, ALLOC_ASYNC, ALLOC_STATIC};

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        struct tensor tensor = {0};
        struct mem mem;

        open_supply(modes[i]);
        mem_open(&mem, &supply, first);
        TEST_ASSERT_EQUAL_INT(STATUS_OK, mem_need(&mem, &tensor, 1000, MEM_ACTIVATIONS));
        mem_share(&tensor);
        TEST_ASSERT_EQUAL_INT(STATUS_OK, mem_done(&mem, &tensor));
        TEST_ASSERT_NOT_NULL(tensor.data);
        TEST_ASSERT_EQUAL_INT(STATUS_OK, mem_done(&mem, &tensor));
        TEST_ASSERT_EQUAL_INT(modes[i] == ALLOC_STATIC, tensor.data != NULL);
        TEST_ASSERT_EQUAL_INT(STATUS_OK, mem_drop(&mem, &tensor));
        TEST_ASSERT_NULL(tensor.data);
        TEST_ASSERT_EQUAL_size_t(0, mem.live[MEM_ACTIVATIONS]);
        TEST_ASSERT_EQUAL_size_t(1000, mem.peak[MEM_ACTIVATIONS]);
        cudaStreamSynchronize(first);
        supply_close(&supply);
    }
}

static void test_a_search_for_a_batch_leaves_nothing_behind(void)
{
    static const enum alloc_mode modes[] = {ALLOC_NAIVE, ALLOC_CACHE, ALLOC_ARENA, ALLOC_ASYNC, ALLOC_STATIC};

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        struct train_options options;
        struct cuda_device device = {0};
        char program[] = "train", model[] = "--model=cnn", width[] = "--width=4", image[] = "--image=16",
             find[] = "--find-batch", batch[] = "--batch=512", quiet[] = "--quiet";
        char *arguments[] = {program, model, width, image, find, batch, quiet};

        TEST_ASSERT_EQUAL_INT(STATUS_OK, train_options_parse(&options, 7, arguments));
        budget.limit = 4 * MIB;
        TEST_ASSERT_EQUAL_INT(STATUS_OK, cuda_device_open(&device, 0));
        open_supply(modes[i]);
        TEST_ASSERT_EQUAL_INT(STATUS_OK, fit_options(&options, &device, &supply));
        TEST_ASSERT_TRUE(options.batch > 4 && options.batch < 512);
        supply_close(&supply);
        cuda_device_close(&device);
        TEST_ASSERT_EQUAL_size_t(0, budget.used);
        TEST_ASSERT_EQUAL_UINT64(2, simgpu_leaks()); /* the streams of setUp */
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_small_requests_share_a_segment_of_two_mebibytes);
    RUN_TEST(test_large_requests_get_segments_as_pytorch_makes_them);
    RUN_TEST(test_a_freed_block_serves_its_own_stream_only);
    RUN_TEST(test_cached_segments_go_back_when_the_device_has_no_more);
    RUN_TEST(test_a_pinned_cache_keeps_its_segments);
    RUN_TEST(test_done_tensors_stay_in_static_mode_only);
    RUN_TEST(test_a_search_for_a_batch_leaves_nothing_behind);
    return UNITY_END();
}
