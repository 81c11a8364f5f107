/* Small blocks of the pool, which come from its heap, over the fake driver. Each case is a process of its
 * own, because the fence remembers which streams have worked. */
#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_owners.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "interpose/pool/small.h"

#define LIMIT       (256 * MIB)
#define REST_BLOCK  SMALL_PAGE /* too large for the heap, and in the zone of small blocks */
#define REST_BLOCKS 64
#define LARGEST     14336
#define STREAM(n)   (0x10000 + (uintptr_t)(n)*0x100)

static struct pool pool;
static struct owners_budget budget;
static struct owners owners;
static uint64_t addresses[LARGEST + 1], ids[LARGEST + 1];

void setUp(void) {}

void tearDown(void) {}

static void begin(uint64_t limit)
{
    fake_start(limit);
    owners_open_pool(&pool, &budget, limit);
    owners_open(&owners, &pool);
}

/* Closes the pool after everything was freed: all memory must go back to the driver. */
static void end_empty(void)
{
    const struct pool_stats s = pool_stats(&pool);

    CHECK(pool_check(&pool) == NULL);
    CHECK(s.live == 0 && s.live_count == 0);
    pool_trim(&pool, UINT64_MAX);
    CHECK(fake_physical() == 0 && atomic_load(&budget.used) == 0);
    owners_close(&owners);
    pool_close(&pool, true);
    fake_end();
}

static uint64_t take(uint64_t bytes)
{
    uint64_t address;

    CHECK(pool_alloc(&pool, bytes, &address) == 0 && address % RANGES_UNIT == 0);
    CHECK(fake_usable(address, bytes));
    owners_set(&owners, address, bytes, true);
    return address;
}

static void give(uint64_t address, uint64_t bytes, bool done)
{
    owners_set(&owners, address, bytes, false);
    CHECK(pool_free(&pool, address, done) == 0);
}

static void work(unsigned stream, uint64_t address, uint64_t bytes)
{
    const bool foreign = streams_submit_begin(STREAM(stream));

    fake_work(stream, address, bytes, address);
    if (foreign)
        streams_submit_end();
}

static void finish_work(void)
{
    for (unsigned s = 0; s < FAKE_STREAMS; s++) {
        while (fake_progress(s))
            ;
    }
}

/* ---- one thread ---- */

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void test_small_blocks_of_every_size_lie_apart_and_add_up(void)
{
    uint64_t live = 0;

    begin(LIMIT);
    for (uint64_t bytes = 1; bytes <= LARGEST; bytes++) {
        struct pool_block block;

        addresses[bytes] = take(bytes);
        live += (bytes + RANGES_UNIT - 1) / RANGES_UNIT * RANGES_UNIT;
        CHECK(pool_block(&pool, addresses[bytes], false, &block) == 0);
        CHECK(block.address == addresses[bytes] && block.asked == bytes && block.pins == 0);
        ids[bytes] = block.id;
        CHECK(pool_block(&pool, addresses[bytes] + bytes - 1, true, &block) == 0);
        CHECK(block.address == addresses[bytes] && block.id == ids[bytes]);
        if (bytes % RANGES_UNIT) /* behind the block, though before the next one */
            CHECK(pool_block(&pool, addresses[bytes] + bytes, true, &block) == -EINVAL);
    }
    const struct pool_stats s = pool_stats(&pool);
    CHECK(s.live == live && s.peak_live == live && s.live_count == LARGEST);
    CHECK(s.live + s.cached + s.pending == s.physical && s.physical == fake_physical());
    qsort(ids + 1, LARGEST, sizeof(*ids), compare);
    for (unsigned i = 2; i <= LARGEST; i++)
        CHECK(ids[i] != ids[i - 1]);
    for (uint64_t bytes = 1; bytes <= LARGEST; bytes++)
        give(addresses[bytes], bytes, true);
    CHECK(pool_stats(&pool).peak_live == live);
    end_empty();
}

static void refuse_all(uint64_t address)
{
    const uint64_t wrong[] = {0, 1, RANGES_UNIT - 1, RANGES_UNIT, 2 * RANGES_UNIT, 3 * RANGES_UNIT};
    struct pool_block block;

    for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        CHECK(pool_free(&pool, address + wrong[i], true) == -EINVAL);
    CHECK(pool_block(&pool, address, false, &block) == -EINVAL);
    CHECK(pool_block(&pool, address, true, &block) == -EINVAL);
    CHECK(pool_pin(&pool, address) == -EINVAL && pool_unpin(&pool, address) == -EINVAL);
    CHECK(pool_set_sync_memops(&pool, address, true) == -EINVAL);
    CHECK(pool_check(&pool) == NULL);
}

/* Blocks of 2048 bytes at multiples of that: the addresses that are tried are inside of one. */
static void test_a_second_free_is_refused_from_every_state_of_a_small_block(void)
{
    struct pool_block block;

    begin(LIMIT);
    const uint64_t bytes = 4 * RANGES_UNIT, live = take(bytes), gone = take(bytes);
    for (uint64_t inside = 1; inside < bytes; inside += 37)
        CHECK(pool_free(&pool, live + inside, true) == -EINVAL);
    give(gone, bytes, true);
    refuse_all(gone); /* the thread keeps it */
    pool_trim(&pool, UINT64_MAX);
    refuse_all(gone); /* the heap has it, or the pool */
    CHECK(pool_block(&pool, live, false, &block) == 0 && pool_stats(&pool).live == bytes);
    CHECK(pool_pin(&pool, live) == 0);
    give(live, bytes, true);
    for (unsigned i = 0; i < 2; i++) { /* another holder keeps it: it is not live, and a second free fails */
        CHECK(pool_free(&pool, live, true) == -EINVAL && pool_block(&pool, live, false, &block) == -EINVAL);
        CHECK(pool_pin(&pool, live) == -EINVAL);
    }
    CHECK(pool_unpin(&pool, live) == 0);
    refuse_all(live);
    /* Behind work of two streams. */
    const uint64_t late = take(bytes);
    work(0, late, bytes);
    work(1, late, bytes);
    give(late, bytes, false);
    CHECK(pool_stats(&pool).pending == bytes);
    refuse_all(late);
    finish_work();
    refuse_all(late);
    end_empty();
}

/* What two streams work on is not handed out again. It is given back when their work has ended, without
 * another allocation or free. */
static void test_small_blocks_behind_work_go_back_when_it_has_ended(void)
{
    enum { COUNT = 5000, BYTES = 3000 };

    begin(LIMIT);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            addresses[i] = take(BYTES);
            CHECK(!fake_in_the_way(addresses[i], BYTES));
        }
        for (unsigned i = 0; i < COUNT; i++) {
            if (i % 8 == 0)
                work(i % 16 == 0, addresses[i], BYTES);
            give(addresses[i], BYTES, false);
        }
        CHECK(pool_stats(&pool).pending > 0);
    }
    finish_work();
    CHECK(pool_trim(&pool, UINT64_MAX) > 0 && pool_stats(&pool).pending == 0);
    end_empty();
}

/* Up to the last byte of the limit, and from small blocks back to one large one. */
static void test_small_blocks_fill_the_limit_and_leave_it_whole(void)
{
    struct fake_random random = {.state = 7};
    uint64_t bytes, live = 0, count = 0;

    begin(32 * MIB);
    for (unsigned round = 0; round < 4; round++) {
        while (count <= LARGEST) {
            bytes = 1 + fake_below(&random, LARGEST);
            if (pool_alloc(&pool, bytes, &addresses[count]))
                break;
            owners_set(&owners, addresses[count], bytes, true);
            ids[count++] = bytes;
            live += (bytes + RANGES_UNIT - 1) / RANGES_UNIT * RANGES_UNIT;
        }
        const struct pool_stats s = pool_stats(&pool);
        CHECK(s.live == live && s.physical == 32 * MIB);
        CHECK(s.largest < LARGEST && pool_reclaimable(&pool) == 0);
        CHECK(s.live * 100 > s.physical * 80); /* some blocks short of full slabs, of each size */
        for (; count > 0; count--)
            give(addresses[count - 1], ids[count - 1], true);
        live = 0;
        const uint64_t all = take(32 * MIB);
        give(all, 32 * MIB, true);
    }
    end_empty();
}

/* At the limit a free page between live blocks is used. */
static void test_small_blocks_go_where_a_page_is_free(void)
{
    begin(16 * RANGES_PAGE);
    for (unsigned i = 0; i < 16; i++)
        addresses[i] = take(RANGES_PAGE);
    give(addresses[7], RANGES_PAGE, true);
    const uint64_t block = take(512);
    CHECK(fake_physical() == 16 * RANGES_PAGE);
    addresses[7] = block;
    for (unsigned i = 0; i < 16; i++)
        give(addresses[i], i == 7 ? 512 : RANGES_PAGE, true);
    end_empty();
}

/* A block for which the heap took new memory is no hit. */
/* Small blocks that other work still uses are not waited for if they could not help. */
static void test_what_can_never_fit_is_refused_at_once(void)
{
    uint64_t address;

    begin(32 * MIB);
    addresses[0] = take(3000);
    addresses[1] = take(24 * MIB);
    work(0, addresses[0], 3000);
    work(1, addresses[0], 3000);
    give(addresses[0], 3000, false);
    CHECK(pool_alloc(&pool, 16 * MIB, &address) == -ENOMEM);
    CHECK(pool_stats(&pool).pending > 0 && pool_stats(&pool).waits == 0);
    finish_work();
    give(addresses[1], 24 * MIB, true);
    end_empty();
}

/* First for large blocks, then for small ones. */
static void test_an_allocation_that_waits_twice_counts_once(void)
{
    begin(32 * MIB);
    fence_forbid_joins();
    addresses[0] = take(3000);
    addresses[1] = take(28 * MIB);
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t bytes = i ? 28 * MIB : 3000;

        work(0, addresses[i], bytes);
        work(1, addresses[i], bytes);
        give(addresses[i], bytes, false);
    }
    give(take(32 * MIB), 32 * MIB, true);
    CHECK(pool_stats(&pool).waits == 1);
    end_empty();
}

static void test_a_block_for_which_the_heap_grew_is_no_hit(void)
{
    begin(LIMIT);
    const uint64_t first = take(700), second = take(700), other = take(5000);
    const struct pool_stats s = pool_stats(&pool);
    CHECK(s.hits == 2 && s.grows == 1 && s.stitches == 0);
    give(first, 700, true);
    give(second, 700, true);
    give(other, 5000, true);
    end_empty();
}

/* ---- other threads ---- */

static sem_t kept, go_on;

/* Many blocks, freed in any order, so that what the thread keeps lies in many pages; then it does nothing. */
static void *keep_and_wait(void *unused)
{
    struct fake_random random = {.state = 11};

    (void)unused;
    for (unsigned i = 0; i < LARGEST; i++) {
        ids[i] = 1 + fake_below(&random, LARGEST);
        addresses[i] = take(ids[i]);
    }
    for (unsigned i = LARGEST; i > 0; i--) {
        const unsigned j = (unsigned)fake_below(&random, i);

        give(addresses[j], ids[j], true);
        addresses[j] = addresses[i - 1];
        ids[j] = ids[i - 1];
    }
    sem_post(&kept);
    sem_wait(&go_on);
    give(take(700), 700, true); /* it goes on as if nothing had been */
    return NULL;
}

static void test_what_an_idle_thread_keeps_of_the_heap_is_there_for_others(void)
{
    pthread_t other;

    begin(LIMIT);
    sem_init(&kept, 0, 0);
    sem_init(&go_on, 0, 0);
    for (unsigned round = 0; round < 2; round++) {
        CHECK(pthread_create(&other, NULL, keep_and_wait, NULL) == 0);
        sem_wait(&kept);
        if (round == 0)
            give(take(LIMIT), LIMIT, true);
        pool_trim(&pool, UINT64_MAX);
        CHECK(fake_physical() == 0);
        sem_post(&go_on);
        CHECK(pthread_join(other, NULL) == 0);
    }
    end_empty();
}

static void *use_and_wait(void *unused)
{
    (void)unused;
    give(take(REST_BLOCK), REST_BLOCK, true); /* the pool takes it out of this thread's cache */
    for (unsigned round = 0; round < 3; round++) {
        give(take(700), 700, true);
        sem_post(&kept);
        sem_wait(&go_on);
    }
    return NULL;
}

/* Takes what the heap's first page has left of the chunks that were made for it. Returns how many blocks. */
static unsigned take_rest(uint64_t *blocks)
{
    const unsigned count = (unsigned)((fake_physical() - SMALL_PAGE) / REST_BLOCK);

    CHECK(count <= REST_BLOCKS);
    for (unsigned i = 0; i < count; i++)
        blocks[i] = take(REST_BLOCK);
    return count;
}

static void give_rest(const uint64_t *blocks, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        give(blocks[i], REST_BLOCK, true);
}

/* What a thread keeps of the heap is idle when it has done nothing for as long as others ask, though nothing
 * else of the pool is free. */
static void test_what_an_idle_thread_keeps_of_the_heap_is_idle(void)
{
    pthread_t other;

    begin(LIMIT);
    sem_init(&kept, 0, 0);
    sem_init(&go_on, 0, 0);
    CHECK(pthread_create(&other, NULL, use_and_wait, NULL) == 0);
    sem_wait(&kept);
    const unsigned count = take_rest(addresses);
    const uint64_t rest = count * REST_BLOCK;
    for (unsigned round = 0; round < 2; round++) {
        CHECK(pool_idle_bytes(&pool) == 0 && fake_physical() == SMALL_PAGE + rest);
        sem_post(&go_on);
        sem_wait(&kept);
    }
    CHECK(pool_idle_bytes(&pool) == 0);
    CHECK(pool_idle_bytes(&pool) == SMALL_PAGE);
    give_rest(addresses, count);
    CHECK(pool_trim(&pool, UINT64_MAX) == SMALL_PAGE + rest && fake_physical() == 0);
    CHECK(pool_idle_bytes(&pool) == 0);
    sem_post(&go_on);
    CHECK(pthread_join(other, NULL) == 0);
    end_empty();
}

/* What was freed last, behind work of two streams, becomes idle some time after the work has ended, without
 * another allocation or free. */
static void test_the_last_frees_are_idle_when_their_work_has_ended(void)
{
    begin(LIMIT);
    addresses[0] = take(3000);
    const unsigned count = take_rest(addresses + 2);
    addresses[1] = take(8 * MIB);
    for (unsigned i = 0; i < 2; i++) {
        work(0, addresses[i], 512);
        work(1, addresses[i] + 512, 512);
        give(addresses[i], i ? 8 * MIB : 3000, false);
    }
    CHECK(pool_idle_bytes(&pool) == 0 && pool_idle_bytes(&pool) == 0);
    finish_work();
    give_rest(addresses + 2, count);
    for (unsigned i = 0; i < 4; i++) {
        const uint64_t idle_bytes = pool_idle_bytes(&pool);

        if (idle_bytes)
            pool_trim(&pool, idle_bytes);
    }
    CHECK(fake_physical() == 0);
    end_empty();
}

/* ---- pins ---- */

static void *unpin_it(void *address)
{
    CHECK(pool_unpin(&pool, *(uint64_t *)address) == 0);
    return NULL;
}

static void test_a_pinned_small_block_stays_until_its_last_pin_is_gone(void)
{
    pthread_t other;
    struct pool_block block;

    begin(LIMIT);
    uint64_t held = take(700);
    CHECK(pool_pin(&pool, held) == 0 && pool_pin(&pool, held) == 0);
    CHECK(pool_block(&pool, held, false, &block) == 0 && block.pins);
    CHECK(pool_free(&pool, held, true) == 0); /* stays ours in `owners`: it must not be handed out */
    for (unsigned i = 0; i < 1000; i++)
        addresses[i] = take(700);
    for (unsigned i = 0; i < 1000; i++)
        give(addresses[i], 700, true);
    pool_trim(&pool, UINT64_MAX);
    CHECK(fake_usable(held, 700) && pool_unpin(&pool, held) == 0);
    pool_trim(&pool, UINT64_MAX);
    CHECK(fake_usable(held, 700));
    owners_set(&owners, held, 700, false);
    /* The last pin goes in a thread that will never ask for a block: it may not keep it. */
    CHECK(pthread_create(&other, NULL, unpin_it, &held) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(pool_unpin(&pool, held) == -EINVAL);
    end_empty();
}

/* At the free all work was done; another process had the block open and has closed it since. */
static void test_the_last_pin_of_a_small_block_waits_for_work_of_after_the_free(void)
{
    begin(LIMIT);
    const uint64_t held = take(700), other = take(700);
    CHECK(pool_pin(&pool, held) == 0 && pool_free(&pool, held, true) == 0);
    work(0, other, 700);
    work(1, other, 700);
    CHECK(pool_unpin(&pool, held) == 0);
    CHECK(pool_stats(&pool).pending == 2 * RANGES_UNIT); /* and still in `owners`: it may not be handed out */
    for (unsigned i = 0; i < 1000; i++)
        addresses[i] = take(700);
    finish_work();
    owners_set(&owners, held, 700, false);
    pool_poll(&pool);
    CHECK(pool_stats(&pool).pending == 0);
    for (unsigned i = 0; i < 1000; i++)
        give(addresses[i], 700, true);
    give(other, 700, true);
    end_empty();
}

/* ---- a faulty heap ---- */

/* The mark of a block that is in the heap says that it is live. */
static void handed_out_twice(void)
{
    const uint64_t word = UINT64_C(1) << 40 | MARK_LIVE;
    uint64_t unused, first;

    begin(LIMIT);
    first = take(LARGEST);
    struct mark *mark = small_find(&pool, first, &unused);
    give(first, LARGEST, true);
    cache_flush_small(&pool);
    atomic_store(&mark->word, word);
    for (unsigned i = 0; i < 64; i++)
        CHECK(take(LARGEST) != first);
    CHECK(atomic_load(&mark->word) == word && pool_check(&pool) != NULL);
}

/* An extent comes back that is not out. */
static void given_back_twice(void)
{
    begin(LIMIT);
    const uint64_t first = take(LARGEST), page = first & ~(SMALL_PAGE - 1);
    unsigned piece = 0;

    while (pool.small.first->pieces[piece / 64] >> piece % 64 & 1)
        piece++;
    CHECK(pool_check(&pool) == NULL && piece < SMALL_PIECES);
    pool.small.source.give(&pool, page + piece * SMALL_PIECE, SMALL_PIECE);
    CHECK(pool_check(&pool) != NULL && !(pool.small.first->pieces[piece / 64] >> piece % 64 & 1));
}

static void test_a_heap_that_is_wrong_does_no_harm(void)
{
    TEST_ASSERT_TRUE(fake_child(handed_out_twice));
    TEST_ASSERT_TRUE(fake_child(given_back_twice));
}

int main(void)
{
    if (!heap_exists()) {
        puts("no jemalloc in this build");
        return 77;
    }
    UNITY_BEGIN();
    RUN_APART(test_small_blocks_of_every_size_lie_apart_and_add_up);
    RUN_APART(test_a_second_free_is_refused_from_every_state_of_a_small_block);
    RUN_APART(test_small_blocks_behind_work_go_back_when_it_has_ended);
    RUN_APART(test_small_blocks_fill_the_limit_and_leave_it_whole);
    RUN_APART(test_small_blocks_go_where_a_page_is_free);
    RUN_APART(test_what_can_never_fit_is_refused_at_once);
    RUN_APART(test_an_allocation_that_waits_twice_counts_once);
    RUN_APART(test_a_block_for_which_the_heap_grew_is_no_hit);
    RUN_APART(test_what_an_idle_thread_keeps_of_the_heap_is_there_for_others);
    RUN_APART(test_what_an_idle_thread_keeps_of_the_heap_is_idle);
    RUN_APART(test_the_last_frees_are_idle_when_their_work_has_ended);
    RUN_APART(test_a_pinned_small_block_stays_until_its_last_pin_is_gone);
    RUN_APART(test_the_last_pin_of_a_small_block_waits_for_work_of_after_the_free);
    RUN_TEST(test_a_heap_that_is_wrong_does_no_harm);
    return UNITY_END();
}
