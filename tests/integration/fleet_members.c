/* A fleet survives every way in which a member can end, reports it, treats the members' output as untrusted,
 * and leaves no process behind. The members are shell scripts. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_support.h"
#include "unity.h"

#define TRAINS "for i in 1 2 3; do echo \"step $i/3 loss 0.$i\" >&2; done; echo steps=3 step_ms=1.5"

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    cli_tear_down();
}

static struct spawn_result run_fleet(const char *const *arguments)
{
    const char *argv[32] = {spawn_build_path("fleet")};
    struct spawn_env *env = cli_env();

    for (size_t i = 0; arguments[i] && i < 30; i++)
        argv[i + 1] = arguments[i];
    struct spawn_result result = spawn_run(env, argv, NULL);
    spawn_env_free(env);
    return result;
}
#define FLEET(...) run_fleet((const char *const[]){__VA_ARGS__, NULL})

/* A shell that knows fleet as $FLEET and a scratch folder as $SCRATCH. */
static struct spawn_result run_script(const char *script)
{
    struct spawn_env *env = cli_env();

    spawn_env_set(env, "FLEET", spawn_build_path("fleet"));
    spawn_env_set(env, "SCRATCH", cli_folder());
    struct spawn_result result = spawn_run(env, (const char *[]){"sh", "-c", script, NULL}, NULL);
    spawn_env_free(env);
    return result;
}

static void test_a_fleet_of_one_trains(void)
{
    struct spawn_result result = FLEET("--quiet", "--", "sh", "-c", TRAINS);

    cli_expect_status(0, &result);
    cli_expect_out("end=ok code=0 steps=3 ", &result);
    cli_expect_out("step_ms=1.500 loss=0.3", &result);
    cli_expect_out("members=1 ok=1 steps=3 ", &result);
    spawn_result_free(&result);
}

static void test_a_fleet_of_thirty_two_trains(void)
{
    struct spawn_result result = FLEET("--quiet", "--processes=32", "--", "sh", "-c", TRAINS);

    cli_expect_status(0, &result);
    cli_expect_out("members=32 ok=32 steps=96 ", &result);
    spawn_result_free(&result);
}

static void test_every_death_is_named_and_the_others_go_on(void)
{
    struct spawn_result result = FLEET(
        "--", "sh", "-c", "sleep 0.3; " TRAINS, "--", "sh", "-c", "echo device: OUT OF MEMORY >&2; exit 3",
        "--", "sh", "-c", "kill -9 $$", "--", "sh", "-c", "exit 7", "--", "no-such-program-anywhere");

    cli_expect_status(1, &result);
    cli_expect_out("members=5 ok=1 ", &result);
    cli_expect_out("end=ok code=0 steps=3", &result);
    cli_expect_out("member 1: out of memory: device: OUT OF MEMORY\n", &result);
    cli_expect_out("member 2: killed by signal 9 (Killed)\n", &result);
    cli_expect_out("member 3: exit status 7\n", &result);
    cli_expect_out("member 4: not started: No such file or directory: no-such-program-anywhere\n", &result);
    spawn_result_free(&result);
}

static void test_only_the_status_3_of_train_itself_means_out_of_memory(void)
{
    struct spawn_result result =
        run_script("printf '#!/bin/sh\\nexit $1\\n' >$SCRATCH/train; chmod +x $SCRATCH/train; $FLEET --quiet "
                   "-- sh -c 'exit 3' "
                   "-- sh -c 'exit 4' -- $SCRATCH/train 3 -- $SCRATCH/train 4; rm $SCRATCH/train");

    cli_expect_out("member 0: exit status 3\n", &result);
    cli_expect_out("member 1: exit status 4\n", &result);
    cli_expect_out("member 2: out of memory\n", &result);
    cli_expect_out("member 3: exit status 4 (loss not finite)\n", &result);
    spawn_result_free(&result);
}

static void test_caps_that_exceed_the_card_are_warned_of(void)
{
    struct spawn_result result = FLEET("--sim=1x8G", "--each=3G", "--processes=3", "--", "sh", "-c", TRAINS);

    cli_expect_status(0, &result);
    cli_expect_err("fleet: the caps add up to 9.00 GiB, but the card has 8.00 GiB:\n" /* in 80 columns */
                   "fleet: not all members may get theirs\n",
                   &result);
    spawn_result_free(&result);
    result = FLEET("--sim=1x8G", "--each=50%", "--processes=2", "--", "sh", "-c", TRAINS);
    cli_expect_status(0, &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.err, "the caps add up"), result.err);
    spawn_result_free(&result);
}

static void test_output_without_bound_or_sense_changes_nothing(void)
{
    char logs[512];

    snprintf(logs, sizeof(logs), "--logs=%s", cli_path("logs"));
    struct spawn_result result =
        FLEET(logs, "--processes=2", "--", "sh", "-c",
              "head -c 3000000 /dev/urandom >&2; head -c 3000000 /dev/zero;"
              "printf '\\nstep 9999999999999999999999/1 loss 1e999\\n\\033[2J steps=nan step_ms=-5' >&2",
              "--", "sh", "-c", TRAINS);

    cli_expect_out("members=4 ok=4 ", &result);
    for (const char *c = result.out; *c; c++)
        TEST_ASSERT_TRUE_MESSAGE(*c == '\n' || isprint((unsigned char)*c), "an odd byte in the report");
    for (const char *c = result.err; *c; c++)
        TEST_ASSERT_TRUE_MESSAGE(*c == '\n' || isprint((unsigned char)*c), "an odd byte in the progress");
    TEST_ASSERT_TRUE(result.out_len < 8192);
    struct stat log;
    TEST_ASSERT_EQUAL_INT(0, stat(cli_path("logs/0.log"), &log));
    TEST_ASSERT_TRUE(log.st_size <= 1 << 20);
    spawn_result_free(&result);
}

static void test_the_cap_reaches_each_member(void)
{
    struct spawn_result result = run_script(
        "$FLEET --each=3G --quiet --logs=$SCRATCH/l --processes=2 -- sh -c 'echo max=$GPUCAP_MAX' &&"
        "cat $SCRATCH/l/0.log $SCRATCH/l/1.log");

    cli_expect_status(0, &result);
    cli_expect_out("max=3G\nmax=3G\n", &result);
    spawn_result_free(&result);
}

static void test_members_of_a_job_share_its_max_and_its_name(void)
{
    struct spawn_result result =
        run_script("$FLEET --job=3G --each=2G --wait=7 --quiet --logs=$SCRATCH/l --processes=2 -- sh -c "
                   "'echo max=$GPUCAP_MAX each=$GPUCAP_EACH wait=$GPUCAP_WAIT $GPUCAP_GROUP' &&"
                   "cat $SCRATCH/l/0.log $SCRATCH/l/1.log | sort -u");

    cli_expect_status(0, &result);
    const char *line = strstr(result.out, "max=3G each=2G wait=7 fleet-");
    TEST_ASSERT_NOT_NULL_MESSAGE(line, result.out);
    TEST_ASSERT_NULL_MESSAGE(strstr(line + 1, "max=3G"), "two members, one job");
    spawn_result_free(&result);
}

/* A busy machine may not run the other member within a second: then with a longer limit. */
static void test_a_slow_member_is_ended_by_the_time_limit(void)
{
    static const char *const limits[] = {"--timeout=1", "--timeout=15", "--timeout=100"};
    bool other_trained = false;

    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits) && !other_trained; i++) {
        struct spawn_result result =
            FLEET(limits[i], "--quiet", "--", "sleep", "1000", "--", "sh", "-c", TRAINS);

        cli_expect_status(1, &result);
        cli_expect_out("member 0: timed out\n", &result);
        other_trained = strstr(result.out, "members=2 ok=1 ") != NULL;
        spawn_result_free(&result);
    }
    TEST_ASSERT_TRUE(other_trained);
}

static void test_serial_comes_first_where_it_is_asked_for(void)
{
    struct spawn_result result =
        FLEET("--quiet", "--baseline=serial", "--processes=2", "--", "sh", "-c", "sleep 0.2; " TRAINS);

    cli_expect_status(0, &result);
    cli_expect_out(" alone_seconds=", &result);
    TEST_ASSERT_TRUE_MESSAGE(atof(strstr(result.out, " alone_seconds=") + strlen(" alone_seconds=")) >= 0.2,
                             result.out);
    cli_expect_out(" serial_wall_s=", &result);
    cli_expect_out(" throughput_against_serial=", &result);
    spawn_result_free(&result);
}

/* Members that record their process ids, ignore signals, and have a child of their own. */
#define STUBBORN                                                                                             \
    "-- sh -c 'trap \"\" TERM INT; sleep 1000 & echo $! >>$SCRATCH/pids; echo $$ >>$SCRATCH/pids; wait'"
#define WAIT_FOR_6 "while [ \"$(wc -l <$SCRATCH/pids 2>/dev/null || echo 0)\" -lt 6 ]; do sleep 0.05; done;"
/* A zombie that init has not reaped yet does not count. A process that was sent a signal may take a while to
 * be run again and end: 200 s for all of them. */
#define COUNT_LIVING                                                                                         \
    "lives() { case $(sed 's/.*) //' /proc/$1/stat 2>/dev/null) in ''|Z*) return 1;; esac; }; tries=2000; "  \
    "for p in $(cat $SCRATCH/pids 2>/dev/null); do "                                                         \
    "while lives $p && [ $tries -gt 0 ]; do sleep 0.1; tries=$((tries - 1)); done; "                         \
    "if lives $p; then echo alive $p; kill -9 $p; fi; done; echo counted"

static void expect_none_alive(const char *script, const char *expected)
{
    struct spawn_result result = run_script(script);

    cli_expect_status(0, &result);
    cli_expect_out(expected, &result);
    cli_expect_out("counted", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "alive"), result.out);
    spawn_result_free(&result);
}

static void test_a_signal_ends_all_and_leaves_no_process(void)
{
    expect_none_alive("$FLEET --quiet --processes=3 " STUBBORN " >$SCRATCH/out & f=$!; " WAIT_FOR_6
                      "kill -TERM $f; sleep 0.2; kill -TERM $f; wait $f; echo status=$?; " COUNT_LIVING,
                      "status=143");
}

/* Such a terminal sends SIGHUP more than once. */
static void test_members_may_save_when_the_terminal_closes(void)
{
    struct spawn_result result = run_script(
        "cd $SCRATCH; until_there() { until [ -e $1 ]; do sleep 0.01; done; }; "
        "$FLEET --quiet -- sh -c 'trap \"touch asked; until [ -e go ]; do sleep 0.01; done; touch saved; "
        "exit\" "
        "HUP; touch ready; while :; do sleep 0.01; done' >out & f=$!; until_there ready; kill -HUP $f; "
        "until_there asked; kill -HUP $f; sleep 0.1; touch go; wait $f; echo status=$?; ls saved");

    cli_expect_out("status=129\nsaved\n", &result);
    spawn_result_free(&result);
}

/* As under nohup, and in the background of a shell. */
static void test_a_signal_that_was_ignored_at_the_start_stops_nothing(void)
{
    struct spawn_result result = run_script(
        "cd $SCRATCH; trap '' HUP INT; $FLEET --quiet -- sh -c 'touch ready; until [ -e go ]; do sleep 0.01; "
        "done' >out & f=$!; until [ -e ready ]; do sleep 0.01; done; kill -HUP $f; kill -INT $f; touch go; "
        "wait $f; echo status=$?; cat out");

    cli_expect_out("status=0\n", &result);
    cli_expect_out("members=1 ok=1 ", &result);
    spawn_result_free(&result);
}

static void test_a_member_that_was_stopped_and_could_not_save_is_named(void)
{
    struct spawn_result result = run_script(
        "cd $SCRATCH; printf '#!/bin/sh\\nexec 2>/dev/null; trap \"exit $1\" TERM; touch ready$1; while :; "
        "do sleep 0.01; "
        "done\\n' >train; chmod +x train; $FLEET --quiet -- $SCRATCH/train 6 -- $SCRATCH/train 5 >out & "
        "f=$!; "
        "until [ -e ready6 ] && [ -e ready5 ]; do sleep 0.01; done; kill -TERM $f; wait $f; cat out");

    cli_expect_out("member 0: stopped (not saved)\n", &result);
    cli_expect_out("member 1: stopped\n", &result);
    spawn_result_free(&result);
}

static void test_members_outlive_a_reader_that_goes_away(void)
{
    struct spawn_result result =
        run_script("mkfifo $SCRATCH/pipe; exec 3<>$SCRATCH/pipe 4>$SCRATCH/pipe 3<&-; "
                   "$FLEET -- sh -c '" TRAINS "' 2>&4; echo status=$?");

    cli_expect_out("members=1 ok=1 ", &result);
    cli_expect_out("status=0", &result);
    spawn_result_free(&result);
}

static void test_a_signal_at_any_early_moment_leaves_no_process(void)
{
    expect_none_alive("for delay in 0 0.005 0.01 0.02 0.03 0.05; do "
                      "$FLEET --quiet --processes=3 -- sh -c 'echo $$ >>$SCRATCH/pids; exec sleep 1000' "
                      ">$SCRATCH/out & f=$!; sleep $delay; kill -TERM $f; wait $f; "
                      "[ $? = 143 ] || echo wrong; done; echo ended;" COUNT_LIVING,
                      "ended\ncounted");
}

static void test_members_die_with_a_killed_fleet(void)
{
    expect_none_alive("$FLEET --quiet --processes=6 -- sh -c 'echo $$ >>$SCRATCH/pids; exec sleep 1000' "
                      ">$SCRATCH/out & f=$!; " WAIT_FOR_6
                      "kill -KILL $f; wait $f; echo status=$?; " COUNT_LIVING,
                      "status=137");
}

static void test_bad_use_starts_nothing(void)
{
    struct spawn_result result = FLEET("--each=lots", "--", "sh", "-c", "echo started >&2");

    cli_expect_status(2, &result);
    cli_expect_err("fleet: --each='lots' is not valid (not a size); accepted: 8G", &result);
    TEST_ASSERT_NULL(strstr(result.err, "started"));
    spawn_result_free(&result);
    result = FLEET("--sim=few", "--", "sh", "-c", "echo started >&2");
    cli_expect_status(2, &result);
    cli_expect_err("--sim='few' is not valid", &result);
    TEST_ASSERT_NULL(strstr(result.err, "started"));
    spawn_result_free(&result);
    result = FLEET("--sim=1x1G", "--mps", "--", "sh", "-c", "echo started >&2");
    cli_expect_status(1, &result);
    cli_expect_err("MPS needs a GPU", &result);
    TEST_ASSERT_NULL(strstr(result.err, "started"));
    spawn_result_free(&result);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_fleet_of_one_trains);
    RUN_TEST(test_a_fleet_of_thirty_two_trains);
    RUN_TEST(test_every_death_is_named_and_the_others_go_on);
    RUN_TEST(test_only_the_status_3_of_train_itself_means_out_of_memory);
    RUN_TEST(test_caps_that_exceed_the_card_are_warned_of);
    RUN_TEST(test_output_without_bound_or_sense_changes_nothing);
    RUN_TEST(test_the_cap_reaches_each_member);
    RUN_TEST(test_members_of_a_job_share_its_max_and_its_name);
    RUN_TEST(test_a_slow_member_is_ended_by_the_time_limit);
    RUN_TEST(test_serial_comes_first_where_it_is_asked_for);
    RUN_TEST(test_a_signal_ends_all_and_leaves_no_process);
    RUN_TEST(test_members_may_save_when_the_terminal_closes);
    RUN_TEST(test_a_signal_that_was_ignored_at_the_start_stops_nothing);
    RUN_TEST(test_a_member_that_was_stopped_and_could_not_save_is_named);
    RUN_TEST(test_members_outlive_a_reader_that_goes_away);
    RUN_TEST(test_a_signal_at_any_early_moment_leaves_no_process);
    RUN_TEST(test_members_die_with_a_killed_fleet);
    RUN_TEST(test_bad_use_starts_nothing);
    return UNITY_END();
}
