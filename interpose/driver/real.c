/* real: see real.h. */
#include "interpose/driver/real.h"

#include <stddef.h>

#include "interpose/driver/elfsym.h"

void *(*real_dlsym)(void *, const char *);
void *(*real_dlvsym)(void *, const char *, const char *);
void *(*real_dlopen)(const char *, int);
void *(*real_dlmopen)(Lmid_t, const char *, int);

/* Returns a function of libc, or of libdl before glibc 2.34. */
EARLY static void *find(const char *name)
{
    void *found = elfsym_find("libc.so", name);

    return found ? found : elfsym_find("libdl.so", name);
}

EARLY void real_find(void)
{
    if (__builtin_expect(__atomic_load_n(&real_dlmopen, __ATOMIC_ACQUIRE) != NULL, 1))
        return;
    __atomic_store_n(&real_dlsym, (__typeof__(real_dlsym))find("dlsym"), __ATOMIC_RELEASE);
    __atomic_store_n(&real_dlvsym, (__typeof__(real_dlvsym))find("dlvsym"), __ATOMIC_RELEASE);
    __atomic_store_n(&real_dlopen, (__typeof__(real_dlopen))find("dlopen"), __ATOMIC_RELEASE);
    __atomic_store_n(&real_dlmopen, (__typeof__(real_dlmopen))find("dlmopen"), __ATOMIC_RELEASE);
}

void *real_symbol(void *handle, const char *name)
{
    real_find();
    return real_dlsym(handle, name);
}
