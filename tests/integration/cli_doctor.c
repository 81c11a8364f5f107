/* What `gpucap doctor` promises: it finds what is installed, names what is wrong, and its exit status tells
 * the two apart. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_members.h"
#include "tools/gpucap/symbols.h"
#include "unity.h"

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    members_end();
    cli_tear_down();
}

/* The environment of a healthy machine, with the real library. */
static struct spawn_env *healthy_env(void)
{
    struct spawn_env *env = cli_env();
    spawn_env_unset(env, "GPUCAP_LIB");
    spawn_env_set(env, "GPUCAP_SIM_ID", spawn_sim_id());
    return env;
}

/* Joins wrapped lines. None is longer than 80 columns, unless it is a single word behind topic and kind. */
static void unwrap(char *text)
{
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        TEST_ASSERT_TRUE_MESSAGE(strlen(line) <= 80 || strrchr(line, ' ') < line + 20, line);
        *end = '\n';
    }
    for (char *more; (more = strstr(text, "\n           "));)
        memmove(more, more + 11, strlen(more + 11) + 1);
}

static struct spawn_result doctor(struct spawn_env *env, const char *sim)
{
    struct spawn_result result = CLI_RUN(env, "doctor", sim);
    unwrap(result.out);
    return result;
}

static struct spawn_result examine(struct spawn_env *env)
{
    struct spawn_result result = doctor(env, "--sim=2x16G");
    TEST_ASSERT_EQUAL_STRING("", result.err);
    return result;
}

static void test_healthy_machine_is_described_and_is_status_0(void)
{
    struct spawn_env *env = healthy_env();
    struct spawn_result result = examine(env);
    cli_expect_status(0, &result);
    cli_expect_out("libgpucap.so, version ", &result);
    cli_expect_out("sim/libcuda.so.1, release ", &result);
    cli_expect_out("device 0   simgpu", &result);
    cli_expect_out("device 1   simgpu", &result);
    cli_expect_out("GPU-", &result);
    cli_expect_out("16G in all", &result);
    cli_expect_out("virtual memory management", &result);
    cli_expect_out("limit      device 1: none", &result);
    cli_expect_out(" cuMemAlloc_v2", &result);
    cli_expect_out("preload    nothing else is preloaded", &result);
    cli_expect_out("settings   all others have the defaults", &result);
    cli_expect_out("result     healthy", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_limits_say_where_they_come_from(void)
{
    struct spawn_env *env = healthy_env();
    spawn_env_set(env, "GPUCAP_MAX", "25%,1=2G");
    struct spawn_result result = examine(env);
    cli_expect_out("device 0: 4G (max from GPUCAP_MAX)", &result);
    cli_expect_out("device 1: 2G (max from GPUCAP_MAX)", &result);
    spawn_result_free(&result);
    spawn_env_unset(env, "GPUCAP_MAX");
    TEST_ASSERT_EQUAL_INT(0, mkdir(cli_path(".config"), 0700));
    cli_write(cli_path(".config/gpucap.conf"), "max = 3G\n", 9, 0600);
    result = examine(env);
    cli_expect_out("device 0: 3G (max from ", &result);
    cli_expect_out(".config/gpucap.conf)", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_bad_setting_is_a_problem(void)
{
    struct spawn_env *env = healthy_env();
    spawn_env_set(env, "GPUCAP_MAX", "lots");
    struct spawn_result result = examine(env);
    cli_expect_status(1, &result);
    cli_expect_out("settings   PROBLEM: ", &result);
    cli_expect_out("'lots'", &result);
    spawn_result_free(&result);
    spawn_env_unset(env, "GPUCAP_MAX");
    TEST_ASSERT_EQUAL_INT(0, mkdir(cli_path(".config"), 0700));
    TEST_ASSERT_EQUAL_INT(0, mkdir(cli_path(".config/gpucap.conf"), 0700));
    result = examine(env);
    cli_expect_status(1, &result);
    cli_expect_out(".config/gpucap.conf: Is a directory\n", &result);
    TEST_ASSERT_NULL(strstr(result.out, ": read\n"));
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_library_of_another_version_is_a_problem(void)
{
    struct spawn_env *env = healthy_env();
    spawn_env_set(env, "GPUCAP_LIB", spawn_build_path("tests/integration/libcli_quiet.so"));
    struct spawn_result result = examine(env);
    cli_expect_status(1, &result);
    cli_expect_out("is version 0.0.0", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_preloaded_rival_is_a_problem_and_names_the_symbols(void)
{
    struct spawn_env *env = healthy_env();
    cli_copy(spawn_build_path("tests/integration/libcli_rival.so"), cli_path("rival.so"), 0600);
    spawn_env_set(env, "LD_PRELOAD", cli_path("rival.so"));
    struct spawn_result result = doctor(env, "--sim");
    cli_expect_status(1, &result);
    cli_expect_out("rival.so (from LD_PRELOAD) defines 1 names that gpucap hooks: cuMemAlloc_v2", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_names_that_find_the_hooks_are_not_for_others_to_define(void)
{
    TEST_ASSERT_TRUE(symbols_conflict("dlsym"));
    TEST_ASSERT_TRUE(symbols_conflict("dlvsym"));
    TEST_ASSERT_TRUE(symbols_conflict("cuMemAlloc_v2"));
    TEST_ASSERT_FALSE(symbols_conflict("malloc"));
}

static void test_driver_that_cannot_be_loaded_is_a_problem(void)
{
    struct spawn_env *env = healthy_env();
    cli_write(cli_path("libcuda.so.1"), "not a driver", 12, 0700);
    spawn_env_set(env, "LD_LIBRARY_PATH", cli_folder());
    struct spawn_result result = doctor(env, NULL);
    cli_expect_status(1, &result);
    cli_expect_out("driver     PROBLEM: ", &result);
    cli_expect_out("libcuda.so.1", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_running_mps_daemon_is_seen(void)
{
    char pid[32];
    struct spawn_env *env = healthy_env();
    int length = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    spawn_env_set(env, "CUDA_MPS_PIPE_DIRECTORY", cli_folder());
    struct spawn_result result = examine(env);
    cli_expect_out("mps        not active", &result);
    spawn_result_free(&result);
    cli_write(cli_path("nvidia-cuda-mps-control.pid"), pid, (size_t)length, 0600);
    result = examine(env);
    cli_expect_out("mps        active: daemon ", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_limit_of_mps_is_a_warning_and_is_status_1(void)
{
    struct spawn_env *env = healthy_env();
    spawn_env_set(env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G");
    struct spawn_result result = examine(env);
    cli_expect_status(1, &result);
    cli_expect_out("mps        WARNING: ", &result);
    cli_expect_out("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G", &result);
    cli_expect_out("result     1 warning found", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_ledgers_and_their_processes_are_counted(void)
{
    struct spawn_env *env = healthy_env();
    struct spawn_result result = examine(env);
    cli_expect_out("/ledger: none yet", &result);
    spawn_result_free(&result);
    members_start(MEMBERS_UUID, "job", 4096, 1024, 0);
    members_start(MEMBERS_UUID, "job", 4096, 1024, 0);
    result = examine(env);
    cli_expect_status(0, &result);
    cli_expect_out("/ledger: 1 card\n", &result);
    cli_expect_out("ledger     " MEMBERS_UUID ": 2 processes\n", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_processes_whose_ledger_was_removed_are_named(void)
{
    struct spawn_env *env = healthy_env();
    const struct member *member = members_start(MEMBERS_UUID, "job", 4096, 1024, 0);
    char path[512], expected[128];

    snprintf(path, sizeof(path), "%s/" MEMBERS_UUID ".ledger", members_folder());
    TEST_ASSERT_EQUAL_INT(0, unlink(path));
    members_start(MEMBERS_UUID, "job", 4096, 1024, 0);
    struct spawn_result result = examine(env);
    cli_expect_status(1, &result);
    snprintf(expected, sizeof(expected), "the ledger of process %s was removed", members_pid(member));
    cli_expect_out(expected, &result);
    cli_expect_out("ledger     " MEMBERS_UUID ": 1 process\n", &result);
    spawn_result_free(&result);
    result = CLI_RUN(env, "ps");
    cli_expect_status(0, &result);
    snprintf(expected, sizeof(expected), "gpucap: ps: process %s is not shown: its ledger was removed\n",
             members_pid(member));
    cli_expect_err(expected, &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_ledger_folder_that_others_can_use_is_named(void)
{
    struct spawn_env *env = healthy_env();
    TEST_ASSERT_EQUAL_INT(0, mkdir(members_folder(), 0700));
    TEST_ASSERT_EQUAL_INT(0, chmod(members_folder(), 0755));
    struct spawn_result result = examine(env);
    cli_expect_status(1, &result);
    cli_expect_out("ledger     WARNING: other users may look into the folder", &result);
    spawn_result_free(&result);
    TEST_ASSERT_EQUAL_INT(0, chmod(members_folder(), 0777));
    result = examine(env);
    cli_expect_status(1, &result);
    cli_expect_out("ledger     PROBLEM: everyone may write to the folder", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_ledger_folder_without_room_is_a_problem(void)
{
    struct spawn_env *env = healthy_env();

    TEST_ASSERT_EQUAL_INT(0, mkdir(members_folder(), 0700));
    struct spawn_result result = spawn_run(
        env,
        (const char *[]){"unshare", "-Urm", "sh", "-c",
                         "mount -t tmpfs -o size=64k,mode=700 none \"$0\" || exit 77; exec \"$@\"",
                         members_folder(), spawn_build_path("gpucap"), "doctor", "--sim=1x2G", NULL},
        NULL);
    unwrap(result.out);
    const bool allowed = strstr(result.out, "result ") != NULL;
    if (allowed)
        cli_expect_out(" has no room for a card's ledger (512 KiB)", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
    if (!allowed)
        TEST_IGNORE_MESSAGE("no file system may be mounted here");
}

static void test_ledger_that_cannot_be_used_is_a_problem(void)
{
    struct spawn_env *env = healthy_env();
    char path[4096];
    TEST_ASSERT_EQUAL_INT(0, mkdir(members_folder(), 0700));
    snprintf(path, sizeof(path), "%s/" MEMBERS_UUID ".ledger", members_folder());
    cli_write(path, "older", 5, 0600);
    struct spawn_result result = examine(env);
    cli_expect_status(0, &result); /* no program uses it, so the next one replaces it */
    spawn_result_free(&result);
    const int fd = members_use(path);
    result = examine(env);
    cli_expect_status(1, &result);
    cli_expect_out("ledger     PROBLEM: the ledger of " MEMBERS_UUID
                   " is of another version, and programs use it",
                   &result);
    close(fd);
    spawn_result_free(&result);
    spawn_env_set(env, "GPUCAP_LEDGER", path);
    result = examine(env);
    cli_expect_status(1, &result);
    cli_expect_out("is not a folder", &result);
    spawn_result_free(&result);
    spawn_env_set(env, "GPUCAP_LEDGER", "/proc/self/ledger");
    result = examine(env);
    cli_expect_status(1, &result);
    cli_expect_out("ledger     PROBLEM: ", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_bad_arguments_are_refused(void)
{
    struct spawn_result result = CLI_RUN(NULL, "doctor", "--sin");
    cli_expect_status(125, &result);
    cli_expect_err("did you mean --sim?", &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "doctor", "everything");
    cli_expect_status(125, &result);
    spawn_result_free(&result);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_healthy_machine_is_described_and_is_status_0);
    RUN_TEST(test_limits_say_where_they_come_from);
    RUN_TEST(test_bad_setting_is_a_problem);
    RUN_TEST(test_library_of_another_version_is_a_problem);
    RUN_TEST(test_preloaded_rival_is_a_problem_and_names_the_symbols);
    RUN_TEST(test_names_that_find_the_hooks_are_not_for_others_to_define);
    RUN_TEST(test_driver_that_cannot_be_loaded_is_a_problem);
    RUN_TEST(test_running_mps_daemon_is_seen);
    RUN_TEST(test_limit_of_mps_is_a_warning_and_is_status_1);
    RUN_TEST(test_ledgers_and_their_processes_are_counted);
    RUN_TEST(test_processes_whose_ledger_was_removed_are_named);
    RUN_TEST(test_ledger_folder_that_others_can_use_is_named);
    RUN_TEST(test_ledger_folder_without_room_is_a_problem);
    RUN_TEST(test_ledger_that_cannot_be_used_is_a_problem);
    RUN_TEST(test_bad_arguments_are_refused);
    return UNITY_END();
}
