/* The figures of a fleet's report follow from what its members did, and a line of progress is as long as it
 * may be, whatever is in it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/fleet/fleet_report.h"
#include "harness/fleet/fleet_show.h"
#include "unity.h"

#define SECOND UINT64_C(1000000000)

static char *const argv[] = {NULL};
static struct fleet_job job = {.name = "train --model=mlp", .argv = argv, .cap = "8G"};
static struct fleet_member members[3];

void setUp(void)
{
    for (size_t i = 0; i < 3; i++) {
        fleet_member_prepare(&members[i], &job);
        members[i].end = FLEET_OK;
    }
}

void tearDown(void) {}

static void lived(struct fleet_member *member, uint64_t from_s, uint64_t to_s, const char *result)
{
    member->started_ns = from_s * SECOND;
    member->ended_ns = to_s * SECOND;
    snprintf(member->result, sizeof(member->result), "%s", result);
}

static void test_totals_are_over_the_time_that_all_took(void)
{
    lived(&members[0], 10, 14, "steps=100 step_ms=20");
    lived(&members[1], 11, 20, "steps=300 step_ms=25");
    lived(&members[2], 12, 15, "steps=600 step_ms=1");
    members[2].end = FLEET_KILLED;
    members[0].peak_memory = members[1].peak_memory = 1000;
    const struct fleet_totals totals = fleet_totals(members, 3);

    TEST_ASSERT_EQUAL_size_t(2, totals.ok);
    TEST_ASSERT_EQUAL_UINT64(1000, totals.steps);
    TEST_ASSERT_TRUE(totals.wall_s == 10);
    TEST_ASSERT_TRUE(totals.steps_per_s == 100);
    TEST_ASSERT_TRUE_MESSAGE(totals.training_steps_per_s == 50 + 40, "one that was killed has no rate");
    TEST_ASSERT_EQUAL_UINT64(2000, totals.peak_memory);
}

static void test_steps_before_a_resume_do_not_count(void)
{
    static char train[] = "./train";
    static char *const trains[] = {train, NULL};
    static const struct fleet_job of_train = {.name = "train", .argv = trains};

    lived(&members[0], 0, 10, "steps=210 step_ms=20 from=200");
    lived(&members[1], 0, 10, "steps=200 step_ms=0 from=200");
    members[2].first_step = 101;
    members[2].progress.step = 103;
    TEST_ASSERT_EQUAL_UINT64(10, fleet_member_steps(&members[0]));
    TEST_ASSERT_EQUAL_UINT64(0, fleet_member_steps(&members[1]));
    TEST_ASSERT_EQUAL_UINT64(103, fleet_member_steps(&members[2]));
    members[2].job = &of_train;
    TEST_ASSERT_EQUAL_UINT64(3, fleet_member_steps(&members[2]));
}

static void test_what_was_not_started_counts_for_nothing(void)
{
    members[0].end = members[1].end = members[2].end = FLEET_WAITING;
    const struct fleet_totals totals = fleet_totals(members, 3);

    TEST_ASSERT_EQUAL_size_t(0, totals.ok);
    TEST_ASSERT_TRUE(totals.wall_s == 0 && totals.steps_per_s == 0 && totals.training_steps_per_s == 0);
}

static void test_a_steps_time_is_what_was_said_or_what_the_clock_shows(void)
{
    snprintf(members[0].result, sizeof(members[0].result), "step_ms=12.5");
    TEST_ASSERT_TRUE(fleet_member_step_ms(&members[0]) == 12.5);
    members[1].first_ns = SECOND;
    members[1].first_step = 10;
    members[1].last_ns = 3 * SECOND;
    members[1].progress.step = 30;
    TEST_ASSERT_TRUE(fleet_member_step_ms(&members[1]) == 100);
    TEST_ASSERT_TRUE(isnan(fleet_member_step_ms(&members[2])));
}

static void test_a_line_of_progress_keeps_to_its_width(void)
{
    char line[64];

    members[0].progress = (struct fleet_progress){UINT64_MAX / 20, UINT64_MAX, 1e300};
    members[0].memory = UINT64_MAX;
    memset(line, 'x', sizeof(line));
    fleet_show_line(&members[0], 255, line, 40);
    TEST_ASSERT_EQUAL_size_t(39, strlen(line));
    TEST_ASSERT_EQUAL_CHAR('x', line[40]);
}

/* As a user's window is: nothing of it is cut, and there is room for the time left. */
static void test_a_line_of_progress_fits_80_columns_with_the_time_left(void)
{
    char line[256];

    members[0].end = FLEET_RUNNING;
    members[0].progress = (struct fleet_progress){.step = 1240, .steps = 50000, .loss = 2.1134};
    members[0].first_ns = SECOND;
    members[0].first_step = 240;
    members[0].last_ns = 18 * SECOND;
    members[0].memory = UINT64_C(9800) << 20;
    TEST_ASSERT_TRUE(fleet_member_seconds_left(&members[0]) == 17.0 / 1000 * 48760);
    fleet_show_line(&members[0], 12, line, 80);
    TEST_ASSERT_EQUAL_STRING(" 12 train --model=mlp   1240/50000  17.0 ms   2.113  9.57 GiB  13 m 49 s left",
                             line);
    fleet_show_line(&members[0], 12, line, 120);
    TEST_ASSERT_NOT_NULL(strstr(line, "[....................]"));
    members[0].end = FLEET_OK;
    TEST_ASSERT_TRUE(isnan(fleet_member_seconds_left(&members[0])));
    fleet_show_line(&members[0], 12, line, 80);
    TEST_ASSERT_NOT_NULL(strstr(line, "  ok"));
}

static void write_report(const struct fleet_member *alone, bool keys, char *text, size_t size)
{
    FILE *out = fmemopen(text, size, "w");

    TEST_ASSERT_NOT_NULL(out);
    fleet_report(out, members, alone, 3, keys);
    fclose(out);
}

static void test_the_report_fits_80_columns_and_has_keys_for_programs_only(void)
{
    char text[8192];

    lived(&members[0], 10, 14, "steps=100000 step_ms=20");
    lived(&members[1], 11, 20, "steps=300 step_ms=2500.25");
    lived(&members[2], 12, 15, "steps=600 step_ms=1");
    members[0].peak_memory = UINT64_C(130) << 30;
    members[1].end = FLEET_KILLED;
    members[1].code = 9;
    for (int alone = 0; alone < 2; alone++) {
        write_report(alone ? members : NULL, false, text, sizeof(text));
        TEST_ASSERT_NULL_MESSAGE(strstr(text, "member="), text);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "2 of 3 ended well: 100900 steps in 10.0 s"), text);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "member 1: killed by signal 9 (Killed)\n"), text);
        for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
            TEST_ASSERT_TRUE_MESSAGE(strcspn(line, "\n") <= 80, line);
        const char *row = strchr(text, '\n') + 1; /* its columns end where the headings do */
        TEST_ASSERT_EQUAL_INT(strstr(text, " cap ") + 4 - text, strstr(row, " 8G ") + 3 - row);
    }
    write_report(NULL, true, text, sizeof(text));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\nmember=2 "), text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\nmembers=3 ok=2 steps=100900 "), text);
}

static void test_the_cap_is_the_members_own_where_it_has_one(void)
{
    struct fleet_job limited = {.name = "train", .argv = argv, .cap = "8G", .each = "3G"};
    char text[8192];

    members[1].job = &limited;
    write_report(NULL, true, text, sizeof(text));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\n  1 train                  3G "), text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\nmember=0 name=train_--model=mlp cap=8G "), text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\nmember=1 name=train cap=3G "), text);
}

static void expect_bytes(const char *expected, uint64_t bytes)
{
    char text[32];

    fleet_show_bytes(bytes, text, sizeof(text));
    TEST_ASSERT_EQUAL_STRING(expected, text);
}

static void test_bytes_are_written_as_people_do(void)
{
    expect_bytes("-", 0);
    expect_bytes("1.5 MiB", 3 << 19);
    expect_bytes("2.00 GiB", UINT64_C(2) << 30);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_totals_are_over_the_time_that_all_took);
    RUN_TEST(test_steps_before_a_resume_do_not_count);
    RUN_TEST(test_what_was_not_started_counts_for_nothing);
    RUN_TEST(test_a_steps_time_is_what_was_said_or_what_the_clock_shows);
    RUN_TEST(test_a_line_of_progress_keeps_to_its_width);
    RUN_TEST(test_a_line_of_progress_fits_80_columns_with_the_time_left);
    RUN_TEST(test_the_report_fits_80_columns_and_has_keys_for_programs_only);
    RUN_TEST(test_the_cap_is_the_members_own_where_it_has_one);
    RUN_TEST(test_bytes_are_written_as_people_do);
    return UNITY_END();
}
