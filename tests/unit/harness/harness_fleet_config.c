/* Which trainings a fleet starts, from arguments and from a file, and what is refused before anything starts.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/fleet/fleet_config.h"
#include "unity.h"

static struct fleet_plan plan;

void setUp(void)
{
    memset(&plan, 0, sizeof(plan));
}

void tearDown(void)
{
    fleet_plan_free(&plan);
}

enum { ARGUMENTS = 16 };

/* The parser writes into argv, as main's may be. */
static int parse(const char *const *texts)
{
    fleet_plan_free(&plan);

    static char copies[ARGUMENTS][64];
    static char *argv[ARGUMENTS + 1];
    int argc = 0;

    for (; texts[argc] && argc < ARGUMENTS; argc++) {
        strncpy(copies[argc], texts[argc], sizeof(copies[argc]) - 1);
        argv[argc] = copies[argc];
    }
    argv[argc] = NULL;
    return fleet_plan_parse(&plan, argc, argv);
}
#define PARSE(...) parse((const char *const[]){"fleet", __VA_ARGS__, NULL})

static void test_each_command_is_started_as_often_as_asked(void)
{
    TEST_ASSERT_EQUAL_INT(
        0, PARSE("--each=8G", "--processes=2", "--", "train", "--steps=5", "--", "./other", "x"));
    TEST_ASSERT_EQUAL_size_t(4, plan.count);
    TEST_ASSERT_EQUAL_STRING("train", plan.jobs[1].argv[0]);
    TEST_ASSERT_EQUAL_STRING("--steps=5", plan.jobs[1].argv[1]);
    TEST_ASSERT_NULL(plan.jobs[1].argv[2]);
    TEST_ASSERT_EQUAL_STRING("./other", plan.jobs[3].argv[0]);
    TEST_ASSERT_EQUAL_STRING("8G", plan.jobs[3].cap);
    TEST_ASSERT_EQUAL_STRING("train --steps=5", plan.jobs[0].name);
}

static void test_native_means_no_cap(void)
{
    TEST_ASSERT_EQUAL_INT(0, PARSE("--each=8G", "--native", "--", "train"));
    TEST_ASSERT_NULL(plan.jobs[0].cap);
}

static void test_each_and_native_are_for_a_file_before_them_too(void)
{
    const int fd = memfd_create("config", MFD_CLOEXEC);
    char config[64];

    TEST_ASSERT_TRUE(dprintf(fd, "train\nmax=1G train\n") > 0);
    snprintf(config, sizeof(config), "--config=/proc/self/fd/%d", fd);
    TEST_ASSERT_EQUAL_INT(0, PARSE(config, "--each=8G"));
    TEST_ASSERT_EQUAL_STRING("8G", plan.jobs[0].cap);
    TEST_ASSERT_EQUAL_STRING("1G", plan.jobs[1].cap);
    TEST_ASSERT_EQUAL_INT(0, PARSE(config, "--native"));
    TEST_ASSERT_NULL(plan.jobs[1].cap);
    close(fd);
}

static void test_with_a_job_all_share_its_max_and_keep_their_own_cap_as_each(void)
{
    TEST_ASSERT_EQUAL_INT(
        0, PARSE("--each=2G", "--job=8G", "--wait=30s", "--processes=2", "--", "train", "--steps=5"));
    TEST_ASSERT_EQUAL_size_t(2, plan.count);
    for (int i = 0; i < 2; i++) {
        TEST_ASSERT_EQUAL_STRING("8G", plan.jobs[i].cap);
        TEST_ASSERT_EQUAL_STRING("2G", plan.jobs[i].each);
        TEST_ASSERT_EQUAL_PTR(plan.budget.words, plan.jobs[i].run);
    }
    TEST_ASSERT_EQUAL_UINT64(UINT64_C(8) << 30, fleet_plan_caps(&plan, UINT64_C(16) << 30));
    TEST_ASSERT_EQUAL_INT(0, PARSE("--job=8G", "--", "train"));
    TEST_ASSERT_NULL(plan.jobs[0].each);
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--job=8G", "--native", "--", "train"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--wait=30s", "--", "train"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--job=lots", "--", "train"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--job=8G", "--wait=soon", "--", "train"));
}

static void test_bad_arguments_are_refused(void)
{
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--processes=0", "--", "train"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--processes=257", "--", "train"));
    TEST_ASSERT_EQUAL_STRING("--processes=257: expected N from 1 to 256", plan.error);
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--processes=1x", "--", "train"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--each=lots", "--", "train"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--each", "--", "train"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--native=yes", "--", "train"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--baseline=both", "--", "train"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--timeout=-1", "--", "train"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--what", "--", "train"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("train"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--each=8G"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--", "train", "--"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, PARSE("--config=/no/such/file"));
}

static void test_a_file_has_a_command_on_each_line(void)
{
    TEST_ASSERT_EQUAL_INT(0, fleet_plan_read(&plan,
                                             "# two of these\n2x train --steps=5\n\n"
                                             "  max=1G train 'a b' \"c#d\"  # a comment\nnative train",
                                             "file"));
    TEST_ASSERT_EQUAL_size_t(4, plan.count);
    TEST_ASSERT_NULL(plan.jobs[1].cap);
    TEST_ASSERT_EQUAL_STRING("1G", plan.jobs[2].cap);
    TEST_ASSERT_EQUAL_STRING("a b", plan.jobs[2].argv[1]);
    TEST_ASSERT_EQUAL_STRING("c#d", plan.jobs[2].argv[2]);
    TEST_ASSERT_NULL(plan.jobs[2].argv[3]);
    TEST_ASSERT_TRUE(plan.jobs[3].native);
}

static void test_bad_lines_are_refused(void)
{
    TEST_ASSERT_EQUAL_INT(-EINVAL, fleet_plan_read(&plan, "train 'open\n", "file"));
    TEST_ASSERT_EQUAL_STRING("file:1: a quote is not closed", plan.error);
    TEST_ASSERT_EQUAL_INT(-EINVAL, fleet_plan_read(&plan, "max=some train\n", "file"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, fleet_plan_read(&plan, "200x train\n200x train\n", "file"));
    TEST_ASSERT_EQUAL_STRING("file:2: more than 256 processes", plan.error);
}

static void test_a_count_or_cap_that_starts_nothing_is_refused(void)
{
    TEST_ASSERT_EQUAL_INT(-EINVAL, fleet_plan_read(&plan, "train\n257x train\n", "file"));
    TEST_ASSERT_EQUAL_STRING("file:2: a count is expected to be from 1x to 256x", plan.error);
    TEST_ASSERT_EQUAL_INT(-EINVAL, fleet_plan_read(&plan, "0x train\n", "file"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, fleet_plan_read(&plan, "99999999999999999999x train\n", "file"));
    TEST_ASSERT_EQUAL_INT(-EINVAL, fleet_plan_read(&plan, "max=1G # and then?\n", "file"));
    TEST_ASSERT_EQUAL_STRING("file:1: a program is missing", plan.error);
    TEST_ASSERT_EQUAL_INT(-EINVAL, fleet_plan_read(&plan, "2x\ntrain\n", "file"));
    TEST_ASSERT_EQUAL_INT(0, fleet_plan_read(&plan, "./300x 300x\n", "file"));
    TEST_ASSERT_EQUAL_STRING("300x", plan.jobs[plan.count - 1].argv[1]);
}

static void test_a_name_cannot_steer_a_terminal(void)
{
    TEST_ASSERT_EQUAL_INT(0, fleet_plan_read(&plan, "train \033[2J\n", "file"));
    TEST_ASSERT_EQUAL_STRING("train ?[2J", plan.jobs[0].name);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_each_command_is_started_as_often_as_asked);
    RUN_TEST(test_native_means_no_cap);
    RUN_TEST(test_each_and_native_are_for_a_file_before_them_too);
    RUN_TEST(test_with_a_job_all_share_its_max_and_keep_their_own_cap_as_each);
    RUN_TEST(test_bad_arguments_are_refused);
    RUN_TEST(test_a_file_has_a_command_on_each_line);
    RUN_TEST(test_bad_lines_are_refused);
    RUN_TEST(test_a_count_or_cap_that_starts_nothing_is_refused);
    RUN_TEST(test_a_name_cannot_steer_a_terminal);
    return UNITY_END();
}
