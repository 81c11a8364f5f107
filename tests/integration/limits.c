/* limits: a cap holds for memory that is allocated in unusual ways, and never makes a program wait where CUDA
 * does not. Each promise is a scenario of prog_limits, which checks itself; run natively, it shows what CUDA
 * does. */
#include "spawn.h"
#include "unity.h"

#define CARDS  "2x2G;ctx=128M"
#define CAP    "0=1G,1=400M"
#define HANG_S 120 /* seconds after which a program is taken to hang */

void setUp(void) {}

void tearDown(void) {}

enum way { NATIVE, STRICT, DEFERRED, UNPOOLED };

static void run_with_fault(const char *scenario, enum way way, const char *fault)
{
    static const char *const names[] = {"native", "strict", "deferred", "unpooled"};
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, CARDS, NULL);
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    if (way != NATIVE) {
        spawn_wrapped(env);
        spawn_cap(env, CAP);
        spawn_env_set(env, "GPUCAP_POOL", way == UNPOOLED ? "off" : "on");
        spawn_env_set(env, "GPUCAP_FREE", way == DEFERRED ? "deferred" : "strict");
    }
    if (fault)
        spawn_env_set(env, "GPUCAP_SIM_FAULT", fault);
    spawn_env_set(env, "GPUCAP_DECAY", "0.02"); /* the helper thread looks around every 5 ms */
    struct spawn_result r =
        spawn_run(env, (const char *[]){spawn_build_path("tests/integration/prog_limits"), scenario, NULL},
                  &(struct spawn_options){.timeout_s = HANG_S});
    spawn_env_free(env);
    TEST_ASSERT_FALSE_MESSAGE(r.timed_out, names[way]);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, names[way]);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, names[way]);
    spawn_result_free(&r);
}

static void run(const char *scenario, enum way way)
{
    run_with_fault(scenario, way, NULL);
}

static void every_way(const char *scenario)
{
    for (int way = NATIVE; way <= UNPOOLED; way++)
        run(scenario, (enum way)way);
}

static void test_what_cannot_be_met_is_refused_at_once_whatever_a_stream_waits_for(void)
{
    every_way("behind_a_flag");
}

static void test_memory_freed_behind_a_flag_is_not_waited_for_in_vain(void)
{
    every_way("freed_behind_a_flag");
    every_way("room_behind_a_flag");
}

static void test_what_a_stream_has_freed_waits_for_no_later_work(void)
{
    run("freed_in_order_beside_work", NATIVE);
    run("freed_in_order_beside_work", STRICT);
    run("freed_in_order_beside_work", UNPOOLED);
}

static void test_stream_ordered_memory_is_charged_to_the_card_of_the_stream(void)
{
    every_way("elsewhere");
    run_with_fault("elsewhere", STRICT, "cuStreamGetDevice:*=801"); /* a driver before 12.8 */
}

static void test_a_thread_without_a_context_is_held_to_the_cap(void)
{
    every_way("without_context");
}

static void test_a_pools_memory_is_charged_to_the_card_of_the_pool(void)
{
    every_way("pool_elsewhere");
}

static void test_kernels_in_graphs_are_held_to_the_cap(void)
{
    every_way("stack_in_graph");
    every_way("stack_with_room");
}

static void test_a_kernel_makes_every_card_grow(void)
{
    every_way("stack_on_second_card");
}

static void test_a_kernel_makes_a_new_context_grow_again(void)
{
    every_way("stack_after_reset");
}

static void test_a_kernel_with_the_handle_of_another_is_asked_for(void)
{
    every_way("stack_with_a_used_handle");
}

static void test_a_kernel_makes_a_context_grow_once(void)
{
    every_way("stack_beside_an_ended_context");
}

static void test_a_kernel_that_begins_early_does_not_meet_the_one_in_front(void)
{
    every_way("dependent_launch");
}

static void test_a_graph_that_waits_for_a_flag_holds_up_nothing_else(void)
{
    every_way("graph_with_flag");
}

static void test_memory_can_be_shown_to_others_while_a_stream_waits_for_a_flag(void)
{
    every_way("reached_behind_a_flag");
}

static void test_exported_memory_does_not_pile_up(void)
{
    every_way("exports");
}

static void test_a_free_waits_for_the_streams_of_green_contexts(void)
{
    run("green_frees", NATIVE);
    run("green_frees", STRICT);
    run("green_frees", UNPOOLED);
    run("green_frees_later", DEFERRED);
}

static void test_a_green_contexts_default_stream_is_another_than_the_primarys(void)
{
    every_way("green_default_stream");
}

static void test_blocks_outlive_the_green_context_that_they_were_made_in(void)
{
    every_way("green_ends");
}

static void test_memory_that_could_not_be_given_back_is_given_back_later(void)
{
    every_way("release_again");
}

static void test_a_chunk_that_could_not_be_made_does_not_end_exports(void)
{
    static const char *const faults[] = {"cuMemCreate:1=999", "cuMemCreate:2=999", "cuMemCreate:3=999"};

    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        run_with_fault("create_again", NATIVE, faults[i]);
        run_with_fault("create_again", STRICT, faults[i]);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_what_cannot_be_met_is_refused_at_once_whatever_a_stream_waits_for);
    RUN_TEST(test_memory_freed_behind_a_flag_is_not_waited_for_in_vain);
    RUN_TEST(test_what_a_stream_has_freed_waits_for_no_later_work);
    RUN_TEST(test_stream_ordered_memory_is_charged_to_the_card_of_the_stream);
    RUN_TEST(test_a_thread_without_a_context_is_held_to_the_cap);
    RUN_TEST(test_a_pools_memory_is_charged_to_the_card_of_the_pool);
    RUN_TEST(test_kernels_in_graphs_are_held_to_the_cap);
    RUN_TEST(test_a_kernel_makes_every_card_grow);
    RUN_TEST(test_a_kernel_makes_a_new_context_grow_again);
    RUN_TEST(test_a_kernel_with_the_handle_of_another_is_asked_for);
    RUN_TEST(test_a_kernel_makes_a_context_grow_once);
    RUN_TEST(test_a_kernel_that_begins_early_does_not_meet_the_one_in_front);
    RUN_TEST(test_a_graph_that_waits_for_a_flag_holds_up_nothing_else);
    RUN_TEST(test_memory_can_be_shown_to_others_while_a_stream_waits_for_a_flag);
    RUN_TEST(test_exported_memory_does_not_pile_up);
    RUN_TEST(test_a_free_waits_for_the_streams_of_green_contexts);
    RUN_TEST(test_a_green_contexts_default_stream_is_another_than_the_primarys);
    RUN_TEST(test_blocks_outlive_the_green_context_that_they_were_made_in);
    RUN_TEST(test_memory_that_could_not_be_given_back_is_given_back_later);
    RUN_TEST(test_a_chunk_that_could_not_be_made_does_not_end_exports);
    return UNITY_END();
}
