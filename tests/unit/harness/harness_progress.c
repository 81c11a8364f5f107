/* Progress lines: what people see fits their window, what programs read can be parsed, the log is JSON. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "harness/fleet/fleet_line.h"
#include "harness/train/progress.h"
#include "unity.h"

void setUp(void) {}

void tearDown(void) {}

static const struct progress_figures usual = {.model = "gpt2-small",
                                              .precision = "bf16",
                                              .step = 1240,
                                              .steps = 5000,
                                              .loss = 2.1134,
                                              .rate = 0.0006,
                                              .ms = 16.52,
                                              .per_s = 495873.2,
                                              .tokens = true,
                                              .eta_s = 62.1,
                                              .held = (size_t)10035 << 20,
                                              .peak = (size_t)10650 << 20};

static void test_the_line_of_a_terminal_says_everything_where_there_is_room(void)
{
    char line[512];

    progress_terminal_line(&usual, 200, line, sizeof(line));
    TEST_ASSERT_EQUAL_STRING(
        "gpt2-small bf16  step 1,240/5,000  [####................]  16.5 ms  495,873 tok/s  "
        "loss 2.113  lr 0.0006  9.8 GiB (peak 10.4)  ETA 1 m 02 s",
        line);
}

static void test_share_of_the_peak_is_shown_where_it_is_known(void)
{
    struct progress_figures figures = usual;
    char line[512];

    figures.peak_ms = figures.ms / 4.0;
    progress_terminal_line(&figures, 200, line, sizeof(line));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(line, "(peak 10.4)  25 % of peak FLOP/s  ETA"), line);
    progress_plain_line(&figures, line, sizeof(line));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(line, " mfu=0.2500 "), line);
    progress_plain_line(&usual, line, sizeof(line));
    TEST_ASSERT_NULL_MESSAGE(strstr(line, "mfu"), line);
}

static void test_the_line_of_a_terminal_never_exceeds_its_columns(void)
{
    char line[512];

    for (unsigned columns = 1; columns < 200; columns++) {
        progress_terminal_line(&usual, columns, line, sizeof(line));
        TEST_ASSERT_TRUE(strlen(line) <= columns);
    }
    progress_terminal_line(&usual, 80, line, sizeof(line));
    TEST_ASSERT_NOT_NULL(strstr(line, "step 1,240/5,000"));
    TEST_ASSERT_NOT_NULL(strstr(line, "loss 2.113"));
    TEST_ASSERT_NOT_NULL(strstr(line, "ETA 1 m 02 s"));
    TEST_ASSERT_NOT_NULL(strstr(line, "16.5 ms"));
    TEST_ASSERT_NOT_NULL(strstr(line, "peak 10.4"));
}

static void test_what_is_not_known_yet_is_left_out(void)
{
    struct progress_figures first = usual;
    char line[512];

    first.step = 1;
    first.ms = first.per_s = 0.0;
    first.eta_s = -1.0;
    progress_terminal_line(&first, 200, line, sizeof(line));
    TEST_ASSERT_NULL(strstr(line, " ms"));
    TEST_ASSERT_NULL(strstr(line, "ETA"));
    progress_plain_line(&first, line, sizeof(line));
    TEST_ASSERT_EQUAL_STRING(
        "model=gpt2-small step=1/5000 loss=2.1134 lr=0.0006 held_mib=10035.0 peak_mib=10650.0", line);
}

static void test_a_plain_line_is_read_by_fleet(void)
{
    struct fleet_progress progress = {.loss = NAN};
    char line[512];

    progress_plain_line(&usual, line, sizeof(line));
    TEST_ASSERT_TRUE(fleet_line_progress(line, &progress));
    TEST_ASSERT_EQUAL_UINT64(1240, progress.step);
    TEST_ASSERT_EQUAL_UINT64(5000, progress.steps);
    TEST_ASSERT_EQUAL_DOUBLE(2.1134, progress.loss);
    TEST_ASSERT_EQUAL_DOUBLE(16.52, fleet_line_number(line, "ms", 0.0));
    TEST_ASSERT_EQUAL_DOUBLE(62, fleet_line_number(line, "eta_s", 0.0));
}

static void test_a_number_that_json_does_not_know_is_null(void)
{
    char text[32];

    TEST_ASSERT_EQUAL_STRING("null", progress_number(NAN, text));
    TEST_ASSERT_EQUAL_STRING("null", progress_number(-INFINITY, text));
    TEST_ASSERT_EQUAL_STRING("-0.25", progress_number(-0.25, text));
}

/* Steps since the last line of the log are averaged, each with its weight. */
static void test_the_log_has_a_line_for_each_report_that_is_due(void)
{
    char path[] = "/tmp/harness_progress.XXXXXX", text[4096] = "";
    struct progress progress;
    int fd = mkstemp(path);
    FILE *file;

    TEST_ASSERT_TRUE(fd >= 0);
    close(fd);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, progress_log_open(path));
    progress_open(&progress, true, false, 4);
    for (uint64_t step = 1; step <= 8; step++) {
        struct progress_figures figures = usual;

        figures.step = step;
        figures.per_s = 32; /* tokens of a step */
        figures.ms = step % 4 ? 10.0 : 20.0;
        figures.loss = step == 8 ? (double)NAN : 1.5;
        progress_step(&progress, &figures, step % 4 ? 1 : 2, false);
    }
    progress_validated(&progress, "gpt", 8, 2.5, -1.0);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, progress_log_close());
    file = fopen(path, "r");
    TEST_ASSERT_NOT_NULL(file);
    TEST_ASSERT_TRUE(fread(text, 1, sizeof(text) - 1, file) > 0);
    fclose(file);
    unlink(path);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\"step\":4,\"steps\":5000,\"loss\":1.5,"), text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\"ms\":14,\"tokens_per_s\":2285.71429,"), text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\"step\":8,\"steps\":5000,\"loss\":null,"), text);
    TEST_ASSERT_NULL_MESSAGE(strstr(text, "\"step\":5,"), text);
    TEST_ASSERT_NOT_NULL_MESSAGE(
        strstr(text, "\"model\":\"gpt\",\"step\":8,\"loss\":2.5,\"accuracy\":null}\n"), text);
    TEST_ASSERT_EQUAL_INT(0, strncmp(text, "{\"event\":\"step\",\"time\":", 23));
}

static void report_two_steps(struct progress *progress)
{
    for (uint64_t step = 4999; step <= 5000; step++) {
        struct progress_figures figures = usual;

        figures.step = step;
        progress_step(progress, &figures, 1, true);
        if (step == 4999)
            status_fail(STATUS_FAILED, "a message");
    }
}

/* As of a smaller model, whose result is a text of its own. */
static void validate_in_silence(struct progress *progress)
{
    progress->printed = 0.0;
    progress_validating(progress, 3, 4);
    progress_clear(progress);
    fputs("result", stderr);
}

/* What a terminal of 80 columns gets meanwhile. */
static void read_terminal(const char *term, char *text, size_t size,
                          void (*report)(struct progress *progress))
{
    const struct winsize window = {.ws_row = 24, .ws_col = 80};
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    int before = dup(STDERR_FILENO);
    struct progress progress;
    size_t length = 0;
    ssize_t got;
    int end;

    TEST_ASSERT_TRUE(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    end = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    TEST_ASSERT_TRUE(end >= 0 && ioctl(end, TIOCSWINSZ, &window) == 0);
    dup2(end, STDERR_FILENO);
    setenv("TERM", term, 1);
    progress_open(&progress, false, false, 0);
    report(&progress);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    close(end);
    /* It comes in pieces; the last one is followed by an error, as no one else has the terminal open. */
    while (length < size - 1 && (got = read(terminal, text + length, size - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    close(terminal);
}

static void test_a_terminal_has_one_line_that_is_rewritten_and_messages_get_their_own(void)
{
    char text[4096];
    const char *second;

    read_terminal("vt100", text, sizeof(text), report_two_steps);
    TEST_ASSERT_EQUAL_INT('\r', text[0]);
    TEST_ASSERT_TRUE(strcspn(text + 1, "\033") <= 80);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "step 4,999/5,000"), text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\033[K\r\ntrain: a message\r\n\r"), text);
    second = strstr(text, "step 5,000/5,000");
    TEST_ASSERT_NOT_NULL_MESSAGE(second, text);
    TEST_ASSERT_EQUAL_STRING("\033[K\r\n", strchr(second, '\033')); /* the last one stays */
}

static void test_a_line_is_removed_for_other_text(void)
{
    char text[4096];

    read_terminal("vt100", text, sizeof(text), validate_in_silence);
    TEST_ASSERT_EQUAL_STRING("\rvalidation 3/4 batches\033[K\r\033[Kresult", text);
}

static void test_a_dumb_terminal_gets_plain_lines(void)
{
    char text[4096];

    read_terminal("dumb", text, sizeof(text), report_two_steps);
    TEST_ASSERT_NULL_MESSAGE(strchr(text, '\033'), text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, " step=5000/5000 "), text);
}

enum { MESSAGES = 5000 };
static pthread_barrier_t ready;

static void *complain(void *name)
{
    pthread_barrier_wait(&ready);
    for (int i = 0; i < MESSAGES; i++)
        status_fail(STATUS_FAILED, "replica %s failed", (const char *)name);
    return NULL;
}

/* Replicas fail at the same time, and each says why. */
static void test_messages_of_two_threads_stay_whole(void)
{
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO), lines = 0;
    pthread_t other;
    static char one[] = "one", two[] = "two";
    char line[64];

    TEST_ASSERT_TRUE(file && before >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    pthread_barrier_init(&ready, NULL, 2);
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&other, NULL, complain, one));
    complain(two);
    pthread_join(other, NULL);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(file);
    for (; fgets(line, sizeof(line), file); lines++)
        TEST_ASSERT_TRUE_MESSAGE(!strcmp(line, "train: replica one failed\n") ||
                                     !strcmp(line, "train: replica two failed\n"),
                                 line);
    TEST_ASSERT_EQUAL_INT(2 * MESSAGES, lines);
    fclose(file);
}

/* A line that is written in parts has another thread's lines in it. A pipe of packets gives each write alone.
 */
static void test_the_line_of_a_validation_is_written_at_once(void)
{
    struct progress progress;
    int before = dup(STDERR_FILENO), ends[2];
    char text[256];

    progress_open(&progress, false, true, 0);
    TEST_ASSERT_TRUE(before >= 0 && pipe2(ends, O_DIRECT | O_CLOEXEC) == 0);
    dup2(ends[1], STDERR_FILENO);
    progress_validated(&progress, "mlp", 2, 2.5, 0.25);
    dup2(before, STDERR_FILENO);
    close(before);
    const ssize_t got = read(ends[0], text, sizeof(text) - 1);
    close(ends[0]);
    close(ends[1]);
    TEST_ASSERT_TRUE(got > 0);
    text[got] = '\0';
    TEST_ASSERT_EQUAL_STRING("mlp step 2 validation loss 2.5000 accuracy 0.2500\n", text);
}

static void test_a_loss_that_is_no_number_has_no_sign(void)
{
    struct progress_figures figures = usual;
    char line[512];

    figures.loss = -(double)NAN;
    progress_plain_line(&figures, line, sizeof(line));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(line, " loss=nan "), line);
    progress_terminal_line(&figures, 200, line, sizeof(line));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(line, "  loss nan  "), line);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_messages_of_two_threads_stay_whole);
    RUN_TEST(test_a_loss_that_is_no_number_has_no_sign);
    RUN_TEST(test_the_line_of_a_terminal_says_everything_where_there_is_room);
    RUN_TEST(test_share_of_the_peak_is_shown_where_it_is_known);
    RUN_TEST(test_the_line_of_a_terminal_never_exceeds_its_columns);
    RUN_TEST(test_what_is_not_known_yet_is_left_out);
    RUN_TEST(test_a_plain_line_is_read_by_fleet);
    RUN_TEST(test_a_number_that_json_does_not_know_is_null);
    RUN_TEST(test_the_log_has_a_line_for_each_report_that_is_due);
    RUN_TEST(test_a_terminal_has_one_line_that_is_rewritten_and_messages_get_their_own);
    RUN_TEST(test_the_line_of_a_validation_is_written_at_once);
    RUN_TEST(test_a_line_is_removed_for_other_text);
    RUN_TEST(test_a_dumb_terminal_gets_plain_lines);
    return UNITY_END();
}
