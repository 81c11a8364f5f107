/* Failure messages: one format for all of the harness. */
#include "harness/base/status.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static _Thread_local bool no_memory_expected;
static atomic_bool line_open;

void status_line_open(void)
{
    atomic_store(&line_open, true);
}

void status_line_end(void)
{
    if (atomic_exchange(&line_open, false))
        fputc('\n', stderr);
}

void status_line_forget(void)
{
    atomic_store(&line_open, false);
}

void status_expect_no_memory(bool expected)
{
    no_memory_expected = expected;
}

enum status status_fail(enum status status, const char *format, ...)
{
    char text[4608]; /* a path and what is wrong with it */
    va_list list;

    if (no_memory_expected && status == STATUS_NO_MEMORY)
        return status;
    status_line_end();
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    /* One call, and so one write: replicas fail at the same time, in threads and in processes. */
    fprintf(stderr, "train: %s\n", text);
    return status;
}
