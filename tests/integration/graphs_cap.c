/* graphs_cap: the memory of graphs is held to the cap. Each promise is a scenario of prog_graphs, which
 * checks itself, with parts of what it is told is free; natively and without a cap it says what CUDA does.
 * Cards of 8 GiB, on which simgpu's context takes 512 MiB.
 */
#include <stdio.h>

#include "spawn.h"
#include "unity.h"

void setUp(void) {}

void tearDown(void) {}

enum way { NATIVE, CAPPED, CAPPED_UNPOOLED, UNCAPPED };

static void run(const char *scenario, enum way way)
{
    static const char *const names[] = {"native", "capped", "capped, no pool", "no cap, no pool"};
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, "2x8G", NULL);
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    if (way != NATIVE)
        spawn_wrapped(env);
    if (way == CAPPED || way == CAPPED_UNPOOLED)
        spawn_cap(env, "1G");
    if (way == CAPPED_UNPOOLED || way == UNCAPPED)
        spawn_env_set(env, "GPUCAP_POOL", "off");
    struct spawn_result r = spawn_run(
        env, (const char *[]){spawn_build_path("tests/integration/prog_graphs"), scenario, NULL}, NULL);
    spawn_env_free(env);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, names[way]);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, names[way]);
    spawn_result_free(&r);
}

static void all_ways(const char *scenario)
{
    for (int way = NATIVE; way <= UNCAPPED; way++)
        run(scenario, (enum way)way);
}

static void test_a_graph_larger_than_the_cap_is_refused_and_the_program_goes_on(void)
{
    all_ways("larger");
}

static void test_it_is_refused_in_the_default_streams_too(void)
{
    all_ways("other_ways");
}

static void test_a_graph_that_was_launched_once_is_never_refused_at_the_limit(void)
{
    all_ways("again");
}

static void test_memory_freed_in_a_graph_is_used_again_in_it(void)
{
    all_ways("reuse");
}

static void test_nodes_added_by_hand_and_those_of_children_count(void)
{
    all_ways("nodes");
}

static void test_an_upload_counts_as_a_launch(void)
{
    all_ways("upload");
}

static void test_a_destroyed_graph_gives_its_memory_back(void)
{
    all_ways("gives_back");
}

static void test_several_graphs_share_the_cap(void)
{
    all_ways("several");
}

static void test_blocks_that_a_graph_leaves_count_until_they_are_freed(void)
{
    all_ways("left");
}

static void test_an_updated_graph_is_counted_again(void)
{
    all_ways("update");
}

static void test_a_forked_child_does_not_hang(void)
{
    all_ways("forked");
}

static void test_without_a_cap_graphs_are_not_inspected(void)
{
    run("unseen", NATIVE);
    run("unseen", UNCAPPED);
}

static void test_launches_of_graphs_without_memory_ask_nothing(void)
{
    all_ways("plain");
}

static void test_threads_that_launch_and_allocate_never_pass_the_cap(void)
{
    all_ways("threads");
}

static void test_threads_whose_graphs_fit_together_are_never_refused(void)
{
    all_ways("threads_fit");
}

static void test_a_graph_may_have_memory_on_two_cards(void)
{
    all_ways("two_cards");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_graph_larger_than_the_cap_is_refused_and_the_program_goes_on);
    RUN_TEST(test_it_is_refused_in_the_default_streams_too);
    RUN_TEST(test_a_graph_that_was_launched_once_is_never_refused_at_the_limit);
    RUN_TEST(test_memory_freed_in_a_graph_is_used_again_in_it);
    RUN_TEST(test_nodes_added_by_hand_and_those_of_children_count);
    RUN_TEST(test_an_upload_counts_as_a_launch);
    RUN_TEST(test_a_destroyed_graph_gives_its_memory_back);
    RUN_TEST(test_several_graphs_share_the_cap);
    RUN_TEST(test_blocks_that_a_graph_leaves_count_until_they_are_freed);
    RUN_TEST(test_an_updated_graph_is_counted_again);
    RUN_TEST(test_a_forked_child_does_not_hang);
    RUN_TEST(test_without_a_cap_graphs_are_not_inspected);
    RUN_TEST(test_launches_of_graphs_without_memory_ask_nothing);
    RUN_TEST(test_threads_that_launch_and_allocate_never_pass_the_cap);
    RUN_TEST(test_threads_whose_graphs_fit_together_are_never_refused);
    RUN_TEST(test_a_graph_may_have_memory_on_two_cards);
    return UNITY_END();
}
