/* Signals that ask a training to end. See stop.h. */
#include "harness/train/stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t asked;

static void ask(int number)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};

    asked = number;
    sigaction(SIGINT, &plain, NULL);
    sigaction(SIGTERM, &plain, NULL);
}

static void watch(int number)
{
    struct sigaction old;
    struct sigaction ours = {.sa_handler = ask, .sa_flags = SA_RESTART};

    /* The second waits for the handler of the first, and then finds the default. */
    sigaddset(&ours.sa_mask, SIGINT);
    sigaddset(&ours.sa_mask, SIGTERM);
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_IGN)
        return;
    sigaction(number, &ours, NULL);
}

void stop_watch(void)
{
    watch(SIGINT);
    watch(SIGTERM);
}

int stop_signal(void)
{
    return asked;
}
