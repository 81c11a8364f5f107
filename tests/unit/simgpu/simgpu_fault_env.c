/* simgpu_fault_env: the fault script in the environment. Runs the driver in children only: a process reads it
 * once. */
#include "tests/unit/simgpu/simgpu_support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

void setUp(void) {}

void tearDown(void)
{
    unsetenv("GPUCAP_SIM_FAULT");
}

static int allocate_and_free(void)
{
    CUdeviceptr p;

    MUST(0, sim_make_current());
    MUST(0, cuMemAlloc(&p, 4096));
    MUST(0, cuMemFree(p));
    MUST(0, cuMemAlloc(&p, 4096));
    return 0;
}

static void test_the_environment_can_kill_the_process_at_a_call(void)
{
    setenv("GPUCAP_SIM_FAULT", "cuMemFree_v2:1=kill", 1);
    TEST_ASSERT_EQUAL_INT(128 + SIGKILL, sim_in_child(allocate_and_free));
    setenv("GPUCAP_SIM_FAULT", "cuMemFree_v2:1=kill-after", 1);
    TEST_ASSERT_EQUAL_INT(128 + SIGKILL, sim_in_child(allocate_and_free));
    setenv("GPUCAP_SIM_FAULT", "cuMemFree_v2:2=kill", 1);
    TEST_ASSERT_EQUAL_INT(0, sim_in_child(allocate_and_free));
}

static int bad_script(void)
{
    MUST(1, cuInit(0));
    return 0;
}

static void test_a_bad_script_in_the_environment_stops_the_start(void)
{
    setenv("GPUCAP_SIM_FAULT", "cuMemAlloc_v2:first=2", 1);
    TEST_ASSERT_EQUAL_INT(0, sim_in_child(bad_script));
}

int main(void)
{
    sim_machine("1x1G");
    UNITY_BEGIN();
    RUN_TEST(test_the_environment_can_kill_the_process_at_a_call);
    RUN_TEST(test_a_bad_script_in_the_environment_stops_the_start);
    return UNITY_END();
}
