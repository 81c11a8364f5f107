/* The commands that read recordings: what they say of a training, of two that share a job, of one that was
 * killed, and of files that are damaged or no recordings at all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_support.h"
#include "tests/support/recording_make.h"
#include "unity.h"

#define EVENTS 2000
#define WIDTH  80

static char first[256], second[256];

void setUp(void)
{
    cli_set_up();
    snprintf(first, sizeof(first), "%s", cli_path("a.gpucap"));
    snprintf(second, sizeof(second), "%s", cli_path("b.gpucap"));
    recording_make_training(first, &(struct recording_training){.events = EVENTS});
    recording_make_training(second, &(struct recording_training){.events = EVENTS, .process = 1});
}

void tearDown(void)
{
    cli_tear_down();
}

/* Columns, not bytes: continuation bytes of UTF-8 do not count. */
static void expect_narrow(const char *text)
{
    int columns = 0;

    for (const char *c = text; *c; c++) {
        columns = *c == '\n' ? 0 : columns + (((unsigned char)*c & 0xc0) != 0x80);
        TEST_ASSERT_TRUE_MESSAGE(columns <= WIDTH, text);
    }
}

static void test_summary_names_peak_refusals_leaks_and_loans(void)
{
    struct spawn_result result = CLI_RUN(NULL, "summary", first, second);

    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_STRING("", result.err);
    cli_expect_out("process 4711 on node7, job train-a, GPU 0 NVIDIA H200", &result);
    cli_expect_out("peak         5.60 of 8.00 GiB (limit of the job) at ", &result);
    cli_expect_out("activations 3.05 GiB | optimizer state 767 MiB", &result);
    cli_expect_out("refused      147 MiB for cuDNN at ", &result);
    cli_expect_out("never freed  128 MiB in 1 block of NCCL", &result);
    cli_expect_out("short-lived  cuDNN (workspace): up to ", &result);
    cli_expect_out("would fit    not below ", &result);
    cli_expect_out("process 4730", &result);
    cli_expect_out("refused      nothing", &result);
    cli_expect_out("waited       2 requests, 76.0 ms in all, at most 38.0 ms", &result);
    cli_expect_out("loans        lent to 4730 1.37 GiB\n", &result);
    cli_expect_out("loans        borrowed from 4711 1.37 GiB\n", &result);
    cli_expect_out("idle in the driver's pools 24 MiB", &result);
    expect_narrow(result.out);
    spawn_result_free(&result);
}

#ifndef __SANITIZE_ADDRESS__
#ifndef __SANITIZE_THREAD__
/* The blocks of the training need 5.127 GiB at once, and the pool hardly more, whatever limit the user has
 * set. */
static void test_smallest_limit_is_found_by_replaying(void)
{
    struct spawn_env *env = cli_env_real();

    TEST_ASSERT_EQUAL_INT(0, mkdir(cli_path(".config"), 0700));
    cli_write(cli_path(".config/gpucap.conf"), "max = 2G\n", 9, 0600);
    struct spawn_result result = CLI_RUN(env, "summary", "--fit", first);
    double all = 0, pool = 0, context = 0, reserve = 0;

    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_STRING("", result.err);
    const char *line = strstr(result.out, "would fit");
    TEST_ASSERT_NOT_NULL(line);
    TEST_ASSERT_EQUAL_INT_MESSAGE(4,
                                  sscanf(line,
                                         "would fit with --max=%lfM, without what was refused: "
                                         "blocks (replayed) %lf GiB | CUDA context %lf MiB reserve %lf MiB",
                                         &all, &pool, &context, &reserve),
                                  line);
    TEST_ASSERT_DOUBLE_WITHIN(0.02, 5.13, pool);
    TEST_ASSERT_DOUBLE_WITHIN(20, all, 1024 * pool + context + reserve);
    spawn_result_free(&result);
    spawn_env_free(env);
}

/* Stream-ordered memory takes steps of 32 MiB. */
static void test_the_smallest_limit_holds_when_the_program_runs_below_it(void)
{
    struct spawn_env *env = cli_env_real();
    char path[256], record[300], limit[32];
    const char *program = spawn_build_path("tests/integration/prog_recorded");
    unsigned fits = 0;
    int end = 0;

    snprintf(path, sizeof(path), "%s", cli_path("fits.gpucap"));
    snprintf(record, sizeof(record), "--record=%s", path);
    struct spawn_result result =
        CLI_RUN(env, "run", "--sim=1x4G;ctx=256M", "--max=2G", record, "--", program, "steps");
    cli_expect_status(0, &result);
    spawn_result_free(&result);
    result = CLI_RUN(env, "summary", "--fit", path);
    const char *line = strstr(result.out, "would fit");
    TEST_ASSERT_TRUE_MESSAGE(line && sscanf(line, "would fit with --max=%uM:%n", &fits, &end) == 1 && end,
                             result.out);
    spawn_result_free(&result);
    for (int less = 0; less < 2; less++) {
        snprintf(limit, sizeof(limit), "--max=%uM", fits - 8 * (unsigned)less);
        result = CLI_RUN(env, "run", "--sim=1x4G;ctx=256M", limit, "--", program, "steps");
        TEST_ASSERT_EQUAL_INT_MESSAGE(less == 0, result.status == 0, limit);
        spawn_result_free(&result);
    }
    spawn_env_free(env);
}

static void test_replay_tells_whether_a_limit_is_enough(void)
{
    static const struct {
        const char *limit, *says;
        int status;
    } cases[] = {{"--max=7G", "fitted: ", 0}, {"--max=4G", "refused: ", 1}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct spawn_env *env = cli_env_real();
        struct spawn_result result = CLI_RUN(env, "run", "--sim=1x16G", cases[i].limit, "--",
                                             spawn_build_path("gpucap"), "replay", first);

        cli_expect_status(cases[i].status, &result);
        cli_expect_out(cases[i].says, &result);
        spawn_result_free(&result);
        spawn_env_free(env);
    }
}

/* From the library's recorder to what people see. */
static void test_a_refusal_of_a_real_program_is_explained_by_its_recording(void)
{
    struct spawn_env *env = cli_env_real();
    char path[256], record[300];

    snprintf(path, sizeof(path), "%s", cli_path("real.gpucap"));
    snprintf(record, sizeof(record), "--record=%s", path);
    struct spawn_result result =
        CLI_RUN(env, "run", "--sim=1x4G;ctx=256M", "--max=1G", record, "--stacks=on", "--",
                spawn_build_path("tests/integration/prog_recorded"), "refused");
    cli_expect_status(0, &result);
    spawn_result_free(&result);
    result = CLI_RUN(env, "why", path);
    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_STRING("", result.err);
    cli_expect_out("asked        3.00 GiB by program, thread ", &result);
    cli_expect_out("called from  refused (prog_recorded)", &result);
    cli_expect_out("limit        1.00 GiB, limit of the job; at most 704 MiB would have fitted", &result);
    cli_expect_out("held by      CUDA context 256 MiB", &result);
    cli_expect_out("kept free    64 MiB for the driver's own growth (--reserve)\n", &result);
    cli_expect_out("neighbours   none", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "--wait"), "no other process could free memory");
    spawn_result_free(&result);
    result = CLI_RUN(env, "export", "--to=csv", path);
    cli_expect_status(0, &result);
    cli_expect_out(",0,refusal,", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_recording_of_a_program_that_was_killed_opens(void)
{
    struct spawn_env *env = cli_env_real();
    char path[256], record[300];

    snprintf(path, sizeof(path), "%s", cli_path("killed.gpucap"));
    snprintf(record, sizeof(record), "--record=%s", path);
    struct spawn_result result = CLI_RUN(env, "run", "--sim=1x4G", record, "--",
                                         spawn_build_path("tests/integration/prog_recorded"), "killed");
    spawn_result_free(&result);
    result = CLI_RUN(env, "summary", path);
    cli_expect_status(0, &result);
    cli_expect_err("note: the recording was not closed: the program was killed", &result);
    cli_expect_out("peak         ", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}
#endif
#endif

static void test_why_explains_a_refusal_with_its_neighbours(void)
{
    struct spawn_result result = CLI_RUN(NULL, "why", first, second);

    cli_expect_status(0, &result);
    cli_expect_out("4711 python3 train.py --epochs 3 --batch 256: 1 request refused, at ", &result);
    cli_expect_out("asked        147 MiB by cuDNN (workspace), thread 4711 python3", &result);
    cli_expect_out("called from  libc10_cuda.so+0x1260", &result);
    cli_expect_out("limit        8.00 GiB, limit of the job; at most 94 MiB would have fitted", &result);
    cli_expect_out("neighbours   process 4730 had ", &result);
    cli_expect_out("idle         263 MiB in its pool, in 31 pieces; at most 60 MiB in one block\n"
                   "  kept apart   in chunks with live blocks 173 MiB\n"
                   "               freed, work on a stream not done 30 MiB\n"
                   "  also idle    in the driver's stream-ordered pools 16 MiB\n",
                   &result);
    cli_expect_out("would fit    with a limit 53 MiB higher, or with a batch about 2 % smaller", &result);
    cli_expect_out("Try:  gpucap run --max=9G ...", &result);
    cli_expect_out("gpucap run --wait=60s ...", &result);
    cli_expect_out("last.pt: no request was refused", &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "why", first);
    cli_expect_out("neighbours   the job's others had 2.12 GiB: add their recordings", &result);
    spawn_result_free(&result);
}

static void test_view_is_a_picture_of_80_columns_and_24_lines(void)
{
    static const char *const locales[] = {"C", "C.UTF-8"};

    for (size_t i = 0; i < 2; i++) {
        struct spawn_env *env = cli_env();
        int lines = 0;

        spawn_env_set(env, "LC_ALL", locales[i]);
        struct spawn_result result = CLI_RUN(env, "view", first);
        cli_expect_status(0, &result);
        expect_narrow(result.out);
        for (const char *c = result.out; *c; c++)
            lines += *c == '\n';
        TEST_ASSERT_EQUAL_INT_MESSAGE(23, lines, result.out); /* and the shell's next one */
        TEST_ASSERT_NULL_MESSAGE(strchr(result.out, '\033'), "no colour without a terminal");
        cli_expect_out("limit 8.0 GiB", &result);
        cli_expect_out(" activations  ", &result);
        cli_expect_out("! refused", &result);
        cli_expect_out(i ? "█" : "####", &result);
        spawn_result_free(&result);
        spawn_env_free(env);
    }
}

static void test_view_fits_a_narrow_terminal(void)
{
    struct spawn_env *env = cli_env();
    int lines = 0;

    spawn_env_set(env, "CLI", spawn_build_path("gpucap"));
    spawn_env_set(env, "FILE", first);
    spawn_env_set(env, "TERM", "dumb");
    spawn_env_set(env, "LC_ALL", "C");
    struct spawn_result result =
        spawn_run(env,
                  (const char *[]){"script", "-qec", "stty cols 40 rows 24; \"$CLI\" view \"$FILE\"",
                                   "/dev/null", NULL},
                  NULL);
    spawn_env_free(env);
    if (result.status == 127) {
        spawn_result_free(&result);
        TEST_IGNORE_MESSAGE("there is no script(1) here");
    }
    cli_expect_out("limit 8.0 GiB", &result);
    for (const char *line = strtok(result.out, "\r\n"); line; line = strtok(NULL, "\r\n"), lines++)
        TEST_ASSERT_TRUE_MESSAGE(strlen(line) <= 40, line);
    TEST_ASSERT_EQUAL_INT(23, lines);
    spawn_result_free(&result);
}

static void test_page_is_one_file_that_loads_nothing(void)
{
    const char *path = cli_path("out.html");
    struct spawn_result result = CLI_RUN(NULL, "page", first, second, "-o", path);

    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_STRING("", result.out);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "page", first, "--output=-");
    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_INT(0, strncmp(result.out, "<!doctype html>", 15));
    cli_expect_out("default-src 'none'", &result);
    cli_expect_out("</html>\n", &result);
    TEST_ASSERT_NULL(strstr(result.out, "http://"));
    TEST_ASSERT_NULL(strstr(result.out, "https://"));
    spawn_result_free(&result);
}

static void test_page_that_cannot_be_written_leaves_no_file(void)
{
    struct stat stat_of;
    struct spawn_result result = CLI_RUN(NULL, "page", first, "-o", "/nonexistent/page.html");

    cli_expect_status(125, &result);
    cli_expect_err("/nonexistent/page.html cannot be written: No such file", &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "page", first, "-o", "/dev/full");
    cli_expect_status(125, &result);
    cli_expect_err("/dev/full cannot be written", &result);
    spawn_result_free(&result);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, stat("/dev/full", &stat_of), "what is no file is left alone");
    result = CLI_RUN(NULL, "page", first);
    cli_expect_status(125, &result);
    cli_expect_err("where to?", &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "page", first, "--output=");
    cli_expect_status(125, &result);
    cli_expect_err("page: --output needs a value: --output=FILE", &result);
    spawn_result_free(&result);
}

static void test_a_recording_is_not_overwritten(void)
{
    struct stat before, after;

    TEST_ASSERT_EQUAL_INT(0, stat(first, &before));
    struct spawn_result result = CLI_RUN(NULL, "page", second, first, "-o", first);
    cli_expect_status(125, &result);
    cli_expect_err("would be overwritten: it is a recording", &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "page", "-o", first, second); /* as `-o run-*.gpucap` is read */
    cli_expect_status(125, &result);
    spawn_result_free(&result);
    TEST_ASSERT_EQUAL_INT(0, symlink(first, cli_path("link")));
    result = CLI_RUN(NULL, "export", "--to=csv", first, "-o", cli_path("link"));
    cli_expect_status(125, &result);
    spawn_result_free(&result);
    TEST_ASSERT_EQUAL_INT(0, stat(first, &after));
    TEST_ASSERT_EQUAL_INT64(before.st_size, after.st_size);
}

static void test_export_wants_a_format_that_it_knows(void)
{
    struct spawn_result result = CLI_RUN(NULL, "export", first);

    cli_expect_status(125, &result);
    cli_expect_err("which format? --to=perfetto, pytorch, csv or svg", &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "export", "--to=perfeto", first);
    cli_expect_status(125, &result);
    cli_expect_err("did you mean perfetto?", &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "export", "--to=pytorch", first, second);
    cli_expect_status(125, &result);
    cli_expect_err("give one recording", &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "export", "--to=svg", first, second);
    cli_expect_status(0, &result);
    cli_expect_out("</svg>", &result);
    cli_expect_out("  (4711, GPU 0 ", &result); /* tells the pictures apart */
    cli_expect_out("  (4730, GPU 0 ", &result);
    spawn_result_free(&result);
    recording_make_training(
        first,
        &(struct recording_training){
            .events = EVENTS,
            .command =
                "train --aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                " --bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb --c"});
    result = CLI_RUN(NULL, "export", "--to=svg", first);
    cli_expect_out("bbb...</text>", &result); /* more does not fit into the picture */
    spawn_result_free(&result);
}

static void test_recording_of_a_killed_program_is_read_with_a_note(void)
{
    const struct recording_training killed = {.events = EVENTS, .killed = true};
    struct stat stat_of;

    recording_make_training(first, &killed);
    TEST_ASSERT_EQUAL_INT(0, stat(first, &stat_of));
    TEST_ASSERT_EQUAL_INT(0, truncate(first, stat_of.st_size - 3));
    struct spawn_result result = CLI_RUN(NULL, "summary", first);
    cli_expect_status(0, &result);
    cli_expect_err("note: the recording was not closed: the program was killed or still runs, or the disk "
                   "was full; the last ",
                   &result);
    cli_expect_out("live at end  ", &result); /* which is no leak */
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "never freed"), result.out);
    cli_expect_out("peak         ", &result);
    spawn_result_free(&result);
}

/* Letters of two bytes stand where 80 columns end. */
static void test_a_long_command_is_cut_between_letters(void)
{
    recording_make_training(
        first,
        &(struct recording_training){
            .events = EVENTS,
            .command = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaäää"});
    struct spawn_result result = CLI_RUN(NULL, "summary", first);
    cli_expect_out("aaaäää\n", &result); /* 80 columns */
    spawn_result_free(&result);
    recording_make_training(
        first,
        &(struct recording_training){
            .events = EVENTS,
            .command = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaäääääää"});
    result = CLI_RUN(NULL, "summary", first);
    cli_expect_out("aaaäää...\n", &result);
    expect_narrow(result.out);
    spawn_result_free(&result);
    recording_make_training(first, &(struct recording_training){
                                       .events = EVENTS, .command = "ääääääääääääääääääääääääääääääääää"});
    result = CLI_RUN(NULL, "why", first); /* a line has room for 80 letters, not bytes */
    cli_expect_out("4711 ääääääääääääääääääääääääääääääääää: 1 request refused, at ", &result);
    spawn_result_free(&result);
}

static void test_a_recording_that_is_given_twice_is_noted(void)
{
    struct spawn_result result = CLI_RUN(NULL, "summary", first, second, first);

    cli_expect_status(0, &result);
    cli_expect_err("a.gpucap are the same recording: what it held counts twice\n", &result);
    spawn_result_free(&result);
}

static void test_files_that_are_no_recordings_are_refused(void)
{
    static const char *const commands[] = {"summary", "view", "why"};
    char path[256];

    snprintf(path, sizeof(path), "%s", cli_path("text.gpucap"));
    cli_write(path, "just some text, longer than the head of a recording would be", 60, 0600);
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        struct spawn_result result = CLI_RUN(NULL, commands[i], path);

        cli_expect_status(125, &result);
        cli_expect_err("is no recording of gpucap", &result);
        TEST_ASSERT_EQUAL_STRING("", result.out);
        spawn_result_free(&result);
    }
    struct spawn_result result = CLI_RUN(NULL, "summary");
    cli_expect_status(125, &result);
    cli_expect_err("which recording?", &result);
    spawn_result_free(&result);
}

/* What `why`, `view` and `summary` say of a recording with one refusal and these events before it. */
static void expect_words(const struct recording_event *events, const uint16_t *types, size_t count,
                         const char *words)
{
    static const char *const commands[] = {"why", "view", "summary"};
    struct recording_make make;
    char path[256], name[300];

    memset(name, 'n', sizeof(name));
    snprintf(path, sizeof(path), "%s", cli_path("odd.gpucap"));
    TEST_ASSERT_TRUE(recording_make_open(&make, path, (struct recording_head){.pid = 7}, RECORDING_PLAIN));
    recording_make_name(&make, RECORDING_OWNER, 1, name, sizeof(name));
    recording_make_name(&make, RECORDING_TAG, 1, name, sizeof(name));
    for (size_t i = 0; i < count; i++)
        recording_make_event(&make, types[i], events[i]);
    recording_make_close(&make, 20, true);
    for (size_t i = 0; i < 3; i++) {
        struct spawn_result result = CLI_RUN(NULL, commands[i], path);

        cli_expect_status(0, &result);
        TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "TiB"), result.out);
        if (i == 0) /* which has the file's path */
            cli_expect_out(words, &result);
        else
            expect_narrow(result.out);
        spawn_result_free(&result);
    }
}

static void test_odd_recordings_read_well(void)
{
    struct recording_event refusal = {
        .time_ns = 15, .bytes = 9 << 20, .limit = RECORDING_LIMIT_JOB, .owner = 1, .tag = 1};
    const struct recording_event block = {
        .time_ns = 10, .address = 4096, .bytes = 5 << 20, .kind = RECORDING_MALLOC, .owner = 1, .tag = 1};
    const struct recording_event context = {.time_ns = 5, .bytes = 500 << 20, .other = 1};
    struct recording_event limit = {.time_ns = 4, .bytes = 400 << 20, .other = RECORDING_LIMIT_JOB};

    expect_words(&refusal, (const uint16_t[]){RECORDING_REFUSAL}, 1, "held by      nothing");
    expect_words((const struct recording_event[]){block, refusal},
                 (const uint16_t[]){RECORDING_ALLOC, RECORDING_REFUSAL}, 2, "nnn... 5 MiB");
    refusal.limit = RECORDING_LIMIT_CARD;
    expect_words(&refusal, (const uint16_t[]){RECORDING_REFUSAL}, 1,
                 "limit        the card itself was full\n");
    refusal.other = 2 << 20;
    expect_words(&refusal, (const uint16_t[]){RECORDING_REFUSAL}, 1,
                 "would fit    with 7 MiB more of the card free");
    refusal.other = 20 << 20;
    expect_words(&refusal, (const uint16_t[]){RECORDING_REFUSAL}, 1, "the driver refused");
    expect_words((const struct recording_event[]){limit, context},
                 (const uint16_t[]){RECORDING_LIMIT, RECORDING_CONTEXT}, 2,
                 "Try:  gpucap run --max=640M ...");
    limit.other = RECORDING_LIMIT_ADMIN;
    expect_words((const struct recording_event[]){limit, context},
                 (const uint16_t[]){RECORDING_LIMIT, RECORDING_CONTEXT}, 2,
                 "Only the administrator can set a higher one (/etc/gpucap.conf).\n");
}

/* A recording with one block and one refusal behind it, on a card of 16 MiB. `path` in cli_path(). */
static void make_refusal(const char *path, struct recording_event refusal,
                         const struct recording_event *limit)
{
    static const char card[] = "card\0GPU-1\000016777216";
    static const char program[] = "host\0train-a\0train";
    struct recording_make make;

    TEST_ASSERT_TRUE(recording_make_open(&make, path, (struct recording_head){.pid = 7}, RECORDING_PLAIN));
    recording_make_name(&make, RECORDING_DEVICE, 0, card, sizeof(card));
    recording_make_name(&make, RECORDING_PROGRAM, 0, program, sizeof(program));
    if (limit)
        recording_make_event(&make, RECORDING_LIMIT, *limit);
    recording_make_event(&make, RECORDING_ALLOC,
                         (struct recording_event){
                             .time_ns = 10, .address = 4096, .bytes = 10 << 20, .kind = RECORDING_MALLOC});
    recording_make_event(&make, RECORDING_REFUSAL, refusal);
    recording_make_close(&make, 20, true);
}

/* Nobody else could have made room, so that neither `ps` nor --wait would help. */
static void test_a_card_that_one_process_fills_is_not_blamed_on_others(void)
{
    struct recording_event refusal = {.time_ns = 15, .bytes = 9 << 20, .limit = RECORDING_LIMIT_CARD};

    make_refusal(first, refusal, NULL);
    struct spawn_result result = CLI_RUN(NULL, "why", first);
    cli_expect_out("limit        the card itself, which has 16 MiB\n", &result);
    cli_expect_out("would fit    on a card 3 MiB larger\n", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "--wait"), result.out);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "gpucap ps"), result.out);
    spawn_result_free(&result);
    refusal.bytes = 5 << 20;
    make_refusal(first, refusal, NULL);
    result = CLI_RUN(NULL, "why", first);
    cli_expect_out("gpucap run --wait=60s", &result);
    cli_expect_out("gpucap ps", &result);
    spawn_result_free(&result);
}

/* What `why` says of a request for `bytes` that a limit of 12 MiB, of this kind, or its card refused. */
static struct spawn_result why_refused(uint64_t bytes, enum recording_limit kind, uint64_t fitted)
{
    make_refusal(
        first,
        (struct recording_event){.time_ns = 15, .bytes = bytes, .limit = (uint8_t)kind, .other = fitted},
        &(struct recording_event){.time_ns = 4, .bytes = 12 << 20, .other = kind});
    return CLI_RUN(NULL, "why", first);
}

static void test_what_cannot_help_is_not_suggested(void)
{
    struct spawn_result result = why_refused(4 << 20, RECORDING_LIMIT_JOB, 1 << 20);
    cli_expect_out("Try:  gpucap run --max=128M ...\n", &result);
    spawn_result_free(&result);
    result =
        why_refused(4 << 20, RECORDING_LIMIT_PROCESS, 1 << 20); /* a higher max of its job changes nothing */
    cli_expect_out("Try:  gpucap run --each=128M ...\n", &result);
    spawn_result_free(&result);
    result = why_refused(4 << 20, RECORDING_LIMIT_ADMIN, 1 << 20);
    cli_expect_out("which only the administrator can set (/etc/gpucap.conf)\n", &result);
    cli_expect_out("Try:  gpucap page ", &result);
    spawn_result_free(&result);
    result = why_refused(9 << 20, RECORDING_LIMIT_JOB, 1 << 20);
    cli_expect_out("would fit    on a card 3 MiB larger\n", &result);
    cli_expect_out("Try:  gpucap page ", &result);
    spawn_result_free(&result);
}

static void test_memory_kept_for_other_jobs_is_no_full_card(void)
{
    struct spawn_result result = why_refused(5 << 20, RECORDING_LIMIT_KEPT, 2 << 20);

    cli_expect_out("limit        kept for other jobs (--min); at most 2 MiB would have fitted\n", &result);
    cli_expect_out("would fit    with 3 MiB less kept for other jobs\n", &result);
    cli_expect_out("Try:  gpucap ps   (shows which jobs keep memory free)\n", &result);
    spawn_result_free(&result);
}

/* A context is often measured after the first blocks were had. */
static void test_a_context_that_was_measured_late_counts(void)
{
    const struct recording_event events[] = {
        {.time_ns = 10, .address = 4096, .bytes = 5 << 20, .kind = RECORDING_MALLOC},
        {.time_ns = 15, .bytes = 9 << 20, .limit = RECORDING_LIMIT_CARD, .other = 8 << 20},
        {.time_ns = 16, .bytes = 3 << 20, .other = 1}};
    static const char card[] = "card\0GPU-1\000016777216";
    struct recording_make make;

    TEST_ASSERT_TRUE(recording_make_open(&make, first, (struct recording_head){.pid = 7}, RECORDING_PLAIN));
    recording_make_name(&make, RECORDING_DEVICE, 0, card, sizeof(card));
    recording_make_event(&make, RECORDING_ALLOC, events[0]);
    recording_make_event(&make, RECORDING_REFUSAL, events[1]);
    recording_make_event(&make, RECORDING_CONTEXT, events[2]);
    recording_make_close(&make, 20, true);
    struct spawn_result result = CLI_RUN(NULL, "why", first);
    cli_expect_out("in use       5 MiB by this process beside its CUDA context\n", &result);
    cli_expect_out("limit        the card itself, which has 16 MiB\n", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "--wait"), result.out);
    spawn_result_free(&result);
}

/* Idle memory is neither what a pool takes for the next block, nor in the way of a larger one. */
static void test_memory_that_serves_a_request_is_not_idle(void)
{
    static const char card[] = "card\0GPU-1\000016777216";
    struct recording_make make;

    TEST_ASSERT_TRUE(recording_make_open(&make, first, (struct recording_head){.pid = 7}, RECORDING_PLAIN));
    recording_make_name(&make, RECORDING_DEVICE, 0, card, sizeof(card));
    recording_make_event(&make, RECORDING_GROW,
                         (struct recording_event){.time_ns = 5, .bytes = 12 << 20, .other = 12 << 20});
    recording_make_event(
        &make, RECORDING_ALLOC,
        (struct recording_event){.time_ns = 10, .address = 4096, .bytes = 4 << 20, .kind = RECORDING_MALLOC});
    recording_make_event(
        &make, RECORDING_REFUSAL,
        (struct recording_event){.time_ns = 15, .bytes = 11 << 20, .limit = RECORDING_LIMIT_CARD});
    recording_make_close(&make, 20, true);
    struct spawn_result result = CLI_RUN(NULL, "summary", first);
    cli_expect_out("at most 8 MiB, at 10 ns\n", &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "why", first);
    cli_expect_out("limit        the card itself was full\n", &result);
    spawn_result_free(&result);
}

/* Nothing more is recorded of a process that sleeps, or was killed. */
static void test_a_neighbour_whose_recording_was_not_closed_is_named(void)
{
    struct recording_make make;

    TEST_ASSERT_TRUE(recording_make_open(&make, second, (struct recording_head){.pid = 8}, RECORDING_PLAIN));
    recording_make_event(
        &make, RECORDING_ALLOC,
        (struct recording_event){.time_ns = 2, .address = 4096, .bytes = 3 << 20, .kind = RECORDING_MALLOC});
    recording_make_close(&make, 3, false);
    make_refusal(
        first, (struct recording_event){.time_ns = 15, .bytes = 4 << 20, .limit = RECORDING_LIMIT_JOB}, NULL);
    struct spawn_result result = CLI_RUN(NULL, "why", first, second);
    cli_expect_out("neighbours   process 8 last had 3 MiB, of which nothing idled\n", &result);
    spawn_result_free(&result);
}

/* A recording of an older library does not have it. */
static void test_what_the_neighbours_had_is_not_guessed(void)
{
    const uint64_t limit = UINT64_C(1) << 30;

    make_refusal(first,
                 (struct recording_event){
                     .time_ns = 15, .bytes = 400 << 20, .limit = RECORDING_LIMIT_JOB, .other = 310 << 20},
                 &(struct recording_event){.time_ns = 4, .bytes = limit, .other = RECORDING_LIMIT_JOB});
    struct spawn_result result = CLI_RUN(NULL, "why", first);
    cli_expect_out("in use       10 MiB by this process beside its CUDA context (not measured)\n", &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "neighbours"), result.out);
    spawn_result_free(&result);
}

static void test_long_names_take_more_lines(void)
{
    static const char names[] = "login-041.of-a-cluster.example.org\0training-of-a-large-model\0train "
                                "--model=one-with-a-long-name --steps=100";
    static const char card[] = "RTX PRO 6000 Blackwell Max-Q Workstation Edition\0GPU-1\000103079215104";
    static const char library[] = "libattention_kernels.so\0/x", tag[] = "workspace of the second block";
    struct recording_make make;

    TEST_ASSERT_TRUE(
        recording_make_open(&make, first, (struct recording_head){.pid = 4194304}, RECORDING_PLAIN));
    recording_make_name(&make, RECORDING_PROGRAM, 0, names, sizeof(names));
    recording_make_name(&make, RECORDING_DEVICE, 0, card, sizeof(card));
    recording_make_name(&make, RECORDING_OWNER, 1, library, sizeof(library));
    recording_make_name(&make, RECORDING_TAG, 1, tag, sizeof(tag));
    for (unsigned i = 0; i < 3; i++) {
        struct recording_event block = {.time_ns = 10 + i * 1000000,
                                        .address = 4096,
                                        .bytes = (1023 << 20) + 1,
                                        .kind = RECORDING_ASYNC,
                                        .thread = 4194304,
                                        .owner = 1,
                                        .tag = 1};

        recording_make_event(&make, RECORDING_ALLOC, block);
        block.time_ns += 999999;
        recording_make_event(&make, i < 2 ? RECORDING_FREE : RECORDING_REFUSAL, block);
    }
    recording_make_event(
        &make, RECORDING_ALLOC,
        (struct recording_event){
            .time_ns = 5000000, .address = 4096, .bytes = 1 << 20, .kind = RECORDING_ASYNC, .device = 1});
    recording_make_close(&make, 100000000, true);
    struct spawn_result result = CLI_RUN(NULL, "summary", first);
    cli_expect_out("process 4194304 on login-041.of-a-cluster.example.org, job\n  training-of-a-large-model,",
                   &result);
    cli_expect_out("2 times,\n                 999 us at most\n", &result);
    expect_narrow(result.out);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "why", first);
    cli_expect_out("               thread 4194304\n", &result);
    expect_narrow(result.out);
    spawn_result_free(&result);
}

static void test_a_limit_beyond_the_card_is_said_to_be_one(void)
{
    make_refusal(first,
                 (struct recording_event){
                     .time_ns = 15, .bytes = 4 << 20, .limit = RECORDING_LIMIT_JOB, .other = 1 << 20},
                 &(struct recording_event){.time_ns = 4, .bytes = 15 << 20, .other = RECORDING_LIMIT_JOB});
    struct spawn_result result = CLI_RUN(NULL, "why", first);
    cli_expect_out("would fit    with a limit 3 MiB higher\n  the card     has only 16 MiB in all\n",
                   &result);
    TEST_ASSERT_NULL_MESSAGE(strstr(result.out, "--max"), result.out);
    spawn_result_free(&result);
}

/* Of several recordings a time is one since the first began. */
static void test_an_export_of_several_has_one_time(void)
{
    struct recording_make make;

    for (int i = 0; i < 2; i++) {
        TEST_ASSERT_TRUE(
            recording_make_open(&make, i ? second : first,
                                (struct recording_head){.pid = 7 + (uint32_t)i,
                                                        .began_unix_ns = 1000 + 500 * (uint64_t)i,
                                                        .began_mono_ns = 1000 + 500 * (uint64_t)i},
                                RECORDING_PLAIN));
        recording_make_event(
            &make, RECORDING_ALLOC,
            (struct recording_event){.time_ns = 2, .address = 4096, .bytes = 8, .kind = RECORDING_MALLOC});
        recording_make_close(&make, 3, true);
    }
    struct spawn_result result = CLI_RUN(NULL, "export", "--to=csv", first, second);
    cli_expect_status(0, &result);
    cli_expect_out("\n2,7,0,", &result);
    cli_expect_out("\n502,8,0,", &result);
    spawn_result_free(&result);
}

static void test_commands_to_try_can_be_copied_into_a_shell(void)
{
    char path[256], line[300];

    snprintf(path, sizeof(path), "%s", cli_path("a b's.gpucap"));
    make_refusal(
        path, (struct recording_event){.time_ns = 15, .bytes = 9 << 20, .limit = RECORDING_LIMIT_CARD}, NULL);
    snprintf(line, sizeof(line), "gpucap page '%s", cli_path("a b'\\''s.gpucap' -o page.html"));
    struct spawn_result result = CLI_RUN(NULL, "why", path);
    cli_expect_out(line, &result);
    spawn_result_free(&result);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_summary_names_peak_refusals_leaks_and_loans);
#ifndef __SANITIZE_ADDRESS__
#ifndef __SANITIZE_THREAD__
    RUN_TEST(test_smallest_limit_is_found_by_replaying);
    RUN_TEST(test_the_smallest_limit_holds_when_the_program_runs_below_it);
    RUN_TEST(test_replay_tells_whether_a_limit_is_enough);
    RUN_TEST(test_a_refusal_of_a_real_program_is_explained_by_its_recording);
    RUN_TEST(test_recording_of_a_program_that_was_killed_opens);
#endif
#endif
    RUN_TEST(test_why_explains_a_refusal_with_its_neighbours);
    RUN_TEST(test_view_is_a_picture_of_80_columns_and_24_lines);
    RUN_TEST(test_view_fits_a_narrow_terminal);
    RUN_TEST(test_odd_recordings_read_well);
    RUN_TEST(test_a_card_that_one_process_fills_is_not_blamed_on_others);
    RUN_TEST(test_what_cannot_help_is_not_suggested);
    RUN_TEST(test_memory_kept_for_other_jobs_is_no_full_card);
    RUN_TEST(test_a_context_that_was_measured_late_counts);
    RUN_TEST(test_memory_that_serves_a_request_is_not_idle);
    RUN_TEST(test_a_neighbour_whose_recording_was_not_closed_is_named);
    RUN_TEST(test_what_the_neighbours_had_is_not_guessed);
    RUN_TEST(test_long_names_take_more_lines);
    RUN_TEST(test_a_limit_beyond_the_card_is_said_to_be_one);
    RUN_TEST(test_an_export_of_several_has_one_time);
    RUN_TEST(test_commands_to_try_can_be_copied_into_a_shell);
    RUN_TEST(test_page_is_one_file_that_loads_nothing);
    RUN_TEST(test_page_that_cannot_be_written_leaves_no_file);
    RUN_TEST(test_a_recording_is_not_overwritten);
    RUN_TEST(test_export_wants_a_format_that_it_knows);
    RUN_TEST(test_recording_of_a_killed_program_is_read_with_a_note);
    RUN_TEST(test_a_long_command_is_cut_between_letters);
    RUN_TEST(test_a_recording_that_is_given_twice_is_noted);
    RUN_TEST(test_files_that_are_no_recordings_are_refused);
    return UNITY_END();
}
