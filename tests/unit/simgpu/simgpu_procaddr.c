/* simgpu_procaddr: cuGetProcAddress of the simulated driver picks the ABI by version and by stream flags. */
#include "tests/unit/simgpu/simgpu_support.h"

#include <dlfcn.h>

#undef cuGetProcAddress
CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags);
CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status);

void setUp(void) {}

void tearDown(void) {}

static void *symbol(const char *name)
{
    void *address = dlsym(RTLD_DEFAULT, name);

    TEST_ASSERT_NOT_NULL_MESSAGE(address, name);
    return address;
}

static void check(const char *name, int version, cuuint64_t flags, const char *expected)
{
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)99;
    void *address = NULL, *old = NULL;

    OK(cuGetProcAddress_v2(name, &address, version, flags, &status));
    TEST_ASSERT_EQUAL_INT(CU_GET_PROC_ADDRESS_SUCCESS, status);
    TEST_ASSERT_EQUAL_PTR_MESSAGE(symbol(expected), address, expected);
    OK(cuGetProcAddress(name, &old, version, flags));
    TEST_ASSERT_EQUAL_PTR(address, old);
}

static void test_the_newest_abi_that_the_version_allows_is_given(void)
{
    check("cuMemAlloc", 13000, 0, "cuMemAlloc_v2");
    check("cuMemAlloc", 3020, 0, "cuMemAlloc_v2");
    check("cuMemAlloc", 3010, 0, "cuMemAlloc");
    check("cuMemAlloc", -1, 0, "cuMemAlloc_v2");
    check("cuCtxCreate", 3020, 0, "cuCtxCreate_v2");
    check("cuCtxCreate", 11040, 0, "cuCtxCreate_v3");
    check("cuCtxCreate", 12040, 0, "cuCtxCreate_v3");
    check("cuCtxCreate", 13000, 0, "cuCtxCreate_v4");
    check("cuCtxSynchronize", 12080, 0, "cuCtxSynchronize");
    check("cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2");
    check("cuMemPrefetchAsync", 12010, 0, "cuMemPrefetchAsync");
    check("cuMemPrefetchAsync", 12020, 0, "cuMemPrefetchAsync_v2");
    check("cuGetProcAddress", 11030, 0, "cuGetProcAddress");
    check("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2");
    check("cuGraphInstantiate", 11000, 0, "cuGraphInstantiate_v2");
    check("cuGraphInstantiate", 12000, 0, "cuGraphInstantiateWithFlags");
}

static void test_the_stream_flags_choose_the_variant(void)
{
    cuuint64_t legacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    cuuint64_t own = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    CUdriverProcAddressQueryResult status;
    void *address;

    check("cuMemcpyHtoD", 13000, legacy, "cuMemcpyHtoD_v2");
    check("cuMemcpyHtoD", 13000, own, "cuMemcpyHtoD_v2_ptds");
    OK(cuGetProcAddress_v2("cuMemcpyHtoD", &address, 6000, own, &status));
    TEST_ASSERT_EQUAL_INT(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, status);
    check("cuMemAllocAsync", 13000, own, "cuMemAllocAsync_ptsz");
    check("cuStreamGetCaptureInfo", 11030, own, "cuStreamGetCaptureInfo_v2_ptsz");
    check("cuMemAlloc", 13000, own, "cuMemAlloc_v2");
}

static void test_a_missing_name_is_reported_in_the_status(void)
{
    CUdriverProcAddressQueryResult status;
    void *address = &status;

    OK(cuGetProcAddress_v2("cudnnCreate", &address, 13000, 0, &status));
    TEST_ASSERT_EQUAL_INT(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, status);
    TEST_ASSERT_NULL(address);
    address = &status;
    OK(cuGetProcAddress_v2("cuMemAllocAsync", &address, 11000, 0, &status));
    TEST_ASSERT_EQUAL_INT(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, status);
    TEST_ASSERT_NULL(address);
    IS(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuMemAlloc_v2", &address, 13000, 0));
    IS(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("", &address, 13000, 0));
    IS(1, cuGetProcAddress(NULL, &address, 13000, 0));
    IS(1, cuGetProcAddress("cuInit", NULL, 13000, 0));
    IS(1, cuGetProcAddress("cuInit", &address, 13000, 64));
    IS(1, cuGetProcAddress("cuInit", &address, 99000, 0));
}

static void test_the_private_tables_do_not_exist(void)
{
    const void *table = &table;
    CUuuid id = {{0}};

    IS(CUDA_ERROR_NOT_FOUND, cuGetExportTable(&table, &id));
    TEST_ASSERT_NULL(table);
}

static void test_looking_up_is_counted_and_needs_no_start(void)
{
    unsigned long before = simgpu_calls("cuGetProcAddress_v2"), total = simgpu_calls_total();
    void *address;

    OK(cuGetProcAddress_v2("cuInit", &address, 13000, 0, NULL));
    TEST_ASSERT_EQUAL_UINT64(before + 1, simgpu_calls("cuGetProcAddress_v2"));
    TEST_ASSERT_EQUAL_UINT64(total + 1, simgpu_calls_total());
    TEST_ASSERT_EQUAL_UINT64(0, simgpu_calls("cuNothing"));
}

int main(void)
{
    sim_machine("1x1G");
    UNITY_BEGIN();
    RUN_TEST(test_the_newest_abi_that_the_version_allows_is_given);
    RUN_TEST(test_the_stream_flags_choose_the_variant);
    RUN_TEST(test_a_missing_name_is_reported_in_the_status);
    RUN_TEST(test_the_private_tables_do_not_exist);
    RUN_TEST(test_looking_up_is_counted_and_needs_no_start);
    return UNITY_END();
}
