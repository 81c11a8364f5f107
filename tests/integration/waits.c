/* waits: streams, threads and captures of a program wait for each other, and no wait of the library's comes
 * in between. Each promise is a scenario of prog_waits, which checks itself and holds natively as well.
 */
#include <stdio.h>

#include "spawn.h"
#include "unity.h"

/* Sanitizers leave little address space, and a pool wants twice the card. */
#define CARD "1x2G;ctx=128M"

void setUp(void) {}

void tearDown(void) {}

enum way { NATIVE, STRICT, DEFERRED };

static void run(const char *scenario, enum way way, const char *cap)
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
    spawn_env_set(env, "GPUCAP_DECAY", "0.02"); /* the helper thread looks around every 5 ms */
    struct spawn_result r = spawn_run(
        env, (const char *[]){spawn_build_path("tests/integration/prog_waits"), scenario, NULL}, NULL);
    spawn_env_free(env);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, names[way]);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, names[way]);
    spawn_result_free(&r);
}

static void as_natively(const char *scenario)
{
    run(scenario, NATIVE, NULL);
    run(scenario, STRICT, NULL);
}

static void every_way(const char *scenario)
{
    as_natively(scenario);
    run(scenario, DEFERRED, NULL);
}

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
    every_way("make_way");
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

static void test_a_capture_ends_with_its_context(void)
{
    every_way("capture_ends_with_context");
}

static void test_an_allocation_makes_no_stream_wait_for_another(void)
{
    as_natively("hosts_turn");
}

static void test_a_free_with_nothing_to_wait_for_makes_no_stream_wait_for_another(void)
{
    as_natively("frees_beside_work");
}

static void test_nobody_uses_a_context_that_is_being_destroyed(void)
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

static void test_a_new_context_that_waits_keeps_nobody_waiting(void)
{
    every_way("context_beside_work");
    every_way("context_beside_an_end");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_streams_may_wait_for_each_others_flags);
    RUN_TEST(test_freed_memory_makes_way_and_what_comes_later_is_not_waited_for);
    RUN_TEST(test_a_refusal_does_not_wait_for_what_comes_later);
    RUN_TEST(test_threads_on_a_card_that_others_fill_do_not_wait_for_each_other_for_ever);
    RUN_TEST(test_frees_and_captures_of_other_threads_do_not_meet);
    RUN_TEST(test_memory_freed_beside_a_capture_can_be_had_again);
    RUN_TEST(test_a_graph_does_not_free_what_no_graph_has_allocated);
    RUN_TEST(test_a_captured_allocation_is_not_refused_at_the_limit);
    RUN_TEST(test_a_capture_ends_with_its_context);
    RUN_TEST(test_an_allocation_makes_no_stream_wait_for_another);
    RUN_TEST(test_a_free_with_nothing_to_wait_for_makes_no_stream_wait_for_another);
    RUN_TEST(test_nobody_uses_a_context_that_is_being_destroyed);
    RUN_TEST(test_no_context_gets_what_another_still_works_on);
    RUN_TEST(test_a_context_ends_with_its_last_detach);
    RUN_TEST(test_the_primary_context_ends_with_its_last_release_and_not_before);
    RUN_TEST(test_a_new_context_that_waits_keeps_nobody_waiting);
    RUN_TEST(test_a_child_does_not_wait_for_what_its_parent_waits_for);
    return UNITY_END();
}
