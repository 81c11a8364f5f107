/* options: the one table, its three places, and the administrator's ceiling. Writes files in a folder of its
 * own. */
#include "interpose/settings/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

#define G    (UINT64_C(1) << 30)
#define M    (UINT64_C(1) << 20)
#define CARD (UINT64_C(80) << 30)
#define UUID "GPU-09e4f000-9ce7-42ee-4029-20a51f94f29d"

static char folder[] = "/tmp/gpucap-options-XXXXXX";
static char user_file[64], admin_file[64];
static const char *environment[OPTIONS_COUNT];
static struct options options;
static char error[OPTIONS_ERROR_MAX];

static const char *fake_getenv(const char *variable)
{
    for (int id = 0; id < OPTIONS_COUNT; id++) {
        if (!strcmp(variable, options_table[id].variable))
            return environment[id];
    }
    return NULL;
}

static void write_bytes(const char *path, const char *bytes, size_t length)
{
    FILE *f = fopen(path, "w");

    TEST_ASSERT_NOT_NULL(f);
    TEST_ASSERT_EQUAL_size_t(length, fwrite(bytes, 1, length, f));
    fclose(f);
}

static void write_text(const char *path, const char *text)
{
    write_bytes(path, text, strlen(text));
}

static char *const *variables;

static int load(void)
{
    const struct options_places places = {fake_getenv, user_file, admin_file, variables};

    error[0] = '\0';
    return options_load(&options, &places, error);
}

static void must_load(void)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, load(), error);
}

/* Refused, and the message holds every one of the parts. */
static void must_refuse(const char *a, const char *b, const char *c)
{
    TEST_ASSERT_EQUAL_INT(-EINVAL, load());
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(error, a), error);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(error, b), error);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(error, c), error);
}

static uint64_t limit(void)
{
    return options_limit(&options, 0, UUID, CARD);
}

static bool getgroups_fails;
int __real_getgroups(int size, gid_t list[]);
int __wrap_getgroups(int size, gid_t list[]);
int __wrap_getgroups(int size, gid_t list[])
{
    if (!getgroups_fails)
        return __real_getgroups(size, list);
    errno = EPERM;
    return -1;
}

void setUp(void)
{
    memset(environment, 0, sizeof(environment));
}

void tearDown(void)
{
    rmdir(user_file);
    rmdir(admin_file);
    unlink(user_file);
    unlink(admin_file);
}

static void test_without_any_setting_nothing_is_limited(void)
{
    must_load();
    TEST_ASSERT_EQUAL_UINT64(RULES_UNLIMITED, limit());
    TEST_ASSERT_FALSE(options_any_limit(&options));
    TEST_ASSERT_EQUAL_UINT64(64 * M, options.reserve.bytes);
    TEST_ASSERT_EQUAL_INT(OPTIONS_LOG_ERROR, options.log);
    for (int id = 0; id < OPTIONS_COUNT; id++)
        TEST_ASSERT_EQUAL_INT(OPTIONS_DEFAULT, options.source[id]);
}

static void test_every_row_of_the_table_is_found_and_its_default_is_valid(void)
{
    for (int id = 0; id < OPTIONS_COUNT; id++) {
        const struct options_entry *row = &options_table[id];

        TEST_ASSERT_EQUAL_INT(id, options_find(row->name, strlen(row->name)));
        TEST_ASSERT_EQUAL_INT(-1, options_find(row->name, strlen(row->name) - 1));
        TEST_ASSERT_EQUAL_INT(0, strncmp(row->variable, "GPUCAP_", 7));
        TEST_ASSERT_EQUAL_INT(0, options_set(&options, id, row->standard, OPTIONS_ENVIRONMENT, error));
    }
    TEST_ASSERT_EQUAL_UINT64(OPTIONS_RESERVE_STANDARD, options.reserve.bytes);
    TEST_ASSERT_EQUAL_INT(-1, options_find("", 0));
    TEST_ASSERT_EQUAL_INT(-1, options_find("maximum", 7));
}

static void test_the_options_that_find_faults_are_off_until_asked_for(void)
{
    must_load();
    TEST_ASSERT_FALSE(options.guard || options.fill);
    write_text(user_file, "guard = on\nfill = on\n");
    must_load();
    TEST_ASSERT_TRUE(options.guard && options.fill);
    environment[OPTIONS_GUARD] = "off";
    must_load();
    TEST_ASSERT_TRUE(!options.guard && options.fill);
    environment[OPTIONS_FILL] = "0xCB";
    must_refuse("GPUCAP_FILL", "0xCB", "on or off");
}

static void test_a_recording_has_the_name_of_a_file(void)
{
    static char long_name[OPTIONS_PATH_MAX + 1];

    must_load();
    TEST_ASSERT_EQUAL_STRING("", options.record);
    TEST_ASSERT_FALSE(options.stacks);
    TEST_ASSERT_FALSE(options.nvtx);
    environment[OPTIONS_RECORD] = "run-%h-%p-100%%.gpucap";
    environment[OPTIONS_STACKS] = environment[OPTIONS_NVTX] = "on";
    must_load();
    TEST_ASSERT_EQUAL_STRING("run-%h-%p-100%%.gpucap", options.record);
    TEST_ASSERT_TRUE(options.stacks && options.nvtx);
    environment[OPTIONS_RECORD] = "off";
    must_load();
    TEST_ASSERT_EQUAL_STRING("", options.record);
    environment[OPTIONS_RECORD] = "run-%d";
    must_refuse("GPUCAP_RECORD", "run-%d", "a file such as");
    environment[OPTIONS_RECORD] = "run-%";
    must_refuse("GPUCAP_RECORD", "run-%", "a file such as");
    environment[OPTIONS_RECORD] = "";
    must_refuse("GPUCAP_RECORD", "", "a file such as");
    memset(long_name, '/', OPTIONS_PATH_MAX);
    environment[OPTIONS_RECORD] = long_name;
    must_refuse("GPUCAP_RECORD", "///", "a file such as");
    environment[OPTIONS_LEDGER] = long_name;
    environment[OPTIONS_RECORD] = long_name + 1; /* the longest */
    must_refuse("GPUCAP_LEDGER", "///", "too long");
    environment[OPTIONS_LEDGER] = long_name + 1;
    must_load();
}

static void test_the_environment_beats_the_user_and_the_user_beats_the_administrator(void)
{
    write_text(admin_file, "max = 40G\nreserve = 1M\nlog = quiet\n");
    must_load();
    TEST_ASSERT_EQUAL_UINT64(40 * G, limit());
    TEST_ASSERT_EQUAL_INT(OPTIONS_LOG_QUIET, options.log);
    TEST_ASSERT_EQUAL_INT(OPTIONS_ADMIN, options.source[OPTIONS_MAX]);

    write_text(user_file, "max = 20G\nreserve = 2M\n");
    must_load();
    TEST_ASSERT_EQUAL_UINT64(20 * G, limit());
    TEST_ASSERT_EQUAL_UINT64(2 * M, options.reserve.bytes);
    TEST_ASSERT_EQUAL_INT(OPTIONS_LOG_QUIET, options.log);
    TEST_ASSERT_EQUAL_INT(OPTIONS_USER, options.source[OPTIONS_MAX]);

    environment[OPTIONS_MAX] = "30G";
    environment[OPTIONS_LOG] = "info";
    must_load();
    TEST_ASSERT_EQUAL_UINT64(30 * G, limit());
    TEST_ASSERT_EQUAL_UINT64(2 * M, options.reserve.bytes);
    TEST_ASSERT_EQUAL_INT(OPTIONS_LOG_INFO, options.log);
    TEST_ASSERT_EQUAL_INT(OPTIONS_ENVIRONMENT, options.source[OPTIONS_MAX]);
}

static void test_an_option_that_a_file_sets_twice_is_refused(void)
{
    write_text(user_file, "max = 20G\n# again\n\nmax = 2G\n");
    must_refuse("conf:4: max is set a second time (first in line 1)", "max", "line 1");
    write_text(user_file, "max = 20G\nreserve = 2M\n");
    write_text(admin_file, "max = 30G\n"); /* another file may set it too */
    must_load();
}

static void test_a_reserve_that_leaves_nothing_of_a_limit_is_refused(void)
{
    environment[OPTIONS_MAX] = "1G";
    environment[OPTIONS_RESERVE] = "1G";
    must_refuse("reserve leaves nothing of a limit", "max", "64M");
    environment[OPTIONS_RESERVE] = "100%";
    must_refuse("reserve leaves nothing of a limit", "max", "64M");
    environment[OPTIONS_RESERVE] = "1023M";
    must_load();
    environment[OPTIONS_EACH] = UUID "=512M";
    must_refuse("reserve leaves nothing of a limit", "each", "64M");
    environment[OPTIONS_EACH] = NULL;
    environment[OPTIONS_RESERVE] = NULL;
    environment[OPTIONS_MAX] =
        "32M"; /* less than the default reserve: only a reserve that was set is refused */
    must_load();
    environment[OPTIONS_MAX] = "1G";
    write_text(admin_file, "max = 16M\n"); /* the ceiling is a limit too */
    environment[OPTIONS_RESERVE] = "16M";
    must_refuse("reserve leaves nothing of a limit", "max", "64M");
}

static void test_the_administrators_ceiling_holds_whatever_the_user_asks_for(void)
{
    static const char *const wishes[] = {
        "none",       "100%",      "60G",         "0=none", "0=60G",
        UUID "=none", UUID "=79G", "GPU-09=100%", "5=1G",   "18446744073709551615"};
    static const char *const ceilings[] = {"max = 10G",          "max = 12.5%",
                                           "max = " UUID "=10G", "max = none," UUID "=10G",
                                           "max = 10G\r",        "\n\n#c\n  max=10G # for all\n"};

    for (size_t c = 0; c < sizeof(ceilings) / sizeof(*ceilings); c++) {
        write_text(admin_file, ceilings[c]);
        for (size_t w = 0; w < sizeof(wishes) / sizeof(*wishes); w++) {
            char text[128];

            environment[OPTIONS_MAX] = wishes[w];
            must_load();
            TEST_ASSERT_TRUE(options_any_limit(&options));
            TEST_ASSERT_EQUAL_UINT64_MESSAGE(10 * G, limit(), wishes[w]);
            environment[OPTIONS_MAX] = NULL;
            snprintf(text, sizeof(text), "max = %s\n", wishes[w]);
            write_text(user_file, text);
            must_load();
            TEST_ASSERT_EQUAL_UINT64_MESSAGE(10 * G, limit(), wishes[w]);
            unlink(user_file);
        }
    }
    environment[OPTIONS_MAX] = "4G"; /* and a smaller wish is granted */
    must_load();
    TEST_ASSERT_EQUAL_UINT64(4 * G, limit());
}

static void test_people_can_have_ceilings_of_their_own(void)
{
    char text[512];
    const unsigned uid = getuid(), gid = getgid();

    snprintf(text, sizeof(text), "max = 10G\n[user %u]\nmax = 12G\n[group %u] # ours\nmax = 14G\n", uid, gid);
    write_text(admin_file, text);
    environment[OPTIONS_MAX] = "none";
    must_load();
    TEST_ASSERT_EQUAL_UINT64(12 * G, limit()); /* the user's own, also if it is more */
    snprintf(text, sizeof(text),
             "max = 10G\n[group %u]\nmax = 14G\n[group %u]\nmax = 3G\n[user %u]\nmax = 1G\n", gid, gid,
             uid + 1);
    write_text(admin_file, text);
    must_load();
    TEST_ASSERT_EQUAL_UINT64(14 * G, limit()); /* the first group's; another user's is not ours */
    write_text(admin_file, "[group no-such-group]\nmax = 1G\n[user no-such-user]\nmax = 1G\n");
    must_load();
    TEST_ASSERT_EQUAL_UINT64(RULES_UNLIMITED, limit());
    if (uid == 0) {
        write_text(admin_file, "[user root]\nmax = 5G\n");
        must_load();
        TEST_ASSERT_EQUAL_UINT64(5 * G, limit());
    }
}

static void test_sections_that_cannot_be_right_are_refused(void)
{
    write_text(admin_file, "max = 10G\n[user 5]\nreserve = 1M\n");
    must_refuse(":3:", "reserve", "a section sets only max");
    write_text(admin_file, "[user 5]\nmax = 1G\nmax = 2G\n");
    must_refuse(":3:", "max", "second time");
    write_text(admin_file, "[user 5]\nmax = lots\n");
    must_refuse(":2:", "max='lots'", "not valid");
    write_text(admin_file, "[user 5]\nmax = 0=1G\n");
    must_refuse(":2:", "max", "UUID");
    static const char *const wrong[] = {"[user]",      "[users 5]", "[user 5",          "[user 5] x",
                                        "[user 5] x]", "[]",        "[user 5][group 5]"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        write_text(admin_file, wrong[i]);
        must_refuse(":1:", "is no section", "[user NAME]");
    }
    static const char *const numbers[] = {"4294967296", "4294967295", "99999999999999999999", "-1"};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        for (int j = 0; j < 2; j++) {
            char text[80];

            snprintf(text, sizeof(text), "[%s %s]\nmax = 1G\n", j ? "group" : "user", numbers[i]);
            write_text(admin_file, text);
            must_refuse(":1:", j ? "no group can have the number" : "no user can have the number",
                        numbers[i]);
        }
    }
    unlink(admin_file);
    write_text(user_file, "[user 5]\nmax = 1G\n");
    must_refuse(":1:", "is no section", OPTIONS_ADMIN_FILE);
}

static void test_a_groups_ceiling_is_not_escaped_while_the_groups_are_unknown(void)
{
    getgroups_fails = true;
    write_text(admin_file, "[user no-such-user]\nmax = 1G\n");
    must_load();
    write_text(admin_file, "[group 5]\nmax = 1G\n");
    const int rc = load();
    getgroups_fails = false;
    TEST_ASSERT_EQUAL_INT(-EINVAL, rc);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(error, ":1: the groups of this process cannot be listed"), error);
}

static void test_a_ceiling_on_one_card_leaves_the_others_alone(void)
{
    write_text(admin_file, "max = " UUID "=10G\n");
    must_load();
    TEST_ASSERT_EQUAL_UINT64(10 * G, limit());
    TEST_ASSERT_EQUAL_UINT64(RULES_UNLIMITED, options_limit(&options, 0, "GPU-ffffffff", CARD));
}

static void test_device_numbers_are_refused_in_the_administrators_file(void)
{
    write_text(admin_file, "max = 0=10G\n");
    must_refuse("0=10G", "UUID", "nvidia-smi -L");
    write_text(admin_file, "max = 10G,3=none\n");
    must_refuse("10G,3=none", "UUID", ":1");
    unlink(admin_file);
    write_text(user_file, "max = 0=10G\n"); /* a user may */
    must_load();
}

static void test_a_bad_value_is_named_with_its_place_and_the_accepted_form(void)
{
    environment[OPTIONS_MAX] = "8GG";
    must_refuse("GPUCAP_MAX", "'8GG'", RULES_FORM);
    environment[OPTIONS_MAX] = "";
    must_refuse("GPUCAP_MAX", "''", RULES_FORM);
    environment[OPTIONS_MAX] = NULL;
    environment[OPTIONS_RESERVE] = "much";
    must_refuse("GPUCAP_RESERVE", "'much'", SIZE_FORM);
    environment[OPTIONS_RESERVE] = "99999999T";
    must_refuse("GPUCAP_RESERVE", "too large", SIZE_FORM);
    environment[OPTIONS_RESERVE] = NULL;
    environment[OPTIONS_LOG] = "loud";
    must_refuse("GPUCAP_LOG", "'loud'", "quiet, error or info");
    environment[OPTIONS_LOG] = NULL;
    write_text(user_file, "# first\n\nmax = lots\n");
    must_refuse(user_file, ":3", "'lots'");
    unlink(user_file);
    write_text(admin_file, "max = -1");
    must_refuse(admin_file, ":1", "'-1'");
}

static void test_every_option_takes_its_own_forms_and_no_others(void)
{
    static const struct {
        int id;
        const char *value;
        bool good;
    } cases[] = {
        {OPTIONS_POOL, "on", true},
        {OPTIONS_POOL, "off", true},
        {OPTIONS_POOL, "On", false},
        {OPTIONS_POOL, "1", false},
        {OPTIONS_POOL, "", false},
        {OPTIONS_POOL, " on", false},
        {OPTIONS_FREE, "strict", true},
        {OPTIONS_FREE, "deferred", true},
        {OPTIONS_FREE, "lazy", false},
        {OPTIONS_ZERO, "on", true},
        {OPTIONS_ZERO, "yes", false},
        {OPTIONS_SLACK, "2%", true},
        {OPTIONS_SLACK, "0.5%", true},
        {OPTIONS_SLACK, "64M", false},
        {OPTIONS_SLACK, "200%", false},
        {OPTIONS_DECAY, "0", true},
        {OPTIONS_DECAY, "off", true},
        {OPTIONS_DECAY, "3600", true},
        {OPTIONS_DECAY, "-1", false},
        {OPTIONS_DECAY, "5s", true},
        {OPTIONS_DECAY, "", false},
        {OPTIONS_DECAY, "99999999", false},
        {OPTIONS_DECAY, "0.5", true},
        {OPTIONS_DECAY, "2.125", true},
        {OPTIONS_DECAY, "0.0001", false},
        {OPTIONS_DECAY, ".5", false},
        {OPTIONS_DECAY, "5.", false},
        {OPTIONS_DECAY, "1.2.3", false},
        {OPTIONS_DECAY, "1,5", false},
        {OPTIONS_DECAY, "1e3", false},
        {OPTIONS_EARLY, "50%", true},
        {OPTIONS_EARLY, "half", false},
        {OPTIONS_MIN, "2G", true},
        {OPTIONS_MIN, "0=2G,1=10%", true},
        {OPTIONS_MIN, "some", false},
        {OPTIONS_HIGH, "50%", true},
        {OPTIONS_HIGH, "none", true},
        {OPTIONS_HIGH, "half", false},
        {OPTIONS_RESERVE, "0", true},
        {OPTIONS_RESERVE, "10%", true},
        {OPTIONS_RESERVE, "none", false},
        {OPTIONS_DECAY, "5ss", false},
        {OPTIONS_DECAY, "s", false},
        {OPTIONS_DECAY, "5 s", false},
        {OPTIONS_WAIT, "30s", true},
        {OPTIONS_WAIT, "off", true},
        {OPTIONS_WAIT, "30m", false},
        {OPTIONS_EACH, "0=1G", true},
        {OPTIONS_EACH, "much", false},
        {OPTIONS_GROUP, "a.b-c_1", true},
        {OPTIONS_GROUP, "none", true},
        {OPTIONS_GROUP, "", false},
        {OPTIONS_GROUP, "a b", false},
        {OPTIONS_GROUP, "../a", false},
        {OPTIONS_LEDGER, "/run/gpucap", true},
        {OPTIONS_LEDGER, "auto", true},
        {OPTIONS_LEDGER, "off", true},
        {OPTIONS_LEDGER, "run/gpucap", false},
        {OPTIONS_LEDGER, "", false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct options_entry *row = &options_table[cases[i].id];
        char quoted[32];

        setUp();
        environment[cases[i].id] = cases[i].value;
        snprintf(quoted, sizeof(quoted), "'%s'", cases[i].value);
        if (cases[i].good)
            must_load();
        else
            must_refuse(row->variable, quoted, row->form);
    }
}

static void test_a_variable_that_is_mistyped_is_refused_not_passed_over(void)
{
    char mistyped[] = "GPUCAP_MXA=8G", longer[] = "GPUCAP_MAXIMUM=8G", none[] = "GPUCAP_=1",
         max[] = "GPUCAP_MAX=8G", other[] = "MAX=8G", sim[] = "GPUCAP_SIM_ID=a", bare[] = "GPUCAP_MAX";
    char *good[] = {max, other, sim, bare, NULL}, *bad[] = {mistyped, longer, none};

    variables = good;
    must_load();
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        char *list[] = {max, bad[i], NULL};
        char name[32];

        variables = list;
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(bad[i], "="), bad[i]);
        must_refuse(name, "no such variable", "gpucap help");
    }
    variables = NULL;
}

static void test_of_max_and_each_the_smaller_holds_for_a_process_alone(void)
{
    environment[OPTIONS_MAX] = "8G";
    environment[OPTIONS_EACH] = "4G";
    must_load();
    TEST_ASSERT_EQUAL_UINT64(4 * G, options_own_limit(&options, 0, UUID, CARD));
    environment[OPTIONS_EACH] = "12G";
    must_load();
    TEST_ASSERT_EQUAL_UINT64(8 * G, options_own_limit(&options, 0, UUID, CARD));
}

static void test_in_a_group_max_is_the_jobs_and_each_the_processs(void)
{
    environment[OPTIONS_GROUP] = "night";
    must_load();
    TEST_ASSERT_TRUE(options_any_limit(&options));
    TEST_ASSERT_EQUAL_UINT64(CARD, options_own_limit(&options, 0, UUID, CARD));
    TEST_ASSERT_EQUAL_UINT64(CARD, options_job_limit(&options, 0, UUID, CARD));
    environment[OPTIONS_MAX] = "8G";
    environment[OPTIONS_EACH] = "4G";
    must_load();
    TEST_ASSERT_EQUAL_UINT64(4 * G, options_own_limit(&options, 0, UUID, CARD));
    TEST_ASSERT_EQUAL_UINT64(8 * G, options_job_limit(&options, 0, UUID, CARD));
    TEST_ASSERT_EQUAL_UINT64(4 * G, limit());
    write_text(admin_file, "max = 2G\n");
    must_load();
    TEST_ASSERT_EQUAL_UINT64(2 * G, options_own_limit(&options, 0, UUID, CARD));
    TEST_ASSERT_EQUAL_UINT64(2 * G, options_job_limit(&options, 0, UUID, CARD));
}

static void test_what_is_not_an_option_is_refused_not_skipped(void)
{
    static const char *const bad[] = {
        "maximum = 8G", "max",      "max 8G",    "= 8G",       "MAX = 8G", "max8G", "\xef\xbb\xbfmax = 8G",
        "gpu]",         "max : 8G", "ma x = 8G", "\vmax = 8G", "=",        "max\0"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        write_text(user_file, bad[i]);
        TEST_ASSERT_EQUAL_INT_MESSAGE(-EINVAL, load(), bad[i]);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(error, "name = value"), error);
    }
    write_text(user_file, "max\n");
    TEST_ASSERT_EQUAL_INT(-EINVAL, load());
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(error, "'max' has no value"), error);
}

static void test_a_file_is_read_whatever_its_line_ends_and_comments(void)
{
    write_text(user_file, "\r\n  # max = 1G\r\n\tmax\t=\t8G \t# the limit\r\nlog=info\r\n#");
    must_load();
    TEST_ASSERT_EQUAL_UINT64(8 * G, limit());
    TEST_ASSERT_EQUAL_INT(OPTIONS_LOG_INFO, options.log);
    write_text(user_file, "");
    must_load();
    TEST_ASSERT_FALSE(options_any_limit(&options));
}

static void test_a_file_with_a_zero_byte_is_refused(void)
{
    write_bytes(user_file, "max = 8G\n\0max = none\n", 20);
    must_refuse(user_file, "not a text file", "");
    unlink(user_file);
    write_bytes(admin_file, "\0", 1);
    must_refuse(admin_file, "not a text file", "");
}

static void test_huge_input_is_refused_not_cut(void)
{
    char *text = malloc(OPTIONS_FILE_MAX + 2);

    TEST_ASSERT_NOT_NULL(text);
    memset(text, '#', OPTIONS_FILE_MAX + 1);
    memcpy(text, "max = 8G\n", 9);
    write_bytes(user_file, text, OPTIONS_FILE_MAX - 1);
    must_load();
    write_bytes(user_file, text, OPTIONS_FILE_MAX + 1);
    must_refuse(user_file, "cannot be read", "");
    unlink(user_file);

    memset(text, '8', OPTIONS_VALUE_MAX + 1);
    text[OPTIONS_VALUE_MAX + 1] = '\0';
    environment[OPTIONS_MAX] = text;
    must_refuse("GPUCAP_MAX", "too long", RULES_FORM);
    environment[OPTIONS_MAX] = NULL;
    memcpy(text, "max = ", 6);
    text[OPTIONS_FILE_MAX / 2] = '\0';
    memset(text + 6, ' ', 2000); /* blanks are not the value */
    memcpy(text + 2006, "8G\n#", 4);
    memset(text + 2010, 'x', OPTIONS_FILE_MAX / 2 - 2010);
    write_text(user_file, text);
    must_load();
    TEST_ASSERT_EQUAL_UINT64(8 * G, limit());
    memset(text + 6, '9', OPTIONS_FILE_MAX / 2 - 6);
    write_text(user_file, text);
    must_refuse(user_file, "too long", RULES_FORM);
    free(text);
}

static void test_what_cannot_be_read_is_an_error_and_not_no_limit(void)
{
    TEST_ASSERT_EQUAL_INT(0, mkdir(user_file, 0700));
    must_refuse(user_file, "cannot be read", "");
    rmdir(user_file);
    TEST_ASSERT_EQUAL_INT(0, mkdir(admin_file, 0700));
    must_refuse(admin_file, "cannot be read", "");
    rmdir(admin_file);
    TEST_ASSERT_EQUAL_INT(0, mkfifo(admin_file, 0600));
    must_refuse(admin_file, "cannot be read", "");
    unlink(admin_file);
    TEST_ASSERT_EQUAL_INT(0, symlink(admin_file, admin_file));
    must_refuse(admin_file, "cannot be read", "");
    unlink(admin_file);
    TEST_ASSERT_EQUAL_INT(0, symlink("/dev/zero", admin_file));
    must_refuse(admin_file, "cannot be read", "");
    unlink(admin_file);
    TEST_ASSERT_EQUAL_INT(0, symlink("/dev/null", admin_file)); /* the usual way to switch a file off */
    must_load();
}

/* In a child, because root reads everything. 0: loaded; 1: refused; 2: could not try. */
static int load_as_nobody(void)
{
    int status = 2 << 8;
    pid_t pid = fork();

    if (pid == 0)
        _exit(geteuid() == 0 && (setgid(65534) || setuid(65534)) ? 2 : load() ? 1 : 0);
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

static void test_an_administrators_file_that_may_not_be_read_is_an_error(void)
{
    chmod(folder, 0755);
    write_text(admin_file, "max = 8G\n");
    chmod(admin_file, 0);
    TEST_ASSERT_EQUAL_INT(1, load_as_nobody());
    chmod(admin_file, 0644);
    TEST_ASSERT_EQUAL_INT(0, load_as_nobody());
    write_text(user_file, "max = 8G\n"); /* a home that is not ours: as if it were empty */
    chmod(user_file, 0);
    TEST_ASSERT_EQUAL_INT(0, load_as_nobody());
}

static void test_the_users_file_is_below_the_home_folder(void)
{
    char path[OPTIONS_PATH_MAX], home[OPTIONS_PATH_MAX + 1];

    setenv("HOME", "/home/somebody", 1);
    struct options_places places = options_places_here(path);
    TEST_ASSERT_EQUAL_STRING("/home/somebody/.config/gpucap.conf", places.user_file);
    TEST_ASSERT_EQUAL_STRING("/etc/gpucap.conf", places.admin_file);
    setenv("HOME", "", 1);
    TEST_ASSERT_NULL(options_places_here(path).user_file);
    memset(home, 'x', OPTIONS_PATH_MAX);
    home[OPTIONS_PATH_MAX] = '\0';
    setenv("HOME", home, 1);
    TEST_ASSERT_NULL(options_places_here(path).user_file);
    home[OPTIONS_PATH_MAX - sizeof(OPTIONS_USER_FILE)] = '\0'; /* one too many */
    setenv("HOME", home, 1);
    TEST_ASSERT_NULL(options_places_here(path).user_file);
    home[OPTIONS_PATH_MAX - sizeof(OPTIONS_USER_FILE) - 1] = '\0'; /* just fits */
    setenv("HOME", home, 1);
    TEST_ASSERT_EQUAL_size_t(OPTIONS_PATH_MAX - 1, strlen(options_places_here(path).user_file));
    unsetenv("HOME");
    TEST_ASSERT_NULL(options_places_here(path).user_file);
}

static void test_a_refused_value_leaves_the_old_one(void)
{
    options_init(&options);
    TEST_ASSERT_EQUAL_INT(0, options_set(&options, OPTIONS_MAX, "8G", OPTIONS_ENVIRONMENT, error));
    TEST_ASSERT_EQUAL_INT(-EINVAL,
                          options_set(&options, OPTIONS_MAX, "0=4G,junk", OPTIONS_ENVIRONMENT, error));
    TEST_ASSERT_EQUAL_UINT64(8 * G, limit());
    TEST_ASSERT_EQUAL_INT(-EINVAL, options_set(&options, OPTIONS_WAIT, "soon", OPTIONS_ENVIRONMENT, error));
    TEST_ASSERT_EQUAL_INT_MESSAGE(OPTIONS_DEFAULT, options.source[OPTIONS_WAIT], "where it came from, too");
}

static void test_seconds_are_read_with_their_fraction(void)
{
    static const struct {
        const char *text;
        double seconds;
    } cases[] = {{"12", 12}, {"1.5", 1.5}, {"0.25s", 0.25}, {"3s", 3}, {"off", -1}};

    options_init(&options);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        TEST_ASSERT_EQUAL_INT(0, options_set(&options, OPTIONS_DECAY, cases[i].text, OPTIONS_USER, error));
        TEST_ASSERT_TRUE_MESSAGE(fabs(options.decay - cases[i].seconds) < 1e-9, cases[i].text);
    }
    TEST_ASSERT_EQUAL_INT(0, options_set(&options, OPTIONS_WAIT, "off", OPTIONS_USER, error));
    TEST_ASSERT_TRUE(options.wait == 0);
}

static void test_the_longest_name_of_a_group_fits(void)
{
    char name[sizeof(options.group) + 1];

    memset(name, 'g', sizeof(name));
    options_init(&options);
    name[sizeof(options.group)] = '\0';
    TEST_ASSERT_EQUAL_INT(-EINVAL, options_set(&options, OPTIONS_GROUP, name, OPTIONS_USER, error));
    name[sizeof(options.group) - 1] = '\0';
    TEST_ASSERT_EQUAL_INT(0, options_set(&options, OPTIONS_GROUP, name, OPTIONS_USER, error));
    TEST_ASSERT_EQUAL_STRING(name, options.group);
}

static void test_any_rule_of_any_kind_is_a_limit(void)
{
    static const int ids[] = {OPTIONS_MAX, OPTIONS_EACH, OPTIONS_MIN, OPTIONS_HIGH};

    for (int i = 0; i < 4; i++) {
        options_init(&options);
        TEST_ASSERT_FALSE(options_any_limit(&options));
        TEST_ASSERT_EQUAL_INT(0, options_set(&options, ids[i], "0=none,1=1G", OPTIONS_USER, error));
        TEST_ASSERT_TRUE_MESSAGE(options_any_limit(&options), options_table[ids[i]].name);
        TEST_ASSERT_EQUAL_INT(0, options_set(&options, ids[i], "none", OPTIONS_USER, error));
        TEST_ASSERT_FALSE_MESSAGE(options_any_limit(&options), options_table[ids[i]].name);
        const bool is_bound = ids[i] == OPTIONS_MIN || ids[i] == OPTIONS_HIGH; /* zero is none there */
        TEST_ASSERT_EQUAL_INT(is_bound ? 0 : -EINVAL,
                              options_set(&options, ids[i], "0", OPTIONS_USER, error));
        TEST_ASSERT_FALSE_MESSAGE(options_any_limit(&options), options_table[ids[i]].name);
    }
    TEST_ASSERT_EQUAL_INT(0, options_set(&options, OPTIONS_GROUP, "nightly", OPTIONS_USER, error));
    TEST_ASSERT_TRUE(options_any_limit(&options));
}

int main(void)
{
    if (!mkdtemp(folder))
        return 2;
    snprintf(user_file, sizeof(user_file), "%s/user.conf", folder);
    snprintf(admin_file, sizeof(admin_file), "%s/admin.conf", folder);
    UNITY_BEGIN();
    RUN_TEST(test_without_any_setting_nothing_is_limited);
    RUN_TEST(test_every_row_of_the_table_is_found_and_its_default_is_valid);
    RUN_TEST(test_the_options_that_find_faults_are_off_until_asked_for);
    RUN_TEST(test_a_recording_has_the_name_of_a_file);
    RUN_TEST(test_the_environment_beats_the_user_and_the_user_beats_the_administrator);
    RUN_TEST(test_an_option_that_a_file_sets_twice_is_refused);
    RUN_TEST(test_a_reserve_that_leaves_nothing_of_a_limit_is_refused);
    RUN_TEST(test_the_administrators_ceiling_holds_whatever_the_user_asks_for);
    RUN_TEST(test_people_can_have_ceilings_of_their_own);
    RUN_TEST(test_sections_that_cannot_be_right_are_refused);
    RUN_TEST(test_a_groups_ceiling_is_not_escaped_while_the_groups_are_unknown);
    RUN_TEST(test_a_ceiling_on_one_card_leaves_the_others_alone);
    RUN_TEST(test_device_numbers_are_refused_in_the_administrators_file);
    RUN_TEST(test_a_bad_value_is_named_with_its_place_and_the_accepted_form);
    RUN_TEST(test_every_option_takes_its_own_forms_and_no_others);
    RUN_TEST(test_a_variable_that_is_mistyped_is_refused_not_passed_over);
    RUN_TEST(test_of_max_and_each_the_smaller_holds_for_a_process_alone);
    RUN_TEST(test_in_a_group_max_is_the_jobs_and_each_the_processs);
    RUN_TEST(test_what_is_not_an_option_is_refused_not_skipped);
    RUN_TEST(test_a_file_is_read_whatever_its_line_ends_and_comments);
    RUN_TEST(test_a_file_with_a_zero_byte_is_refused);
    RUN_TEST(test_huge_input_is_refused_not_cut);
    RUN_TEST(test_what_cannot_be_read_is_an_error_and_not_no_limit);
    RUN_TEST(test_an_administrators_file_that_may_not_be_read_is_an_error);
    RUN_TEST(test_the_users_file_is_below_the_home_folder);
    RUN_TEST(test_a_refused_value_leaves_the_old_one);
    RUN_TEST(test_seconds_are_read_with_their_fraction);
    RUN_TEST(test_the_longest_name_of_a_group_fits);
    RUN_TEST(test_any_rule_of_any_kind_is_a_limit);
    int failed = UNITY_END();
    rmdir(folder);
    return failed;
}
