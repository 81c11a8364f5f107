/* ipc_thread: the thread of shared blocks starts once, is woken, and has ended when the process exits. The
 * handlers for exit and fork are called by the test. */
#include "interpose/share/ipc_thread.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unity.h>

#include "interpose/base/process.h"
#include "log_fake.h"

static void (*exit_handler)(void), (*prepare)(void), (*parent)(void), (*child)(void);
static atomic_int attended, lists, ended; /* ended: the thread has left its last call */
static bool no_atfork, is_copy;
static int registered, forks_begun, forks_ended;

int __wrap_atexit(void (*function)(void));
int __wrap_atexit(void (*function)(void))
{
    exit_handler = function;
    registered++;
    return 0;
}

int __wrap_pthread_atfork(void (*before)(void), void (*after)(void), void (*in_child)(void));
int __wrap_pthread_atfork(void (*before)(void), void (*after)(void), void (*in_child)(void))
{
    prepare = before;
    parent = after;
    child = in_child;
    return no_atfork;
}

/* The thread has ended when it was joined, whether or not it took long. */
int __real_pthread_timedjoin_np(pthread_t thread, void **result, const struct timespec *until);
int __wrap_pthread_timedjoin_np(pthread_t thread, void **result, const struct timespec *until);
int __wrap_pthread_timedjoin_np(pthread_t thread, void **result, const struct timespec *until)
{
    (void)until;
    const int rc = pthread_join(thread, result);
    atomic_store(&ended, rc == 0);
    return rc;
}

static atomic_int poll_fails; /* the error of the next call */
static atomic_bool is_closed; /* at the next call the thread's own descriptor is */

int __real_poll(struct pollfd *list, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *list, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *list, nfds_t count, int timeout)
{
    const int rc = __real_poll(list, count, timeout), error = atomic_exchange(&poll_fails, 0);

    if (atomic_exchange(&is_closed, false))
        list[0].revents = POLLNVAL;
    if (!error)
        return rc;
    list[0].revents = 0;
    errno = error;
    return -1;
}

bool process_is_copy(void)
{
    return is_copy;
}

struct timespec process_exit_patience(void)
{
    return (struct timespec){0};
}

bool process_lock_at_exit(pthread_mutex_t *lock)
{
    return pthread_mutex_lock(lock) == 0;
}

static nfds_t list_nothing(struct pollfd *list)
{
    (void)list;
    atomic_fetch_add(&lists, 1);
    return 0;
}

static int attend(const struct pollfd *list, nfds_t listed)
{
    (void)list, (void)listed;
    atomic_fetch_add(&attended, 1);
    return -1;
}

static void before_fork(void)
{
    forks_begun++;
}

static void after_fork(bool in_child)
{
    forks_ended += in_child ? 10 : 1;
}

static const struct ipc_work work = {
    .room = 4, .list = list_nothing, .attend = attend, .before_fork = before_fork, .after_fork = after_fork};

void setUp(void) {}

void tearDown(void) {}

/* Waits until the thread has attended to more than `before`; for ever if it does not, as a test that hangs.
 */
static void await_attention(int before)
{
    while (atomic_load(&attended) <= before)
        sched_yield();
}

static void test_handlers_that_cannot_be_registered_are_told(void)
{
    no_atfork = true;
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ipc_thread_prepare(&work));
    no_atfork = false;
    TEST_ASSERT_EQUAL_INT(0, ipc_thread_prepare(&work));
    registered = 0;
    TEST_ASSERT_EQUAL_INT(0, ipc_thread_prepare(&work));
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, registered, "once");
}

static void test_the_thread_is_woken_as_often_as_asked(void)
{
    TEST_ASSERT_EQUAL_INT(0, ipc_thread_wake()); /* starts it */
    for (int i = 0; i < 3; i++) {
        const int before = atomic_load(&attended);

        TEST_ASSERT_EQUAL_INT(0, ipc_thread_wake());
        await_attention(before);
    }
}

static void test_the_thread_survives_a_poll_that_fails(void)
{
    static const int errors[] = {EINTR, ENOMEM, EINVAL};

    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
        const int before = atomic_load(&attended);

        atomic_store(&poll_fails, errors[i]);
        TEST_ASSERT_EQUAL_INT(0, ipc_thread_wake());
        await_attention(before);
        TEST_ASSERT_EQUAL_INT(0, atomic_load(&poll_fails));
        TEST_ASSERT_EQUAL(i > 0, strstr(log_fake_errors, "memory at the moment") != NULL);
    }
}

static void test_a_thread_whose_descriptor_was_closed_is_started_again(void)
{
    const int before = atomic_load(&attended);

    atomic_store(&is_closed, true);
    TEST_ASSERT_EQUAL_INT(0, ipc_thread_wake());
    await_attention(before); /* to the other descriptors, which may be closed too */
    for (int i = 0; i < 2; i++) {
        const int last = atomic_load(&attended);

        while (atomic_load(&attended) <= last) { /* the first may come before the old one has ended */
            TEST_ASSERT_EQUAL_INT(0, ipc_thread_wake());
            sched_yield();
        }
    }
}

static void test_a_fork_holds_all_locks_of_sharing(void)
{
    prepare();
    TEST_ASSERT_EQUAL_INT(1, forks_begun);
    parent();
    TEST_ASSERT_EQUAL_INT(1, forks_ended);
    const int before = atomic_load(&attended);
    TEST_ASSERT_EQUAL_INT(0, ipc_thread_wake()); /* the lock is free again */
    await_attention(before);
}

/* Runs last: from here on there is no thread. */
static void test_at_exit_the_thread_ends_first(void)
{
    no_atfork = true; /* registered before: not asked again */
    TEST_ASSERT_EQUAL_INT(0, ipc_thread_prepare(&work));
    is_copy = true;
    exit_handler();
    TEST_ASSERT_FALSE(atomic_load(&ended));
    is_copy = false;
    exit_handler();
    TEST_ASSERT_TRUE_MESSAGE(atomic_load(&ended), "it makes no driver call any more");
    TEST_ASSERT_EQUAL_INT(-ESHUTDOWN, ipc_thread_wake());
    TEST_ASSERT_EQUAL_INT(-ESHUTDOWN, ipc_thread_prepare(&work));
    exit_handler();
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_handlers_that_cannot_be_registered_are_told);
    RUN_TEST(test_the_thread_is_woken_as_often_as_asked);
    RUN_TEST(test_the_thread_survives_a_poll_that_fails);
    RUN_TEST(test_a_thread_whose_descriptor_was_closed_is_started_again);
    RUN_TEST(test_a_fork_holds_all_locks_of_sharing);
    RUN_TEST(test_at_exit_the_thread_ends_first);
    return UNITY_END();
}
