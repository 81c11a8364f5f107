/* The harness's arena: blocks never overlap, freed ranges merge, misuse changes nothing. */
#include <stdint.h>
#include <string.h>

#include "harness/memory/arena.h"
#include "unity.h"

enum { UNITS = 64, SIZE = UNITS * ARENA_ALIGN };

static struct arena arena;

void setUp(void)
{
    TEST_ASSERT_TRUE(arena_open(&arena, SIZE));
}

void tearDown(void)
{
    TEST_ASSERT_EQUAL_STRING(NULL, arena_check(&arena));
    arena_close(&arena);
}

static void test_blocks_are_aligned_and_do_not_overlap(void)
{
    size_t first, second;

    TEST_ASSERT_TRUE(arena_take(&arena, 1, &first));
    TEST_ASSERT_TRUE(arena_take(&arena, ARENA_ALIGN + 1, &second));
    TEST_ASSERT_EQUAL_size_t(0, first % ARENA_ALIGN);
    TEST_ASSERT_EQUAL_size_t(0, second % ARENA_ALIGN);
    TEST_ASSERT_TRUE(first + ARENA_ALIGN <= second || second + 2 * ARENA_ALIGN <= first);
    TEST_ASSERT_EQUAL_size_t(3 * ARENA_ALIGN, arena.taken);
}

static void test_the_whole_arena_can_be_taken_and_no_byte_more(void)
{
    size_t offset;

    TEST_ASSERT_FALSE(arena_take(&arena, SIZE + 1, &offset));
    TEST_ASSERT_FALSE(arena_take(&arena, SIZE_MAX, &offset));
    TEST_ASSERT_FALSE(arena_take(&arena, 0, &offset));
    TEST_ASSERT_TRUE(arena_take(&arena, SIZE, &offset));
    TEST_ASSERT_EQUAL_size_t(0, arena_largest_free(&arena));
    TEST_ASSERT_FALSE(arena_take(&arena, 1, &offset));
    TEST_ASSERT_TRUE(arena_give(&arena, offset));
    TEST_ASSERT_EQUAL_size_t(SIZE, arena_largest_free(&arena));
}

static void test_the_smallest_range_that_fits_is_used(void)
{
    size_t large, wall, small, end, offset;

    TEST_ASSERT_TRUE(arena_take(&arena, 8 * ARENA_ALIGN, &large));
    TEST_ASSERT_TRUE(arena_take(&arena, ARENA_ALIGN, &wall));
    TEST_ASSERT_TRUE(arena_take(&arena, 2 * ARENA_ALIGN, &small));
    TEST_ASSERT_TRUE(arena_take(&arena, ARENA_ALIGN, &end));
    TEST_ASSERT_TRUE(arena_give(&arena, large));
    TEST_ASSERT_TRUE(arena_give(&arena, small));
    TEST_ASSERT_TRUE(arena_take(&arena, 2 * ARENA_ALIGN, &offset));
    TEST_ASSERT_EQUAL_size_t(small, offset);
}

static void test_freed_neighbours_merge_in_any_order(void)
{
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    size_t offset[3];

    for (size_t o = 0; o < sizeof(orders) / sizeof(orders[0]); o++) {
        for (int i = 0; i < 3; i++)
            TEST_ASSERT_TRUE(arena_take(&arena, (size_t)(i + 1) * ARENA_ALIGN, &offset[i]));
        for (int i = 0; i < 3; i++) {
            TEST_ASSERT_TRUE(arena_give(&arena, offset[orders[o][i]]));
            TEST_ASSERT_EQUAL_STRING(NULL, arena_check(&arena));
        }
        TEST_ASSERT_EQUAL_size_t(SIZE, arena_largest_free(&arena));
    }
}

static void test_a_wrong_free_changes_nothing(void)
{
    size_t offset;

    TEST_ASSERT_TRUE(arena_take(&arena, 2 * ARENA_ALIGN, &offset));
    TEST_ASSERT_FALSE(arena_give(&arena, offset + ARENA_ALIGN));
    TEST_ASSERT_FALSE(arena_give(&arena, SIZE));
    TEST_ASSERT_EQUAL_size_t(2 * ARENA_ALIGN, arena.taken);
    TEST_ASSERT_TRUE(arena_give(&arena, offset));
    TEST_ASSERT_FALSE(arena_give(&arena, offset));
    TEST_ASSERT_EQUAL_size_t(0, arena.taken);
}

static void test_random_use_keeps_the_arena_sound(void)
{
    enum { SLOTS = 16, ROUNDS = 4000 };
    size_t offset[SLOTS];
    size_t units[SLOTS] = {0};
    uint8_t owner[UNITS] = {0};
    uint64_t state = 3;

    for (int round = 0; round < ROUNDS; round++) {
        int slot;

        state = state * 6364136223846793005u + 1442695040888963407u;
        slot = (int)(state >> 60) % SLOTS;
        if (units[slot]) {
            TEST_ASSERT_TRUE(arena_give(&arena, offset[slot]));
            memset(owner + offset[slot] / ARENA_ALIGN, 0, units[slot]);
            units[slot] = 0;
        } else {
            size_t want = 1 + (state >> 40) % 12;

            if (arena_take(&arena, want * ARENA_ALIGN, &offset[slot])) {
                for (size_t u = 0; u < want; u++)
                    TEST_ASSERT_EQUAL_UINT8(0, owner[offset[slot] / ARENA_ALIGN + u]);
                memset(owner + offset[slot] / ARENA_ALIGN, slot + 1, want);
                units[slot] = want;
            } else {
                TEST_ASSERT_TRUE(arena_largest_free(&arena) < want * ARENA_ALIGN);
            }
        }
        TEST_ASSERT_EQUAL_STRING(NULL, arena_check(&arena));
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_blocks_are_aligned_and_do_not_overlap);
    RUN_TEST(test_the_whole_arena_can_be_taken_and_no_byte_more);
    RUN_TEST(test_the_smallest_range_that_fits_is_used);
    RUN_TEST(test_freed_neighbours_merge_in_any_order);
    RUN_TEST(test_a_wrong_free_changes_nothing);
    RUN_TEST(test_random_use_keeps_the_arena_sound);
    return UNITY_END();
}
