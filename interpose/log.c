/* log: see log.h. */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024

static atomic_int threshold = OPTIONS_LOG_ERROR;

void log_set(enum options_log level)
{
    atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

static void say(enum options_log level, const char *format, va_list arguments)
{
    char line[LINE_MAX_BYTES] = "gpucap: ";
    int saved = errno;
    const size_t prefix = strlen(line);

    if ((int)level > atomic_load_explicit(&threshold, memory_order_relaxed))
        return;
    int length = vsnprintf(line + prefix, sizeof line - prefix - 1, format, arguments);
    if (length < 0)
        return;
    size_t end = prefix + (size_t)length;
    if (end > sizeof line - 2)
        end = sizeof line - 2;
    line[end++] = '\n';
    /* One write, so that lines of several processes do not mix. A lost message is no reason to fail. */
    ssize_t ignored = write(STDERR_FILENO, line, end);
    (void)ignored;
    errno = saved;
}

void log_error(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(OPTIONS_LOG_ERROR, format, arguments);
    va_end(arguments);
}

void log_info(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(OPTIONS_LOG_INFO, format, arguments);
    va_end(arguments);
}
