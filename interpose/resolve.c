/* resolve: see resolve.h. Owns no lock; its table of addresses is filled once by driver_bind's caller.
 *
 * Called before constructors, by sanitizers among others, with names that are not ours: until a name matches,
 * nothing here may allocate, lock or call another library.
 */
#include "resolve.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "driver.h"
#include "elfsym.h"
#include "hooks.h"
#include "nvml.h"

#define EARLY __attribute__((no_sanitize("address", "thread", "undefined")))

typedef void *(*dlsym_function)(void *, const char *);
typedef void *(*dlvsym_function)(void *, const char *, const char *);

/* The trampoline jumps through these. */
dlsym_function resolve_real_dlsym;
dlvsym_function resolve_real_dlvsym;

EARLY static void *libc_symbol(const char *name)
{
    void *found = elfsym_find("libc.so", name);

    /* Before glibc 2.34 they lived in a library of their own. */
    return found ? found : elfsym_find("libdl.so", name);
}

EARLY static void find_real(void)
{
    if (__builtin_expect(!__atomic_load_n(&resolve_real_dlvsym, __ATOMIC_ACQUIRE), 0)) {
        __atomic_store_n(&resolve_real_dlsym, (dlsym_function)libc_symbol("dlsym"), __ATOMIC_RELEASE);
        __atomic_store_n(&resolve_real_dlvsym, (dlvsym_function)libc_symbol("dlvsym"), __ATOMIC_RELEASE);
    }
}

EARLY static bool may_be_ours(const char *name)
{
    return name && ((name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v'));
}

static void *ask(void *handle, const char *name, const char *version)
{
    return version ? resolve_real_dlvsym(handle, name, version) : resolve_real_dlsym(handle, name);
}

/* The hook of an address that a look-up of `name` found, if it is the driver's (or NVML's) own. */
static void *hook_of(const char *name, void *address)
{
    if (name[0] == 'n')
        return nvml_hook(name, address);
    return driver_bind(address) ? resolve_hook(address) : address;
}

static struct resolve_answer look_up_ours(void *handle, const char *name, const char *version, void *own)
{
    void *found;

    if (handle == RTLD_NEXT || handle == RTLD_DEFAULT) {
        found = ask(RTLD_NEXT, name, version); /* after us, in the order of the whole program */
    } else {
        found = ask(handle, name, version);
        if (!found)
            return (struct resolve_answer){0};
        if (found == own) /* the program's own handle: we stand first in it */
            found = ask(RTLD_NEXT, name, version);
    }
    /* Not found after us: without us the program would have got nothing, and dlerror says so already. */
    return (struct resolve_answer){found ? hook_of(name, found) : NULL, 1};
}

EARLY struct resolve_answer resolve_look_up(void *handle, const char *name, const char *version)
{
    void *own;

    find_real();
    if (!may_be_ours(name) || !(own = name[0] == 'c' ? hooks_find(name) : nvml_hook_named(name)))
        return (struct resolve_answer){0};
    return look_up_ours(handle, name, version, own);
}

void *resolve_real(void *handle, const char *name)
{
    find_real();
    return resolve_real_dlsym(handle, name);
}

void *resolve_hook(void *address)
{
    return hooks_for(address);
}
