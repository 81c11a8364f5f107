/* transcript_support: runs a transcript program on simgpu and compares two transcripts. See
 * transcript_support.h. */
#include "transcript_support.h"

#include "spawn.h"
#include "unity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIM_CARD                                                                                             \
    "1x16G" /* as the recorded card: one, and large enough for every block a transcript asks for */
#define LIMIT_S       550.0 /* sanitizers on two slow cores */
#define SHOWN_LINES   12
#define MESSAGE_BYTES 8192

char *transcript_take(const struct transcript_run *run)
{
    static unsigned turn;
    static const char *const paths[] = {[TRANSCRIPT_DRIVER] = "tests/gpu/transcript",
                                        [TRANSCRIPT_RUNTIME] = "tests/gpu/transcript_rt_shared",
                                        [TRANSCRIPT_RUNTIME_STATIC] = "tests/gpu/transcript_rt_sim_static"};
    char lookup[32], machine[128];
    struct spawn_env *env = spawn_env_new();
    snprintf(machine, sizeof(machine), "%s-%u", spawn_sim_id(), turn++);
    snprintf(lookup, sizeof(lookup), "--lookup=%s", run->lookup);
    spawn_env_set(env, "ASAN_OPTIONS", "detect_leaks=0"); /* the same for both kinds of run */
    spawn_env_prepend(env, "TSAN_OPTIONS", "atexit_sleep_ms=0",
                      ' '); /* a second for each of many processes */
    spawn_sim(env, SIM_CARD, machine);
    if (run->wrapped) {
        spawn_wrapped(env);
        /* Native memory reads as zero; a pool may hand out a process's own old bytes unless it is told to. */
        spawn_env_set(env, "GPUCAP_ZERO", "on");
    }
    spawn_cap(env, run->wrapped ? run->cap : NULL);
    struct spawn_result r =
        spawn_run(env, (const char *[]){spawn_build_path(paths[run->program]), lookup, NULL},
                  &(struct spawn_options){.timeout_s = LIMIT_S});
    spawn_env_free(env);
    spawn_sim_clean(machine);
    TEST_ASSERT_FALSE_MESSAGE(r.timed_out, "the transcript did not end in time");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    TEST_ASSERT_NOT_EQUAL_MESSAGE(0, r.out_len, "the transcript is empty");
    if (r.err_len)
        printf("stderr of the run:\n%.8000s\n",
               r.err); /* a sanitizer's report explains a section that ended early */
    free(r.err);
    return r.out;
}

static const char *next_line(const char *at)
{
    const char *end = strchr(at, '\n');
    return end ? end + 1 : at + strlen(at);
}

static size_t length(const char *at)
{
    return strcspn(at, "\n");
}

static bool same_line(const char *a, const char *b)
{
    return length(a) == length(b) && !strncmp(a, b, length(a));
}

/* Where the line is found again within the next lines, so that one missing line does not make all others
 * differ. */
static const char *find_ahead(const char *line, const char *in)
{
    const int far = 200;
    for (int i = 0; i < far && *in; i++, in = next_line(in)) {
        if (same_line(line, in))
            return in;
    }
    return NULL;
}

static bool add_line(char *message, const char *name, const char *line)
{
    size_t used = strlen(message);
    int n = snprintf(message + used, MESSAGE_BYTES - used, "\n%12s | %.*s", name, (int)length(line), line);
    return n > 0 && (size_t)n < MESSAGE_BYTES - used;
}

void transcript_assert_equal(const char *expected, const char *expected_name, const char *got,
                             const char *got_name)
{
    static char message[MESSAGE_BYTES];
    int different = 0;
    message[0] = 0;
    while (*expected || *got) {
        if (*expected && *got && same_line(expected, got)) {
            expected = next_line(expected);
            got = next_line(got);
            continue;
        }
        bool show = different++ < SHOWN_LINES;
        const char *resume_expected = *got ? find_ahead(got, expected) : NULL;
        const char *resume_got = *expected ? find_ahead(expected, got) : NULL;
        if (*expected && (!resume_got || resume_expected || !*got)) {
            if (show)
                add_line(message, expected_name, expected);
            expected = next_line(expected);
        }
        if (*got && (!resume_expected || resume_got)) {
            if (show)
                add_line(message, got_name, got);
            got = next_line(got);
        }
    }
    if (different) {
        char headline[64];
        snprintf(headline, sizeof(headline), "%d places differ (the first are above)", different);
        puts(message); /* Unity would print its line ends as \\n */
        fflush(stdout);
        TEST_FAIL_MESSAGE(headline);
    }
}

char *transcript_read_file(const char *path)
{
    FILE *f = fopen(path, "re");
    char *text = NULL;
    size_t used = 0;
    if (!f)
        return NULL;
    for (;;) {
        char chunk[4096];
        size_t n = fread(chunk, 1, sizeof(chunk), f);
        text = realloc(text, used + n + 1);
        TEST_ASSERT_NOT_NULL(text);
        memcpy(text + used, chunk, n);
        used += n;
        text[used] = 0;
        if (n < sizeof(chunk))
            break;
    }
    fclose(f);
    return text;
}
