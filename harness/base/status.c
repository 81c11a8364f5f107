/* Failure messages: one format for all of the harness. */
#include "harness/base/status.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local bool no_memory_expected;

void status_expect_no_memory(bool expected)
{
    no_memory_expected = expected;
}

enum status status_fail(enum status status, const char *format, ...)
{
    va_list list;

    if (no_memory_expected && status == STATUS_NO_MEMORY)
        return status;
    va_start(list, format);
    fputs("train: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    return status;
}
