/* simgpu_pool: stream-ordered memory on the simulated driver. */
#include "tests/unit/simgpu/simgpu_support.h"

#define STEP (32 * MIB)

CUresult cuStreamGetDevice_ptsz(CUstream stream, CUdevice *device); /* cuda.h only renames to it */

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
    TEST_ASSERT_EQUAL_UINT64(1000 + MIB, attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)); /* as asked */
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
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    size_t before = sim_free();
    CUdeviceptr pooled, native;
    CUmemoryPool own;

    OK(cuMemPoolCreate(&own, &properties));
    OK(cuMemAllocFromPoolAsync(&pooled, 100000, own, NULL));
    OK(cuMemAlloc(&native, 4096));
    OK(cuMemFree(pooled));
    TEST_ASSERT_EQUAL_UINT64(100000, attribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)); /* as on a card */
    TEST_ASSERT_EQUAL_UINT64(0, attribute(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    OK(cuMemPoolDestroy(own));
    OK(cuMemFreeAsync(native, NULL));
    IS(1, cuMemFreeAsync(native, NULL));
    IS(1, cuMemFree(pooled));
    OK(cuStreamSynchronize(NULL));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
}

static void test_a_native_block_freed_in_a_stream_lives_until_the_stream_reaches_the_free(void)
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

static void test_more_than_the_card_has_is_out_of_memory(void)
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

static void test_a_trim_leaves_what_a_stream_has_not_reached(void)
{
    struct gate gate;
    CUstream waiting, idle;
    CUdeviceptr p, q;

    gate_init(&gate);
    OK(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&idle, CU_STREAM_NON_BLOCKING));
    gate_put(&gate, waiting);
    OK(cuMemAllocAsync(&p, 64 * MIB, waiting));
    OK(cuMemAllocAsync(&q, STEP, idle));
    OK(cuMemFreeAsync(p, waiting));
    TEST_ASSERT_EQUAL_UINT64(STEP, attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    OK(cuMemPoolTrimTo(pool, 0));
    TEST_ASSERT_EQUAL_UINT64(64 * MIB + STEP, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    OK(cuMemFreeAsync(q, idle));
    OK(cuMemPoolTrimTo(pool, 0));
    TEST_ASSERT_EQUAL_UINT64(64 * MIB, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    gate_open(&gate);
    OK(cuStreamSynchronize(waiting));
    TEST_ASSERT_EQUAL_UINT64(0, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    OK(cuStreamDestroy(waiting));
    OK(cuStreamDestroy(idle));
    gate_end(&gate);
}

static void test_a_synchronization_with_one_stream_gives_back_what_that_stream_freed(void)
{
    CUstream one, other;
    CUevent event;
    CUdeviceptr p, q;

    OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAllocAsync(&p, STEP, one));
    OK(cuMemAllocAsync(&q, STEP, other));
    OK(cuMemFreeAsync(p, one));
    OK(cuMemFreeAsync(q, other));
    OK(cuStreamSynchronize(one));
    TEST_ASSERT_EQUAL_UINT64(STEP, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    OK(cuEventRecord(event, one));
    OK(cuEventSynchronize(event));
    TEST_ASSERT_EQUAL_UINT64(STEP, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    OK(cuEventRecord(event, other));
    OK(cuEventSynchronize(event));
    TEST_ASSERT_EQUAL_UINT64(0, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(one));
    OK(cuStreamDestroy(other));
}

static void test_another_stream_takes_what_is_done_without_a_synchronization(void)
{
    CUstream one, other;
    CUdeviceptr p, q;

    OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&p, STEP, one));
    OK(cuMemFreeAsync(p, one));
    OK(cuMemAllocAsync(&q, STEP, other));
    TEST_ASSERT_EQUAL_UINT64(p, q);
    OK(cuMemFreeAsync(q, other));
    OK(cuStreamSynchronize(other));
    OK(cuStreamDestroy(one));
    OK(cuStreamDestroy(other));
}

static void test_neighbours_freed_in_one_stream_are_one_place_behind_its_work(void)
{
    struct gate gate;
    CUstream stream;
    CUdeviceptr part[4], whole;
    int i;

    gate_init(&gate);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (i = 0; i < 4; i++)
        OK(cuMemAllocAsync(&part[i], STEP / 4, stream));
    gate_put(&gate, stream);
    OK(cuMemFreeAsync(part[2], stream));
    OK(cuMemFreeAsync(part[0], stream));
    OK(cuMemFreeAsync(part[1], stream));
    OK(cuMemAllocAsync(&whole, 3 * STEP / 4, stream));
    TEST_ASSERT_EQUAL_UINT64(part[0], whole);
    TEST_ASSERT_EQUAL_UINT64(STEP, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    gate_open(&gate);
    OK(cuMemFreeAsync(whole, stream));
    OK(cuMemFreeAsync(part[3], stream));
    OK(cuStreamSynchronize(stream));
    TEST_ASSERT_EQUAL_UINT64(0, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    OK(cuStreamDestroy(stream));
    gate_end(&gate);
}

#define PIECE  (6 * MIB)
#define PIECES 256
#define AROUND 10 /* so many pieces reach into a second chunk */

/* Takes pieces until the card has no more; each begins and ends with its number. */
static int fill_the_card(CUdeviceptr *pieces)
{
    int count = 0;

    while (cuMemAllocAsync(&pieces[count], PIECE, NULL) == CUDA_SUCCESS) {
        OK(cuMemsetD8Async(pieces[count], (unsigned char)count, 1, NULL));
        OK(cuMemsetD8Async(pieces[count] + PIECE - 1, (unsigned char)count, 1, NULL));
        TEST_ASSERT_LESS_THAN_INT(PIECES, ++count);
    }
    TEST_ASSERT_GREATER_THAN_INT(10, count);
    TEST_ASSERT_TRUE(sim_free() < STEP);
    return count;
}

static void expect_bytes(CUdeviceptr p, int number)
{
    unsigned char bytes[2] = {0, 0};

    OK(cuMemcpyDtoH(&bytes[0], p, 1));
    OK(cuMemcpyDtoH(&bytes[1], p + PIECE - 1, 1));
    TEST_ASSERT_EQUAL_UINT8((unsigned char)number, bytes[0]);
    TEST_ASSERT_EQUAL_UINT8((unsigned char)number, bytes[1]);
}

static void test_a_pool_joins_no_gaps_but_gives_back_chunks_without_blocks(void)
{
    CUdeviceptr pieces[PIECES], large, plain;
    size_t before = sim_free();
    int count = fill_the_card(pieces), i;

    for (i = 0; i < count; i += 2)
        OK(cuMemFreeAsync(pieces[i], NULL));
    OK(cuStreamSynchronize(NULL));
    IS(2, cuMemAllocAsync(&large, 2 * PIECE, NULL)); /* half of the memory is idle, in gaps of a piece */
    for (i = 1; i < AROUND; i += 2)
        OK(cuMemFreeAsync(pieces[i], NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemAlloc(&plain, STEP)); /* the first chunk */
    for (i = AROUND + 1; i < count; i += 2)
        expect_bytes(pieces[i], i);
    for (i = AROUND + 1; i < count; i += 2)
        OK(cuMemFreeAsync(pieces[i], NULL));
    OK(cuMemFree(plain));
    OK(cuStreamSynchronize(NULL));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
    TEST_ASSERT_EQUAL_UINT64(0, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
}

static void test_a_full_card_waits_for_no_stream(void)
{
    CUdeviceptr p, plain;

    OK(cuMemAllocAsync(&p, STEP, NULL));
    OK(cuMemFreeAsync(p, NULL));
    IS(2, cuMemAlloc(&plain, sim_free() + STEP));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemAlloc(&plain, sim_free()));
    OK(cuMemFree(plain));
}

static void *without_a_context(void *data)
{
    CUstream stream = data;
    CUdeviceptr p = 0, q = 0, none;
    CUdevice device = -1;
    CUcontext current = (CUcontext)1;

    OK(cuCtxGetCurrent(&current));
    TEST_ASSERT_NULL(current);
    OK(cuMemAllocAsync(&p, MIB, stream));
    OK(cuMemAllocFromPoolAsync(&q, MIB, pool, stream));
    OK(cuMemFreeAsync(q, stream));
    OK(cuMemFreeAsync(p, stream));
    IS(201, cuMemAllocAsync(&none, MIB, NULL));
    IS(201, cuMemAllocAsync(&none, MIB, CU_STREAM_PER_THREAD));
    OK(cuStreamGetDevice(stream, &device));
    TEST_ASSERT_EQUAL_INT(0, device);
    OK(cuStreamGetDevice_ptsz(stream, &device));
    IS(201, cuStreamGetDevice(NULL, &device));
    return NULL;
}

static void test_a_real_stream_is_enough_on_a_thread_without_a_context(void)
{
    CUstream stream;
    pthread_t thread;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, without_a_context, stream));
    pthread_join(thread, NULL);
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy(stream));
}

int main(void)
{
    sim_machine("1x1G");
    UNITY_BEGIN();
    RUN_TEST(test_a_pool_takes_memory_in_steps_and_gives_it_back_at_a_synchronization);
    RUN_TEST(test_the_threshold_keeps_memory_and_trimming_returns_it);
    RUN_TEST(test_freed_memory_is_taken_again_at_once_in_its_stream_only);
    RUN_TEST(test_the_two_kinds_of_free_take_both_kinds_of_memory);
    RUN_TEST(test_a_native_block_freed_in_a_stream_lives_until_the_stream_reaches_the_free);
    RUN_TEST(test_own_pools_can_be_made_and_used);
    RUN_TEST(test_more_than_the_card_has_is_out_of_memory);
    RUN_TEST(test_a_loop_of_alloc_and_free_reuses_one_place);
    RUN_TEST(test_a_trim_leaves_what_a_stream_has_not_reached);
    RUN_TEST(test_a_synchronization_with_one_stream_gives_back_what_that_stream_freed);
    RUN_TEST(test_another_stream_takes_what_is_done_without_a_synchronization);
    RUN_TEST(test_neighbours_freed_in_one_stream_are_one_place_behind_its_work);
    RUN_TEST(test_a_pool_joins_no_gaps_but_gives_back_chunks_without_blocks);
    RUN_TEST(test_a_full_card_waits_for_no_stream);
    RUN_TEST(test_a_real_stream_is_enough_on_a_thread_without_a_context);
    return UNITY_END();
}
