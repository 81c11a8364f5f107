/* sim_pool: stream-ordered memory on the simulated driver. */
#include "sim_test.h"

#define STEP (32 * MIB)

static CUmemoryPool pool; /* of device 0, the default one */

void setUp(void)
{
    sim_begin();
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
}

void tearDown(void)
{
    sim_end();
}

static uint64_t attribute(CUmemoryPool of, CUmemPool_attribute which)
{
    cuuint64_t value = 0;

    OK(cuMemPoolGetAttribute(of, which, &value));
    return value;
}

static void test_a_pool_takes_memory_in_steps_and_gives_it_back_at_a_synchronization(void)
{
    size_t before = sim_free();
    CUdeviceptr a, b;

    TEST_ASSERT_EQUAL_UINT64(0, attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
    OK(cuMemAllocAsync(&a, 1000, NULL));
    OK(cuMemAllocAsync(&b, MIB, NULL));
    TEST_ASSERT_EQUAL_UINT64(0, a % 512);
    TEST_ASSERT_EQUAL_UINT64(STEP, before - sim_free());
    TEST_ASSERT_EQUAL_UINT64(STEP, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    TEST_ASSERT_EQUAL_UINT64(1024 + MIB, attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    OK(cuMemFreeAsync(a, NULL));
    OK(cuMemFreeAsync(b, NULL));
    TEST_ASSERT_EQUAL_UINT64(0, attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    TEST_ASSERT_EQUAL_UINT64(STEP, before - sim_free());
    OK(cuStreamSynchronize(NULL));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
}

static void test_the_threshold_keeps_memory_and_trimming_returns_it(void)
{
    cuuint64_t keep = GIB, none = 0;
    size_t before = sim_free();
    CUdeviceptr p;

    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(cuMemAllocAsync(&p, 40 * MIB, NULL));
    OK(cuMemFreeAsync(p, NULL));
    OK(cuCtxSynchronize());
    TEST_ASSERT_EQUAL_UINT64(2 * STEP, before - sim_free());
    OK(cuMemPoolTrimTo(pool, 0));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
    TEST_ASSERT_TRUE(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 2 * STEP);
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &none));
    TEST_ASSERT_EQUAL_UINT64(0, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none));
}

static void test_freed_memory_is_taken_again_at_once_in_its_stream_only(void)
{
    struct gate gate;
    CUstream own, other;
    CUdeviceptr p, again, elsewhere;

    gate_init(&gate);
    OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&p, STEP, own));
    gate_put(&gate, own);
    OK(cuMemFreeAsync(p, own));
    OK(cuMemAllocAsync(&elsewhere, STEP, other));
    TEST_ASSERT_TRUE(elsewhere != p);
    OK(cuMemAllocAsync(&again, STEP, own));
    TEST_ASSERT_EQUAL_UINT64(p, again);
    gate_open(&gate);
    OK(cuMemFreeAsync(again, own));
    OK(cuMemFreeAsync(elsewhere, other));
    OK(cuStreamSynchronize(own));
    OK(cuStreamSynchronize(other));
    TEST_ASSERT_EQUAL_UINT64(0, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    OK(cuStreamDestroy(own));
    OK(cuStreamDestroy(other));
    gate_end(&gate);
}

static void test_the_two_kinds_of_free_take_both_kinds_of_memory(void)
{
    size_t before = sim_free();
    CUdeviceptr pooled, native;

    OK(cuMemAllocAsync(&pooled, 4096, NULL));
    OK(cuMemAlloc(&native, 4096));
    OK(cuMemFree(pooled));
    OK(cuMemFreeAsync(native, NULL));
    IS(1, cuMemFreeAsync(native, NULL));
    IS(1, cuMemFree(pooled));
    OK(cuStreamSynchronize(NULL));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
}

static void test_a_native_block_freed_in_a_stream_lives_until_the_stream_comes_there(void)
{
    struct gate gate;
    CUdeviceptr p;
    size_t before = sim_free();

    gate_init(&gate);
    OK(cuMemAlloc(&p, 4 * MIB));
    gate_put(&gate, NULL);
    OK(cuMemFreeAsync(p, NULL));
    TEST_ASSERT_EQUAL_UINT64(4 * MIB, before - sim_free());
    gate_open(&gate);
    OK(cuStreamSynchronize(NULL));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
    gate_end(&gate);
}

static void test_own_pools_can_be_made_and_used(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                            .maxSize = 2 * STEP};
    CUmemAccess_flags flags;
    CUmemoryPool own, current;
    size_t before = sim_free();
    CUdeviceptr p, q, more;

    OK(cuMemPoolCreate(&own, &props));
    OK(cuDeviceSetMemPool(0, own));
    OK(cuDeviceGetMemPool(&current, 0));
    TEST_ASSERT_EQUAL_PTR(own, current);
    OK(cuMemAllocAsync(&p, STEP, NULL));
    OK(cuPointerGetAttribute(&current, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
    TEST_ASSERT_EQUAL_PTR(own, current);
    OK(cuMemAllocFromPoolAsync(&q, STEP, own, NULL));
    IS(2, cuMemAllocFromPoolAsync(&more, 1, own, NULL));
    OK(cuMemPoolGetAccess(&flags, own, &props.location));
    TEST_ASSERT_EQUAL_INT(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, flags);
    OK(cuMemPoolDestroy(own));
    OK(cuDeviceGetMemPool(&current, 0));
    TEST_ASSERT_EQUAL_PTR(pool, current);
    OK(cuMemFreeAsync(p, NULL));
    OK(cuMemFreeAsync(q, NULL));
    OK(cuStreamSynchronize(NULL));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
    IS(1, cuMemPoolDestroy(own));
    IS(1, cuMemPoolDestroy(pool));
}

static void test_what_the_card_has_not_is_out_of_memory(void)
{
    CUdeviceptr p;

    IS(2, cuMemAllocAsync(&p, 2 * GIB, NULL));
    OK(cuMemAllocAsync(&p, 0, NULL)); /* success, and nothing */
    TEST_ASSERT_EQUAL_UINT64(0, p);
    OK(cuMemFreeAsync(p, NULL));
}

static void test_a_loop_of_alloc_and_free_reuses_one_place(void)
{
    size_t before = sim_free();
    struct gate gate;
    CUdeviceptr p;
    int i;

    gate_init(&gate);
    gate_put(&gate, NULL);
    for (i = 0; i < 50; i++) {
        OK(cuMemAllocAsync(&p, 100 * MIB, NULL));
        OK(cuMemFreeAsync(p, NULL));
    }
    TEST_ASSERT_EQUAL_UINT64(128 * MIB, before - sim_free());
    gate_open(&gate);
    OK(cuStreamSynchronize(NULL));
    gate_end(&gate);
}

int main(void)
{
    sim_machine("1x1G");
    UNITY_BEGIN();
    RUN_TEST(test_a_pool_takes_memory_in_steps_and_gives_it_back_at_a_synchronization);
    RUN_TEST(test_the_threshold_keeps_memory_and_trimming_returns_it);
    RUN_TEST(test_freed_memory_is_taken_again_at_once_in_its_stream_only);
    RUN_TEST(test_the_two_kinds_of_free_take_both_kinds_of_memory);
    RUN_TEST(test_a_native_block_freed_in_a_stream_lives_until_the_stream_comes_there);
    RUN_TEST(test_own_pools_can_be_made_and_used);
    RUN_TEST(test_what_the_card_has_not_is_out_of_memory);
    RUN_TEST(test_a_loop_of_alloc_and_free_reuses_one_place);
    return UNITY_END();
}
