/* What a fleet reads of its members: lines of a bounded length, progress and results out of them, and nothing
 * that could hurt a terminal, whatever the member says. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/fleet/fleet_line.h"
#include "unity.h"

void setUp(void) {}

void tearDown(void) {}

struct heard {
    unsigned count;
    char last[FLEET_LINE_MAX];
};

static void hear(const char *line, void *arg)
{
    struct heard *heard = arg;

    heard->count++;
    snprintf(heard->last, sizeof(heard->last), "%s", line);
}

static void feed(struct fleet_lines *lines, const char *text, struct heard *heard)
{
    fleet_lines_feed(lines, text, strlen(text), hear, heard);
}

static void test_a_line_arrives_whole_however_it_is_cut(void)
{
    struct fleet_lines lines = {0};
    struct heard heard = {0};

    feed(&lines, "step 1", &heard);
    feed(&lines, "/2 lo", &heard);
    TEST_ASSERT_EQUAL_UINT(0, heard.count);
    feed(&lines, "ss 3\nrest", &heard);
    TEST_ASSERT_EQUAL_UINT(1, heard.count);
    TEST_ASSERT_EQUAL_STRING("step 1/2 loss 3", heard.last);
    fleet_lines_end(&lines, hear, &heard);
    TEST_ASSERT_EQUAL_STRING("rest", heard.last);
}

static void test_a_line_without_end_is_cut_and_the_next_one_is_whole(void)
{
    struct fleet_lines lines = {0};
    struct heard heard = {0};

    for (int i = 0; i < 10 * FLEET_LINE_MAX; i++)
        feed(&lines, "x", &heard);
    TEST_ASSERT_EQUAL_UINT(0, heard.count);
    feed(&lines, "\n", &heard);
    TEST_ASSERT_EQUAL_UINT(FLEET_LINE_MAX - 1, strlen(heard.last));
    feed(&lines, "next\n", &heard);
    TEST_ASSERT_EQUAL_STRING("next", heard.last);
}

static void test_bytes_that_steer_a_terminal_do_not_pass(void)
{
    struct fleet_lines lines = {0};
    struct heard heard = {0};

    feed(&lines, "\033[2Ja\tb\377\001\n", &heard);
    TEST_ASSERT_EQUAL_STRING("?[2Ja b??", heard.last);
    fleet_lines_feed(&lines, "a\0b\n", 4, hear, &heard);
    TEST_ASSERT_EQUAL_STRING("a?b", heard.last);
}

static void test_progress_is_read_from_the_lines_of_train(void)
{
    struct fleet_progress progress = {.loss = NAN};

    TEST_ASSERT_TRUE(fleet_line_progress("cnn step 12/100 loss 1.2345 12.3 ms 456.7 MiB", &progress));
    TEST_ASSERT_EQUAL_UINT64(12, progress.step);
    TEST_ASSERT_EQUAL_UINT64(100, progress.steps);
    TEST_ASSERT_TRUE(progress.loss > 1.2344 && progress.loss < 1.2346);
    TEST_ASSERT_TRUE(fleet_line_progress("model=cnn step=12/100 loss=1.5 lr=0.1 ms=3.2", &progress));
    TEST_ASSERT_TRUE(progress.step == 12 && progress.steps == 100 && progress.loss == 1.5);
    TEST_ASSERT_TRUE(fleet_line_progress("step 13/100 loss=2", &progress));
    TEST_ASSERT_TRUE(progress.loss == 2);
    TEST_ASSERT_TRUE(fleet_line_progress("step 14/100 loss nan", &progress));
    TEST_ASSERT_TRUE_MESSAGE(progress.loss == 2, "a loss that is no number must not replace one");
}

static void test_what_is_not_progress_changes_nothing(void)
{
    static const char *const lines[] = {
        "",          "step",     "step 1",    "step 1/",
        "step 5/4",  "step 0/0", "step -1/4", "step 99999999999999999999/999999999999999999999",
        "steps 1/2", "loss 3"};

    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        struct fleet_progress progress = {.step = 7, .steps = 9, .loss = 1};

        TEST_ASSERT_FALSE_MESSAGE(fleet_line_progress(lines[i], &progress), lines[i]);
        TEST_ASSERT_EQUAL_UINT64(7, progress.step);
        TEST_ASSERT_TRUE(progress.loss == 1);
    }
}

static void test_values_are_found_by_whole_keys(void)
{
    const char *line = "my_steps=4 steps=12 step_ms=3.5 bad=0x10 worse=nan";

    TEST_ASSERT_TRUE(fleet_line_number(line, "steps", 0) == 12);
    TEST_ASSERT_TRUE(fleet_line_number(line, "step_ms", 0) == 3.5);
    TEST_ASSERT_TRUE(fleet_line_number(line, "step", -1) == -1);
    TEST_ASSERT_TRUE(fleet_line_number(line, "bad", -1) == -1);
    TEST_ASSERT_TRUE(fleet_line_number(line, "worse", -1) == -1);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_line_arrives_whole_however_it_is_cut);
    RUN_TEST(test_a_line_without_end_is_cut_and_the_next_one_is_whole);
    RUN_TEST(test_bytes_that_steer_a_terminal_do_not_pass);
    RUN_TEST(test_progress_is_read_from_the_lines_of_train);
    RUN_TEST(test_what_is_not_progress_changes_nothing);
    RUN_TEST(test_values_are_found_by_whole_keys);
    return UNITY_END();
}
