/* Signals that ask a training to end. Only flags are set in the handler; the loop looks at them between
 * steps. For programs: nothing here is called unless stop_watch was. */
#ifndef HARNESS_STOP_H
#define HARNESS_STOP_H

/* From now on the first SIGTERM or SIGINT asks the training to end, and the second ends the process at once.
 * A signal that was ignored stays so. */
void stop_watch(void);

/* Returns the signal that asked for the end, or 0. Any thread. */
int stop_signal(void);

#endif
