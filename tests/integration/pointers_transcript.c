/* pointers_transcript: a program over the pool sees exactly what it sees natively: the transcripts of
 * tests/gpu, every line. With zero=on, because fresh memory reads as zero natively, and that is what a
 * transcript looks at.
 */
#include "transcript_support.h"

#include "spawn.h"
#include "unity.h"

#include <stdio.h>
#include <stdlib.h>

#define CARD    "1x4G" /* sanitizers leave little address space, and a pool wants twice the card */
#define LIMIT_S 550.0  /* sanitizers on two slow cores */

void setUp(void) {}

void tearDown(void) {}

static char *take(const char *program, const char *lookup, bool pooled)
{
    static unsigned turn;
    struct spawn_env *env = spawn_env_new();
    char machine[128];

    snprintf(machine, sizeof(machine), "%s-%u", spawn_sim_id(), turn++);
    spawn_env_set(env, "ASAN_OPTIONS", "detect_leaks=0"); /* the same for both kinds of run */
    spawn_env_prepend(env, "TSAN_OPTIONS", "atexit_sleep_ms=0", ' ');
    spawn_sim(env, CARD, machine);
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    if (pooled) {
        spawn_wrapped(env);
        spawn_env_set(env, "GPUCAP_POOL", "on");
        spawn_env_set(env, "GPUCAP_ZERO", "on");
    }
    struct spawn_result r = spawn_run(env, (const char *[]){spawn_build_path(program), lookup, NULL},
                                      &(struct spawn_options){.timeout_s = LIMIT_S});
    spawn_env_free(env);
    spawn_sim_clean(machine);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    free(r.err);
    return r.out;
}

static void compare(const char *program, const char *lookup)
{
    char *native = take(program, lookup, false), *pooled = take(program, lookup, true);

    transcript_assert_equal(native, "native", pooled, "pooled");
    free(native);
    free(pooled);
}

static void test_the_driver_over_the_pool_answers_as_natively(void)
{
    compare("tests/gpu/transcript", "--lookup=dlsym");
}

static void test_functions_from_cuGetProcAddress_answer_as_natively(void)
{
    compare("tests/gpu/transcript", "--lookup=procaddr");
}

static void test_the_runtime_over_the_pool_answers_as_natively(void)
{
    compare("tests/gpu/transcript_rt_shared", "--lookup=dlsym");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_the_driver_over_the_pool_answers_as_natively);
    RUN_TEST(test_functions_from_cuGetProcAddress_answer_as_natively);
    RUN_TEST(test_the_runtime_over_the_pool_answers_as_natively);
    return UNITY_END();
}
