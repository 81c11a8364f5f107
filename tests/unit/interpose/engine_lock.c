/* lock: what the debug presets notice, and that a thread is not cancelled while it holds a lock. Built with
 * the checks in every preset. */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "interpose/base/lock.h"
#include "unity.h"

#ifndef GPUCAP_LOCK_CHECK
#error "this test is about the checks"
#endif

static struct lock low = LOCK_INITIALIZER(LOCK_POOL), high = LOCK_INITIALIZER(LOCK_FENCE);
static struct lock other = LOCK_INITIALIZER(LOCK_POOL);
static sem_t inside, go_on;

void setUp(void)
{
    sem_init(&inside, 0, 0);
    sem_init(&go_on, 0, 0);
}

void tearDown(void) {}

bool process_lock_at_exit(pthread_mutex_t *mutex);

bool process_lock_at_exit(pthread_mutex_t *mutex)
{
    return pthread_mutex_trylock(mutex) == 0;
}

/* True if the function ends its process by abort(). */
static bool stops(void (*run)(void))
{
    int status = 0;
    const pid_t child = fork();

    if (child == 0) {
        const struct rlimit none = {0};

        setrlimit(RLIMIT_CORE, &none);
        fclose(stderr);
        run();
        _exit(0);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void in_order(void)
{
    lock_take(&low);
    lock_take(&high);
    lock_assert_held(&low);
    lock_release(&high);
    lock_release(&low);
    lock_take(&high);
    lock_release(&high);
}

static void against_the_order(void)
{
    lock_take(&high);
    lock_take(&low);
}

static void two_of_a_rank(void)
{
    lock_take(&low);
    lock_take(&other);
}

static void without_the_lock(void)
{
    lock_assert_held(&low);
}

static void released_twice(void)
{
    lock_take(&low);
    lock_release(&low);
    lock_release(&low);
}

static void test_the_order_of_ranks_is_checked(void)
{
    TEST_ASSERT_FALSE(stops(in_order));
    TEST_ASSERT_TRUE(stops(against_the_order));
    TEST_ASSERT_TRUE(stops(two_of_a_rank));
}

static void test_a_lock_that_is_not_held_is_noticed(void)
{
    TEST_ASSERT_TRUE(stops(without_the_lock));
    TEST_ASSERT_TRUE(stops(released_twice));
}

/* Cancelled while it holds two locks: it dies when it has released both. */
static void *hold(void *reached)
{
    lock_take(&low);
    lock_take(&high);
    sem_post(&inside);
    sem_wait(&go_on); /* a place where a thread can be cancelled */
    lock_release(&high);
    pthread_testcancel();
    lock_release(&low);
    *(bool *)reached = true;
    pthread_testcancel();
    *(bool *)reached = false;
    return NULL;
}

static void test_a_thread_is_not_cancelled_while_it_holds_a_lock(void)
{
    bool reached = false;
    pthread_t thread;
    void *result;

    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, hold, &reached));
    sem_wait(&inside);
    pthread_cancel(thread);
    sem_post(&go_on);
    TEST_ASSERT_EQUAL_INT(0, pthread_join(thread, &result));
    TEST_ASSERT_EQUAL_PTR(PTHREAD_CANCELED, result);
    TEST_ASSERT_TRUE(reached);
    lock_take(&low);
    lock_take(&high);
    lock_release(&high);
    lock_release(&low);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_the_order_of_ranks_is_checked);
    RUN_TEST(test_a_lock_that_is_not_held_is_noticed);
    RUN_TEST(test_a_thread_is_not_cancelled_while_it_holds_a_lock);
    return UNITY_END();
}
