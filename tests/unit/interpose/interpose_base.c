/* base: threads of our own, locks in exit handlers, and how a copy of the process is told from it. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/base/clock.h"
#include "interpose/base/files.h"
#include "interpose/base/lock.h"
#include "interpose/base/process.h"
#include "interpose/base/quote.h"
#include "interpose/base/thread.h"

static struct fake {
    bool no_thread, is_held, no_wipe;
    bool detached;   /* the last thread */
    sigset_t inside; /* signals that it had blocked */
    pid_t pid;       /* what getpid returns; 0: the truth */
} fake;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *argument),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *argument),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *argument),
                          void *argument)
{
    int state = PTHREAD_CREATE_JOINABLE;

    if (attributes)
        pthread_attr_getdetachstate(attributes, &state);
    fake.detached = state == PTHREAD_CREATE_DETACHED;
    pthread_sigmask(SIG_SETMASK, NULL, &fake.inside);
    return fake.no_thread ? EAGAIN : __real_pthread_create(thread, attributes, run, argument);
}

int __real_pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until);
int __wrap_pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until);
int __wrap_pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until)
{
    return fake.is_held ? ETIMEDOUT : __real_pthread_mutex_timedlock(mutex, until);
}

int __real_madvise(void *address, size_t length, int advice);
int __wrap_madvise(void *address, size_t length, int advice);
int __wrap_madvise(void *address, size_t length, int advice)
{
    if (fake.no_wipe && advice == MADV_WIPEONFORK)
        return -1;
    return __real_madvise(address, length, advice);
}

pid_t __real_getpid(void);
pid_t __wrap_getpid(void);
pid_t __wrap_getpid(void)
{
    return fake.pid ? fake.pid : __real_getpid();
}

static void *add_one(void *argument)
{
    return (char *)argument + 1;
}

void setUp(void)
{
    fake = (struct fake){0};
}

void tearDown(void) {}

static void expect_no_signal_blocked(void)
{
    sigset_t now;

    pthread_sigmask(SIG_SETMASK, NULL, &now);
    TEST_ASSERT_FALSE_MESSAGE(sigismember(&now, SIGUSR1) || sigismember(&now, SIGINT),
                              "the program's thread blocks what it did before");
}

static void test_a_thread_of_ours_blocks_all_signals(void)
{
    pthread_t thread;
    char place[2];
    void *result;

    TEST_ASSERT_EQUAL_INT(0, thread_start_joinable(&thread, add_one, place));
    TEST_ASSERT_TRUE(sigismember(&fake.inside, SIGUSR1) && sigismember(&fake.inside, SIGINT));
    TEST_ASSERT_FALSE(fake.detached);
    expect_no_signal_blocked();
    TEST_ASSERT_EQUAL_INT(0, pthread_join(thread, &result));
    TEST_ASSERT_EQUAL_PTR(place + 1, result);
    TEST_ASSERT_TRUE(thread_start(add_one, place));
    TEST_ASSERT_TRUE_MESSAGE(fake.detached, "nothing is left of it when it ends");
    TEST_ASSERT_TRUE(sigismember(&fake.inside, SIGUSR1));
    expect_no_signal_blocked();
}

static void test_a_thread_that_cannot_be_started_is_told(void)
{
    pthread_t thread;

    fake.no_thread = true;
    TEST_ASSERT_EQUAL_INT(-EAGAIN, thread_start_joinable(&thread, add_one, NULL));
    expect_no_signal_blocked();
    TEST_ASSERT_FALSE(thread_start(add_one, NULL));
    expect_no_signal_blocked();
}

static int cancel_state(void)
{
    int state, unused;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_setcancelstate(state, &unused);
    return state;
}

static void test_at_exit_a_lock_that_stays_held_is_not_taken(void)
{
    struct lock lock;

    lock_init(&lock, LOCK_POOL);
    fake.is_held = true;
    TEST_ASSERT_FALSE(lock_take_at_exit(&lock));
    TEST_ASSERT_EQUAL_INT_MESSAGE(PTHREAD_CANCEL_ENABLE, cancel_state(), "the thread can be cancelled again");
    TEST_ASSERT_FALSE(process_lock_at_exit(&lock.mutex));
    fake.is_held = false;
    TEST_ASSERT_TRUE(lock_take_at_exit(&lock));
    TEST_ASSERT_EQUAL_INT(PTHREAD_CANCEL_DISABLE, cancel_state());
    TEST_ASSERT_EQUAL_INT(EBUSY, pthread_mutex_trylock(&lock.mutex));
    lock_release(&lock);
    TEST_ASSERT_EQUAL_INT(PTHREAD_CANCEL_ENABLE, cancel_state());
    TEST_ASSERT_TRUE(process_lock_at_exit(&lock.mutex));
    pthread_mutex_unlock(&lock.mutex);
    lock_destroy(&lock);
}

/* Returns what process_is_copy says in a child, which gets the number `pid`; 0: its own. */
static int copy_in_child(pid_t pid, const atomic_int *mark)
{
    int status = 0;
    const pid_t child = fork();

    if (child == 0) {
        fake.pid = pid;
        _exit((process_is_copy() ? 1 : 0) + (mark && atomic_load(mark) ? 2 : 0));
    }
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
    TEST_ASSERT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_a_copy_of_the_process_knows_that_it_is_one(void)
{
    TEST_ASSERT_FALSE_MESSAGE(process_is_copy(), "CUDA has not started");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, copy_in_child(0, NULL), "nor in the parent");
    fake.no_wipe = true; /* an old kernel: only the number tells */
    TEST_ASSERT_NULL(process_mark());
    TEST_ASSERT_FALSE(process_is_copy());
    TEST_ASSERT_EQUAL_INT(1, copy_in_child(0, NULL));
    fake.no_wipe = false;
    atomic_int *mark = process_mark();
    TEST_ASSERT_NOT_NULL(mark);
    TEST_ASSERT_EQUAL_INT(0, atomic_load(mark));
    atomic_store(mark, 5);
    TEST_ASSERT_FALSE(process_is_copy());
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, copy_in_child(0, mark), "and the caller's word reads 0");
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, copy_in_child(getpid(), mark), "by a number of another namespace too");
    TEST_ASSERT_EQUAL_INT(5, atomic_load(mark));
    fake.pid = 99999999; /* a child that shares this memory */
    TEST_ASSERT_TRUE(process_is_copy());
}

static int64_t nanoseconds(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void test_a_deadline_lies_as_far_ahead_as_asked(void)
{
    static const uint64_t ahead[] = {0, 1, 999999999, 1000000000, 61000000001};

    for (size_t i = 0; i < sizeof(ahead) / sizeof(*ahead); i++) {
        struct timespec before, after;

        clock_gettime(CLOCK_REALTIME, &before);
        const struct timespec until = clock_after(ahead[i]);
        clock_gettime(CLOCK_REALTIME, &after);
        TEST_ASSERT_GREATER_OR_EQUAL_INT64(nanoseconds(before) + (int64_t)ahead[i], nanoseconds(until));
        TEST_ASSERT_LESS_OR_EQUAL_INT64(nanoseconds(after) + (int64_t)ahead[i], nanoseconds(until));
        TEST_ASSERT_LESS_THAN_INT64(1000000000, until.tv_nsec);
    }
}

/* Without a writer its opening would wait. */
static void test_a_pipe_is_not_read_as_a_file(void)
{
    char path[] = "/tmp/gpucap-base-XXXXXX", text[8];

    TEST_ASSERT_GREATER_OR_EQUAL_INT(0, close(mkstemp(path)));
    unlink(path);
    TEST_ASSERT_EQUAL_INT(0, mkfifo(path, 0600));
    const ssize_t got = files_read(path, text, sizeof(text));
    unlink(path);
    TEST_ASSERT_EQUAL_INT(-EINVAL, got);
}

/* A word must come out of a shell as it went in. */
static void test_words_are_quoted_where_a_shell_would_change_them(void)
{
    static const char *const words[][2] = {
        {"plain/Az09_.%+=:,@-", "plain/Az09_.%+=:,@-"},
        {"\xc3\xa4", "\xc3\xa4"},
        {"", "''"},
        {"a b", "'a b'"},
        {"it's", "'it'\\''s'"},
        {"a\\b", "'a\\b'"},
        {"\x1b[2J\nx", "$'\\033[2J\\012x'"},
        {"it's\\\n\x7f", "$'it\\047s\\134\\012\\177'"},
        {"\n\n\n\n\n\n\n\n\n\n", "??????????"},
        {"\n too long for this, so it is flattened", "? too long for this, so it is fla"}};
    char text[34];

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        TEST_ASSERT_EQUAL_STRING(words[i][1], quote_word(words[i][0], text, sizeof(text)));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_thread_of_ours_blocks_all_signals);
    RUN_TEST(test_a_thread_that_cannot_be_started_is_told);
    RUN_TEST(test_at_exit_a_lock_that_stays_held_is_not_taken);
    RUN_TEST(test_a_copy_of_the_process_knows_that_it_is_one);
    RUN_TEST(test_a_deadline_lies_as_far_ahead_as_asked);
    RUN_TEST(test_a_pipe_is_not_read_as_a_file);
    RUN_TEST(test_words_are_quoted_where_a_shell_would_change_them);
    return UNITY_END();
}
