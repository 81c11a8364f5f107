/* graphs: what a graph has on a card, and what a launch may take beyond what is there. Numbers only. */
#include "interpose/account/graphs.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <unity.h>

#define MIB  (UINT64_C(1) << 20)
#define GIB  (UINT64_C(1) << 30)
#define BASE (UINT64_C(0x700000000000))

static const char execs[64]; /* addresses to be handles */
#define EXEC(i) ((const void *)&execs[i])

static struct graphs_part parts[GRAPHS_CARDS];

/* The driver's side of a test: what it holds for graphs. */
static uint64_t held, used;
static bool no_memory;

void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes)
{
    return no_memory ? NULL : __real_realloc(memory, bytes);
}

void setUp(void)
{
    held = used = 0;
}

static void destroy(int exec)
{
    graphs_destroy_begin(EXEC(exec));
    graphs_destroy_end(EXEC(exec), true);
}

void tearDown(void)
{
    for (int i = 0; i < 64; i++)
        destroy(i);
    TEST_ASSERT_TRUE(graphs_none());
    struct graphs_ask ask = {.part = {0, 1}};
    int during, after;
    graphs_alone(&ask);
    TEST_ASSERT_TRUE_MESSAGE(ask.alone, "nothing is left in flight");
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &during);
    graphs_end(&ask, false, 0);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &after);
    TEST_ASSERT_EQUAL_INT(PTHREAD_CANCEL_DISABLE, during); /* a cancelled thread would keep the lock */
    TEST_ASSERT_EQUAL_INT(PTHREAD_CANCEL_ENABLE, after);
}

static uint64_t footprint(struct graphs_range *ranges, size_t count)
{
    TEST_ASSERT_EQUAL_UINT64(1, graphs_footprint(ranges, count, parts));
    return parts[0].bytes;
}

static void test_each_allocation_has_pages_of_its_own(void)
{
    struct graphs_range one[] = {{0, BASE, 1}};
    struct graphs_range two[] = {{0, BASE + 4 * MIB, 2 * MIB + 1}, {0, BASE, 2 * MIB}};

    TEST_ASSERT_EQUAL_UINT64(2 * MIB, footprint(one, 1));
    TEST_ASSERT_EQUAL_UINT64(6 * MIB, footprint(two, 2));
    TEST_ASSERT_EQUAL_UINT64(0, graphs_footprint(NULL, 0, parts));
}

static void test_the_same_addresses_count_once(void)
{
    struct graphs_range same[] = {{0, BASE, GIB}, {0, BASE, GIB}, {0, BASE, GIB / 2}};
    struct graphs_range inside[] = {
        {0, BASE + GIB / 2, GIB}, {0, BASE, GIB}, {0, BASE + 100 * MIB, 512}, {0, BASE + 4 * GIB, 512}};
    struct graphs_range one_page[] = {{0, BASE, 512}, {0, BASE + 512, 512}, {0, BASE + MIB, 2 * MIB}};

    TEST_ASSERT_EQUAL_UINT64(GIB, footprint(same, 3));
    TEST_ASSERT_EQUAL_UINT64(GIB + GIB / 2 + 2 * MIB, footprint(inside, 4));
    TEST_ASSERT_EQUAL_UINT64(4 * MIB, footprint(one_page, 3));
}

static void test_unknown_addresses_share_nothing(void)
{
    struct graphs_range unknown[] = {{0, 0, GIB}, {0, BASE, MIB}, {0, 0, GIB + 1}};

    TEST_ASSERT_EQUAL_UINT64(2 * GIB + 4 * MIB, footprint(unknown, 3));
}

static void test_no_more_cards_are_told_than_there_is_room_for(void)
{
    struct graphs_range ranges[GRAPHS_CARDS + 1];
    struct graphs_part more[GRAPHS_CARDS + 1] = {{0}};

    for (int i = 0; i <= GRAPHS_CARDS; i++)
        ranges[i] = (struct graphs_range){i, BASE, MIB};
    TEST_ASSERT_EQUAL_UINT64(GRAPHS_CARDS, graphs_footprint(ranges, GRAPHS_CARDS, more));
    TEST_ASSERT_EQUAL_UINT64(GRAPHS_CARDS + 1, graphs_footprint(ranges, GRAPHS_CARDS + 1, more));
    TEST_ASSERT_EQUAL_UINT64(0, more[GRAPHS_CARDS].bytes);
}

static void test_each_card_has_its_own_footprint(void)
{
    struct graphs_range ranges[] = {{3, BASE, GIB}, {0, BASE, MIB}, {3, BASE + GIB, GIB}, {0, BASE, MIB}};

    TEST_ASSERT_EQUAL_UINT64(2, graphs_footprint(ranges, 4, parts));
    TEST_ASSERT_EQUAL_INT(0, parts[0].card);
    TEST_ASSERT_EQUAL_UINT64(2 * MIB, parts[0].bytes);
    TEST_ASSERT_EQUAL_INT(3, parts[1].card);
    TEST_ASSERT_EQUAL_UINT64(2 * GIB, parts[1].bytes);
}

static void test_no_number_wraps_around(void)
{
    struct graphs_range hostile[] = {
        {0, UINT64_MAX - 5, UINT64_MAX}, {0, 0, UINT64_MAX}, {0, 1, UINT64_MAX - 1}};

    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, footprint(hostile, 3));
}

/* Random ranges, page by page. */
static void test_the_footprint_is_the_pages_that_are_touched(void)
{
    enum { PAGES = 64, RANGES = 12 };

    srand(1);
    for (int run = 0; run < 20000; run++) {
        struct graphs_range ranges[RANGES];
        bool touched[PAGES] = {false};
        uint64_t pages = 0;
        const size_t count = 1 + (size_t)rand() % RANGES;

        for (size_t i = 0; i < count; i++) {
            const uint64_t start = (uint64_t)rand() % (32 * 2 * MIB),
                           bytes = 1 + (uint64_t)rand() % (8 * MIB);

            ranges[i] = (struct graphs_range){0, BASE + start, bytes};
            for (uint64_t page = start / (2 * MIB); page <= (start + bytes - 1) / (2 * MIB); page++)
                touched[page] = true;
        }
        for (int i = 0; i < PAGES; i++)
            pages += touched[i];
        TEST_ASSERT_EQUAL_UINT64(pages * 2 * MIB, footprint(ranges, count));
    }
}

static void remember(int i, uint64_t bytes)
{
    TEST_ASSERT_EQUAL_INT(0, graphs_remember(EXEC(i), &(struct graphs_part){0, bytes}, 1));
}

static struct graphs_ask begin(int i, uint64_t bytes, uintptr_t stream)
{
    struct graphs_ask ask = {.exec = EXEC(i), .part = {0, bytes}, .stream = stream};

    if (graphs_again(&ask, held))
        return ask;
    graphs_alone(&ask);
    TEST_ASSERT_TRUE(ask.alone);
    graphs_need(&ask, &(struct graphs_pool){held, used});
    return ask;
}

/* True: nothing would be asked. */
static bool again(int i, uint64_t bytes, uintptr_t stream)
{
    struct graphs_ask ask = begin(i, bytes, stream);

    graphs_end(&ask, false, 0);
    return ask.again;
}

/* A launch for which the driver takes exactly what was asked. */
static uint64_t launch(int i, uint64_t bytes, uintptr_t stream)
{
    struct graphs_ask ask = begin(i, bytes, stream);

    held += ask.need;
    used += ask.need;
    graphs_end(&ask, true, held);
    return ask.need;
}

static void test_the_first_launch_needs_all_and_the_next_nothing(void)
{
    remember(0, GIB);
    TEST_ASSERT_EQUAL_UINT64(GIB, launch(0, GIB, 1));
    TEST_ASSERT_TRUE(again(0, GIB, 1));
    TEST_ASSERT_EQUAL_UINT64(0, launch(0, GIB, 1));
}

static void test_a_step_of_the_drivers_is_asked_for(void)
{
    remember(0, 2 * MIB);
    TEST_ASSERT_EQUAL_UINT64(32 * MIB, launch(0, 2 * MIB, 1));
}

static void test_memory_of_no_use_is_not_asked_for(void)
{
    held = GIB;
    remember(0, GIB);
    TEST_ASSERT_EQUAL_UINT64(0, launch(0, GIB, 1));
    held = GIB;
    used = GIB / 2;
    remember(1, GIB);
    TEST_ASSERT_EQUAL_UINT64(GIB / 2, launch(1, GIB, 1));
}

static void test_graphs_that_all_have_their_memory_need_no_more(void)
{
    remember(0, GIB);
    remember(1, GIB);
    launch(0, GIB, 1);
    TEST_ASSERT_EQUAL_UINT64(GIB, launch(1, GIB, 1));
    for (uintptr_t stream = 1; stream < 10; stream++) {
        TEST_ASSERT_EQUAL_UINT64(0, launch(0, GIB, stream));
        TEST_ASSERT_EQUAL_UINT64(0, launch(1, GIB, 10 - stream));
    }
}

static void test_graphs_that_share_memory_may_each_need_their_own_again(void)
{
    remember(0, GIB);
    remember(1, GIB);
    launch(0, GIB, 1);
    struct graphs_ask ask = begin(1, GIB, 1);
    TEST_ASSERT_EQUAL_UINT64(GIB, ask.need);
    graphs_end(&ask, true, held); /* the driver lets them share */
    ask = begin(0, GIB, 1);
    TEST_ASSERT_FALSE(ask.again);
    TEST_ASSERT_EQUAL_UINT64(GIB, ask.need);
    graphs_end(&ask, true, held);
    TEST_ASSERT_TRUE(again(0, GIB, 1)); /* nothing has moved since */
    TEST_ASSERT_TRUE(again(1, GIB, 1));
}

static void trim(int card)
{
    struct graphs_ask ask = {.part.card = card};

    graphs_alone(&ask);
    graphs_trimmed(&ask);
    graphs_end(&ask, false, 0);
}

static void test_a_trim_ends_all_certainty(void)
{
    remember(0, GIB);
    launch(0, GIB, 1);
    held = used = 0;
    TEST_ASSERT_EQUAL_UINT64(GIB, launch(0, GIB, 1)); /* seen in the driver's figure */
    used = 0;
    trim(1);
    TEST_ASSERT_TRUE(again(0, GIB, 1)); /* another card's */
    trim(0);
    TEST_ASSERT_FALSE(again(0, GIB, 1)); /* told */
}

/* A launch by another thread, which begins while this one is in the middle of its own. */
static struct graphs_ask late;
static bool late_again;
static atomic_bool late_begun;
static atomic_long ahead = 3600; /* s; launches wait for each other until a time that does not come */

/* In place of libc's: a launch that waits asks it until when. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int result = (int)syscall(SYS_clock_gettime, clock, now);

    now->tv_sec += atomic_load(&ahead);
    return result;
}

static void *come_late(void *patient)
{
    late_again = graphs_again(&late, held);
    if (!late_again) {
        graphs_alone(&late);
        graphs_need(&late, &(struct graphs_pool){held, used});
    }
    atomic_store(&late_begun, true);
    graphs_end(&late, false, 0);
    return patient;
}

static pthread_t another_begins(int i, uint64_t bytes, int card)
{
    pthread_t thread;

    late = (struct graphs_ask){.exec = EXEC(i), .part = {card, bytes}, .stream = 2};
    atomic_store(&late_begun, false);
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, come_late, NULL));
    return thread;
}

static void test_two_launches_at_once_do_not_count_on_the_same_spare_bytes(void)
{
    held = GIB;
    remember(0, GIB);
    remember(1, GIB);
    struct graphs_ask ask = begin(0, GIB, 1);
    TEST_ASSERT_EQUAL_UINT64(0, ask.need);
    pthread_t thread = another_begins(1, GIB, 0);
    usleep(20000);
    TEST_ASSERT_FALSE_MESSAGE(atomic_load(&late_begun), "it waits for the first");
    used = GIB;
    graphs_end(&ask, true, held);
    pthread_join(thread, NULL);
    TEST_ASSERT_TRUE(late.alone);
    TEST_ASSERT_EQUAL_UINT64(GIB, late.need);
}

/* A launch that gives up waiting assumes that it needs all of its memory. */
static void test_a_launch_that_is_held_up_holds_up_no_other_for_ever(void)
{
    held = GIB;
    remember(0, GIB);
    remember(1, GIB);
    struct graphs_ask ask = begin(0, GIB, 1);
    atomic_store(&ahead, -3600); /* it has waited for long enough */
    pthread_join(another_begins(1, GIB, 0), NULL);
    atomic_store(&ahead, 3600);
    TEST_ASSERT_FALSE(late.alone);
    TEST_ASSERT_EQUAL_UINT64(GIB, late.need);
    graphs_end(&ask, true, held);
}

static void test_launches_as_before_go_side_by_side(void)
{
    remember(0, GIB);
    remember(1, GIB);
    launch(0, GIB, 1);
    launch(1, GIB, 2);
    launch(0, GIB, 1);
    launch(1, GIB, 2); /* after the last that moved */
    struct graphs_ask ask = begin(0, GIB, 1);
    TEST_ASSERT_TRUE(ask.again);
    pthread_join(another_begins(1, GIB, 0), NULL);
    TEST_ASSERT_TRUE(late_again);
    graphs_end(&ask, true, held);
}

static void test_cards_do_not_wait_for_each_other(void)
{
    remember(0, GIB);
    TEST_ASSERT_EQUAL_INT(0, graphs_remember(EXEC(1), &(struct graphs_part){1, GIB}, 1));
    struct graphs_ask ask = begin(0, GIB, 1);
    pthread_join(another_begins(1, GIB, 1), NULL);
    TEST_ASSERT_TRUE(late.alone);
    graphs_end(&ask, true, held);
}

static void test_a_destroyed_graph_may_still_use_its_memory(void)
{
    remember(0, GIB);
    launch(0, GIB, 1);
    destroy(0);
    remember(1, GIB);
    TEST_ASSERT_EQUAL_UINT64(GIB, launch(1, GIB, 1)); /* it runs, or has left a block */
    used = GIB;
    destroy(1);
    used = 0;
    remember(2, 2 * GIB);
    TEST_ASSERT_EQUAL_UINT64(0, launch(2, 2 * GIB, 1)); /* none of it is in use any more */
}

static void test_a_graph_that_the_driver_does_not_destroy_stays(void)
{
    struct graphs_part found[GRAPHS_CARDS];
    int during, after;

    remember(0, GIB);
    launch(0, GIB, 1);
    graphs_destroy_begin(EXEC(0));
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &during);
    graphs_destroy_end(EXEC(0), false);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &after);
    TEST_ASSERT_EQUAL_INT(PTHREAD_CANCEL_DISABLE, during); /* it would never be decided */
    TEST_ASSERT_EQUAL_INT(PTHREAD_CANCEL_ENABLE, after);
    TEST_ASSERT_EQUAL_UINT64(1, graphs_find(EXEC(0), found));
    TEST_ASSERT_EQUAL_UINT64(GIB, found[0].bytes);
    TEST_ASSERT_TRUE_MESSAGE(again(0, GIB, 1), "also that it was launched");
    destroy(0);
    TEST_ASSERT_EQUAL_UINT64(0, graphs_find(EXEC(0), found));
}

static void test_an_update_that_cannot_be_remembered_keeps_the_old_footprint(void)
{
    const struct graphs_part old = {0, MIB}, new[] = {{0, GIB}, {1, GIB}};
    struct graphs_part found[GRAPHS_CARDS];
    int count = 0;

    remember(0, MIB);
    no_memory = true;
    while (graphs_remember(EXEC(count), &old, 1) == 0)
        count++;
    const int rc = graphs_remember(EXEC(0), new, 2);
    no_memory = false;
    TEST_ASSERT_EQUAL_INT(-ENOMEM, rc);
    TEST_ASSERT_EQUAL_UINT64(1, graphs_find(EXEC(0), found));
    TEST_ASSERT_EQUAL_UINT64(MIB, found[0].bytes);
    while (count)
        destroy(--count);
}

/* Another thread gets the handle before the one that destroyed the graph goes on. */
static void test_a_new_graph_of_a_destroyed_ones_handle_stays(void)
{
    struct graphs_part found[GRAPHS_CARDS];

    remember(0, GIB);
    graphs_destroy_begin(EXEC(0));
    remember(0, 2 * GIB);
    graphs_destroy_end(EXEC(0), true);
    TEST_ASSERT_EQUAL_UINT64(1, graphs_find(EXEC(0), found));
    TEST_ASSERT_EQUAL_UINT64(2 * GIB, found[0].bytes);
}

/* After a trim, a launch asks at most for what all graphs of the card need beyond what is held. */
static void test_graphs_never_launched_and_those_of_another_card_need_nothing(void)
{
    remember(0, GIB);
    launch(0, GIB, 1);
    remember(1, GIB);
    destroy(1);
    trim(0);
    TEST_ASSERT_EQUAL_UINT64(0, launch(0, GIB, 1));
    TEST_ASSERT_EQUAL_INT(0, graphs_remember(EXEC(2), &(struct graphs_part){1, GIB}, 1));
    struct graphs_ask ask = {.exec = EXEC(2), .part = {1, GIB}, .stream = 1};
    graphs_alone(&ask);
    graphs_need(&ask, &(struct graphs_pool){0, 0});
    TEST_ASSERT_EQUAL_UINT64(GIB, ask.need);
    graphs_end(&ask, true, GIB);
    trim(0);
    TEST_ASSERT_EQUAL_UINT64(0, launch(0, GIB, 1));
}

static void test_a_launch_on_another_stream_is_not_as_before(void)
{
    remember(0, GIB);
    launch(0, GIB, 1);
    TEST_ASSERT_FALSE(again(0, GIB, 2));
    TEST_ASSERT_TRUE(again(0, GIB, 1));
}

static void test_a_handle_that_is_used_again_is_another_graph(void)
{
    remember(0, GIB);
    launch(0, GIB, 1);
    remember(0, 2 * GIB);
    TEST_ASSERT_EQUAL_UINT64(1, graphs_find(EXEC(0), parts));
    TEST_ASSERT_EQUAL_UINT64(2 * GIB, parts[0].bytes);
    TEST_ASSERT_FALSE(again(0, 2 * GIB, 1));
    TEST_ASSERT_EQUAL_INT(0, graphs_remember(EXEC(0), NULL, 0));
    TEST_ASSERT_EQUAL_UINT64(0, graphs_find(EXEC(0), parts));
}

static void test_rows_are_found_in_any_order(void)
{
    for (int i = 0; i < 64; i++)
        remember(i * 29 % 64, (uint64_t)(i * 29 % 64 + 1) * MIB);
    for (int i = 0; i < 64; i += 3)
        destroy(i);
    for (int i = 0; i < 64; i++) {
        TEST_ASSERT_EQUAL_UINT64(i % 3 != 0, graphs_find(EXEC(i), parts));
        if (i % 3)
            TEST_ASSERT_EQUAL_UINT64((uint64_t)(i + 1) * MIB, parts[0].bytes);
    }
}

static void *churn(void *argument)
{
    const int first = (int)(uintptr_t)argument * 8;

    for (int i = 0; i < 20000; i++) {
        const int exec = first + i % 8;
        struct graphs_ask ask = {.exec = EXEC(exec), .part = {0, GIB}, .stream = 1};

        if (i % 16 < 8) {
            graphs_remember(EXEC(exec), &ask.part, 1);
            if (!graphs_again(&ask, GIB)) {
                graphs_alone(&ask);
                graphs_need(&ask, &(struct graphs_pool){GIB, 0});
            }
            graphs_end(&ask, true, GIB);
        } else if (!graphs_none()) {
            destroy(exec);
        }
    }
    return NULL;
}

static void test_threads_keep_the_table_whole(void)
{
    pthread_t threads[4];

    for (uintptr_t i = 0; i < 4; i++)
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[i], NULL, churn, (void *)i));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    TEST_ASSERT_TRUE(graphs_none()); /* 20000 is a multiple of 16 */
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_each_allocation_has_pages_of_its_own);
    RUN_TEST(test_the_same_addresses_count_once);
    RUN_TEST(test_unknown_addresses_share_nothing);
    RUN_TEST(test_no_more_cards_are_told_than_there_is_room_for);
    RUN_TEST(test_each_card_has_its_own_footprint);
    RUN_TEST(test_no_number_wraps_around);
    RUN_TEST(test_the_footprint_is_the_pages_that_are_touched);
    RUN_TEST(test_the_first_launch_needs_all_and_the_next_nothing);
    RUN_TEST(test_a_step_of_the_drivers_is_asked_for);
    RUN_TEST(test_memory_of_no_use_is_not_asked_for);
    RUN_TEST(test_graphs_that_all_have_their_memory_need_no_more);
    RUN_TEST(test_graphs_that_share_memory_may_each_need_their_own_again);
    RUN_TEST(test_a_trim_ends_all_certainty);
    RUN_TEST(test_two_launches_at_once_do_not_count_on_the_same_spare_bytes);
    RUN_TEST(test_a_launch_that_is_held_up_holds_up_no_other_for_ever);
    RUN_TEST(test_launches_as_before_go_side_by_side);
    RUN_TEST(test_cards_do_not_wait_for_each_other);
    RUN_TEST(test_a_destroyed_graph_may_still_use_its_memory);
    RUN_TEST(test_a_graph_that_the_driver_does_not_destroy_stays);
    RUN_TEST(test_an_update_that_cannot_be_remembered_keeps_the_old_footprint);
    RUN_TEST(test_a_new_graph_of_a_destroyed_ones_handle_stays);
    RUN_TEST(test_graphs_never_launched_and_those_of_another_card_need_nothing);
    RUN_TEST(test_a_launch_on_another_stream_is_not_as_before);
    RUN_TEST(test_a_handle_that_is_used_again_is_another_graph);
    RUN_TEST(test_rows_are_found_in_any_order);
    RUN_TEST(test_threads_keep_the_table_whole);
    return UNITY_END();
}
