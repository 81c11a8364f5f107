/* every_way: runs a scenario of PROGRAM, which checks itself, on simgpu: natively and under the library,
 * strict and deferred. The including file defines PROGRAM.
 */
#ifndef GPUCAP_TESTS_EVERY_WAY_H
#define GPUCAP_TESTS_EVERY_WAY_H

#include "spawn.h"
#include "unity.h"

/* Sanitizers leave little address space, and a pool wants twice the card. */
#define CARD "1x2G;ctx=128M"

enum way { NATIVE, STRICT, DEFERRED };

static const char *slow_clock; /* PROG_SLOW_CLOCK (prog_clock.c), or NULL */

/* `log`: what the library may say, NULL for the default. */
static inline void run_logging(const char *scenario, enum way way, const char *cap, const char *log)
{
    static const char *const names[] = {"native", "strict", "deferred"};
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, CARD, NULL);
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    if (way != NATIVE) {
        spawn_wrapped(env);
        spawn_env_set(env, "GPUCAP_POOL", "on");
        spawn_env_set(env, "GPUCAP_FREE", names[way]);
    }
    if (cap)
        spawn_cap(env, cap);
    if (log)
        spawn_env_set(env, "GPUCAP_LOG", log);
    spawn_env_set(env, "GPUCAP_DECAY", "0.02"); /* the helper thread looks around every 5 ms */
    if (slow_clock)
        spawn_env_set(env, "PROG_SLOW_CLOCK", slow_clock);
    struct spawn_result r = spawn_run(
        env, (const char *[]){spawn_build_path("tests/integration/" PROGRAM), scenario, NULL}, NULL);
    spawn_env_free(env);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, names[way]);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, names[way]);
    spawn_result_free(&r);
}

static inline void run(const char *scenario, enum way way, const char *cap)
{
    run_logging(scenario, way, cap, NULL);
}

/* For a scenario in which something is refused, which the library would say. */
static inline void run_quietly(const char *scenario, enum way way, const char *cap)
{
    run_logging(scenario, way, cap, "quiet");
}

static inline void as_natively(const char *scenario)
{
    run(scenario, NATIVE, NULL);
    run(scenario, STRICT, NULL);
}

static inline void every_way(const char *scenario)
{
    as_natively(scenario);
    run(scenario, DEFERRED, NULL);
}

/* For a scenario in which the library waits for another thread, for less time than that one may take on a
 * busy machine. */
static inline void every_way_patiently(const char *scenario)
{
    slow_clock = "100";
    every_way(scenario);
    slow_clock = NULL;
}

#endif
