/* Hooks on mappings of the program's own: pooled memory is hidden from them, and what the driver refuses
 * does not count. The driver and the rest of the library are the test's own. */
#include "interpose/hook/hooks.h"

#include <unity.h>

#include "interpose/hook/pointer.h"
#include "interpose/route.h"

#define OWN    UINT64_C(0x400000)
#define POOLED UINT64_C(0x800000)
#define BYTES  ((size_t)0x200000)
#define HANDLE 7

static CUresult result; /* the driver's */
static struct got {
    CUdeviceptr address; /* that the driver was asked about */
    int mapped, unmapped, retained;
} got;

/* ---- the rest of the library ---- */

enum pointer_place pointer_look(uint64_t address, struct pointer_block *block)
{
    (void)block;
    return address == POOLED ? POINTER_BLOCK : POINTER_FOREIGN;
}

bool route_retry(struct route_attempt *attempt)
{
    (void)attempt;
    return false;
}

uint64_t route_given_back(void)
{
    return 0;
}

void route_mapped(uint64_t address, uint64_t handle)
{
    got.mapped += address == OWN && handle == HANDLE;
}

void route_unmapped(uint64_t address, uint64_t bytes)
{
    got.unmapped += address == OWN && bytes == BYTES;
}

void route_retained(uint64_t handle)
{
    got.retained += handle == HANDLE;
}

/* ---- the driver ---- */

static CUresult CUDAAPI map(CUdeviceptr address, size_t bytes, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)bytes, (void)offset, (void)handle, (void)flags;
    got.address = address;
    return result;
}

static CUresult CUDAAPI unmap(CUdeviceptr address, size_t bytes)
{
    (void)bytes;
    got.address = address;
    return result;
}

static CUresult CUDAAPI set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *list,
                                   size_t count)
{
    (void)list, (void)count;
    return unmap(address, bytes);
}

static CUresult CUDAAPI retain(CUmemGenericAllocationHandle *handle, void *address)
{
    *handle = HANDLE;
    return unmap((uintptr_t)address, 0);
}

static CUresult CUDAAPI bind(CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr address,
                             size_t bytes, unsigned long long flags)
{
    (void)object, (void)offset, (void)flags;
    return unmap(address, bytes);
}

static CUresult CUDAAPI bind_v2(CUmemGenericAllocationHandle object, CUdevice card, size_t offset,
                                CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    (void)card;
    return bind(object, offset, address, bytes, flags);
}

static CUresult CUDAAPI bind_endpoint(CUlogicalEndpointId endpoint, CUdevice card, cuuint64_t offset,
                                      void *address, cuuint64_t bytes, unsigned long long flags)
{
    (void)card;
    return bind(endpoint, offset, (uintptr_t)address, bytes, flags);
}

void setUp(void)
{
    driver_entries.cuMemMap = map;
    driver_entries.cuMemUnmap = driver_entries.cuMemAddressFree = unmap;
    driver_entries.cuMemSetAccess = set_access;
    driver_entries.cuMemRetainAllocationHandle = retain;
    driver_entries.cuMulticastBindAddr = bind;
    driver_entries.cuMulticastBindAddr_v2 = bind_v2;
    driver_entries.cuLogicalEndpointBindAddr = bind_endpoint;
    result = CUDA_SUCCESS;
    got = (struct got){0};
}

void tearDown(void) {}

/* Makes all calls for an address. Returns the last result. */
static CUresult use(CUdeviceptr address)
{
    CUmemGenericAllocationHandle handle;

    TEST_ASSERT_EQUAL_INT(result, cuMemMap(address, BYTES, 0, HANDLE, 0));
    TEST_ASSERT_EQUAL_INT(result, cuMemSetAccess(address, BYTES, NULL, 0));
    TEST_ASSERT_EQUAL_INT(result, cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address));
    TEST_ASSERT_EQUAL_INT(result, cuMemUnmap(address, BYTES));
    return cuMemAddressFree(address, BYTES);
}

static void test_a_mapping_counts_if_the_driver_has_made_it(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, use(OWN));
    TEST_ASSERT_EQUAL_UINT64(OWN, got.address);
    TEST_ASSERT_TRUE(got.mapped == 1 && got.retained == 1 && got.unmapped == 1);
    result = CUDA_ERROR_INVALID_VALUE;
    TEST_ASSERT_EQUAL_INT(result, use(OWN));
    TEST_ASSERT_TRUE(got.mapped == 1 && got.retained == 1 && got.unmapped == 1);
}

static void test_the_driver_is_not_asked_about_pooled_memory(void)
{
    CUmemGenericAllocationHandle handle;

    cuMemMap(POOLED, BYTES, 0, HANDLE, 0);
    TEST_ASSERT_EQUAL_UINT64(POINTER_NOWHERE, got.address);
    cuMemAddressFree(POOLED, BYTES);
    TEST_ASSERT_EQUAL_UINT64(POINTER_NOWHERE, got.address);
    cuMemUnmap(POOLED, BYTES);
    TEST_ASSERT_EQUAL_UINT64(POINTER_NOWHERE, got.address);
    cuMemSetAccess(POOLED, BYTES, NULL, 0);
    TEST_ASSERT_EQUAL_UINT64(POINTER_NOWHERE, got.address);
    cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)POOLED);
    TEST_ASSERT_EQUAL_UINT64(POINTER_NOWHERE, got.address);
}

/* Natively only memory of cuMemCreate and of the driver's pools can be bound. */
static void test_pooled_memory_is_bound_to_no_object_that_outlives_its_block(void)
{
    static const CUdeviceptr addresses[] = {OWN, POOLED}, asked[] = {OWN, POINTER_NOWHERE};

    for (int i = 0; i < 2; i++) {
        TEST_ASSERT_EQUAL_INT(result, cuMulticastBindAddr(HANDLE, 0, addresses[i], BYTES, 0));
        TEST_ASSERT_EQUAL_UINT64(asked[i], got.address);
        got.address = 0;
        TEST_ASSERT_EQUAL_INT(result, cuMulticastBindAddr_v2(HANDLE, 0, 0, addresses[i], BYTES, 0));
        TEST_ASSERT_EQUAL_UINT64(asked[i], got.address);
        got.address = 0;
        cuLogicalEndpointBindAddr(1, 0, 0, (void *)(uintptr_t)addresses[i], BYTES, 0);
        TEST_ASSERT_EQUAL_UINT64(asked[i], got.address);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_mapping_counts_if_the_driver_has_made_it);
    RUN_TEST(test_the_driver_is_not_asked_about_pooled_memory);
    RUN_TEST(test_pooled_memory_is_bound_to_no_object_that_outlives_its_block);
    return UNITY_END();
}
