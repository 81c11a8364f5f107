/* The pool moves chunks while a stream still works on them: it does not wait, unmaps nothing in use, undoes
 * everything if a call fails, and unmaps the old places in the end. Each case is a process of its own,
 * because the fence remembers which streams have worked. */
#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_model.h"

#include <errno.h>
#include <string.h>
#include <unity.h>

#define NEVER  (UINT64_C(1) << 60)
#define BLOCKS 96 /* more old places than the pool unmaps at a time */
#define BLOCK  (4 * MIB)

static struct model model;
static uint64_t holes[BLOCKS / 2]; /* addresses of what build() has freed */
static bool no_events;             /* the driver refuses to record them */

void setUp(void) {}

void tearDown(void) {}

static void finish_work(void)
{
    for (unsigned s = 0; s < FAKE_STREAMS; s++) {
        while (fake_progress(s))
            ;
    }
}

/* Every other block is freed behind work of one stream: half of the memory is in holes of one block. */
static void build(uint64_t capacity, uint64_t allowed)
{
    model_open(&model, capacity, allowed);
    if (no_events)
        fake_fail(1 << FAKE_RECORD, 1, NEVER);
    for (unsigned i = 0; i < BLOCKS; i++)
        CHECK(model_alloc(&model, BLOCK) == 0);
    for (unsigned i = 0; i < BLOCKS; i++)
        model_work(&model, 0, &model.blocks[i]);
    for (unsigned i = 0; i < BLOCKS / 2; i++) {
        holes[i] = model.blocks[i].address;
        model_free(&model, i, false);
    }
    CHECK(streams_in_order() && fake_backlog(0) == BLOCKS);
    model_check(&model);
}

static uint64_t places_left(void)
{
    uint64_t left = 0;

    for (unsigned i = 0; i < BLOCKS / 2; i++)
        left += fake_usable(holes[i], BLOCK);
    return left;
}

/* All that is free, in one piece; the old places stay. */
static void stitch(void)
{
    const uint64_t unmapped = fake_count(FAKE_UNMAP), waited = fake_count(FAKE_SYNCHRONIZE);

    build(BLOCKS * BLOCK, BLOCKS * BLOCK);
    CHECK(model_alloc(&model, BLOCKS / 2 * BLOCK) == 0);
    const struct pool_stats s = pool_stats(&model.pool);
    CHECK(s.stitches == 1 && s.stitched_chunks == BLOCKS && s.waits == 0 && s.cached == 0);
    CHECK(fake_count(FAKE_UNMAP) == unmapped + 1); /* the one that tried the platform */
    CHECK(fake_count(FAKE_SYNCHRONIZE) == waited && fake_backlog(0) == BLOCKS);
    CHECK(places_left() == BLOCKS / 2);
    model_check(&model);
}

static void test_a_stitch_behind_work_of_one_stream_neither_waits_nor_unmaps(void)
{
    stitch();
    model_work(&model, 0, &model.blocks[model.count - 1]);
    model_close(&model);
}

/* The fake stops the test if anything is unmapped that work still uses. */
static void test_the_sweep_unmaps_old_places_when_their_work_is_done(void)
{
    stitch();
    pool_sweep(&model.pool); /* they stay, being few */
    CHECK(places_left() == BLOCKS / 2);
    model.pool.dead_kept = 0;
    pool_sweep(&model.pool);
    CHECK(places_left() == BLOCKS / 2);
    for (unsigned done = 0; fake_progress(0); done++) {
        pool_sweep(&model.pool);
        model_check(&model);
    }
    pool_sweep(&model.pool);
    CHECK(places_left() == 0);
    model_check(&model);
    model_close(&model);
}

/* However many there are: it only takes the lock for a few at a time. */
static void test_one_sweep_unmaps_all_old_places_above_those_that_are_kept(void)
{
    stitch();
    finish_work();
    model.pool.dead_kept = 3;
    pool_sweep(&model.pool);
    CHECK(model.pool.dead_count == 3);
    model_close(&model);
}

/* The driver refuses to unmap one of them, once. */
static void test_an_old_place_that_the_driver_keeps_is_unmapped_later(void)
{
    stitch();
    finish_work();
    model.pool.dead_kept = BLOCKS - 8;
    fake_fail(1U << FAKE_UNMAP, 1, 0);
    pool_sweep(&model.pool);
    CHECK(fake_failed() == 1 && model.pool.dead_count == BLOCKS - 8);
    model.pool.dead_kept = 0;
    pool_sweep(&model.pool);
    CHECK(model.pool.dead_count == 0 && places_left() == 0);
    model_close(&model);
}

/* A block of moved chunks that other devices may reach. */
static void test_an_exposed_block_of_moved_chunks_goes_back_from_its_old_places_too(void)
{
    size_t i = 0;

    stitch();
    while (model.blocks[i].bytes != BLOCKS / 2 * BLOCK)
        i++;
    CHECK(pool_expose(&model.pool, model.blocks[i].address) == 0);
    finish_work();
    model_free(&model, i, true);
    pool_trim(&model.pool, UINT64_MAX);
    CHECK(places_left() == 0 && fake_physical() == BLOCKS / 2 * BLOCK);
    model_close(&model);
}

static void test_trim_unmaps_old_places_before_it_gives_their_memory_back(void)
{
    stitch();
    model_free(&model, model.count - 1, false);
    pool_trim(&model.pool, UINT64_MAX);
    CHECK(fake_physical() == BLOCKS * BLOCK && places_left() == BLOCKS / 2); /* all of it is in use */
    finish_work();
    CHECK(pool_trim(&model.pool, UINT64_MAX) == BLOCKS / 2 * BLOCK);
    CHECK(places_left() == 0);
    model_check(&model);
    model_close(&model);
}

static void test_the_end_of_the_pool_unmaps_old_places(void)
{
    stitch();
    CHECK(places_left() == BLOCKS / 2);
    model_close(&model); /* nothing may be left: fake_end */
}

/* All work is known to be done, but not which epochs that ends: the old place may not go yet, and the memory
 * is not the driver's before it does. */
static void test_memory_is_not_given_back_while_it_is_mapped_at_an_old_place(void)
{
    no_events = true;
    stitch();
    finish_work();
    model_free(&model, model.count - 1, true);
    CHECK(pool_trim(&model.pool, UINT64_MAX) ==
          0); /* the fake stops the test at a release that frees nothing */
    model_check(&model);
    fake_fail(0, 0, 0);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == BLOCKS / 2 * BLOCK);
    model_close(&model);
}

/* Moved again and again, without the work ever ending, up to as many places as the fake allows. */
static void test_chunks_move_again_and_again_behind_the_same_work(void)
{
    build(2 * BLOCKS * BLOCK, 2 * BLOCKS * BLOCK);
    for (unsigned round = 0; round < 12; round++) {
        CHECK(model_alloc(&model, (BLOCKS / 2 + 1) * BLOCK) == 0);
        model_work(&model, 0, &model.blocks[model.count - 1]);
        model_free(&model, model.count - 1, false);
        /* In pieces, and a live block between them: whole chunks that fit nothing as they lie. */
        for (unsigned i = 0; i < BLOCKS / 2 + 1; i++)
            CHECK(model_alloc(&model, BLOCK) == 0);
        for (size_t i = 0; i + 1 < model.count && model.count > BLOCKS / 2; i++)
            model_free(&model, i, false);
        model_check(&model);
    }
    CHECK(pool_stats(&model.pool).stitches > 2 && pool_stats(&model.pool).waits == 0);
    finish_work();
    model_close(&model);
}

/* ---- what fails is undone ---- */

struct picture {
    uint64_t live, cached, physical, largest, grows, stitches;
};

static struct picture look(void)
{
    model_check(&model);
    const struct pool_stats s = pool_stats(&model.pool);
    return (struct picture){s.live, s.cached, s.physical, s.largest, s.grows, s.stitches};
}

/* Half from old chunks, half from new ones; the n-th map or access fails. True if it did. */
static bool undone(uint64_t nth)
{
    const uint64_t bytes = BLOCKS * BLOCK;

    build(4 * bytes, 4 * bytes);
    const struct picture before = look();
    fake_fail(1 << FAKE_MAP | 1 << FAKE_ACCESS, nth, 0);
    const int rc = model_alloc(&model, bytes);
    const bool failed = fake_failed() > 0;
    CHECK(rc == (failed ? -ENOMEM : 0));
    if (failed) {
        const struct picture after = look();

        CHECK(memcmp(&before, &after, sizeof(before)) == 0);
        CHECK(places_left() == BLOCKS / 2 && fake_backlog(0) == BLOCKS);
        /* The places are free still, not just mapped. */
        for (unsigned i = 0; i < BLOCKS / 2; i++)
            CHECK(model_alloc(&model, BLOCK) == 0);
        CHECK(pool_stats(&model.pool).physical == before.physical);
    }
    finish_work();
    model_close(&model);
    return failed;
}

static void test_a_map_that_fails_leaves_everything_as_it_was(void)
{
    uint64_t nth = 1;

    while (undone(nth))
        nth++;
    CHECK(nth > BLOCKS);
}

/* The limit would allow more, the card refuses, and giving up idle chunks that are too large to gather does
 * not help: what was gathered goes back to where it was. */
static void test_a_refusal_after_chunks_were_given_up_takes_back_what_was_gathered(void)
{
    const uint64_t big = 8 * MIB;

    model_open(&model, GIB, GIB);
    CHECK(model_alloc(&model, 512 * MIB) == 0); /* chunks of 8 MiB */
    for (unsigned i = 0; i < 8; i++)
        CHECK(model_alloc(&model, 2 * MIB) == 0);
    model_free(&model, 0, true);
    for (unsigned i = 0; i < 64; i++)
        CHECK(model_alloc(&model, big) == 0);
    CHECK(pool_stats(&model.pool).physical == 528 * MIB);
    model_free(&model, 66, true); /* one of 2 MiB */
    for (unsigned i = 0; i < 32; i++)
        model_free(&model, i, true);
    look();
    fake_fail(1 << FAKE_CREATE, 1, NEVER);
    CHECK(model_alloc(&model, big + 4 * MIB) == -ENOMEM);
    fake_fail(0, 0, 0);
    look();
    CHECK(model_alloc(&model, big + 4 * MIB) == 0);
    CHECK(model_alloc(&model, big) == 0 && model_alloc(&model, 2 * MIB) == 0);
    model_close(&model);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_a_stitch_behind_work_of_one_stream_neither_waits_nor_unmaps);
    RUN_APART(test_the_sweep_unmaps_old_places_when_their_work_is_done);
    RUN_APART(test_one_sweep_unmaps_all_old_places_above_those_that_are_kept);
    RUN_APART(test_an_old_place_that_the_driver_keeps_is_unmapped_later);
    RUN_APART(test_an_exposed_block_of_moved_chunks_goes_back_from_its_old_places_too);
    RUN_APART(test_trim_unmaps_old_places_before_it_gives_their_memory_back);
    RUN_APART(test_the_end_of_the_pool_unmaps_old_places);
    RUN_APART(test_memory_is_not_given_back_while_it_is_mapped_at_an_old_place);
    RUN_APART(test_chunks_move_again_and_again_behind_the_same_work);
    RUN_APART(test_a_map_that_fails_leaves_everything_as_it_was);
    RUN_APART(test_a_refusal_after_chunks_were_given_up_takes_back_what_was_gathered);
    return UNITY_END();
}
