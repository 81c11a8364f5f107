/* waits: streams, threads and contexts of a program wait for each other, and no wait of the library makes
 * them hang. Each promise is a scenario of prog_waits, which checks itself and also holds natively.
 */
#define PROGRAM "prog_waits"
#include "every_way.h"

void setUp(void) {}

void tearDown(void) {}

static void test_streams_may_wait_for_each_others_flags(void)
{
    as_natively("flags");
    as_natively("flags_both");
    run("flags", DEFERRED, NULL);
    run("flags_both", DEFERRED, NULL);
    as_natively("flags_ordered");
    as_natively("flags_then_ordered");
}

static void test_freed_memory_makes_way_and_what_comes_later_is_not_waited_for(void)
{
    every_way_patiently("make_way");
}

static void test_a_refusal_does_not_wait_for_what_comes_later(void)
{
    as_natively("refused_then_flag");
    as_natively("refused_all_then_flag");
    run("refused_then_flag", STRICT, "1664M");
    run("refused_all_then_flag", STRICT, "1664M");
    run("refused_then_flag", DEFERRED, NULL);
    run("refused_all_then_flag", DEFERRED, NULL);
}

static void test_threads_on_a_card_that_others_fill_do_not_wait_for_each_other_for_ever(void)
{
    run("crowd", NATIVE, NULL);
    run("crowd", STRICT, "1664M");
}

static void test_an_allocation_makes_no_stream_wait_for_another(void)
{
    as_natively("hosts_turn");
}

static void test_the_first_work_on_a_second_stream_makes_no_thread_wait(void)
{
    every_way("hosts_turn_later");
    every_way("hosts_turn_then_flag");
}

static void test_a_free_with_nothing_to_wait_for_makes_no_stream_wait_for_another(void)
{
    as_natively("frees_beside_work");
}

static void test_the_library_never_uses_a_context_that_is_being_destroyed(void)
{
    every_way("contexts_end");
}

static void test_no_context_gets_what_another_still_works_on(void)
{
    every_way("two_contexts");
    every_way("two_contexts_streams");
}

static void test_a_context_ends_with_its_last_detach(void)
{
    every_way("detaches");
    run("detaches", STRICT, "1664M");
}

static void test_the_primary_context_ends_with_its_last_release_and_not_before(void)
{
    every_way("primaries_end");
    every_way("releases_beside");
}

static void test_a_child_does_not_wait_for_what_its_parent_waits_for(void)
{
    every_way("forks_beside_work");
    every_way("forks_beside_contexts");
}

static void test_a_new_context_that_waits_blocks_no_other_thread(void)
{
    every_way("context_beside_work");
    every_way("context_beside_an_end");
    every_way("late_context_beside_an_end");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_streams_may_wait_for_each_others_flags);
    RUN_TEST(test_freed_memory_makes_way_and_what_comes_later_is_not_waited_for);
    RUN_TEST(test_a_refusal_does_not_wait_for_what_comes_later);
    RUN_TEST(test_threads_on_a_card_that_others_fill_do_not_wait_for_each_other_for_ever);
    RUN_TEST(test_an_allocation_makes_no_stream_wait_for_another);
    RUN_TEST(test_the_first_work_on_a_second_stream_makes_no_thread_wait);
    RUN_TEST(test_a_free_with_nothing_to_wait_for_makes_no_stream_wait_for_another);
    RUN_TEST(test_the_library_never_uses_a_context_that_is_being_destroyed);
    RUN_TEST(test_no_context_gets_what_another_still_works_on);
    RUN_TEST(test_a_context_ends_with_its_last_detach);
    RUN_TEST(test_the_primary_context_ends_with_its_last_release_and_not_before);
    RUN_TEST(test_a_new_context_that_waits_blocks_no_other_thread);
    RUN_TEST(test_a_child_does_not_wait_for_what_its_parent_waits_for);
    return UNITY_END();
}
