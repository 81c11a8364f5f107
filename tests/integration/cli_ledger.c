/* What `gpucap ps` promises: every process that shares a ledger is shown with fresh figures, in three forms
 * that other programs can read. */
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli_members.h"
#include "interpose/account/ledger_file.h"
#include "unity.h"

#if GPUCAP_HAS_JSON
#include <cjson/cJSON.h>
#endif

#define MIB          1048576.0
#define PATIENCE_S   200   /* ends a hang; nothing may count on being faster */
#define QUICK_S      100.0 /* a query waits for 50 ms at most; the rest is for slow machines */
#define LINE_COLUMNS 80

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    members_end();
    cli_tear_down();
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static struct spawn_result run_ps(const char *form)
{
    struct spawn_env *env = cli_env();

    spawn_env_set(env, "GPUCAP_SIM_ID", spawn_sim_id());
    struct spawn_result result = CLI_RUN(env, "ps", MEMBERS_SIM, form);
    spawn_env_free(env);
    return result;
}

/* ---- the table ---- */

static void need_table(void)
{
#if !GPUCAP_HAS_TABLE
    struct spawn_result result = run_ps(NULL);
    cli_expect_status(125, &result);
    cli_expect_err("libsmartcols-dev", &result);
    spawn_result_free(&result);
    TEST_IGNORE_MESSAGE("built without libsmartcols; ps says so");
#endif
}

static void await_in_ps(const char *text)
{
    const double until = now_s() + PATIENCE_S;

    for (bool found = false; !found;) {
        struct spawn_result result = run_ps(NULL);

        found = strstr(result.out, text) != NULL;
        TEST_ASSERT_TRUE_MESSAGE(found || now_s() < until, result.out);
        spawn_result_free(&result);
    }
}

static void test_ps_shows_jobs_and_their_processes(void)
{
    need_table();
    const char *uuid = members_sim_uuid();
    const struct member *first = members_start(uuid, "train-a", 8192, 5222, 1946);
    const struct member *second = members_start(uuid, "train-a", 8192, 2867, 0);
    const struct member *alone = members_start(uuid, "-", 0, 512, 0);
    struct spawn_result result = run_ps(NULL);

    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_STRING("", result.err);
    cli_expect_out("GPU 0  simgpu", &result);
    cli_expect_out("16.0 GiB\nmanaged 8.4 GiB (idle 1.9 GiB)", &result);
    cli_expect_out(members_pid(first), &result);
    cli_expect_out(members_pid(second), &result);
    cli_expect_out(members_pid(alone), &result);
    cli_expect_out("train-a", &result);
    cli_expect_out("5.1 GiB", &result);
    cli_expect_out("1.9 GiB", &result);
    cli_expect_out("8.0 GiB", &result);
    cli_expect_out("512 MiB", &result);
    cli_expect_out("   \"", &result); /* the second process shares the first one's limit */
    cli_expect_out("none", &result);
    cli_expect_out("prog_member", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "STATE"),
                             "no process has a state to show, so there is no such column");
    spawn_result_free(&result);
}

/* The limit of each process alone is not shared with another, and the job's is shown as well. */
static void test_ps_shows_limits_of_processes_beside_their_jobs(void)
{
    need_table();
    struct member *first = members_start(MEMBERS_UUID, "train-a", 8192, 1024, 0);
    struct member *second = members_start(MEMBERS_UUID, "train-a", 8192, 1024, 0);

    members_tell(first, "each 4096");
    members_tell(second, "each 4096");
    struct spawn_result result = run_ps(NULL);
    cli_expect_out("\ntrain-a: max 8.0 GiB\n", &result);
    const char *limit = strstr(result.out, "4.0 GiB");
    TEST_ASSERT_TRUE_MESSAGE(limit && strstr(limit + 1, "4.0 GiB"), result.out);
    TEST_ASSERT_NULL_MESSAGE(strchr(result.out, '"'), result.out);
    spawn_result_free(&result);
}

static void test_ps_breaks_the_line_of_a_job_with_a_long_name(void)
{
    static const char job[] = "evaluation-of-the-large-model-second-run1";
    struct member *member = members_start(MEMBERS_UUID, job, 8192, 1024, 0);
    struct spawn_result result;

    need_table();
    members_tell(member, "each 4096");
    result = CLI_RUN(NULL, "set", job, "--min=4G", "--high=6G");
    cli_expect_status(0, &result);
    spawn_result_free(&result);
    result = run_ps(NULL);
    cli_expect_out("\nevaluation-of-the-large-model-second-run1: max 8.0 GiB, min 4.0 GiB (3.0 GiB\n"
                   "  kept free), high 6.0 GiB\n",
                   &result);
    spawn_result_free(&result);
}

static void test_ps_asks_for_fresh_figures(void)
{
    need_table();
    struct member *member = members_start(MEMBERS_UUID, "job", 4096, 1024, 0);

    /* The member publishes these only when it is asked; on a busy machine its answer may take longer than ps
     * waits, and the next one sees it. */
    members_tell(member, "later 2048 512");
    await_in_ps("2.0 GiB");
    struct spawn_result result = run_ps(NULL);
    cli_expect_out("512 MiB", &result);
    TEST_ASSERT_NULL(strstr(result.out, "1.0 GiB"));
    spawn_result_free(&result);
}

static void test_ps_does_not_wait_for_a_process_that_does_not_answer(void)
{
    need_table();
    for (int i = 0; i < 4; i++)
        members_start_deaf(MEMBERS_UUID, "deaf", 4096, 128, 0);
    const double start = now_s();
    struct spawn_result result = run_ps(NULL);

    TEST_ASSERT_TRUE(now_s() - start < QUICK_S);
    cli_expect_status(0, &result);
    cli_expect_out("128 MiB", &result);
    spawn_result_free(&result);
}

static void test_ps_says_who_waits_for_how_much(void)
{
    need_table();
    members_start(MEMBERS_UUID, "job", 1024, 1024, 0);
    struct member *waiter = members_start(MEMBERS_UUID, "job", 1024, 0, 0);
    members_tell(waiter, "wait 512");
    await_in_ps("waiting for 512 MiB");
}

static void test_ps_on_a_narrow_terminal_stays_within_it(void)
{
    need_table();
    struct spawn_env *env = cli_env();

    members_start(MEMBERS_UUID, "a-job-with-a-long-name-that-does-not-fit-a-table", 8192, 5222, 1946);
    spawn_env_set(env, "CLI", spawn_build_path("gpucap"));
    spawn_env_set(env, "COLUMNS", "80");
    struct spawn_result result = spawn_run(
        env, (const char *[]){"script", "-qec", "stty cols 80; \"$CLI\" ps", "/dev/null", NULL}, NULL);
    if (result.status == 127) {
        spawn_result_free(&result);
        spawn_env_free(env);
        TEST_IGNORE_MESSAGE("there is no script(1) here");
    }
    cli_expect_out("5.1 GiB", &result);
    cli_expect_out(" a-job-with-a-lo+ ", &result);
    for (const char *line = strtok(result.out, "\r\n"); line; line = strtok(NULL, "\r\n"))
        TEST_ASSERT_TRUE_MESSAGE(strlen(line) <= LINE_COLUMNS, line);
    spawn_result_free(&result);
    spawn_env_free(env);
}

/* Under the library, NVML would report a card as large as the limit. */
static void test_ps_under_a_limit_shows_the_card_as_it_is(void)
{
    struct spawn_env *env = cli_env_real();

    members_start(members_sim_uuid(), "job", 4096, 1024, 0);
    spawn_env_set(env, "GPUCAP_SIM_ID", spawn_sim_id());
    struct spawn_result result =
        CLI_RUN(env, "run", MEMBERS_SIM, "--max=2G", "--", spawn_build_path("gpucap"), "ps", "--prometheus");
    cli_expect_status(0, &result);
    cli_expect_out("gpucap_card_total_bytes{gpu=\"0\",", &result);
    cli_expect_out("} 17179869184\n", &result);
    TEST_ASSERT_EQUAL_STRING("", result.err);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_ps_without_ledgers_says_so_and_is_no_failure(void)
{
    need_table();
    struct spawn_result result = run_ps(NULL);

    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_STRING("", result.out);
    cli_expect_err("; --ledger=DIR looks elsewhere)\n", &result);
    cli_expect_err(members_folder(), &result);
    spawn_result_free(&result);
}

#ifdef HAS_WALK
/* What `gpucap ps` shows while a program that knows nothing of gpucap has 100 MiB of the card. A command
 * follows on `ps`, lest the shell becomes `ps` and closes the program's input. */
static struct spawn_result run_ps_beside_a_program(const char *form)
{
    struct spawn_env *env = cli_env_real();
    char script[4 * 4096];

    snprintf(
        script, sizeof(script),
        "rm -f '%s'; { echo take 100; until grep -q 'has 100' '%s'; do sleep 0.05; done; '%s' ps " MEMBERS_SIM
        " %s >&2; echo; } | '%s' >'%s'",
        cli_path("said"), cli_path("said"), spawn_build_path("gpucap"), form,
        spawn_build_path("tests/integration/prog_walk"), cli_path("said"));
    spawn_env_set(env, "GPUCAP_SIM", "1x16G");
    spawn_env_set(env, "LD_LIBRARY_PATH", spawn_build_path("sim"));
    struct spawn_result result = spawn_run(env, (const char *const[]){"/bin/sh", "-c", script, NULL}, NULL);
    spawn_env_free(env);
    cli_expect_status(0, &result);
    return result;
}

static void test_ps_names_the_programs_that_do_not_run_under_gpucap(void)
{
    struct spawn_result result = run_ps_beside_a_program("");

    cli_expect_err("GPU 0  simgpu  16.0 GiB\nmanaged 0 (idle 0), other programs ", &result);
    cli_expect_err("    -    -     - prog_walk\n", &result);
    cli_expect_err("no process runs under gpucap here", &result);
    spawn_result_free(&result);
    result = run_ps_beside_a_program("--json");
    cli_expect_err("\"unmanaged\":", &result);
    cli_expect_err("\"command\":\t\"prog_walk\"", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.err, "\"error\""), result.err);
    spawn_result_free(&result);
}

/* Programs under gpucap on two cards: neither is one that does not run under it. */
static void test_ps_knows_the_programs_of_every_card(void)
{
    static const char script[] =
        "has() { until grep -q 'has 100' \"$SAID.$1\"; do sleep 0.05; done; }; : >$SAID.0; : >$SAID.1; "
        "{ echo take 100; has 0; { echo take 100; has 1; \"$CLI\" ps --sim=2x16G >&2; echo; } | "
        "CUDA_VISIBLE_DEVICES=1 \"$CLI\" run --max=1G \"$WALK\" >$SAID.1; echo; } | "
        "\"$CLI\" run --max=1G \"$WALK\" >$SAID.0";
    struct spawn_env *env = cli_env_real();

    spawn_env_set(env, "GPUCAP_SIM", "2x16G");
    spawn_env_set(env, "LD_LIBRARY_PATH", spawn_build_path("sim"));
    spawn_env_set(env, "CLI", spawn_build_path("gpucap"));
    spawn_env_set(env, "WALK", spawn_build_path("tests/integration/prog_walk"));
    spawn_env_set(env, "SAID", cli_path("said"));
    struct spawn_result result = spawn_run(env, (const char *const[]){"/bin/sh", "-c", script, NULL}, NULL);
    cli_expect_status(0, &result);
    cli_expect_err("GPU 1 ", &result);
    cli_expect_err("1.0 GiB prog_walk\n", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.err, " - prog_walk\n"), result.err);
    spawn_result_free(&result);
    spawn_env_free(env);
}

/* The driver calls a MIG slice "GPU-...", NVML "MIG-...": the commands find it, and list it once. */
static void test_ps_and_set_know_a_slice(void)
{
    static const char script[] =
        "has() { until grep -q 'has 100' \"$SAID.$1\"; do sleep 0.05; done; }; : >$SAID.0; : >$SAID.1; "
        "{ echo take 100; has 0; { echo take 100; has 1; \"$CLI\" ps --sim=$SPEC >&2; "
        "\"$CLI\" set slice --max=25% --sim=$SPEC >&2; echo; } | "
        "\"$WALK\" >$SAID.1; echo; } | \"$CLI\" run --group=slice --max=1G \"$WALK\" >$SAID.0";
    struct spawn_env *env = cli_env_real();

    spawn_env_set(env, "SPEC", "1x16G/mig");
    spawn_env_set(env, "GPUCAP_SIM", "1x16G/mig");
    spawn_env_set(env, "LD_LIBRARY_PATH", spawn_build_path("sim"));
    spawn_env_set(env, "CLI", spawn_build_path("gpucap"));
    spawn_env_set(env, "WALK", spawn_build_path("tests/integration/prog_walk"));
    spawn_env_set(env, "SAID", cli_path("said"));
    struct spawn_result result = spawn_run(env, (const char *const[]){"/bin/sh", "-c", script, NULL}, NULL);
    cli_expect_status(0, &result);
    cli_expect_err("simgpu  16.0 GiB\n", &result);
    cli_expect_err(" 1.0 GiB prog_walk\n", &result);
    cli_expect_err(" - prog_walk\n", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(strstr(result.err, "managed") + 1, "\nmanaged"), result.err);
    cli_expect_err("max was 1.0 GiB, is 4.0 GiB now", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

/* NVML does not list the ledger's process, so it counts processes otherwise: as if from another PID
 * namespace. */
static void test_ps_does_not_take_other_numbers_for_programs_without_gpucap(void)
{
    const struct member *member = members_start(members_sim_uuid(), "train-a", 8192, 50, 0);
    struct spawn_result result = run_ps_beside_a_program("");

    cli_expect_err(members_pid(member), &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.err, "prog_walk"), result.err);
    spawn_result_free(&result);
}
#endif

static void test_why_sends_those_who_come_too_late_to_a_recording(void)
{
    struct spawn_result result = CLI_RUN(NULL, "why", "4711");

    cli_expect_status(1, &result);
    cli_expect_err("to explain a process that has ended, make a recording:\n"
                   "gpucap: why:   `gpucap run --record=FILE`, then `gpucap why FILE`\n",
                   &result);
    spawn_result_free(&result);
}

static void test_a_process_that_was_killed_is_gone(void)
{
    need_table();
    members_start(MEMBERS_UUID, "gone", 4096, 128, 0);
    members_end();
    struct spawn_result result = run_ps(NULL);

    cli_expect_status(0, &result);
    TEST_ASSERT_NULL(strstr(result.out, "gone"));
    spawn_result_free(&result);
}

static void test_a_folder_that_cannot_be_read_is_named(void)
{
    char option[4096], expected[4096];

    cli_write(cli_path("plain"), "", 0, 0600);
    snprintf(option, sizeof(option), "--ledger=%s", cli_path("plain"));
    snprintf(expected, sizeof(expected), "the folder of the ledgers, %s, cannot be read: Not a directory\n",
             cli_path("plain"));
    struct spawn_result result = CLI_RUN(NULL, "ps", option);
    cli_expect_status(125, &result);
    cli_expect_err(expected, &result);
    spawn_result_free(&result);
}

/* For example after a card was divided into other slices again and again. */
static void test_ledgers_that_are_not_read_are_told(void)
{
    char option[4096], name[64], expected[4096];

    mkdir(cli_path("many"), 0700);
    for (int i = 0; i < 65; i++) {
        snprintf(name, sizeof(name), "many/GPU-%02d.ledger", i);
        mkdir(cli_path(name), 0700); /* cannot be opened, and so is no old one */
        if (i < 63)
            continue;
        snprintf(option, sizeof(option), "--ledger=%s", cli_path("many"));
        snprintf(expected, sizeof(expected), "%s has more ledgers than the 64 that are read\n",
                 cli_path("many"));
        struct spawn_result result = CLI_RUN(NULL, "ps", option);
        TEST_ASSERT_EQUAL_MESSAGE(i == 64, strstr(result.err, expected) != NULL, result.err);
        spawn_result_free(&result);
    }
}

static void test_ledger_is_found_by_its_settings(void)
{
    struct spawn_env *env = cli_env();
    char option[4096];

    members_start(MEMBERS_UUID, "job", 4096, 1024, 0);
    snprintf(option, sizeof(option), "--ledger=%s", members_folder());
    spawn_env_set(env, "GPUCAP_LEDGER", "off");
    struct spawn_result result = CLI_RUN(env, "ps", "--prometheus");
    cli_expect_status(1, &result);
    cli_expect_err("the ledger is off", &result);
    spawn_result_free(&result);
    result = CLI_RUN(env, "ps", "--ledger=here");
    cli_expect_status(125, &result);
    cli_expect_err("gpucap: ps: --ledger='here' is not valid", &result);
    spawn_result_free(&result);
    result = CLI_RUN(env, "ps", "--prometheus", option);
    cli_expect_status(0, &result);
    cli_expect_out("job=\"job\"", &result);
    spawn_result_free(&result);
    snprintf(option, sizeof(option), "ledger = %s\n", members_folder());
    spawn_env_unset(env, "GPUCAP_LEDGER");
    TEST_ASSERT_EQUAL_INT(0, mkdir(cli_path(".config"), 0700));
    cli_write(cli_path(".config/gpucap.conf"), option, strlen(option), 0600);
    result = CLI_RUN(env, "ps", "--prometheus");
    cli_expect_out("job=\"job\"", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

/* Whatever a faulty process writes into the ledger, the commands end normally and print nothing that a
 * terminal would interpret. */
static void test_commands_survive_a_ledger_of_noise(void)
{
    static const char *const commands[][3] = {
        {"ps", "--json", NULL}, {"ps", "--prometheus", NULL}, {"ps", NULL, NULL}, {"why", "all", NULL}};
    char path[4096];
    unsigned seed = 1;

    members_start_deaf(MEMBERS_UUID, "noise", 4096, 1024, 0);
    snprintf(path, sizeof(path), "%s/" MEMBERS_UUID ".ledger", members_folder());
    const int fd = open(path, O_RDWR);
    TEST_ASSERT_TRUE(fd >= 0);
    for (int round = 0; round < 12; round++) {
        /* The slot of the member keeps its first word, which says that it is one. */
        const off_t slot = (off_t)offsetof(struct ledger_file, slots) + (off_t)sizeof(uint32_t);
        const off_t jobs = (off_t)offsetof(struct ledger_file, jobs);
        unsigned char noise[sizeof(struct ledger_slot) - sizeof(uint32_t)];

        for (size_t i = 0; i < sizeof(noise); i++)
            noise[i] = (unsigned char)(rand_r(&seed) >> 8);
        if (round % 2)
            memcpy(noise, &(uint32_t){1}, sizeof(uint32_t)); /* the first job */
        TEST_ASSERT_EQUAL_INT(sizeof(noise), pwrite(fd, noise, sizeof(noise), slot));
        TEST_ASSERT_EQUAL_INT(256, pwrite(fd, noise, 256, jobs));
        for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
            struct spawn_result result = CLI_RUN(NULL, commands[i][0], commands[i][1]);

            TEST_ASSERT_TRUE_MESSAGE(result.status <= 1 || result.status == 125, result.err);
            for (size_t j = 0; j < result.out_len; j++)
                TEST_ASSERT_TRUE(strchr("\n\t", result.out[j]) || (unsigned char)result.out[j] >= ' ');
            spawn_result_free(&result);
        }
    }
    close(fd);
}

static void test_ledger_of_another_version_counts_only_while_it_is_used(void)
{
    char path[4096];

    TEST_ASSERT_EQUAL_INT(0, mkdir(members_folder(), 0700));
    snprintf(path, sizeof(path), "%s/" MEMBERS_UUID ".ledger", members_folder());
    cli_write(path, "older", 5, 0600);
    struct spawn_result result = run_ps("--prometheus");
    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_STRING("", result.err);
    spawn_result_free(&result);
    const int fd = members_use(path);
    result = run_ps("--prometheus");
    cli_expect_status(1, &result);
    cli_expect_err("the ledger of " MEMBERS_UUID " is of another version, and programs use it", &result);
    close(fd);
    spawn_result_free(&result);
}

/* ---- JSON ---- */

#if GPUCAP_HAS_JSON
static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);

    TEST_ASSERT_TRUE_MESSAGE(cJSON_IsNumber(item), name);
    return item->valuedouble;
}

static const char *text(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);

    TEST_ASSERT_TRUE_MESSAGE(cJSON_IsString(item), name);
    return item->valuestring;
}

static cJSON *parse_ps(void)
{
    struct spawn_result result = run_ps("--json");

    cli_expect_status(0, &result);
    cJSON *root = cJSON_Parse(result.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(root, result.out);
    spawn_result_free(&result);
    return root;
}

static void test_json_has_every_figure_in_bytes(void)
{
    const struct member *member = members_start(members_sim_uuid(), "train-a", 8192, 5222, 1946);
    const struct member *alone = members_start(members_sim_uuid(), "-", 0, 100, 0);
    cJSON *root = parse_ps();
    const cJSON *gpus = cJSON_GetObjectItem(root, "gpus");
    TEST_ASSERT_EQUAL_INT(1, cJSON_GetArraySize(gpus));
    const cJSON *gpu = cJSON_GetArrayItem(gpus, 0);

    TEST_ASSERT_EQUAL_STRING(members_sim_uuid(), text(gpu, "uuid"));
    TEST_ASSERT_EQUAL_DOUBLE(0, number(gpu, "gpu"));
    TEST_ASSERT_EQUAL_DOUBLE(16 * 1024 * MIB, number(gpu, "total"));
    TEST_ASSERT_EQUAL_DOUBLE(5322 * MIB, number(gpu, "managed"));
    TEST_ASSERT_EQUAL_DOUBLE(1946 * MIB, number(gpu, "idle"));
    TEST_ASSERT_NULL_MESSAGE(cJSON_GetObjectItem(gpu, "other"),
                             "the simulated card is empty, so the rest cannot be known");
    const cJSON *processes = cJSON_GetObjectItem(gpu, "processes");
    TEST_ASSERT_EQUAL_INT(2, cJSON_GetArraySize(processes));
    const cJSON *first = cJSON_GetArrayItem(processes, 0), *second = cJSON_GetArrayItem(processes, 1);
    TEST_ASSERT_EQUAL_INT(alone->pid, (int)number(first, "pid"));
    TEST_ASSERT_NULL(cJSON_GetObjectItem(first, "job"));
    TEST_ASSERT_TRUE(cJSON_IsNull(cJSON_GetObjectItem(first, "limit")));
    TEST_ASSERT_EQUAL_INT(member->pid, (int)number(second, "pid"));
    TEST_ASSERT_EQUAL_STRING("train-a", text(second, "job"));
    TEST_ASSERT_EQUAL_DOUBLE(5222 * MIB, number(second, "used"));
    TEST_ASSERT_EQUAL_DOUBLE(1946 * MIB, number(second, "idle"));
    TEST_ASSERT_EQUAL_DOUBLE(8192 * MIB, number(second, "limit"));
    TEST_ASSERT_EQUAL_STRING("running", text(second, "state"));
    TEST_ASSERT_NOT_NULL(strstr(text(second, "command"), "prog_member"));
    cJSON_Delete(root);
}

static void test_json_survives_any_name_of_a_job(void)
{
    members_start(MEMBERS_UUID, "a\"b\\c\xff\x1b[31m", 8192, 1, 0);
    cJSON *root = parse_ps();
    const cJSON *gpu = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "gpus"), 0);

    TEST_ASSERT_EQUAL_STRING("a\"b\\c?\?[31m",
                             text(cJSON_GetArrayItem(cJSON_GetObjectItem(gpu, "processes"), 0), "job"));
    TEST_ASSERT_NULL_MESSAGE(cJSON_GetObjectItem(gpu, "total"),
                             "no such card: what is not known is left out");
    cJSON_Delete(root);
}

static void test_json_without_ledgers_is_an_empty_list(void)
{
    cJSON *root = parse_ps();

    TEST_ASSERT_TRUE(cJSON_IsArray(cJSON_GetObjectItem(root, "gpus")));
    TEST_ASSERT_EQUAL_INT(0, cJSON_GetArraySize(cJSON_GetObjectItem(root, "gpus")));
    cJSON_Delete(root);
}
#else
static void test_json_says_that_it_is_missing(void)
{
    struct spawn_result result = run_ps("--json");

    cli_expect_status(125, &result);
    cli_expect_err("libcjson-dev", &result);
    spawn_result_free(&result);
}
#endif

/* ---- Prometheus ---- */

static void test_prometheus_has_labels_as_exporters_have_them(void)
{
    const struct member *member = members_start(members_sim_uuid(), "a\"b\\c", 8192, 5222, 1946);
    char expected[512], host[256] = "";

    gethostname(host, sizeof(host) - 1);
    struct spawn_result result = run_ps("--prometheus");
    cli_expect_status(0, &result);
    snprintf(
        expected, sizeof(expected),
        "\ngpucap_process_used_bytes{gpu=\"0\",UUID=\"%s\",Hostname=\"%s\",pid=\"%s\",job=\"a\\\"b\\\\c\"} "
        "5475663872\n",
        members_sim_uuid(), host, members_pid(member));
    cli_expect_out(expected, &result);
    cli_expect_out("# TYPE gpucap_process_used_bytes gauge\n", &result);
    cli_expect_out("# TYPE gpucap_process_refused_total counter\n", &result);
    cli_expect_out("gpucap_card_total_bytes{gpu=\"0\",", &result);
    cli_expect_out("gpucap_job_limit_bytes{gpu=\"0\",", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "prog_member"), "no command lines");
    spawn_result_free(&result);
}

/* Lines are comments or samples, and no sample comes twice. */
static void test_prometheus_is_well_formed(void)
{
    for (int i = 0; i < 3; i++)
        members_start(MEMBERS_UUID, i < 2 ? "job" : "-", 8192, 100, 0);
    struct spawn_result result = run_ps("--prometheus");
    char *lines[512];
    int count = 0;

    for (char *line = strtok(result.out, "\n"); line; line = strtok(NULL, "\n")) {
        if (!strncmp(line, "# HELP gpucap_", 14) || !strncmp(line, "# TYPE gpucap_", 14))
            continue;
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, strncmp(line, "gpucap_", 7), line);
        char *end = strstr(line, "\"} "), *rest;
        TEST_ASSERT_NOT_NULL_MESSAGE(end, line);
        strtod(end + 3, &rest);
        TEST_ASSERT_TRUE_MESSAGE(rest > end + 3 && !*rest, line);
        end[2] = '\0';
        for (int i = 0; i < count; i++)
            TEST_ASSERT_TRUE_MESSAGE(strcmp(lines[i], line) != 0, line);
        TEST_ASSERT_TRUE(count < 512);
        lines[count++] = line;
    }
    TEST_ASSERT_TRUE(count > 20);
    spawn_result_free(&result);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_ps_shows_jobs_and_their_processes);
    RUN_TEST(test_ps_shows_limits_of_processes_beside_their_jobs);
    RUN_TEST(test_ps_breaks_the_line_of_a_job_with_a_long_name);
    RUN_TEST(test_ps_asks_for_fresh_figures);
    RUN_TEST(test_ps_does_not_wait_for_a_process_that_does_not_answer);
    RUN_TEST(test_ps_says_who_waits_for_how_much);
    RUN_TEST(test_ps_on_a_narrow_terminal_stays_within_it);
    RUN_TEST(test_ps_under_a_limit_shows_the_card_as_it_is);
    RUN_TEST(test_ps_without_ledgers_says_so_and_is_no_failure);
#ifdef HAS_WALK
    RUN_TEST(test_ps_names_the_programs_that_do_not_run_under_gpucap);
    RUN_TEST(test_ps_knows_the_programs_of_every_card);
    RUN_TEST(test_ps_and_set_know_a_slice);
    RUN_TEST(test_ps_does_not_take_other_numbers_for_programs_without_gpucap);
#endif
    RUN_TEST(test_why_sends_those_who_come_too_late_to_a_recording);
    RUN_TEST(test_a_process_that_was_killed_is_gone);
    RUN_TEST(test_a_folder_that_cannot_be_read_is_named);
    RUN_TEST(test_ledgers_that_are_not_read_are_told);
    RUN_TEST(test_ledger_is_found_by_its_settings);
    RUN_TEST(test_commands_survive_a_ledger_of_noise);
    RUN_TEST(test_ledger_of_another_version_counts_only_while_it_is_used);
#if GPUCAP_HAS_JSON
    RUN_TEST(test_json_has_every_figure_in_bytes);
    RUN_TEST(test_json_survives_any_name_of_a_job);
    RUN_TEST(test_json_without_ledgers_is_an_empty_list);
#else
    RUN_TEST(test_json_says_that_it_is_missing);
#endif
    RUN_TEST(test_prometheus_has_labels_as_exporters_have_them);
    RUN_TEST(test_prometheus_is_well_formed);
    return UNITY_END();
}
