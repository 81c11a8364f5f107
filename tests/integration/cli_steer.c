/* What `gpucap set` and `gpucap trim` promise: a job's limit changes for all its processes at once, idle
 * memory goes back, and only the owner may ask for either. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_members.h"
#include "interpose/account/ledger.h"
#include "unity.h"

#define MIB          UINT64_C(1048576)
#define NOBODY       65534
#define NOBODYS_TEXT "65534"

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    members_end();
    cli_tear_down();
}

static struct spawn_result run(const char *command, const char *word, const char *option)
{
    struct spawn_env *env = cli_env();

    spawn_env_set(env, "GPUCAP_SIM_ID", spawn_sim_id());
    struct spawn_result result = CLI_RUN(env, command, word, MEMBERS_SIM, option);
    spawn_env_free(env);
    return result;
}

/* What the ledger says of a process now. */
static struct ledger_entry look_up(const char *uuid, const struct member *member)
{
    struct ledger *ledger;
    struct ledger_entry entry;
    char why[LEDGER_WHY];

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, ledger_open_existing(&ledger, members_folder(), uuid, why), why);
    for (int slot = 0; slot < LEDGER_SLOTS; slot++) {
        if (ledger_read(ledger, slot, &entry) && entry.pid == member->pid) {
            ledger_close(ledger);
            return entry;
        }
    }
    TEST_FAIL_MESSAGE("the member is not in the ledger");
    return entry;
}

/* ---- set ---- */

static void test_set_by_process_changes_the_job(void)
{
    const struct member *first = members_start(MEMBERS_UUID, "train-a", 8192, 1024, 0);
    const struct member *second = members_start(MEMBERS_UUID, "train-a", 8192, 1024, 0);
    const struct member *other = members_start(MEMBERS_UUID, "train-b", 8192, 1024, 0);
    struct spawn_result result = run("set", members_pid(first), "--max=12G");

    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_STRING("train-a on GPU-00000000: max was 8.0 GiB, is 12.0 GiB now\n", result.out);
    TEST_ASSERT_EQUAL_UINT64(12288 * MIB, look_up(MEMBERS_UUID, first).job_max);
    TEST_ASSERT_EQUAL_UINT64(12288 * MIB, look_up(MEMBERS_UUID, second).job_max);
    TEST_ASSERT_EQUAL_UINT64(8192 * MIB, look_up(MEMBERS_UUID, other).job_max);
    spawn_result_free(&result);
}

static void test_set_by_name_and_separate_value(void)
{
    const struct member *member = members_start(MEMBERS_UUID, "train-a", 8192, 1024, 0);
    struct spawn_env *env = cli_env();
    struct spawn_result result = CLI_RUN(env, "set", "--max", "none", "train-a");

    cli_expect_status(0, &result);
    cli_expect_out("max was 8.0 GiB, is none now", &result);
    TEST_ASSERT_EQUAL_UINT64(LEDGER_UNLIMITED, look_up(MEMBERS_UUID, member).job_max);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_set_changes_min_and_high_of_a_job(void)
{
    const struct member *member = members_start(MEMBERS_UUID, "train-a", 8192, 1024, 0);
    struct spawn_env *env = cli_env();
    struct spawn_result result = CLI_RUN(env, "set", "train-a", "--high=6G", "--min=2G");

    spawn_env_free(env);
    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_STRING("train-a on GPU-00000000: min was none, is 2.0 GiB now\n"
                             "train-a on GPU-00000000: high was none, is 6.0 GiB now\n",
                             result.out);
    const struct ledger_entry entry = look_up(MEMBERS_UUID, member);
    TEST_ASSERT_EQUAL_UINT64(2048 * MIB, entry.min);
    TEST_ASSERT_EQUAL_UINT64(6144 * MIB, entry.high);
    TEST_ASSERT_EQUAL_UINT64(8192 * MIB, entry.job_max);
    spawn_result_free(&result);
    env = cli_env();
    result = CLI_RUN(env, "ps", "--json");
    spawn_env_free(env);
#if GPUCAP_HAS_JSON
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result.out, "\"min\":\t2147483648"), result.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result.out, "\"high\":\t6442450944"), result.out);
#endif
    spawn_result_free(&result);
    env = cli_env();
    result = CLI_RUN(env, "ps", "--prometheus");
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result.out, "job=\"train-a\"} 2147483648\n"), result.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result.out, "\ngpucap_job_high_bytes{"), result.out);
    spawn_result_free(&result);
    spawn_env_set(env, "COLUMNS", "80");
    result = CLI_RUN(env, "ps");
    spawn_env_free(env);
#if GPUCAP_HAS_TABLE
    cli_expect_out("\ntrain-a: min 2.0 GiB (1.0 GiB kept free), high 6.0 GiB\n", &result);
#endif
    spawn_result_free(&result);
    result = run("set", "train-a", "--min=0");
    TEST_ASSERT_EQUAL_STRING("train-a on GPU-00000000: min was 2.0 GiB, is none now\n", result.out);
    TEST_ASSERT_EQUAL_UINT64(0, look_up(MEMBERS_UUID, member).min);
    spawn_result_free(&result);
    result = run("set", "train-a", "--high=none");
    TEST_ASSERT_EQUAL_STRING("train-a on GPU-00000000: high was 6.0 GiB, is none now\n", result.out);
    spawn_result_free(&result);
}

#define TRIES 5

/* Sets the max of a job whose process uses 5 GiB, of which 1 GiB is idle. `set` waits for its answer for a
 * second. On a busy machine it may not be run for as long, so that this begins anew, a few times. */
static struct spawn_result set_below_its_use(const char *job, const char *option,
                                             const struct member **member)
{
    struct spawn_result result = {0};

    for (int i = 0; i < TRIES; i++) {
        spawn_result_free(&result);
        members_end();
        cli_tear_down();
        cli_set_up();
        *member = members_start(MEMBERS_UUID, job, 8192, 5120, 1024);
        result = run("set", job, option);
        if (!strstr(result.out, "no idle memory went back"))
            break;
    }
    return result;
}

static void test_set_below_what_is_in_use_gives_idle_memory_back(void)
{
    const struct member *member;
    struct spawn_result result = set_below_its_use("train-a", "--max=4608M", &member);

    cli_expect_status(0, &result);
    cli_expect_out("max was 8.0 GiB, is 4.5 GiB now\n", &result);
    cli_expect_out("below the 5.0 GiB in use: 512 MiB of idle memory went back; the rest fits\n", &result);
    TEST_ASSERT_EQUAL_UINT64(4608 * MIB, look_up(MEMBERS_UUID, member).used);
    spawn_result_free(&result);
}

static void test_set_below_what_programs_hold_says_that_requests_are_refused(void)
{
    const struct member *member;
    struct spawn_result result = set_below_its_use("train-a", "--max=1G", &member);

    cli_expect_status(0, &result);
    cli_expect_out("1.0 GiB of idle memory went back;\n", &result);
    cli_expect_out("new requests are refused until the programs have freed enough\n", &result);
    TEST_ASSERT_EQUAL_UINT64(4096 * MIB, look_up(MEMBERS_UUID, member).used);
    spawn_result_free(&result);
    result = run("set", "train-a", "--max=2G");
    cli_expect_out("no idle memory went back;\n", &result);
    spawn_result_free(&result);
}

static void test_set_changes_the_job_on_each_card_where_it_is(void)
{
    const char *sim = members_sim_uuid();
    const struct member *here = members_start(sim, "train-a", 8192, 1024, 0);
    const struct member *there = members_start(MEMBERS_UUID, "train-a", 4096, 1024, 0);
    struct spawn_result result = run("set", "train-a", "--max=6G");

    cli_expect_status(0, &result);
    cli_expect_out("train-a on GPU 0: max was 8.0 GiB, is 6.0 GiB now\n", &result);
    cli_expect_out("train-a on GPU-00000000: max was 4.0 GiB, is 6.0 GiB now\n", &result);
    TEST_ASSERT_EQUAL_UINT64(6144 * MIB, look_up(sim, here).job_max);
    TEST_ASSERT_EQUAL_UINT64(6144 * MIB, look_up(MEMBERS_UUID, there).job_max);
    spawn_result_free(&result);
}

static void test_set_says_if_the_card_or_the_max_is_smaller(void)
{
    members_start(members_sim_uuid(), "train-a", 8192, 1024, 0);
    struct spawn_result result = run("set", "train-a", "--min=20G");

    cli_expect_status(0, &result);
    cli_expect_out("train-a on GPU 0: min was none, is 20.0 GiB now\n"
                   "  more than the card has, which is 16.0 GiB\n",
                   &result);
    spawn_result_free(&result);
    result = run("set", "train-a", "--min=9G");
    cli_expect_out("is 9.0 GiB now\n  more than the job's max, which is 8.0 GiB\n", &result);
    spawn_result_free(&result);
    result = run("set", "evening", "--max=20G");
    cli_expect_out("  more than the card has, which is 16.0 GiB\n", &result);
    spawn_result_free(&result);
    result = run("set", "train-a", "--max=none");
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "more than"), result.out);
    spawn_result_free(&result);
}

/* A process id means its job, which may be on cards where that process is not. */
static void test_set_by_process_changes_its_job_on_every_card(void)
{
    const char *sim = members_sim_uuid();
    const struct member *here = members_start(sim, "train-a", 8192, 1024, 0);
    const struct member *there = members_start(MEMBERS_UUID, "train-a", 4096, 1024, 0);
    const struct member *other = members_start(MEMBERS_UUID, "train-b", 4096, 1024, 0);
    struct spawn_result result = run("set", members_pid(here), "--max=6G");

    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_UINT64(6144 * MIB, look_up(sim, here).job_max);
    TEST_ASSERT_EQUAL_UINT64(6144 * MIB, look_up(MEMBERS_UUID, there).job_max);
    TEST_ASSERT_EQUAL_UINT64(4096 * MIB, look_up(MEMBERS_UUID, other).job_max);
    spawn_result_free(&result);
}

static void test_set_takes_a_percentage_of_a_card_whose_size_is_known(void)
{
    const char *sim = members_sim_uuid();
    const struct member *here = members_start(sim, "train-a", 8192, 1024, 0);
    struct spawn_result result = run("set", "train-a", "--max=25%");

    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_UINT64(4096 * MIB, look_up(sim, here).job_max);
    spawn_result_free(&result);
    const struct member *there = members_start(MEMBERS_UUID, "train-b", 8192, 1024, 0);
    result = run("set", "train-b", "--max=25%");
    cli_expect_status(1, &result);
    cli_expect_err("give a size such as 8G, not a percentage", &result);
    TEST_ASSERT_EQUAL_UINT64(8192 * MIB, look_up(MEMBERS_UUID, there).job_max);
    spawn_result_free(&result);
}

static void test_set_makes_a_group_before_its_first_process(void)
{
    members_start(MEMBERS_UUID, "train-a", 8192, 1024, 0);
    struct spawn_result result = run("set", "evening", "--max=3G");

    cli_expect_status(0, &result);
    cli_expect_out("evening on GPU-00000000: max is 3.0 GiB now; it has no process yet\n", &result);
    spawn_result_free(&result);
    const struct member *late = members_start(MEMBERS_UUID, "evening", 8192, 0, 0);
    TEST_ASSERT_EQUAL_UINT64(3072 * MIB, look_up(MEMBERS_UUID, late).job_max);
}

static void test_set_of_a_mistyped_name_makes_nothing(void)
{
    members_start(MEMBERS_UUID, "train-a", 8192, 1024, 0);
    struct spawn_result result = run("set", "trian-a", "--max=3G");

    cli_expect_status(1, &result);
    cli_expect_err("did you mean train-a?", &result);
    spawn_result_free(&result);
    const struct member *late = members_start(MEMBERS_UUID, "trian-a", 8192, 0, 0);
    TEST_ASSERT_EQUAL_UINT64(8192 * MIB, look_up(MEMBERS_UUID, late).job_max);
}

static void test_set_of_a_process_without_a_job_is_refused(void)
{
    const struct member *member = members_start(MEMBERS_UUID, "-", 8192, 1024, 0);
    struct spawn_result result = run("set", members_pid(member), "--max=3G");

    cli_expect_status(1, &result);
    cli_expect_err("without a job", &result);
    spawn_result_free(&result);
}

static void test_bad_words_are_refused(void)
{
    static const struct {
        const char *command, *word, *option, *says;
        int status;
    } cases[] = {
        {"set", "train-a", "--max=lots", "--max='lots' is not valid (not a size)", 125},
        {"set", "train-a", "--max=101%", "a share is from 0.1% to 100%", 125},
        {"set", "train-a", "--max=0", "--max='0' is not valid (a limit of zero leaves no room for CUDA", 125},
        {"set", "train-a", "--max=0G", "--max='0G' is not valid (a limit of zero leaves", 125},
        {"set", "train-a", "--max=8", "--max='8' is not valid (less than 1M: a size needs its unit)", 125},
        {"set", "train-a", "--high=8K", "--high='8K' is not valid (less than 1M", 125},
        {"set", "train-a", "--mex=3G", "did you mean --max?", 125},
        {"set", "train-a", NULL, "usage: gpucap set PID|JOB|GROUP [--max=SIZE] [--min=SIZE]", 125},
        {"set", "a name", "--max=3G", "names cannot have one of its characters", 125},
        {"set", "2147483647", "--max=3G", "no process or job '2147483647'", 1},
        {"set", "all", "--max=3G", "no process or job 'all'", 1},
        {"trim", "nothing", NULL, "no process or job 'nothing'", 1},
        {"trim", "train-a", "--json", "unknown option '--json'", 125},
        {"ps", "--json=1", NULL, "--json takes no value", 125},
        {"ps", "everything", NULL, "unexpected argument 'everything'", 125},
        {"ps", "--json", "--prometheus", "exclude each other", 125},
        {"ps", "--owners=train-a", NULL, "--owners needs a process id, and 'train-a' is not one", 125},
        {"ps", "--owners=2147483647", NULL, "no process or job '2147483647'", 1},
        {"record", "start", "train-a", "record needs a process id, and 'train-a' is not one", 125},
        {"why", "--ledger", NULL, "", 125},
        {"why", "train-a", "train-b", "why: usage: gpucap why PID|JOB", 125},
    };

    members_start(MEMBERS_UUID, "train-a", 8192, 1024, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct spawn_result result = run(cases[i].command, cases[i].word, cases[i].option);

        cli_expect_status(cases[i].status, &result);
        cli_expect_err(cases[i].says, &result);
        if (strstr(cases[i].says, "is not valid")) /* and nothing else */
            TEST_ASSERT_NULL_MESSAGE(strstr(result.err, "usage"), result.err);
        TEST_ASSERT_EQUAL_STRING("", result.out);
        spawn_result_free(&result);
    }
    struct spawn_result result = CLI_RUN(NULL, "record", "start", "1", "--to=%q");
    cli_expect_status(125, &result);
    cli_expect_err("record: --to='%q' is not valid (only p, h or % may follow a %)", &result);
    spawn_result_free(&result);
}

/* ---- trim ---- */

static void test_trim_gives_back_what_idles_and_nothing_else(void)
{
    const struct member *member = members_start(MEMBERS_UUID, "train-a", 8192, 5120, 1024);
    const struct member *other = members_start(MEMBERS_UUID, "train-b", 8192, 2048, 512);
    struct spawn_result result = run("trim", members_pid(member), NULL);

    cli_expect_status(0, &result);
    cli_expect_out(members_pid(member), &result);
    cli_expect_out("1.0 GiB given back by 1 process\n", &result);
    TEST_ASSERT_EQUAL_UINT64(4096 * MIB, look_up(MEMBERS_UUID, member).used);
    TEST_ASSERT_EQUAL_UINT64(0, look_up(MEMBERS_UUID, member).cached);
    TEST_ASSERT_EQUAL_UINT64(512 * MIB, look_up(MEMBERS_UUID, other).cached);
    spawn_result_free(&result);
    result = run("trim", members_pid(member), NULL);
    cli_expect_out("nothing was idle", &result);
    cli_expect_out("nothing given back (1 process asked)\n", &result);
    spawn_result_free(&result);
}

/* Starts a member by this name, and returns what `trim` says of it. */
static struct spawn_result trim_named(const char *name)
{
    struct spawn_env *env = cli_env();
    char script[4 * 4096];

    snprintf(script, sizeof(script),
             "cd '%s' && mkdir -p -m 700 ledger && ln -s '%s' %s && "
             "{ until grep -q ready out; do sleep 0.05; done; '%s' trim long >&2; echo; } | "
             "./%s \"$PWD/ledger\" " MEMBERS_UUID " long 4096 10 0 >out; rm out",
             cli_path(""), spawn_build_path("tests/integration/prog_member"), name,
             spawn_build_path("gpucap"), name);
    struct spawn_result result = spawn_run(env, (const char *const[]){"/bin/sh", "-c", script, NULL}, NULL);
    spawn_env_free(env);
    cli_expect_status(0, &result);
    return result;
}

static void test_trim_cuts_a_long_command_between_letters(void)
{
    struct spawn_result result = trim_named("aäääääääääääääääääääää");

    cli_expect_err("  nothing was idle  aäääääääääääääääääääää ", &result);
    spawn_result_free(&result);
    result =
        trim_named("a日日日日日日日日日日日日日日日日日日日日日日日日日"); /* the ledger has 20 and a part */
    cli_expect_err("  nothing was idle  a日日日日日日日日日日日日日日日日日日日日日日日日日 ", &result);
    spawn_result_free(&result);
}

/* `ps` shows it as idle: that nothing was idle would contradict it. */
static void test_trim_says_that_idle_memory_cannot_go_back(void)
{
    struct member *member = members_start(MEMBERS_UUID, "train-a", 8192, 5120, 14);

    members_tell(member, "stuck");
    struct spawn_result result = run("trim", members_pid(member), NULL);
    cli_expect_status(0, &result);
    cli_expect_out("none of 14 MiB idle can go back", &result);
    cli_expect_out("nothing given back (1 process asked)\n", &result);
    spawn_result_free(&result);
}

static void test_trim_all_reaches_every_job_and_card(void)
{
    members_start(members_sim_uuid(), "train-a", 8192, 5120, 1024);
    members_start(MEMBERS_UUID, "train-b", 8192, 2048, 512);
    members_start(MEMBERS_UUID, "-", 0, 2048, 512);
    struct spawn_result result = run("trim", "all", NULL);

    cli_expect_status(0, &result);
    cli_expect_out("2.0 GiB given back by 3 processes\n", &result);
    spawn_result_free(&result);
}

/* That one is on two cards, and counts once. */
static void test_trim_names_a_process_that_does_not_answer(void)
{
    struct member *deaf = members_start_deaf(MEMBERS_UUID, "train-a", 8192, 5120, 1024);
    const struct member *member = members_start(MEMBERS_UUID, "train-a", 8192, 1024, 256);

    members_tell(deaf, "also " MEMBERS_OTHER_UUID);
    struct spawn_result result = run("trim", "all", NULL);
    char expected[128];

    cli_expect_status(1, &result);
    snprintf(expected, sizeof(expected), "%7s  GPU-00000000  did not answer", members_pid(deaf));
    cli_expect_out(expected, &result);
    cli_expect_out("256 MiB given back by 1 process; 1 did not answer\n", &result);
    TEST_ASSERT_EQUAL_UINT64(0, look_up(MEMBERS_UUID, member).cached);
    spawn_result_free(&result);
}

/* ---- owners ---- */

/* In a folder that root has made for a group of users, the ledger's permissions do not protect one user from
 * another. */
static void test_only_the_owner_changes_a_process(void)
{
    if (geteuid() != 0)
        TEST_IGNORE_MESSAGE("only root can be two users");
    TEST_ASSERT_EQUAL_INT(0, chmod(cli_folder(), 0755));
    TEST_ASSERT_EQUAL_INT(0, mkdir(members_folder(), 0770));
    TEST_ASSERT_EQUAL_INT(0, chown(members_folder(), 0, NOBODY));
    TEST_ASSERT_EQUAL_INT(0, chmod(members_folder(), 02770));
    const struct member *member = members_start(MEMBERS_UUID, "train-a", 8192, 5120, 1024);
    struct spawn_env *env = cli_env();

    spawn_env_set(env, "CLI", spawn_build_path("gpucap"));
    spawn_env_set(env, "MEMBER", members_pid(member));
    struct spawn_result result =
        spawn_run(env,
                  (const char *[]){"setpriv", "--reuid=" NOBODYS_TEXT, "--regid=" NOBODYS_TEXT,
                                   "--clear-groups", "sh", "-c",
                                   "\"$CLI\" version || exit 77; \"$CLI\" set \"$MEMBER\" --max=1G; "
                                   "echo \"set: $?\"; \"$CLI\" trim all; echo \"trim: $?\"",
                                   NULL},
                  NULL);
    const bool runs = result.status != 77 && result.status != 127;
    if (runs) {
        cli_expect_err("only the owner of its processes, or root, may change it", &result);
        cli_expect_out("set: 1\n", &result);
        cli_expect_out("nothing given back (0 processes asked); 1 belongs to other users\ntrim: 1\n",
                       &result);
        TEST_ASSERT_EQUAL_UINT64(8192 * MIB, look_up(MEMBERS_UUID, member).job_max);
        TEST_ASSERT_EQUAL_UINT64(1024 * MIB, look_up(MEMBERS_UUID, member).cached);
    }
    spawn_result_free(&result);
    spawn_env_free(env);
    if (!runs)
        TEST_IGNORE_MESSAGE("another user cannot run gpucap from this build folder");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_set_by_process_changes_the_job);
    RUN_TEST(test_set_by_name_and_separate_value);
    RUN_TEST(test_set_changes_min_and_high_of_a_job);
    RUN_TEST(test_set_below_what_is_in_use_gives_idle_memory_back);
    RUN_TEST(test_set_below_what_programs_hold_says_that_requests_are_refused);
    RUN_TEST(test_set_changes_the_job_on_each_card_where_it_is);
    RUN_TEST(test_set_by_process_changes_its_job_on_every_card);
    RUN_TEST(test_set_says_if_the_card_or_the_max_is_smaller);
    RUN_TEST(test_set_takes_a_percentage_of_a_card_whose_size_is_known);
    RUN_TEST(test_set_makes_a_group_before_its_first_process);
    RUN_TEST(test_set_of_a_mistyped_name_makes_nothing);
    RUN_TEST(test_set_of_a_process_without_a_job_is_refused);
    RUN_TEST(test_bad_words_are_refused);
    RUN_TEST(test_trim_gives_back_what_idles_and_nothing_else);
    RUN_TEST(test_trim_cuts_a_long_command_between_letters);
    RUN_TEST(test_trim_says_that_idle_memory_cannot_go_back);
    RUN_TEST(test_trim_all_reaches_every_job_and_card);
    RUN_TEST(test_trim_names_a_process_that_does_not_answer);
    RUN_TEST(test_only_the_owner_changes_a_process);
    return UNITY_END();
}
