/* recorded: what a program did to device memory is in its recording, however the program ended. The programs
 * are scenarios of prog_recorded. */
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

#include "recording_decode.h"
#include "spawn.h"

static char folder[] = "/tmp/recorded.XXXXXX", path[128];

void setUp(void)
{
    snprintf(path, sizeof(path), "%s/r", folder); /* why leaves a reason out beside a longer path */
    unlink(path);
}

void tearDown(void) {}

/* Runs a scenario of a program. variables: name, value, ..., NULL. */
static struct spawn_result run_program(const char *program, const char *scenario, const char *file,
                                       const char *const *variables)
{
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, "1x2G;ctx=128M", NULL);
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    spawn_wrapped(env);
    spawn_env_set(env, "GPUCAP_RECORD", file);
    for (; variables && *variables; variables += 2)
        spawn_env_set(env, variables[0], variables[1]);
    struct spawn_result r = spawn_run(env, (const char *[]){spawn_build_path(program), scenario, NULL}, NULL);
    spawn_env_free(env);
    return r;
}

static struct spawn_result run(const char *scenario, const char *file, const char *const *variables)
{
    return run_program("tests/integration/prog_recorded", scenario, file, variables);
}

static struct recording_decode decode(const char *file)
{
    struct recording_decode recording;
    const char *why;

    TEST_ASSERT_TRUE_MESSAGE(recording_decode(&recording, file, &why), why);
    return recording;
}

static struct recording_decode run_well(const char *scenario, const char *const *variables,
                                        struct spawn_result *r)
{
    *r = run(scenario, path, variables);
    TEST_ASSERT_EQUAL_STRING("", r->err);
    TEST_ASSERT_EQUAL_INT(0, r->status);
    struct recording_decode recording = decode(path);
    TEST_ASSERT_EQUAL_size_t(1, recording_decode_count(&recording, RECORDING_END));
    TEST_ASSERT_EQUAL_size_t(0, recording_decode_count(&recording, RECORDING_DROPPED));
    return recording;
}

/* Returns the event of this type for a block that the program named in a line. */
static const struct recording_event *find(const struct recording_decode *r, unsigned type, const char *line)
{
    const struct recording_event *event;
    uint64_t number, bytes;
    size_t at = 0;
    int kind;

    TEST_ASSERT_EQUAL_INT(3, sscanf(line, "%d %" SCNx64 " %" SCNu64, &kind, &number, &bytes));
    while ((event = recording_decode_next(r, &at, type))) {
        if (event->address == number && event->kind == kind && event->bytes == bytes)
            return event;
    }
    TEST_FAIL_MESSAGE(line);
    return NULL;
}

static void check_kinds(const char *const *variables)
{
    struct spawn_result result;
    struct recording_decode r = run_well("kinds", variables, &result);
    char *line = strtok(result.out, "\n");
    size_t blocks = 0;

    TEST_ASSERT_EQUAL_STRING(
        "weights", recording_decode_name(&r, RECORDING_TAG, find(&r, RECORDING_ALLOC, line)->tag, SIZE_MAX));
    for (; line; line = strtok(NULL, "\n"), blocks++) {
        const struct recording_event *taken = find(&r, RECORDING_ALLOC, line);
        const struct recording_event *given = find(&r, RECORDING_FREE, line);

        TEST_ASSERT_LESS_OR_EQUAL_UINT64(given->time_ns, taken->time_ns);
        TEST_ASSERT_EQUAL_UINT16(taken->owner, given->owner);
        TEST_ASSERT_EQUAL_UINT16(taken->tag, given->tag);
    }
    TEST_ASSERT_EQUAL_size_t(blocks, recording_decode_count(&r, RECORDING_ALLOC));
    TEST_ASSERT_EQUAL_size_t(blocks, recording_decode_count(&r, RECORDING_FREE));
    TEST_ASSERT_EQUAL_STRING("simgpu", recording_decode_name(&r, RECORDING_DEVICE, 0, SIZE_MAX));
    recording_decode_free(&r);
    spawn_result_free(&result);
}

static void test_every_kind_of_memory_is_recorded(void)
{
    check_kinds(NULL);
    check_kinds((const char *const[]){"GPUCAP_MAX", "1G", NULL});
    check_kinds((const char *const[]){"GPUCAP_MAX", "1G", "GPUCAP_FREE", "deferred", NULL});
    check_kinds((const char *const[]){"GPUCAP_POOL", "off", NULL});
    check_kinds((const char *const[]){"GPUCAP_POOL", "off", "GPUCAP_MAX", "1G", NULL});
}

static void test_the_drivers_figure_is_recorded_and_named(void)
{
    struct spawn_result result;
    struct recording_decode r = run_well("threads", NULL, &result);
    const struct recording_event *event;
    size_t at = 0;
    uint64_t held = 0, context = 0, used = 0;

    while ((event = recording_decode_next(&r, &at, 0))) {
        if (event->head.type == RECORDING_GROW || event->head.type == RECORDING_TRIM)
            held = event->other;
        if (event->head.type == RECORDING_CONTEXT)
            context = event->bytes;
        if (event->head.type == RECORDING_USED)
            used = event->bytes;
    }
    TEST_ASSERT_NOT_EQUAL(0, used);
    TEST_ASSERT_EQUAL_UINT64(used, held + context);
    recording_decode_free(&r);
    spawn_result_free(&result);
}

static void test_a_process_alone_in_its_job_waits_for_nobody(void)
{
    struct spawn_result result =
        run("in_pieces", path,
            (const char *const[]){"GPUCAP_MAX", "512M", "GPUCAP_RESERVE", "0", "GPUCAP_LEDGER", folder,
                                  "GPUCAP_GROUP", "alone", NULL});

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, result.status, result.out);
    struct recording_decode r = decode(path);
    TEST_ASSERT_GREATER_THAN_size_t(0, recording_decode_count(&r, RECORDING_REFUSAL));
    TEST_ASSERT_EQUAL_size_t(0, recording_decode_count(&r, RECORDING_WAIT));
    recording_decode_free(&r);
    spawn_result_free(&result);
}

static void test_what_idles_in_the_drivers_own_pools_is_not_the_context(void)
{
    struct spawn_result result;
    struct recording_decode r =
        run_well("drivers_pool", (const char *const[]){"GPUCAP_MAX", "1G", NULL}, &result);
    const struct recording_event *event;
    uint64_t most = 0;
    size_t at = 0;

    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result.out, "    64 MiB           idle      driver\n"), result.out);
    while ((event = recording_decode_next(&r, &at, RECORDING_DRIVER)))
        most = event->bytes > most ? event->bytes : most;
    TEST_ASSERT_EQUAL_UINT64(UINT64_C(64) << 20, most);
    at = 0;
    while ((event = recording_decode_next(&r, &at, RECORDING_CONTEXT)))
        TEST_ASSERT_LESS_OR_EQUAL_UINT64(UINT64_C(128) << 20, event->bytes);
    recording_decode_free(&r);
    spawn_result_free(&result);
}

static void test_the_end_of_a_context_releases_its_blocks(void)
{
    struct spawn_result result;
    struct recording_decode r = run_well("ended_context", NULL, &result);

    TEST_ASSERT_EQUAL_size_t(4, recording_decode_count(&r, RECORDING_ALLOC));
    TEST_ASSERT_EQUAL_size_t(4, recording_decode_count(&r, RECORDING_FREE));
    recording_decode_free(&r);
    spawn_result_free(&result);
}

static void test_a_refusal_says_which_limit_it_was(void)
{
    struct spawn_result result;
    struct recording_decode r = run_well("refused", (const char *const[]){"GPUCAP_MAX", "1G", NULL}, &result);
    size_t at = 0;
    const struct recording_event *event = recording_decode_next(&r, &at, RECORDING_REFUSAL);

    TEST_ASSERT_NOT_NULL(event);
    TEST_ASSERT_EQUAL_UINT64(UINT64_C(3) << 30, event->bytes);
    TEST_ASSERT_EQUAL_INT(RECORDING_LIMIT_PROCESS, event->limit);
    TEST_ASSERT_LESS_OR_EQUAL_UINT64(UINT64_C(1) << 30, event->other);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result.refusals, "`gpucap why "), result.refusals);
    at = 0;
    TEST_ASSERT_EQUAL_UINT64(UINT64_C(1) << 30, recording_decode_next(&r, &at, RECORDING_LIMIT)->bytes);
    recording_decode_free(&r);
    spawn_result_free(&result);
    r = run_well("refused", NULL, &result);
    at = 0;
    event = recording_decode_next(&r, &at, RECORDING_REFUSAL);
    TEST_ASSERT_EQUAL_INT(RECORDING_LIMIT_CARD, event->limit);
    recording_decode_free(&r);
    spawn_result_free(&result);
}

static uint64_t apart_of(const struct recording_decode *r, enum recording_apart reason)
{
    const struct recording_event *event;
    size_t at = 0;

    while ((event = recording_decode_next(r, &at, RECORDING_APART))) {
        if (event->limit == reason)
            return event->bytes;
    }
    return 0;
}

static void test_why_says_what_kept_idle_memory_from_being_one_block(void)
{
    struct spawn_result result = run("apart", path, (const char *const[]){"GPUCAP_MAX", "1G", NULL});

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, result.status, result.out);
    struct recording_decode r = decode(path);
    const uint64_t idle = apart_of(&r, RECORDING_APART_IDLE), parts = apart_of(&r, RECORDING_APART_PARTS);
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(UINT64_C(300) << 20, idle);
    TEST_ASSERT_EQUAL_UINT64(idle, parts + apart_of(&r, RECORDING_APART_JOINED));
    TEST_ASSERT_LESS_THAN_UINT64(UINT64_C(8) << 20, apart_of(&r, RECORDING_APART_JOINED));
    recording_decode_free(&r);
    const char *live = strstr(result.out, "  idle then    300 MiB in its pool, in 200 pieces; at most ");
    TEST_ASSERT_NOT_NULL_MESSAGE(live, result.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(live, "\n  kept apart   in chunks with live blocks 29"), live);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(live, "gpucap record start "), live);
    const char *file = strstr(result.out, "  idle         300 MiB in its pool, in 200 pieces; at most ");
    TEST_ASSERT_NOT_NULL_MESSAGE(file, result.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(file, "\n  kept apart   in chunks with live blocks 29"), file);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(file, "   (its map has the gaps)\n"), file);
    spawn_result_free(&result);
}

static void test_all_threads_are_recorded(void)
{
    struct spawn_result result;
    struct recording_decode r = run_well("threads", NULL, &result);
    const size_t pairs = (size_t)atoi(result.out);

    TEST_ASSERT_EQUAL_size_t(pairs, recording_decode_count(&r, RECORDING_ALLOC));
    TEST_ASSERT_EQUAL_size_t(pairs, recording_decode_count(&r, RECORDING_FREE));
    recording_decode_free(&r);
    spawn_result_free(&result);
}

static void test_what_was_flushed_survives_sigkill(void)
{
    struct spawn_result result = run("killed", path, NULL);

    TEST_ASSERT_EQUAL_INT(SIGKILL, result.signal);
    struct recording_decode r = decode(path);
    TEST_ASSERT_NOT_EQUAL(0, recording_decode_count(&r, RECORDING_ALLOC));
    TEST_ASSERT_EQUAL_size_t(0, recording_decode_count(&r, RECORDING_END));
    recording_decode_free(&r);
    spawn_result_free(&result);
}

/* ---- files ---- */

/* Calls check() for each recording "of-PID", removes it, and returns how many there were. */
static unsigned each_recording(void (*check)(const struct recording_decode *r, uint32_t pid))
{
    char file[512];
    struct dirent *entry;
    unsigned files = 0;
    DIR *all = opendir(folder);

    while ((entry = readdir(all))) {
        if (strncmp(entry->d_name, "of-", 3) != 0)
            continue;
        files++;
        snprintf(file, sizeof(file), "%s/%s", folder, entry->d_name);
        struct recording_decode r = decode(file);
        check(&r, (uint32_t)atoi(entry->d_name + 3));
        recording_decode_free(&r);
        unlink(file);
    }
    closedir(all);
    return files;
}

static void run_processes(const char *program, const char *scenario, const char *const *variables)
{
    char pattern[160];

    snprintf(pattern, sizeof(pattern), "%s/of-%%p", folder);
    struct spawn_result result = run_program(program, scenario, pattern, variables);
    TEST_ASSERT_EQUAL_STRING("", result.err);
    TEST_ASSERT_EQUAL_INT(0, result.status);
    spawn_result_free(&result);
}

static void expect_said(struct spawn_result *result, const char *words)
{
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result->refusals, words), result->refusals);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result->refusals, "`gpucap why "), result->refusals);
    spawn_result_free(result);
}

/* The process that was refused knows what the card had left. */
static void check_card(const struct recording_decode *r, uint32_t pid)
{
    size_t at = 0;
    const struct recording_event *event = recording_decode_next(r, &at, RECORDING_REFUSAL);

    (void)pid;
    if (event)
        TEST_ASSERT_EQUAL_UINT64(UINT64_C(492) << 20, event->other);
}

/* The limit leaves enough: what is said and recorded is what the card had. */
static void test_a_refusal_below_the_limit_says_what_the_card_had(void)
{
    struct spawn_result result;
    struct recording_decode r = run_well(
        "refused_by_driver",
        (const char *const[]){"GPUCAP_MAX", "1G", "GPUCAP_SIM_FAULT", "cuMemCreate:*=2", NULL}, &result);
    size_t at = 0;
    const struct recording_event *event = recording_decode_next(&r, &at, RECORDING_REFUSAL);

    TEST_ASSERT_EQUAL_INT(RECORDING_LIMIT_CARD, event->limit);
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(event->bytes, event->other);
    expect_said(&result, "asked for 64M; the driver refused it");
    recording_decode_free(&r);
    char pattern[128];
    snprintf(pattern, sizeof(pattern), "%s/of-%%p", folder);
    result = run("refused_by_card", pattern,
                 (const char *const[]){"GPUCAP_MAX", "2G", "GPUCAP_LEDGER", "off", NULL});
    TEST_ASSERT_EQUAL_INT(0, result.status);
    TEST_ASSERT_EQUAL_UINT(2, each_recording(check_card));
    expect_said(&result, "asked for 900M, the card has 492M free (max leaves 1.7G)\n"
                         "gpucap:   who holds the card: `gpucap ps`\n");
}

static void check_one_block(const struct recording_decode *r, uint32_t pid)
{
    TEST_ASSERT_EQUAL_UINT32(pid, r->head.pid);
    TEST_ASSERT_EQUAL_size_t(1, recording_decode_count(r, RECORDING_ALLOC));
    TEST_ASSERT_EQUAL_size_t(1, recording_decode_count(r, RECORDING_END));
}

static void test_each_process_has_a_file_of_its_own(void)
{
    run_processes("tests/integration/prog_recorded", "forks", NULL);
    TEST_ASSERT_EQUAL_UINT(2, each_recording(check_one_block));
}

static unsigned imported, given_up;

static void count_imports(const struct recording_decode *r, uint32_t pid)
{
    const struct recording_event *event;
    size_t at = 0;

    (void)pid;
    while ((event = recording_decode_next(r, &at, 0))) {
        imported += event->kind == RECORDING_IMPORT && event->head.type == RECORDING_ALLOC;
        given_up += event->kind == RECORDING_IMPORT && event->head.type == RECORDING_FREE;
    }
}

static void test_memory_of_other_processes_is_recorded_as_such(void)
{
    imported = given_up = 0;
    run_processes("tests/integration/prog_ipc", "share", NULL);
    TEST_ASSERT_EQUAL_UINT(2, each_recording(count_imports));
    TEST_ASSERT_EQUAL_UINT(5, imported);
    TEST_ASSERT_EQUAL_UINT(5, given_up);
}

static struct loans {
    uint32_t pid;
    uint64_t lent, borrowed, lender, borrower;
} loans[2];
static unsigned loan_count;

static void sum_loans(const struct recording_decode *r, uint32_t pid)
{
    const struct recording_event *event;
    size_t at = 0;

    TEST_ASSERT_LESS_THAN_UINT(2, loan_count);
    struct loans *own = &loans[loan_count++];
    *own = (struct loans){.pid = pid};
    while ((event = recording_decode_next(r, &at, 0))) {
        if (event->head.type == RECORDING_LEND) {
            own->lent += event->bytes;
            own->borrower = event->other;
        }
        if (event->head.type == RECORDING_BORROW) {
            own->borrowed += event->bytes;
            own->lender = event->other;
        }
    }
}

static void test_a_loan_is_in_the_recordings_of_both_processes(void)
{
    loan_count = 0;
    run_processes("tests/integration/prog_job", "lends",
                  (const char *const[]){"GPUCAP_MAX", "1G", "GPUCAP_GROUP", "both", "PROG_SLOW_CLOCK", "100",
                                        NULL}); /* the other process may be slow to answer */
    TEST_ASSERT_EQUAL_UINT(2, each_recording(sum_loans));
    TEST_ASSERT_NOT_EQUAL(0, loans[0].borrowed + loans[1].borrowed);
    for (int i = 0; i < 2; i++) {
        /* an answer that came too late for the one who asked was lent all the same */
        TEST_ASSERT_LESS_OR_EQUAL_UINT64(loans[1 - i].lent, loans[i].borrowed);
        if (loans[i].borrowed)
            TEST_ASSERT_EQUAL_UINT64(loans[1 - i].pid, loans[i].lender);
        if (loans[i].lent)
            TEST_ASSERT_EQUAL_UINT64(loans[1 - i].pid, loans[i].borrower);
    }
}

static void test_a_file_that_cannot_be_written_is_reported_once_and_the_program_goes_on(void)
{
    struct spawn_result result = run("kinds", "/nonexistent/recording", NULL);

    TEST_ASSERT_EQUAL_INT(0, result.status);
    TEST_ASSERT_EQUAL_STRING(
        "gpucap: nothing is recorded: /nonexistent/recording: No such file or directory\n", result.err);
    spawn_result_free(&result);
}

/* ---- while it runs ---- */

static void test_a_running_process_is_recorded_from_a_command_on(void)
{
    const char *const variables[] = {
        "GPUCAP_RECORD", "off", "TEST_RECORDING", path, "GPUCAP_MAX", "1G", NULL};
    struct spawn_result result = run("by_command", "off", variables);
    size_t at = 0;

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, result.status, result.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result.err, ": it does not record\n"), result.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result.err, " already\n"), result.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result.out, "malloc    program, weights\n"), result.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result.out, "   128 MiB           context   driver\n"), result.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result.out, "      134217728           context   driver\n"),
                                 result.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(result.out, "        5243580        2  malloc    program\n"),
                                 result.out);
    struct recording_decode r = decode(path);
    TEST_ASSERT_EQUAL_size_t(3, recording_decode_count(&r, RECORDING_ALLOC));
    TEST_ASSERT_EQUAL_size_t(1, recording_decode_count(&r, RECORDING_FREE));
    TEST_ASSERT_EQUAL_size_t(1, recording_decode_count(&r, RECORDING_END));
    const struct recording_event *limit = recording_decode_next(&r, &at, RECORDING_LIMIT);
    TEST_ASSERT_EQUAL_UINT64(0, limit->time_ns);
    char *line = strtok(result.out, "\n");
    TEST_ASSERT_EQUAL_UINT64(0, find(&r, RECORDING_ALLOC, line)->time_ns);
    TEST_ASSERT_NOT_EQUAL(0, find(&r, RECORDING_FREE, line)->tag);
    TEST_ASSERT_EQUAL_UINT64(0, find(&r, RECORDING_ALLOC, strtok(NULL, "\n"))->time_ns);
    recording_decode_free(&r);
    spawn_result_free(&result);
}

/* ---- owners and stacks ---- */

static void test_each_block_has_the_library_that_asked_for_it(void)
{
    static const char *const cycle[] = {"program", "cuDNN", "cuDNN", "NCCL"};
    struct spawn_result result;
    struct recording_decode r = run_well("owners", NULL, &result);
    unsigned i = 0;

    for (char *line = strtok(result.out, "\n"); line; line = strtok(NULL, "\n"), i++) {
        const uint16_t owner = find(&r, RECORDING_ALLOC, line)->owner;

        TEST_ASSERT_EQUAL_STRING(cycle[i % 4], recording_decode_name(&r, RECORDING_OWNER, owner, SIZE_MAX));
    }
    TEST_ASSERT_EQUAL_UINT(13, i);
    recording_decode_free(&r);
    spawn_result_free(&result);
}

/* Returns the name of the file whose code an address is in. */
static const char *file_of(const struct recording_decode *r, uint64_t address)
{
    for (size_t at = 0; at < r->bytes;) {
        const struct recording_name *name = (const void *)(r->records + at);
        uint64_t start, end;
        const char *slash;

        at += name->head.size;
        if (name->head.type == RECORDING_MODULE &&
            sscanf(name->text, "%" SCNx64 " %" SCNx64, &start, &end) == 2 && address >= start &&
            address < end && (slash = strrchr(name->text, '/')))
            return slash + 1;
    }
    return "none";
}

static void test_stacks_lead_from_the_call_to_main(void)
{
    struct spawn_result result;
    struct recording_decode r =
        run_well("stacks", (const char *const[]){"GPUCAP_STACKS", "on", NULL}, &result);
    uint32_t ids[3];
    size_t at = 0;

    TEST_ASSERT_BITS_HIGH(RECORDING_STACKS, r.head.flags);
    for (int i = 0; i < 3; i++)
        ids[i] = recording_decode_next(&r, &at, RECORDING_ALLOC)->stack;
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(ids[0], ids[1], "equal stacks are kept once");
    TEST_ASSERT_NOT_EQUAL(ids[0], ids[2]);
    const struct recording_stack *stack = recording_decode_stack(&r, ids[0]);
    const size_t frames = (stack->head.size - sizeof(*stack)) / sizeof(stack->frames[0]);
    TEST_ASSERT_GREATER_OR_EQUAL_size_t(4, frames); /* inner, middle, stacks, prog_main */
    for (int i = 0; i < 4; i++)
        TEST_ASSERT_EQUAL_STRING("prog_recorded", file_of(&r, stack->frames[i]));
    recording_decode_free(&r);
    spawn_result_free(&result);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    UNITY_BEGIN();
    RUN_TEST(test_every_kind_of_memory_is_recorded);
    RUN_TEST(test_the_drivers_figure_is_recorded_and_named);
    RUN_TEST(test_a_process_alone_in_its_job_waits_for_nobody);
    RUN_TEST(test_what_idles_in_the_drivers_own_pools_is_not_the_context);
    RUN_TEST(test_the_end_of_a_context_releases_its_blocks);
    RUN_TEST(test_a_refusal_says_which_limit_it_was);
    RUN_TEST(test_a_refusal_below_the_limit_says_what_the_card_had);
    RUN_TEST(test_why_says_what_kept_idle_memory_from_being_one_block);
    RUN_TEST(test_all_threads_are_recorded);
    RUN_TEST(test_what_was_flushed_survives_sigkill);
    RUN_TEST(test_each_process_has_a_file_of_its_own);
    RUN_TEST(test_memory_of_other_processes_is_recorded_as_such);
    RUN_TEST(test_a_loan_is_in_the_recordings_of_both_processes);
    RUN_TEST(test_a_file_that_cannot_be_written_is_reported_once_and_the_program_goes_on);
    RUN_TEST(test_a_running_process_is_recorded_from_a_command_on);
    RUN_TEST(test_each_block_has_the_library_that_asked_for_it);
    RUN_TEST(test_stacks_lead_from_the_call_to_main);
    unlink(path);
    rmdir(folder);
    return UNITY_END();
}
