/* How functions of the harness end: each status is also the exit status of `train`. The message is printed
 * where the failure is seen, so a caller only passes the status on. Nothing here may write to stdout, which
 * belongs to the result line. */
#ifndef HARNESS_STATUS_H
#define HARNESS_STATUS_H

#include <stdbool.h>

enum status {
    STATUS_OK = 0,
    STATUS_FAILED = 1,    /* bad data, no device, or any other failure */
    STATUS_USAGE = 2,     /* a bad option, or options that do not go together */
    STATUS_NO_MEMORY = 3, /* the device (or the host) has not enough memory */
};

/* Prints "train: ..." to stderr and returns the status, so that a failure is one line at its place. */
enum status status_fail(enum status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* While a thread tries whether something fits, STATUS_NO_MEMORY is an answer and comes without a message. */
void status_expect_no_memory(bool expected);

#endif
