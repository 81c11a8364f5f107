/* Edge cases: senseless arguments, threads that race with every kind of memory while signals arrive, settings
 * from files, a driver that is closed and opened again. */
#include "interpose_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CAP_MIB 1024
#ifdef __SANITIZE_THREAD__ /* it also sees accesses that do not meet by chance, and is slow */
#define ROUNDS 50
#define STARTS 5
#else
#define ROUNDS 200
#define STARTS 20
#endif

void setUp(void) {}
void tearDown(void) {}

static void test_odd_arguments_are_answered_as_the_driver_answers(void)
{
    static const char *const ways[] = {"dlsym", "proc"}, *const caps[] = {NULL, "1G", "4G"};
    struct interpose_run run = {.program = "prog_odd", .way = "dlsym", .native = true, .unpooled = true};
    struct spawn_result want = interpose_take(&run, "");

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, want.status, want.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(want.out, "leaks 0\n"), want.out);
    run.native = false;
    for (size_t i = 0; i < 6; i++) {
        run.way = ways[i % 2];
        run.cap = caps[i / 2];
        interpose_expect(&run, "", want.out);
    }
    /* With the pool, the last line tells of its chunks. */
    char *end = strstr(want.out, "leaks");
    run.unpooled = false;
    struct spawn_result pooled = interpose_take(&run, "");
    TEST_ASSERT_EQUAL_STRING_LEN(want.out, pooled.out, (size_t)(end - want.out));
    spawn_result_free(&pooled);
    spawn_result_free(&want);
}

/* The peak is what NVML shows, sampled all the time. */
static void race_with(const char *way, const char *kinds, bool unpooled)
{
    const struct interpose_run run = {.program = "prog_race", .way = way, .cap = "1G", .unpooled = unpooled};
    char steps[64];

    snprintf(steps, sizeof(steps), "8 %d %s", ROUNDS, kinds);
    struct spawn_result r = interpose_take(&run, steps);
    const char *peak = strstr(r.out, "peak=");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "wrong=0 "), r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, unpooled ? "free=448 leaks=0\n" : "free=448 "), r.out);
    TEST_ASSERT_TRUE_MESSAGE(peak && atoi(peak + 5) <= CAP_MIB, r.out);
    spawn_result_free(&r);
}

static void race(const char *way, const char *kinds)
{
    race_with(way, kinds, true);
    race_with(way, kinds, false);
}

static void test_racing_linear_memory_stays_below_the_cap(void)
{
    race("dlsym", "l");
    race("proc", "l");
}

static void test_racing_handles_and_arrays_stay_below_the_cap(void)
{
    race("dlsym", "h");
    race("dlsym", "t");
    race("proc", "lht");
}

static void test_racing_memory_and_streams_stay_below_the_cap(void)
{
    race("dlsym", "ls");
}

static void test_racing_stream_ordered_memory_stays_below_the_cap(void)
{
    race("dlsym", "a");
    race("dlsym", "la");
    race("ptsz", "lahts");
}

static void test_threads_that_start_together_all_start(void)
{
    const struct interpose_run run = {.program = "prog_start", .way = "direct", .cap = "1G"};

    for (int i = 0; i < STARTS; i++)
        interpose_expect(&run, "", "wrong=0\n");
}

/* Without a cap the pool may hold the whole card, and the program must not notice. */
static void test_a_card_full_of_our_cache_is_not_full(void)
{
    static const char *const kinds[] = {"create:1G:0", "async:1G", "array:16384:4096", "pitch:1048576:1024"};
    const struct interpose_run run = {.cap = NULL};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        char steps[128], want[256];

        snprintf(steps, sizeof(steps), "init ctx:0 fill:alloc:1G free-all fill:%s free-all sync ctx:0",
                 kinds[i]);
        snprintf(want, sizeof(want),
                 "init 0\nctx 0\nfill alloc 2 n=7\nfree-all n=7 failed=0\nfill %.*s 2 n=7\n"
                 "free-all n=7 failed=0\nsync 0\nctx 0\n",
                 (int)strcspn(kinds[i], ":"), kinds[i]);
        interpose_expect(&run, steps, want);
    }
}

/* Memory of freed blocks that the pool keeps can be had as any other kind. */
static void test_cached_memory_is_given_up_for_other_kinds(void)
{
    static const char *const kinds[] = {"create:32M:0", "async:32M", "array:1024:2048", "pitch:65536:512"};
    const struct interpose_run run = {.cap = "1G"};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        char steps[128], want[256];

        snprintf(steps, sizeof(steps), "init ctx:0 fill:alloc:16M free-all info fill:%s held", kinds[i]);
        snprintf(want, sizeof(want),
                 "init 0\nctx 0\nfill alloc 2 n=28\nfree-all n=28 failed=0\ninfo 0 free=448 total=1024\n"
                 "fill %.*s 2 n=14\nheld 960\n",
                 (int)strcspn(kinds[i], ":"), kinds[i]);
        interpose_expect(&run, steps, want);
    }
}

/* Also if work that a native free would have waited for is not done. */
static void test_freed_memory_with_pending_work_is_released_too(void)
{
    static const char *const kinds[] = {"create:512M:0", "async:512M", "array:16384:2048",
                                        "pitch:1048576:512", "streams:1"};
    static const char *const deferred[] = {"GPUCAP_FREE", "deferred", "GPUCAP_RESERVE", "0", NULL};
    const struct interpose_run run = {.cap = "1G", .variables = deferred};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        char steps[128], want[256];

        snprintf(steps, sizeof(steps), "init ctx:0 alloc:512M busy:100 free %s", kinds[i]);
        snprintf(want, sizeof(want), "init 0\nctx 0\nalloc 0\nbusy 0\nfree 0\n%.*s 0\n",
                 (int)strcspn(kinds[i], ":"), kinds[i]);
        interpose_expect(&run, steps, want);
    }
}

/* A home folder with a settings file in it. */
static void with_home(const char *text, void (*check)(const char *home))
{
    char home[] = "/tmp/gpucap-home-XXXXXX", folder[64], file[96];

    TEST_ASSERT_NOT_NULL(mkdtemp(home));
    snprintf(folder, sizeof(folder), "%s/.config", home);
    snprintf(file, sizeof(file), "%s/gpucap.conf", folder);
    mkdir(folder, 0700);
    FILE *f = fopen(file, "w");
    TEST_ASSERT_NOT_NULL(f);
    fputs(text, f);
    fclose(f);
    check(home);
    unlink(file);
    rmdir(folder);
    rmdir(home);
}

static void check_file_holds(const char *home)
{
    const char *const variables[] = {"HOME", home, NULL};
    const struct interpose_run file = {.variables = variables}, both = {.variables = variables, .cap = "2G"};

    interpose_expect(&file, "init total:0 ctx:0 info",
                     "init 0\ntotal 0 1024\nctx 0\ninfo 0 free=384 total=1024\n");
    interpose_expect(&both, "init total:0", "init 0\ntotal 0 2048\n");
}

static void check_file_refused(const char *home)
{
    const char *const variables[] = {"HOME", home, NULL};
    const struct interpose_run run = {.variables = variables, .cap = "1G"};
    struct spawn_result r = interpose_take(&run, "init ctx:0");

    TEST_ASSERT_EQUAL_STRING("init 800\nctx 800\n", r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, "gpucap.conf:2"), r.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, "'lots'"), r.err);
    spawn_result_free(&r);
}

static void test_a_users_file_sets_the_cap_and_the_environment_wins(void)
{
    with_home("# my limits\nmax = 1G\nreserve = 128M\n", check_file_holds);
}

static void test_a_bad_users_file_refuses_cuda_even_beside_a_good_environment(void)
{
    with_home("reserve = 128M\nmax = lots\n", check_file_refused);
}

static void test_a_driver_that_is_closed_and_opened_again_stays_capped(void)
{
    const struct interpose_run run = {.program = "prog_reopen", .way = "-", .cap = "1G"};

    interpose_expect(&run, "", "0 0 0 0 total=1024\n0 0 0 0 total=1024\n0 0 0 0 total=1024\n");
}

static void test_the_library_named_twice_is_one_library(void)
{
    const struct interpose_run run = {.cap = "1G"};
    struct spawn_env *env = interpose_env(&run);
    const char *argv[] = {interpose_program("prog_steps"), "dlsym", "init", "ctx:0", "fill:alloc:16M", NULL};
    char twice[2048];

    snprintf(twice, sizeof(twice), "%s:%s", spawn_env_get(env, "LD_PRELOAD"),
             spawn_build_path("libgpucap.so"));
    spawn_env_set(env, "LD_PRELOAD", twice);
    struct spawn_result r = spawn_run(env, argv, NULL);
    TEST_ASSERT_EQUAL_STRING("init 0\nctx 0\nfill alloc 2 n=28\n", r.out);
    spawn_result_free(&r);
    spawn_env_free(env);
}

static void test_a_closed_stderr_and_stdout_are_no_reason_to_fail(void)
{
    const struct interpose_run run = {.cap = "junk"};
    struct spawn_env *env = interpose_env(&run);
    char command[512];

    snprintf(command, sizeof(command), "%s dlsym init ctx:0 2>&- >&-; echo $?",
             interpose_program("prog_steps"));
    const char *argv[] = {"sh", "-c", command, NULL};
    struct spawn_result r = spawn_run(env, argv, NULL);
    TEST_ASSERT_EQUAL_STRING("0\n", r.out);
    spawn_result_free(&r);
    spawn_env_free(env);
}

int main(void)
{
    interpose_need_sim();
    UNITY_BEGIN();
    RUN_TEST(test_odd_arguments_are_answered_as_the_driver_answers);
    RUN_TEST(test_racing_linear_memory_stays_below_the_cap);
    RUN_TEST(test_racing_handles_and_arrays_stay_below_the_cap);
    RUN_TEST(test_racing_memory_and_streams_stay_below_the_cap);
    RUN_TEST(test_racing_stream_ordered_memory_stays_below_the_cap);
    RUN_TEST(test_threads_that_start_together_all_start);
    RUN_TEST(test_a_card_full_of_our_cache_is_not_full);
    RUN_TEST(test_cached_memory_is_given_up_for_other_kinds);
    RUN_TEST(test_freed_memory_with_pending_work_is_released_too);
    RUN_TEST(test_a_users_file_sets_the_cap_and_the_environment_wins);
    RUN_TEST(test_a_bad_users_file_refuses_cuda_even_beside_a_good_environment);
    RUN_TEST(test_a_driver_that_is_closed_and_opened_again_stays_capped);
    RUN_TEST(test_the_library_named_twice_is_one_library);
    RUN_TEST(test_a_closed_stderr_and_stdout_are_no_reason_to_fail);
    return UNITY_END();
}
