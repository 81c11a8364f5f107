/* log: see log.h. */
#include "interpose/settings/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpose/base/quote.h"
#include "interpose/base/withhold.h"

#define LINE_MAX_BYTES 1024

static atomic_int threshold = OPTIONS_LOG_ERROR;

/* ---- which file is the program's standard error ---- */

/* Identifies a file. `born` is 0 if the file system does not know it. */
struct identity {
    unsigned long long device, inode, born;
};

/* The three words are written one by one, because this may happen in a signal handler. A reader between two
 * writers gets a mixture that matches no file. inode 0: the program has no standard error. */
static struct {
    atomic_ullong device, inode, born;
} standard_error;
static atomic_int owner; /* process that the words above belong to; 0: not filled in yet */

/* Tells which file descriptor 2 is. */
static bool identify(struct identity *identity)
{
    struct stat plain;
    struct statx more;

    if (fstat(STDERR_FILENO, &plain))
        return false;
    *identity = (struct identity){.device = plain.st_dev, .inode = plain.st_ino};
    if (statx(STDERR_FILENO, "", AT_EMPTY_PATH, STATX_BTIME, &more) == 0 && (more.stx_mask & STATX_BTIME))
        identity->born = (unsigned long long)more.stx_btime.tv_sec * 1000000000ULL + more.stx_btime.tv_nsec;
    return true;
}

static void remember(void)
{
    struct identity now = {0};

    identify(&now);
    atomic_store(&standard_error.device, now.device);
    atomic_store(&standard_error.inode, now.inode);
    atomic_store(&standard_error.born, now.born);
}

static void after_fork_child(void)
{
    atomic_store(&owner, (int)getpid());
}

/* Runs at load, or at the first line logged for a library that was loaded before us and uses CUDA in its
 * constructor. */
__attribute__((constructor)) static void begin(void)
{
    const int saved = errno;
    int unset = 0;

    if (atomic_compare_exchange_strong(&owner, &unset, (int)getpid())) {
        remember();
        pthread_atfork(NULL, NULL, after_fork_child);
    }
    errno = saved;
}

void log_new_stderr(void)
{
    const int saved = errno;

    begin();
    /* A child between vfork and exec shares our memory but has its own descriptors. */
    if (atomic_load(&owner) == (int)getpid())
        remember();
    errno = saved;
}

static bool has_standard_error(void)
{
    struct identity now;

    begin();
    return identify(&now) && now.inode && now.inode == atomic_load(&standard_error.inode) &&
           now.device == atomic_load(&standard_error.device) && now.born == atomic_load(&standard_error.born);
}

/* ---- lines ---- */

void log_set(enum options_log level)
{
    atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

/* Writes a line in one call, so that lines of several processes do not mix. A failed write is ignored. */
static void write_quietly(const char *line, size_t length)
{
    struct withheld signals;

    withhold_begin(&signals);
    withhold_end(&signals, write(STDERR_FILENO, line, length) < 0 ? errno : 0);
}

static void say(enum options_log level, const char *format, va_list arguments)
{
    char line[LINE_MAX_BYTES] = "gpucap: ";
    int saved = errno;
    const size_t prefix = strlen(line);

    if ((int)level > atomic_load_explicit(&threshold, memory_order_relaxed))
        return;
    int length = vsnprintf(line + prefix, sizeof(line) - prefix - 1, format, arguments);
    if (length < 0)
        return;
    size_t end = prefix + (size_t)length;
    if (end > sizeof(line) - 2)
        end = sizeof(line) - 2;
    quote_flatten(line); /* paths and values may have any character */
    line[end++] = '\n';
    if (has_standard_error())
        write_quietly(line, end);
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
