/* heap: the private jemalloc: where its extents come from and go to, and how many heaps there can be. */
#include "interpose/pool/heap.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unity.h>

#define PAGE  UINT64_C(0x200000)
#define PAGES 16
#define HEAPS 256

#define THREADS 2
#define ROUNDS  30
#define EXTENT  4096 /* that blocks of 512 bytes come from */

static char memory[PAGES * PAGE]
    __attribute__((aligned(0x200000))); /* stands for the card's; never touched */

static struct fake {
    uint64_t used, taken, given;
    bool full;
} fake;
static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER; /* jemalloc asks from several threads */

static uint64_t take_next(void *owner, uint64_t bytes, uint64_t alignment)
{
    TEST_ASSERT_EQUAL_PTR(&fake, owner);
    if (fake.full)
        return 0;
    fake.used = (fake.used + alignment - 1) / alignment * alignment;
    TEST_ASSERT_LESS_OR_EQUAL_UINT64(sizeof(memory), fake.used + bytes);
    const uint64_t address = (uint64_t)(uintptr_t)memory + fake.used;
    fake.used += bytes;
    fake.taken += bytes;
    return address;
}

static uint64_t take(void *owner, uint64_t bytes, uint64_t alignment)
{
    pthread_mutex_lock(&fake_lock);
    const uint64_t address = take_next(owner, bytes, alignment);
    pthread_mutex_unlock(&fake_lock);
    return address;
}

static void give(void *owner, uint64_t address, uint64_t bytes)
{
    TEST_ASSERT_EQUAL_PTR(&fake, owner);
    TEST_ASSERT_TRUE(address - (uint64_t)(uintptr_t)memory < sizeof(memory));
    pthread_mutex_lock(&fake_lock);
    fake.given += bytes;
    pthread_mutex_unlock(&fake_lock);
}

static const struct heap_source source = {.owner = &fake, .take = take, .give = give};

void setUp(void)
{
    if (!heap_exists())
        TEST_IGNORE_MESSAGE("built without jemalloc");
    fake = (struct fake){0};
}

void tearDown(void) {}

static void test_blocks_lie_in_extents_that_go_back(void)
{
    unsigned arena;
    uint64_t blocks[64];

    TEST_ASSERT_EQUAL_INT(0, heap_open(&source, &arena));
    for (int i = 0; i < 64; i++) {
        blocks[i] = heap_take(arena, HEAP_NO_TCACHE, 1024);
        TEST_ASSERT_TRUE(blocks[i] - (uint64_t)(uintptr_t)memory < fake.used);
        TEST_ASSERT_EQUAL_UINT64(0, blocks[i] % 512);
        for (int k = 0; k < i; k++)
            TEST_ASSERT_TRUE(blocks[i] + 1024 <= blocks[k] || blocks[k] + 1024 <= blocks[i]);
    }
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(64 * 1024, fake.taken);
    for (int i = 0; i < 64; i++)
        heap_give(HEAP_NO_TCACHE, blocks[i], 1024);
    heap_purge(arena);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(fake.taken, fake.given, "nothing is kept");
}

static void test_what_a_thread_keeps_goes_back_with_its_cache(void)
{
    unsigned arena;

    TEST_ASSERT_EQUAL_INT(0, heap_open(&source, &arena));
    const unsigned tcache = heap_tcache_open();
    TEST_ASSERT_NOT_EQUAL_UINT(HEAP_NO_TCACHE, tcache);
    const uint64_t block = heap_take(arena, tcache, 2048);
    TEST_ASSERT_NOT_EQUAL_UINT64(0, block);
    heap_give(tcache, block, 2048);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(block, heap_take(arena, tcache, 2048), "the thread has it again");
    heap_give(tcache, block, 2048);
    TEST_ASSERT_TRUE(fake.given < fake.taken);
    heap_tcache_close(tcache);
    heap_purge(arena);
    TEST_ASSERT_EQUAL_UINT64(fake.taken, fake.given);
    heap_tcache_close(HEAP_NO_TCACHE);
    heap_tcache_close(HEAP_LATER);
}

static void test_a_full_card_gives_no_block(void)
{
    unsigned arena;

    TEST_ASSERT_EQUAL_INT(0, heap_open(&source, &arena));
    fake.full = true;
    TEST_ASSERT_EQUAL_UINT64(0, heap_take(arena, HEAP_NO_TCACHE, 4096));
    fake.full = false;
    const uint64_t block = heap_take(arena, HEAP_NO_TCACHE, 4096);
    TEST_ASSERT_NOT_EQUAL_UINT64(0, block);
    heap_give(HEAP_NO_TCACHE, block, 4096);
}

static unsigned shared;
static atomic_int waiting;

static void *take_first(void *block)
{
    atomic_fetch_sub(&waiting, 1);
    while (atomic_load(&waiting) > 0) { /* no barrier: it would wake one thread after the other */
    }
    *(uint64_t *)block = heap_take(shared, HEAP_NO_TCACHE, 512);
    return NULL;
}

static void test_threads_that_ask_first_at_the_same_time_share_one_arena(void)
{
    pthread_t threads[THREADS];
    uint64_t blocks[THREADS];

    for (int round = 0; round < ROUNDS; round++) {
        fake = (struct fake){0};
        TEST_ASSERT_EQUAL_INT(0, heap_open(&source, &shared));
        heap_purge(shared); /* jemalloc has not made it yet */
        TEST_ASSERT_EQUAL_UINT64(0, fake.taken);
        atomic_store(&waiting, THREADS);
        for (int i = 0; i < THREADS; i++)
            TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[i], NULL, take_first, &blocks[i]));
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            TEST_ASSERT_NOT_EQUAL_UINT64(0, blocks[i]);
        }
        /* Both may take an extent at the same time: then one goes back unused. */
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(EXTENT, fake.taken - fake.given, "all blocks fit into one extent");
        for (int i = 0; i < THREADS; i++)
            heap_give(HEAP_NO_TCACHE, blocks[i], 512);
        heap_purge(shared);
        TEST_ASSERT_EQUAL_UINT64(fake.taken, fake.given);
    }
}

/* Runs last: then there are no more heaps. */
static void test_there_are_no_more_heaps_than_there_is_room_for(void)
{
    unsigned arena, opened = 0;
    int rc;

    while ((rc = heap_open(&source, &arena)) == 0 && opened < HEAPS)
        opened++;
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, rc);
    TEST_ASSERT_EQUAL_UINT_MESSAGE(HEAPS - 3 - ROUNDS, opened, "the other tests opened some");
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, heap_open(&source, &arena));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_blocks_lie_in_extents_that_go_back);
    RUN_TEST(test_what_a_thread_keeps_goes_back_with_its_cache);
    RUN_TEST(test_a_full_card_gives_no_block);
    RUN_TEST(test_threads_that_ask_first_at_the_same_time_share_one_arena);
    RUN_TEST(test_there_are_no_more_heaps_than_there_is_room_for);
    return UNITY_END();
}
