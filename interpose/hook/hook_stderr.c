/* Hooks on the C library's functions that replace standard error: they call the real function, then
 * log_new_stderr. They may run in a signal handler and between vfork and exec, so the real functions are
 * looked up when we are loaded; a call before that looks them up itself. Owns no lock. */
#include "interpose/hook/hooks.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "interpose/driver/real.h"
#include "interpose/settings/log.h"

EXPORT int dup2(int from, int to);
EXPORT int dup3(int from, int to, int flags);
EXPORT FILE *freopen(const char *path, const char *mode, FILE *stream);
EXPORT FILE *freopen64(const char *path, const char *mode, FILE *stream);

enum { DUP2, DUP3, FREOPEN, FREOPEN64, FUNCTIONS };
static const char *const names[FUNCTIONS] = {"dup2", "dup3", "freopen", "freopen64"};
static _Atomic(void *) found[FUNCTIONS];

static void *real(int function)
{
    void *address = atomic_load_explicit(&found[function], memory_order_relaxed);

    if (!address) {
        address = real_symbol(RTLD_NEXT, names[function]);
        atomic_store_explicit(&found[function], address, memory_order_relaxed);
    }
    return address;
}

__attribute__((constructor)) static void find_all(void)
{
    for (int i = 0; i < FUNCTIONS; i++)
        real(i);
}

/* Checks the result `to` of a call that made it a duplicate of `from`. */
static int duplicated(int from, int to)
{
    if (to == STDERR_FILENO && from != to)
        log_new_stderr();
    return to;
}

int dup2(int from, int to)
{
    return duplicated(from, ((int (*)(int, int))real(DUP2))(from, to));
}

int dup3(int from, int to, int flags)
{
    return duplicated(from, ((int (*)(int, int, int))real(DUP3))(from, to, flags));
}

static FILE *reopened(FILE *result)
{
    if (result && result == stderr && fileno(result) == STDERR_FILENO)
        log_new_stderr();
    return result;
}

FILE *freopen(const char *path, const char *mode, FILE *stream)
{
    return reopened(((FILE * (*)(const char *, const char *, FILE *)) real(FREOPEN))(path, mode, stream));
}

FILE *freopen64(const char *path, const char *mode, FILE *stream)
{
    return reopened(((FILE * (*)(const char *, const char *, FILE *)) real(FREOPEN64))(path, mode, stream));
}
