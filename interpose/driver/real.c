/* real: see real.h. */
#include "interpose/driver/real.h"

#include <stddef.h>

#include "interpose/driver/elfsym.h"

void *(*real_dlsym)(void *, const char *);
void *(*real_dlvsym)(void *, const char *, const char *);

EARLY void *real_libc(const char *name)
{
    void *found = elfsym_find("libc.so", name);

    /* Before glibc 2.34 these functions are in libdl. */
    return found ? found : elfsym_find("libdl.so", name);
}

EARLY void real_find(void)
{
    if (__builtin_expect(!__atomic_load_n(&real_dlvsym, __ATOMIC_ACQUIRE), 0)) {
        __atomic_store_n(&real_dlsym, (void *(*)(void *, const char *))real_libc("dlsym"), __ATOMIC_RELEASE);
        __atomic_store_n(&real_dlvsym, (void *(*)(void *, const char *, const char *))real_libc("dlvsym"),
                         __ATOMIC_RELEASE);
    }
}

void *real_symbol(void *handle, const char *name)
{
    real_find();
    return real_dlsym(handle, name);
}
