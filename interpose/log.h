/* log: what we say, on stderr only, one whole line per call. Never fails, never blocks on a lock of ours. */
#ifndef GPUCAP_LOG_H
#define GPUCAP_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

#include "options.h"

void log_set(enum options_log level);
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* True for the first caller of each flag. */
static inline bool log_first(atomic_flag *said)
{
    return !atomic_flag_test_and_set(said);
}

#endif
