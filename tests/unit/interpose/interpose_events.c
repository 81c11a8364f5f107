/* events: the rings of the threads: what is noted, lost, read and given back. System calls are the test's
 * own, so that nothing sleeps. */
#include "interpose/see/events.h"

#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/see/tags.h"

_Thread_local uint16_t tags_current;

static struct fake {
    bool no_specific; /* pthread_setspecific fails */
    int waits, wakes;
    struct timespec span; /* of the last wait */
} fake;
static struct events_reader readers[EVENTS_THREADS];

long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    va_list arguments;

    if (number == SYS_gettid)
        return gettid();
    TEST_ASSERT_EQUAL_INT(SYS_futex, number);
    va_start(arguments, number);
    (void)va_arg(arguments, void *);
    const int operation = va_arg(arguments, int);
    (void)va_arg(arguments, int);
    const struct timespec *span = va_arg(arguments, const struct timespec *);
    va_end(arguments);
    fake.waits += operation == FUTEX_WAIT_PRIVATE;
    fake.wakes += operation == FUTEX_WAKE_PRIVATE;
    if (operation == FUTEX_WAIT_PRIVATE)
        fake.span = *span;
    return 0;
}

int __real_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value)
{
    return fake.no_specific ? 12 : __real_pthread_setspecific(key, value);
}

static void note(uint64_t address)
{
    events_note(&(struct recording_event){.head.type = RECORDING_ALLOC, .address = address});
}

/* Reads all rings to their end. Returns how many had anything. */
static size_t read_all(void)
{
    const size_t count = events_begin(readers);

    for (size_t i = 0; i < count; i++)
        readers[i].at = readers[i].end;
    events_end(readers, count);
    return count;
}

static void *note_in_thread(void *argument)
{
    tags_current = 5;
    note((uint64_t)(uintptr_t)argument);
    return (void *)(uintptr_t)gettid();
}

static uint32_t run_thread(uint64_t address)
{
    pthread_t thread;
    void *number;

    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, note_in_thread, (void *)(uintptr_t)address));
    pthread_join(thread, &number);
    return (uint32_t)(uintptr_t)number;
}

void setUp(void)
{
    fake = (struct fake){0};
    read_all();
    read_all();
    events_lost();
    events_sleep(1); /* the bell is still */
    fake = (struct fake){0};
    events_switch(true);
}

void tearDown(void) {}

static void test_a_thread_without_a_ring_loses_its_events_and_that_is_counted(void)
{
    fake.no_specific = true;
    for (int i = 0; i < EVENTS_THREADS + 10; i++)
        note(1);
    TEST_ASSERT_EQUAL_size_t(0, events_begin(readers));
    TEST_ASSERT_EQUAL_UINT64(EVENTS_THREADS + 10, events_lost());
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, events_lost(), "told once");
    fake.no_specific = false;
    note(2); /* none of the rings was used up */
    TEST_ASSERT_EQUAL_size_t(1, read_all());
    TEST_ASSERT_EQUAL_UINT64(0, events_lost());
}

static void test_an_event_has_its_threads_number_tag_and_time(void)
{
    uintptr_t low, high;

    tags_current = 3;
    note(0x10);
    note(0x20);
    TEST_ASSERT_EQUAL_size_t(1, events_begin(readers));
    TEST_ASSERT_EQUAL_UINT64(2, readers[0].end - readers[0].at);
    TEST_ASSERT_EQUAL_UINT32(gettid(), readers[0].thread);
    const struct recording_event *first = &readers[0].slots[readers[0].at % EVENTS_RING];
    const struct recording_event *second = &readers[0].slots[(readers[0].at + 1) % EVENTS_RING];
    TEST_ASSERT_EQUAL_UINT64(0x10, first->address);
    TEST_ASSERT_EQUAL_UINT64(0x20, second->address);
    TEST_ASSERT_EQUAL_INT(sizeof(*first), first->head.size);
    TEST_ASSERT_EQUAL_UINT32(gettid(), first->thread);
    TEST_ASSERT_EQUAL_INT(3, first->tag);
    TEST_ASSERT_GREATER_THAN_UINT64(0, first->time_ns);
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(first->time_ns, second->time_ns);
    tags_current = 0;
    readers[0].at++; /* the second is read later */
    events_end(readers, 1);
    TEST_ASSERT_EQUAL_size_t(1, events_begin(readers));
    TEST_ASSERT_EQUAL_UINT64(1, readers[0].end - readers[0].at);
    events_stack(&low, &high);
    TEST_ASSERT_TRUE(low < (uintptr_t)&low && (uintptr_t)&low < high);
}

static void test_a_full_ring_drops_events_and_that_is_told_once(void)
{
    for (int i = 0; i < EVENTS_RING + 3; i++)
        note((uint64_t)i + 1);
    TEST_ASSERT_EQUAL_size_t(1, events_begin(readers));
    TEST_ASSERT_EQUAL_UINT64(EVENTS_RING, readers[0].end - readers[0].at);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(1, readers[0].slots[readers[0].at % EVENTS_RING].address,
                                     "the oldest stays");
    TEST_ASSERT_EQUAL_UINT64(3, readers[0].dropped);
    readers[0].at += 2;
    events_end(readers, 1);
    note(1);
    note(1);
    note(1); /* there is room for two of these */
    TEST_ASSERT_EQUAL_size_t(1, events_begin(readers));
    TEST_ASSERT_EQUAL_UINT64(1, readers[0].dropped);
    TEST_ASSERT_EQUAL_UINT64(EVENTS_RING, readers[0].end - readers[0].at);
    TEST_ASSERT_EQUAL_size_t(1, read_all());
    TEST_ASSERT_EQUAL_size_t(0, events_begin(readers));
}

static void test_the_reader_is_woken_when_a_ring_is_half_full(void)
{
    TEST_ASSERT_EQUAL_size_t(0, events_begin(readers));
    while (fake.wakes == 0) {
        note(1);
        TEST_ASSERT_EQUAL_size_t(1, events_begin(readers));
        TEST_ASSERT_LESS_OR_EQUAL_UINT64(EVENTS_RING / 2, readers[0].end - readers[0].at);
    }
    events_wake();
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, fake.wakes, "it has been woken already");
    events_sleep(1);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, fake.waits, "it does not sleep first");
    events_sleep(2345);
    TEST_ASSERT_EQUAL_INT(1, fake.waits);
    TEST_ASSERT_EQUAL_INT(2, fake.span.tv_sec);
    TEST_ASSERT_EQUAL_INT(345000000, fake.span.tv_nsec);
    events_wake();
    TEST_ASSERT_EQUAL_INT(2, fake.wakes);
}

static void test_an_ended_threads_events_are_read_before_its_ring_is_used_again(void)
{
    const uint32_t first = run_thread(0x11), second = run_thread(0x12);

    TEST_ASSERT_EQUAL_size_t(2, events_begin(readers));
    TEST_ASSERT_NOT_EQUAL_UINT32(readers[0].ring, readers[1].ring);
    TEST_ASSERT_EQUAL_UINT32(first, readers[0].thread);
    TEST_ASSERT_EQUAL_UINT32(second, readers[1].thread);
    TEST_ASSERT_EQUAL_INT(5, readers[0].slots[readers[0].at % EVENTS_RING].tag);
    const uint32_t ring = readers[0].ring;
    readers[0].named = readers[1].named = true;
    readers[0].at = readers[0].end;
    readers[1].at = readers[1].end;
    events_end(readers, 2);
    TEST_ASSERT_EQUAL_size_t(0, events_begin(readers)); /* which gives both rings up */
    run_thread(0x13);
    TEST_ASSERT_EQUAL_size_t(1, events_begin(readers));
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(ring, readers[0].ring, "the lowest free one");
    TEST_ASSERT_FALSE_MESSAGE(readers[0].named, "another thread has it now");
    TEST_ASSERT_EQUAL_UINT64(0x13, readers[0].slots[readers[0].at % EVENTS_RING].address);
}

static sem_t is_full, is_seen;

static void *fill_and_drop(void *unused)
{
    for (int i = 0; i < EVENTS_RING; i++)
        note(0x21);
    sem_post(&is_full);
    sem_wait(&is_seen);
    for (int i = 0; i < 3; i++)
        note(0x22); /* while the reader reads: there is no room yet */
    return unused;
}

static void test_what_an_ended_thread_dropped_at_last_is_told(void)
{
    pthread_t thread;

    sem_init(&is_full, 0, 0);
    sem_init(&is_seen, 0, 0);
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, fill_and_drop, NULL));
    sem_wait(&is_full);
    TEST_ASSERT_EQUAL_size_t(1, events_begin(readers));
    TEST_ASSERT_EQUAL_UINT64(0, readers[0].dropped);
    sem_post(&is_seen);
    pthread_join(thread, NULL);
    readers[0].at = readers[0].end;
    events_end(readers, 1);
    TEST_ASSERT_EQUAL_size_t(1, events_begin(readers));
    TEST_ASSERT_EQUAL_UINT64(readers[0].end, readers[0].at);
    TEST_ASSERT_EQUAL_UINT64(3, readers[0].dropped);
    events_end(readers, 1);
    TEST_ASSERT_EQUAL_size_t(0, events_begin(readers));
}

static void test_a_forked_child_begins_without_rings(void)
{
    note(1);
    events_after_fork();
    TEST_ASSERT_FALSE(events_are_on());
    TEST_ASSERT_EQUAL_size_t(0, events_begin(readers));
    events_switch(true);
    note(0x77);
    TEST_ASSERT_EQUAL_size_t(1, events_begin(readers));
    TEST_ASSERT_EQUAL_UINT64(1, readers[0].end - readers[0].at);
    TEST_ASSERT_EQUAL_UINT64(0x77, readers[0].slots[readers[0].at % EVENTS_RING].address);
    TEST_ASSERT_EQUAL_UINT32(gettid(), readers[0].thread);
}

static void test_nothing_is_noted_while_nothing_is_recorded(void)
{
    events_switch(false);
    events_note_bytes(RECORDING_GROW, 1, 2, 3);
    events_note_free(RECORDING_MALLOC, 1, NULL);
    events_note_gone(1, 2, 3);
    events_note_kept(RECORDING_MALLOC, 1);
    TEST_ASSERT_EQUAL_size_t(0, events_begin(readers));
    events_switch(true);
    events_note_bytes(RECORDING_GROW, 1, 2, 3);
    TEST_ASSERT_EQUAL_size_t(1, events_begin(readers));
    const struct recording_event *event = &readers[0].slots[readers[0].at % EVENTS_RING];
    TEST_ASSERT_EQUAL_INT(1, event->device);
    TEST_ASSERT_EQUAL_UINT64(2, event->bytes);
    TEST_ASSERT_EQUAL_UINT64(3, event->other);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_thread_without_a_ring_loses_its_events_and_that_is_counted); /* has none yet */
    RUN_TEST(test_an_event_has_its_threads_number_tag_and_time);
    RUN_TEST(test_a_full_ring_drops_events_and_that_is_told_once);
    RUN_TEST(test_the_reader_is_woken_when_a_ring_is_half_full);
    RUN_TEST(test_an_ended_threads_events_are_read_before_its_ring_is_used_again);
    RUN_TEST(test_what_an_ended_thread_dropped_at_last_is_told);
    RUN_TEST(test_a_forked_child_begins_without_rings);
    RUN_TEST(test_nothing_is_noted_while_nothing_is_recorded);
    return UNITY_END();
}
