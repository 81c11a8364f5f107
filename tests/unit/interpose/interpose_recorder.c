/* recorder, events, live, recording_write: what threads note reaches the file, in order and with its names,
 * whatever happens to the file. The clock is the test's; the recorder's thread is started in the last tests
 * only. */
#include "interpose/see/recorder.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/base/clock.h"
#include "interpose/see/events.h"
#include "interpose/see/live.h"
#include "interpose/see/owner.h"
#include "interpose/see/tags.h"
#include "recording_decode.h"

#define MS     UINT64_C(1000000)
#define HANG_S 200

static char folder[] = "/tmp/interpose_recorder.XXXXXX", path[64], why[RECORDING_WRITE_WHY];
static uint64_t ahead;  /* of the test's clock */
static uint64_t stands; /* where it stands; 0: it goes */
static int fail_after;  /* writes until one fails; -1: none does */
static int fail_with;   /* errno; 0: half of it is written, and the rest fails with ENOSPC */
static unsigned writes;

static uint64_t test_now(void)
{
    return (stands ? stands : clock_ns()) + ahead;
}

static ssize_t test_write(int fd, const void *bytes, size_t count)
{
    writes++;
    if (fail_after < 0 || fail_after-- > 0)
        return write(fd, bytes, count);
    fail_after = 0;
    if (fail_with == 0) {
        fail_with = ENOSPC;
        return write(fd, bytes, count / 2);
    }
    errno = fail_with;
    return -1;
}

/* The recorder's waits for its thread have no end here, as on a machine that is fast enough, but for this. */
static bool overslept; /* the next wait comes back when its time is over */

int __real_pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *lock,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *lock,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *lock,
                                  const struct timespec *until)
{
    const struct timespec late = {.tv_sec = until->tv_sec + HANG_S};
    const bool now = overslept;

    overslept = false;
    return now ? ETIMEDOUT : __real_pthread_cond_timedwait(changed, lock, &late);
}

void setUp(void)
{
    recording_write_system.now = test_now;
    recording_write_system.write = test_write;
    ahead = stands = 0;
    fail_after = -1;
    fail_with = ENOSPC;
    snprintf(path, sizeof(path), "%s/recording", folder);
    unlink(path);
}

void tearDown(void)
{
    events_switch(false);
}

static void begin(void)
{
    const struct recorder_settings settings = {.file = path, .job = "job"};

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, recorder_open(&settings, why), why);
}

static struct recording_decode decode(void)
{
    struct recording_decode recording;
    const char *reason;

    TEST_ASSERT_TRUE_MESSAGE(recording_decode(&recording, path, &reason), reason);
    return recording;
}

static void note_alloc(uint64_t address, uint64_t bytes)
{
    events_note(&(struct recording_event){.head.type = RECORDING_ALLOC,
                                          .kind = RECORDING_MALLOC,
                                          .address = address,
                                          .bytes = bytes,
                                          .owner = owner_current});
}

static void note_free(uint64_t address)
{
    events_note_free(RECORDING_MALLOC, address, NULL);
}

static void test_what_is_noted_reaches_the_file(void)
{
    size_t at = 0;

    recorder_name_device(0, "card", "GPU-1", 1 << 30);
    begin();
    tags_set("weights");
    note_alloc(0x1000, 300);
    tags_set(NULL);
    note_alloc(0x2000, 500);
    note_free(0x1000);
    recorder_close();
    struct recording_decode r = decode();
    TEST_ASSERT_EQUAL_UINT32((uint32_t)getpid(), r.head.pid);
    const struct recording_event *event = recording_decode_next(&r, &at, RECORDING_ALLOC);
    TEST_ASSERT_EQUAL_HEX64(0x1000, event->address);
    TEST_ASSERT_EQUAL_UINT64(300, event->bytes);
    TEST_ASSERT_EQUAL_UINT32((uint32_t)getpid(), event->thread); /* the main thread */
    const size_t here = at - event->head.size;
    TEST_ASSERT_EQUAL_STRING("weights", recording_decode_name(&r, RECORDING_TAG, event->tag, here));
    TEST_ASSERT_EQUAL_STRING("program", recording_decode_name(&r, RECORDING_OWNER, event->owner, here));
    TEST_ASSERT_EQUAL_STRING("card", recording_decode_name(&r, RECORDING_DEVICE, 0, here));
    TEST_ASSERT_NOT_NULL(recording_decode_name(&r, RECORDING_THREAD, event->thread, here));
    TEST_ASSERT_NOT_NULL(recording_decode_name(&r, RECORDING_PROGRAM, 0, here));
    event = recording_decode_next(&r, &at, RECORDING_FREE);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(300, event->bytes, "the recorder knows the size of a released block");
    TEST_ASSERT_NOT_EQUAL(0, event->tag);
    TEST_ASSERT_NOT_NULL(recording_decode_next(&r, &at, RECORDING_END));
    TEST_ASSERT_EQUAL_size_t(at, r.bytes);
    recording_decode_free(&r);
}

static void test_a_release_of_an_unknown_block_is_left_out(void)
{
    begin();
    note_free(0x5000);
    recorder_close();
    struct recording_decode r = decode();
    TEST_ASSERT_EQUAL_size_t(0, recording_decode_count(&r, RECORDING_FREE));
    recording_decode_free(&r);
}

static void test_a_full_ring_drops_events_and_counts_them(void)
{
    size_t at = 0;

    begin();
    for (unsigned i = 0; i < EVENTS_RING + 100; i++)
        note_alloc(0x1000 + i, 1);
    recorder_close();
    struct recording_decode r = decode();
    TEST_ASSERT_EQUAL_size_t(EVENTS_RING, recording_decode_count(&r, RECORDING_ALLOC));
    const struct recording_event *dropped = recording_decode_next(&r, &at, RECORDING_DROPPED);
    TEST_ASSERT_EQUAL_UINT64(100, dropped->bytes);
    TEST_ASSERT_EQUAL_UINT32((uint32_t)getpid(), dropped->thread); /* the main thread */
    TEST_ASSERT_NULL(recording_decode_next(&r, &at, RECORDING_DROPPED));
    TEST_ASSERT_GREATER_THAN_UINT(1, r.blocks);
    recording_decode_free(&r);
}

static void test_a_ring_has_room_again_once_it_was_read(void)
{
    begin();
    for (unsigned i = 0; i < 3 * EVENTS_RING; i++) {
        note_alloc(0x1000, 1);
        if (i % (EVENTS_RING / 2) == 0)
            TEST_ASSERT_EQUAL_INT(0, recorder_step(false));
    }
    recorder_close();
    struct recording_decode r = decode();
    TEST_ASSERT_EQUAL_size_t(3 * EVENTS_RING, recording_decode_count(&r, RECORDING_ALLOC));
    TEST_ASSERT_EQUAL_size_t(0, recording_decode_count(&r, RECORDING_DROPPED));
    recording_decode_free(&r);
}

static void test_a_block_is_written_after_200_ms_and_not_before(void)
{
    begin();
    recorder_step(true);
    note_alloc(0x1000, 1);
    stands = clock_ns();
    const unsigned before = writes;
    recorder_step(false);
    TEST_ASSERT_EQUAL_UINT(before, writes);
    ahead += RECORDER_FLUSH_MS * MS;
    recorder_step(false);
    TEST_ASSERT_EQUAL_UINT_MESSAGE(before + 1, writes, "one write for a block");
    struct recording_decode r = decode(); /* as after SIGKILL */
    TEST_ASSERT_EQUAL_size_t(1, recording_decode_count(&r, RECORDING_ALLOC));
    TEST_ASSERT_EQUAL_size_t(0, recording_decode_count(&r, RECORDING_END));
    recording_decode_free(&r);
    recorder_close();
}

static void test_a_full_disk_ends_the_recording_and_leaves_whole_blocks(void)
{
    begin();
    note_alloc(0x1000, 1);
    TEST_ASSERT_EQUAL_INT(0, recorder_step(true));
    fail_after = 0;
    fail_with = 0;
    note_alloc(0x2000, 1);
    TEST_ASSERT_EQUAL_INT(-ENOSPC, recorder_step(true));
    TEST_ASSERT_FALSE_MESSAGE(events_are_on(), "nothing more is noted");
    recorder_close();
    struct recording_decode r = decode();
    TEST_ASSERT_FALSE(r.cut);
    TEST_ASSERT_EQUAL_size_t(1, recording_decode_count(&r, RECORDING_ALLOC));
    TEST_ASSERT_EQUAL_size_t(0, recording_decode_count(&r, RECORDING_END));
    recording_decode_free(&r);
}

static void test_a_context_that_ends_releases_its_blocks(void)
{
    begin();
    note_alloc(0x10000, 1);
    note_alloc(0x10800, 1);
    note_alloc(0x11000, 1); /* just behind it */
    note_alloc(0x20000, 1);
    events_note(&(struct recording_event){.head.type = EVENTS_GONE, .address = 0x10000, .bytes = 0x1000});
    recorder_close();
    struct recording_decode r = decode();
    size_t at = 0;
    TEST_ASSERT_EQUAL_size_t(2, recording_decode_count(&r, RECORDING_FREE));
    for (const struct recording_event *event; (event = recording_decode_next(&r, &at, RECORDING_FREE));)
        TEST_ASSERT_LESS_THAN_UINT64(0x11000, event->address);
    recording_decode_free(&r);
}

static void test_a_block_that_the_driver_did_not_release_stays(void)
{
    struct live_row row;

    begin();
    note_alloc(0x1000, 100);
    note_free(0x1000);
    events_note_kept(RECORDING_MALLOC, 0x1000);
    recorder_step(false);
    TEST_ASSERT_TRUE(live_row(0, &row));
    TEST_ASSERT_EQUAL_UINT64(100, row.bytes);
    note_free(0x1000);
    note_free(0x1000); /* the program's fault: refused, and no block */
    events_note_kept(RECORDING_MALLOC, 0x1000);
    recorder_close();
    TEST_ASSERT_TRUE(live_row(0, &row));
    TEST_ASSERT_EQUAL_UINT64(0, row.bytes);
    struct recording_decode r = decode();
    TEST_ASSERT_EQUAL_size_t(2, recording_decode_count(&r, RECORDING_ALLOC));
    TEST_ASSERT_EQUAL_size_t(2, recording_decode_count(&r, RECORDING_FREE));
    recording_decode_free(&r);
}

static void test_sums_follow_the_events(void)
{
    struct live_row row;

    begin();
    note_alloc(0x1000, 100);
    note_alloc(0x2000, 50);
    note_free(0x1000);
    note_alloc(0x2000, 70); /* its release was lost */
    recorder_step(false);
    TEST_ASSERT_TRUE(live_row(0, &row));
    TEST_ASSERT_EQUAL_UINT64(70, row.bytes);
    TEST_ASSERT_EQUAL_UINT64(1, row.blocks);
    TEST_ASSERT_EQUAL_UINT64(150, row.peak);
    TEST_ASSERT_FALSE(live_row(1, &row));
    recorder_close();
}

static void *note_kept(void *unused)
{
    events_note_kept(RECORDING_MALLOC, 0x1000);
    return unused;
}

static void test_only_a_release_of_the_same_thread_is_undone_and_only_once(void)
{
    struct live_row row;
    pthread_t thread;

    begin();
    note_alloc(0x1000, 100);
    note_free(0x1000);
    pthread_create(&thread, NULL, note_kept, NULL);
    pthread_join(thread, NULL);
    recorder_step(false);
    TEST_ASSERT_TRUE(live_row(0, &row));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, row.blocks, "another thread's release is not undone");
    note_kept(NULL);
    note_kept(NULL);
    note_alloc(0x1000, 70); /* its release was lost */
    recorder_close();
    struct recording_decode r = decode();
    TEST_ASSERT_EQUAL_size_t(3, recording_decode_count(&r, RECORDING_ALLOC));
    TEST_ASSERT_EQUAL_size_t_MESSAGE(2, recording_decode_count(&r, RECORDING_FREE), "the lost one is added");
    size_t at = 0;
    recording_decode_next(&r, &at, RECORDING_FREE);
    const struct recording_event *lost = recording_decode_next(&r, &at, RECORDING_FREE);
    const struct recording_event *next = recording_decode_next(&r, &at, RECORDING_ALLOC);
    TEST_ASSERT_EQUAL_UINT64(next->time_ns, lost->time_ns);
    TEST_ASSERT_EQUAL_UINT32(next->thread, lost->thread);
    recording_decode_free(&r);
}

/* ---- the driver's figure ---- */

static void measure_300(void (*used)(int device, uint64_t bytes, uint64_t idle))
{
    used(0, 300, 10);
}

static void begin_measured(void)
{
    const struct recorder_settings settings = {.file = path, .job = "", .sample = measure_300};

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, recorder_open(&settings, why), why);
}

static void note_kind(enum recording_kind kind, uint64_t address, uint64_t bytes)
{
    events_note(&(struct recording_event){
        .head.type = RECORDING_ALLOC, .kind = (uint8_t)kind, .address = address, .bytes = bytes});
}

/* The pool grows just after the driver's first answer, and before the next look at the rings. */
static void measure_growing(void (*used)(int device, uint64_t bytes, uint64_t idle))
{
    static bool grown;

    used(0, grown ? 300 : 200, RECORDER_UNKNOWN);
    if (!grown)
        events_note_bytes(RECORDING_GROW, 0, 100, 100);
    grown = true;
}

static void test_what_a_pool_takes_during_a_measurement_is_not_the_contexts(void)
{
    const struct recorder_settings settings = {.file = path, .job = "", .sample = measure_growing};

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, recorder_open(&settings, why), why);
    note_kind(RECORDING_MANAGED, 0x1000, 8); /* any event, without which nothing is measured */
    recorder_step(true);
    TEST_ASSERT_EQUAL_UINT64(200, recorder_context_bytes(0));
    recorder_close();
}

/* Of 300 bytes the pool has 100, 60 of them live; the driver's pools 30, 20 of them live. */
static void test_a_context_has_what_no_block_and_no_pool_has(void)
{
    size_t at = 0;

    begin_measured();
    events_note_bytes(RECORDING_GROW, 0, 100, 100);
    note_kind(RECORDING_MALLOC, 0x1000, 60);
    note_kind(RECORDING_ASYNC, 0x2000, 20);
    note_kind(RECORDING_MANAGED, 0x3000, 500); /* not in the driver's figure */
    recorder_step(true);
    TEST_ASSERT_EQUAL_UINT64(300 - 100 - 30, recorder_context_bytes(0));
    TEST_ASSERT_EQUAL_UINT64(10, recorder_driver_idle(0));
    events_note_bytes(RECORDING_CONTEXT, 0, 0, 0); /* ends */
    recorder_step(false);
    TEST_ASSERT_EQUAL_UINT64(0, recorder_context_bytes(0));
    TEST_ASSERT_EQUAL_UINT64(0, recorder_driver_idle(0));
    recorder_close();
    struct recording_decode r = decode();
    TEST_ASSERT_EQUAL_UINT64(40, recording_decode_next(&r, &at, RECORDING_USED)->other);
    recording_decode_free(&r);
}

static void test_a_recording_knows_nothing_of_the_one_before(void)
{
    size_t at = 0;

    begin_measured();
    events_note_bytes(RECORDING_GROW, 0, 100, 100);
    recorder_step(true);
    TEST_ASSERT_NOT_EQUAL(0, recorder_context_bytes(0));
    recorder_close();
    note_alloc(0x9000, 1); /* on its way when the recording ended */
    begin_measured();
    TEST_ASSERT_EQUAL_UINT64(0, recorder_context_bytes(0));
    TEST_ASSERT_EQUAL_UINT64(0, recorder_driver_idle(0));
    tags_set("weights");
    note_alloc(0x1000, 1);
    tags_set(NULL);
    recorder_close();
    struct recording_decode r = decode();
    const struct recording_event *event = recording_decode_next(&r, &at, RECORDING_ALLOC);
    TEST_ASSERT_EQUAL_HEX64(0x1000, event->address);
    TEST_ASSERT_EQUAL_STRING("weights", recording_decode_name(&r, RECORDING_TAG, event->tag, at));
    TEST_ASSERT_EQUAL_UINT64(0, recording_decode_next(&r, &at, RECORDING_USED)->other);
    recording_decode_free(&r);
}

/* The program may be about to abort. */
static void test_a_refusal_is_written_at_once(void)
{
    begin();
    note_alloc(0x1000, 1);
    recorder_step(false);
    const unsigned before = writes;
    events_note_bytes(RECORDING_REFUSAL, 0, 1, 0);
    recorder_step(false);
    TEST_ASSERT_GREATER_THAN_UINT(before, writes);
    const unsigned after = writes;
    note_alloc(0x2000, 1);
    recorder_step(false);
    TEST_ASSERT_EQUAL_UINT(after, writes); /* what follows is not */
    recorder_close();
}

/* ---- threads ---- */

#define THREADS 4
#define PAIRS   5000

/* Blocks change hands: each thread releases what another has allocated. */
static _Atomic uint64_t passed[THREADS];

static void *pass_on(void *argument)
{
    const size_t own = (size_t)(uintptr_t)argument;

    for (uint64_t i = 0; i < PAIRS; i++) {
        const uint64_t address = (own + 1) << 32 | i;

        note_alloc(address, 8);
        const uint64_t other = atomic_exchange(&passed[(own + i) % THREADS], address);
        if (other)
            note_free(other);
    }
    return NULL;
}

static void test_threads_keep_the_order_of_each_block(void)
{
    const struct recorder_settings settings = {.file = path, .job = ""};
    pthread_t threads[THREADS];
    size_t at = 0, frees = 0;
    uint64_t dropped = 0;

    recording_write_system.now = clock_ns;
    memset((void *)passed, 0, sizeof(passed));
    TEST_ASSERT_EQUAL_INT(0, recorder_start(&settings));
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, pass_on, (void *)i);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    recorder_stop();
    struct recording_decode r = decode();
    for (const struct recording_event *event; (event = recording_decode_next(&r, &at, 0));) {
        if (event->head.type == RECORDING_DROPPED)
            dropped += event->bytes;
        frees += event->head.type == RECORDING_FREE;
    }
    if (dropped == 0) /* each release found its block: it never came before its allocation */
        TEST_ASSERT_EQUAL_size_t(THREADS * PAIRS - THREADS, frees);
    TEST_ASSERT_EQUAL_size_t(1, recording_decode_count(&r, RECORDING_END));
    recording_decode_free(&r);
}

static void *note_once(void *argument)
{
    note_alloc((uint64_t)(uintptr_t)argument, 1);
    return NULL;
}

static void test_events_of_threads_are_in_the_order_of_time(void)
{
    pthread_t thread;
    size_t at = 0;

    begin();
    note_alloc(1, 1);
    pthread_create(&thread, NULL, note_once, (void *)(uintptr_t)2);
    pthread_join(thread, NULL);
    note_alloc(3, 1);
    recorder_close();
    struct recording_decode r = decode();
    for (uint64_t i = 1; i <= 3; i++)
        TEST_ASSERT_EQUAL_UINT64(i, recording_decode_next(&r, &at, RECORDING_ALLOC)->address);
    recording_decode_free(&r);
}

static void *overfill(void *unused)
{
    for (uint64_t i = 1; i <= EVENTS_RING + 100; i++)
        note_alloc(i, 1);
    return unused;
}

static void test_what_a_thread_noted_before_it_ended_is_not_lost(void)
{
    pthread_t thread;
    size_t at = 0;

    begin();
    pthread_create(&thread, NULL, overfill, NULL);
    pthread_join(thread, NULL);
    recorder_close();
    struct recording_decode r = decode();
    TEST_ASSERT_EQUAL_size_t(EVENTS_RING, recording_decode_count(&r, RECORDING_ALLOC));
    TEST_ASSERT_EQUAL_UINT64(100, recording_decode_next(&r, &at, RECORDING_DROPPED)->bytes);
    recording_decode_free(&r);
}

static void test_rings_of_threads_that_ended_are_used_again(void)
{
    pthread_t thread;

    begin();
    for (uintptr_t i = 1; i <= 2 * EVENTS_THREADS; i++) {
        pthread_create(&thread, NULL, note_once, (void *)i);
        pthread_join(thread, NULL);
        if (i % 32 == 0) {
            recorder_step(false);
            recorder_step(false);
        }
    }
    recorder_close();
    struct recording_decode r = decode();
    TEST_ASSERT_EQUAL_size_t(2 * EVENTS_THREADS, recording_decode_count(&r, RECORDING_ALLOC));
    TEST_ASSERT_EQUAL_size_t(0, recording_decode_count(&r, RECORDING_DROPPED));
    recording_decode_free(&r);
}

static void test_start_and_stop_and_start(void)
{
    const struct recorder_settings settings = {.file = path, .job = ""};
    char runs[RECORDING_WRITE_PATH];

    recording_write_system.now = clock_ns;
    TEST_ASSERT_FALSE(recorder_runs(runs));
    TEST_ASSERT_FALSE(recorder_sync());
    for (int i = 0; i < 2; i++) {
        TEST_ASSERT_EQUAL_INT(0, recorder_start(&settings));
        TEST_ASSERT_EQUAL_INT(-EALREADY, recorder_start(&settings));
        TEST_ASSERT_TRUE(recorder_runs(runs));
        TEST_ASSERT_EQUAL_STRING(path, runs);
        note_alloc(0x1000, 1);
        TEST_ASSERT_TRUE(recorder_sync());
        struct recording_decode r = decode();
        TEST_ASSERT_EQUAL_size_t(1, recording_decode_count(&r, RECORDING_ALLOC));
        recording_decode_free(&r);
        recorder_stop();
        TEST_ASSERT_FALSE(events_are_on());
    }
}

static bool no_thread;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *argument),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *argument),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *argument),
                          void *argument)
{
    return no_thread ? EAGAIN : __real_pthread_create(thread, attributes, run, argument);
}

static void test_without_a_thread_nothing_is_recorded(void)
{
    const struct recorder_settings settings = {.file = path, .job = ""};
    char runs[RECORDING_WRITE_PATH];

    no_thread = true;
    const int rc = recorder_start(&settings);
    no_thread = false;
    TEST_ASSERT_EQUAL_INT(-EAGAIN, rc);
    TEST_ASSERT_FALSE(events_are_on());
    TEST_ASSERT_FALSE(recorder_runs(runs));
    TEST_ASSERT_NOT_NULL(strstr(recorder_why(), "thread"));
    TEST_ASSERT_EQUAL_INT(0, recorder_start(&settings)); /* the file is closed */
    recorder_stop();
}

static void test_a_process_that_was_stopped_for_long_waits_for_the_end_all_the_same(void)
{
    const struct recorder_settings settings = {.file = path, .job = ""};
    char runs[RECORDING_WRITE_PATH];

    recording_write_system.now = clock_ns;
    TEST_ASSERT_EQUAL_INT(0, recorder_start(&settings));
    overslept = true;
    TEST_ASSERT_TRUE(recorder_sync());
    TEST_ASSERT_FALSE(overslept);
    overslept = true;
    recorder_stop();
    const bool ended = !recorder_runs(runs);
    recorder_stop(); /* also where that failed: the thread uses what the next test changes */
    TEST_ASSERT_TRUE(ended);
}

static void list(void (*add)(struct recording_event *event))
{
    struct recording_event event = {.kind = RECORDING_MALLOC, .address = 0x7000, .bytes = 7};

    add(&event);
}

static void test_blocks_that_are_live_already_come_first(void)
{
    const struct recorder_settings settings = {.file = path, .job = "", .list_live = list};
    size_t at = 0;

    TEST_ASSERT_EQUAL_INT(0, recorder_open(&settings, why));
    TEST_ASSERT_EQUAL_INT(0, recorder_step(false));
    note_free(0x7000);
    recorder_close();
    struct recording_decode r = decode();
    TEST_ASSERT_EQUAL_size_t(1, recording_decode_count(&r, RECORDING_ALLOC));
    const struct recording_event *event = recording_decode_next(&r, &at, 0);
    TEST_ASSERT_EQUAL_INT(RECORDING_ALLOC, event->head.type);
    TEST_ASSERT_EQUAL_UINT64(0, event->time_ns);
    TEST_ASSERT_EQUAL_UINT64(7, recording_decode_next(&r, &at, RECORDING_FREE)->bytes);
    recording_decode_free(&r);
}

/* A process that does nothing while it is recorded has its contexts all the same. */
static void test_what_contexts_hold_already_is_measured_at_the_beginning(void)
{
    const struct recorder_settings settings = {
        .file = path, .job = "", .list_live = list, .sample = measure_300};
    size_t at = 0;

    TEST_ASSERT_EQUAL_INT(0, recorder_open(&settings, why));
    recorder_close();
    struct recording_decode r = decode();
    const struct recording_event *event = recording_decode_next(&r, &at, RECORDING_CONTEXT);
    TEST_ASSERT_NOT_NULL(event);
    TEST_ASSERT_EQUAL_UINT64(300 - 10 - 7, event->bytes); /* less what idles, and the block */
    recording_decode_free(&r);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    UNITY_BEGIN();
    RUN_TEST(test_what_is_noted_reaches_the_file);
    RUN_TEST(test_a_release_of_an_unknown_block_is_left_out);
    RUN_TEST(test_a_full_ring_drops_events_and_counts_them);
    RUN_TEST(test_a_ring_has_room_again_once_it_was_read);
    RUN_TEST(test_a_block_is_written_after_200_ms_and_not_before);
    RUN_TEST(test_a_full_disk_ends_the_recording_and_leaves_whole_blocks);
    RUN_TEST(test_a_context_that_ends_releases_its_blocks);
    RUN_TEST(test_a_block_that_the_driver_did_not_release_stays);
    RUN_TEST(test_sums_follow_the_events);
    RUN_TEST(test_only_a_release_of_the_same_thread_is_undone_and_only_once);
    RUN_TEST(test_what_a_pool_takes_during_a_measurement_is_not_the_contexts);
    RUN_TEST(test_a_context_has_what_no_block_and_no_pool_has);
    RUN_TEST(test_a_recording_knows_nothing_of_the_one_before);
    RUN_TEST(test_a_refusal_is_written_at_once);
    RUN_TEST(test_threads_keep_the_order_of_each_block);
    RUN_TEST(test_events_of_threads_are_in_the_order_of_time);
    RUN_TEST(test_what_a_thread_noted_before_it_ended_is_not_lost);
    RUN_TEST(test_rings_of_threads_that_ended_are_used_again);
    RUN_TEST(test_start_and_stop_and_start);
    RUN_TEST(test_without_a_thread_nothing_is_recorded);
    RUN_TEST(test_a_process_that_was_stopped_for_long_waits_for_the_end_all_the_same);
    RUN_TEST(test_blocks_that_are_live_already_come_first);
    RUN_TEST(test_what_contexts_hold_already_is_measured_at_the_beginning);
    snprintf(path, sizeof(path), "%s/recording", folder);
    unlink(path);
    rmdir(folder);
    return UNITY_END();
}
