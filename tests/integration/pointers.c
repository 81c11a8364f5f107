/* pointers: a block of the pool cannot be told from one of the driver's own. Each promise is a scenario of
 * prog_pointers, which checks itself; it holds natively as well, except for those that look behind the pool.
 */
#include <stdio.h>

#include "spawn.h"
#include "unity.h"

#define CARD "1x2G" /* sanitizers leave little address space, and a pool wants twice the card */

void setUp(void) {}

void tearDown(void) {}

static void run_freeing(const char *scenario, const char *cards, bool pooled, const char *freeing)
{
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, cards, NULL);
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    if (pooled) {
        spawn_wrapped(env);
        spawn_env_set(env, "GPUCAP_POOL", "on");
        spawn_env_set(env, "GPUCAP_FREE", freeing);
    }
    struct spawn_result r = spawn_run(
        env, (const char *[]){spawn_build_path("tests/integration/prog_pointers"), scenario, NULL}, NULL);
    spawn_env_free(env);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, pooled ? "pooled" : "native");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, pooled ? "pooled" : "native");
    spawn_result_free(&r);
}

static void run(const char *scenario, const char *cards, bool pooled)
{
    run_freeing(scenario, cards, pooled, "strict");
}

static void both(const char *scenario, const char *cards)
{
    run(scenario, cards, false);
    run(scenario, cards, true);
}

static void test_address_ranges_are_exactly_what_was_asked_for(void)
{
    both("ranges", CARD);
}

static void test_bytes_behind_a_block_are_not_the_block(void)
{
    both("ends", CARD);
}

static void test_attributes_are_those_of_the_block(void)
{
    both("attributes", CARD);
}

static void test_every_answer_is_as_wide_as_the_drivers(void)
{
    both("widths", CARD);
}

static void test_several_attributes_at_once_are_the_same(void)
{
    both("several_attributes", CARD);
    both("several_as_alone", CARD);
}

static void test_freed_blocks_are_not_known(void)
{
    both("freed", CARD);
}

static void test_no_two_blocks_ever_have_one_id(void)
{
    both("ids", CARD);
}

static void test_sync_memops_is_answered_and_obeyed(void)
{
    both("sync_memops", CARD);
    both("sync_memops_in_a_capture", CARD);
    both("sync_memops_by_tokens", CARD);
}

static void test_a_block_for_other_devices_is_at_rest(void)
{
    both("sync_memops_at_rest", CARD);
    run_freeing("sync_memops_at_rest", CARD, true, "deferred");
}

static void test_no_handle_gives_away_what_is_behind_a_block(void)
{
    both("backing", CARD);
}

static void test_other_devices_get_whole_pages_of_a_block(void)
{
    both("dma_bufs", CARD);
}

static void test_copies_cover_a_whole_block_of_many_chunks(void)
{
    both("whole_copies", CARD);
}

static void test_peer_access_answers_as_natively(void)
{
    both("peers", "2x2G");
}

static void test_peers_reach_existing_and_future_memory_of_the_pool(void)
{
    run("peers_pooled", "2x2G", true);
}

static void test_peers_let_in_early_reach_the_pool(void)
{
    run("peers_early", "2x2G", true);
}

static void test_answers_stay_right_while_blocks_come_and_go(void)
{
    both("threads", CARD);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_address_ranges_are_exactly_what_was_asked_for);
    RUN_TEST(test_bytes_behind_a_block_are_not_the_block);
    RUN_TEST(test_attributes_are_those_of_the_block);
    RUN_TEST(test_every_answer_is_as_wide_as_the_drivers);
    RUN_TEST(test_several_attributes_at_once_are_the_same);
    RUN_TEST(test_freed_blocks_are_not_known);
    RUN_TEST(test_no_two_blocks_ever_have_one_id);
    RUN_TEST(test_sync_memops_is_answered_and_obeyed);
    RUN_TEST(test_a_block_for_other_devices_is_at_rest);
    RUN_TEST(test_no_handle_gives_away_what_is_behind_a_block);
    RUN_TEST(test_other_devices_get_whole_pages_of_a_block);
    RUN_TEST(test_copies_cover_a_whole_block_of_many_chunks);
    RUN_TEST(test_peer_access_answers_as_natively);
    RUN_TEST(test_peers_reach_existing_and_future_memory_of_the_pool);
    RUN_TEST(test_peers_let_in_early_reach_the_pool);
    RUN_TEST(test_answers_stay_right_while_blocks_come_and_go);
    return UNITY_END();
}
