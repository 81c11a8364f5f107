/* simgpu_alloc: cuMemAlloc, its variants, host memory and arrays on the simulated driver. */
#include "tests/unit/simgpu/simgpu_support.h"

#include <string.h>

void setUp(void)
{
    sim_begin();
}

void tearDown(void)
{
    sim_end();
}

static void test_blocks_are_aligned_to_512(void)
{
    CUdeviceptr p[16];
    int i;

    for (i = 0; i < 16; i++) {
        OK(cuMemAlloc(&p[i], (size_t)(1 + i * 1000)));
        TEST_ASSERT_EQUAL_UINT64(0, p[i] % 512);
    }
    for (i = 0; i < 16; i++)
        OK(cuMemFree(p[i]));
}

static void test_bad_sizes_and_pointers_are_refused_as_by_the_driver(void)
{
    CUdeviceptr p, q = 0;
    size_t before = sim_free();

    IS(1, cuMemAlloc(&p, 0));
    IS(1, cuMemAlloc(NULL, 4096));
    IS(2, cuMemAlloc(&q, (size_t)1 << 50));
    TEST_ASSERT_EQUAL_UINT64(0, q);
    OK(cuMemFree(0));
    OK(cuMemAlloc(&p, 5000000));
    IS(1, cuMemFree(p + 512));
    IS(1, cuMemFree((CUdeviceptr)(uintptr_t)&p));
    OK(cuMemFree(p));
    IS(1, cuMemFree(p));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
}

static void test_the_range_of_a_block_is_exactly_what_was_asked_for(void)
{
    CUdeviceptr p, base;
    size_t size;

    OK(cuMemAlloc(&p, 5000000));
    OK(cuMemGetAddressRange(&base, &size, p + 4999999));
    TEST_ASSERT_EQUAL_UINT64(p, base);
    TEST_ASSERT_EQUAL_UINT64(5000000, size);
    OK(cuMemGetAddressRange(NULL, NULL, p));
    OK(cuMemFree(p));
    IS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, p));
}

static void test_memory_is_charged_by_granules_and_slabs(void)
{
    CUdeviceptr large, middle, small[3];
    size_t before = sim_free();
    int i;

    OK(cuMemAlloc(&large, MIB + 1));
    TEST_ASSERT_EQUAL_UINT64(2 * MIB, before - sim_free());
    OK(cuMemAlloc(&middle, MIB));
    for (i = 0; i < 3; i++)
        OK(cuMemAlloc(&small[i], 100 * 1024));
    TEST_ASSERT_EQUAL_UINT64(4 * MIB, before - sim_free());
    for (i = 0; i < 3; i++)
        OK(cuMemFree(small[i]));
    TEST_ASSERT_EQUAL_UINT64(4 * MIB, before - sim_free());
    OK(cuMemFree(middle));
    TEST_ASSERT_EQUAL_UINT64(2 * MIB, before - sim_free());
    OK(cuMemFree(large));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
}

static void test_what_does_not_fit_the_card_is_out_of_memory(void)
{
    CUdeviceptr all, more;
    size_t bytes = sim_free() / (2 * MIB) * (2 * MIB);

    IS(2, cuMemAlloc(&all, bytes + 2 * MIB));
    OK(cuMemAlloc(&all, bytes));
    IS(2, cuMemAlloc(&more, 1));
    OK(cuMemFree(all));
    OK(cuMemAlloc(&more, 1));
    OK(cuMemFree(more));
}

static void test_fresh_memory_reads_as_zero_also_after_a_free(void)
{
    static unsigned char seen[4096], dirty[4096];
    CUdeviceptr keep, p;
    int round;
    size_t i;

    memset(dirty, 0xa5, sizeof(dirty));
    OK(cuMemAlloc(&keep, 4096));
    for (round = 0; round < 3; round++) {
        OK(cuMemAlloc(&p, sizeof(seen)));
        OK(cuMemcpyDtoH(seen, p, sizeof(seen)));
        for (i = 0; i < sizeof(seen); i++)
            TEST_ASSERT_EQUAL_HEX8(0, seen[i]);
        OK(cuMemcpyHtoD(p, dirty, sizeof(dirty)));
        OK(cuMemFree(p));
    }
    OK(cuMemFree(keep));
}

static void test_free_waits_for_all_streams(void)
{
    struct gate gate;
    CUstream stream;
    CUdeviceptr p;

    gate_init(&gate);
    OK(cuMemAlloc(&p, 4096));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    gate_put(&gate, stream);
    gate_open_soon(&gate);
    OK(cuMemFree(p));
    TEST_ASSERT_TRUE(gate_passed(&gate));
    OK(cuStreamDestroy(stream));
    gate_end(&gate);
}

static void test_an_allocation_waits_for_nothing(void)
{
    struct gate gate;
    CUdeviceptr p;

    gate_init(&gate);
    gate_put(&gate, NULL);
    OK(cuMemAlloc(&p, 4096));
    TEST_ASSERT_FALSE(gate_passed(&gate));
    gate_open(&gate);
    OK(cuMemFree(p));
    gate_end(&gate);
}

static void *free_it(void *data)
{
    CUdeviceptr *p = data;

    return (void *)(uintptr_t)cuMemFree(*p);
}

static void test_a_thread_without_a_context_can_free(void)
{
    pthread_t thread;
    CUdeviceptr p;
    void *result;

    OK(cuMemAlloc(&p, 4096));
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, free_it, &p));
    pthread_join(thread, &result);
    TEST_ASSERT_NULL(result);
    IS(1, cuMemFree(p));
}

static void test_a_pitch_is_a_multiple_of_512(void)
{
    CUdeviceptr p;
    size_t pitch, size;

    OK(cuMemAllocPitch(&p, &pitch, 700, 10, 4));
    TEST_ASSERT_EQUAL_UINT64(1024, pitch);
    OK(cuMemGetAddressRange(NULL, &size, p));
    TEST_ASSERT_EQUAL_UINT64(10240, size);
    OK(cuMemFree(p));
    IS(1, cuMemAllocPitch(&p, &pitch, 700, 10, 3));
    IS(1, cuMemAllocPitch(&p, &pitch, SIZE_MAX / 2, 1000, 4));
}

static void test_managed_memory_is_charged_to_no_card_and_usable_from_the_host(void)
{
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    size_t before = sim_free();
    CUdeviceptr p;

    OK(cuMemAllocManaged(&p, 3 * MIB, CU_MEM_ATTACH_GLOBAL));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
    memset((void *)(uintptr_t)p, 7, 3 * MIB);
    OK(cuMemPrefetchAsync(p, 3 * MIB, here, 0, NULL));
    OK(cuMemAdvise(p, 3 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    OK(cuMemFree(p));
    IS(1, cuMemAllocManaged(&p, 4096, 0));
}

static void test_host_memory_is_charged_to_no_card(void)
{
    size_t before = sim_free();
    unsigned int flags;
    CUdeviceptr device;
    void *host;

    OK(cuMemHostAlloc(&host, 5 * MIB, CU_MEMHOSTALLOC_PORTABLE));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
    memset(host, 1, 5 * MIB);
    OK(cuMemHostGetDevicePointer(&device, host, 0));
    OK(cuMemHostGetFlags(&flags, host));
    TEST_ASSERT_TRUE(flags & CU_MEMHOSTALLOC_PORTABLE);
    IS(1, cuMemFree(device));
    OK(cuMemFreeHost(host));
    IS(1, cuMemFreeHost(host));
    OK(cuMemAllocHost(&host, 100));
    OK(cuMemFreeHost(host));
    OK(cuMemHostAlloc(&host, 0, 0));
    TEST_ASSERT_NULL(host);
    OK(cuMemFreeHost(NULL));
}

static void test_own_memory_can_be_registered_once(void)
{
    static char own[8192];
    CUdeviceptr device;

    OK(cuMemHostRegister(own, sizeof(own), 0));
    IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(own + 4096, 4096, 0));
    OK(cuMemHostGetDevicePointer(&device, own + 100, 0));
    OK(cuMemHostUnregister(own));
    IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(own));
}

static void test_arrays_are_charged_and_hold_what_is_copied(void)
{
    CUDA_ARRAY_DESCRIPTOR desc = {
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_ARRAY_DESCRIPTOR seen;
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .dstMemoryType = CU_MEMORYTYPE_ARRAY};
    static float rows[4][8], back[4][8];
    size_t before = sim_free();
    CUarray array;
    int i;

    for (i = 0; i < 32; i++)
        rows[i / 8][i % 8] = (float)i;
    OK(cuArrayCreate(&array, &desc));
    TEST_ASSERT_EQUAL_UINT64(4 * MIB, before - sim_free());
    OK(cuArrayGetDescriptor(&seen, array));
    TEST_ASSERT_EQUAL_UINT64(1024, seen.Width);
    copy.srcHost = rows;
    copy.srcPitch = sizeof(rows[0]);
    copy.dstArray = array;
    copy.dstXInBytes = 128;
    copy.dstY = 7;
    copy.WidthInBytes = sizeof(rows[0]);
    copy.Height = 4;
    OK(cuMemcpy2D(&copy));
    copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                           .srcArray = array,
                           .srcXInBytes = 128,
                           .srcY = 7,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = back,
                           .dstPitch = sizeof(back[0]),
                           .WidthInBytes = sizeof(back[0]),
                           .Height = 4};
    OK(cuMemcpy2D(&copy));
    TEST_ASSERT_EQUAL_MEMORY(rows, back, sizeof(rows));
    copy.srcY = 1021;
    IS(1, cuMemcpy2D(&copy));
    OK(cuArrayDestroy(array));
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuArrayDestroy(array));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
}

static void test_mipmapped_arrays_have_levels(void)
{
    CUDA_ARRAY3D_DESCRIPTOR desc = {
        .Width = 2048, .Height = 1024, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4};
    CUDA_ARRAY3D_DESCRIPTOR seen;
    size_t before = sim_free();
    CUmipmappedArray mipmap;
    CUarray level;

    OK(cuMipmappedArrayCreate(&mipmap, &desc, 3));
    TEST_ASSERT_EQUAL_UINT64(12 * MIB, before - sim_free());
    OK(cuMipmappedArrayGetLevel(&level, mipmap, 2));
    OK(cuArray3DGetDescriptor(&seen, level));
    TEST_ASSERT_EQUAL_UINT64(512, seen.Width);
    IS(1, cuMipmappedArrayGetLevel(&level, mipmap, 3));
    OK(cuArrayDestroy(level)); /* does nothing: it is destroyed with the mipmapped array */
    OK(cuArray3DGetDescriptor(&seen, level));
    OK(cuMipmappedArrayDestroy(mipmap));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
}

static void test_attributes_of_a_native_block(void)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    CUcontext context, current;
    CUmemorytype type;
    unsigned long long first, second;
    unsigned int on = 1;
    size_t size = 0;
    int ordinal;
    int legacy = 0;
    void *data[] = {&context, &type, &size, &ordinal};
    CUdeviceptr p;

    OK(cuCtxGetCurrent(&current));
    OK(cuMemAlloc(&p, 5000000));
    OK(cuPointerGetAttributes(4, attributes, data, p + 17));
    TEST_ASSERT_EQUAL_PTR(current, context);
    TEST_ASSERT_EQUAL_INT(CU_MEMORYTYPE_DEVICE, type);
    TEST_ASSERT_EQUAL_UINT64(5000000, size);
    TEST_ASSERT_EQUAL_INT(0, ordinal);
    OK(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
    TEST_ASSERT_TRUE(legacy);
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    OK(cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    OK(cuMemFree(p));
    IS(1, cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    OK(cuMemAlloc(&p, 5000000));
    OK(cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    TEST_ASSERT_TRUE(first != second);
    OK(cuMemFree(p));
}

static void test_the_attributes_of_an_unknown_pointer_are_nothing(void)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    CUcontext context = (CUcontext)&attributes;
    int type = 7;
    void *data[] = {&context, &type};

    OK(cuPointerGetAttributes(2, attributes, data, (CUdeviceptr)(uintptr_t)&type));
    TEST_ASSERT_NULL(context);
    TEST_ASSERT_EQUAL_INT(0, type);
}

static void test_many_blocks_live_side_by_side(void)
{
    enum { COUNT = 3000 };
    static CUdeviceptr p[COUNT];
    size_t before = sim_free();
    CUdeviceptr base;
    size_t size;
    int i;

    for (i = 0; i < COUNT; i++)
        OK(cuMemAlloc(&p[i], (size_t)(1 + (i * 7919) % 20000)));
    for (i = 0; i < COUNT; i += 2)
        OK(cuMemFree(p[i]));
    for (i = 1; i < COUNT; i += 2) {
        OK(cuMemGetAddressRange(&base, &size, p[i]));
        TEST_ASSERT_EQUAL_UINT64(p[i], base);
        TEST_ASSERT_EQUAL_UINT64((size_t)(1 + (i * 7919) % 20000), size);
        OK(cuMemFree(p[i]));
    }
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
}

int main(void)
{
    sim_machine("1x1G");
    UNITY_BEGIN();
    RUN_TEST(test_blocks_are_aligned_to_512);
    RUN_TEST(test_bad_sizes_and_pointers_are_refused_as_by_the_driver);
    RUN_TEST(test_the_range_of_a_block_is_exactly_what_was_asked_for);
    RUN_TEST(test_memory_is_charged_by_granules_and_slabs);
    RUN_TEST(test_what_does_not_fit_the_card_is_out_of_memory);
    RUN_TEST(test_fresh_memory_reads_as_zero_also_after_a_free);
    RUN_TEST(test_free_waits_for_all_streams);
    RUN_TEST(test_an_allocation_waits_for_nothing);
    RUN_TEST(test_a_thread_without_a_context_can_free);
    RUN_TEST(test_a_pitch_is_a_multiple_of_512);
    RUN_TEST(test_managed_memory_is_charged_to_no_card_and_usable_from_the_host);
    RUN_TEST(test_host_memory_is_charged_to_no_card);
    RUN_TEST(test_own_memory_can_be_registered_once);
    RUN_TEST(test_arrays_are_charged_and_hold_what_is_copied);
    RUN_TEST(test_mipmapped_arrays_have_levels);
    RUN_TEST(test_attributes_of_a_native_block);
    RUN_TEST(test_the_attributes_of_an_unknown_pointer_are_nothing);
    RUN_TEST(test_many_blocks_live_side_by_side);
    return UNITY_END();
}
