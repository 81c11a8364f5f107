/* engine_disturb: interrupts threads at arbitrary instructions. See engine_disturb.h. */
#include "tests/unit/interpose/engine_disturb.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#include "tests/unit/interpose/engine_fake.h"

#define THREADS_MAX 64
#define PAUSE_NS    60000  /* at most so long between two signals */
#define SLEEP_NS    300000 /* and so long a thread is held up */

static struct {
    pthread_mutex_t lock; /* held while a signal is sent, so that the thread does not end meanwhile */
    pthread_t threads[THREADS_MAX];
    unsigned count;
    bool ending;
} disturbed = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_t disturber;
static bool on;

static void nap(uint64_t most)
{
    static _Thread_local struct fake_random random;

    if (!random.state)
        random.state = (uint64_t)time(NULL) * 2654435761U + (uintptr_t)&random;
    const struct timespec time = {.tv_nsec = (long)fake_below(&random, most)};
    nanosleep(&time, NULL);
}

/* Three of four times the thread only lets others go first. */
static void interrupt(int signal)
{
    static _Thread_local unsigned times;
    const int error = errno;

    (void)signal;
    if (++times % 4 == 0)
        nap(SLEEP_NS);
    else
        sched_yield();
    errno = error;
}

static void *disturb(void *unused)
{
    bool ending = false;

    for (unsigned i = 0; !ending; i++) {
        pthread_mutex_lock(&disturbed.lock);
        ending = disturbed.ending;
        if (disturbed.count)
            pthread_kill(disturbed.threads[i * 7 % disturbed.count], SIGUSR2);
        pthread_mutex_unlock(&disturbed.lock);
        nap(PAUSE_NS);
    }
    return unused;
}

void disturb_me(void)
{
    if (!on)
        return;
    pthread_mutex_lock(&disturbed.lock);
    CHECK(disturbed.count < THREADS_MAX);
    disturbed.threads[disturbed.count++] = pthread_self();
    pthread_mutex_unlock(&disturbed.lock);
}

void disturb_me_no_more(void)
{
    unsigned i = 0;

    if (!on)
        return;
    pthread_mutex_lock(&disturbed.lock);
    while (!pthread_equal(disturbed.threads[i], pthread_self()))
        i++;
    disturbed.threads[i] = disturbed.threads[--disturbed.count];
    pthread_mutex_unlock(&disturbed.lock);
}

void disturb_start(bool really)
{
    const struct sigaction action = {.sa_handler = interrupt, .sa_flags = SA_RESTART};

    on = really;
    if (!on)
        return;
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    CHECK(pthread_create(&disturber, NULL, disturb, NULL) == 0);
}

void disturb_stop(void)
{
    if (!on)
        return;
    pthread_mutex_lock(&disturbed.lock);
    disturbed.ending = true;
    pthread_mutex_unlock(&disturbed.lock);
    pthread_join(disturber, NULL);
}
