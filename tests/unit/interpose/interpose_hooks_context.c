/* Hooks on contexts and on what makes a context grow: what each asks for before the driver's call, and what
 * it tells or undoes afterwards. */
#include "interpose/hook/hooks.h"

#include <string.h>
#include <unity.h>

#include "context_fake.h"
#include "interpose/account/known_kernels.h"
#include "interpose/base/lock.h"
#include "interpose/hook/growth.h"

void setUp(void)
{
    context_fake_setup();
}

/* The hooks count how often a primary context is retained: a reset sets that to 0. */
void tearDown(void)
{
    TEST_ASSERT_EQUAL_INT(0, got.wrong);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, got.pushed, "a context stays current");
    fake = (struct fake){.current = FIRST};
    memset(&got, 0, sizeof(got));
    cuDevicePrimaryCtxReset_v2(CARD);
}

static void begin(void)
{
    TEST_ASSERT_EQUAL_INT(0, got.wrong);
    memset(&got, 0, sizeof(got));
}

static void expect_grown(int begins, int ends, int calls)
{
    TEST_ASSERT_EQUAL_INT(begins, got.begins);
    TEST_ASSERT_EQUAL_INT(ends, got.ends);
    TEST_ASSERT_EQUAL_INT(calls, got.calls);
}

/* ---- contexts ---- */

static void test_a_context_is_asked_for_and_undone_if_it_does_not_fit(void)
{
    CUcontext context = NULL;

    for (int i = 0; i < 2; i++) {
        begin();
        fake = (struct fake){.result = CUDA_SUCCESS};
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, i ? cuCtxCreate_v4(&context, NULL, 0, CARD)
                                              : cuCtxCreate_v2(&context, 0, CARD));
        expect_grown(1, 1, 1);
        TEST_ASSERT_EQUAL_INT(CARD, got.ordinal);
        TEST_ASSERT_EQUAL_INT(1, got.made);
        TEST_ASSERT_EQUAL_PTR(FIRST, got.context);
        fake.made = CUDA_ERROR_OUT_OF_MEMORY;
        begin();
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, i ? cuCtxCreate_v4(&context, NULL, 0, CARD)
                                                          : cuCtxCreate_v2(&context, 0, CARD));
        TEST_ASSERT_EQUAL_INT(1, got.undone);
        TEST_ASSERT_NULL(context);
        fake.result = CUDA_ERROR_INVALID_VALUE;
        begin();
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, i ? cuCtxCreate_v4(&context, NULL, 0, CARD)
                                                          : cuCtxCreate_v2(&context, 0, CARD));
        TEST_ASSERT_EQUAL_INT(1, got.failed);
        TEST_ASSERT_EQUAL_INT(0, got.made);
        fake.refuse = CUDA_ERROR_OUT_OF_MEMORY;
        begin();
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, i ? cuCtxCreate_v4(&context, NULL, 0, CARD)
                                                          : cuCtxCreate_v2(&context, 0, CARD));
        expect_grown(1, 0, 0);
    }
    fake_mode = LIBRARY_REFUSE;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_PERMITTED, cuCtxCreate_v2(&context, 0, CARD));
    expect_grown(0, 0, 0);
}

static void test_the_end_of_a_context_is_told_only_if_the_driver_ends_it(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxDestroy_v2(FIRST));
    TEST_ASSERT_EQUAL_INT(1, got.end_begins);
    TEST_ASSERT_EQUAL_INT(1, got.ended);
    fake.result = CUDA_ERROR_INVALID_CONTEXT;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(FIRST));
    TEST_ASSERT_EQUAL_INT(1, got.end_aborts);
    TEST_ASSERT_EQUAL_INT(0, got.ended);
    fake.result = CUDA_SUCCESS;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxDetach(FIRST)); /* it is still current: attached elsewhere */
    TEST_ASSERT_EQUAL_INT(1, got.end_aborts);
    fake.current = NULL;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxDetach(FIRST));
    TEST_ASSERT_EQUAL_INT(1, got.ended);
    TEST_ASSERT_EQUAL_INT(0, got.end_aborts);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, lock_depth, "the thread can be cancelled again");
}

static void test_a_wait_of_the_program_is_told_with_its_result(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxSynchronize());
    TEST_ASSERT_EQUAL_INT(1, got.waits);
    TEST_ASSERT_NULL(got.context);
    TEST_ASSERT_EQUAL_INT(1, got.wait_ends);
    TEST_ASSERT_TRUE(got.waited_well);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxSynchronize_v2(FIRST));
    TEST_ASSERT_EQUAL_PTR(FIRST, got.context);
    fake.result = CUDA_ERROR_LAUNCH_FAILED;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
    TEST_ASSERT_FALSE(got.waited_well);
    fake.inactive = true;
    begin();
    cuCtxSynchronize();
    TEST_ASSERT_EQUAL_INT(0, got.waits + got.wait_ends);
}

/* ---- primary contexts ---- */

static void test_a_primary_context_is_asked_for_once_and_ends_with_its_last_hold(void)
{
    CUcontext context = NULL;

    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&context, CARD));
    TEST_ASSERT_EQUAL_INT(1, got.begins);
    TEST_ASSERT_EQUAL_INT(1, got.made);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&context, CARD)); /* takes no more memory */
    TEST_ASSERT_EQUAL_INT(1, got.begins);
    TEST_ASSERT_EQUAL_INT(1, got.made);
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuDevicePrimaryCtxRelease_v2(CARD));
    TEST_ASSERT_EQUAL_INT(0, got.end_begins + got.ended + got.end_aborts); /* not the last one */
    begin();
    fake.one_way = true;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuDevicePrimaryCtxRelease_v2(CARD));
    TEST_ASSERT_EQUAL_INT(1, got.end_begins);
    TEST_ASSERT_EQUAL_INT(1, got.ended);
    TEST_ASSERT_EQUAL_PTR(FIRST, got.context);
    begin();
    fake.one_way = false;
    fake.result = CUDA_ERROR_INVALID_CONTEXT;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(CARD));
    TEST_ASSERT_EQUAL_INT(1, got.end_begins);
    TEST_ASSERT_EQUAL_INT(1, got.end_aborts);
}

static void test_a_primary_context_that_does_not_fit_is_released_again(void)
{
    CUcontext context = FIRST;

    fake.made = CUDA_ERROR_OUT_OF_MEMORY;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuDevicePrimaryCtxRetain(&context, CARD));
    TEST_ASSERT_NULL(context);
    TEST_ASSERT_EQUAL_INT(0, got.retains);
    fake.active = false;
    fake.result = CUDA_ERROR_UNKNOWN;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, cuDevicePrimaryCtxRetain(&context, CARD));
    TEST_ASSERT_EQUAL_INT(1, got.failed);
    fake_mode = LIBRARY_REFUSE;
    fake.active = true;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_PERMITTED, cuDevicePrimaryCtxRetain(&context, CARD));
}

static void test_a_reset_ends_the_context_unless_the_driver_refuses(void)
{
    CUcontext context;

    cuDevicePrimaryCtxRetain(&context, CARD);
    cuDevicePrimaryCtxRetain(&context, CARD);
    begin();
    fake.result = CUDA_ERROR_UNKNOWN;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, cuDevicePrimaryCtxReset_v2(CARD));
    TEST_ASSERT_EQUAL_INT(1, got.end_begins);
    TEST_ASSERT_EQUAL_INT(1, got.end_aborts);
    TEST_ASSERT_EQUAL_INT(0, got.ended);
    begin();
    fake.result = CUDA_SUCCESS;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuDevicePrimaryCtxReset_v2(CARD));
    TEST_ASSERT_EQUAL_INT(1, got.ended);
    begin();
    cuDevicePrimaryCtxRetain(&context, CARD);
    begin();
    cuDevicePrimaryCtxRelease_v2(CARD);
    TEST_ASSERT_EQUAL_INT(1, got.end_begins); /* the holds of before count no more */
}

/* ---- green contexts ---- */

static void test_a_green_context_makes_and_holds_its_primary(void)
{
    CUgreenCtx green;

    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGreenCtxCreate(&green, NULL, CARD, 0));
    expect_grown(1, 1, 1);
    TEST_ASSERT_EQUAL_INT(1, got.made);
    TEST_ASSERT_EQUAL_PTR(FIRST, got.context);
    TEST_ASSERT_EQUAL_PTR(FIRST, got.grown);
    TEST_ASSERT_EQUAL_INT(0, got.retains); /* looked at, not kept */
    begin();
    fake.active = true;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGreenCtxCreate(&green, NULL, CARD, 0));
    expect_grown(0, 0, 1); /* it exists */
    begin();
    known_kernels_add((CUfunction)0x300);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGreenCtxDestroy(GREEN));
    TEST_ASSERT_FALSE(known_kernels_has((CUfunction)0x300));
    TEST_ASSERT_EQUAL_INT(1, got.forgotten);  /* another context may get the handle */
    TEST_ASSERT_EQUAL_INT(0, got.end_begins); /* the first one holds it */
    begin();
    fake.active = false;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGreenCtxDestroy(GREEN));
    TEST_ASSERT_EQUAL_INT(1, got.ended);
}

static void test_a_green_context_that_fails_or_does_not_fit_leaves_nothing(void)
{
    CUgreenCtx green;
    CUcontext context;

    fake.result = CUDA_ERROR_INVALID_VALUE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, NULL, CARD, 0));
    TEST_ASSERT_EQUAL_INT(1, got.failed);
    TEST_ASSERT_EQUAL_INT(0, got.made);
    TEST_ASSERT_NULL(got.grown);
    fake.result = CUDA_SUCCESS;
    fake.active = false;
    fake.made = CUDA_ERROR_OUT_OF_MEMORY;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuGreenCtxCreate(&green, NULL, CARD, 0));
    TEST_ASSERT_EQUAL_INT(1, got.undone);
    TEST_ASSERT_EQUAL_INT(1, got.resets); /* the primary one was made for it */
    fake.made = CUDA_SUCCESS;
    fake.no_primary = true; /* the driver does not tell which context it has made */
    fake.active = false;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, cuGreenCtxCreate(&green, NULL, CARD, 0));
    TEST_ASSERT_EQUAL_INT(1, got.undone);
    TEST_ASSERT_EQUAL_INT(1, got.failed);
    TEST_ASSERT_NULL(got.grown);
    fake.active = true;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, cuGreenCtxCreate(&green, NULL, CARD, 0));
    TEST_ASSERT_EQUAL_INT(1, got.undone);
    TEST_ASSERT_EQUAL_INT(0, got.resets); /* the program's own stays */
    fake.no_primary = fake.active = false;
    cuDevicePrimaryCtxRetain(&context, CARD);
    begin();
    cuDevicePrimaryCtxRelease_v2(CARD);
    TEST_ASSERT_EQUAL_INT(1, got.end_begins); /* the green one holds it no more */
    fake.refuse = CUDA_ERROR_OUT_OF_MEMORY;
    fake.active = false;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuGreenCtxCreate(&green, NULL, CARD, 0));
    expect_grown(1, 0, 0);
    fake_mode = LIBRARY_REFUSE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_PERMITTED, cuGreenCtxCreate(&green, NULL, CARD, 0));
}

static void test_captures_of_a_green_context_end_with_it(void)
{
    fake.captures = true;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGreenCtxDestroy(GREEN));
    TEST_ASSERT_EQUAL_PTR(FIRST, got.captured);
    begin();
    got.captured = NULL;
    fake.result = CUDA_ERROR_INVALID_CONTEXT;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(GREEN));
    TEST_ASSERT_NULL(got.captured);
    begin();
    fake.result = CUDA_ERROR_CONTEXT_IS_DESTROYED; /* by a reset of its primary context */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGreenCtxDestroy(GREEN));
    TEST_ASSERT_EQUAL_PTR(FIRST, got.captured);
    begin();
    got.captured = NULL;
    fake.captures = false;
    fake.result = CUDA_SUCCESS;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuGreenCtxDestroy(GREEN));
    TEST_ASSERT_NULL(got.captured);
}

/* ---- growth ---- */

static void test_a_call_that_fails_makes_no_context_grow(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 5000));
    expect_grown(1, 1, 1);
    TEST_ASSERT_EQUAL_INT(0, got.aborts);
    begin();
    fake.result = CUDA_ERROR_INVALID_VALUE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 5000));
    expect_grown(1, 1, 1);
    TEST_ASSERT_EQUAL_INT(1, got.aborts);
}

static void test_the_limits_of_a_context_are_asked_for(void)
{
    static const CUlimit heaps[] = {CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE};

    for (int i = 0; i < 2; i++) {
        begin();
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxSetLimit(heaps[i], 12345));
        TEST_ASSERT_EQUAL_UINT64(12345, got.grow);
        expect_grown(1, 1, 1);
    }
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    TEST_ASSERT_EQUAL_UINT64(4096, got.stack); /* per thread */
    expect_grown(1, 1, 1);
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuCtxSetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64));
    expect_grown(0, 0, 1);
    fake.refuse = CUDA_ERROR_OUT_OF_MEMORY;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 4096));
    expect_grown(2, 0, 0);
}

static void test_a_launch_asks_for_the_stack_of_its_kernel(void)
{
    const CUfunction kernel = (CUfunction)0x300;

    fake.local_bytes = 2000;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TEST_ASSERT_EQUAL_UINT64(2000, got.stack);
    expect_grown(1, 1, 1);
    fake.local_bytes = -1; /* a CUkernel, which a launch takes too */
    fake.kernel_bytes = 3000;
    TEST_ASSERT_EQUAL_UINT64(3000, growth_stack_of(kernel));
    fake.local_bytes = 0;
    TEST_ASSERT_EQUAL_UINT64(0, growth_stack_of((CUfunction)0x310));
    fake.local_bytes = 2000;
    fake.result = CUDA_ERROR_INVALID_VALUE; /* the stack stays as it was (measured) */
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TEST_ASSERT_EQUAL_INT(1, got.aborts);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2000));
    TEST_ASSERT_EQUAL_INT(2, got.aborts);
    fake.result = CUDA_SUCCESS;
    fake.refuse = CUDA_ERROR_OUT_OF_MEMORY;
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY,
                          cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    expect_grown(1, 0, 0);
    fake.inactive = true; /* no limit, no question */
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    expect_grown(0, 0, 1);
}

static void expect_launch(CUfunction kernel, int begins)
{
    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    expect_grown(begins, begins, 1);
}

/* Its stack is asked for again when another kernel may have got its handle. */
static void test_a_kernel_that_needs_little_stack_is_asked_for_once(void)
{
    const CUfunction small = (CUfunction)0x400, large = (CUfunction)0x500;
    const CUfunction small_of_library = (CUfunction)0x600, large_of_library = (CUfunction)0x700;

    fake.local_bytes = ROUTE_STACK;
    for (int i = 0; i < 2; i++) {
        expect_launch(small, 1);
        expect_launch(small, 0);
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, i ? cuModuleUnload(NULL) : cuLibraryUnload(NULL));
    }
    expect_launch(small, 1);
    fake.local_bytes = ROUTE_STACK + 1;
    expect_launch(large, 1);
    expect_launch(large, 1);
    fake.local_bytes = -1; /* CUkernels */
    fake.kernel_bytes = ROUTE_STACK;
    expect_launch(small_of_library, 1);
    expect_launch(small_of_library, 0);
    fake.kernel_bytes = ROUTE_STACK + 1;
    expect_launch(large_of_library, 1);
    expect_launch(large_of_library, 1);
    known_kernels_forget();
}

static void expect_distrust(const CUlaunchAttribute *attribute, int distrusts)
{
    CUlaunchAttribute list[2] = {{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY}, *attribute};
    const CUlaunchConfig config = {.attrs = list, .numAttrs = 2};

    begin();
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuLaunchKernelEx(&config, (CUfunction)0x300, NULL, NULL));
    TEST_ASSERT_EQUAL_INT(distrusts, got.distrusts);
}

static void test_kernels_that_may_overlap_end_the_order_of_streams(void)
{
    CUlaunchAttribute serial = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    const CUlaunchAttribute event = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT};
    const CUlaunchAttribute other = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE};

    expect_distrust(&other, 0);
    expect_distrust(&serial, 0); /* not allowed */
    serial.value.programmaticStreamSerializationAllowed = 1;
    expect_distrust(&serial, 1);
    expect_distrust(&event, 1);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_context_is_asked_for_and_undone_if_it_does_not_fit);
    RUN_TEST(test_the_end_of_a_context_is_told_only_if_the_driver_ends_it);
    RUN_TEST(test_a_wait_of_the_program_is_told_with_its_result);
    RUN_TEST(test_a_primary_context_is_asked_for_once_and_ends_with_its_last_hold);
    RUN_TEST(test_a_primary_context_that_does_not_fit_is_released_again);
    RUN_TEST(test_a_reset_ends_the_context_unless_the_driver_refuses);
    RUN_TEST(test_a_green_context_makes_and_holds_its_primary);
    RUN_TEST(test_a_green_context_that_fails_or_does_not_fit_leaves_nothing);
    RUN_TEST(test_captures_of_a_green_context_end_with_it);
    RUN_TEST(test_a_call_that_fails_makes_no_context_grow);
    RUN_TEST(test_the_limits_of_a_context_are_asked_for);
    RUN_TEST(test_a_launch_asks_for_the_stack_of_its_kernel);
    RUN_TEST(test_a_kernel_that_needs_little_stack_is_asked_for_once);
    RUN_TEST(test_kernels_that_may_overlap_end_the_order_of_streams);
    return UNITY_END();
}
