/* nvtx and tags: which range of a thread is its tag, what level a push or pop returns, and how many names
 * there can be. NVTX itself is in tests/integration/nvtx_tags.c. Tags are for good: each test has names of
 * its own. */
#include "interpose/see/nvtx.h"
#include "interpose/see/tags.h"

#include <stdio.h>
#include <string.h>
#include <unity.h>

static const int one, two; /* domains */

void setUp(void) {}

void tearDown(void)
{
    TEST_ASSERT_EQUAL_UINT16(0, tags_current);
}

static void test_levels_are_counted_by_domain(void)
{
    const uint16_t a = tags_of_range("a"), b = tags_of_range("b");

    TEST_ASSERT_EQUAL_INT(0, nvtx_push(&one, a));
    TEST_ASSERT_EQUAL_INT(0, nvtx_push(&two, b));
    TEST_ASSERT_EQUAL_INT(1, nvtx_push(&one, 0)); /* has no name: b stays the tag */
    TEST_ASSERT_EQUAL_UINT16(b, tags_current);
    TEST_ASSERT_EQUAL_INT(1, nvtx_pop(&one));
    TEST_ASSERT_EQUAL_INT(0, nvtx_pop(&one)); /* not the innermost */
    TEST_ASSERT_EQUAL_UINT16(b, tags_current);
    TEST_ASSERT_EQUAL_INT(-1, nvtx_pop(&one));
    TEST_ASSERT_EQUAL_UINT16(b, tags_current);
    TEST_ASSERT_EQUAL_INT(0, nvtx_pop(&two));
}

static void test_ranges_that_find_no_room_are_counted(void)
{
    const uint16_t deep = tags_of_range("deep"), deeper = tags_of_range("deeper");

    for (int i = 0; i < NVTX_DEPTH; i++)
        TEST_ASSERT_EQUAL_INT(i, nvtx_push(NULL, deep));
    TEST_ASSERT_EQUAL_INT(NVTX_DEPTH, nvtx_push(NULL, deeper));
    TEST_ASSERT_EQUAL_INT(NVTX_DEPTH + 1, nvtx_push(NULL, deeper));
    TEST_ASSERT_EQUAL_UINT16(deep, tags_current);
    for (int i = NVTX_DEPTH + 2; i-- > 0;)
        TEST_ASSERT_EQUAL_INT(i, nvtx_pop(NULL));
    TEST_ASSERT_EQUAL_INT(-1, nvtx_pop(NULL));
}

static void test_the_programs_own_tag_comes_first(void)
{
    const uint16_t range = tags_of_range("range");

    TEST_ASSERT_TRUE(tags_set("own"));
    const uint16_t own = tags_current;
    nvtx_push(NULL, range);
    TEST_ASSERT_EQUAL_UINT16(own, tags_current);
    TEST_ASSERT_TRUE(tags_set(NULL));
    TEST_ASSERT_EQUAL_UINT16(range, tags_current);
    nvtx_pop(NULL);
}

static void test_names_count_as_far_as_they_fit(void)
{
    char name[2 * TAGS_NAME];

    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    const uint16_t tag = tags_of_range(name);
    TEST_ASSERT_NOT_EQUAL(0, tag);
    name[TAGS_NAME] = 'y';
    TEST_ASSERT_EQUAL_UINT16(tag, tags_of_range(name));
    name[TAGS_NAME - 2] = 'y';
    TEST_ASSERT_NOT_EQUAL(tag, tags_of_range(name));
}

static void test_the_peak_of_a_tag_stays(void)
{
    const uint16_t tag = tags_of_range("peak");
    uint64_t live, peak;

    tags_add(tag, 300);
    tags_remove(tag, 300);
    tags_add(tag, 100);
    TEST_ASSERT_TRUE(tags_read("peak", &live, &peak));
    TEST_ASSERT_EQUAL_UINT64(100, live);
    TEST_ASSERT_EQUAL_UINT64(300, peak);
    TEST_ASSERT_FALSE(tags_read("no such tag", &live, &peak));
}

/* The last one: it takes all names. */
static void test_ranges_leave_names_to_the_program(void)
{
    char name[TAGS_NAME];
    int made = 0;

    for (int i = 0; i < TAGS_MAX; i++) {
        snprintf(name, sizeof(name), "range %d", i);
        made += tags_of_range(name) != 0;
    }
    TEST_ASSERT_LESS_OR_EQUAL_INT(TAGS_RANGES, made);
    TEST_ASSERT_TRUE(tags_set("the program's"));
    for (made = 0; snprintf(name, sizeof(name), "own %d", made) && tags_set(name); made++)
        TEST_ASSERT_LESS_THAN_UINT16(TAGS_MAX, tags_current);
    TEST_ASSERT_EQUAL_UINT16_MESSAGE(0, tags_current, "what finds no room has no tag");
    TEST_ASSERT_EQUAL_STRING("", tags_name(TAGS_MAX));
    snprintf(name, sizeof(name), "own %d", made - 1);
    TEST_ASSERT_EQUAL_STRING_MESSAGE(name, tags_name(TAGS_MAX - 1), "all places are used");
    TEST_ASSERT_TRUE(tags_set(""));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_levels_are_counted_by_domain);
    RUN_TEST(test_ranges_that_find_no_room_are_counted);
    RUN_TEST(test_the_programs_own_tag_comes_first);
    RUN_TEST(test_names_count_as_far_as_they_fit);
    RUN_TEST(test_the_peak_of_a_tag_stays);
    RUN_TEST(test_ranges_leave_names_to_the_program);
    return UNITY_END();
}
