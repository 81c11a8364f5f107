/* The pool's per-thread caches: blocks are allocated again without a lock, are taken back when another thread
 * needs them, and never belong to two threads. Each case is a process of its own. */
#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_owners.h"

#include <errno.h>
#include <semaphore.h>
#include <string.h>
#include <unity.h>

#include "interpose/pool/small.h"

#define SECONDS   250 /* ends a process that waits for a lock it holds */
#define STREAM(n) (0x10000 + (uintptr_t)(n)*0x100)

static struct pool pool;
static struct owners_budget budget;
static const uint64_t sizes[] = {300, 9000, 20000, MIB, 2 * MIB, 20 * MIB}; /* of each kind */
#define SIZES (sizeof(sizes) / sizeof(*sizes))

void setUp(void) {}

void tearDown(void) {}

static void begin(uint64_t limit)
{
    alarm(SECONDS);
    fake_start(limit);
    owners_open_pool(&pool, &budget, limit);
}

static void end_empty(void)
{
    const struct pool_stats s = pool_stats(&pool);

    CHECK(pool_check(&pool) == NULL && s.live == 0 && s.live_count == 0);
    pool_trim(&pool, UINT64_MAX);
    CHECK(fake_physical() == 0 && atomic_load(&budget.used) == 0);
    pool_close(&pool, true);
    fake_end();
}

static uint64_t take(uint64_t bytes)
{
    uint64_t address;

    CHECK(pool_alloc(&pool, bytes, &address) == 0 && fake_usable(address, bytes));
    return address;
}

static void on_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, run, argument) == 0 && pthread_join(thread, NULL) == 0);
}

/* ---- without a lock ---- */

static void test_a_block_freed_and_asked_for_again_needs_no_lock(void)
{
    begin(256 * MIB);
    for (unsigned i = 0; i < SIZES; i++) {
        const uint64_t address = take(sizes[i]);
        struct pool_block first, second;

        CHECK(pool_block(&pool, address, false, &first) == 0);
        CHECK(pool_free(&pool, address, true) == 0);
        const uint64_t hits = pool.hits;
        pthread_mutex_lock(&pool.lock.mutex); /* a thread that needs it now would hang */
        for (unsigned n = 0; n < 1000; n++) {
            CHECK(take(sizes[i]) == address);
            CHECK(pool_has_block(&pool, address) && !cache_knows_live(&pool, address + 512));
            CHECK(pool_free(&pool, address, true) == 0);
            CHECK(!cache_knows_live(&pool, address));
        }
        CHECK(take(sizes[i]) == address);
        pthread_mutex_unlock(&pool.lock.mutex);
        CHECK(pool.hits == hits);
        CHECK(pool_block(&pool, address, false, &second) == 0 && second.id != first.id);
        CHECK(pool_free(&pool, address, true) == 0);
    }
    CHECK(pool_stats(&pool).hits >= 1000 * SIZES);
    end_empty();
}

static uint64_t medium(unsigned i)
{
    return 20000 + 1024 * (uint64_t)i;
}

static void test_a_freed_block_takes_the_slot_of_a_live_one_before_that_of_a_cached_one(void)
{
    uint64_t blocks[CACHE_MID];

    begin(256 * MIB);
    for (unsigned i = 0; i < CACHE_MID; i++)
        blocks[i] = take(medium(i));
    const uint64_t other = take(100000);
    for (unsigned i = 0; i < CACHE_MID; i++)
        CHECK(pool_free(&pool, blocks[i], true) == 0);
    CHECK(take(medium(0)) == blocks[0] && pool_free(&pool, other, true) == 0);
    const uint64_t hits = pool.hits; /* of allocations under the lock */
    for (unsigned i = 1; i < CACHE_MID; i++)
        CHECK(take(medium(i)) == blocks[i]);
    CHECK(pool.hits == hits);
    for (unsigned i = 0; i < CACHE_MID; i++)
        CHECK(pool_free(&pool, blocks[i], true) == 0);
    end_empty();
}

/* Leaves a gap of `gap` bytes between two blocks, and a block of 20 MiB, which is returned, behind a larger
 * gap. */
static uint64_t beside_gaps(uint64_t gap)
{
    const uint64_t first = take(gap), second = take(4 * MIB), third = take(30 * MIB), kept = take(4 * MIB);

    CHECK(pool_free(&pool, third, true) == 0);
    const uint64_t block = take(20 * MIB);
    CHECK(second && kept && block == third && pool_free(&pool, first, true) == 0);
    return block;
}

/* With much room a block is not taken again where it was if it now fits better elsewhere. */
static void best_place(uint64_t limit, bool moves)
{
    begin(limit);
    const uint64_t block = beside_gaps(22 * MIB);
    CHECK(pool_free(&pool, block, true) == 0);
    const uint64_t next = take(20 * MIB);
    CHECK(moves ? next < block : next == block);
    CHECK(pool_check(&pool) == NULL);
    pool_close(&pool, true);
    fake_end();
}

static void test_cached_blocks_side_by_side_serve_a_larger_one(void)
{
    begin(256 * MIB);
    const uint64_t first = take(200000), second = take(200000), last = take(300000);
    CHECK(pool_free(&pool, first, true) == 0 && pool_free(&pool, second, true) == 0);
    CHECK(take(400000) == first);
    CHECK(pool_free(&pool, first, true) == 0 && pool_free(&pool, last, true) == 0);
    end_empty();
}

static void test_with_much_room_a_large_block_is_cached_only_where_it_fits_best(void)
{
    best_place(64 * GIB, true);
    best_place(GIB, false);
}

/* The block that came from the cache is not kept there either once another has come. */
static void test_a_block_from_the_cache_returns_there_only_if_no_other_came_or_went(void)
{
    begin(64 * GIB);
    const uint64_t gap = take(22 * MIB), block = (take(4 * MIB), take(20 * MIB));

    CHECK(pool_free(&pool, block, true) == 0 && take(20 * MIB) == block);
    CHECK(pool_free(&pool, gap, true) == 0 && pool_free(&pool, block, true) == 0);
    CHECK(take(20 * MIB) == gap && pool_check(&pool) == NULL);
    pool_close(&pool, true);
    fake_end();
}

/* Also one that was not the last to be handed out. */
static void test_each_block_from_the_cache_returns_there(void)
{
    begin(256 * MIB);
    const uint64_t one = take(20000), two = take(2 * MIB);
    CHECK(pool_free(&pool, one, true) == 0 && pool_free(&pool, two, true) == 0);
    pthread_mutex_lock(&pool.lock.mutex); /* a thread that needs it now would hang */
    CHECK(take(20000) == one && take(2 * MIB) == two);
    CHECK(pool_free(&pool, one, true) == 0 && pool_free(&pool, two, true) == 0);
    CHECK(take(2 * MIB) == two && take(20000) == one);
    CHECK(pool_free(&pool, two, true) == 0 && pool_free(&pool, one, true) == 0);
    pthread_mutex_unlock(&pool.lock.mutex);
    end_empty();
}

/* Behind work of one stream the same block comes back at once; when a second stream has come, only in order.
 */
static void test_kept_blocks_are_reused_behind_one_stream_and_not_behind_two(void)
{
    begin(256 * MIB);
    for (unsigned i = 0; i < SIZES; i++) {
        const uint64_t address = take(sizes[i]);

        CHECK(!streams_submit_begin(STREAM(0)));
        fake_work(0, address, sizes[i], i + 1);
        CHECK(pool_free(&pool, address, false) == 0);
        CHECK(take(sizes[i]) == address);
        CHECK(pool_free(&pool, address, false) == 0);
    }
    CHECK(fake_backlog(0) == SIZES); /* the pool has not waited */
    const uint64_t shared = take(MIB);
    CHECK(streams_submit_begin(STREAM(1)) &&
          fake_count(FAKE_WAIT) == 1); /* it comes behind the work on every block */
    fake_work(1, shared, MIB, 100);
    streams_submit_end();
    for (unsigned i = 0; i < SIZES; i++) {
        const uint64_t address = take(sizes[i]);

        streams_submit_begin(STREAM(0));
        fake_work(0, address, sizes[i], 200 + i);
        CHECK(pool_free(&pool, address, false) == 0);
        const uint64_t other = take(sizes[i]);
        CHECK(!fake_in_the_way(other, sizes[i]));
        CHECK(pool_free(&pool, other, true) == 0);
    }
    CHECK(pool_free(&pool, shared, false) == 0);
    while (fake_progress(0) || fake_progress(1))
        ;
    pool_trim(&pool, UINT64_MAX);
    end_empty();
}

/* ---- frees that are none ---- */

static void refuse_all(uint64_t address, uint64_t bytes)
{
    const uint64_t wrong[] = {0, 1, 256, RANGES_UNIT, bytes / 2, bytes - 1};
    struct pool_block block;

    for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        CHECK(pool_free(&pool, address + wrong[i], true) == -EINVAL);
        CHECK(pool_block(&pool, address + wrong[i], true, &block) == -EINVAL);
    }
    CHECK(pool_pin(&pool, address) == -EINVAL && pool_unpin(&pool, address) == -EINVAL);
    CHECK(pool_set_sync_memops(&pool, address, true) == -EINVAL);
    CHECK(pool_check(&pool) == NULL);
}

static void *take_everything(void *unused)
{
    (void)unused;
    CHECK(pool_free(&pool, take(64 * MIB), true) == 0);
    return NULL;
}

static void test_a_second_free_is_refused_from_every_state_of_a_block(void)
{
    begin(64 * MIB);
    for (unsigned i = 2; i < SIZES; i++) { /* engine_small.c has the smaller ones */
        uint64_t address = take(sizes[i]);

        for (uint64_t inside = 1; inside < sizes[i]; inside = inside * 3 + 7)
            CHECK(pool_free(&pool, address + inside, true) == -EINVAL);
        CHECK(pool_free(&pool, pool.vmm.base - RANGES_UNIT, true) == -EINVAL);
        CHECK(pool_free(&pool, address, true) == 0);
        refuse_all(address, sizes[i]); /* kept by this thread */
        on_thread(take_everything, NULL);
        refuse_all(address, sizes[i]); /* another has had it since */
        address = take(sizes[i]);
        CHECK(pool_pin(&pool, address) == 0 && pool_free(&pool, address, true) == 0);
        CHECK(pool_free(&pool, address, true) == -EINVAL && pool_pin(&pool, address) == -EINVAL);
        CHECK(pool_unpin(&pool, address) == 0);
        refuse_all(address, sizes[i]);
    }
    for (unsigned i = 2; i < SIZES; i++) { /* behind work of two streams */
        const uint64_t address = take(sizes[i]);

        for (unsigned s = 0; s < 2; s++) {
            const bool foreign = streams_submit_begin(STREAM(s));

            fake_work(s, address, sizes[i], 1000 + i);
            if (foreign)
                streams_submit_end();
        }
        CHECK(pool_free(&pool, address, false) == 0);
        refuse_all(address, sizes[i]);
    }
    while (fake_progress(0) || fake_progress(1))
        ;
    pool_trim(&pool, UINT64_MAX);
    end_empty();
}

#define TURNS 4000

static atomic_uint here, freed;
static uint64_t target;

static void *free_too(void *unused)
{
    (void)unused;
    for (unsigned turn = 1; turn <= TURNS * SIZES; turn++) {
        owners_meet(&here, 2 * turn - 1);
        const int rc = pool_free(&pool, target, true);
        CHECK(rc == 0 || rc == -EINVAL);
        atomic_fetch_add(&freed, rc == 0);
        owners_meet(&here, 2 * turn);
    }
    return NULL;
}

static void test_of_two_threads_that_free_a_block_one_succeeds(void)
{
    pthread_t other;

    begin(64 * MIB);
    CHECK(pthread_create(&other, NULL, free_too, NULL) == 0);
    for (unsigned turn = 1; turn <= TURNS * SIZES; turn++) {
        target = take(sizes[turn % SIZES]);
        atomic_store(&freed, 0);
        owners_meet(&here, 2 * turn - 1);
        const int rc = pool_free(&pool, target, true);
        CHECK(rc == 0 || rc == -EINVAL);
        atomic_fetch_add(&freed, rc == 0);
        owners_meet(&here, 2 * turn);
        CHECK(atomic_load(&freed) == 1);
    }
    CHECK(pthread_join(other, NULL) == 0);
    end_empty();
}

/* ---- other threads ---- */

static sem_t kept, go_on;
static uint64_t its_block, all;

static void *keep_and_wait(void *unused)
{
    uint64_t address;

    (void)unused;
    its_block = take(40 * MIB);
    for (unsigned i = 0; i < 8; i++)
        CHECK(pool_free(&pool, take(MIB), true) == 0);
    CHECK(pool_free(&pool, its_block, true) == 0);
    sem_post(&kept);
    sem_wait(&go_on);
    CHECK(pool_alloc(&pool, 40 * MIB, &address) == -ENOMEM); /* another thread has it */
    CHECK(its_block == all || pool_free(&pool, its_block, true) == -EINVAL);
    sem_post(&kept);
    sem_wait(&go_on);
    CHECK(pool_free(&pool, take(40 * MIB), true) == 0);
    return NULL;
}

static void test_what_an_idle_thread_keeps_is_there_for_others(void)
{
    pthread_t other;

    begin(64 * MIB);
    sem_init(&kept, 0, 0);
    sem_init(&go_on, 0, 0);
    CHECK(pthread_create(&other, NULL, keep_and_wait, NULL) == 0);
    sem_wait(&kept);
    all = take(63 * MIB + 1);
    CHECK(pool_stats(&pool).live == 63 * MIB + RANGES_UNIT);
    sem_post(&go_on);
    sem_wait(&kept);
    CHECK(pool_free(&pool, all, true) == 0);
    CHECK(pool_free(&pool, take(MIB), true) == 0); /* through a cache of this thread, beside the other one */
    CHECK(labs((char *)pool.caches - (char *)pool.caches->next) == sizeof(struct cache));
    sem_post(&go_on);
    CHECK(pthread_join(other, NULL) == 0);
    const uint64_t block = take(MIB);
    CHECK(pool_stats(&pool).live_count == 1); /* what was taken from the thread does not count */
    CHECK(pool_free(&pool, block, true) == 0);
    end_empty();
}

static uint64_t left[50];

static void *take_and_leave(void *unused)
{
    (void)unused;
    for (unsigned i = 0; i < 50; i++)
        left[i] = take(9000);
    return NULL;
}

static void test_blocks_of_a_thread_that_ended_count_in_the_peak(void)
{
    begin(64 * MIB);
    on_thread(take_and_leave, NULL);
    const struct pool_stats s = pool_stats(&pool);
    CHECK(s.live >= 50 * 9000 && s.peak_live == s.live && s.live_count == 50);
    for (unsigned i = 0; i < 50; i++)
        CHECK(pool_free(&pool, left[i], true) == 0);
    end_empty();
}

static void *keep_and_leave(void *unused)
{
    uint64_t blocks[SIZES];

    (void)unused;
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < SIZES; i++)
            blocks[i] = take(sizes[i]);
        for (unsigned i = 0; i < SIZES; i++)
            CHECK(pool_free(&pool, blocks[i], true) == 0);
    }
    return NULL;
}

static void test_a_thread_that_ends_leaves_nothing_behind(void)
{
    begin(64 * MIB);
    for (unsigned i = 0; i < 200; i++) {
        on_thread(keep_and_leave, NULL);
        if (i % 20 == 0) { /* all of the limit, the heap's part too */
            CHECK(pool_free(&pool, take(64 * MIB), true) == 0);
            CHECK(pool_stats(&pool).live == 0 && pool_stats(&pool).live_count == 0);
        }
    }
    CHECK(pool.caches == NULL || pool.caches->next == NULL); /* of this thread, at most */
    end_empty();
}

/* The context ends while a thread keeps blocks of its pool, and the next pool stands in the same place. */
static void *outlive(void *unused)
{
    uint64_t blocks[SIZES];

    (void)unused;
    for (unsigned round = 0; round < 6; round++) {
        for (unsigned i = 0; i < SIZES; i++)
            blocks[i] = take(sizes[i]);
        for (unsigned i = 0; i < SIZES; i++)
            CHECK(pool_free(&pool, blocks[i], true) == 0);
        sem_post(&kept);
        sem_wait(&go_on);
        for (unsigned i = 0; i < SIZES; i++) /* of the pool that was */
            CHECK(pool_free(&pool, blocks[i], true) == -EINVAL);
    }
    return NULL;
}

static void test_a_pool_may_end_while_threads_keep_blocks_of_it(void)
{
    pthread_t other;

    begin(64 * MIB);
    sem_init(&kept, 0, 0);
    sem_init(&go_on, 0, 0);
    CHECK(pthread_create(&other, NULL, outlive, NULL) == 0);
    for (unsigned round = 0; round < 6; round++) {
        sem_wait(&kept);
        CHECK(pool_free(&pool, take(5000), true) == 0); /* the other waits: it may be its block */
        pool_close(&pool, true);
        CHECK(fake_physical() == 0);
        owners_open_pool(&pool, &budget, 64 * MIB);
        sem_post(&go_on);
    }
    CHECK(pthread_join(other, NULL) == 0);
    end_empty();
}

static void *take_another(void *address)
{
    cache_flush_all(&pool);
    for (unsigned i = 0; i < 256; i++)
        CHECK(take(RANGES_UNIT) != *(const uint64_t *)address);
    return NULL;
}

/* A thread in the middle of keeping a small block, in a place where it never kept one: all is there but the
 * place's word, and the block's own is 0. */
static void half_kept(void)
{
    uint64_t word;

    begin(256 * MIB);
    uint64_t address = take(RANGES_UNIT);
    struct mark *mark = small_find(&pool, address, &word);
    struct cache_slot *slot = &cache_mine(&pool)->slots[0];

    CHECK(mark && atomic_load(&slot->word) == 0);
    atomic_store(&mark->word, 0);
    atomic_store(&slot->mark, mark);
    atomic_store(&slot->address, address);
    atomic_store(&slot->bytes, RANGES_UNIT);
    on_thread(take_another, &address);
}

static void test_a_block_that_is_being_kept_is_not_taken_away(void)
{
    if (!heap_exists())
        TEST_IGNORE_MESSAGE("no jemalloc in this build");
    TEST_ASSERT_TRUE(fake_child(half_kept));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_a_block_freed_and_asked_for_again_needs_no_lock);
    RUN_APART(test_a_freed_block_takes_the_slot_of_a_live_one_before_that_of_a_cached_one);
    RUN_APART(test_cached_blocks_side_by_side_serve_a_larger_one);
    RUN_APART(test_with_much_room_a_large_block_is_cached_only_where_it_fits_best);
    RUN_APART(test_a_block_from_the_cache_returns_there_only_if_no_other_came_or_went);
    RUN_APART(test_each_block_from_the_cache_returns_there);
    RUN_APART(test_kept_blocks_are_reused_behind_one_stream_and_not_behind_two);
    RUN_APART(test_a_second_free_is_refused_from_every_state_of_a_block);
    RUN_APART(test_of_two_threads_that_free_a_block_one_succeeds);
    RUN_APART(test_what_an_idle_thread_keeps_is_there_for_others);
    RUN_APART(test_blocks_of_a_thread_that_ended_count_in_the_peak);
    RUN_APART(test_a_thread_that_ends_leaves_nothing_behind);
    RUN_APART(test_a_pool_may_end_while_threads_keep_blocks_of_it);
    RUN_TEST(test_a_block_that_is_being_kept_is_not_taken_away);
    return UNITY_END();
}
