/* log: what we say, on stderr only, one whole line per call. Never fails, never blocks on a lock of ours,
 * never raises SIGPIPE.
 *
 * A program may close its standard error, and then the next file that it opens gets descriptor 2: a data
 * file, a socket. Nothing is written there. Descriptor 2 counts as standard error only if it is the file that
 * it was when this library was loaded, or a file that the program has put there since by dup2, dup3 or
 * freopen(..., stderr) (hook_stderr.c). So redirections made before exec hold, and so do those to a log at
 * run time. A file is recognized by device, inode and time of birth: ext4 gives the inode of a deleted file
 * to the next one. Otherwise the line is dropped; also where the program redirects by other means (close and
 * then dup, a system call of its own), which cannot be told from a data file.
 *
 * We keep no duplicate of the descriptor: it would hold a pipe open that the program has closed, and the
 * process that reads until its end would wait for ever.
 */
#ifndef GPUCAP_LOG_H
#define GPUCAP_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/settings/options.h"

void log_set(enum options_log level);
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The program has put another file at descriptor 2: that is its standard error now. Safe in a signal handler
 * and between vfork and exec, where it does nothing. */
void log_new_stderr(void);

/* True for the first caller of each flag. */
static inline bool log_first(atomic_flag *said)
{
    return !atomic_flag_test_and_set(said);
}

#endif
