/* drivers_pools: what is known of the driver's stream-ordered pools, over a driver that has nothing else. The
 * number of a pool is its handle; the table outlives a test, so each has pools of its own. */
#include "interpose/account/drivers_pools.h"

#include <pthread.h>
#include <time.h>
#include <unity.h>

#include "apart.h"

#define POOLS 64
#define KIB   UINT64_C(1024)

static struct fake {
    uint64_t reserved, used;
    uint64_t busy;      /* idle bytes with work on them: a trim leaves them */
    uint64_t meanwhile; /* bytes that the program frees and gives back during the trim */
} pools[POOLS];
static CUresult result;    /* of all calls about a pool */
static uint64_t graphs[2]; /* held for graphs of each card */
static int trims;
static _Thread_local CUstreamCaptureMode mode; /* the thread's */
static bool unsafe;                            /* a question that would end a capture was asked */
static CUmemoryPool ends_meanwhile;            /* another thread destroys it during a trim; NULL: none */
static pthread_t other;
static atomic_bool has_begun, is_destroyed;
static CUresult trim_result;

static CUmemoryPool handle(uintptr_t number)
{
    return (CUmemoryPool)number;
}

static CUresult CUDAAPI get_attribute(CUmemoryPool pool, CUmemPool_attribute which, void *value)
{
    const uintptr_t number = (uintptr_t)pool % POOLS;

    unsafe |= mode != CU_STREAM_CAPTURE_MODE_RELAXED; /* no assertion: locks are held */
    *(cuuint64_t *)value =
        which == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pools[number].reserved : pools[number].used;
    return result;
}

/* The block that is freed. */
static struct block {
    CUmemoryPool pool;
    int ordinal;
    size_t bytes;
} freed;
static int asked; /* times that the driver was asked about it */

static CUresult CUDAAPI get_pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    TEST_ASSERT_EQUAL_UINT64(4711, address);
    asked++;
    if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
        *(CUmemoryPool *)data = freed.pool;
    else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *(int *)data = freed.ordinal;
    else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        *(size_t *)data = freed.bytes;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static void free_block(CUmemoryPool pool, int ordinal, size_t bytes)
{
    freed = (struct block){pool, ordinal, bytes};
    const struct drivers_pools_block block = drivers_pools_free_begin(4711);

    if (block.bytes)
        drivers_pools_free_end(&block);
}

/* With cuMemFree: the pool goes on counting the block as used. */
static void free_at_once(CUmemoryPool pool, int ordinal, size_t bytes)
{
    freed = (struct block){pool, ordinal, bytes};
    const struct drivers_pools_block block = drivers_pools_free_at_once_begin(4711);

    if (block.bytes)
        drivers_pools_free_end(&block);
}

static int exchanges;

static CUresult CUDAAPI exchange_mode(CUstreamCaptureMode *exchanged)
{
    const CUstreamCaptureMode before = mode;

    mode = *exchanged;
    *exchanged = before;
    exchanges++;
    return CUDA_SUCCESS;
}

static void destroy(CUmemoryPool pool)
{
    drivers_pools_destroy_begin(pool);
    TEST_ASSERT_EQUAL_INT(DRIVERS_POOLS_UNKNOWN, drivers_pools_card(pool)); /* another may get its handle */
    drivers_pools_destroy_end();
}

static void *destroy_it(void *unused)
{
    (void)unused;
    atomic_store(&has_begun, true);
    destroy(ends_meanwhile);
    atomic_store(&is_destroyed, true);
    return NULL;
}

/* A thread that wrongly destroys the pool now has a moment to do so. */
static void let_another_destroy(void)
{
    const struct timespec moment = {.tv_nsec = 20000000};

    TEST_ASSERT_EQUAL_INT(0, pthread_create(&other, NULL, destroy_it, NULL));
    while (!atomic_load(&has_begun))
        nanosleep(&moment, NULL);
    nanosleep(&moment, NULL);
    TEST_ASSERT_FALSE(atomic_load(&is_destroyed));
}

static CUresult CUDAAPI trim_to(CUmemoryPool pool, size_t least)
{
    TEST_ASSERT_EQUAL_size_t(0, least);
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_MODE_RELAXED, mode);
    if (ends_meanwhile)
        let_another_destroy();
    trims++;
    if (trim_result != CUDA_SUCCESS)
        return trim_result;
    struct fake *fake = &pools[(uintptr_t)pool % POOLS];
    fake->used -= fake->meanwhile;
    fake->reserved = fake->used + fake->busy;
    graphs[0] = graphs[1] = 0; /* the program trims those at the same time */
    return CUDA_SUCCESS;
}

/* The current pools of the two cards are number 1 and 2, unless the program has chosen another. */
static CUmemoryPool chosen;
static int named; /* times that the driver has named a current pool */
static CUmemoryPool
    chosen_as_named;    /* another thread makes it the current one right after another was named */
static bool ends_named; /* another thread destroys ends_meanwhile right after it was named */

static CUresult CUDAAPI get_current(CUmemoryPool *pool, CUdevice ordinal)
{
    *pool = chosen ? chosen : handle((uintptr_t)ordinal + 1);
    named++;
    if (chosen_as_named) {
        chosen = chosen_as_named;
        drivers_pools_current_changes();
    }
    chosen_as_named = NULL;
    if (ends_named)
        let_another_destroy();
    ends_named = false;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_graphs(CUdevice ordinal, CUgraphMem_attribute which, void *value)
{
    TEST_ASSERT_EQUAL_INT(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, which);
    unsafe |= mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    *(cuuint64_t *)value = graphs[ordinal];
    return CUDA_SUCCESS;
}

void setUp(void)
{
    driver_entries.cuMemPoolGetAttribute = get_attribute;
    driver_entries.cuMemPoolTrimTo = trim_to;
    driver_entries.cuThreadExchangeStreamCaptureMode = exchange_mode;
    driver_entries.cuDeviceGetMemPool = get_current;
    driver_entries.cuPointerGetAttribute = get_pointer_attribute;
    asked = 0;
    driver_entries.cuDeviceGetGraphMemAttribute = get_graphs;
    for (int i = 0; i < POOLS; i++)
        pools[i] = (struct fake){0};
    graphs[0] = graphs[1] = 0;
    trims = 0;
    mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    unsafe = false;
    ends_meanwhile = chosen = chosen_as_named = NULL;
    ends_named = false;
    atomic_store(&has_begun, false);
    atomic_store(&is_destroyed, false);
    drivers_pools_current_changes();
    result = trim_result = CUDA_SUCCESS;
    exchanges = 0;
}

void tearDown(void)
{
    free_block(handle(POOLS), 0, KIB * KIB); /* what a test has left of destroyed pools */
    free_block(handle(POOLS), 1, KIB * KIB);
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
    TEST_ASSERT_FALSE(unsafe);
}

static void test_growth_counts_once_and_from_when_the_pool_was_first_seen(void)
{
    pools[10].reserved = 100;
    struct drivers_pool *pool = drivers_pools_find(handle(10), 0);

    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_growth(pool, false));
    pools[10].reserved = 160;
    TEST_ASSERT_EQUAL_UINT64(60, drivers_pools_growth(pool, false));
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_growth(pool, false));
    pools[10].reserved = 20;
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_growth(pool, false));
    TEST_ASSERT_EQUAL_PTR(pool, drivers_pools_find(handle(10), 0));
    destroy(handle(10));
}

static void test_where_no_capture_is_open_the_threads_mode_is_left_alone(void)
{
    struct drivers_pool *pool = drivers_pools_find(handle(10), 0);

    pools[10].reserved = 100;
    exchanges = 0;
    TEST_ASSERT_EQUAL_UINT64(100, drivers_pools_growth(pool, true));
    TEST_ASSERT_EQUAL_INT(0, exchanges);
    TEST_ASSERT_TRUE(unsafe);
    unsafe = false;
    destroy(handle(10));
}

static void test_a_figure_that_the_driver_does_not_give_is_none(void)
{
    pools[11] = (struct fake){.reserved = 100, .used = 40};
    struct drivers_pool *pool = drivers_pools_find(handle(11), 0);

    TEST_ASSERT_EQUAL_UINT64(60, drivers_pools_idle(pool));
    pools[11].used = 120; /* taken between the two questions */
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_idle(pool));
    pools[11].used = 40;
    result = CUDA_ERROR_INVALID_VALUE; /* destroyed meanwhile */
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_idle(pool));
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_reserved(pool));
    result = CUDA_SUCCESS;
    trim_result = CUDA_ERROR_INVALID_VALUE;
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, drivers_pools_give(0), "refused");
    TEST_ASSERT_FALSE(drivers_pools_trim(0));
    destroy(handle(11));
}

static void test_what_a_pool_gave_back_counts_as_growth_when_it_takes_it_again(void)
{
    pools[10].reserved = 100;
    struct drivers_pool *pool = drivers_pools_find(handle(10), 0);

    pools[10].reserved = 30;
    drivers_pools_look_again(1); /* not its card */
    pools[10].reserved = 100;
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_growth(pool, false));
    pools[10].reserved = 30;
    drivers_pools_look_again(0);
    pools[10].reserved = 100;
    TEST_ASSERT_EQUAL_UINT64(70, drivers_pools_growth(pool, false));
    pools[10].reserved = 120;
    drivers_pools_look_again(0); /* growth is left to be counted */
    TEST_ASSERT_EQUAL_UINT64(20, drivers_pools_growth(pool, false));
    destroy(handle(10));
}

static void test_sums_are_of_one_card_and_include_its_current_pool(void)
{
    drivers_pools_find(handle(10), 0);
    drivers_pools_find(handle(11), 1);
    drivers_pools_find(handle(12), DRIVERS_POOLS_HOST);
    for (int i = 0; i < POOLS; i++) {
        pools[i].reserved = 100 * (uint64_t)i;
        pools[i].used = 90 * (uint64_t)i;
    }
    graphs[1] = 7;
    TEST_ASSERT_EQUAL_UINT64(10 + 100, drivers_pools_idle_on(0));
    TEST_ASSERT_EQUAL_UINT64(20 + 110, drivers_pools_idle_on(1));
    TEST_ASSERT_EQUAL_UINT64(100 + 1000, drivers_pools_held(0));
    TEST_ASSERT_EQUAL_UINT64(200 + 1100 + 7, drivers_pools_held(1));
    TEST_ASSERT_TRUE(drivers_pools_trim(0));
    TEST_ASSERT_EQUAL_INT(2, trims);
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_MODE_GLOBAL, mode); /* as the program has it */
    TEST_ASSERT_FALSE(drivers_pools_trim(0));                   /* nothing is idle now */
    TEST_ASSERT_EQUAL_UINT64(20 + 110, drivers_pools_idle_on(1));
    for (uintptr_t i = 10; i < 13; i++)
        destroy(handle(i));
}

static void test_what_a_trim_gave_back_is_told(void)
{
    pools[1] = (struct fake){.reserved = 64, .used = 40, .busy = 8};
    TEST_ASSERT_EQUAL_UINT64(16, drivers_pools_give(0));
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_give(0)); /* only memory with work on it is left */
}

/* The program may free and trim, too, and so may its graphs. */
static void test_no_more_than_was_idle_counts_as_given(void)
{
    pools[1] = (struct fake){.reserved = 64, .used = 40, .meanwhile = 20};
    graphs[0] = 32;
    TEST_ASSERT_EQUAL_UINT64(24, drivers_pools_give(0));
}

/* The driver may give its handle to a pool of another card. */
static void test_a_destroyed_pool_is_known_no_more(void)
{
    drivers_pools_find(handle(10), 0);
    TEST_ASSERT_EQUAL_INT(0, drivers_pools_card(handle(10)));
    destroy(handle(10));
    TEST_ASSERT_EQUAL_INT(DRIVERS_POOLS_UNKNOWN, drivers_pools_card(handle(10)));
    drivers_pools_find(handle(10), 1);
    TEST_ASSERT_EQUAL_INT(1, drivers_pools_card(handle(10)));
    TEST_ASSERT_EQUAL_INT(DRIVERS_POOLS_UNKNOWN, drivers_pools_card(NULL));
    destroy(handle(10));
    destroy(NULL);
}

static void test_a_pool_that_could_not_be_destroyed_stays(void)
{
    pools[10] = (struct fake){.reserved = 64, .used = 40};
    drivers_pools_find(handle(10), 0);
    drivers_pools_destroy_abort(handle(10), drivers_pools_destroy_begin(handle(10)));
    TEST_ASSERT_EQUAL_INT(0, drivers_pools_card(handle(10)));
    TEST_ASSERT_EQUAL_UINT64(40, drivers_pools_held(0)); /* its idle memory was given back */
    destroy(handle(10));
    drivers_pools_destroy_abort(handle(10), drivers_pools_destroy_begin(handle(10)));
    TEST_ASSERT_EQUAL_INT(DRIVERS_POOLS_UNKNOWN, drivers_pools_card(handle(10))); /* it was not there */
}

static void test_what_a_destroyed_pool_holds_counts_until_its_blocks_are_freed(void)
{
    pools[10] = (struct fake){.reserved = 64 * KIB, .used = 40 * KIB, .busy = 8 * KIB};
    drivers_pools_find(handle(10), 1);
    drivers_pools_destroy_abort(handle(10), drivers_pools_destroy_begin(handle(10)));
    TEST_ASSERT_EQUAL_UINT64(48 * KIB, drivers_pools_held(1)); /* once */
    free_block(handle(10), 1, 8 * KIB);                        /* not of a destroyed pool */
    destroy(handle(10));
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_held(0));
    TEST_ASSERT_EQUAL_UINT64(48 * KIB, drivers_pools_held(1));
    pools[11] = (struct fake){.reserved = 64 * KIB, .busy = 64 * KIB};
    drivers_pools_find(handle(11), 1);
    destroy(handle(11)); /* its blocks are freed, with work still on them */
    TEST_ASSERT_EQUAL_UINT64(48 * KIB, drivers_pools_held(1));
    free_block(handle(10), 1, 30 * KIB);
    free_block(handle(10), 0, 10 * KIB);
    free_block(NULL, 1, 10 * KIB);
    drivers_pools_find(handle(12), 1);
    free_block(handle(12), 1, 10 * KIB); /* of a living pool */
    TEST_ASSERT_EQUAL_UINT64(48 * KIB, drivers_pools_held(1));
    free_block(handle(10), 1, 10 * KIB);
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_held(1));
}

static void test_what_two_destroyed_pools_hold_counts_until_the_blocks_of_both_are_freed(void)
{
    for (int i = 10; i < 12; i++) {
        pools[i] = (struct fake){.reserved = 32 * KIB, .used = 32 * KIB};
        drivers_pools_find(handle(i), 1);
        destroy(handle(i));
    }
    TEST_ASSERT_EQUAL_UINT64(64 * KIB, drivers_pools_held(1));
    free_block(handle(10), 1, 32 * KIB);
    TEST_ASSERT_EQUAL_UINT64(64 * KIB, drivers_pools_held(1)); /* which pool's is not known */
    free_block(handle(11), 1, 32 * KIB);
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_held(1));
}

static void test_a_free_asks_the_driver_only_while_destroyed_pools_have_blocks(void)
{
    pools[10] = (struct fake){.reserved = 64, .used = 40};
    drivers_pools_find(handle(10), 0);
    free_block(handle(10), 0, 40);
    TEST_ASSERT_EQUAL_INT(0, asked);
    destroy(handle(10));
    free_block(handle(10), 0, 40);
    TEST_ASSERT_EQUAL_INT(3, asked);
    free_block(handle(10), 0, 40);
    TEST_ASSERT_EQUAL_INT(3, asked);
}

static void test_the_driver_names_the_current_pool_once_until_it_changes(void)
{
    struct drivers_pool *first = drivers_pools_current(0), *second = drivers_pools_current(1);

    named = 0;
    TEST_ASSERT_EQUAL_PTR(first, drivers_pools_current(0));
    TEST_ASSERT_EQUAL_PTR(second, drivers_pools_current(1));
    TEST_ASSERT_EQUAL_INT(0, named);
    chosen = handle(10);
    drivers_pools_current_changes();
    TEST_ASSERT_EQUAL_PTR(drivers_pools_find(handle(10), 0), drivers_pools_current(0));
    TEST_ASSERT_EQUAL_PTR(drivers_pools_find(handle(10), 0), drivers_pools_current(0));
    TEST_ASSERT_EQUAL_INT(1, named);
    chosen = NULL; /* as the driver does when the current pool is destroyed */
    destroy(handle(10));
    TEST_ASSERT_EQUAL_PTR(first, drivers_pools_current(0));
    TEST_ASSERT_EQUAL_INT(2, named);
}

static void test_an_answer_that_is_out_of_date_is_not_kept(void)
{
    chosen_as_named = handle(10);
    TEST_ASSERT_EQUAL_PTR(drivers_pools_find(handle(1), 0), drivers_pools_current(0));
    TEST_ASSERT_EQUAL_PTR(drivers_pools_find(handle(10), 0), drivers_pools_current(0));
    destroy(handle(10));
}

/* The number of another card may share a place with it. */
static void test_a_kept_pool_is_of_the_same_card(void)
{
    drivers_pools_current(1);
    TEST_ASSERT_EQUAL_PTR(drivers_pools_find(handle(66), 65), drivers_pools_current(65));
    destroy(handle(66));
}

static void ask_always(void)
{
    struct drivers_pool *pool = drivers_pools_current(0);

    drivers_pools_ask_always();
    named = 0;
    TEST_ASSERT_EQUAL_PTR(pool, drivers_pools_current(0));
    TEST_ASSERT_EQUAL_PTR(pool, drivers_pools_current(0));
    TEST_ASSERT_EQUAL_INT(2, named);
}

static void test_where_a_change_may_go_unseen_the_driver_is_asked_each_time(void)
{
    apart(ask_always);
}

static void test_a_current_pool_that_is_destroyed_at_once_is_not_kept(void)
{
    ends_meanwhile = handle(1);
    ends_named = true;
    TEST_ASSERT_NOT_NULL(drivers_pools_current(0));
    pthread_join(other, NULL);
    TEST_ASSERT_EQUAL_INT(DRIVERS_POOLS_UNKNOWN, drivers_pools_card(handle(1)));
    chosen = handle(10);
    TEST_ASSERT_EQUAL_PTR(drivers_pools_find(handle(10), 0), drivers_pools_current(0));
    destroy(handle(10));
}

static void test_no_pool_is_destroyed_while_another_thread_trims_it(void)
{
    pools[10] = (struct fake){.reserved = 64, .used = 40};
    drivers_pools_find(handle(10), 0);
    ends_meanwhile = handle(10);
    TEST_ASSERT_TRUE(drivers_pools_trim(0));
    pthread_join(other, NULL);
    TEST_ASSERT_TRUE(atomic_load(&is_destroyed));
    TEST_ASSERT_EQUAL_INT(1, trims);
}

/* The table has 1024 places. */
static void test_places_of_destroyed_pools_are_used_again(void)
{
    uintptr_t many = 0;

    for (uintptr_t i = 10; i < 5000; i++) {
        TEST_ASSERT_NOT_NULL(drivers_pools_find(handle(i), 0));
        destroy(handle(i));
    }
    while (drivers_pools_find(handle(10 + many), 0))
        many++;
    TEST_ASSERT_GREATER_OR_EQUAL_UINT(1020, many);
    for (uintptr_t i = 0; i < many; i++) {
        TEST_ASSERT_EQUAL_INT(0, drivers_pools_card(handle(10 + i)));
        destroy(handle(10 + i));
    }
}

static void test_what_is_freed_at_once_is_idle_though_the_pool_counts_it_as_used(void)
{
    struct drivers_pool *pool = drivers_pools_find(handle(10), 0);

    pools[10] = (struct fake){.reserved = 64 * KIB, .used = 64 * KIB, .meanwhile = 40 * KIB};
    TEST_ASSERT_FALSE(drivers_pools_trim(0));
    free_at_once(handle(11), 0, 40 * KIB); /* of a pool that is not known */
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_idle_on(0));
    free_at_once(handle(10), 0, 40 * KIB);
    TEST_ASSERT_EQUAL_UINT64(40 * KIB, drivers_pools_idle(pool));
    TEST_ASSERT_EQUAL_UINT64(40 * KIB, drivers_pools_idle_on(0));
    TEST_ASSERT_EQUAL_UINT64(40 * KIB, drivers_pools_give(0));
    pools[10] = (struct fake){.reserved = 64 * KIB, .used = 104 * KIB}; /* taken again */
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_idle_on(0));
    drivers_pools_destroy_abort(handle(10), drivers_pools_destroy_begin(handle(10)));
    pools[10].used -= 8 * KIB;
    TEST_ASSERT_EQUAL_UINT64(8 * KIB, drivers_pools_idle_on(0)); /* it could not be destroyed */
    pools[10].used += 8 * KIB;
    destroy(handle(10));
    pools[10] = (struct fake){.reserved = 64 * KIB, .used = 64 * KIB};
    drivers_pools_find(handle(10), 0);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, drivers_pools_idle_on(0), "another pool has its handle");
    destroy(handle(10));
}

static void test_what_was_freed_at_once_does_not_outlive_its_pool(void)
{
    pools[10] = (struct fake){.reserved = 64 * KIB, .used = 80 * KIB};
    drivers_pools_find(handle(10), 0);
    free_at_once(handle(10), 0, 40 * KIB);
    destroy(handle(10)); /* 40 are live, in pieces */
    TEST_ASSERT_EQUAL_UINT64(80 * KIB, drivers_pools_held(0));
    free_at_once(handle(10), 0, 30 * KIB);
    TEST_ASSERT_EQUAL_UINT64(80 * KIB, drivers_pools_held(0));
    free_block(handle(10), 0, 10 * KIB);
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_held(0));
    pools[11] = (struct fake){.reserved = 64 * KIB, .used = 40 * KIB, .busy = 64 * KIB};
    drivers_pools_find(handle(11), 0);
    free_at_once(handle(11), 0, 40 * KIB);
    destroy(handle(11)); /* nothing lives in it */
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_held(0));
}

/* Its memory goes to a pool while another thread destroys that. */
static void test_a_block_freed_at_once_beside_the_end_of_its_pool_leaves_with_it(void)
{
    pools[10] = (struct fake){.reserved = 64 * KIB, .used = 64 * KIB};
    drivers_pools_find(handle(10), 0);
    freed = (struct block){handle(10), 0, 64 * KIB};
    const struct drivers_pools_block block = drivers_pools_free_at_once_begin(4711);

    destroy(handle(10));
    TEST_ASSERT_EQUAL_UINT64(64 * KIB, drivers_pools_held(0));
    drivers_pools_free_end(&block);
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_held(0));
}

static void test_a_block_of_a_destroyed_pool_is_not_freed_from_the_one_that_has_its_handle(void)
{
    pools[10] = (struct fake){.reserved = 64 * KIB, .used = 64 * KIB};
    drivers_pools_find(handle(10), 0);
    destroy(handle(10));
    freed = (struct block){handle(10), 0, 64 * KIB};
    const struct drivers_pools_block block = drivers_pools_free_begin(4711);

    drivers_pools_find(handle(10), 0);
    drivers_pools_free_end(&block);
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_idle_on(0));
    TEST_ASSERT_EQUAL_UINT64(64 * KIB, drivers_pools_held(0)); /* what the new one has */
    destroy(handle(10));
}

static void test_a_block_of_a_pool_of_the_host_is_of_no_card(void)
{
    pools[10] = (struct fake){.reserved = 64 * KIB, .used = 64 * KIB};
    drivers_pools_find(handle(10), 0);
    destroy(handle(10));
    freed = (struct block){handle(11), DRIVERS_POOLS_HOST, 64 * KIB};
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_free_begin(4711).bytes);
    TEST_ASSERT_EQUAL_UINT64(0, drivers_pools_free_at_once_begin(4711).bytes);
}

/* Before any test has used one: the table outlives them. */
static void test_a_free_at_once_asks_nothing_until_a_pool_was_used(void)
{
    free_at_once(handle(10), 0, KIB);
    TEST_ASSERT_EQUAL_INT(0, asked);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_free_at_once_asks_nothing_until_a_pool_was_used);
    RUN_TEST(test_growth_counts_once_and_from_when_the_pool_was_first_seen);
    RUN_TEST(test_where_no_capture_is_open_the_threads_mode_is_left_alone);
    RUN_TEST(test_a_figure_that_the_driver_does_not_give_is_none);
    RUN_TEST(test_what_a_pool_gave_back_counts_as_growth_when_it_takes_it_again);
    RUN_TEST(test_sums_are_of_one_card_and_include_its_current_pool);
    RUN_TEST(test_what_a_trim_gave_back_is_told);
    RUN_TEST(test_no_more_than_was_idle_counts_as_given);
    RUN_TEST(test_a_destroyed_pool_is_known_no_more);
    RUN_TEST(test_a_pool_that_could_not_be_destroyed_stays);
    RUN_TEST(test_what_a_destroyed_pool_holds_counts_until_its_blocks_are_freed);
    RUN_TEST(test_what_two_destroyed_pools_hold_counts_until_the_blocks_of_both_are_freed);
    RUN_TEST(test_a_free_asks_the_driver_only_while_destroyed_pools_have_blocks);
    RUN_TEST(test_the_driver_names_the_current_pool_once_until_it_changes);
    RUN_TEST(test_an_answer_that_is_out_of_date_is_not_kept);
    RUN_TEST(test_a_kept_pool_is_of_the_same_card);
    RUN_TEST(test_where_a_change_may_go_unseen_the_driver_is_asked_each_time);
    RUN_TEST(test_a_current_pool_that_is_destroyed_at_once_is_not_kept);
    RUN_TEST(test_no_pool_is_destroyed_while_another_thread_trims_it);
    RUN_TEST(test_places_of_destroyed_pools_are_used_again);
    RUN_TEST(test_what_is_freed_at_once_is_idle_though_the_pool_counts_it_as_used);
    RUN_TEST(test_what_was_freed_at_once_does_not_outlive_its_pool);
    RUN_TEST(test_a_block_freed_at_once_beside_the_end_of_its_pool_leaves_with_it);
    RUN_TEST(test_a_block_of_a_destroyed_pool_is_not_freed_from_the_one_that_has_its_handle);
    RUN_TEST(test_a_block_of_a_pool_of_the_host_is_of_no_card);
    return UNITY_END();
}
