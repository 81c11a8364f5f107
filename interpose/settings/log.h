/* log: messages, on stderr only, one whole line per call. Never fails, never blocks on a lock of ours, never
 * raises SIGPIPE.
 *
 * A program may close its standard error, and the next file that it opens (a data file, a socket) then gets
 * descriptor 2. We must not write there. Descriptor 2 counts as standard error only if it is the file that it
 * was when this library was loaded, or a file that the program has put there since by dup2, dup3 or
 * freopen(..., stderr) (hook_stderr.c). So redirections before exec work, and so do those to a log at run
 * time. A file is recognized by device, inode and time of birth, because ext4 reuses the inode of a deleted
 * file. In all other cases the line is dropped. That includes redirections by other means (close and then
 * dup, a direct system call), which look like a data file.
 *
 * We keep no duplicate of the descriptor: it would keep a pipe open after the program has closed it, and the
 * process that reads the pipe to its end would wait for ever.
 */
#ifndef GPUCAP_LOG_H
#define GPUCAP_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/settings/options.h"

void log_set(enum options_log level);
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Adopts the file that the program has put at descriptor 2 as standard error. Safe in a signal handler; does
 * nothing between vfork and exec. */
void log_new_stderr(void);

/* log_error, the first time that this place is reached. */
#define LOG_ERROR_ONCE(...)                                                                                  \
    do {                                                                                                     \
        static atomic_flag said_ = ATOMIC_FLAG_INIT;                                                         \
        if (log_first(&said_))                                                                               \
            log_error(__VA_ARGS__);                                                                          \
    } while (0)

/* Returns true for the first caller with each flag. */
static inline bool log_first(atomic_flag *said)
{
    return !atomic_flag_test_and_set(said);
}

#endif
