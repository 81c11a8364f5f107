/* The timeline of a recording: what was live, idle and allowed at each moment, against a plain recount. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/recording_make.h"
#include "tools/gpucap/recording_columns.h"
#include "tools/gpucap/recording_words.h"
#include "tools/gpucap/timeline.h"
#include "tools/gpucap/words.h"
#include "unity.h"

#define MIB    (UINT64_C(1) << 20)
#define EVENTS 4000

static char path[64];
static struct recording recording;
static struct timeline timeline;
static struct recording_make make;
static uint64_t now;

void setUp(void)
{
    strcpy(path, "/tmp/gpucap-recording-XXXXXX");
    close(mkstemp(path));
    now = 0;
    TEST_ASSERT_TRUE(recording_make_open(&make, path, (struct recording_head){0}, RECORDING_PLAIN));
}

void tearDown(void)
{
    unlink(path);
    timeline_close(&timeline);
    recording_close(&recording);
}

static void add(uint16_t type, struct recording_event event)
{
    event.time_ns = ++now;
    recording_make_event(&make, type, event);
}

static void open_timeline(uint16_t device)
{
    char why[RECORDING_WHY];

    recording_make_close(&make, now, true);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, recording_open(&recording, path, why), why);
    TEST_ASSERT_TRUE(timeline_open(&timeline, &recording, device));
}

static void open_training(void)
{
    recording_make_close(&make, 0, true);
    recording_make_training(path, &(struct recording_training){.events = EVENTS});
    char why[RECORDING_WHY];
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, recording_open(&recording, path, why), why);
    TEST_ASSERT_TRUE(timeline_open(&timeline, &recording, 0));
}

static void block(uint16_t type, uint64_t address, uint64_t bytes, uint8_t kind, uint16_t owner, uint16_t tag)
{
    add(type, (struct recording_event){
                  .address = address, .bytes = bytes, .kind = kind, .owner = owner, .tag = tag});
}

static void test_use_is_live_and_idle_and_contexts_and_the_rest_of_the_drivers_figure(void)
{
    add(RECORDING_CONTEXT, (struct recording_event){.bytes = 300 * MIB, .other = 1});
    add(RECORDING_CONTEXT, (struct recording_event){.bytes = 100 * MIB, .other = 2});
    add(RECORDING_GROW, (struct recording_event){.bytes = 64 * MIB, .other = 64 * MIB});
    block(RECORDING_ALLOC, 0x1000, 40 * MIB, RECORDING_MALLOC, 1, 0);
    block(RECORDING_ALLOC, 0x1000, 8 * MIB, RECORDING_VMM, 2, 0); /* a handle, not that address */
    block(RECORDING_ALLOC, 0x9000, 99 * MIB, RECORDING_IMPORT, 2, 0);
    add(RECORDING_USED, (struct recording_event){.bytes = 480 * MIB});
    add(RECORDING_CONTEXT, (struct recording_event){.bytes = 0, .other = 2});
    open_timeline(0);
    const struct timeline_state state = timeline_state_after(&timeline, timeline.step_count);
    TEST_ASSERT_EQUAL_UINT64(48 * MIB, state.live);
    TEST_ASSERT_EQUAL_UINT64(24 * MIB, timeline_idle(&state));
    TEST_ASSERT_EQUAL_UINT64(300 * MIB, state.context);
    TEST_ASSERT_EQUAL_UINT64(8 * MIB, state.unnamed);
    TEST_ASSERT_EQUAL_UINT64(380 * MIB, timeline_used(&state));
    TEST_ASSERT_EQUAL_UINT64(TIMELINE_NO, state.limit);
}

static void test_peak_is_where_most_is_in_use_and_then_most_live(void)
{
    add(RECORDING_GROW, (struct recording_event){.bytes = 64 * MIB, .other = 64 * MIB});
    block(RECORDING_ALLOC, 0x1000, 10 * MIB, RECORDING_MALLOC, 0, 0);
    block(RECORDING_ALLOC, 0x2000, 20 * MIB, RECORDING_MALLOC, 0, 0);
    block(RECORDING_FREE, 0x1000, 10 * MIB, RECORDING_MALLOC, 0, 0);
    add(RECORDING_TRIM, (struct recording_event){.bytes = 44 * MIB, .other = 20 * MIB});
    block(RECORDING_ALLOC, 0x9000, 15 * MIB, RECORDING_ASYNC, 0, 0);
    open_timeline(0);
    struct timeline_state state = timeline_state_after(&timeline, timeline.peak);
    TEST_ASSERT_EQUAL_size_t(3, timeline.peak);
    TEST_ASSERT_EQUAL_UINT64(64 * MIB, timeline_used(&state));
    state = timeline_state_after(&timeline, timeline.live_peak);
    TEST_ASSERT_EQUAL_UINT64(35 * MIB, timeline_named(&state));
}

/* Both come from one measurement: nothing was in use twice. */
static void test_what_passes_from_contexts_to_the_drivers_pools_counts_once(void)
{
    add(RECORDING_CONTEXT, (struct recording_event){.bytes = 540 * MIB, .other = 1});
    add(RECORDING_DRIVER, (struct recording_event){.bytes = 28 * MIB});
    now--; /* at the same time */
    add(RECORDING_CONTEXT, (struct recording_event){.bytes = 512 * MIB, .other = 1});
    add(RECORDING_DRIVER, (struct recording_event){.bytes = 8 * MIB});
    now--;
    add(RECORDING_CONTEXT, (struct recording_event){.bytes = 532 * MIB, .other = 1});
    open_timeline(0);
    for (size_t i = 1; i <= timeline.step_count; i++) {
        const struct timeline_state state = timeline_state_after(&timeline, i);

        TEST_ASSERT_TRUE(timeline_used(&state) <= 540 * MIB);
    }
    const struct timeline_state end = timeline_state_after(&timeline, timeline.step_count);
    TEST_ASSERT_EQUAL_UINT64(540 * MIB, timeline_used(&end));
    TEST_ASSERT_EQUAL_UINT64(8 * MIB, end.driver);
}

static void test_the_end_of_a_context_is_no_measurement(void)
{
    block(RECORDING_ALLOC, 0x1000, 10 * MIB, RECORDING_MALLOC, 0, 0);
    add(RECORDING_CONTEXT, (struct recording_event){.bytes = 0, .other = 1});
    open_timeline(0);
    TEST_ASSERT_FALSE(timeline.measured);
}

static void test_shares_follow_owner_kind_and_tag(void)
{
    struct timeline_share *shares;

    recording_make_name(&make, RECORDING_OWNER, 3, "cuDNN", 5);
    recording_make_name(&make, RECORDING_TAG, 9, "activations", 11);
    block(RECORDING_ALLOC, 0x1000, 10, RECORDING_MALLOC, 3, 9);
    block(RECORDING_ALLOC, 0x2000, 20, RECORDING_ASYNC, 3, 0);
    block(RECORDING_ALLOC, 0x3000, 5, RECORDING_ASYNC, 0, 9);
    block(RECORDING_FREE, 0x1000, 10, RECORDING_MALLOC, 3, 9);
    open_timeline(0);
    TEST_ASSERT_EQUAL_size_t(2, timeline_shares(&timeline, 3, TIMELINE_BY_OWNER, &shares));
    TEST_ASSERT_EQUAL_UINT16(3, shares[0].id);
    TEST_ASSERT_EQUAL_UINT64(30, shares[0].bytes);
    TEST_ASSERT_EQUAL_STRING("cuDNN", timeline_name(&recording, TIMELINE_BY_OWNER, 3));
    TEST_ASSERT_EQUAL_STRING("program", timeline_name(&recording, TIMELINE_BY_OWNER, 0));
    free(shares);
    TEST_ASSERT_EQUAL_size_t(1, timeline_shares(&timeline, 4, TIMELINE_BY_KIND, &shares));
    TEST_ASSERT_EQUAL_UINT64(25, shares[0].bytes);
    TEST_ASSERT_EQUAL_STRING("cudaMallocAsync", timeline_name(&recording, TIMELINE_BY_KIND, shares[0].id));
    free(shares);
    TEST_ASSERT_EQUAL_INT(TIMELINE_BY_OWNER, timeline_best_by(&timeline, 4));
    TEST_ASSERT_EQUAL_INT(TIMELINE_BY_TAG, timeline_best_by(&timeline, 1));
    TEST_ASSERT_EQUAL_STRING("activations", timeline_name(&recording, TIMELINE_BY_TAG, 9));
    TEST_ASSERT_EQUAL_STRING("unknown tag", timeline_name(&recording, TIMELINE_BY_TAG, 8));
}

static void test_columns_have_the_bytes_of_each_group_beside_its_name(void)
{
    struct columns columns;

    recording_make_name(&make, RECORDING_OWNER, 3, "cuDNN", 5);
    for (uint16_t owner = 1; owner <= COLUMNS_NAMED + 1; owner++)
        block(RECORDING_ALLOC, 0x1000u * owner, owner == 3 ? 100 : 50 - owner, RECORDING_MALLOC, owner, 0);
    add(RECORDING_USED, (struct recording_event){.bytes = MIB});
    block(RECORDING_FREE, 0x3000, 100, RECORDING_MALLOC, 3, 0);
    add(RECORDING_CONTEXT, (struct recording_event){.bytes = 7, .other = 1});
    open_timeline(0);
    const uint64_t unnamed = timeline_state_after(&timeline, COLUMNS_NAMED + 2).unnamed;
    TEST_ASSERT_GREATER_THAN_UINT64(0, unnamed);
    TEST_ASSERT_TRUE(columns_open(&columns, &timeline, TIMELINE_BY_OWNER, 4));
    TEST_ASSERT_EQUAL_STRING("cuDNN", columns.names[1]);
    TEST_ASSERT_EQUAL_UINT64(7, columns.most[0]);
    TEST_ASSERT_EQUAL_UINT64(100, columns.most[1]);
    TEST_ASSERT_EQUAL_UINT64(49, columns.most[2]);
    TEST_ASSERT_EQUAL_STRING("others", columns.names[COLUMNS_NAMED + 1]);
    TEST_ASSERT_EQUAL_UINT64(50 - COLUMNS_NAMED - 1, columns.most[COLUMNS_NAMED + 1]);
    TEST_ASSERT_EQUAL_STRING("not named", columns.names[COLUMNS_NAMED + 2]);
    TEST_ASSERT_EQUAL_UINT64(unnamed, columns.most[COLUMNS_NAMED + 2]);
    columns_close(&columns);
}

static void test_lost_and_unknown_releases_do_not_break_the_sums(void)
{
    block(RECORDING_FREE, 0x7000, 10, RECORDING_MALLOC, 0, 0);  /* was there before */
    block(RECORDING_ALLOC, 0x1000, 10, RECORDING_MALLOC, 0, 0); /* its release was lost */
    block(RECORDING_ALLOC, 0x1000, 30, RECORDING_MALLOC, 0, 0);
    block(RECORDING_ALLOC, 0x2000, RECORDING_BYTES_MAX - 1, RECORDING_MALLOC, 0, 0);
    open_timeline(0);
    const struct timeline_state state = timeline_state_after(&timeline, timeline.step_count);
    TEST_ASSERT_EQUAL_UINT64(30, state.live);
    TEST_ASSERT_EQUAL_UINT64(1, timeline.unmatched);
    TEST_ASSERT_EQUAL_UINT64(TIMELINE_NEVER, timeline.blocks[1].end_ns);
    TEST_ASSERT_EQUAL_UINT64(3, timeline.blocks[0].end_ns);
}

static void test_a_pool_of_an_absurd_size_does_not_count(void)
{
    add(RECORDING_GROW, (struct recording_event){.bytes = 5, .other = 5});
    add(RECORDING_GROW, (struct recording_event){.bytes = 5, .other = RECORDING_BYTES_MAX});
    add(RECORDING_TRIM, (struct recording_event){.bytes = 5, .other = UINT64_MAX});
    open_timeline(0);
    TEST_ASSERT_EQUAL_size_t(1, timeline.step_count);
    TEST_ASSERT_EQUAL_UINT64(5, timeline_state_after(&timeline, 1).held);
}

static void test_devices_have_timelines_of_their_own(void)
{
    uint16_t devices[4];

    add(RECORDING_ALLOC, (struct recording_event){.device = 3, .address = 1, .bytes = 7});
    add(RECORDING_ALLOC, (struct recording_event){.device = 1, .address = 1, .bytes = 9});
    open_timeline(1);
    TEST_ASSERT_EQUAL_size_t(2, timeline_devices(&recording, devices, 4));
    TEST_ASSERT_EQUAL_UINT16(1, devices[0]);
    TEST_ASSERT_EQUAL_UINT16(3, devices[1]);
    TEST_ASSERT_EQUAL_UINT64(9, timeline_state_after(&timeline, 1).live);
}

/* At many moments, from the blocks alone. */
static void test_every_moment_of_a_training_agrees_with_a_recount(void)
{
    open_training();
    for (size_t steps = 0; steps <= timeline.step_count; steps += 37) {
        struct timeline_share *shares;
        uint32_t *live;
        uint64_t by_share = 0, by_block = 0;
        const size_t groups = timeline_shares(&timeline, steps, TIMELINE_BY_TAG, &shares);
        const size_t blocks = timeline_live_blocks(&timeline, steps, &live);

        for (size_t i = 0; i < groups; i++)
            by_share += shares[i].bytes;
        for (size_t i = 0; i < blocks; i++) {
            by_block += timeline.blocks[live[i]].bytes;
            TEST_ASSERT_TRUE(i == 0 || timeline.blocks[live[i]].bytes <= timeline.blocks[live[i - 1]].bytes);
        }
        TEST_ASSERT_EQUAL_UINT64(by_block, timeline_state_after(&timeline, steps).live);
        TEST_ASSERT_EQUAL_UINT64(by_block, by_share);
        free(shares);
        free(live);
    }
    TEST_ASSERT_EQUAL_UINT64(0, timeline.unmatched);
    TEST_ASSERT_EQUAL_INT(TIMELINE_BY_TAG, timeline_best_by(&timeline, timeline.peak));
}

static void test_moments_are_found_by_time(void)
{
    open_training();
    TEST_ASSERT_EQUAL_size_t(timeline.step_count, timeline_steps_until(&timeline, UINT64_MAX));
    const size_t middle = timeline.step_count / 2;
    const size_t found = timeline_steps_until(&timeline, timeline.steps[middle].time_ns);
    TEST_ASSERT_TRUE(found > middle);
    TEST_ASSERT_TRUE(found == timeline.step_count ||
                     timeline.steps[found].time_ns > timeline.steps[middle].time_ns);
}

/* "1.5 GiB" at an axis is 1.5 GiB and not 1500 MiB. */
static void test_labels_of_an_axis_say_what_they_mark(void)
{
    static const char units[] = "KMGT";
    char text[WORDS_TEXT], letter;
    double number;

    for (uint64_t most = 5000; most < UINT64_C(1) << 44; most += most / 7) {
        const uint64_t step = recording_step(most, 5);

        TEST_ASSERT_TRUE_MESSAGE(step && step <= most, words_size(most, text));
        for (uint64_t bytes = step; bytes <= most; bytes += step) {
            TEST_ASSERT_EQUAL_INT(2, sscanf(words_size(bytes, text), "%lf %c", &number, &letter));
            for (const char *unit = units;; unit++) {
                number *= 1024;
                if (*unit == letter)
                    break;
            }
            TEST_ASSERT_TRUE_MESSAGE(number == (double)bytes, text);
        }
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_use_is_live_and_idle_and_contexts_and_the_rest_of_the_drivers_figure);
    RUN_TEST(test_peak_is_where_most_is_in_use_and_then_most_live);
    RUN_TEST(test_what_passes_from_contexts_to_the_drivers_pools_counts_once);
    RUN_TEST(test_the_end_of_a_context_is_no_measurement);
    RUN_TEST(test_shares_follow_owner_kind_and_tag);
    RUN_TEST(test_columns_have_the_bytes_of_each_group_beside_its_name);
    RUN_TEST(test_lost_and_unknown_releases_do_not_break_the_sums);
    RUN_TEST(test_a_pool_of_an_absurd_size_does_not_count);
    RUN_TEST(test_devices_have_timelines_of_their_own);
    RUN_TEST(test_every_moment_of_a_training_agrees_with_a_recount);
    RUN_TEST(test_moments_are_found_by_time);
    RUN_TEST(test_labels_of_an_axis_say_what_they_mark);
    return UNITY_END();
}
