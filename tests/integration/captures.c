/* captures: a program allocates and frees memory during a stream capture. Each promise is a scenario of
 * prog_captures, which checks itself and also holds natively.
 */
#define PROGRAM "prog_captures"
#include "every_way.h"

void setUp(void) {}

void tearDown(void) {}

static void test_frees_and_captures_of_other_threads_do_not_meet(void)
{
    every_way("captures_beside_frees");
}

static void test_memory_freed_beside_a_capture_can_be_had_again(void)
{
    every_way("freed_beside_a_capture");
}

static void test_a_graph_does_not_free_what_no_graph_has_allocated(void)
{
    every_way("freed_into_a_graph");
}

static void test_a_captured_allocation_is_not_refused_at_the_limit(void)
{
    every_way("allocated_into_a_graph");
    run("allocated_into_a_graph", STRICT, "1664M");
    run("allocated_into_a_graph", DEFERRED, "1664M");
}

static void test_a_capture_outlives_questions_about_memory(void)
{
    every_way("told_beside_a_capture");
    run("told_beside_a_capture", STRICT, "1664M");
    run("told_beside_a_capture", DEFERRED, "1664M");
}

static void test_a_capture_ends_with_its_context(void)
{
    every_way("capture_ends_with_context");
}

static void test_a_capture_that_waits_to_begin_blocks_no_other_thread(void)
{
    every_way("begins_beside_work");
    every_way("begins_beside_another_stream");
    every_way("begins_beside_a_context");
    every_way("begins_beside_a_free");
}

static void test_memory_is_had_and_shared_while_a_capture_waits_to_begin(void)
{
    every_way("exported_beside_a_beginning");
    every_way("room_beside_a_beginning");
}

static void test_captures_may_begin_and_end_in_different_threads(void)
{
    every_way("begun_by_the_dead");
    every_way("begun_twice");
    every_way("handed_over");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_frees_and_captures_of_other_threads_do_not_meet);
    RUN_TEST(test_memory_freed_beside_a_capture_can_be_had_again);
    RUN_TEST(test_a_graph_does_not_free_what_no_graph_has_allocated);
    RUN_TEST(test_a_captured_allocation_is_not_refused_at_the_limit);
    RUN_TEST(test_a_capture_outlives_questions_about_memory);
    RUN_TEST(test_a_capture_ends_with_its_context);
    RUN_TEST(test_a_capture_that_waits_to_begin_blocks_no_other_thread);
    RUN_TEST(test_memory_is_had_and_shared_while_a_capture_waits_to_begin);
    RUN_TEST(test_captures_may_begin_and_end_in_different_threads);
    return UNITY_END();
}
