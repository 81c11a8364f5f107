/* Signals that ask a training to end. The handler only sets a flag; the loop looks at it between steps.
 * Without stop_watch, signals keep their default effect. */
#ifndef HARNESS_STOP_H
#define HARNESS_STOP_H

/* From now on the first SIGTERM, SIGINT or SIGHUP asks the training to end. After it SIGTERM and SIGINT end
 * the process at once; SIGHUP does not, because a terminal that closes sends several. A signal that was
 * ignored stays ignored. */
void stop_watch(void);

/* Returns the signal that asked for the end, or 0. Any thread. */
int stop_signal(void);

/* Returns its name. */
const char *stop_name(void);

#endif
