/* simgpu_vmm: virtual memory management on the simulated driver, as measured on an H200. */
#include "tests/unit/simgpu/simgpu_support.h"

#include <sys/resource.h>
#include <unistd.h>

#define CHUNK (2 * MIB)

static const CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc read_write = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                           CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

void setUp(void)
{
    sim_begin();
}

void tearDown(void)
{
    sim_end();
}

static void test_the_granularity_is_2_mib_and_binds(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;
    size_t granularity;

    OK(cuMemGetAllocationGranularity(&granularity, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    TEST_ASSERT_EQUAL_UINT64(CHUNK, granularity);
    IS(1, cuMemCreate(&handle, MIB, &props, 0));
    IS(1, cuMemCreate(&handle, 0, &props, 0));
    IS(1, cuMemAddressReserve(&p, MIB, 0, 0, 0));
    IS(1, cuMemAddressReserve(&p, CHUNK, 3, 0, 0));
}

/* Each exportable chunk is a file of its own, and 1,024 files are the usual limit at first. */
static void test_exportable_memory_is_not_bounded_by_the_limit_of_open_files(void)
{
    CUmemAllocationProp exportable = props;
    CUmemGenericAllocationHandle handles[32];
    struct rlimit before, few;
    const int next = dup(0);

    TEST_ASSERT_EQUAL_INT(0, close(next));
    TEST_ASSERT_EQUAL_INT(0, getrlimit(RLIMIT_NOFILE, &before));
    few = before;
    few.rlim_cur = (rlim_t)next + 8;
    TEST_ASSERT_EQUAL_INT(0, setrlimit(RLIMIT_NOFILE, &few));
    exportable.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    for (unsigned i = 0; i < 32; i++)
        OK(cuMemCreate(&handles[i], CHUNK, &exportable, 0));
    for (unsigned i = 0; i < 32; i++)
        OK(cuMemRelease(handles[i]));
    TEST_ASSERT_EQUAL_INT(0, setrlimit(RLIMIT_NOFILE, &before));
}

static void test_memory_lives_until_neither_held_nor_mapped(void)
{
    CUmemGenericAllocationHandle handle;
    size_t before = sim_free();
    CUdeviceptr p;

    OK(cuMemAddressReserve(&p, 4 * CHUNK, 0, 0, 0));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
    OK(cuMemCreate(&handle, CHUNK, &props, 0));
    TEST_ASSERT_EQUAL_UINT64(CHUNK, before - sim_free());
    OK(cuMemMap(p, CHUNK, 0, handle, 0));
    OK(cuMemRelease(handle));
    IS(1, cuMemRelease(handle));
    TEST_ASSERT_EQUAL_UINT64(CHUNK, before - sim_free());
    IS(1, cuMemAddressFree(p, 4 * CHUNK));
    OK(cuMemUnmap(p, CHUNK));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
    IS(1, cuMemAddressFree(p, CHUNK));
    OK(cuMemAddressFree(p, 4 * CHUNK));
}

static void test_a_handle_is_mapped_whole_and_unmapped_whole(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;

    OK(cuMemAddressReserve(&p, 4 * CHUNK, 0, 0, 0));
    OK(cuMemCreate(&handle, 2 * CHUNK, &props, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(p, CHUNK, 0, handle, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(p, CHUNK, CHUNK, handle, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(p, 3 * CHUNK, 0, handle, 0));
    IS(1, cuMemMap(p + 3 * CHUNK, 2 * CHUNK, 0, handle, 0));
    OK(cuMemMap(p, 2 * CHUNK, 0, handle, 0));
    IS(1, cuMemMap(p, 2 * CHUNK, 0, handle, 0));
    IS(1, cuMemUnmap(p, CHUNK));
    IS(1, cuMemUnmap(p + CHUNK, 2 * CHUNK));
    OK(cuMemUnmap(p, 3 * CHUNK));
    OK(cuMemUnmap(p, 2 * CHUNK)); /* what is not mapped is no error to unmap */
    IS(1, cuMemUnmap(p, MIB));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(p, 4 * CHUNK));
}

static void test_one_handle_mapped_twice_is_the_same_memory(void)
{
    CUmemGenericAllocationHandle handle;
    unsigned int value = 0x12345678, seen = 0;
    CUdeviceptr p;

    OK(cuMemAddressReserve(&p, 2 * CHUNK, 0, 0, 0));
    OK(cuMemCreate(&handle, CHUNK, &props, 0));
    OK(cuMemMap(p, CHUNK, 0, handle, 0));
    OK(cuMemMap(p + CHUNK, CHUNK, 0, handle, 0));
    OK(cuMemSetAccess(p, 2 * CHUNK, &read_write, 1));
    OK(cuMemcpyHtoD(p + 4096, &value, sizeof(value)));
    OK(cuMemcpyDtoH(&seen, p + CHUNK + 4096, sizeof(seen)));
    TEST_ASSERT_EQUAL_HEX32(value, seen);
    OK(cuMemUnmap(p, 2 * CHUNK));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(p, 2 * CHUNK));
}

static void test_a_copy_may_cover_memory_stitched_from_many_handles(void)
{
    enum { COUNT = 4 };
    static unsigned char out[COUNT * CHUNK], back[COUNT * CHUNK];
    CUmemGenericAllocationHandle handles[COUNT];
    CUdeviceptr p;
    size_t i;

    for (i = 0; i < sizeof(out); i++)
        out[i] = (unsigned char)(i * 31 >> 8);
    OK(cuMemAddressReserve(&p, COUNT * CHUNK, 0, 0, 0));
    for (i = 0; i < COUNT; i++) {
        OK(cuMemCreate(&handles[i], CHUNK, &props, 0));
        OK(cuMemMap(p + (COUNT - 1 - i) * CHUNK, CHUNK, 0, handles[i], 0));
        OK(cuMemRelease(handles[i]));
    }
    IS(1, cuMemcpyHtoD(p, out, sizeof(out)));
    OK(cuMemSetAccess(p, COUNT * CHUNK, &read_write, 1));
    OK(cuMemcpyHtoD(p, out, sizeof(out)));
    OK(cuMemcpyDtoH(back, p, sizeof(back)));
    TEST_ASSERT_EQUAL_MEMORY(out, back, sizeof(out));
    OK(cuMemUnmap(p, COUNT * CHUNK));
    OK(cuMemAddressFree(p, COUNT * CHUNK));
}

static void test_unmap_waits_for_nothing(void)
{
    CUmemGenericAllocationHandle handle;
    struct gate gate;
    CUdeviceptr p;

    gate_init(&gate);
    OK(cuMemAddressReserve(&p, CHUNK, 0, 0, 0));
    OK(cuMemCreate(&handle, CHUNK, &props, 0));
    OK(cuMemMap(p, CHUNK, 0, handle, 0));
    gate_put(&gate, NULL);
    OK(cuMemUnmap(p, CHUNK));
    OK(cuMemRelease(handle));
    TEST_ASSERT_FALSE(gate_passed(&gate));
    gate_open(&gate);
    OK(cuCtxSynchronize());
    OK(cuMemAddressFree(p, CHUNK));
    gate_end(&gate);
}

/* write() to a pipe from an address that faults returns EFAULT instead of a signal. */
static bool readable(CUdeviceptr p)
{
    int pipes[2];
    ssize_t got;

    TEST_ASSERT_EQUAL_INT(0, pipe(pipes));
    got = write(pipes[1], (const void *)(uintptr_t)p, 1);
    close(pipes[0]);
    close(pipes[1]);
    return got == 1;
}

static void test_only_mapped_memory_with_access_can_be_touched(void)
{
    CUmemGenericAllocationHandle handle;
    unsigned long long flags;
    CUdeviceptr p;

    OK(cuMemAddressReserve(&p, CHUNK, 0, 0, 0));
    TEST_ASSERT_FALSE(readable(p));
    OK(cuMemCreate(&handle, CHUNK, &props, 0));
    IS(1, cuMemSetAccess(p, CHUNK, &read_write, 1));
    OK(cuMemMap(p, CHUNK, 0, handle, 0));
    TEST_ASSERT_FALSE(readable(p));
    OK(cuMemGetAccess(&flags, &read_write.location, p));
    TEST_ASSERT_EQUAL_UINT64(0, flags);
    OK(cuMemSetAccess(p, CHUNK, &read_write, 1));
    OK(cuMemGetAccess(&flags, &read_write.location, p));
    TEST_ASSERT_EQUAL_UINT64(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, flags);
    TEST_ASSERT_TRUE(readable(p));
    OK(cuMemUnmap(p, CHUNK));
    TEST_ASSERT_FALSE(readable(p));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(p, CHUNK));
}

static void test_attributes_of_mapped_memory(void)
{
    CUmemGenericAllocationHandle handle;
    CUcontext context = (CUcontext)&handle;
    CUdeviceptr p, base, start;
    CUipcMemHandle ipc;
    unsigned int on = 1;
    int legacy = 1;
    size_t size;

    OK(cuMemAddressReserve(&p, 4 * CHUNK, 0, 0, 0));
    OK(cuMemCreate(&handle, CHUNK, &props, 0));
    OK(cuMemMap(p + CHUNK, CHUNK, 0, handle, 0));
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p + CHUNK));
    TEST_ASSERT_NULL(context);
    OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + CHUNK));
    OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + CHUNK));
    TEST_ASSERT_EQUAL_UINT64(p, start);
    TEST_ASSERT_EQUAL_UINT64(4 * CHUNK, size);
    IS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, p + CHUNK + 100)); /* no access yet */
    OK(cuMemSetAccess(p + CHUNK, CHUNK, &read_write, 1));
    OK(cuMemGetAddressRange(&base, &size, p + CHUNK + 100));
    TEST_ASSERT_EQUAL_UINT64(p + CHUNK, base);
    TEST_ASSERT_EQUAL_UINT64(CHUNK, size);
    IS(CUDA_ERROR_NOT_SUPPORTED, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p + CHUNK));
    OK(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p + CHUNK));
    TEST_ASSERT_FALSE(legacy);
    IS(1, cuIpcGetMemHandle(&ipc, p + CHUNK));
    IS(1, cuMemFree(p + CHUNK));
    OK(cuMemUnmap(p + CHUNK, CHUNK));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(p, 4 * CHUNK));
}

static void test_a_retained_handle_keeps_the_memory(void)
{
    CUmemGenericAllocationHandle handle, again;
    CUmemAllocationProp seen;
    size_t before = sim_free();
    CUdeviceptr p, native;

    OK(cuMemAddressReserve(&p, CHUNK, 0, 0, 0));
    OK(cuMemCreate(&handle, CHUNK, &props, 0));
    OK(cuMemMap(p, CHUNK, 0, handle, 0));
    OK(cuMemRelease(handle));
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)p));
    TEST_ASSERT_EQUAL_UINT64(handle, again);
    OK(cuMemUnmap(p, CHUNK));
    TEST_ASSERT_EQUAL_UINT64(CHUNK, before - sim_free());
    OK(cuMemGetAllocationPropertiesFromHandle(&seen, again));
    TEST_ASSERT_EQUAL_INT(0, seen.location.id);
    OK(cuMemRelease(again));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
    OK(cuMemAddressFree(p, CHUNK));
    OK(cuMemAlloc(&native, 4096));
    IS(1, cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)native));
    OK(cuMemFree(native));
}

static void test_memory_of_the_host_is_charged_to_no_card(void)
{
    CUmemAllocationProp host = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
    CUmemGenericAllocationHandle handle;
    size_t before = sim_free();
    CUdeviceptr p;

    OK(cuMemCreate(&handle, CHUNK, &host, 0));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
    OK(cuMemAddressReserve(&p, CHUNK, 0, 0, 0));
    OK(cuMemMap(p, CHUNK, 0, handle, 0));
    OK(cuMemSetAccess(p, CHUNK, &read_write, 1));
    OK(cuMemsetD8(p, 3, CHUNK));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(p, CHUNK));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(p, CHUNK));
}

static void test_nothing_of_it_needs_a_context(void)
{
    CUmemGenericAllocationHandle handle;
    CUcontext context;
    CUdeviceptr p;

    OK(cuCtxPopCurrent(&context));
    OK(cuMemAddressReserve(&p, CHUNK, 0, 0, 0));
    OK(cuMemCreate(&handle, CHUNK, &props, 0));
    OK(cuMemMap(p, CHUNK, 0, handle, 0));
    OK(cuMemSetAccess(p, CHUNK, &read_write, 1));
    OK(cuMemUnmap(p, CHUNK));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(p, CHUNK));
    OK(cuCtxPushCurrent(context));
}

static void test_a_reservation_takes_the_address_that_is_asked_for(void)
{
    CUdeviceptr p, again, other;

    OK(cuMemAddressReserve(&p, 16 * CHUNK, 16 * CHUNK, 0, 0));
    TEST_ASSERT_EQUAL_UINT64(0, p % (16 * CHUNK));
    OK(cuMemAddressFree(p, 16 * CHUNK));
    OK(cuMemAddressReserve(&again, 16 * CHUNK, 0, p, 0));
    TEST_ASSERT_EQUAL_UINT64(p, again);
    OK(cuMemAddressReserve(&other, 16 * CHUNK, 0, p, 0));
    TEST_ASSERT_TRUE(other != p);
    OK(cuMemAddressFree(other, 16 * CHUNK));
    OK(cuMemAddressFree(again, 16 * CHUNK));
}

static void test_more_than_the_card_has_is_out_of_memory(void)
{
    CUmemGenericAllocationHandle handle;

    IS(2, cuMemCreate(&handle, 2 * GIB, &props, 0));
    IS(CUDA_ERROR_INVALID_DEVICE,
       cuMemCreate(&handle, CHUNK,
                   &(CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, 5}},
                   0));
}

static void test_an_exported_descriptor_can_be_imported(void)
{
    CUmemAllocationProp shared = props;
    CUmemGenericAllocationHandle handle, imported, plain;
    unsigned int value = 77, seen = 0;
    CUdeviceptr p;
    int fd = -1;

    shared.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    OK(cuMemCreate(&handle, CHUNK, &shared, 0));
    OK(cuMemCreate(&plain, CHUNK, &props, 0));
    IS(1, cuMemExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemRelease(plain));
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    OK(cuMemAddressReserve(&p, 2 * CHUNK, 0, 0, 0));
    OK(cuMemMap(p, CHUNK, 0, handle, 0));
    OK(cuMemMap(p + CHUNK, CHUNK, 0, imported, 0));
    OK(cuMemSetAccess(p, 2 * CHUNK, &read_write, 1));
    OK(cuMemcpyHtoD(p, &value, sizeof(value)));
    OK(cuMemcpyDtoH(&seen, p + CHUNK, sizeof(seen)));
    TEST_ASSERT_EQUAL_UINT32(77, seen);
    OK(cuMemUnmap(p, 2 * CHUNK));
    OK(cuMemRelease(handle));
    OK(cuMemRelease(imported));
    OK(cuMemAddressFree(p, 2 * CHUNK));
    IS(1, cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)0,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
}

int main(void)
{
    sim_machine("1x1G");
    UNITY_BEGIN();
    RUN_TEST(test_the_granularity_is_2_mib_and_binds);
    RUN_TEST(test_exportable_memory_is_not_bounded_by_the_limit_of_open_files);
    RUN_TEST(test_memory_lives_until_neither_held_nor_mapped);
    RUN_TEST(test_a_handle_is_mapped_whole_and_unmapped_whole);
    RUN_TEST(test_one_handle_mapped_twice_is_the_same_memory);
    RUN_TEST(test_a_copy_may_cover_memory_stitched_from_many_handles);
    RUN_TEST(test_unmap_waits_for_nothing);
    RUN_TEST(test_only_mapped_memory_with_access_can_be_touched);
    RUN_TEST(test_attributes_of_mapped_memory);
    RUN_TEST(test_a_retained_handle_keeps_the_memory);
    RUN_TEST(test_memory_of_the_host_is_charged_to_no_card);
    RUN_TEST(test_nothing_of_it_needs_a_context);
    RUN_TEST(test_a_reservation_takes_the_address_that_is_asked_for);
    RUN_TEST(test_more_than_the_card_has_is_out_of_memory);
    RUN_TEST(test_an_exported_descriptor_can_be_imported);
    return UNITY_END();
}
