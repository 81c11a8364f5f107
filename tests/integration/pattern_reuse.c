/* pattern_reuse: every block keeps the pattern that was written into it until it is freed, whatever other
 * threads and streams do. Runs tests/gpu/pattern for a moment on simgpu; tools/gpu-check runs it longer on a
 * real card. */
#include "spawn.h"
#include "unity.h"

#include <stdio.h>

#define CARD    "1x2G" /* sanitizers leave little address space, and a pool wants twice the card */
#define LIMIT_S 200.0  /* sanitizers on two slow cores */

void setUp(void) {}

void tearDown(void) {}

static void run(const char *mode, const char *streams, const char *decay)
{
    struct spawn_env *env = spawn_env_new();
    unsigned long long blocks, bytes, refused, wrong;

    spawn_sim(env, CARD, NULL);
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    spawn_env_prepend(env, "TSAN_OPTIONS", "atexit_sleep_ms=0", ' ');
    if (mode) {
        spawn_wrapped(env);
        spawn_cap(env, "700M"); /* the simulated context, and little more than what lives */
        spawn_env_set(env, "GPUCAP_FREE", mode);
        spawn_env_set(env, "GPUCAP_DECAY", decay);
    }
    struct spawn_result r = spawn_run(env,
                                      (const char *[]){spawn_build_path("tests/gpu/pattern"), "--seconds=1",
                                                       "--budget=40", "--largest=4", streams, NULL},
                                      &(struct spawn_options){.timeout_s = LIMIT_S});
    spawn_env_free(env);
    spawn_sim_clean(spawn_sim_id());
    TEST_ASSERT_EQUAL_STRING("", r.err);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.out);
    TEST_ASSERT_EQUAL_INT(4, sscanf(r.out, "pattern blocks=%llu bytes=%llu refused=%llu wrong=%llu", &blocks,
                                    &bytes, &refused, &wrong));
    TEST_ASSERT_TRUE(wrong == 0 && blocks > 0);
    spawn_result_free(&r);
}

static void test_the_driver_itself_passes(void)
{
    run(NULL, "--streams=3", NULL);
}

static void test_blocks_keep_their_bytes_when_frees_wait(void)
{
    run("strict", "--streams=3", "10");
}

static void test_blocks_keep_their_bytes_behind_one_stream(void)
{
    run("deferred", "--streams=1", "10");
}

static void test_blocks_keep_their_bytes_behind_several_streams(void)
{
    run("deferred", "--streams=3", "10");
}

static void test_blocks_keep_their_bytes_when_all_idle_memory_goes_back_at_once(void)
{
    run("deferred", "--streams=2", "0");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_the_driver_itself_passes);
    RUN_TEST(test_blocks_keep_their_bytes_when_frees_wait);
    RUN_TEST(test_blocks_keep_their_bytes_behind_one_stream);
    RUN_TEST(test_blocks_keep_their_bytes_behind_several_streams);
    RUN_TEST(test_blocks_keep_their_bytes_when_all_idle_memory_goes_back_at_once);
    return UNITY_END();
}
