/* transcript_fill: programs that take all the memory there is, by every way to reach CUDA, stay below their
 * cap.
 *
 * The watcher asks NVML from outside, as tools/gpu-check does on a real card: the process's memory, its
 * context included, must never pass the cap, and the program must get plain out-of-memory codes and go on.
 */
#include "spawn.h"
#include "unity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CARD "1x4G;ctx=64M"
#define CAP  "512M"

void setUp(void);
void tearDown(void);

void setUp(void) {}

void tearDown(void) {}

static void fill(const char *program, const char *mode)
{
    char preload[4096], library_path[4096], cap[64], path[64];
    struct spawn_env *wrapped = spawn_env_new(), *env = spawn_env_new();
    spawn_sim(env, CARD, NULL); /* the watcher: the simulated NVML, and no library in between */
    spawn_sim(wrapped, CARD, NULL);
    spawn_wrapped(wrapped);
    spawn_env_set(env, "ASAN_OPTIONS", "detect_leaks=0");
    snprintf(preload, sizeof(preload), "--env=LD_PRELOAD=%s", spawn_env_get(wrapped, "LD_PRELOAD"));
    snprintf(library_path, sizeof(library_path), "--env=LD_LIBRARY_PATH=%s",
             spawn_env_get(wrapped, "LD_LIBRARY_PATH"));
    snprintf(cap, sizeof(cap), "--env=GPUCAP_MAX=%s", CAP);
    snprintf(path, sizeof(path), "tests/gpu/%s", program);
    struct spawn_result r =
        spawn_run(env,
                  (const char *[]){spawn_build_path("tests/gpu/nvml_watch"), "--cap=" CAP, preload,
                                   library_path, cap, "--", spawn_build_path(path), mode, NULL},
                  NULL);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.status ? (r.out_len ? r.out : r.err) : "");
    TEST_ASSERT_EQUAL_STRING("yes", spawn_value(r.out, "held"));
    TEST_ASSERT_EQUAL_STRING("536870912", spawn_value(r.out, "total"));
    TEST_ASSERT_EQUAL_STRING_MESSAGE("yes", spawn_value(r.err, "within_cap"), r.err);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("tree", spawn_value(r.err, "matched_by"), r.err);
    spawn_result_free(&r);
    spawn_env_free(env);
    spawn_env_free(wrapped);
}

static void test_the_cap_holds_for_a_driver_program_by_dlsym(void)
{
    fill("fill_dl", "--mode=fill");
}

static void test_the_cap_holds_for_a_driver_program_linked_directly(void)
{
    fill("fill_direct", "--mode=fill");
}

static void test_the_cap_holds_for_a_program_with_a_shared_runtime(void)
{
    fill("fill_rt_shared", "--mode=fill");
}

static void test_the_cap_holds_for_a_program_with_a_static_runtime(void)
{
    fill("fill_rt_sim_static", "--mode=fill");
}

static void test_a_program_that_takes_what_it_is_told_is_free_gets_it(void)
{
    fill("fill_dl", "--mode=greedy");
    fill("fill_direct", "--mode=greedy");
    fill("fill_rt_shared", "--mode=greedy");
    fill("fill_rt_sim_static", "--mode=greedy");
}

static void test_the_cap_holds_for_racing_threads(void)
{
    fill("fill_dl", "--mode=threads");
    fill("fill_rt_shared", "--mode=threads");
}

static void test_the_cap_holds_for_graphs_that_allocate(void)
{
    fill("fill_dl", "--mode=graph");
    fill("fill_direct", "--mode=graph");
    fill("fill_rt_shared", "--mode=graph");
    fill("fill_rt_sim_static", "--mode=graph");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_the_cap_holds_for_a_driver_program_by_dlsym);
    RUN_TEST(test_the_cap_holds_for_a_driver_program_linked_directly);
    RUN_TEST(test_the_cap_holds_for_a_program_with_a_shared_runtime);
    RUN_TEST(test_the_cap_holds_for_a_program_with_a_static_runtime);
    RUN_TEST(test_a_program_that_takes_what_it_is_told_is_free_gets_it);
    RUN_TEST(test_the_cap_holds_for_racing_threads);
    RUN_TEST(test_the_cap_holds_for_graphs_that_allocate);
    return UNITY_END();
}
