/* How often a pool may move chunks while there is room: only as much as takes little of the time that has
 * passed. Otherwise it grows, but only to what it would hold if it had never moved any. The clock is the
 * test's own. */
#include "tests/unit/interpose/engine_model.h"

#include <unity.h>

#define BLOCKS 16
#define BLOCK  (64 * MIB)
#define ROOM   (UINT64_C(139) << 30)
#define SECOND UINT64_C(1000000000)

static struct model model;
static uint64_t slots[BLOCKS]; /* addresses of the blocks, side by side */
static uint64_t now;

static uint64_t test_clock(void)
{
    return now;
}

/* Fills the pool with blocks. The slack above them is less than two blocks, also with much room (8 %). */
static void fill(uint64_t capacity)
{
    model_open(&model, capacity, capacity);
    model.pool.clock = test_clock;
    for (unsigned i = 0; i < BLOCKS; i++)
        TEST_ASSERT_EQUAL_INT(0, model_alloc(&model, BLOCK));
    for (unsigned i = 0; i < BLOCKS; i++)
        slots[i] = model.blocks[i].address;
}

void setUp(void)
{
    now = 0;
}

void tearDown(void)
{
    model_close(&model);
}

static void free_slot(unsigned slot)
{
    size_t i = 0;

    while (i < model.count && model.blocks[i].address != slots[slot])
        i++;
    TEST_ASSERT_TRUE(i < model.count);
    model_free(&model, i, true);
}

/* Frees two blocks that are not side by side and asks for both in one. Returns true if chunks moved. */
static bool free_and_ask(unsigned slot)
{
    const uint64_t before = model.pool.stitches;

    free_slot(slot);
    free_slot(slot + 2);
    TEST_ASSERT_EQUAL_INT(0, model_alloc(&model, 2 * BLOCK));
    model_check(&model);
    return model.pool.stitches != before;
}

static uint64_t held(void)
{
    return model.pool.vmm.physical / BLOCK;
}

static void test_with_room_a_young_pool_grows(void)
{
    fill(ROOM);
    TEST_ASSERT_FALSE(free_and_ask(1));
    TEST_ASSERT_EQUAL_UINT64(BLOCKS + 2, held());
}

/* 16 chunks each, at 26 us, 300 times: 0.125 s. */
static void test_with_room_a_pool_that_has_moved_much_grows(void)
{
    fill(ROOM);
    now = SECOND * 3 / 8;
    for (unsigned slot = 1; slot < 13; slot += 4)
        TEST_ASSERT_TRUE(free_and_ask(slot));
    TEST_ASSERT_EQUAL_UINT64(BLOCKS, held());
    TEST_ASSERT_FALSE(free_and_ask(13));
    TEST_ASSERT_EQUAL_UINT64(BLOCKS + 2, held());
}

static void test_time_without_moves_allows_them_again(void)
{
    fill(ROOM);
    for (unsigned slot = 1; slot + 2 < BLOCKS; slot += 4) {
        now += SECOND / 8;
        TEST_ASSERT_TRUE(free_and_ask(slot));
    }
    TEST_ASSERT_EQUAL_UINT64(BLOCKS, held());
}

static void test_an_hour_without_moves_is_worth_ten_seconds(void)
{
    fill(ROOM);
    now = 3600 * SECOND;
    TEST_ASSERT_TRUE(free_and_ask(1));
    TEST_ASSERT_TRUE(model.pool.moves_until > now - 10 * SECOND);
}

/* Frees two blocks, asks for both in one, and has two again. */
static void shuffle(void)
{
    size_t i = 0;

    model_free(&model, fake_below(&model.random, model.count), true);
    model_free(&model, fake_below(&model.random, model.count), true);
    TEST_ASSERT_EQUAL_INT(0, model_alloc(&model, 2 * BLOCK));
    while (model.blocks[i].bytes != 2 * BLOCK)
        i++;
    model_free(&model, i, true);
    TEST_ASSERT_EQUAL_INT(0, model_alloc(&model, BLOCK));
    TEST_ASSERT_EQUAL_INT(0, model_alloc(&model, BLOCK));
}

static void test_moves_without_end_count_for_ten_seconds(void)
{
    fill((BLOCKS + 1) * BLOCK);
    for (unsigned i = 0; i < 200; i++)
        shuffle();
    TEST_ASSERT_TRUE(model.pool.stitched > 4000);                  /* 31 s at 26 us, 300 times */
    TEST_ASSERT_TRUE(model.pool.moves_until <= now + 11 * SECOND); /* and the bytes requested, see below */
}

/* A program that only allocates is taken for one that uses its memory at the speed of a fast card. */
static void test_bytes_requested_count_as_time(void)
{
    fill(ROOM);
    TEST_ASSERT_FALSE(free_and_ask(1));
    free_slot(9);
    for (uint64_t i = 0; i < 600; i++) { /* never the size that was freed last */
        TEST_ASSERT_EQUAL_INT(0, model_alloc(&model, BLOCK - (i % 2 + 1) * MIB));
        for (size_t k = 0; k < model.count; k++) {
            if (model.blocks[k].bytes == BLOCK - (i % 2 + 1) * MIB) {
                model_free(&model, k, true);
                break;
            }
        }
    }
    TEST_ASSERT_TRUE(free_and_ask(5));
    TEST_ASSERT_EQUAL_UINT64(BLOCKS + 2, held());
}

static void test_near_a_limit_it_moves_however_often(void)
{
    fill((BLOCKS + 1) * BLOCK);
    for (unsigned slot = 1; slot + 2 < BLOCKS; slot += 4)
        TEST_ASSERT_TRUE(free_and_ask(slot));
    TEST_ASSERT_EQUAL_UINT64(BLOCKS, held());
}

/* Where a block is freed between two that have moved, a pool that never moves has room for a larger one. */
static void ask_between(unsigned slot)
{
    free_slot(slot);
    TEST_ASSERT_EQUAL_INT(0, model_alloc(&model, 2 * BLOCK));
    model_check(&model);
}

static void test_it_grows_no_further_than_without_any_move(void)
{
    fill(ROOM);
    now = SECOND / 4;
    free_slot(1);
    free_slot(3);
    free_slot(11);
    free_slot(13);
    TEST_ASSERT_EQUAL_INT(0, model_alloc(&model, 4 * BLOCK)); /* without moves: four blocks more */
    TEST_ASSERT_EQUAL_UINT64(1, model.pool.stitches);
    ask_between(2);
    ask_between(12);
    TEST_ASSERT_EQUAL_UINT64(BLOCKS + 4, held());
    TEST_ASSERT_EQUAL_UINT64(1, model.pool.stitches);
    ask_between(4);
    TEST_ASSERT_EQUAL_UINT64(BLOCKS + 4, held());
    TEST_ASSERT_EQUAL_UINT64(2, model.pool.stitches);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_with_room_a_young_pool_grows);
    RUN_TEST(test_with_room_a_pool_that_has_moved_much_grows);
    RUN_TEST(test_time_without_moves_allows_them_again);
    RUN_TEST(test_an_hour_without_moves_is_worth_ten_seconds);
    RUN_TEST(test_moves_without_end_count_for_ten_seconds);
    RUN_TEST(test_bytes_requested_count_as_time);
    RUN_TEST(test_near_a_limit_it_moves_however_often);
    RUN_TEST(test_it_grows_no_further_than_without_any_move);
    return UNITY_END();
}
