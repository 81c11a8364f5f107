/* When freed, pinned and exposed blocks are used again, and when they go back to the driver. Each case is a
 * process of its own, as in engine_pool.c. */
#include "interpose/pool/capture.h"
#include "interpose/pool/small.h"
#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_model.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unity.h>

static struct model model;

void setUp(void) {}

void tearDown(void) {}

/* Work of two streams on the first block, which no join can bring into order. */
static void busy_block(uint64_t bytes)
{
    fence_forbid_joins();
    CHECK(model_alloc(&model, bytes) == 0);
    model_work(&model, 0, &model.blocks[0]);
    model_work(&model, 1, &model.blocks[0]);
}

static void finish(unsigned stream)
{
    while (fake_progress(stream))
        ;
}

static void take_off_list(void)
{
    model.live -= model.blocks[0].bytes;
    model.count = 0;
}

/* ---- pins ---- */

/* Another process closes a block that was freed here, while two streams still work on it. */
static void test_the_last_pin_hands_nothing_out_before_two_streams_are_done(void)
{
    uint64_t other;

    model_open(&model, 64 * MIB, 64 * MIB);
    busy_block(8 * MIB);
    const uint64_t address = model.blocks[0].address;
    CHECK(pool_pin(&model.pool, address) == 0 && pool_free(&model.pool, address, false) == 0);
    CHECK(pool_unpin(&model.pool, address) == 0);
    take_off_list();
    CHECK(pool_alloc(&model.pool, 8 * MIB, &other) == 0);
    CHECK(!fake_pending(other, 8 * MIB));
    CHECK(pool_free(&model.pool, other, true) == 0);
    finish(0);
    finish(1);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 16 * MIB);
    model_close(&model);
}

/* Nothing of a block is exported before it is pinned: it could move meanwhile. */
static void test_only_a_pinned_block_shows_what_is_behind_it(void)
{
    static const uint64_t sizes[] = {1000, MIB / 4, 8 * MIB};
    struct vmm_chunk *chunks;
    uint64_t address, count, offset, start, bytes;

    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, MIB / 2) == 0); /* the next block does not begin with its chunk */
    for (unsigned i = 0; i < 3; i++) {
        CHECK(pool_alloc(&model.pool, sizes[i], &address) == 0);
        CHECK(pool_backing(&model.pool, address, &chunks, &count, &offset) == -EINVAL);
        CHECK(pool_pin(&model.pool, address) == 0);
        CHECK(pool_backing(&model.pool, address, &chunks, &count, &offset) == 0 && count);
        CHECK(vmm_chunk_at(&model.pool.vmm, address, &start, &bytes) && offset == address - start);
        free(chunks);
        CHECK(pool_unpin(&model.pool, address) == 0);
        CHECK(pool_free(&model.pool, address, true) == 0);
    }
    model_close(&model);
}

/* ---- beside a capture ---- */

/* Of three free chunks the one that was freed first is still worked on, which was in order before the
 * capture. */
static void test_beside_a_capture_chunks_that_are_worked_on_do_not_move(void)
{
    uint64_t start, bytes;

    model_open(&model, 40 * MIB, 40 * MIB);
    for (int i = 0; i < 5; i++)
        CHECK(model_alloc(&model, 8 * MIB) == 0);
    const uint64_t busy = model.blocks[0].address;
    model_work(&model, 0, &model.blocks[0]);
    model_free(&model, 0, false);
    model_free(&model, 1, true);
    model_free(&model, 2, true);
    capture_begin(FAKE_CAPTURE, streams_thread_key(), FAKE_CONTEXT);
    fake_set_capturing(true);
    CHECK(model_alloc(&model, 16 * MIB) == 0);
    CHECK(fake_pending(busy, 8 * MIB)); /* no wait was needed */
    CHECK(vmm_chunk_at(&model.pool.vmm, busy, &start, &bytes));
    fake_set_capturing(false);
    capture_end(FAKE_CAPTURE, streams_thread_key());
    model_close(&model);
}

/* ---- blocks that other devices may reach ---- */

/* Its chunks go back to the driver when its work is done, not before, and are not used meanwhile. */
static void test_a_block_that_other_devices_reach_goes_back_when_its_work_is_done(void)
{
    uint64_t other;

    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, 8 * MIB) == 0);
    model_work(&model, 0, &model.blocks[0]);
    const uint64_t address = model.blocks[0].address;
    CHECK(pool_expose(&model.pool, address) == 0);
    CHECK(pool_free(&model.pool, address, false) == 0);
    take_off_list();
    CHECK(fake_usable(address, 8 * MIB) && fake_physical() == 8 * MIB);
    CHECK(pool_alloc(&model.pool, 8 * MIB, &other) == 0 && other != address);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 0 && fake_usable(address, 8 * MIB));
    finish(0);
    CHECK(pool_free(&model.pool, other, true) == 0);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 8 * MIB);
    CHECK(fake_physical() == 0);
    model_close(&model);
}

/* Another process opens and closes an exposed block before it is freed. */
static void test_an_exposed_block_is_not_used_again_though_others_have_closed_it(void)
{
    uint64_t small, other;

    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, MIB) == 0);
    model_free(&model, 0, true);
    CHECK(model_alloc(&model, MIB) == 0); /* the thread has kept it, and would again, without the lock */
    const uint64_t address = model.blocks[0].address;
    CHECK(pool_expose(&model.pool, address) == 0);
    CHECK(pool_pin(&model.pool, address) == 0 && pool_unpin(&model.pool, address) == 0);
    CHECK(pool_free(&model.pool, address, true) == 0);
    take_off_list();
    CHECK(fake_physical() == 0); /* not kept by the thread for its next request */
    CHECK(pool_alloc(&model.pool, 512, &small) == 0 && pool_expose(&model.pool, small) == 0);
    CHECK(pool_pin(&model.pool, small) == 0 && pool_free(&model.pool, small, true) == 0);
    CHECK(pool_unpin(&model.pool, small) == 0);
    for (int i = 0; i < 2000; i++) /* its few bytes are not used again */
        CHECK(pool_alloc(&model.pool, 512, &other) == 0 && other != small);
    pool_close(&model.pool, true);
    fake_end();
}

/* A chunk goes back when both blocks in it are freed. */
static void exposed_beside_another(void)
{
    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, MIB) == 0 && model_alloc(&model, MIB) == 0);
    const uint64_t shown = model.blocks[0].address, beside = model.blocks[1].address;
    CHECK(beside == shown + MIB && fake_physical() == 2 * MIB);
    CHECK(pool_expose(&model.pool, shown) == 0 && pool_free(&model.pool, shown, true) == 0);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 0 && fake_usable(beside, MIB));
    CHECK(pool_check(&model.pool) == NULL);
    const struct pool_stats s = pool_stats(&model.pool);
    CHECK(s.live == MIB && s.pending == MIB && s.cached == 0);
    CHECK(pool_free(&model.pool, beside, true) == 0);
    pool_trim(&model.pool, UINT64_MAX);
    pool_trim(&model.pool, UINT64_MAX);
    CHECK(fake_physical() == 0);
    pool_close(&model.pool, true);
    fake_end();
}

/* Of the three chunks under an exposed block two go back; the first or the last has another block in it. */
static void expose_in_part(bool behind)
{
    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, behind ? 5 * MIB : MIB) == 0 &&
          model_alloc(&model, behind ? MIB : 5 * MIB) == 0);
    const uint64_t beside = model.blocks[behind].address, shown = model.blocks[!behind].address;
    CHECK((behind ? beside - shown == 5 * MIB : shown - beside == MIB) && fake_physical() == 6 * MIB);
    CHECK(pool_expose(&model.pool, shown) == 0 && pool_free(&model.pool, shown, true) == 0);
    CHECK(pool_check(&model.pool) == NULL && fake_physical() == 2 * MIB);
    CHECK(pool_stats(&model.pool).pending == MIB);
    CHECK(pool_free(&model.pool, beside, true) == 0);
    pool_trim(&model.pool, UINT64_MAX);
    pool_trim(&model.pool, UINT64_MAX);
    CHECK(fake_physical() == 0);
    pool_close(&model.pool, true);
    fake_end();
}

static void exposed_behind_another(void)
{
    expose_in_part(false);
}

static void exposed_before_another(void)
{
    expose_in_part(true);
}

static void test_a_chunk_with_a_live_block_stays_though_its_other_block_was_shown(void)
{
    TEST_ASSERT_TRUE(fake_child(exposed_beside_another));
    TEST_ASSERT_TRUE(fake_child(exposed_behind_another));
    TEST_ASSERT_TRUE(fake_child(exposed_before_another));
}

/* A program that has its messages sent from small buffers, each of which it allocates anew. */
static void test_small_blocks_that_others_may_reach_do_not_pile_up(void)
{
    const uint64_t bytes = 14000;
    uint64_t before, address;

    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(pool_alloc(&model.pool, bytes, &before) == 0);
    for (int i = 0; i < 20000; i++) { /* 268 MiB */
        CHECK(pool_alloc(&model.pool, bytes, &address) == 0);
        CHECK(pool_expose(&model.pool, address) == 0 && pool_free(&model.pool, address, true) == 0);
    }
    CHECK(pool_check(&model.pool) == NULL && fake_physical() <= 6 * MIB);
    CHECK(pool_has_block(&model.pool, before) && pool_free(&model.pool, before, true) == 0);
    CHECK(pool_alloc(&model.pool, 512, &address) == 0 && pool_free(&model.pool, address, true) == 0);
    pool_close(&model.pool, true);
    fake_end();
}

/* Returns the processor's time for `count` blocks that are freed beside others that stay, in nanoseconds. */
static uint64_t time_frees(unsigned count, bool expose)
{
    struct timespec began, ended;
    uint64_t stays, goes;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
    for (unsigned i = 0; i < count; i++) {
        CHECK(pool_alloc(&model.pool, 20000, &stays) == 0 && pool_alloc(&model.pool, 20000, &goes) == 0);
        CHECK(!expose || pool_expose(&model.pool, goes) == 0);
        CHECK(pool_free(&model.pool, goes, true) == 0);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
    return (uint64_t)(ended.tv_sec - began.tv_sec) * 1000000000 + (uint64_t)ended.tv_nsec -
           (uint64_t)began.tv_nsec;
}

/* Each lies beside a block that stays, so none can go back. A look at all of them at each free took
 * milliseconds. */
static void test_many_blocks_that_others_may_reach_do_not_slow_frees_down(void)
{
    enum { COUNT = 4000, TIMES = 50 };

    model_open(&model, GIB, GIB);
    const uint64_t usual = time_frees(COUNT, false);
    CHECK(time_frees(COUNT, true) < TIMES * usual);
    CHECK(pool_stats(&model.pool).pending > (uint64_t)COUNT / 2 * 20000); /* hardly any went back */
    CHECK(pool_check(&model.pool) == NULL);
    pool_close(&model.pool, true);
    fake_end();
}

/* As with free = strict: what is handed out has no work left, so another process may have it at once. */
static void test_no_work_is_waited_for_if_all_memory_waits_for_its_own(void)
{
    model_open(&model, 64 * MIB, 64 * MIB);
    streams_distrust();
    fence_forbid_joins();
    CHECK(model_alloc(&model, 8 * MIB) == 0);
    model_work(&model, 0, &model.blocks[0]);
    const uint64_t address = model.blocks[0].address;
    model_free(&model, 0, false);
    pool_wait_all(&model.pool);
    CHECK(fake_pending(address, 8 * MIB));
    finish(0);
    model_close(&model);
}

/* Two exposed blocks and two others in one chunk. */
static void test_a_chunk_goes_back_when_the_last_of_its_blocks_is_freed(void)
{
    uint64_t blocks[4];

    model_open(&model, 64 * MIB, 64 * MIB);
    for (int i = 0; i < 4; i++)
        CHECK(pool_alloc(&model.pool, MIB / 2, &blocks[i]) == 0);
    CHECK(pool_expose(&model.pool, blocks[0]) == 0 && pool_expose(&model.pool, blocks[2]) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pool_free(&model.pool, blocks[i], true) == 0);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 0 && fake_usable(blocks[3], MIB / 2));
    CHECK(pool_check(&model.pool) == NULL && pool_stats(&model.pool).pending == MIB);
    CHECK(pool_free(&model.pool, blocks[3], true) == 0);
    pool_trim(&model.pool, UINT64_MAX);
    CHECK(fake_physical() == 0 && pool_stats(&model.pool).pending == 0 && pool_check(&model.pool) == NULL);
    pool_close(&model.pool, true);
    fake_end();
}

/* An exposed block is done, and the block beside it is freed but not done. */
static void test_a_chunk_goes_back_when_all_work_on_it_is_done(void)
{
    uint64_t shown;

    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, MIB) == 0 && pool_alloc(&model.pool, MIB, &shown) == 0);
    const uint64_t busy = model.blocks[0].address;
    CHECK(shown == busy + MIB && fake_physical() == 2 * MIB);
    model_work(&model, 0, &model.blocks[0]);
    CHECK(pool_expose(&model.pool, shown) == 0 && pool_free(&model.pool, shown, true) == 0);
    model_free(&model, 0, false);
    pool_trim(&model.pool, UINT64_MAX);
    CHECK(fake_usable(busy, MIB) && fake_physical() == 2 * MIB);
    finish(0);
    pool_trim(&model.pool, UINT64_MAX);
    CHECK(fake_physical() == 0);
    model_close(&model);
}

/* ---- attributes end with their block ---- */

static bool is_synchronous(uint64_t address)
{
    struct pool_block block;

    CHECK(pool_block(&model.pool, address, false, &block) == 0);
    return block.sync_memops;
}

/* Takes blocks where the last one was, and around it. None is synchronous. */
static void take_again(uint64_t bytes)
{
    uint64_t blocks[16];

    for (unsigned i = 0; i < 16; i++)
        CHECK(pool_alloc(&model.pool, bytes, &blocks[i]) == 0 && !is_synchronous(blocks[i]));
    for (unsigned i = 0; i < 16; i++)
        CHECK(pool_free(&model.pool, blocks[i], true) == 0);
}

/* By way of the thread's cache, and by way of the pool. */
static void test_a_new_block_is_not_synchronous_because_the_last_one_was(void)
{
    static const uint64_t sizes[] = {1000, 100000, 8 * MIB};
    uint64_t address;

    model_open(&model, 4 * GIB, 4 * GIB);
    for (unsigned i = 0; i < 6; i++) {
        const uint64_t bytes = sizes[i / 2];

        CHECK(pool_alloc(&model.pool, bytes, &address) == 0 && !is_synchronous(address));
        CHECK(pool_set_sync_memops(&model.pool, address, true) == 0 && is_synchronous(address));
        CHECK(pool_free(&model.pool, address, true) == 0);
        if (i % 2)
            pool_stats(&model.pool); /* what the thread keeps is the pool's again */
        take_again(bytes);
    }
    model_close(&model);
}

/* A chunk that goes back with its exposed block leaves a place that the next block gets. */
static void test_a_new_block_is_not_exposed_because_the_last_one_was(void)
{
    static const uint64_t sizes[] = {100000, MIB, 8 * MIB, 1000};
    uint64_t address, after;

    model_open(&model, 64 * MIB, 64 * MIB);
    for (unsigned i = 0; i < 4; i++) {
        CHECK(pool_alloc(&model.pool, sizes[i], &address) == 0 && pool_expose(&model.pool, address) == 0);
        CHECK(pool_free(&model.pool, address, true) == 0);
        CHECK(pool_alloc(&model.pool, sizes[i], &after) == 0 && (after == address || i == 3));
        const uint64_t held = fake_physical();
        CHECK(pool_free(&model.pool, after, true) == 0 && fake_physical() == held);
        pool_trim(&model.pool, UINT64_MAX);
    }
    pool_close(&model.pool, true);
    fake_end();
}

static void test_the_byte_behind_a_block_is_not_its_own(void)
{
    static const uint64_t sizes[] = {1000, 100000, 3 * MIB - 100, 8 * MIB};
    struct pool_block block;
    uint64_t address;

    model_open(&model, 64 * MIB, 64 * MIB);
    for (unsigned i = 0; i < 4; i++) {
        CHECK(pool_alloc(&model.pool, sizes[i], &address) == 0);
        CHECK(pool_block(&model.pool, address + sizes[i] - 1, true, &block) == 0 && block.address == address);
        CHECK(pool_block(&model.pool, address + sizes[i], true, &block) == -EINVAL);
        CHECK(pool_free(&model.pool, address, true) == 0);
    }
    model_close(&model);
}

/* ---- what is idle ---- */

/* Only what was free all the while: the least since the last question. */
static void test_what_was_in_use_since_the_last_look_is_not_idle(void)
{
    model_open(&model, GIB, GIB);
    for (int i = 0; i < 8; i++)
        CHECK(model_alloc(&model, 8 * MIB) == 0);
    for (int i = 0; i < 4; i++)
        model_free(&model, 0, true);
    CHECK(pool_idle_bytes(&model.pool) == 0); /* it was in use a moment ago */
    CHECK(model_alloc(&model, 16 * MIB) == 0);
    model_free(&model, 0, true);
    CHECK(pool_idle_bytes(&model.pool) == 16 * MIB);
    CHECK(pool_idle_bytes(&model.pool) == 32 * MIB);
    model_close(&model);
}

static void test_the_high_mark_is_a_share_of_what_is_held(void)
{
    model_open(&model, GIB, GIB);
    for (int i = 0; i < 10; i++)
        CHECK(model_alloc(&model, 8 * MIB) == 0);
    CHECK(!pool_mostly_free(&model.pool, 500));
    for (int i = 0; i < 4; i++)
        model_free(&model, 0, true);
    CHECK(!pool_mostly_free(&model.pool, 500) && pool_mostly_free(&model.pool, 300));
    for (int i = 0; i < 2; i++)
        model_free(&model, 0, true);
    CHECK(pool_mostly_free(&model.pool, 500) && !pool_mostly_free(&model.pool, 700));
    model_close(&model);
}

/* Freed through the thread's cache, taken from it, worked on and freed through it again. */
static void test_a_block_freed_again_waits_for_the_work_of_its_second_life(void)
{
    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, 8 * MIB) == 0);
    model_free(&model, 0, false);
    fence_poll(&model.pool.fence); /* nothing is behind the first free */
    CHECK(model_alloc(&model, 8 * MIB) == 0);
    model_work(&model, 0, &model.blocks[0]);
    model_free(&model, 0, false);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 0 && fake_backlog(0) == 1);
    finish(0);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 8 * MIB);
    model_close(&model);
}

/* Small blocks go back to the heap at once in the order of one stream; the page under them is still worked
 * on. */
static void test_a_page_of_small_blocks_goes_back_when_their_work_is_done(void)
{
    model_open(&model, 64 * MIB, 64 * MIB);
    for (int i = 0; i < 64; i++)
        CHECK(model_alloc(&model, 1000) == 0);
    model_work(&model, 0, &model.blocks[0]);
    while (model.count)
        model_free(&model, model.count - 1, false);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 0 && fake_backlog(0) == 1);
    finish(0);
    CHECK(fake_physical() && pool_trim(&model.pool, UINT64_MAX) && fake_physical() == 0);
    model_close(&model);
}

/* As with free = strict: a page waits for no work that began after its blocks were done. */
static void test_a_page_of_small_blocks_that_were_done_goes_back_beside_work(void)
{
    uint64_t small;

    model_open(&model, 64 * MIB, 64 * MIB);
    streams_distrust();
    fence_forbid_joins();
    CHECK(pool_alloc(&model.pool, 1000, &small) == 0 && pool_free(&model.pool, small, true) == 0);
    CHECK(model_alloc(&model, 8 * MIB) == 0);
    model_work(&model, 0, &model.blocks[0]);
    CHECK(pool_trim(&model.pool, UINT64_MAX) == 2 * MIB && fake_backlog(0) == 1);
    finish(0);
    model_close(&model);
}

/* ---- at the limit, and when calls fail ---- */

/* A chunk that the driver would not take back counts, and is offered again before a request is refused. */
static void test_what_could_not_be_given_back_is_no_reason_to_refuse(void)
{
    model_open(&model, 16 * MIB, 16 * MIB);
    CHECK(model_alloc(&model, 16 * MIB) == 0);
    model_free(&model, 0, true);
    fake_fail(1U << FAKE_RELEASE, 1, 0);
    pool_trim(&model.pool, 1);
    fake_fail(0, 0, 0);
    CHECK(fake_physical() == 16 * MIB && fake_mapped() < 16 * MIB);
    CHECK(model_alloc(&model, 16 * MIB) == 0);
    model_close(&model);
}

/* All that is left lies behind a large block in its last chunk. */
static void test_a_small_block_lies_beside_large_ones_rather_than_nowhere(void)
{
    model_open(&model, 4 * MIB, 4 * MIB);
    CHECK(model_alloc(&model, 3 * MIB) == 0 && fake_physical() == 4 * MIB);
    CHECK(model_alloc(&model, 512 * 1024) == 0);
    model_close(&model);
}

/* A block out of what was a large one with large chunks, which is still worked on. */
static void test_a_large_chunk_is_not_split_under_work_or_another_block(void)
{
    model_open(&model, 4 * GIB, 4 * GIB);
    CHECK(model_alloc(&model, GIB) == 0);
    model_work(&model, 0, &model.blocks[0]);
    model_free(&model, 0, false);
    CHECK(model_alloc(&model, 16 * MIB) == 0); /* the fake ends the test if a chunk is unmapped under work */
    CHECK(fake_backlog(0) == 1);
    finish(0);
    fence_poll(&model.pool.fence);
    CHECK(model_alloc(&model, 16 * MIB) == 0); /* behind the first, in the same chunk */
    model_check(&model);
    model_close(&model);
}

/* The driver refuses some of the smaller chunks. */
static void test_a_split_that_fails_gives_its_pieces_back(void)
{
    model_open(&model, 4 * GIB, 4 * GIB);
    CHECK(model_alloc(&model, GIB) == 0);
    model_free(&model, 0, true);
    fake_fail(1U << FAKE_CREATE, 3, UINT64_MAX / 2);
    CHECK(model_alloc(&model, 16 * MIB) == 0);
    CHECK(fake_failed());
    fake_fail(0, 0, 0);
    model_free(&model, 0, true);
    pool_trim(&model.pool, UINT64_MAX);
    CHECK(fake_physical() == 0 && model.held == 0);
    model_close(&model);
}

/* ---- sizes of chunks ---- */

/* Returns the number of chunks for a block of a pool that may hold `allowed`. */
static uint64_t chunks_for(uint64_t allowed, uint64_t bytes)
{
    model_open(&model, allowed, allowed);
    const uint64_t before = fake_count(FAKE_CREATE);
    CHECK(model_alloc(&model, bytes) == 0 && fake_physical() == bytes);
    const uint64_t created = fake_count(FAKE_CREATE) - before;
    model_close(&model);
    return created;
}

static void test_with_room_chunks_are_large_and_larger_in_a_large_block(void)
{
    CHECK(chunks_for(64 * GIB, 40 * MIB) == 5);
    CHECK(chunks_for(64 * GIB, 384 * MIB) == 6);
    CHECK(chunks_for(8 * GIB, 40 * MIB) == 20);
    CHECK(chunks_for(8 * GIB, 384 * MIB) == 192);
    CHECK(chunks_for(32 * GIB, 40 * MIB) == 5); /* just enough room */
    CHECK(chunks_for(32 * GIB - 2 * MIB, 40 * MIB) == 10);
    CHECK(chunks_for(8 * GIB, 512 * MIB) == 4); /* a program's own arena */
    CHECK(chunks_for(8 * GIB, 510 * MIB) == 255);
}

static void test_with_room_chunks_are_of_one_size(void)
{
    CHECK(chunks_for(64 * GIB, 14 * MIB) == 2); /* 8, 6; otherwise 8, 4, 2 */
    CHECK(chunks_for(64 * GIB, 510 * MIB) == 6);
    CHECK(chunks_for(64 * GIB, 1022 * MIB) == 13); /* an arena's are powers of two */
}

/* Returns the number of chunks for a block of a pool that holds so much already. */
static uint64_t chunks_beside(uint64_t held, uint64_t allowed, uint64_t bytes)
{
    model_open(&model, allowed, allowed);
    CHECK(model_alloc(&model, held) == 0);
    const uint64_t before = fake_count(FAKE_CREATE);
    CHECK(model_alloc(&model, bytes) == 0 && fake_physical() == held + bytes);
    const uint64_t created = fake_count(FAKE_CREATE) - before;
    model_close(&model);
    return created;
}

static void test_with_room_the_chunks_of_a_large_pool_are_larger(void)
{
    CHECK(chunks_beside(GIB, 139 * GIB, 32 * MIB) == 4);
    CHECK(chunks_beside(2 * GIB, 139 * GIB, 32 * MIB) == 2);
    CHECK(chunks_beside(4 * GIB, 139 * GIB, 32 * MIB) == 1);
    CHECK(chunks_beside(4 * GIB, 36 * GIB, 32 * MIB) == 4); /* not with so little room */
}

/* A large block was freed, and its first chunk was split for a smaller one. Returns how many chunks are made
 * for a second, which ends inside a chunk of 32 MiB. */
static uint64_t split_again(uint64_t allowed)
{
    model_open(&model, allowed, allowed);
    CHECK(model_alloc(&model, GIB) == 0);
    model_free(&model, 0, true);
    CHECK(model_alloc(&model, 16 * MIB) == 0);
    const uint64_t before = fake_count(FAKE_CREATE);
    CHECK(before > 4 && model_alloc(&model, 40 * MIB) == 0);
    const uint64_t created = fake_count(FAKE_CREATE) - before;
    model_close(&model);
    return created;
}

/* Returns how many chunks replace one of 256 MiB, of which a block covers 200. */
static uint64_t split_under(uint64_t allowed)
{
    model_open(&model, allowed, allowed);
    CHECK(model_alloc(&model, GIB) == 0);
    model_free(&model, 0, true);
    const uint64_t before = fake_count(FAKE_CREATE);
    CHECK(model_alloc(&model, 200 * MIB) == 0);
    const uint64_t created = fake_count(FAKE_CREATE) - before;
    model_close(&model);
    return created;
}

static void test_with_room_a_split_chunk_makes_few(void)
{
    CHECK(split_under(64 * GIB) == 7); /* 64, 64, 64, 8; 16, 32, 8 */
    CHECK(split_under(4 * GIB) > 100);
}

static void test_with_room_only_very_large_chunks_are_split(void)
{
    CHECK(split_again(64 * GIB) == 0);
    CHECK(split_again(4 * GIB) > 0);
}

/* ---- slack ---- */

/* Every second block of 2 GiB is free; a request that fits into none of the gaps. */
static uint64_t stitches_with_slack(uint32_t permille)
{
    model_open(&model, 16 * GIB, 16 * GIB);
    model.pool.slack_permille = permille;
    for (int i = 0; i < 256; i++)
        CHECK(model_alloc(&model, 8 * MIB) == 0);
    for (size_t i = 0; i < 128; i++)
        model_free(&model, i, true);
    CHECK(model_alloc(&model, 64 * MIB) == 0);
    const uint64_t stitches = pool_stats(&model.pool).stitches;
    model_close(&model);
    return stitches;
}

static void test_within_the_slack_a_pool_grows_rather_than_move_chunks(void)
{
    CHECK(stitches_with_slack(0) == 1);
    CHECK(stitches_with_slack(200) == 0);
}

/* The list of small blocks that wait for work grows when its beginning is not at its start. */
static void test_no_small_block_is_lost_when_many_wait(void)
{
    static uint64_t blocks[1600];

    fence_forbid_joins();
    streams_distrust();
    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, 4 * MIB) == 0);
    for (int i = 0; i < 1600; i++)
        CHECK(pool_alloc(&model.pool, 512, &blocks[i]) == 0);
    for (int i = 0; i < 300; i++) /* no work: most are taken in again at once */
        CHECK(pool_free(&model.pool, blocks[i], false) == 0);
    model_work(&model, 0, &model.blocks[0]);
    for (int i = 300; i < 1600; i++)
        CHECK(pool_free(&model.pool, blocks[i], false) == 0);
    finish(0);
    pool_poll(&model.pool);
    CHECK(!pool_check(&model.pool));
    model_free(&model, 0, true);
    CHECK(pool_trim(&model.pool, UINT64_MAX) && fake_physical() == 0);
    model_close(&model);
}

static uint64_t later[8];
static int later_count;

/* Another thread works and frees while this one waits. */
static void work_and_free(void)
{
    if (later_count == 8)
        return;
    model_work(&model, 1, &model.blocks[0]);
    CHECK(pool_free(&model.pool, later[later_count++], false) == 0);
    fence_poll(&model.pool.fence);
}

static void test_a_wait_for_small_blocks_is_not_for_later_work(void)
{
    uint64_t block, wait_ns;

    fence_forbid_joins();
    streams_distrust();
    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, 4 * MIB) == 0 && pool_alloc(&model.pool, 512, &block) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(pool_alloc(&model.pool, 512, &later[i]) == 0);
    model_work(&model, 0, &model.blocks[0]);
    CHECK(pool_free(&model.pool, block, false) == 0);
    fake_on_synchronize = work_and_free;
    small_trim_wait(&model.pool, NULL, &wait_ns);
    fake_on_synchronize = NULL;
    CHECK(later_count > 0 && later_count < 8);
    while (later_count < 8)
        CHECK(pool_free(&model.pool, later[later_count++], false) == 0);
    finish(0);
    finish(1);
    model_free(&model, 0, true);
    model_close(&model);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_the_last_pin_hands_nothing_out_before_two_streams_are_done);
    RUN_APART(test_only_a_pinned_block_shows_what_is_behind_it);
    RUN_APART(test_beside_a_capture_chunks_that_are_worked_on_do_not_move);
    RUN_APART(test_a_block_that_other_devices_reach_goes_back_when_its_work_is_done);
    RUN_APART(test_an_exposed_block_is_not_used_again_though_others_have_closed_it);
    RUN_TEST(test_a_chunk_with_a_live_block_stays_though_its_other_block_was_shown);
    RUN_APART(test_no_work_is_waited_for_if_all_memory_waits_for_its_own);
    RUN_APART(test_small_blocks_that_others_may_reach_do_not_pile_up);
    RUN_APART(test_many_blocks_that_others_may_reach_do_not_slow_frees_down);
    RUN_APART(test_a_chunk_goes_back_when_the_last_of_its_blocks_is_freed);
    RUN_APART(test_a_chunk_goes_back_when_all_work_on_it_is_done);
    RUN_APART(test_a_new_block_is_not_synchronous_because_the_last_one_was);
    RUN_APART(test_a_new_block_is_not_exposed_because_the_last_one_was);
    RUN_APART(test_the_byte_behind_a_block_is_not_its_own);
    RUN_APART(test_what_was_in_use_since_the_last_look_is_not_idle);
    RUN_APART(test_the_high_mark_is_a_share_of_what_is_held);
    RUN_APART(test_a_block_freed_again_waits_for_the_work_of_its_second_life);
    RUN_APART(test_a_page_of_small_blocks_goes_back_when_their_work_is_done);
    RUN_APART(test_a_page_of_small_blocks_that_were_done_goes_back_beside_work);
    RUN_APART(test_what_could_not_be_given_back_is_no_reason_to_refuse);
    RUN_APART(test_a_small_block_lies_beside_large_ones_rather_than_nowhere);
    RUN_APART(test_a_large_chunk_is_not_split_under_work_or_another_block);
    RUN_APART(test_a_split_that_fails_gives_its_pieces_back);
    RUN_APART(test_with_room_chunks_are_large_and_larger_in_a_large_block);
    RUN_APART(test_with_room_chunks_are_of_one_size);
    RUN_APART(test_with_room_the_chunks_of_a_large_pool_are_larger);
    RUN_APART(test_with_room_a_split_chunk_makes_few);
    RUN_APART(test_with_room_only_very_large_chunks_are_split);
    RUN_APART(test_within_the_slack_a_pool_grows_rather_than_move_chunks);
    RUN_APART(test_no_small_block_is_lost_when_many_wait);
    RUN_APART(test_a_wait_for_small_blocks_is_not_for_later_work);
    return UNITY_END();
}
