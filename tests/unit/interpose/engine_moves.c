/* How often a pool may move chunks while there is room: only if that saves much, and only as many as requests
 * have paid for. Otherwise it grows, but only to what it would hold if it had never moved any. */
#include "tests/unit/interpose/engine_model.h"

#include <unity.h>

#define BLOCKS 16
#define BLOCK  (64 * MIB)
#define ROOM   (UINT64_C(139) << 30)
#define PRICE  UINT64_C(6000000000) /* of a moved chunk, in bytes requested */
#define CHUNKS 12                   /* that two blocks are made of */

static struct model model;
static uint64_t slots[BLOCKS]; /* addresses of the blocks, side by side */

/* Fills the pool with blocks. The slack above them is less than two blocks, also with much room (8 %). */
static void fill(uint64_t capacity)
{
    model_open(&model, capacity, capacity);
    for (unsigned i = 0; i < BLOCKS; i++)
        TEST_ASSERT_EQUAL_INT(0, model_alloc(&model, BLOCK));
    for (unsigned i = 0; i < BLOCKS; i++)
        slots[i] = model.blocks[i].address;
    model.pool.requested = 0;
}

/* Requests have paid for so many moved chunks more. */
static void pay(uint64_t chunks)
{
    model.pool.requested += chunks * PRICE;
}

void setUp(void) {}

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

static void test_with_room_a_pool_that_has_moved_much_grows(void)
{
    fill(ROOM);
    pay(3 * CHUNKS);
    for (unsigned slot = 1; slot < 13; slot += 4)
        TEST_ASSERT_TRUE(free_and_ask(slot));
    TEST_ASSERT_EQUAL_UINT64(BLOCKS, held());
    TEST_ASSERT_FALSE(free_and_ask(13));
    TEST_ASSERT_EQUAL_UINT64(BLOCKS + 2, held());
}

static void test_requests_pay_for_each_move(void)
{
    fill(ROOM);
    for (unsigned slot = 1; slot + 2 < BLOCKS; slot += 4) {
        pay(CHUNKS);
        TEST_ASSERT_TRUE(free_and_ask(slot));
    }
    TEST_ASSERT_EQUAL_UINT64(BLOCKS, held());
}

static void test_a_move_is_not_made_before_it_is_paid_for(void)
{
    fill(ROOM);
    pay(CHUNKS);
    model.pool.requested -= 2 * BLOCK + 1; /* the request itself counts */
    TEST_ASSERT_FALSE(free_and_ask(1));
    TEST_ASSERT_TRUE(free_and_ask(5));
}

/* Frees the block of two at the end and asks for one that is longer. Returns true if chunks moved. */
static bool lengthen(uint64_t bytes)
{
    const uint64_t before = model.pool.stitches;
    size_t i = 0;

    while (model.blocks[i].bytes != 2 * BLOCK)
        i++;
    model_free(&model, i, true);
    TEST_ASSERT_EQUAL_INT(0, model_alloc(&model, 2 * BLOCK + bytes));
    model_check(&model);
    return model.pool.stitches != before;
}

/* Little is less than a 100th of what the pool holds, which is 1,152 MiB. */
static void test_with_room_a_pool_does_not_move_chunks_to_save_little(void)
{
    fill(ROOM);
    TEST_ASSERT_FALSE(free_and_ask(1));
    pay(1000);
    TEST_ASSERT_FALSE(lengthen(10 * MIB));
    TEST_ASSERT_EQUAL_UINT64((BLOCKS + 2) * BLOCK + 10 * MIB, model.pool.vmm.physical);
}

static void test_with_room_a_pool_moves_chunks_to_save_more(void)
{
    fill(ROOM);
    TEST_ASSERT_FALSE(free_and_ask(1));
    pay(1000);
    TEST_ASSERT_TRUE(lengthen(20 * MIB)); /* two chunks */
    TEST_ASSERT_EQUAL_UINT64((BLOCKS + 2) * BLOCK, model.pool.vmm.physical);
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
    pay(2 * CHUNKS);
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
    RUN_TEST(test_requests_pay_for_each_move);
    RUN_TEST(test_a_move_is_not_made_before_it_is_paid_for);
    RUN_TEST(test_with_room_a_pool_does_not_move_chunks_to_save_little);
    RUN_TEST(test_with_room_a_pool_moves_chunks_to_save_more);
    RUN_TEST(test_near_a_limit_it_moves_however_often);
    RUN_TEST(test_it_grows_no_further_than_without_any_move);
    return UNITY_END();
}
