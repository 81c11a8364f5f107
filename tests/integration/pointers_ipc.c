/* pointers_ipc: legacy IPC works between two wrapped processes as it does natively, and no process can break
 * it from outside. Each promise is a scenario of prog_ipc, prog_closes or prog_forger, which check
 * themselves; those of the first two hold natively as well, except where CUDA promises less.
 */
#include <stdio.h>
#include <unistd.h>

#include "spawn.h"
#include "unity.h"

#define CARD  "1x2G"           /* sanitizers leave little address space, and a pool wants twice the card */
#define TIGHT "1x500M;ctx=16M" /* room for one large block, not for two */

void setUp(void) {}

void tearDown(void) {}

static const char *fast_clock; /* PROG_FAST_CLOCK (prog_clock.c), or NULL */

static void run_freeing(const char *program, const char *scenario, const char *cards, bool pooled,
                        const char *freeing)
{
    struct spawn_env *env = spawn_env_new();
    char path[64];

    snprintf(path, sizeof(path), "tests/integration/%s", program);
    spawn_sim(env, cards, NULL);
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    spawn_env_set(env, "PROG_OTHER_MAX", "600M");
    spawn_env_set(env, "GPUCAP_DECAY", "0.5"); /* what is left for later is not left for long */
    if (fast_clock)
        spawn_env_set(env, "PROG_FAST_CLOCK", fast_clock);
    if (pooled) {
        spawn_wrapped(env);
        spawn_env_set(env, "GPUCAP_POOL", "on");
        spawn_env_set(env, "GPUCAP_FREE", freeing);
    }
    struct spawn_result r = spawn_run(env, (const char *[]){spawn_build_path(path), scenario, NULL}, NULL);
    spawn_env_free(env);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, pooled ? "pooled" : "native");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, pooled ? "pooled" : "native");
    spawn_result_free(&r);
}

static void run(const char *program, const char *scenario, const char *cards, bool pooled)
{
    run_freeing(program, scenario, cards, pooled, "strict");
}

static void both_of(const char *program, const char *scenario, const char *cards)
{
    run(program, scenario, cards, false);
    run(program, scenario, cards, true);
}

static void both(const char *scenario, const char *cards)
{
    both_of("prog_ipc", scenario, cards);
}

static void each_way(const char *program, const char *scenario, const char *cards)
{
    run(program, scenario, cards, false);
    run(program, scenario, cards, true);
    run_freeing(program, scenario, cards, true, "deferred");
}

static void test_two_processes_see_the_same_bytes(void)
{
    both("share", CARD);
}

static void test_an_opened_block_looks_native(void)
{
    both("opened", CARD);
}

static void test_work_of_before_a_block_was_taken_is_not_seen_by_who_opens_it(void)
{
    each_way("prog_ipc", "at_rest", CARD);
}

static void test_every_code_is_the_native_one(void)
{
    both("codes", CARD);
}

static void test_a_block_freed_while_open_stays_and_comes_back(void)
{
    run("prog_ipc", "freed_while_open", TIGHT, true);
}

static void test_a_handle_that_is_never_opened_holds_no_memory(void)
{
    both("never_opened", TIGHT);
}

static void test_a_killed_process_gives_back_what_it_had_open(void)
{
    both("killed", TIGHT);
}

static void test_opened_memory_is_not_charged(void)
{
    both("not_charged", "1x2G");
}

static void test_a_dead_exporter_is_an_error_and_no_hang(void)
{
    both("exporter_dies", CARD);
}

static void test_the_end_of_a_context_ends_what_it_shared(void)
{
    both("context_ends", CARD);
}

static void test_the_library_never_uses_a_context_that_is_being_destroyed(void)
{
    both_of("prog_closes", "closed_while_context_ends", CARD);
    both_of("prog_closes", "closes_while_context_ends", CARD);
}

static void test_forked_children_change_nothing(void)
{
    both("forks", CARD);
    both("clones", CARD);
}

static void test_an_unwrapped_process_gets_the_drivers_own_error(void)
{
    run("prog_ipc", "unwrapped", CARD, true);
}

static void test_a_block_closed_beside_a_capture_stays_mapped_under_work(void)
{
    run("prog_closes", "closed_under_work", CARD, true);
}

static void test_threads_open_and_close_at_once(void)
{
    both("threads", CARD);
}

static void test_no_thread_waits_for_a_close_that_waits_for_the_device(void)
{
    each_way("prog_closes", "forks_beside_a_close", CARD);
    each_way("prog_closes", "opens_beside_a_close", CARD);
    each_way("prog_closes", "context_ends_beside_a_close", CARD);
}

static void test_a_close_destroys_no_capture(void)
{
    each_way("prog_closes", "captures_beside_closes", CARD);
}

static void test_a_block_closed_beside_a_capture_goes_back(void)
{
    each_way("prog_closes", "closed_beside_a_capture", TIGHT);
    each_way("prog_closes", "closed_without_a_pool", CARD);
}

static void test_a_block_opened_in_a_green_context_goes_back(void)
{
    each_way("prog_closes", "closed_after_a_green_context", TIGHT);
}

static void test_a_block_stays_mapped_while_its_work_cannot_be_waited_for(void)
{
    run("prog_closes", "closed_beside_a_failure", TIGHT, true);
}

static void test_a_block_that_could_not_be_mapped_goes_back(void)
{
    run("prog_closes", "open_that_fails", TIGHT, true);
}

static void test_a_freed_block_is_opened_by_no_other_process(void)
{
    run("prog_closes", "opened_after_its_free", CARD, true);
}

static void test_a_block_open_in_two_contexts_outlives_one(void)
{
    both_of("prog_closes", "opened_in_two_contexts", CARD);
}

static void test_blocks_of_a_stopped_process_are_opened_and_closed(void)
{
    run("prog_stopped", "known_exporter", CARD, true);
}

static void test_no_thread_waits_for_one_that_waits_for_a_stopped_process(void)
{
    run("prog_stopped", "unknown_exporter", CARD, true);
}

static void test_a_stopped_process_learns_of_every_close_later(void)
{
    both_of("prog_stopped", "closes_many", TIGHT);
}

static void test_the_memory_of_a_dead_process_is_not_kept(void)
{
    both_of("prog_stopped", "dead_exporter", TIGHT);
}

static void test_a_forked_child_keeps_no_connection(void)
{
    run("prog_stopped", "children", CARD, true);
}

static void test_memory_of_another_card_is_opened(void)
{
    both("cards", "2x2G");
}

static void test_a_process_ends_with_blocks_shared_and_open(void)
{
    both("leave", CARD);
}

static void test_forged_handles_are_refused(void)
{
    run("prog_forger", "handles", CARD, true);
}

static void test_exporters_that_lie_are_refused(void)
{
    run("prog_forger", "exporters", CARD, true);
}

static void test_exporters_that_are_never_done_are_given_up(void)
{
    fast_clock = "10";
    run("prog_forger", "slow_exporters", CARD, true);
    fast_clock = NULL;
}

static void test_exporters_of_another_version_are_refused(void)
{
    run("prog_forger", "old_exporters", CARD, true);
}

static void test_importers_that_lie_change_nothing(void)
{
    run("prog_intruder", "packets", CARD, true);
}

static void test_processes_of_other_users_share_nothing(void)
{
    if (geteuid() != 0)
        TEST_IGNORE_MESSAGE("only root can start a process of another user");
    run("prog_forger", "users_exporter", CARD, true);
    run("prog_intruder", "other_user", CARD, true);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_two_processes_see_the_same_bytes);
    RUN_TEST(test_an_opened_block_looks_native);
    RUN_TEST(test_work_of_before_a_block_was_taken_is_not_seen_by_who_opens_it);
    RUN_TEST(test_every_code_is_the_native_one);
    RUN_TEST(test_a_block_freed_while_open_stays_and_comes_back);
    RUN_TEST(test_a_handle_that_is_never_opened_holds_no_memory);
    RUN_TEST(test_a_killed_process_gives_back_what_it_had_open);
    RUN_TEST(test_opened_memory_is_not_charged);
    RUN_TEST(test_a_dead_exporter_is_an_error_and_no_hang);
    RUN_TEST(test_the_end_of_a_context_ends_what_it_shared);
    RUN_TEST(test_the_library_never_uses_a_context_that_is_being_destroyed);
    RUN_TEST(test_forked_children_change_nothing);
    RUN_TEST(test_an_unwrapped_process_gets_the_drivers_own_error);
    RUN_TEST(test_a_block_closed_beside_a_capture_stays_mapped_under_work);
    RUN_TEST(test_threads_open_and_close_at_once);
    RUN_TEST(test_no_thread_waits_for_a_close_that_waits_for_the_device);
    RUN_TEST(test_a_close_destroys_no_capture);
    RUN_TEST(test_a_block_closed_beside_a_capture_goes_back);
    RUN_TEST(test_a_block_opened_in_a_green_context_goes_back);
    RUN_TEST(test_a_block_stays_mapped_while_its_work_cannot_be_waited_for);
    RUN_TEST(test_a_block_that_could_not_be_mapped_goes_back);
    RUN_TEST(test_a_freed_block_is_opened_by_no_other_process);
    RUN_TEST(test_a_block_open_in_two_contexts_outlives_one);
    RUN_TEST(test_blocks_of_a_stopped_process_are_opened_and_closed);
    RUN_TEST(test_no_thread_waits_for_one_that_waits_for_a_stopped_process);
    RUN_TEST(test_a_stopped_process_learns_of_every_close_later);
    RUN_TEST(test_the_memory_of_a_dead_process_is_not_kept);
    RUN_TEST(test_a_forked_child_keeps_no_connection);
    RUN_TEST(test_memory_of_another_card_is_opened);
    RUN_TEST(test_a_process_ends_with_blocks_shared_and_open);
    RUN_TEST(test_forged_handles_are_refused);
    RUN_TEST(test_exporters_that_lie_are_refused);
    RUN_TEST(test_exporters_that_are_never_done_are_given_up);
    RUN_TEST(test_exporters_of_another_version_are_refused);
    RUN_TEST(test_importers_that_lie_change_nothing);
    RUN_TEST(test_processes_of_other_users_share_nothing);
    return UNITY_END();
}
