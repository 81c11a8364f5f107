/* Failure messages: one format for all of the harness. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>

enum status status_fail(enum status status, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    fputs("train: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    return status;
}
