/* rare: calls that few programs make behave as natively, and the cap holds for them. Each promise is a
 * scenario of prog_rare, which checks itself and also holds natively. */
#include "spawn.h"
#include "unity.h"

#define CARD "1x2G;ctx=128M"
#define CAP  "1G"

void setUp(void) {}

void tearDown(void) {}

/* BLIND: strict, and no NVML. */
enum way { NATIVE, STRICT, DEFERRED, BLIND, WAYS };

static void run_with(const char *scenario, enum way way, const char *cap, const char *option,
                     const char *value)
{
    static const char *const names[] = {"native", "strict", "deferred", "blind"};
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, CARD, NULL);
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    if (way != NATIVE) {
        spawn_wrapped(env);
        spawn_cap(env, cap);
        spawn_env_set(env, "GPUCAP_FREE", way == DEFERRED ? "deferred" : "strict");
        spawn_env_set(env, "GPUCAP_LOG", "quiet");
    }
    if (way == BLIND)
        spawn_env_set(env, "GPUCAP_SIM_NVML", "absent");
    if (option)
        spawn_env_set(env, option, value);
    struct spawn_result r = spawn_run(
        env, (const char *[]){spawn_build_path("tests/integration/prog_rare"), scenario, NULL}, NULL);
    spawn_env_free(env);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, names[way]);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, names[way]);
    spawn_result_free(&r);
}

static void run_under(const char *scenario, enum way way, const char *cap)
{
    run_with(scenario, way, cap, NULL, NULL);
}

static void run(const char *scenario, enum way way)
{
    run_under(scenario, way, CAP);
}

static void every_way(const char *scenario)
{
    for (int way = NATIVE; way < WAYS; way++)
        run(scenario, (enum way)way);
}

static void test_a_second_stream_waits_for_the_first_from_whatever_context_it_is_used(void)
{
    run("green_second", NATIVE);
    run("green_second", DEFERRED);
    run("bare_second", NATIVE);
    run("bare_second", DEFERRED);
    run("context_second", NATIVE);
    run("context_second", DEFERRED);
}

static void test_a_free_behind_another_contexts_stream_waits_for_it(void)
{
    run("freed_in_another_context", NATIVE);
    run("freed_in_another_context", DEFERRED);
}

static void test_idle_memory_is_not_given_back_for_what_cannot_be_met(void)
{
    run_with("idle_is_kept_from_the_impossible", STRICT, NULL, "GPUCAP_DECAY", "off");
}

static void test_without_decay_memory_goes_back_with_each_free(void)
{
    run_with("freed_at_once", STRICT, NULL, "GPUCAP_DECAY", "0");
}

static void test_a_block_that_could_not_be_filled_is_freed(void)
{
    run_with("fill_fails", STRICT, CAP, "GPUCAP_ZERO", "on");
}

static void test_blocks_are_filled_after_the_end_of_a_green_context(void)
{
    run("filled_after_a_green_context", NATIVE);
    run_with("filled_after_a_green_context", STRICT, CAP, "GPUCAP_ZERO", "on");
    run_with("filled_after_a_green_context", DEFERRED, CAP, "GPUCAP_ZERO", "on");
}

static void test_memory_taken_in_a_green_context_leaves_the_account_with_the_primary_one(void)
{
    run("taken_in_a_green_context", NATIVE);
    run("taken_in_a_green_context", STRICT);
    run("taken_in_a_green_context", DEFERRED);
}

static void test_memory_released_while_it_is_mapped_stays_in_the_account(void)
{
    every_way("mapped_then_released");
    every_way("mapped_and_held");
}

static void test_handles_count_without_a_context(void)
{
    every_way("handles_without_a_context");
}

static void test_what_a_process_without_a_context_released_is_free_for_its_job(void)
{
    for (int way = NATIVE; way < WAYS; way++)
        run_with("neighbour_without_a_context", (enum way)way, CAP, way == NATIVE ? NULL : "GPUCAP_GROUP",
                 "both");
}

static void test_blocks_of_destroyed_pools_count(void)
{
    every_way("pools_destroyed_in_use");
    every_way("pools_destroyed_before_a_context_ends");
}

static void test_what_a_pool_keeps_makes_room_also_if_it_counts_it_as_used(void)
{
    every_way("kept_and_freed_at_once");
    every_way("freed_at_once_before_their_pool_ends");
}

static void test_pools_destroyed_behind_frees_leave_the_account(void)
{
    every_way("pools_destroyed_behind_frees");
}

static void test_code_loaded_in_a_green_context_leaves_the_account_with_the_primary_one(void)
{
    every_way("grown_in_a_green_context");
}

static void test_a_heap_counts_by_its_largest_size(void)
{
    run("heap_set_again", NATIVE);
    run("heap_set_again", STRICT);
    run("heap_set_again", BLIND);
}

static void test_stacks_count_in_whole_pages(void)
{
    run("stacks_in_pages", NATIVE);
    run("stacks_in_pages", BLIND);
}

static void test_a_context_that_is_refused_after_a_reset_ends(void)
{
    run("refused_after_a_reset", NATIVE);
    run("refused_after_a_reset", STRICT);
}

static void test_a_context_counts_once_while_it_lives(void)
{
    every_way("contexts_overlap");
}

static void test_a_block_is_no_mapping(void)
{
    every_way("not_mappings");
}

static void test_on_a_card_full_of_freed_memory_the_driver_gets_what_it_needs(void)
{
    run("stack_on_a_full_card", NATIVE);
    run_under("stack_on_a_full_card", STRICT, NULL);
    run_under("stack_on_a_full_card", DEFERRED, NULL);
    run_under("code_on_a_full_card", STRICT, NULL);
    run_under("code_on_a_full_card", DEFERRED, NULL);
}

static void test_pools_of_host_memory_count_on_no_card(void)
{
    every_way("host_pool");
}

static void test_a_program_may_have_many_pools(void)
{
    run("many_pools", NATIVE);
    run("many_pools", STRICT);
}

static void test_no_array_is_counted_as_many_times_its_size(void)
{
    run("compressed", NATIVE);
    run("compressed", STRICT);
}

static void test_all_levels_of_an_array_count(void)
{
    run("levels", NATIVE);
    run("levels", STRICT);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_second_stream_waits_for_the_first_from_whatever_context_it_is_used);
    RUN_TEST(test_memory_released_while_it_is_mapped_stays_in_the_account);
    RUN_TEST(test_a_free_behind_another_contexts_stream_waits_for_it);
    RUN_TEST(test_idle_memory_is_not_given_back_for_what_cannot_be_met);
    RUN_TEST(test_without_decay_memory_goes_back_with_each_free);
    RUN_TEST(test_a_block_that_could_not_be_filled_is_freed);
    RUN_TEST(test_blocks_are_filled_after_the_end_of_a_green_context);
    RUN_TEST(test_memory_taken_in_a_green_context_leaves_the_account_with_the_primary_one);
    RUN_TEST(test_handles_count_without_a_context);
    RUN_TEST(test_what_a_process_without_a_context_released_is_free_for_its_job);
    RUN_TEST(test_blocks_of_destroyed_pools_count);
    RUN_TEST(test_what_a_pool_keeps_makes_room_also_if_it_counts_it_as_used);
    RUN_TEST(test_pools_destroyed_behind_frees_leave_the_account);
    RUN_TEST(test_code_loaded_in_a_green_context_leaves_the_account_with_the_primary_one);
    RUN_TEST(test_a_heap_counts_by_its_largest_size);
    RUN_TEST(test_stacks_count_in_whole_pages);
    RUN_TEST(test_a_context_that_is_refused_after_a_reset_ends);
    RUN_TEST(test_a_context_counts_once_while_it_lives);
    RUN_TEST(test_a_block_is_no_mapping);
    RUN_TEST(test_on_a_card_full_of_freed_memory_the_driver_gets_what_it_needs);
    RUN_TEST(test_pools_of_host_memory_count_on_no_card);
    RUN_TEST(test_a_program_may_have_many_pools);
    RUN_TEST(test_no_array_is_counted_as_many_times_its_size);
    RUN_TEST(test_all_levels_of_an_array_count);
    return UNITY_END();
}
