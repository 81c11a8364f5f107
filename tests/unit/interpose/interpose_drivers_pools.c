/* Tests of drivers_pools.c: what the driver's own pools have given back, with a driver that this file makes
 * up. */
#include "interpose/account/drivers_pools.h"

#include <unity.h>

#define MIB (UINT64_C(1) << 20)

atomic_bool driver_bound = true;
struct driver_table driver_entries;

struct driver_table *driver_bind_now(void)
{
    return &driver_entries;
}

static struct fake {
    uint64_t reserved, used;
    uint64_t done;      /* idle bytes without work on them: what a trim gives back */
    uint64_t meanwhile; /* bytes that the program frees and gives back during the trim */
} fake;
static uint64_t graphs;

static CUmemoryPool handle(void)
{
    return (CUmemoryPool)(void *)&fake;
}

static CUresult current_pool(CUmemoryPool *pool, CUdevice ordinal)
{
    (void)ordinal;
    *pool = handle();
    return CUDA_SUCCESS;
}

static CUresult pool_attribute(CUmemoryPool pool, CUmemPool_attribute which, void *value)
{
    (void)pool;
    *(cuuint64_t *)value = which == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? fake.reserved : fake.used;
    return CUDA_SUCCESS;
}

static CUresult graph_attribute(CUdevice ordinal, CUgraphMem_attribute which, void *value)
{
    (void)ordinal;
    (void)which;
    *(cuuint64_t *)value = graphs;
    return CUDA_SUCCESS;
}

static CUresult trim(CUmemoryPool pool, size_t keep)
{
    (void)pool;
    (void)keep;
    fake.reserved -= fake.done + fake.meanwhile;
    fake.used -= fake.meanwhile;
    graphs = 0; /* the program trims those at the same time */
    return CUDA_SUCCESS;
}

void setUp(void)
{
    driver.cuDeviceGetMemPool = current_pool;
    driver.cuMemPoolGetAttribute = pool_attribute;
    driver.cuDeviceGetGraphMemAttribute = graph_attribute;
    driver.cuMemPoolTrimTo = trim;
    fake = (struct fake){.reserved = 64 * MIB, .used = 40 * MIB};
    graphs = 32 * MIB;
}

void tearDown(void) {}

static void test_what_a_trim_gives_back_is_returned(void)
{
    fake.done = 16 * MIB;
    TEST_ASSERT_EQUAL_UINT64(16 * MIB, drivers_pools_give(0));
}

static void test_memory_with_work_on_it_is_not_given_back(void)
{
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_give(0));
}

static void test_memory_of_graphs_that_the_program_gives_back_does_not_count(void)
{
    fake.done = 8 * MIB;
    TEST_ASSERT_EQUAL_UINT64(8 * MIB, drivers_pools_give(0));
    TEST_ASSERT_EQUAL_UINT64(0, graphs);
}

static void test_no_more_than_was_idle_counts(void)
{
    fake.done = 24 * MIB;
    fake.meanwhile = 20 * MIB;
    TEST_ASSERT_EQUAL_UINT64(24 * MIB, drivers_pools_give(0));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_what_a_trim_gives_back_is_returned);
    RUN_TEST(test_memory_with_work_on_it_is_not_given_back);
    RUN_TEST(test_memory_of_graphs_that_the_program_gives_back_does_not_count);
    RUN_TEST(test_no_more_than_was_idle_counts);
    return UNITY_END();
}
