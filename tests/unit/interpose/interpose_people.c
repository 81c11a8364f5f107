/* people: whether the process is a user's or in a group, by name or number, from /etc/passwd and /etc/group.
 * Both files, and who runs the test, are the test's own. */
#include "interpose/settings/people.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

static struct fake {
    uid_t uid;
    gid_t gid, egid, groups[NGROUPS_MAX];
    int group_count;
    bool no_files;
    const char *before; /* stands before the groups */
    int open;           /* files */
} fake;

static char passwd[] = "root:x:0:0:root:/root:/bin/sh\n"
                       "ada:x:1000:1000::/home/ada:/bin/sh\n"
                       "bob:x:1001:1001::/home/bob:/bin/sh\n"
                       "5:x:1005:1005::/home/5:/bin/sh\n";
static char group[] = "root:x:0:\n"
                      "render:x:107:ada,bob\n"
                      "video:x:44:ada\n";

FILE *__wrap_fopen(const char *path, const char *how);
FILE *__wrap_fopen(const char *path, const char *how)
{
    if (fake.no_files)
        return NULL;
    fake.open++;
    if (!strcmp(path, "/etc/passwd"))
        return fmemopen(passwd, strlen(passwd), "r");
    TEST_ASSERT_EQUAL_STRING("/etc/group", path);
    (void)how;
    static char all[50000];
    snprintf(all, sizeof(all), "%s%s", fake.before ? fake.before : "", group);
    return fmemopen(all, strlen(all), "r");
}

int __real_fclose(FILE *file);
int __wrap_fclose(FILE *file);
int __wrap_fclose(FILE *file)
{
    fake.open--;
    return __real_fclose(file);
}

uid_t __wrap_getuid(void);
uid_t __wrap_getuid(void)
{
    return fake.uid;
}

gid_t __wrap_getgid(void);
gid_t __wrap_getgid(void)
{
    return fake.gid;
}

gid_t __wrap_getegid(void);
gid_t __wrap_getegid(void)
{
    return fake.egid;
}

int __wrap_getgroups(int size, gid_t list[]);
int __wrap_getgroups(int size, gid_t list[])
{
    if (fake.group_count < 0 || size < fake.group_count) {
        errno = fake.group_count < 0 ? EPERM : EINVAL;
        return -1;
    }
    for (int i = 0; i < fake.group_count; i++)
        list[i] = fake.groups[i];
    return fake.group_count;
}

void setUp(void)
{
    fake = (struct fake){.uid = 1000, .gid = 1, .egid = 1};
}

void tearDown(void)
{
    TEST_ASSERT_EQUAL_INT(0, fake.open);
}

static void test_a_user_is_known_by_name_and_by_number(void)
{
    TEST_ASSERT_TRUE(people_is_user("ada"));
    TEST_ASSERT_TRUE(people_is_user("1000"));
    TEST_ASSERT_FALSE(people_is_user("bob"));
    TEST_ASSERT_FALSE(people_is_user("1001"));
    TEST_ASSERT_FALSE(people_is_user("ad"));
    TEST_ASSERT_FALSE(people_is_user("nobody"));
    TEST_ASSERT_FALSE(people_is_user(""));
    TEST_ASSERT_FALSE_MESSAGE(people_is_user("1000x"), "neither a number nor a name");
    fake.uid = 1005;
    TEST_ASSERT_FALSE_MESSAGE(people_is_user("5"), "digits are a number");
    fake.uid = 5;
    TEST_ASSERT_TRUE(people_is_user("5"));
    fake.uid = 0;
    TEST_ASSERT_TRUE(people_is_user("root"));
}

static void test_a_group_may_be_any_of_the_processs(void)
{
    TEST_ASSERT_FALSE(people_is_in_group("render"));
    fake.groups[0] = 44;
    fake.groups[1] = 107;
    fake.group_count = 2;
    TEST_ASSERT_TRUE(people_is_in_group("render"));
    TEST_ASSERT_TRUE(people_is_in_group("video"));
    TEST_ASSERT_TRUE(people_is_in_group("107"));
    TEST_ASSERT_FALSE(people_is_in_group("root"));
    TEST_ASSERT_FALSE(people_is_in_group("107x"));
    TEST_ASSERT_FALSE(people_is_in_group("rend"));
    fake.group_count = 0;
    fake.gid = 107;
    TEST_ASSERT_TRUE_MESSAGE(people_is_in_group("render"), "its own");
    fake.gid = 1;
    fake.egid = 107;
    TEST_ASSERT_TRUE_MESSAGE(people_is_in_group("render"), "that of the program's file");
}

static void test_all_groups_count_of_a_process_with_many(void)
{
    fake.group_count = NGROUPS_MAX;
    for (int i = 0; i < NGROUPS_MAX; i++)
        fake.groups[i] = 1000 + (gid_t)i;
    fake.groups[NGROUPS_MAX - 1] = 107;
    TEST_ASSERT_EQUAL_INT(1, people_is_in_group("render"));
    TEST_ASSERT_EQUAL_INT(0, people_is_in_group("44"));
}

static void test_groups_that_cannot_be_listed_are_an_error(void)
{
    fake.group_count = -1;
    TEST_ASSERT_EQUAL_INT(-EPERM, people_is_in_group("107"));
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, people_is_in_group("no-such-group"), "it has no number");
}

static void test_a_number_that_does_not_fit_is_nobodys(void)
{
    static const char *const wrong[] = {"4294967295", "4294967296", "18446744073709551616", "-1", "-0"};

    fake.uid = 0;
    fake.gid = fake.egid = 0;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        TEST_ASSERT_FALSE_MESSAGE(people_may_exist(wrong[i]), wrong[i]);
        TEST_ASSERT_FALSE_MESSAGE(people_is_user(wrong[i]), wrong[i]);
        TEST_ASSERT_FALSE_MESSAGE(people_is_in_group(wrong[i]), wrong[i]);
    }
    fake.uid = fake.gid = UINT32_MAX - 1;
    TEST_ASSERT_TRUE(people_may_exist("4294967294"));
    TEST_ASSERT_TRUE(people_is_user("4294967294"));
    TEST_ASSERT_TRUE(people_is_in_group("4294967294"));
    TEST_ASSERT_TRUE(people_may_exist("ada"));
    TEST_ASSERT_TRUE_MESSAGE(people_may_exist("5th-floor"), "a name may begin with a digit");
    TEST_ASSERT_TRUE(people_may_exist("-"));
}

static void test_a_group_with_thousands_of_members_hides_no_other(void)
{
    static char large[40000] = "large:x:300:ada";

    while (strlen(large) < sizeof(large) - 10)
        strcat(large, ",someone");
    strcat(large, "\n");
    fake.before = large;
    fake.gid = 44;
    TEST_ASSERT_TRUE(people_is_in_group("video"));
    fake.gid = 300;
    TEST_ASSERT_TRUE(people_is_in_group("large"));
    TEST_ASSERT_FALSE(people_is_in_group("video"));
}

static void test_a_line_without_a_number_names_nobody(void)
{
    fake.before = "\n+\nada\n+:::\nopen:x:7\n";
    fake.gid = 7;
    TEST_ASSERT_FALSE(people_is_in_group("+"));
    TEST_ASSERT_FALSE(people_is_in_group("ada"));
    TEST_ASSERT_TRUE(people_is_in_group("open"));
}

static void test_without_the_files_numbers_still_count(void)
{
    fake.no_files = true;
    TEST_ASSERT_FALSE(people_is_user("ada"));
    TEST_ASSERT_TRUE(people_is_user("1000"));
    TEST_ASSERT_FALSE(people_is_in_group("render"));
    TEST_ASSERT_TRUE(people_is_in_group("1"));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_user_is_known_by_name_and_by_number);
    RUN_TEST(test_a_group_may_be_any_of_the_processs);
    RUN_TEST(test_all_groups_count_of_a_process_with_many);
    RUN_TEST(test_groups_that_cannot_be_listed_are_an_error);
    RUN_TEST(test_a_number_that_does_not_fit_is_nobodys);
    RUN_TEST(test_a_group_with_thousands_of_members_hides_no_other);
    RUN_TEST(test_a_line_without_a_number_names_nobody);
    RUN_TEST(test_without_the_files_numbers_still_count);
    return UNITY_END();
}
