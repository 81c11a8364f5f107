/* ranges against a byte map: every unit of a small address space is live, free or a hole, kept a second time
 * in the simplest way there is. */
#include "interpose/pool/ranges.h"

#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "tests/unit/interpose/engine_fake.h"

#define BASE       (UINT64_C(1) << 40)
#define PAGES      32
#define SPAN       (PAGES * RANGES_PAGE)
#define UNITS      (SPAN / RANGES_UNIT)
#define LIVES      4096
#define SLAB_BYTES (UINT64_C(256) << 10)
#define MANY       41                          /* more than a search looks at */
#define BORDER     (UNITS / RANGES_SMALL_PART) /* of the zones, in units */

static struct ranges ranges;
static unsigned char map[UNITS]; /* enum range_state of each unit */
static struct range *lives[LIVES];
static size_t live_count;
static struct fake_random rng;

void setUp(void)
{
    TEST_ASSERT_EQUAL_INT(0, ranges_init(&ranges, BASE, SPAN));
    memset(map, RANGE_HOLE, sizeof(map));
    live_count = 0;
    rng.state = 0;
}

void tearDown(void)
{
    ranges_destroy(&ranges);
}

static void paint(uint64_t start, uint64_t bytes, enum range_state from, enum range_state to)
{
    for (uint64_t u = (start - BASE) / RANGES_UNIT; u < (start + bytes - BASE) / RANGES_UNIT; u++) {
        TEST_ASSERT_EQUAL_INT(from, map[u]);
        map[u] = (unsigned char)to;
    }
}

/* The run of one state that holds a unit. */
static void run_at(uint64_t unit, uint64_t *first, uint64_t *end)
{
    *first = *end = unit;
    while (*first > 0 && *first != BORDER && map[*first - 1] == map[unit])
        --*first;
    while (*end < UNITS && (*end != BORDER || unit >= BORDER) && map[*end] == map[unit])
        ++*end;
}

/* The smallest free run of a zone that holds `bytes`, or 0. */
static uint64_t smallest_fit(enum ranges_zone zone, uint64_t bytes)
{
    const uint64_t last = zone == RANGES_SMALL ? BORDER : UNITS;
    uint64_t best = 0;

    for (uint64_t u = zone == RANGES_SMALL ? 0 : BORDER; u < last;) {
        uint64_t first, end;

        run_at(u, &first, &end);
        const uint64_t size = (end - first) * RANGES_UNIT;
        if (map[u] == RANGE_FREE && size >= bytes && (best == 0 || size < best))
            best = size;
        u = end;
    }
    return best;
}

static uint64_t random_size(void)
{
    const uint64_t scale = UINT64_C(1) << fake_below(&rng, 14);

    return (1 + fake_below(&rng, scale)) * RANGES_UNIT;
}

static void entered(struct range *range, uint64_t bytes)
{
    TEST_ASSERT_EQUAL_UINT64(bytes, range->bytes);
    paint(range->start, bytes, RANGE_FREE, RANGE_LIVE);
    lives[live_count++] = range;
}

static void step_take(void)
{
    const enum ranges_zone zone = fake_below(&rng, 4) ? RANGES_LARGE : RANGES_SMALL;
    const uint64_t bytes = random_size(), fit = smallest_fit(zone, bytes);

    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&ranges, 1));
    struct range *range = ranges_take(&ranges, zone, bytes);
    TEST_ASSERT_EQUAL_INT(fit != 0, range != NULL);
    if (!range)
        return;
    uint64_t first, end;
    run_at((range->start - BASE) / RANGES_UNIT, &first, &end);
    TEST_ASSERT_EQUAL_UINT64(fit, (end - first) * RANGES_UNIT);
    entered(range, bytes);
}

static void step_give(void)
{
    if (!live_count)
        return;
    const size_t i = fake_below(&rng, live_count);
    struct range *range = lives[i];
    paint(range->start, range->bytes, RANGE_LIVE, RANGE_FREE);
    ranges_give(&ranges, range, fake_below(&rng, 100));
    lives[i] = lives[--live_count];
}

/* A part of a hole gets memory, or a part of a free range loses it; whole pages. */
static void step_pages(enum range_state from, enum range_state to)
{
    const uint64_t page_units = RANGES_PAGE / RANGES_UNIT, page = fake_below(&rng, PAGES);
    uint64_t pages = 0;

    for (uint64_t wish = 1 + fake_below(&rng, 8); pages < wish && page + pages < PAGES; pages++) {
        uint64_t u = (page + pages) * page_units;

        if (pages && u == BORDER)
            break;
        while (u < (page + pages + 1) * page_units && map[u] == from)
            u++;
        if (u < (page + pages + 1) * page_units)
            break;
    }
    if (!pages)
        return;
    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&ranges, 2));
    paint(BASE + page * RANGES_PAGE, pages * RANGES_PAGE, from, to);
    if (to == RANGE_FREE)
        ranges_map(&ranges, BASE + page * RANGES_PAGE, pages * RANGES_PAGE, 7);
    else
        ranges_unmap(&ranges, BASE + page * RANGES_PAGE, pages * RANGES_PAGE);
}

static void step_take_at(void)
{
    const uint64_t unit = fake_below(&rng, UNITS);
    uint64_t first, end;

    if (map[unit] != RANGE_FREE)
        return;
    run_at(unit, &first, &end);
    const uint64_t bytes = (1 + fake_below(&rng, end - unit)) * RANGES_UNIT;
    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&ranges, 2));
    entered(ranges_take_at(&ranges, BASE + unit * RANGES_UNIT, bytes), bytes);
}

/* What a plan promises: memory where there is none, and then the block fits. */
static void step_plan(void)
{
    const uint64_t bytes = random_size();
    struct ranges_plan plan;

    const enum ranges_zone zone = fake_below(&rng, 4) ? RANGES_LARGE : RANGES_SMALL;

    if (smallest_fit(zone, bytes) || !ranges_plan(&ranges, zone, bytes, &plan))
        return;
    TEST_ASSERT_EQUAL_INT(zone == RANGES_LARGE, plan.start >= BASE + BORDER * RANGES_UNIT);
    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&ranges, 4));
    paint(plan.map_start, plan.map_bytes, RANGE_HOLE, RANGE_FREE);
    TEST_ASSERT_LESS_THAN_UINT64(bytes + RANGES_PAGE, plan.map_bytes);
    ranges_map(&ranges, plan.map_start, plan.map_bytes, 3);
    entered(ranges_take_at(&ranges, plan.start, bytes), bytes);
}

static void check_all(void)
{
    TEST_ASSERT_NULL(ranges_check(&ranges));
    for (int i = 0; i < 4; i++) {
        const uint64_t unit = fake_below(&rng, UNITS);
        const struct range *range =
            ranges_at(&ranges, BASE + unit * RANGES_UNIT + fake_below(&rng, RANGES_UNIT));
        uint64_t first, end;

        run_at(unit, &first, &end);
        TEST_ASSERT_EQUAL_INT(map[unit], range->state);
        TEST_ASSERT_TRUE(range->start <= BASE + unit * RANGES_UNIT &&
                         range->start + range->bytes > BASE + unit * RANGES_UNIT);
        if (range->state != RANGE_LIVE)
            TEST_ASSERT_EQUAL_UINT64((end - first) * RANGES_UNIT, range->bytes);
    }
}

static void test_ranges_agree_with_a_byte_map(void)
{
    const uint64_t steps = fake_number("GPUCAP_TEST_STEPS", 6000);

    for (uint64_t i = 0; i < steps; i++) {
        const uint64_t what = fake_below(&rng, 100), fill = i / 500 % 2 ? 30 : 55;

        if (what < fill && live_count < LIVES)
            step_take();
        else if (what < 80)
            step_give();
        else if (what < 85)
            step_pages(RANGE_HOLE, RANGE_FREE);
        else if (what < 90)
            step_pages(RANGE_FREE, RANGE_HOLE);
        else if (what < 95 && live_count < LIVES)
            step_plan();
        else if (live_count < LIVES)
            step_take_at();
        check_all();
    }
}

static void test_an_address_outside_belongs_to_no_range(void)
{
    TEST_ASSERT_NULL(ranges_at(&ranges, BASE - 1));
    TEST_ASSERT_NULL(ranges_at(&ranges, BASE + SPAN));
    TEST_ASSERT_NULL(ranges_at(&ranges, 0));
    TEST_ASSERT_NOT_NULL(ranges_at(&ranges, BASE));
    TEST_ASSERT_NOT_NULL(ranges_at(&ranges, BASE + SPAN - 1));
}

/* Many ranges of one bin, of which only the one freed first is large enough. */
static void test_a_range_that_fits_is_found_behind_many_that_do_not(void)
{
    const uint64_t small = 1000 * RANGES_UNIT, large = 1007 * RANGES_UNIT;
    struct range *kept[MANY];

    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&ranges, 4 * MANY));
    ranges_map(&ranges, ranges.border, BASE + SPAN - ranges.border, 0);
    for (int i = 0; i < MANY; i++) {
        kept[i] = ranges_take(&ranges, RANGES_LARGE, i ? small : large);
        TEST_ASSERT_NOT_NULL(ranges_take(&ranges, RANGES_LARGE, RANGES_UNIT));
    }
    TEST_ASSERT_NOT_NULL(ranges_take(&ranges, RANGES_LARGE, ranges_largest(&ranges)));
    for (int i = 0; i < MANY; i++)
        ranges_give(&ranges, kept[i], 0);
    TEST_ASSERT_NULL(ranges_check(&ranges));
    TEST_ASSERT_NOT_NULL(ranges_take(&ranges, RANGES_LARGE, large));
    TEST_ASSERT_NULL(ranges_take(&ranges, RANGES_LARGE, large));
}

/* A gap of four pages, a kept page, and two pages at the end, behind which nothing is mapped. */
static void test_with_much_room_the_last_range_is_taken_only_if_no_other_fits(void)
{
    const uint64_t start = ranges.border, last = start + 5 * RANGES_PAGE;

    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&ranges, 32));
    ranges_map(&ranges, start, 7 * RANGES_PAGE, 0);
    TEST_ASSERT_NOT_NULL(ranges_take_at(&ranges, start + 4 * RANGES_PAGE, RANGES_PAGE));
    struct range *range = ranges_take(&ranges, RANGES_LARGE, 2 * RANGES_PAGE);
    TEST_ASSERT_EQUAL_UINT64(last, range->start); /* the best fit */
    ranges_give(&ranges, range, 0);
    ranges.roomy = true;
    range = ranges_take(&ranges, RANGES_LARGE, 2 * RANGES_PAGE);
    TEST_ASSERT_EQUAL_UINT64(start, range->start);
    TEST_ASSERT_NOT_NULL(ranges_take(&ranges, RANGES_LARGE, RANGES_PAGE));
    range = ranges_take(&ranges, RANGES_LARGE, 2 * RANGES_PAGE);
    TEST_ASSERT_EQUAL_UINT64(last, range->start);
    TEST_ASSERT_NULL(ranges_check(&ranges));
}

/* The same below the border, behind which large blocks lie. */
static void test_with_much_room_the_last_small_range_is_taken_only_if_no_other_fits(void)
{
    const uint64_t start = ranges.base, quarter = RANGES_PAGE / 4, last = start + 3 * quarter;

    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&ranges, 32));
    ranges_map(&ranges, ranges.border, RANGES_PAGE, 0);
    ranges_map(&ranges, start, RANGES_PAGE, 0);
    TEST_ASSERT_NOT_NULL(ranges_take_at(&ranges, start + 2 * quarter, quarter));
    ranges.roomy = true;
    for (uint64_t i = 0; i < 2; i++)
        TEST_ASSERT_EQUAL_UINT64(start + i * quarter, ranges_take(&ranges, RANGES_SMALL, quarter)->start);
    TEST_ASSERT_EQUAL_UINT64(last, ranges_take(&ranges, RANGES_SMALL, quarter)->start);
}

static void test_with_much_room_a_block_of_one_mib_is_small(void)
{
    TEST_ASSERT_EQUAL_INT(RANGES_LARGE, ranges_zone_for(&ranges, RANGES_LARGE_FROM));
    ranges.roomy = true;
    TEST_ASSERT_EQUAL_INT(RANGES_SMALL, ranges_zone_for(&ranges, RANGES_LARGE_FROM));
    TEST_ASSERT_EQUAL_INT(RANGES_LARGE, ranges_zone_for(&ranges, RANGES_LARGE_FROM + RANGES_UNIT));
}

/* High addresses stay free, so that they can be unmapped. */
static void test_the_lowest_of_equal_ranges_is_taken(void)
{
    static const int order[] = {1, 3, 0, 2};
    struct range *kept[4];
    uint64_t lowest;

    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&ranges, 32));
    ranges_map(&ranges, ranges.border, RANGES_PAGE, 0);
    for (int i = 0; i < 4; i++) {
        kept[i] = ranges_take(&ranges, RANGES_LARGE, 10 * RANGES_UNIT);
        TEST_ASSERT_NOT_NULL(ranges_take(&ranges, RANGES_LARGE, RANGES_UNIT));
    }
    lowest = kept[0]->start;
    for (int i = 0; i < 4; i++)
        ranges_give(&ranges, kept[order[i]], 0);
    for (uint64_t i = 0; i < 4; i++)
        TEST_ASSERT_EQUAL_UINT64(lowest + 11 * i * RANGES_UNIT,
                                 ranges_take(&ranges, RANGES_LARGE, 10 * RANGES_UNIT)->start);
}

static void expect_plan(enum ranges_zone zone, uint64_t pages, uint64_t start, uint64_t map_pages)
{
    struct ranges_plan plan;

    TEST_ASSERT_TRUE(ranges_plan(&ranges, zone, pages * RANGES_PAGE, &plan));
    TEST_ASSERT_EQUAL_UINT64(start, plan.start);
    TEST_ASSERT_EQUAL_UINT64(map_pages * RANGES_PAGE, plan.map_bytes);
}

static void test_a_plan_maps_as_little_as_possible_and_stays_in_its_zone(void)
{
    const uint64_t border = ranges.border;

    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&ranges, 32));
    ranges_map(&ranges, border - RANGES_PAGE, RANGES_PAGE, 0);
    expect_plan(RANGES_LARGE, 2, border, 2);
    ranges_unmap(&ranges, border - RANGES_PAGE, RANGES_PAGE);
    ranges_map(&ranges, border, RANGES_PAGE, 0);
    expect_plan(RANGES_SMALL, 2, BASE, 2);
    ranges_map(&ranges, border + RANGES_PAGE, 2 * RANGES_PAGE, 0);
    ranges_map(&ranges, border + 4 * RANGES_PAGE, RANGES_PAGE, 0);
    TEST_ASSERT_NOT_NULL(ranges_take_at(&ranges, border + 4 * RANGES_PAGE, RANGES_PAGE));
    expect_plan(RANGES_LARGE, 4, border, 1);                   /* around the first hole */
    expect_plan(RANGES_LARGE, 5, border + 5 * RANGES_PAGE, 5); /* which is too small for this */
}

static void test_an_aligned_range_is_taken_where_it_just_fits(void)
{
    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&ranges, 32));
    const uint64_t start = ranges.border;
    ranges_map(&ranges, start, RANGES_PAGE, 0);
    struct range *range = ranges_take_aligned(&ranges, RANGES_LARGE, RANGES_PAGE, RANGES_PAGE);
    TEST_ASSERT_NOT_NULL(range);
    TEST_ASSERT_EQUAL_UINT64(start, range->start);
    ranges_map(&ranges, start + RANGES_PAGE, RANGES_PAGE, 0);
    TEST_ASSERT_NOT_NULL(ranges_take_at(&ranges, start + RANGES_PAGE, RANGES_UNIT));
    const uint64_t half = RANGES_PAGE / 2;
    range = ranges_take_aligned(&ranges, RANGES_LARGE, half, half); /* behind what is not aligned */
    TEST_ASSERT_EQUAL_UINT64(start + RANGES_PAGE + half, range->start);
    TEST_ASSERT_NULL(ranges_take_aligned(&ranges, RANGES_LARGE, half - RANGES_UNIT, half));
    TEST_ASSERT_NULL(ranges_check(&ranges));
}

/* The list by time is what decides who is taken first: the remainder of a range keeps its place in it. */
static void test_the_longest_free_range_stays_the_oldest_when_part_of_it_is_taken(void)
{
    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&ranges, 16));
    const uint64_t start = ranges.border;

    ranges_map(&ranges, start, 4 * RANGES_PAGE, 0);
    ranges_map(&ranges, start + 5 * RANGES_PAGE, 8 * RANGES_PAGE, 0);
    TEST_ASSERT_EQUAL_UINT64(start, ranges.oldest->start);
    TEST_ASSERT_NOT_NULL(ranges_take(&ranges, RANGES_LARGE, RANGES_PAGE));
    TEST_ASSERT_EQUAL_UINT64(start + RANGES_PAGE, ranges.oldest->start);
    ranges_unmap(&ranges, start + 2 * RANGES_PAGE, RANGES_PAGE);
    TEST_ASSERT_TRUE(ranges.oldest->start < start + 4 * RANGES_PAGE);
    ranges_unmap(&ranges, start + 7 * RANGES_PAGE, RANGES_PAGE); /* both parts stay younger */
    TEST_ASSERT_TRUE(ranges.oldest->newer->start < start + 4 * RANGES_PAGE);
    TEST_ASSERT_TRUE(ranges.oldest->start < start + 4 * RANGES_PAGE);
    TEST_ASSERT_NULL(ranges_check(&ranges));
}

/* An address far inside a large range is found as quickly as one at its beginning: over many pages without a
 * hint. */
static void test_an_address_inside_a_range_of_terabytes_is_found(void)
{
    const uint64_t span = UINT64_C(1) << 43;
    struct ranges wide;

    TEST_ASSERT_EQUAL_INT(0, ranges_init(&wide, BASE, span));
    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&wide, 64));
    const uint64_t start = wide.border + 70 * RANGES_PAGE, end = BASE + span - 5000 * RANGES_PAGE;
    ranges_map(&wide, start, RANGES_PAGE, 0);
    ranges_map(&wide, end, RANGES_PAGE, 0);
    struct range *hole = ranges_at(&wide, start + RANGES_PAGE);
    for (uint64_t step = RANGES_UNIT; start + RANGES_PAGE + step < end; step = step * 3 + RANGES_UNIT)
        TEST_ASSERT_EQUAL_PTR(hole, ranges_at(&wide, start + RANGES_PAGE + step));
    TEST_ASSERT_EQUAL_PTR(hole, ranges_at(&wide, end - 1));
    TEST_ASSERT_EQUAL_UINT64(end, ranges_at(&wide, end + 1)->start);
    ranges_unmap(&wide, start, RANGES_PAGE);
    TEST_ASSERT_EQUAL_UINT64(wide.border, ranges_at(&wide, end - 1)->start);
    TEST_ASSERT_EQUAL_UINT64(BASE, ranges_at(&wide, wide.border - 1)->start);
    TEST_ASSERT_NULL(ranges_check(&wide));
    ranges_destroy(&wide);
}

static void test_a_range_that_is_taken_has_no_pins(void)
{
    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&ranges, 8));
    ranges_map(&ranges, BASE, RANGES_PAGE, 0);
    struct range *range = ranges_take_at(&ranges, BASE, RANGES_PAGE);
    range->mark.pins = 2;
    ranges_give(&ranges, range, 0);
    TEST_ASSERT_EQUAL_INT(0, ranges_take_at(&ranges, BASE, RANGES_PAGE)->mark.pins);
}

/* Chunks that leave their places, and memory that goes back, make no difference to what it says. */
static void test_unmoved_is_what_best_fit_maps_without_moves(void)
{
    struct ranges unmoved;
    struct range *blocks[3];

    TEST_ASSERT_EQUAL_INT(0, ranges_init(&unmoved, BASE, SPAN));
    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&ranges, 32));
    ranges.unmoved = &unmoved;
    ranges_map(&ranges, ranges.border, 8 * RANGES_PAGE, 0);
    for (unsigned i = 0; i < 3; i++)
        blocks[i] = ranges_take(&ranges, RANGES_LARGE, (1 + i) * RANGES_PAGE);
    TEST_ASSERT_EQUAL_UINT64(7 * RANGES_PAGE, ranges_unmoved(&ranges, RANGES_LARGE, RANGES_PAGE));
    const uint64_t start = blocks[1]->start;
    ranges_give(&ranges, blocks[1], 0);
    TEST_ASSERT_EQUAL_UINT64(6 * RANGES_PAGE, ranges_unmoved(&ranges, RANGES_LARGE, 2 * RANGES_PAGE));
    ranges_retire(&ranges, start, RANGES_PAGE);
    ranges_unmap(&ranges, start + RANGES_PAGE, RANGES_PAGE);
    TEST_ASSERT_EQUAL_UINT64(6 * RANGES_PAGE, ranges_unmoved(&ranges, RANGES_LARGE, 2 * RANGES_PAGE));
    TEST_ASSERT_EQUAL_UINT64(9 * RANGES_PAGE, ranges_unmoved(&ranges, RANGES_LARGE, 3 * RANGES_PAGE));
    ranges_give(&ranges, blocks[2], 0);
    ranges_give(&ranges, blocks[0], 0);
    TEST_ASSERT_EQUAL_UINT64(6 * RANGES_PAGE, ranges_unmoved(&ranges, RANGES_LARGE, 6 * RANGES_PAGE));
    TEST_ASSERT_EQUAL_UINT64(0, unmoved.live_bytes);
    TEST_ASSERT_NULL(ranges_check(&unmoved));
    ranges_destroy(&unmoved);
}

static void test_an_aligned_block_is_aligned_without_moves_too(void)
{
    struct ranges unmoved;

    TEST_ASSERT_EQUAL_INT(0, ranges_init(&unmoved, BASE, SPAN));
    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&ranges, 32));
    ranges.unmoved = &unmoved;
    ranges_map(&ranges, ranges.border, 4 * RANGES_PAGE, 0);
    TEST_ASSERT_NOT_NULL(ranges_take(&ranges, RANGES_LARGE, RANGES_UNIT));
    for (unsigned i = 0; i < 2; i++) { /* the first behind what is mapped, the second in it */
        struct range *range = ranges_take_aligned(&ranges, RANGES_LARGE, RANGES_PAGE / 4, RANGES_PAGE / 2);

        TEST_ASSERT_EQUAL_UINT64(ranges.border + (1 + i) * RANGES_PAGE / 2, range->start);
        TEST_ASSERT_EQUAL_UINT64(range->start, range->twin->start);
    }
    TEST_ASSERT_NULL(ranges_check(&unmoved));
    ranges_destroy(&unmoved);
}

/* A new slab is begun while the one before has nodes that were never used. */
static void test_each_spare_node_lies_in_a_slab(void)
{
    const struct ranges_slab *const first = ranges.slabs;

    while (ranges.spares > 2)
        range_new(&ranges, BASE, RANGES_UNIT, RANGE_HOLE);
    TEST_ASSERT_EQUAL_INT(0, ranges_prepare(&ranges, 3));
    TEST_ASSERT_TRUE(ranges.slabs != first);
    while (ranges.spares > 0) {
        const struct range *node = range_new(&ranges, BASE, RANGES_UNIT, RANGE_HOLE);

        TEST_ASSERT_TRUE((uintptr_t)node - (uintptr_t)first <= SLAB_BYTES - sizeof(*node) ||
                         (uintptr_t)node - (uintptr_t)ranges.slabs <= SLAB_BYTES - sizeof(*node));
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_ranges_agree_with_a_byte_map);
    RUN_TEST(test_each_spare_node_lies_in_a_slab);
    RUN_TEST(test_an_address_outside_belongs_to_no_range);
    RUN_TEST(test_an_address_inside_a_range_of_terabytes_is_found);
    RUN_TEST(test_a_range_that_fits_is_found_behind_many_that_do_not);
    RUN_TEST(test_the_lowest_of_equal_ranges_is_taken);
    RUN_TEST(test_a_plan_maps_as_little_as_possible_and_stays_in_its_zone);
    RUN_TEST(test_an_aligned_range_is_taken_where_it_just_fits);
    RUN_TEST(test_the_longest_free_range_stays_the_oldest_when_part_of_it_is_taken);
    RUN_TEST(test_a_range_that_is_taken_has_no_pins);
    RUN_TEST(test_with_much_room_the_last_range_is_taken_only_if_no_other_fits);
    RUN_TEST(test_with_much_room_the_last_small_range_is_taken_only_if_no_other_fits);
    RUN_TEST(test_with_much_room_a_block_of_one_mib_is_small);
    RUN_TEST(test_unmoved_is_what_best_fit_maps_without_moves);
    RUN_TEST(test_an_aligned_block_is_aligned_without_moves_too);
    return UNITY_END();
}
