/* Signals that ask a training to end. See stop.h. */
#include "harness/train/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_int asked; /* written by the handler in one thread, read by trainings in others */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a signal handler must not wait for a lock");

static void replace_unless_ignored(int number, const struct sigaction *action)
{
    struct sigaction old;

    if (sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_IGN)
        return;
    sigaction(number, action, NULL);
}

static void ask(int number)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};

    atomic_store(&asked, number);
    replace_unless_ignored(SIGINT, &plain);
    replace_unless_ignored(SIGTERM, &plain);
    plain.sa_handler = SIG_IGN;
    sigaction(SIGHUP, &plain, NULL);
}

static void watch(int number)
{
    struct sigaction ours = {.sa_handler = ask, .sa_flags = SA_RESTART};

    /* The second waits for the handler of the first, and then finds the default. */
    sigaddset(&ours.sa_mask, SIGINT);
    sigaddset(&ours.sa_mask, SIGTERM);
    sigaddset(&ours.sa_mask, SIGHUP);
    replace_unless_ignored(number, &ours);
}

void stop_watch(void)
{
    watch(SIGINT);
    watch(SIGTERM);
    watch(SIGHUP);
}

int stop_signal(void)
{
    return atomic_load(&asked);
}

const char *stop_name(void)
{
    int number = stop_signal();

    return number == SIGINT ? "SIGINT" : number == SIGHUP ? "SIGHUP" : "SIGTERM";
}
