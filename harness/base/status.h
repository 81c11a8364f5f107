/* The results of the harness's functions. Each status is also an exit status of `train`. The function that
 * detects a failure prints the message; callers only pass the status on. Never writes to stdout, which is for
 * the result line. */
#ifndef HARNESS_STATUS_H
#define HARNESS_STATUS_H

#include <stdbool.h>

enum status {
    STATUS_OK = 0,
    STATUS_FAILED = 1,     /* bad data, no device, and everything else */
    STATUS_USAGE = 2,      /* a bad option, or options that exclude each other */
    STATUS_NO_MEMORY = 3,  /* out of device memory or of host memory */
    STATUS_NOT_FINITE = 4, /* a loss or gradient is infinite or not a number, and --on-nan=stop */
    STATUS_STOPPED = 5,    /* a signal ended the training (stop.h), after a checkpoint */
    STATUS_UNSAVED = 6,    /* the last checkpoint could not be written */
};

/* Prints "train: MESSAGE" to stderr and returns `status`, so that a failure is one statement: return
 * status_fail(...). */
enum status status_fail(enum status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Manage the terminal line that progress rewrites. After status_line_open, the next message first ends that
 * line. status_line_end ends it now; status_line_forget records that it was overwritten. Any thread. */
void status_line_open(void);
void status_line_end(void);
void status_line_forget(void);

/* Switches the message of STATUS_NO_MEMORY off or on for the calling thread. The search for a batch size
 * runs out of memory on purpose. */
void status_expect_no_memory(bool expected);

#endif
