/* pool: its promises to a program, compared with a model, over the fake driver. Each case is a process of its
 * own, because the fence remembers which streams have worked. */
#include "interpose/pool/capture.h"
#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_model.h"

#include <errno.h>
#include <unity.h>

static struct model model;

void setUp(void) {}

void tearDown(void) {}

/* ---- random life ---- */

enum variant { ALL_DONE, ONE_STREAM, OTHER_STREAMS, MANY_STREAMS };

struct life {
    enum variant variant;
    uint64_t steps, wave, check_every, allowed; /* a wave: it fills up, then it empties */
    unsigned bits;                              /* of the largest size */
};

static void step_work(enum variant variant)
{
    const bool other = variant == OTHER_STREAMS && fake_below(&model.random, 500) == 0;
    const unsigned streams = variant == MANY_STREAMS || other ? FAKE_STREAMS : 1;
    const unsigned stream = (unsigned)fake_below(&model.random, streams);

    if (variant == ALL_DONE)
        return;
    if (model.count && fake_below(&model.random, 2))
        model_work(&model, stream, &model.blocks[fake_below(&model.random, model.count)]);
    else
        fake_progress(variant == OTHER_STREAMS ? (unsigned)fake_below(&model.random, FAKE_STREAMS) : stream);
}

/* Now and then a capture begins or ends. */
static void step_capture(void)
{
    if (capture_any()) {
        fake_set_capturing(false);
        capture_end(FAKE_CAPTURE, streams_thread_key());
    } else {
        capture_begin(FAKE_CAPTURE, streams_thread_key(), FAKE_CONTEXT);
        fake_set_capturing(true);
    }
}

/* A refusal is right only if what could be put together, and what could still be had, is less than was asked
 * for, whether a capture is open or not. What is freed is waited for first, unless all of it would not be
 * enough. */
static void check_refusal(uint64_t bytes)
{
    const struct pool_stats s = pool_stats(&model.pool);

    CHECK(s.pending == 0 || model.allowed - s.live < bytes);
    CHECK(s.pending || model.allowed - s.physical + pool_reclaimable(&model.pool) < bytes + RANGES_PAGE);
}

static void live(struct life life)
{
    const uint64_t steps = life.steps * fake_number("GPUCAP_TEST_TIMES", 1);

    model_open(&model, life.allowed, life.allowed);
    for (uint64_t i = 0; i < steps; i++) {
        const uint64_t what = fake_below(&model.random, 1000), fill = i / life.wave % 2 ? 330 : 470;

        if (what < fill && model.count < MODEL_BLOCKS) {
            const uint64_t bytes = model_size(&model, life.bits);

            if (model_alloc(&model, bytes))
                check_refusal(bytes);
        } else if (what < 800) {
            if (model.count)
                model_free(&model, fake_below(&model.random, model.count), life.variant == ALL_DONE);
        } else if (what < 997) {
            step_work(life.variant);
        } else {
            const uint64_t wanted = fake_below(&model.random, GIB), before = fake_physical();
            const uint64_t given = pool_trim(&model.pool, wanted);

            CHECK(before - fake_physical() == given);
        }
        if (i % life.check_every == 0)
            model_check(&model);
        if (life.variant == OTHER_STREAMS && fake_below(&model.random, 1000) == 0)
            step_capture();
    }
    if (capture_any())
        step_capture();
    model_close(&model);
}

static void test_blocks_never_overlap_and_are_always_backed(void)
{
    live((struct life){ALL_DONE, 12000, 3000, 1, 16 * GIB, 28});
}

static void test_small_blocks_add_up_over_a_long_life(void)
{
    live((struct life){ALL_DONE, 240000, 40000, 5000, 2 * GIB, 21});
}

static void test_a_request_is_refused_only_if_it_cannot_be_met(void)
{
    live((struct life){ALL_DONE, 80000, 2000, 100, 300 * MIB, 27});
}

static void test_with_one_stream_nothing_is_unmapped_before_its_work_is_done(void)
{
    live((struct life){ONE_STREAM, 80000, 2000, 100, 1 * GIB, 27});
}

static void test_other_streams_and_captures_find_every_block_at_rest(void)
{
    live((struct life){OTHER_STREAMS, 80000, 2000, 100, 1 * GIB, 27});
}

static void test_with_many_streams_what_is_handed_out_is_at_rest_or_ahead_of_all_later_work(void)
{
    live((struct life){MANY_STREAMS, 80000, 2000, 100, 1 * GIB, 27});
}

static void test_with_many_streams_nothing_is_handed_out_before_its_work_is_done(void)
{
    fence_forbid_joins();
    streams_distrust();
    live((struct life){MANY_STREAMS, 80000, 2000, 100, 1 * GIB, 27});
    CHECK(fake_count(FAKE_WAIT) == 0);
}

/* The first half of the life has one stream. */
static void test_streams_that_come_later_find_reused_blocks_at_rest(void)
{
    model_open(&model, GIB, GIB);
    for (int i = 0; i < 20000; i++) {
        const uint64_t what = fake_below(&model.random, 10);

        if (what < 4 && model.count < MODEL_BLOCKS)
            model_alloc(&model, model_size(&model, 24));
        else if (what < 7 && model.count)
            model_free(&model, fake_below(&model.random, model.count), false);
        else if (what < 9)
            step_work(i < 10000 ? ONE_STREAM : MANY_STREAMS);
    }
    model_close(&model);
}

/* ---- answers ---- */

static void test_a_wrong_free_is_refused_and_changes_nothing(void)
{
    struct pool_block block;

    model_open(&model, GIB, GIB);
    CHECK(model_alloc(&model, 3 * MIB) == 0 && model_alloc(&model, 1000) == 0);
    const uint64_t address = model.blocks[0].address;
    CHECK(pool_free(&model.pool, address + 512, true) == -EINVAL);
    CHECK(pool_free(&model.pool, address - 512, true) == -EINVAL);
    CHECK(pool_free(&model.pool, 0, true) == -EINVAL &&
          pool_free(&model.pool, ~UINT64_C(0), true) == -EINVAL);
    for (int i = 0; i < 2; i++) { /* a large one and a small one */
        const uint64_t start = model.blocks[i].address;

        CHECK(pool_block(&model.pool, start + 512, false, &block) == -EINVAL);
        CHECK(pool_block(&model.pool, start + 512, true, &block) == 0 && block.address == start);
    }
    model_check(&model);
    model_free(&model, 0, true);
    CHECK(pool_free(&model.pool, address, true) == -EINVAL);
    CHECK(pool_block(&model.pool, address, true, &block) == -EINVAL);
    model_close(&model);
}

static void test_sizes_are_the_callers_own_and_ids_never_come_back(void)
{
    uint64_t address = 0;
    struct pool_block block;

    model_open(&model, GIB, GIB);
    CHECK(pool_alloc(&model.pool, 0, &address) == -EINVAL);
    CHECK(pool_alloc(&model.pool, UINT64_MAX, &address) == -ENOMEM);
    CHECK(pool_alloc(&model.pool, UINT64_C(1) << 50, &address) == -ENOMEM);
    CHECK(pool_alloc(&model.pool, UINT64_C(1) << 41, &address) == -ENOMEM);
    CHECK(pool_alloc(&model.pool, GIB + 1, &address) == -ENOMEM && address == 0);
    model_check(&model);
    CHECK(model_alloc(&model, 5000) == 0);
    CHECK(pool_block(&model.pool, model.blocks[0].address, false, &block) == 0 && block.asked == 5000);
    CHECK(pool_block(&model.pool, model.blocks[0].address + 4999, true, &block) == 0);
    CHECK(pool_block(&model.pool, model.blocks[0].address + 5000, true, &block) == -EINVAL);
    const uint64_t id = block.id;
    model_free(&model, 0, true);
    CHECK(model_alloc(&model, 5000) == 0);
    CHECK(pool_block(&model.pool, model.blocks[0].address, false, &block) == 0 && block.id != id);
    model_close(&model);
}

/* Programs tell blocks apart by their ids, whatever their contexts. */
static void test_blocks_of_two_pools_have_different_ids(void)
{
    uint64_t ids[4];
    struct pool_block block;

    for (int i = 0; i < 4; i++) {
        if (i % 2 == 0)
            model_open(&model, GIB, GIB);
        CHECK(model_alloc(&model, 8 * MIB) == 0);
        CHECK(pool_block(&model.pool, model.blocks[i % 2].address, false, &block) == 0);
        ids[i] = block.id;
        for (int k = 0; k < i; k++)
            CHECK(ids[i] != ids[k]);
        if (i % 2) {
            while (model.count)
                model_free(&model, 0, true);
            model_close(&model);
        }
    }
}

static CUresult refuse_to_destroy(CUevent event)
{
    (void)event;
    CHECK(!"an event of a context that has ended is destroyed");
    return CUDA_ERROR_UNKNOWN;
}

/* Events end with their context, and what another context's stream does needs no order behind its streams. */
static void test_a_pool_of_a_context_that_has_ended_does_not_use_it(void)
{
    model_open(&model, GIB, GIB);
    CHECK(model_alloc(&model, 8 * MIB) == 0);
    model_work(&model, 0, &model.blocks[0]);
    model_free(&model, 0, false);
    fence_poll(&model.pool.fence);
    CHECK(fake_count(FAKE_EVENT_CREATE) && fake_progress(0));
    driver.cuEventDestroy_v2 = refuse_to_destroy;
    pool_close(&model.pool, false);
    const uint64_t waited = fake_count(FAKE_WAIT) + fake_count(FAKE_SYNCHRONIZE);
    CHECK(streams_submit_begin(model_stream(1)));
    streams_submit_end();
    CHECK(fake_count(FAKE_WAIT) + fake_count(FAKE_SYNCHRONIZE) == waited);
}

/* ---- stitching ---- */

/* Every second of many blocks is freed: no hole is large enough, all of them together are. */
static void test_holes_are_stitched_together_when_the_card_is_full(void)
{
    model_open(&model, 128 * MIB, 128 * MIB);
    for (int i = 0; i < 32; i++)
        CHECK(model_alloc(&model, 4 * MIB) == 0);
    for (size_t i = 0; i < 16; i++)
        model_free(&model, i, true);
    CHECK(model_alloc(&model, 64 * MIB) == 0);
    const struct pool_stats s = pool_stats(&model.pool);
    CHECK(s.physical == 128 * MIB && s.stitches == 1 && s.cached == 0);
    model_close(&model);
}

/* Large chunks of a large block, and a request whose gap is smaller than any of them. */
static void test_a_gap_smaller_than_any_free_chunk_is_filled_too(void)
{
    model_open(&model, 4 * GIB + 6 * MIB, 4 * GIB + 6 * MIB);
    CHECK(model_alloc(&model, 2 * MIB) == 0);
    CHECK(model_alloc(&model, 4 * GIB) == 0);
    CHECK(model_alloc(&model, 4 * MIB) == 0); /* the card is full now */
    model_check(&model);
    CHECK(model.blocks[1].bytes == 4 * GIB);
    model_free(&model, 1, true);
    /* Two thirds, in one piece; then what is left and a little, which lies apart. */
    CHECK(model_alloc(&model, 4 * GIB - 512) == 0);
    CHECK(model.blocks[1].bytes == 4 * GIB - 512);
    model_free(&model, 1, true);
    for (int i = 0; i < 3; i++)
        CHECK(model_alloc(&model, GIB) == 0);
    CHECK(model_alloc(&model, 512) == 0);
    model_free(&model, 2, true);
    const uint64_t most = pool_reclaimable(&model.pool);
    CHECK(most > GIB + 512 * MIB);
    CHECK(model_alloc(&model, most - 2 * MIB) == 0);
    model_close(&model);
}

/* A large block takes a whole number of chunks among large ones, which is more than there is. */
static void test_a_large_block_is_not_refused_that_fits_beside_a_small_one(void)
{
    model_open(&model, 8 * MIB, 8 * MIB);
    CHECK(model_alloc(&model, 512 * 1024) == 0);
    CHECK(model_alloc(&model, 8 * MIB - 512 * 1024 + 1) == -ENOMEM);
    CHECK(model_alloc(&model, 8 * MIB - 512 * 1024) == 0);
    CHECK(pool_stats(&model.pool).physical == 8 * MIB);
    model_check(&model);
    model_close(&model);
}

/* Where a large block was, blocks stay among others that go. Then the rest is asked for in one piece. */
static void test_a_block_that_stays_where_a_large_one_was_keeps_one_chunk_from_moving(void)
{
    enum { PAIRS = 64, PART = 37, CHUNK = 16 };

    model_open(&model, 16 * GIB, 16 * GIB);
    CHECK(model_alloc(&model, 8 * GIB) == 0);
    model_free(&model, 0, true);
    for (int i = 0; i < 2 * PAIRS; i++)
        CHECK(model_alloc(&model, PART * MIB) == 0);
    for (int i = PAIRS; i-- > 0;)
        model_free(&model, (size_t)(2 * i + 1), true);
    CHECK(model_alloc(&model, 8 * GIB - PAIRS * PART * MIB) == 0);
    const struct pool_stats s = pool_stats(&model.pool);
    CHECK(s.live == 8 * GIB && s.peak_live == 8 * GIB);
    CHECK(s.peak_physical <= 8 * GIB + PAIRS * CHUNK * MIB);
    model_close(&model);
}

/* ---- pins, capture, trim ---- */

static void test_a_pinned_block_keeps_its_memory_after_its_free(void)
{
    struct pool_block block;

    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, 8 * MIB) == 0 && model_alloc(&model, 8 * MIB) == 0);
    const uint64_t address = model.blocks[0].address;
    CHECK(pool_pin(&model.pool, address + 512) == -EINVAL);
    CHECK(pool_pin(&model.pool, address) == 0);
    CHECK(pool_free(&model.pool, address, true) == 0);
    CHECK(pool_free(&model.pool, address, true) == -EINVAL);
    CHECK(pool_block(&model.pool, address, true, &block) == -EINVAL);
    pool_free(&model.pool, model.blocks[1].address, true);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 8 * MIB);
    for (int i = 0; i < 28; i++) {
        uint64_t other;

        CHECK(pool_alloc(&model.pool, 2 * MIB, &other) == 0);
        CHECK(other + 2 * MIB <= address || address + 8 * MIB <= other);
    }
    uint64_t other;
    CHECK(pool_alloc(&model.pool, 2 * MIB, &other) == -ENOMEM);
    CHECK(fake_usable(address, 8 * MIB) && pool_check(&model.pool) == NULL);
    pool_close(&model.pool, true);
    fake_end();
    CHECK(model.held == 0);
}

static void test_the_last_pin_gives_a_freed_block_back_when_its_work_is_done(void)
{
    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, 8 * MIB) == 0);
    const uint64_t address = model.blocks[0].address;
    CHECK(pool_unpin(&model.pool, address) == -EINVAL);
    CHECK(pool_pin(&model.pool, address) == 0 && pool_pin(&model.pool, address) == 0);
    model_work(&model, 0, &model.blocks[0]);
    CHECK(pool_unpin(&model.pool, address) == 0);
    model_check(&model); /* still the program's */
    model_free(&model, 0, false);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 0 && pool_unpin(&model.pool, address + 512) == -EINVAL);
    CHECK(pool_unpin(&model.pool, address) == 0 && pool_unpin(&model.pool, address) == -EINVAL);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 0); /* its work is not done */
    fake_progress(0);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 8 * MIB);
    model_close(&model);
}

/* At the free all work was done; another process had the block open and has closed it since. */
static void test_the_last_pin_waits_for_work_of_after_the_free(void)
{
    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, 8 * MIB) == 0 && model_alloc(&model, 2 * MIB) == 0);
    const uint64_t address = model.blocks[0].address;
    CHECK(pool_pin(&model.pool, address) == 0 && pool_pin(&model.pool, address) == 0);
    CHECK(pool_free(&model.pool, address, true) == 0 && pool_freed_pinned);
    CHECK(pool_unpin(&model.pool, address) == 0);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 0); /* it has another pin */
    model_work(&model, 0, &model.blocks[1]);
    CHECK(pool_unpin(&model.pool, address) == 0);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 0);
    fake_progress(0);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 8 * MIB);
    pool_close(&model.pool, true);
    fake_end();
}

/* The fake stops the test if a captured context gets an event or a wait that would destroy the capture. */
static void test_memory_is_used_again_and_moved_beside_an_open_capture(void)
{
    model_open(&model, 256 * MIB, 256 * MIB);
    for (unsigned i = 0; i < 8; i++)
        CHECK(model_alloc(&model, 8 * MIB) == 0);
    for (unsigned i = 0; i < 8; i++)
        model_work(&model, i % 2, &model.blocks[i]);
    step_capture();
    for (unsigned i = 0; i < 4; i++)
        model_free(&model, i, false);
    model_check(&model);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 0); /* without waiting */
    CHECK(model_alloc(&model, 192 * MIB) == 0);
    CHECK(model_alloc(&model, 8 * MIB) == 0);  /* what was freed is waited for */
    CHECK(model_alloc(&model, 24 * MIB) == 0); /* and moved to where it fits */
    CHECK(model_alloc(&model, 8 * MIB) == -ENOMEM);
    model_check(&model);
    model_free(&model, 0, true);
    CHECK(pool_trim(&model.pool, UINT64_MAX) > 0);
    step_capture();
    model_close(&model);
}

/* A block that was handed out again while the main stream still worked on it, used by another stream in a
 * capture. */
static void test_another_stream_in_a_capture_finds_reused_blocks_at_rest(void)
{
    model_open(&model, 256 * MIB, 256 * MIB);
    CHECK(model_alloc(&model, 8 * MIB) == 0);
    const uint64_t address = model.blocks[0].address;
    model_work(&model, 0, &model.blocks[0]);
    model_free(&model, 0, false);
    CHECK(model_alloc(&model, 8 * MIB) == 0 && model.blocks[0].address == address);
    CHECK(fake_pending(address, 8 * MIB));
    step_capture();
    model_work(&model, 1, &model.blocks[0]);
    model_free(&model, 0, false);
    CHECK(model_alloc(&model, 8 * MIB) == 0 && model.blocks[0].address != address);
    step_capture();
    model_close(&model);
}

static void test_trim_gives_back_what_was_asked_and_no_more_than_a_chunk_above(void)
{
    model_open(&model, GIB, GIB);
    for (unsigned i = 0; i < 64; i++)
        CHECK(model_alloc(&model, 8 * MIB) == 0);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 0);
    for (unsigned i = 0; i < 32; i++)
        model_free(&model, i, true);
    CHECK(pool_reclaimable(&model.pool) == 256 * MIB);
    CHECK(pool_trim(&model.pool, 0) == 0);
    CHECK(pool_trim(&model.pool, 10 * MIB) == 10 * MIB);
    CHECK(pool_trim(&model.pool, 1) == 2 * MIB);
    CHECK(pool_trim(&model.pool, 70 * MIB) == 70 * MIB); /* more chunks than go back under one lock */
    model_check(&model);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 174 * MIB);
    CHECK(fake_physical() == model.live && pool_trim(&model.pool, 1) == 0);
    model_close(&model);
}

static void test_trim_leaves_memory_whose_work_is_not_done(void)
{
    model_open(&model, GIB, GIB);
    CHECK(model_alloc(&model, 64 * MIB) == 0);
    model_work(&model, 0, &model.blocks[0]);
    model_free(&model, 0, false);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 0);
    CHECK(fake_progress(0));
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 64 * MIB);
    model_close(&model);
}

/* ---- figures ---- */

/* Each allocation is a hit, or made of what was put together or taken; which one that was is counted once. */
static void test_what_was_served_from_what_was_held_is_a_hit(void)
{
    model_open(&model, 2 * MIB, 2 * MIB);
    CHECK(model_alloc(&model, MIB) == 0 && model_alloc(&model, MIB) == 0);
    for (unsigned i = 0; i < 2; i++)
        model_work(&model, i, &model.blocks[i]);
    model_free(&model, 0, false);
    model_free(&model, 0, false);
    CHECK(fake_progress(0) && fake_progress(1));
    CHECK(model_alloc(&model, MIB) == 0); /* found when the pool looked whether the work has ended */
    const struct pool_stats s = pool_stats(&model.pool);
    CHECK(s.hits == 2 && s.grows == 1 && s.stitches == 0 && s.waits == 0);
    model_close(&model);
}

/* Many epochs, of which an allocation waits for several in turn. */
static void test_an_allocation_that_waits_counts_once(void)
{
    bool more;

    model_open(&model, 64 * MIB, 64 * MIB);
    fence_forbid_joins();
    for (unsigned i = 0; i < 8; i++)
        CHECK(model_alloc(&model, 8 * MIB) == 0);
    for (unsigned i = 0; i < 8; i++) {
        model_work(&model, i % 2, &model.blocks[0]);
        model_free(&model, 0, false);
        fence_poll(&model.pool.fence);
    }
    CHECK(pool_wait(&model.pool, &more) == 0 && more);
    struct pool_stats s = pool_stats(&model.pool);
    CHECK(s.waits == 0 && s.wait_ns <= s.room_ns); /* no block was asked for */
    CHECK(model_alloc(&model, 64 * MIB) == 0);
    s = pool_stats(&model.pool);
    CHECK(s.waits == 1 && s.wait_ns && s.wait_ns <= s.room_ns);
    model_close(&model);
}

static void test_an_allocation_waits_for_several_frees_rather_than_hold_more(void)
{
    model_open(&model, 2 * GIB, 2 * GIB);
    fence_forbid_joins();
    for (unsigned i = 0; i < 8; i++)
        CHECK(model_alloc(&model, 64 * MIB) == 0);
    for (unsigned i = 0; i < 8; i++) {
        model_work(&model, i % 2, &model.blocks[0]);
        model_free(&model, 0, false);
        fence_poll(&model.pool.fence); /* each has an epoch of its own */
    }
    CHECK(model_alloc(&model, 512 * MIB) == 0);
    CHECK(pool_stats(&model.pool).peak_physical <= (512 + 32) * MIB); /* the slack */
    model_close(&model);
}

/* A freed block whose memory another holder keeps belongs to the program no more, but is not free either. */
static void test_what_is_freed_and_held_by_others_does_not_live(void)
{
    static const uint64_t sizes[] = {700, MIB, 8 * MIB};

    for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        const uint64_t bytes = (sizes[i] + RANGES_UNIT - 1) & ~(RANGES_UNIT - 1);
        uint64_t address;

        model_open(&model, 64 * MIB, 64 * MIB);
        CHECK(pool_alloc(&model.pool, sizes[i], &address) == 0 && pool_pin(&model.pool, address) == 0);
        struct pool_stats s = pool_stats(&model.pool);
        CHECK(s.live == bytes && s.live_count == 1 && s.pending == 0);
        CHECK(pool_free(&model.pool, address, true) == 0);
        s = pool_stats(&model.pool);
        CHECK(s.live == 0 && s.live_count == 0 && s.pending == bytes);
        CHECK(s.live + s.cached + s.pending == s.physical && s.peak_live == bytes);
        CHECK(pool_unpin(&model.pool, address) == 0);
        s = pool_stats(&model.pool);
        CHECK(s.live == 0 && s.pending == 0 && s.cached == s.physical);
        model_close(&model);
    }
}

/* Without a request too: 256 MiB are many bytes in few frees. */
static void test_many_freed_bytes_are_looked_at_soon(void)
{
    model_open(&model, GIB, GIB);
    for (unsigned i = 0; i < 2; i++) {
        CHECK(model_alloc(&model, 128 * MIB) == 0);
        model_work(&model, i, &model.blocks[i]);
    }
    while (fake_progress(0) || fake_progress(1))
        ;
    model_free(&model, 0, false);
    CHECK(pool_stats(&model.pool).pending == 128 * MIB);
    model_free(&model, 0, false);
    CHECK(pool_stats(&model.pool).pending == 0);
    model_close(&model);
}

/* What the driver has given counts, though it could not be used. */
static void test_the_most_that_was_held_is_what_the_driver_gave(void)
{
    model_open(&model, GIB, GIB);
    fake_fail(1 << FAKE_MAP, 1, 0);
    CHECK(model_alloc(&model, 8 * MIB) == -ENOMEM && fake_physical() == 0);
    CHECK(pool_stats(&model.pool).peak_physical == 8 * MIB && pool_stats(&model.pool).physical == 0);
    model_close(&model);
}

/* Figures are also asked for at the end of the process, when the driver may be gone. */
static void test_figures_need_no_driver(void)
{
    uint64_t calls = 0, now = 0;

    model_open(&model, GIB, GIB);
    CHECK(model_alloc(&model, 8 * MIB) == 0 && model_alloc(&model, 700) == 0);
    for (unsigned i = 0; i < 2; i++)
        model_work(&model, i, &model.blocks[i]);
    model_free(&model, 0, false);
    model_free(&model, 0, false);
    for (int call = 0; call < FAKE_CALLS; call++)
        calls += fake_count((enum fake_call)call);
    const struct pool_stats s = pool_stats(&model.pool);
    for (int call = 0; call < FAKE_CALLS; call++)
        now += fake_count((enum fake_call)call);
    CHECK(now == calls && s.pending > 0 && s.live == 0);
    struct pool_stats last;
    for (int i = 0; i < 2; i++) /* other threads go on: the lock is free again */
        CHECK(pool_stats_at_exit(&model.pool, &last) && last.pending == s.pending);
    model_close(&model);
}

/* ---- the table by address ---- */

#define IN_A_ROW 4000

/* The longest run of taken places: a search may have to go through all of it. */
static uint64_t longest_run(const struct pool *pool)
{
    uint64_t longest = 0, run = 0;

    for (uint64_t i = 0; i < pool->table.capacity; i++) {
        run = ((const struct pool_entry *)pool->table.places)[i].address ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    return longest;
}

/* Blocks side by side whose addresses clustered with a hash of one multiplication, in runs of hundreds to
 * thousands. */
static void test_blocks_of_one_size_do_not_crowd_in_the_table(void)
{
    const uint64_t sizes[] = {114176, 1940992, 3881984};

    for (unsigned k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
        model_open(&model, 16 * GIB, 16 * GIB);
        for (unsigned i = 0; i < IN_A_ROW; i++)
            CHECK(model_alloc(&model, sizes[k]) == 0);
        CHECK(model.pool.table.count == IN_A_ROW && longest_run(&model.pool) < 100);
        model_close(&model);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_blocks_never_overlap_and_are_always_backed);
    RUN_APART(test_small_blocks_add_up_over_a_long_life);
    RUN_APART(test_a_request_is_refused_only_if_it_cannot_be_met);
    RUN_APART(test_with_one_stream_nothing_is_unmapped_before_its_work_is_done);
    RUN_APART(test_with_many_streams_what_is_handed_out_is_at_rest_or_ahead_of_all_later_work);
    RUN_APART(test_with_many_streams_nothing_is_handed_out_before_its_work_is_done);
    RUN_APART(test_streams_that_come_later_find_reused_blocks_at_rest);
    RUN_APART(test_a_wrong_free_is_refused_and_changes_nothing);
    RUN_APART(test_sizes_are_the_callers_own_and_ids_never_come_back);
    RUN_APART(test_blocks_of_two_pools_have_different_ids);
    RUN_APART(test_a_pool_of_a_context_that_has_ended_does_not_use_it);
    RUN_APART(test_holes_are_stitched_together_when_the_card_is_full);
    RUN_APART(test_a_gap_smaller_than_any_free_chunk_is_filled_too);
    RUN_APART(test_a_large_block_is_not_refused_that_fits_beside_a_small_one);
    RUN_APART(test_a_block_that_stays_where_a_large_one_was_keeps_one_chunk_from_moving);
    RUN_APART(test_a_pinned_block_keeps_its_memory_after_its_free);
    RUN_APART(test_the_last_pin_gives_a_freed_block_back_when_its_work_is_done);
    RUN_APART(test_the_last_pin_waits_for_work_of_after_the_free);
    RUN_APART(test_other_streams_and_captures_find_every_block_at_rest);
    RUN_APART(test_memory_is_used_again_and_moved_beside_an_open_capture);
    RUN_APART(test_another_stream_in_a_capture_finds_reused_blocks_at_rest);
    RUN_APART(test_trim_gives_back_what_was_asked_and_no_more_than_a_chunk_above);
    RUN_APART(test_trim_leaves_memory_whose_work_is_not_done);
    RUN_APART(test_what_was_served_from_what_was_held_is_a_hit);
    RUN_APART(test_an_allocation_that_waits_counts_once);
    RUN_APART(test_an_allocation_waits_for_several_frees_rather_than_hold_more);
    RUN_APART(test_what_is_freed_and_held_by_others_does_not_live);
    RUN_APART(test_many_freed_bytes_are_looked_at_soon);
    RUN_APART(test_the_most_that_was_held_is_what_the_driver_gave);
    RUN_APART(test_figures_need_no_driver);
    RUN_APART(test_blocks_of_one_size_do_not_crowd_in_the_table);
    return UNITY_END();
}
