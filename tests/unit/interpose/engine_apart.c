/* What a pool says of its idle memory after a refusal: how much, in how many pieces, how much of it can be
 * one block, and what keeps the rest apart. Each case is a process of its own, as in engine_pool.c. */
#include "interpose/pool/capture.h"
#include "interpose/pool/pool_apart.h"
#include "interpose/pool/pool_pending.h"
#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_model.h"

#include <errno.h>
#include <unity.h>

static struct model model;

void setUp(void) {}

void tearDown(void) {}

static struct pool_apart look(uint64_t request)
{
    struct pool_apart apart = {.whole = 0};
    uint64_t sum = 0;

    pool_apart_add(&apart, &model.pool, request);
    pool_apart_end(&apart);
    for (int i = RECORDING_APART_JOINED; i <= RECORDING_APART_STUCK; i++)
        sum += apart.of[i];
    CHECK(sum == apart.of[RECORDING_APART_IDLE]);
    return apart;
}

static void close_with(uint64_t other)
{
    CHECK(pool_free(&model.pool, other, true) == 0);
    model_close(&model);
}

/* Whole chunks can be joined, and what the pool says can be made in one block can be. */
static void test_whole_chunks_count_as_one_block(void)
{
    uint64_t other;

    model_open(&model, 64 * MIB, 64 * MIB);
    for (int i = 0; i < 8; i++)
        CHECK(model_alloc(&model, 8 * MIB) == 0);
    for (unsigned i = 0; i < 4; i++)
        model_free(&model, i, true); /* the last one takes the place: every other block */
    const struct pool_apart apart = look(40 * MIB);
    CHECK(apart.of[RECORDING_APART_IDLE] == 32 * MIB && apart.of[RECORDING_APART_PIECES] > 1);
    CHECK(apart.of[RECORDING_APART_JOINED] == 32 * MIB);
    CHECK(pool_alloc(&model.pool, 40 * MIB, &other) == -ENOMEM);
    CHECK(pool_alloc(&model.pool, 32 * MIB, &other) == 0);
    close_with(other);
}

/* Blocks of 1.5 MiB side by side: no page of 2 MiB is free when every other one is freed. */
static void test_parts_of_chunks_with_live_blocks_are_named(void)
{
    uint64_t blocks[32], other;

    model_open(&model, 48 * MIB, 48 * MIB);
    for (int i = 0; i < 32; i++)
        CHECK(pool_alloc(&model.pool, 3 * MIB / 2, &blocks[i]) == 0);
    for (int i = 0; i < 32; i += 2)
        CHECK(pool_free(&model.pool, blocks[i], true) == 0);
    CHECK(pool_alloc(&model.pool, 16 * MIB, &other) == -ENOMEM);
    const struct pool_apart apart = look(16 * MIB);
    CHECK(apart.of[RECORDING_APART_IDLE] == 24 * MIB && apart.of[RECORDING_APART_PIECES] == 16);
    CHECK(apart.of[RECORDING_APART_JOINED] == 3 * MIB / 2);
    CHECK(apart.of[RECORDING_APART_PARTS] == 24 * MIB - 3 * MIB / 2);
    for (int i = 1; i < 32; i += 2)
        CHECK(pool_free(&model.pool, blocks[i], true) == 0);
    model_close(&model);
}

/* Two streams work on a freed block, and no join can bring them into order. */
static void test_freed_memory_with_work_on_it_is_named(void)
{
    fence_forbid_joins();
    streams_distrust();
    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(model_alloc(&model, 16 * MIB) == 0 && model_alloc(&model, 8 * MIB) == 0);
    model_work(&model, 0, &model.blocks[0]);
    model_work(&model, 1, &model.blocks[0]);
    model_free(&model, 0, false);
    struct pool_apart apart = look(60 * MIB);
    CHECK(apart.of[RECORDING_APART_IDLE] == 16 * MIB && apart.of[RECORDING_APART_WORK] == 16 * MIB);
    CHECK(apart.of[RECORDING_APART_PIECES] == 1);
    CHECK(apart.of[RECORDING_APART_JOINED] == 0);
    capture_begin(FAKE_CAPTURE, streams_thread_key(), FAKE_CONTEXT);
    apart = look(60 * MIB);
    CHECK(apart.of[RECORDING_APART_CAPTURE] == 16 * MIB && apart.of[RECORDING_APART_WORK] == 0);
    capture_end(FAKE_CAPTURE, streams_thread_key());
    while (fake_progress(0) || fake_progress(1))
        ;
    pool_poll(&model.pool);
    apart = look(60 * MIB);
    CHECK(apart.of[RECORDING_APART_WORK] == 0 && apart.of[RECORDING_APART_JOINED] == 16 * MIB);
    model_close(&model);
}

/* Behind a join freed chunks may move, but cannot be released before their work is done: one that is larger
 * than the request is of no use until then. */
static void test_chunks_too_large_for_a_request_are_named(void)
{
    streams_distrust();
    model_open(&model, 1024 * MIB, 1024 * MIB);
    CHECK(model_alloc(&model, 512 * MIB) == 0);
    model_work(&model, 0, &model.blocks[0]);
    model_work(&model, 1, &model.blocks[0]);
    model_free(&model, 0, false);
    lock_take(&model.pool.lock);
    CHECK(pool_join(&model.pool));
    lock_release(&model.pool.lock);
    CHECK(!fence_done(&model.pool.fence, fence_usable(&model.pool.fence)));
    struct pool_apart apart = look(600 * MIB);
    CHECK(apart.of[RECORDING_APART_WORK] == 0 && apart.of[RECORDING_APART_JOINED] == 512 * MIB);
    apart = look(8 * MIB);
    CHECK(apart.of[RECORDING_APART_SIZES] == 512 * MIB && apart.of[RECORDING_APART_JOINED] == 0);
    while (fake_progress(0) || fake_progress(1))
        ;
    pool_poll(&model.pool);
    fence_poll(&model.pool.fence);
    apart = look(8 * MIB);
    CHECK(apart.of[RECORDING_APART_SIZES] == 0 && apart.of[RECORDING_APART_JOINED] == 512 * MIB);
    model_close(&model);
}

/* A free part of a chunk lengthens a block of joined chunks only where these can be put beside it. */
static void test_parts_between_live_blocks_lengthen_nothing(void)
{
    uint64_t blocks[32], large;

    model_open(&model, 56 * MIB, 56 * MIB);
    CHECK(pool_alloc(&model.pool, 8 * MIB, &large) == 0);
    for (int i = 0; i < 32; i++)
        CHECK(pool_alloc(&model.pool, 3 * MIB / 2, &blocks[i]) == 0);
    CHECK(pool_free(&model.pool, large, true) == 0);
    for (int i = 1; i < 31; i += 2)
        CHECK(pool_free(&model.pool, blocks[i], true) == 0);
    const struct pool_apart apart = look(16 * MIB);
    CHECK(apart.of[RECORDING_APART_JOINED] == 8 * MIB);
    for (int i = 0; i < 32; i += i == 30 ? 1 : 2)
        CHECK(pool_free(&model.pool, blocks[i], true) == 0);
    model_close(&model);
}

static void test_freed_memory_that_another_process_has_open_is_named(void)
{
    uint64_t address;

    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(pool_alloc(&model.pool, 8 * MIB, &address) == 0);
    /* The largest range of several pools counts, whichever comes last. */
    struct pool_apart both = {.largest = 16 * MIB};
    pool_apart_add(&both, &model.pool, MIB);
    CHECK(both.largest == 16 * MIB);
    CHECK(pool_pin(&model.pool, address) == 0 && pool_free(&model.pool, address, true) == 0);
    pool_freed_pinned = false;
    const struct pool_apart apart = look(60 * MIB);
    CHECK(apart.of[RECORDING_APART_IDLE] == 8 * MIB && apart.of[RECORDING_APART_PINNED] == 8 * MIB);
    CHECK(pool_unpin(&model.pool, address) == 0);
    model_close(&model);
}

/* The driver did not take a chunk back. */
static void test_memory_that_the_driver_did_not_take_back_is_named(void)
{
    uint64_t address;

    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(pool_alloc(&model.pool, 2 * MIB, &address) == 0 && pool_free(&model.pool, address, true) == 0);
    CHECK(look(60 * MIB).of[RECORDING_APART_STUCK] == 0);
    lock_take(&model.pool.lock);
    fake_fail(1 << FAKE_RELEASE, 1, 0);
    CHECK(pool_give_back(&model.pool, address) == 0);
    lock_release(&model.pool.lock);
    CHECK(look(60 * MIB).of[RECORDING_APART_STUCK] == 2 * MIB);
    model_close(&model);
}

/* One small block of 1 KiB holds a page. */
static void test_room_between_small_blocks_is_named(void)
{
    uint64_t address;

    model_open(&model, 64 * MIB, 64 * MIB);
    CHECK(pool_alloc(&model.pool, 1024, &address) == 0);
    const struct pool_apart apart = look(60 * MIB);
    CHECK(apart.of[RECORDING_APART_IDLE] == fake_physical() - 1024);
    CHECK(model.pool.small.on ? apart.of[RECORDING_APART_SMALL] > 0 : apart.of[RECORDING_APART_SMALL] == 0);
    CHECK(pool_pin(&model.pool, address) == 0 && pool_free(&model.pool, address, true) == 0);
    pool_freed_pinned = false;
    CHECK(look(60 * MIB).of[RECORDING_APART_PINNED] == 1024);
    CHECK(pool_unpin(&model.pool, address) == 0);
    CHECK(look(60 * MIB).of[RECORDING_APART_PINNED] == 0);
    model_close(&model);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_whole_chunks_count_as_one_block);
    RUN_APART(test_parts_of_chunks_with_live_blocks_are_named);
    RUN_APART(test_freed_memory_with_work_on_it_is_named);
    RUN_APART(test_chunks_too_large_for_a_request_are_named);
    RUN_APART(test_parts_between_live_blocks_lengthen_nothing);
    RUN_APART(test_freed_memory_that_another_process_has_open_is_named);
    RUN_APART(test_memory_that_the_driver_did_not_take_back_is_named);
    RUN_APART(test_room_between_small_blocks_is_named);
    return UNITY_END();
}
