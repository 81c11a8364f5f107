/* litmus_reuse: no kernel reads wrong bytes because the block it reads was freed and handed out again.
 *
 * Runs tests/gpu/litmus on simgpu: over a list of freed blocks without fences, where every scenario must fail
 * (otherwise it would prove nothing), and under libgpucap.so in both modes of free, where none may.
 * tools/gpu-check runs the same on a real card.
 */
#include "spawn.h"
#include "unity.h"

#include <stdio.h>
#include <string.h>

#define CARD    "1x2G"           /* sanitizers leave little address space, and a pool wants twice the card */
#define LIMIT_S 280.0            /* sanitizers on two slow cores */
#define HOLD    "--hold-us=2000" /* a slow machine must get to the reuse before the gate opens */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REPEAT "--repeat=8"
#else
#define REPEAT "--repeat=30"
#endif
#define FEW             "--repeat=4" /* one of each size */
#define SCENARIOS_LEAST 12

void setUp(void) {}

void tearDown(void) {}

static struct spawn_result run(struct spawn_env *env, const char *allocator, const char *repeat)
{
    struct spawn_result r =
        spawn_run(env, (const char *[]){spawn_build_path("tests/gpu/litmus"), allocator, repeat, HOLD, NULL},
                  &(struct spawn_options){.timeout_s = LIMIT_S});
    spawn_env_free(env);
    spawn_sim_clean(spawn_sim_id());
    TEST_ASSERT_FALSE_MESSAGE(r.timed_out, "litmus did not end in time");
    return r;
}

static struct spawn_env *machine(void)
{
    struct spawn_env *env = spawn_env_new();
    spawn_sim(env, CARD, NULL);
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    spawn_env_prepend(env, "TSAN_OPTIONS", "atexit_sleep_ms=0", ' ');
    return env;
}

/* Every scenario has its line, with some wrong runs or with none. */
static void expect(const char *text, bool some_wrong)
{
    int lines = 0;
    for (const char *at = text; *at; at = strchr(at, '\n') + 1) {
        char name[64], message[128];
        unsigned runs, wrong;
        TEST_ASSERT_EQUAL_INT_MESSAGE(
            3, sscanf(at, "litmus name=%63s runs=%u wrong=%u\n", name, &runs, &wrong), at);
        snprintf(message, sizeof(message), "%s: %u of %u runs were wrong", name, wrong, runs);
        TEST_ASSERT_EQUAL_INT_MESSAGE(some_wrong, wrong != 0, message);
        lines++;
    }
    TEST_ASSERT_GREATER_OR_EQUAL_INT(SCENARIOS_LEAST, lines);
}

static void expect_right(struct spawn_result *r)
{
    TEST_ASSERT_EQUAL_STRING("", r->err);
    expect(r->out, false);
    TEST_ASSERT_EQUAL_INT(0, r->status);
    spawn_result_free(r);
}

static void test_reuse_without_fences_is_caught_in_every_scenario(void)
{
    struct spawn_env *env = machine();
    spawn_env_prepend(env, "TSAN_OPTIONS", "report_bugs=0", ' '); /* the races are what is shown */
    struct spawn_result r = run(env, "--allocator=unfenced", FEW);
    expect(r.out, true);
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, r.status, r.err);
    spawn_result_free(&r);
}

static void test_the_driver_itself_passes(void)
{
    struct spawn_result r = run(machine(), "--allocator=driver", FEW);
    expect_right(&r);
}

static void wrapped(const char *mode)
{
    struct spawn_env *env = machine();
    spawn_wrapped(env);
    spawn_env_set(env, "GPUCAP_POOL", "on");
    spawn_env_set(env, "GPUCAP_FREE", mode);
    struct spawn_result r = run(env, "--allocator=driver", REPEAT);
    expect_right(&r);
}

static void test_no_reader_sees_reuse_when_frees_wait(void)
{
    wrapped("strict");
}

static void test_no_reader_sees_reuse_when_frees_are_deferred(void)
{
    wrapped("deferred");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_reuse_without_fences_is_caught_in_every_scenario);
    RUN_TEST(test_the_driver_itself_passes);
    RUN_TEST(test_no_reader_sees_reuse_when_frees_wait);
    RUN_TEST(test_no_reader_sees_reuse_when_frees_are_deferred);
    return UNITY_END();
}
