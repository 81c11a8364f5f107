/* log_fake: see log_fake.h. */
#include "log_fake.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "interpose/settings/log.h"

char log_fake_errors[LOG_FAKE_BYTES], log_fake_infos[LOG_FAKE_BYTES];

static void keep(char lines[LOG_FAKE_BYTES], const char *format, va_list arguments)
{
    const size_t used = strlen(lines);
    char line[1024];

    vsnprintf(line, sizeof(line), format, arguments);
    snprintf(lines + used, LOG_FAKE_BYTES - used, "%s\n", line);
}

void log_error(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    keep(log_fake_errors, format, arguments);
    va_end(arguments);
}

void log_info(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    keep(log_fake_infos, format, arguments);
    va_end(arguments);
}

void log_fake_clear(void)
{
    log_fake_errors[0] = log_fake_infos[0] = '\0';
}
