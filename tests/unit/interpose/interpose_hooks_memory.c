/* Hooks on memory and arrays: what each asks for, what it passes on, and what it tells afterwards
 * (hooks_fake.h). */
#include "interpose/hook/hooks.h"

#include <string.h>
#include <unity.h>

#include "hooks_fake.h"
#include "interpose/account/drivers_pools.h"

#define MIB (UINT64_C(1) << 20)

void setUp(void)
{
    hooks_fake_setup();
}

void tearDown(void) {}

/* ---- every way to ask ---- */

static const CUDA_ARRAY_DESCRIPTOR flat = {
    .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
static const CUDA_ARRAY3D_DESCRIPTOR deep = {
    .Width = 1024, .Height = 1024, .Depth = 2, .Format = CU_AD_FORMAT_HALF, .NumChannels = 1};
static const CUmemAllocationProp on_card = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = HOOKS_FAKE_CARD}};
static CUdeviceptr out;
static size_t pitch;

static CUresult ask_linear(void)
{
    return cuMemAlloc_v2(&out, 4 * MIB);
}

static CUresult ask_pitch(void)
{
    return cuMemAllocPitch_v2(&out, &pitch, 1000, 4096, 4);
}

static CUresult ask_managed(void)
{
    return cuMemAllocManaged(&out, 4 * MIB, 1);
}

static CUresult ask_async(void)
{
    return cuMemAllocAsync(&out, 4 * MIB, NULL);
}

static CUresult ask_async_ptsz(void)
{
    return cuMemAllocAsync_ptsz(&out, 4 * MIB, NULL);
}

static CUresult ask_pool(void)
{
    return cuMemAllocFromPoolAsync(&out, 4 * MIB, (CUmemoryPool)HOOKS_FAKE_KEY, (CUstream)5);
}

static CUresult ask_pool_ptsz(void)
{
    return cuMemAllocFromPoolAsync_ptsz(&out, 4 * MIB, (CUmemoryPool)HOOKS_FAKE_KEY, (CUstream)5);
}

static CUresult ask_handle(void)
{
    return cuMemCreate((CUmemGenericAllocationHandle *)&out, 4 * MIB, &on_card, 0);
}

static CUresult ask_array(void)
{
    return cuArrayCreate_v2((CUarray *)&out, &flat);
}

static CUresult ask_array3d(void)
{
    return cuArray3DCreate_v2((CUarray *)&out, &deep);
}

static CUresult ask_mipmap(void)
{
    return cuMipmappedArrayCreate((CUmipmappedArray *)&out, &deep, 3);
}

static const struct way {
    CUresult (*ask)(void);
    enum blocks_kind kind;
    enum recording_kind seen;
    uint64_t bytes;
    uint64_t retried; /* bytes that making room is for */
    CUdevice card;    /* of the retry: known beforehand, or the current one */
    bool clears;      /* *address is 0 after a refusal, as the driver leaves it */
} ways[] = {
    {ask_linear, BLOCKS_LINEAR, RECORDING_MALLOC, 4 * MIB, 4 * MIB, ROUTE_CURRENT, true},
    {ask_pitch, BLOCKS_LINEAR, RECORDING_MALLOC, 4 * MIB, 4 * MIB, ROUTE_CURRENT, true},
    {ask_managed, BLOCKS_MANAGED, RECORDING_MANAGED, 4 * MIB, 4 * MIB, ROUTE_CURRENT, false},
    {ask_async, BLOCKS_ASYNC, RECORDING_ASYNC, 4 * MIB, 4 * MIB, HOOKS_FAKE_CARD, true},
    {ask_async_ptsz, BLOCKS_ASYNC, RECORDING_ASYNC, 4 * MIB, 4 * MIB, HOOKS_FAKE_CARD, true},
    {ask_pool, BLOCKS_ASYNC, RECORDING_ASYNC, 4 * MIB, 4 * MIB, HOOKS_FAKE_CARD, true},
    {ask_pool_ptsz, BLOCKS_ASYNC, RECORDING_ASYNC, 4 * MIB, 4 * MIB, HOOKS_FAKE_CARD, true},
    {ask_handle, BLOCKS_HANDLE, RECORDING_VMM, 4 * MIB, 4 * MIB, HOOKS_FAKE_CARD, false},
    {ask_array, BLOCKS_ARRAY, RECORDING_ARRAY, 4 * MIB, 4 * MIB, ROUTE_CURRENT, false},
    {ask_array3d, BLOCKS_ARRAY, RECORDING_ARRAY, 4 * MIB, 4 * MIB, ROUTE_CURRENT, false},
    {ask_mipmap, BLOCKS_MIPMAP, RECORDING_ARRAY, 8 * MIB, 4 * MIB, ROUTE_CURRENT, false},
};
#define EACH_WAY(way) for (const struct way *way = ways; way < ways + sizeof(ways) / sizeof(*ways); way++)

static void begin(void)
{
    memset(&hooks_got, 0, sizeof(hooks_got));
    out = 99;
}

static void test_each_request_is_asked_for_and_settled_with_what_the_driver_gave(void)
{
    EACH_WAY(way)
    {
        begin();
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, way->ask());
        TEST_ASSERT_EQUAL_UINT64(HOOKS_FAKE_KEY, out);
        TEST_ASSERT_EQUAL_INT(1, hooks_got.enters);
        TEST_ASSERT_EQUAL_INT(way->kind, hooks_got.kind);
        TEST_ASSERT_EQUAL_UINT64(way->bytes, hooks_got.bytes);
        TEST_ASSERT_EQUAL_INT(1, hooks_got.leaves);
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, hooks_got.left_with);
        TEST_ASSERT_EQUAL_UINT64(HOOKS_FAKE_KEY, hooks_got.left_key);
        TEST_ASSERT_EQUAL_INT(1, hooks_got.notes);
        TEST_ASSERT_EQUAL_INT(way->seen, hooks_got.seen_kind);
        TEST_ASSERT_EQUAL_UINT64(HOOKS_FAKE_KEY, hooks_got.seen_address);
        TEST_ASSERT_EQUAL_UINT64(way->bytes, hooks_got.seen_bytes);
        TEST_ASSERT_EQUAL_INT(HOOKS_FAKE_CARD, hooks_got.seen_card);
    }
}

static void test_a_refused_request_does_not_reach_the_driver(void)
{
    hooks_fake.refuse = CUDA_ERROR_OUT_OF_MEMORY;
    EACH_WAY(way)
    {
        begin();
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, way->ask());
        TEST_ASSERT_EQUAL_INT(0, hooks_got.calls + hooks_got.leaves + hooks_got.notes);
        TEST_ASSERT_EQUAL_UINT64(way->clears ? 0 : 99, out);
    }
    TEST_ASSERT_EQUAL_UINT64(1024, pitch);
    hooks_fake.refuse = CUDA_ERROR_INVALID_CONTEXT;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_CONTEXT, ask_pitch());
    TEST_ASSERT_EQUAL_UINT64(99, out);
    hooks_fake.refuse = CUDA_ERROR_OUT_OF_MEMORY;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(NULL, 1)); /* the driver reports NULL */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch_v2(NULL, NULL, 1, 1, 4));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(NULL, 1, NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(NULL, 1, NULL, NULL));
}

static void test_a_full_card_is_tried_again_after_room_was_made(void)
{
    EACH_WAY(way)
    {
        begin();
        hooks_fake.full = 2;
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, way->ask());
        TEST_ASSERT_EQUAL_INT(3, hooks_got.calls);
        TEST_ASSERT_EQUAL_INT(2, hooks_got.retries);
        TEST_ASSERT_EQUAL_INT(way->card, hooks_got.attempt);
        TEST_ASSERT_EQUAL_UINT64(way->retried, hooks_got.attempt_bytes);
        TEST_ASSERT_EQUAL_INT(1, hooks_got.leaves);
    }
}

static void test_a_request_that_the_driver_refuses_is_settled_as_failed(void)
{
    hooks_fake.result = CUDA_ERROR_INVALID_VALUE;
    EACH_WAY(way)
    {
        begin();
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, way->ask());
        TEST_ASSERT_EQUAL_INT(1, hooks_got.leaves);
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, hooks_got.left_with);
        TEST_ASSERT_EQUAL_UINT64(0, hooks_got.left_key);
        TEST_ASSERT_EQUAL_UINT64(0, hooks_got.seen_address);
    }
}

static void test_the_stream_and_the_pool_of_a_request_are_passed_on(void)
{
    ask_async();
    TEST_ASSERT_EQUAL_PTR(NULL, hooks_got.stream);
    TEST_ASSERT_NULL(hooks_got.pool);
    ask_async_ptsz();
    TEST_ASSERT_EQUAL_PTR(CU_STREAM_PER_THREAD, hooks_got.stream);
    ask_pool();
    TEST_ASSERT_EQUAL_PTR(5, hooks_got.stream);
    TEST_ASSERT_EQUAL_PTR(HOOKS_FAKE_KEY, hooks_got.pool);
    hooks_fake.captures = true;
    begin();
    ask_async();
    TEST_ASSERT_EQUAL_INT(0, hooks_got.notes); /* it takes no memory, but adds a node */
}

static void test_memory_on_the_host_does_not_count(void)
{
    const CUmemAllocationProp on_host = {.location = {.type = CU_MEM_LOCATION_TYPE_HOST, .id = 7}};

    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS,
                          cuMemCreate((CUmemGenericAllocationHandle *)&out, 4 * MIB, &on_host, 0));
    TEST_ASSERT_EQUAL_UINT64(0, hooks_got.bytes);
    TEST_ASSERT_EQUAL_INT(0, hooks_got.notes);
    hooks_fake.full = 1;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY,
                          cuMemCreate((CUmemGenericAllocationHandle *)&out, 4 * MIB, &on_host, 0));
    TEST_ASSERT_EQUAL_INT(0, hooks_got.retries); /* the card has nothing to do with it */
    begin();
    ask_handle();
    TEST_ASSERT_EQUAL_INT(HOOKS_FAKE_CARD, hooks_got.ordinal);
    hooks_fake.result = CUDA_ERROR_INVALID_VALUE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(NULL, 4 * MIB, NULL, 0));
}

static void test_a_pooled_block_is_the_pools_alone(void)
{
    hooks_fake.pooled = true;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, ask_linear());
    TEST_ASSERT_EQUAL_INT(0, hooks_got.enters + hooks_got.calls);
    TEST_ASSERT_EQUAL_INT(1, hooks_got.notes);
    TEST_ASSERT_EQUAL_UINT64(HOOKS_FAKE_KEY, hooks_got.seen_address);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuMemFree_v2(HOOKS_FAKE_KEY));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuMemFreeAsync(HOOKS_FAKE_KEY, NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuMemFreeAsync_ptsz(HOOKS_FAKE_KEY, NULL));
    TEST_ASSERT_EQUAL_PTR(CU_STREAM_PER_THREAD, hooks_got.stream);
    TEST_ASSERT_EQUAL_INT(0, hooks_got.begins + hooks_got.calls);
    hooks_fake.result = CUDA_ERROR_OUT_OF_MEMORY;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, ask_linear());
    TEST_ASSERT_EQUAL_INT(0, hooks_got.notes);
}

static void test_only_cuMemFree_frees_at_once(void)
{
    begin();
    cuMemFree_v2(HOOKS_FAKE_KEY);
    TEST_ASSERT_EQUAL_INT(1, hooks_got.begins_at_once);
    begin();
    cuMemFreeAsync(HOOKS_FAKE_KEY, NULL);
    TEST_ASSERT_EQUAL_INT(0, hooks_got.begins_at_once);
}

/* ---- sizes ---- */

static uint64_t asked(CUarray_format format, unsigned int channels, size_t height, size_t depth,
                      unsigned int flags)
{
    const CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 1000,
                                       .Height = height,
                                       .Depth = depth,
                                       .Format = format,
                                       .NumChannels = channels,
                                       .Flags = flags};

    begin();
    cuArray3DCreate_v2((CUarray *)&out, &d);
    return hooks_got.bytes;
}

static void test_the_size_of_an_array_follows_from_its_description(void)
{
    TEST_ASSERT_EQUAL_UINT64(1000, asked(CU_AD_FORMAT_UNSIGNED_INT8, 1, 0, 0, 0)); /* one dimension */
    TEST_ASSERT_EQUAL_UINT64(20000, asked(CU_AD_FORMAT_SIGNED_INT8, 2, 10, 0, 0));
    TEST_ASSERT_EQUAL_UINT64(480000, asked(CU_AD_FORMAT_HALF, 4, 10, 6, 0));
    TEST_ASSERT_EQUAL_UINT64(2000, asked(CU_AD_FORMAT_UNSIGNED_INT16, 0, 1, 1, 0));
    TEST_ASSERT_EQUAL_UINT64(4000, asked(CU_AD_FORMAT_SIGNED_INT32, 1, 1, 1, 0));
    TEST_ASSERT_EQUAL_UINT64(4000, asked((CUarray_format)0x7fff, 1, 1, 1, 0)); /* never too low */
    TEST_ASSERT_EQUAL_UINT64(1000, asked(CU_AD_FORMAT_BC1_UNORM, 4, 1, 1, 0)); /* compressed */
    TEST_ASSERT_EQUAL_UINT64(1000, asked(CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 1, 1, 0));
    TEST_ASSERT_EQUAL_UINT64(0, asked(CU_AD_FORMAT_HALF, 1, 1, 1, CUDA_ARRAY3D_SPARSE));
    TEST_ASSERT_EQUAL_UINT64(0, asked(CU_AD_FORMAT_HALF, 1, 1, 1, CUDA_ARRAY3D_DEFERRED_MAPPING));
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, asked(CU_AD_FORMAT_FLOAT, 4, SIZE_MAX / 2, 2, 0));
    cuMipmappedArrayCreate((CUmipmappedArray *)&out, &deep, 1);
    TEST_ASSERT_EQUAL_UINT64(4 * MIB, hooks_got.bytes); /* no smaller levels */
    cuMipmappedArrayCreate((CUmipmappedArray *)&out, &deep, 2);
    TEST_ASSERT_EQUAL_UINT64(8 * MIB, hooks_got.bytes);
    cuArrayCreate_v2((CUarray *)&out, NULL);
    TEST_ASSERT_EQUAL_UINT64(0, hooks_got.bytes);
    cuArray3DCreate_v2((CUarray *)&out, NULL);
    TEST_ASSERT_EQUAL_UINT64(0, hooks_got.bytes);
}

static void test_a_row_of_pitched_memory_is_rounded_up(void)
{
    cuMemAllocPitch_v2(&out, &pitch, 512, 10, 4);
    TEST_ASSERT_EQUAL_UINT64(5120, hooks_got.bytes);
    cuMemAllocPitch_v2(&out, &pitch, 513, 10, 4);
    TEST_ASSERT_EQUAL_UINT64(10240, hooks_got.bytes);
    cuMemAllocPitch_v2(&out, &pitch, SIZE_MAX, 1, 4);
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, hooks_got.bytes);
    cuMemAllocPitch_v2(&out, &pitch, 512, SIZE_MAX / 2, 4);
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, hooks_got.bytes);
}

/* ---- every way to free ---- */

static CUresult free_linear(void)
{
    return cuMemFree_v2(HOOKS_FAKE_KEY);
}

static CUresult free_async(void)
{
    return cuMemFreeAsync(HOOKS_FAKE_KEY, (CUstream)5);
}

static CUresult free_async_ptsz(void)
{
    return cuMemFreeAsync_ptsz(HOOKS_FAKE_KEY, NULL);
}

static CUresult free_handle(void)
{
    return cuMemRelease(HOOKS_FAKE_KEY);
}

static CUresult free_array(void)
{
    return cuArrayDestroy((CUarray)HOOKS_FAKE_KEY);
}

static CUresult free_mipmap(void)
{
    return cuMipmappedArrayDestroy((CUmipmappedArray)HOOKS_FAKE_KEY);
}

static void test_each_free_is_told_with_the_drivers_answer(void)
{
    static const struct {
        CUresult (*free)(void);
        enum blocks_kind kind;
        enum recording_kind seen;
    } frees[] = {
        {free_linear, BLOCKS_LINEAR, RECORDING_MALLOC},    {free_async, BLOCKS_LINEAR, RECORDING_ASYNC},
        {free_async_ptsz, BLOCKS_LINEAR, RECORDING_ASYNC}, {free_handle, BLOCKS_HANDLE, RECORDING_VMM},
        {free_array, BLOCKS_ARRAY, RECORDING_ARRAY},       {free_mipmap, BLOCKS_MIPMAP, RECORDING_ARRAY},
    };

    for (size_t i = 0; i < 2 * sizeof(frees) / sizeof(*frees); i++) {
        hooks_fake.result = i % 2 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
        begin();
        TEST_ASSERT_EQUAL_INT(hooks_fake.result, frees[i / 2].free());
        TEST_ASSERT_EQUAL_INT(1, hooks_got.begins);
        TEST_ASSERT_EQUAL_INT(frees[i / 2].kind, hooks_got.kind);
        TEST_ASSERT_EQUAL_UINT64(HOOKS_FAKE_KEY, hooks_got.freed);
        TEST_ASSERT_EQUAL_INT(1, hooks_got.ends);
        TEST_ASSERT_EQUAL_INT(hooks_fake.result, hooks_got.freed_with);
        TEST_ASSERT_EQUAL_INT(frees[i / 2].seen, hooks_got.seen_kind);
        TEST_ASSERT_EQUAL_INT(i % 2 ? 2 : 1, hooks_got.notes); /* a refused one is taken back */
    }
    hooks_fake.captures = true;
    begin();
    free_async();
    TEST_ASSERT_EQUAL_INT(0, hooks_got.notes); /* it adds a node */
    TEST_ASSERT_EQUAL_INT(1, hooks_got.ends);
}

/* ---- the driver's own pools ---- */

static void expect_pool(CUmemLocationType type, CUmemAllocationType kind, int found, CUdevice card)
{
    CUmemLocation location = {.type = type, .id = HOOKS_FAKE_CARD};
    const CUmemPoolProps properties = {.allocType = kind, .location = location};
    CUmemoryPool pool;

    for (int i = 0; i < 3; i++) {
        begin();
        TEST_ASSERT_EQUAL_INT(hooks_fake.result, i == 0   ? cuMemPoolCreate(&pool, &properties)
                                                 : i == 1 ? cuMemGetDefaultMemPool(&pool, &location, kind)
                                                          : cuMemGetMemPool(&pool, &location, kind));
        TEST_ASSERT_EQUAL_INT(found, hooks_got.found);
        TEST_ASSERT_EQUAL_INT(card, hooks_got.found_card);
    }
}

static void test_the_place_of_a_pool_of_the_drivers_is_noted(void)
{
    expect_pool(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_PINNED, 1, HOOKS_FAKE_CARD);
    expect_pool(CU_MEM_LOCATION_TYPE_HOST, CU_MEM_ALLOCATION_TYPE_PINNED, 1, DRIVERS_POOLS_HOST);
    expect_pool(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_MANAGED, 1, HOOKS_FAKE_CARD);
    expect_pool(CU_MEM_LOCATION_TYPE_HOST, CU_MEM_ALLOCATION_TYPE_MANAGED, 0, 0); /* on the stream's card */
    hooks_fake.inactive = true;
    expect_pool(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_PINNED, 0, 0);
    hooks_fake.inactive = false;
    hooks_fake.result = CUDA_ERROR_INVALID_VALUE;
    expect_pool(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_PINNED, 0, 0);
    hooks_fake.result = CUDA_SUCCESS;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuMemPoolDestroy((CUmemoryPool)HOOKS_FAKE_KEY));
    TEST_ASSERT_EQUAL_INT(1 + 10, hooks_got.forgotten); /* before the driver's call and after it */
    TEST_ASSERT_EQUAL_INT(1, hooks_got.lends);          /* what it held is free now */
    TEST_ASSERT_EQUAL_INT(0, hooks_got.found);
    begin();
    hooks_fake.result = CUDA_ERROR_INVALID_VALUE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy((CUmemoryPool)HOOKS_FAKE_KEY));
    TEST_ASSERT_EQUAL_INT(1, hooks_got.found); /* it is there still */
    TEST_ASSERT_EQUAL_INT(HOOKS_FAKE_CARD, hooks_got.found_card);
    TEST_ASSERT_EQUAL_INT(1 + 10, hooks_got.forgotten);
}

static void test_another_current_pool_is_a_change_before_and_after_the_drivers_call(void)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = HOOKS_FAKE_CARD};
    CUmemoryPool pool = (CUmemoryPool)HOOKS_FAKE_KEY;

    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuDeviceSetMemPool(HOOKS_FAKE_CARD, pool));
    TEST_ASSERT_EQUAL_INT(1 + 10, hooks_got.changes);
    begin();
    hooks_fake.result = CUDA_ERROR_INVALID_VALUE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
    TEST_ASSERT_EQUAL_INT(1 + 10, hooks_got.changes);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_another_current_pool_is_a_change_before_and_after_the_drivers_call);
    RUN_TEST(test_each_request_is_asked_for_and_settled_with_what_the_driver_gave);
    RUN_TEST(test_a_refused_request_does_not_reach_the_driver);
    RUN_TEST(test_a_full_card_is_tried_again_after_room_was_made);
    RUN_TEST(test_a_request_that_the_driver_refuses_is_settled_as_failed);
    RUN_TEST(test_the_stream_and_the_pool_of_a_request_are_passed_on);
    RUN_TEST(test_memory_on_the_host_does_not_count);
    RUN_TEST(test_a_pooled_block_is_the_pools_alone);
    RUN_TEST(test_only_cuMemFree_frees_at_once);
    RUN_TEST(test_the_size_of_an_array_follows_from_its_description);
    RUN_TEST(test_a_row_of_pitched_memory_is_rounded_up);
    RUN_TEST(test_each_free_is_told_with_the_drivers_answer);
    RUN_TEST(test_the_place_of_a_pool_of_the_drivers_is_noted);
    return UNITY_END();
}
