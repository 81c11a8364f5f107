/* What a pool says of itself: figures, tags, and which blocks are live. Each case is a process of its own, as
 * in engine_pool.c. */
#include "interpose/pool/pool_pending.h"
#include "interpose/see/events.h"
#include "interpose/see/tags.h"
#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_model.h"

#include <errno.h>
#include <unity.h>

static struct model model;

void setUp(void) {}

void tearDown(void) {}

/* Two streams work on a freed block. */
static void free_busy_block(uint64_t bytes)
{
    streams_distrust();
    CHECK(model_alloc(&model, bytes) == 0);
    model_work(&model, 0, &model.blocks[0]);
    model_work(&model, 1, &model.blocks[0]);
    model_free(&model, 0, false);
}

static void finish(void)
{
    while (fake_progress(0) || fake_progress(1))
        ;
    pool_poll(&model.pool);
}

static void test_memory_that_waits_for_work_is_not_idle(void)
{
    fence_forbid_joins();
    model_open(&model, 64 * MIB, 64 * MIB);
    free_busy_block(16 * MIB);
    struct pool_stats s = pool_stats(&model.pool);
    CHECK(s.physical == 16 * MIB && s.pending == 16 * MIB && s.cached == 0 && s.live == 0);
    CHECK(pool_reclaimable(&model.pool) == 16 * MIB); /* a request would wait for the work, and get it */
    finish();
    CHECK(pool_reclaimable(&model.pool) == 16 * MIB);
    s = pool_stats(&model.pool);
    CHECK(s.physical == 16 * MIB && s.pending == 0 && s.cached == 16 * MIB && s.largest == 16 * MIB);
    CHECK(s.joins == 0);
    model_close(&model);
}

/* Blocks share chunks: they are free, wait for work, or are live. */
static void test_chunks_that_will_be_whole_after_their_work_are_told_as_free(void)
{
    fence_forbid_joins();
    model_open(&model, 64 * MIB, 64 * MIB);
    free_busy_block(6 * MIB);
    finish();
    for (unsigned i = 0; i < 4; i++)
        CHECK(model_alloc(&model, MIB * 3 / 2) == 0);
    CHECK(pool_stats(&model.pool).physical == 6 * MIB);
    model_free(&model, 0, true);
    for (unsigned i = 1; i < 3; i++) {
        model_work(&model, 0, &model.blocks[0]);
        model_work(&model, 1, &model.blocks[0]);
        model_free(&model, 0, false);
        const struct pool_stats s = pool_stats(&model.pool);
        CHECK(s.pending && pool_reclaimable(&model.pool) <= s.cached + s.pending);
    }
    const uint64_t before = pool_reclaimable(&model.pool);
    finish();
    CHECK(pool_reclaimable(&model.pool) == before);
    model_work(&model, 0, &model.blocks[0]);
    model_work(&model, 1, &model.blocks[0]);
    model_free(&model, 0, false);
    CHECK(pool_stats(&model.pool).pending && pool_reclaimable(&model.pool) == 6 * MIB);
    finish();
    CHECK(pool_reclaimable(&model.pool) == 6 * MIB);
    model_close(&model);
}

/* Between two looks at what is idle. */
static void test_the_peak_is_that_of_the_last_period(void)
{
    bool more;

    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(pool_wait(&model.pool, &more) == -ENOENT); /* there is nothing to wait for */
    CHECK(model_alloc(&model, 16 * MIB) == 0 && model_alloc(&model, 8 * MIB) == 0);
    model_free(&model, 0, true);
    pool_idle_bytes(&model.pool);
    CHECK(model.pool.recent_peak == 24 * MIB);
    pool_idle_bytes(&model.pool);
    CHECK(model.pool.recent_peak == 8 * MIB);
    model_free(&model, 0, true);
    model_close(&model);
}

static void test_joins_are_counted(void)
{
    model_open(&model, 64 * MIB, 64 * MIB);
    free_busy_block(16 * MIB);
    lock_take(&model.pool.lock);
    CHECK(pool_join(&model.pool) && !pool_join(&model.pool));
    lock_release(&model.pool.lock);
    CHECK(pool_stats(&model.pool).joins == 1);
    finish();
    model_close(&model);
}

static void test_memory_whose_work_has_ended_needs_no_join(void)
{
    model_open(&model, 64 * MIB, 64 * MIB);
    free_busy_block(16 * MIB);
    while (fake_progress(0) || fake_progress(1))
        ;
    CHECK(model_alloc(&model, 16 * MIB) == 0 && pool_stats(&model.pool).joins == 0);
    model_close(&model);
}

/* Otherwise a few large blocks would wait for the next request that does not fit. */
static void test_a_large_free_closes_its_epoch(void)
{
    model_open(&model, 1024 * MIB, 1024 * MIB);
    const uint64_t before = atomic_load(&model.pool.fence.open);
    free_busy_block(256 * MIB);
    const uint64_t after = atomic_load(&model.pool.fence.open);
    CHECK(after > before);
    free_busy_block(2 * MIB); /* a small one does not */
    CHECK(atomic_load(&model.pool.fence.open) == after);
    finish();
    model_close(&model);
}

/* Blocks of 1.5 MiB side by side: every other one is freed. */
static void test_free_parts_of_chunks_are_stranded_but_for_the_largest(void)
{
    uint64_t blocks[32];

    model_open(&model, 48 * MIB, 48 * MIB);
    for (int i = 0; i < 32; i++)
        CHECK(pool_alloc(&model.pool, 3 * MIB / 2, &blocks[i]) == 0);
    for (int i = 0; i < 32; i += 2)
        CHECK(pool_free(&model.pool, blocks[i], true) == 0);
    const struct pool_stats s = pool_stats(&model.pool);
    CHECK(s.cached == 24 * MIB && s.largest == 3 * MIB / 2 && s.stranded == 24 * MIB - 3 * MIB / 2);
    for (int i = 1; i < 32; i += 2)
        CHECK(pool_free(&model.pool, blocks[i], true) == 0);
    model_close(&model);
}

static void test_what_is_held_is_counted_by_card(void)
{
    uint64_t address;

    model_open(&model, 64 * MIB, 64 * MIB);
    model.pool.ordinal = 3;
    CHECK(pool_alloc(&model.pool, 8 * MIB, &address) == 0);
    CHECK(pool_held_on(3) == 8 * MIB && pool_held_on(0) == 0);
    CHECK(pool_free(&model.pool, address, true) == 0);
    CHECK(pool_reclaimable(&model.pool) == 8 * MIB); /* the thread has kept it */
    const uint64_t given_back = atomic_load(&pool_given_back);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 8 * MIB && pool_held_on(3) == 0);
    CHECK(atomic_load(&pool_given_back) > given_back); /* a thread that was refused tries again */
    model.pool.ordinal = 0;
    model_close(&model);
}

/* An allocation may have to wait for it. */
static void test_a_trim_keeps_the_lock_for_a_few_chunks_only(void)
{
    model_open(&model, 128 * MIB, 128 * MIB);
    CHECK(model_alloc(&model, 128 * MIB) == 0);
    model_free(&model, 0, true);
    lock_take(&model.pool.lock);
    const uint64_t given = pool_trim_some(&model.pool, UINT64_MAX);
    lock_release(&model.pool.lock);
    CHECK(given == 64 * MIB && pool_stats(&model.pool).physical == 64 * MIB);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 64 * MIB);
    model_close(&model);
}

static uint64_t tagged(void)
{
    uint64_t live, peak;

    CHECK(tags_read("tag", &live, &peak));
    return live;
}

/* Large blocks, those that a thread keeps, and small ones. */
static const uint64_t sizes[] = {4 * MIB - 100, MIB - 100, 1024 - 100};
#define SIZES 3

/* A block counts as what it takes. */
static uint64_t taken(int i)
{
    return sizes[i] + 100;
}

/* Each size is freed and handed out again, with the tag and without. */
static void test_bytes_of_a_tag_are_those_of_live_blocks(void)
{
    uint64_t address, all = 0;

    model_open(&model, 64 * MIB, 64 * MIB);
    for (int i = 0; i < SIZES; i++) {
        for (int again = 0; again < 3; again++) {
            CHECK(tags_set("tag"));
            CHECK(pool_alloc(&model.pool, sizes[i], &address) == 0);
            CHECK(tagged() == taken(i));
            CHECK(pool_free(&model.pool, address, true) == 0 && tagged() == 0);
            CHECK(tags_set(NULL));
            CHECK(pool_alloc(&model.pool, sizes[i], &address) == 0 && tagged() == 0);
            CHECK(pool_free(&model.pool, address, true) == 0 && tagged() == 0);
        }
    }
    CHECK(tags_set("tag"));
    for (int i = 0; i < SIZES; i++) {
        CHECK(pool_alloc(&model.pool, sizes[i], &address) == 0);
        all += taken(i);
    }
    CHECK(tagged() == all);
    pool_close(&model.pool, true); /* a context ends with its blocks */
    CHECK(tagged() == 0);
}

static void count_live(uint64_t address, const struct mark *mark, void *argument)
{
    (void)address, (void)mark;
    ++*(int *)argument;
}

static void test_blocks_that_a_thread_keeps_are_not_live(void)
{
    uint64_t kept[SIZES], freed[SIZES];
    int count = 0;

    model_open(&model, 64 * MIB, 64 * MIB);
    for (int i = 0; i < SIZES; i++)
        CHECK(pool_alloc(&model.pool, sizes[i], &kept[i]) == 0 &&
              pool_alloc(&model.pool, sizes[i], &freed[i]) == 0);
    for (int i = 0; i < SIZES; i++)
        CHECK(pool_free(&model.pool, freed[i], true) == 0);
    pool_each_live(&model.pool, count_live, &count);
    CHECK(count == SIZES);
    for (int i = 0; i < SIZES; i++)
        CHECK(pool_free(&model.pool, kept[i], true) == 0);
    model_close(&model);
}

/* A block that a thread keeps is taken and given back without the lock, beside one that came later. */
static void test_blocks_that_a_thread_keeps_count_in_the_peak(void)
{
    uint64_t kept, other;

    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(pool_alloc(&model.pool, 24 * MIB, &other) == 0 && pool_free(&model.pool, other, true) == 0);
    CHECK(pool_alloc(&model.pool, MIB, &kept) == 0 && pool_free(&model.pool, kept, true) == 0);
    model.pool.peak_live = 0;
    CHECK(pool_alloc(&model.pool, 8 * MIB, &other) == 0); /* there is room: nothing is taken from threads */
    CHECK(pool_alloc(&model.pool, MIB, &kept) == 0 && pool_free(&model.pool, kept, true) == 0);
    CHECK(pool_stats(&model.pool).peak_live == 9 * MIB);
    CHECK(pool_free(&model.pool, other, true) == 0);
    model_close(&model);
}

static void test_each_peer_keeps_its_own_count(void)
{
    struct vmm *vmm = &model.pool.vmm;

    model_open(&model, 64 * MIB, 64 * MIB);
    const uint64_t end = pool_mapped_end(&model.pool);
    CHECK(vmm_add_peer(vmm, 1, end) == 0 && vmm_add_peer(vmm, 2, end) == 0 && vmm_add_peer(vmm, 2, end) == 0);
    CHECK(vmm->access_count == 3);
    vmm_remove_peer(vmm, 1, end);
    CHECK(vmm->access_count == 2 && vmm->access[1].location.id == 2);
    vmm_remove_peer(vmm, 2, end);
    CHECK(vmm->access_count == 2);
    vmm_remove_peer(vmm, 2, end);
    CHECK(vmm->access_count == 1);
    model_close(&model);
}

/* What a recording was told by events of one type. */
struct told {
    uint64_t events, bytes, other; /* other: of the last */
};

static struct told told(enum recording_type type, int card)
{
    static struct events_reader readers[EVENTS_THREADS];
    struct told all = {0};

    CHECK(events_begin(readers) == 1);
    for (uint64_t at = readers[0].at; at < readers[0].end; at++) {
        const struct recording_event *event = &readers[0].slots[at % EVENTS_RING];

        if (event->head.type != type)
            continue;
        CHECK(event->device == card);
        all.events++;
        all.bytes += event->bytes;
        all.other = event->other;
    }
    return all;
}

static void is_told(enum recording_type type, uint64_t events, uint64_t bytes, uint64_t other)
{
    const struct told all = told(type, 3);

    CHECK(all.events == events && all.bytes == bytes && all.other == other);
}

/* Two free blocks of eight chunks together become one. */
static void recorded(void)
{
    model_open(&model, 40 * MIB, 40 * MIB);
    model.pool.ordinal = 3;
    events_switch(true);
    for (int i = 0; i < 5; i++)
        CHECK(model_alloc(&model, 8 * MIB) == 0);
    is_told(RECORDING_GROW, 20, 40 * MIB, 40 * MIB);
    model_free(&model, 0, true);
    model_free(&model, 1, true);
    CHECK(model_alloc(&model, 16 * MIB) == 0);
    is_told(RECORDING_STITCH, 1, 16 * MIB, 8);
    while (model.count)
        model_free(&model, 0, true);
    CHECK(pool_trim(&model.pool, 8 * MIB) == 8 * MIB);
    is_told(RECORDING_GROW, 20, 40 * MIB, 40 * MIB);
    is_told(RECORDING_TRIM, 4, 8 * MIB, 32 * MIB);
    CHECK(pool_held_on(3) == 32 * MIB && pool_held_on(0) == 0);
    events_switch(false);
    model_close(&model);
}

/* A request waits for work, still does not fit, and then gets what the heap of small blocks has unused. */
static void recorded_wait(void)
{
    static uint64_t small[2000];
    uint64_t address;

    fence_forbid_joins();
    model_open(&model, 8 * MIB, 8 * MIB);
    for (int i = 0; i < 2000; i++)
        CHECK(pool_alloc(&model.pool, 512, &small[i]) == 0);
    for (int i = 0; i < 2000; i++)
        CHECK(pool_free(&model.pool, small[i], true) == 0);
    free_busy_block(4 * MIB);
    CHECK(pool_alloc(&model.pool, 2 * MIB, &address) == 0);
    model.pool.ordinal = 3;
    events_switch(true);
    CHECK(model_alloc(&model, 6 * MIB) == 0);
    const struct told all = told(RECORDING_WAIT, 3);
    CHECK(all.events == 1 && all.bytes == 6 * MIB);
    events_switch(false);
    model_free(&model, 0, true);
    CHECK(pool_free(&model.pool, address, true) == 0);
    finish();
    model.pool.ordinal = 0;
    model_close(&model);
}

static void test_a_recording_is_told_what_the_pool_takes_moves_and_gives_back(void)
{
    TEST_ASSERT_TRUE(fake_child(recorded));
    TEST_ASSERT_TRUE(fake_child(recorded_wait));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_memory_that_waits_for_work_is_not_idle);
    RUN_APART(test_chunks_that_will_be_whole_after_their_work_are_told_as_free);
    RUN_APART(test_the_peak_is_that_of_the_last_period);
    RUN_APART(test_joins_are_counted);
    RUN_APART(test_memory_whose_work_has_ended_needs_no_join);
    RUN_APART(test_a_large_free_closes_its_epoch);
    RUN_APART(test_free_parts_of_chunks_are_stranded_but_for_the_largest);
    RUN_APART(test_what_is_held_is_counted_by_card);
    RUN_APART(test_a_trim_keeps_the_lock_for_a_few_chunks_only);
    RUN_APART(test_bytes_of_a_tag_are_those_of_live_blocks);
    RUN_APART(test_blocks_that_a_thread_keeps_are_not_live);
    RUN_APART(test_blocks_that_a_thread_keeps_count_in_the_peak);
    RUN_APART(test_each_peer_keeps_its_own_count);
    RUN_TEST(test_a_recording_is_told_what_the_pool_takes_moves_and_gives_back);
    return UNITY_END();
}
