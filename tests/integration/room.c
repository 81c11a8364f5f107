/* room: idle memory of one context, stream or kind is released for another, but not before its work is done.
 * Each promise is a scenario of prog_room, which checks itself and also holds natively.
 */
#define PROGRAM "prog_room"
#include "every_way.h"

#define CAP "1G"

void setUp(void) {}

void tearDown(void) {}

static void test_what_another_contexts_stream_frees_waits_for_its_work(void)
{
    every_way("ordered_elsewhere");
    run("ordered_elsewhere", STRICT, CAP);
}

static void test_only_a_stream_that_is_one_frees(void)
{
    every_way("ordered_by_none");
}

static void test_memory_of_every_kind_can_be_had_after_the_driver_has_grown(void)
{
    every_way("after_growth");
    run("after_growth", STRICT, CAP);
    run("after_growth", DEFERRED, CAP);
}

static void test_what_another_context_has_freed_behind_work_can_be_had(void)
{
    every_way("freed_elsewhere");
    run("freed_elsewhere", STRICT, CAP);
    run("freed_elsewhere", DEFERRED, CAP);
}

static void test_on_a_small_card_the_drivers_pool_grows_gives_back_and_refuses_as_measured(void)
{
    every_way("pool_grows_by_chunks");
    every_way("pool_gives_back_empty_chunks");
    every_way("pool_joins_no_gaps");
}

static void test_at_a_limit_a_pool_serves_what_it_has_idle_once_room_is_made(void)
{
    run("within_what_is_idle", STRICT, CAP);
    run("within_what_is_idle", DEFERRED, CAP);
}

static void test_a_pool_that_has_grown_into_the_reserve_never_grows_past_the_cap(void)
{
    run_quietly("kept_by_weights", STRICT, CAP);
    run_quietly("kept_by_weights", DEFERRED, CAP);
}

static void test_what_is_freed_behind_work_is_told_as_free(void)
{
    every_way("told_behind_work");
    run("told_behind_work", DEFERRED, CAP);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_what_another_contexts_stream_frees_waits_for_its_work);
    RUN_TEST(test_only_a_stream_that_is_one_frees);
    RUN_TEST(test_memory_of_every_kind_can_be_had_after_the_driver_has_grown);
    RUN_TEST(test_what_another_context_has_freed_behind_work_can_be_had);
    RUN_TEST(test_on_a_small_card_the_drivers_pool_grows_gives_back_and_refuses_as_measured);
    RUN_TEST(test_at_a_limit_a_pool_serves_what_it_has_idle_once_room_is_made);
    RUN_TEST(test_a_pool_that_has_grown_into_the_reserve_never_grows_past_the_cap);
    RUN_TEST(test_what_is_freed_behind_work_is_told_as_free);
    return UNITY_END();
}
