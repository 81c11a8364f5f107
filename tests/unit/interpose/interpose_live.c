/* live: the table of live blocks and their sums, alone. */
#include "interpose/see/live.h"

#include <unity.h>

void setUp(void)
{
    live_clear();
}

void tearDown(void)
{
    live_clear();
}

static struct recording_event block_of(enum recording_kind kind, uint64_t address, uint16_t device)
{
    return (struct recording_event){.head.type = RECORDING_ALLOC,
                                    .kind = (uint8_t)kind,
                                    .device = device,
                                    .address = address,
                                    .bytes = 1};
}

static void enter(enum recording_kind kind, uint64_t address, uint16_t device)
{
    const struct recording_event event = block_of(kind, address, device);

    live_add(&event);
}

static void test_numbers_of_addresses_handles_arrays_and_graphs_are_apart(void)
{
    static const enum recording_kind kinds[] = {RECORDING_MALLOC, RECORDING_VMM, RECORDING_ARRAY,
                                                RECORDING_GRAPH};
    struct live_row row;

    for (int i = 0; i < 4; i++)
        enter(kinds[i], 0x1000, 0);
    for (int i = 0; i < 4; i++) {
        struct recording_event gone = block_of(kinds[i], 0x1000, 9);

        TEST_ASSERT_TRUE(live_row((size_t)i, &row));
        TEST_ASSERT_EQUAL_UINT64(1, row.bytes);
        TEST_ASSERT_TRUE(live_take(&gone));
        TEST_ASSERT_EQUAL_INT(kinds[i], gone.kind);
        TEST_ASSERT_EQUAL_UINT16(0, gone.device);
        TEST_ASSERT_FALSE(live_take(&gone));
    }
}

static void test_a_block_that_is_known_is_counted_once(void)
{
    struct live_row row;

    enter(RECORDING_MALLOC, 0x1000, 0);
    enter(RECORDING_MALLOC, 0x1000, 0); /* listed at the start, and noted by the program's thread as well */
    TEST_ASSERT_TRUE(live_row(0, &row));
    TEST_ASSERT_EQUAL_UINT64(1, row.bytes);
    TEST_ASSERT_EQUAL_UINT64(1, row.blocks);
}

static void test_tags_owners_and_kinds_have_sums_of_their_own(void)
{
    struct live_row row;

    for (int i = 0; i < 4; i++) {
        struct recording_event event = block_of(RECORDING_MALLOC, 0x1000 + (uint64_t)i, 0);

        event.tag = i == 1 ? 7 : 0;
        event.owner = i == 2 ? 7 : 0;
        event.kind = i == 3 ? RECORDING_ASYNC : RECORDING_MALLOC;
        live_add(&event);
    }
    for (size_t i = 0; i < 4; i++) {
        TEST_ASSERT_TRUE(live_row(i, &row));
        TEST_ASSERT_EQUAL_UINT64(1, row.bytes);
        TEST_ASSERT_EQUAL_INT(i == 1 ? 7 : 0, row.tag);
    }
}

static void test_many_blocks_on_two_cards_are_all_found_again(void)
{
    struct live_row row;

    for (uint64_t i = 1; i <= 20000; i++)
        enter(RECORDING_MALLOC, i << 9, i % 2);
    for (uint64_t i = 1; i <= 20000; i++) {
        struct recording_event gone = block_of(RECORDING_MALLOC, (i * 7919 % 20000 + 1) << 9, 9);

        TEST_ASSERT_TRUE(live_take(&gone));
        TEST_ASSERT_EQUAL_UINT16((gone.address >> 9) % 2, gone.device);
    }
    for (size_t i = 0; i < 2; i++) {
        TEST_ASSERT_TRUE(live_row(i, &row));
        TEST_ASSERT_EQUAL_UINT64(0, row.bytes);
        TEST_ASSERT_EQUAL_UINT64(10000, row.peak);
    }
}

static void test_the_end_of_a_context_takes_its_addresses_and_nothing_else(void)
{
    struct recording_event gone = {0};

    enter(RECORDING_VMM, 0x1800, 0); /* a handle of that number */
    enter(RECORDING_MALLOC, 0x0fff, 0);
    enter(RECORDING_MALLOC, 0x1000, 0);
    enter(RECORDING_ASYNC, 0x1fff, 0);
    enter(RECORDING_MALLOC, 0x2000, 0);
    TEST_ASSERT_TRUE(live_take_within(0x1000, 0x1000, &gone));
    const uint64_t first = gone.address;
    TEST_ASSERT_TRUE(live_take_within(0x1000, 0x1000, &gone));
    TEST_ASSERT_EQUAL_HEX64(0x1000 + 0x1fff, first + gone.address);
    TEST_ASSERT_FALSE(live_take_within(0x1000, 0x1000, &gone));
}

static void test_rows_beyond_the_table_count_under_the_first(void)
{
    struct live_row row;

    for (uint16_t i = 0; i < LIVE_ROWS + 2; i++) {
        struct recording_event event = block_of(RECORDING_MALLOC, 0x1000 + (uint64_t)i, 0);

        event.tag = i;
        live_add(&event);
    }
    TEST_ASSERT_FALSE(live_row(LIVE_ROWS, &row));
    TEST_ASSERT_TRUE(live_row(LIVE_ROWS - 1, &row));
    TEST_ASSERT_EQUAL_UINT64(1, row.bytes);
    TEST_ASSERT_TRUE(live_row(0, &row));
    TEST_ASSERT_EQUAL_UINT64(3, row.bytes);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_numbers_of_addresses_handles_arrays_and_graphs_are_apart);
    RUN_TEST(test_a_block_that_is_known_is_counted_once);
    RUN_TEST(test_tags_owners_and_kinds_have_sums_of_their_own);
    RUN_TEST(test_many_blocks_on_two_cards_are_all_found_again);
    RUN_TEST(test_the_end_of_a_context_takes_its_addresses_and_nothing_else);
    RUN_TEST(test_rows_beyond_the_table_count_under_the_first);
    return UNITY_END();
}
