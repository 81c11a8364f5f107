/* simgpu_fault: the fault script and the call counters of the simulated driver. */
#include "tests/unit/simgpu/simgpu_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void setUp(void)
{
    sim_begin();
    simgpu_reset_calls();
}

void tearDown(void)
{
    sim_end();
}

static void test_the_nth_call_fails_and_does_nothing(void)
{
    size_t before = sim_free();
    CUdeviceptr p, q;

    TEST_ASSERT_EQUAL_INT(0, simgpu_set_fault("cuMemAlloc_v2:2=2, cuMemFree_v2:1=700"));
    OK(cuMemAlloc(&p, 4096));
    IS(2, cuMemAlloc(&q, 4096));
    IS(700, cuMemFree(p));
    OK(cuMemAlloc(&q, 4096));
    OK(cuMemFree(p));
    OK(cuMemFree(q));
    TEST_ASSERT_EQUAL_UINT64(3, simgpu_calls("cuMemAlloc_v2"));
    TEST_ASSERT_EQUAL_UINT64(before, sim_free());
}

static void test_every_call_can_fail(void)
{
    CUdeviceptr p;
    int i;

    TEST_ASSERT_EQUAL_INT(0, simgpu_set_fault("cuMemAlloc_v2:*=2"));
    for (i = 0; i < 3; i++)
        IS(2, cuMemAlloc(&p, 1));
    TEST_ASSERT_EQUAL_INT(0, simgpu_set_fault(""));
    OK(cuMemAlloc(&p, 1));
    OK(cuMemFree(p));
}

static void test_a_call_can_be_slow_and_does_its_work(void)
{
    struct timespec begin, end;
    CUdeviceptr p;

    TEST_ASSERT_EQUAL_INT(0, simgpu_set_fault("cuMemAlloc_v2:1=ms20"));
    clock_gettime(CLOCK_MONOTONIC, &begin);
    OK(cuMemAlloc(&p, 4096));
    clock_gettime(CLOCK_MONOTONIC, &end);
    TEST_ASSERT_GREATER_OR_EQUAL_INT64(20000000, (end.tv_sec - begin.tv_sec) * INT64_C(1000000000) +
                                                     (end.tv_nsec - begin.tv_nsec));
    OK(cuMemFree(p));
}

static void test_a_star_counts_all_calls_together(void)
{
    CUdeviceptr p;
    int count;

    simgpu_reset_calls();
    TEST_ASSERT_EQUAL_INT(0, simgpu_set_fault("*:3=999"));
    OK(cuDeviceGetCount(&count));
    OK(cuMemAlloc(&p, 1));
    IS(999, cuMemFree(p));
    OK(cuMemFree(p));
    TEST_ASSERT_EQUAL_UINT64(4, simgpu_calls_total());
}

static void test_bad_scripts_are_refused_and_the_old_one_stays(void)
{
    static const char *const bad[] = {
        "x",
        ":",
        "cuMemAlloc_v2",
        "cuMemAlloc_v2:1",
        "cuMemAlloc_v2:0=2",
        "cuMemAlloc_v2:-1=2",
        "cuMemAlloc_v2:1=0",
        "cuMemAlloc_v2:1=1000",
        "cuMemAlloc_v2:1=killer",
        "cuMemAlloc_v2:1=ms",
        "cuMemAlloc_v2:1=ms0",
        "cuMemAlloc_v2:1=ms10001",
        "cuMemAlloc_v2:1=2,",
        ",",
        "cuMemAlloc_v2:99999999999999999999999=2",
        "cuMemAlloc_v2:1=99999999999999999999",
        "cuMemMap_v2:1=2",
        "cudaMalloc:1=2",
        "*:*=",
        "*=*:",
        "cuMemAlloc_v2 1=2",
    };
    char *many = malloc(65 * 8 + 1);
    CUdeviceptr p;
    size_t i;

    TEST_ASSERT_EQUAL_INT(0, simgpu_set_fault("cuMemAlloc_v2:*=2"));
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        TEST_ASSERT_EQUAL_INT_MESSAGE(-1, simgpu_set_fault(bad[i]), bad[i]);
    many[0] = '\0';
    for (i = 0; i < 65; i++)
        strcat(many, i ? ",*:9=2" : "*:9=2");
    TEST_ASSERT_EQUAL_INT(-1, simgpu_set_fault(many));
    free(many);
    IS(2, cuMemAlloc(&p, 1));
}

static void test_blanks_are_allowed(void)
{
    TEST_ASSERT_EQUAL_INT(0, simgpu_set_fault("  cuMemAlloc_v2 : 4 = 2 ,\t* : 1000000 = kill-after "));
    TEST_ASSERT_EQUAL_INT(0, simgpu_set_fault("   "));
}

static void test_each_call_of_a_program_can_be_made_to_fail_in_turn(void)
{
    CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    char script[32];
    int n;

    for (n = 1; n <= 3; n++) {
        CUmemGenericAllocationHandle handle = 0;
        CUdeviceptr p = 0;
        CUresult results[3];

        simgpu_reset_calls();
        snprintf(script, sizeof(script), "*:%d=2", n);
        TEST_ASSERT_EQUAL_INT(0, simgpu_set_fault(script));
        results[0] = cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0);
        results[1] = cuMemCreate(&handle, 2 * MIB, &props, 0);
        results[2] = p && handle ? cuMemMap(p, 2 * MIB, 0, handle, 0) : CUDA_ERROR_UNKNOWN;
        TEST_ASSERT_EQUAL_INT(2, results[n - 1]);
        simgpu_set_fault(NULL);
        if (handle)
            OK(cuMemRelease(handle));
        if (p)
            OK(cuMemAddressFree(p, 2 * MIB));
    }
}

int main(void)
{
    sim_machine("1x1G");
    UNITY_BEGIN();
    RUN_TEST(test_the_nth_call_fails_and_does_nothing);
    RUN_TEST(test_every_call_can_fail);
    RUN_TEST(test_a_call_can_be_slow_and_does_its_work);
    RUN_TEST(test_a_star_counts_all_calls_together);
    RUN_TEST(test_bad_scripts_are_refused_and_the_old_one_stays);
    RUN_TEST(test_blanks_are_allowed);
    RUN_TEST(test_each_call_of_a_program_can_be_made_to_fail_in_turn);
    return UNITY_END();
}
