/* resolve: see resolve.h.
 *
 * Called before constructors, by sanitizers among others, with names that are not ours: until a name matches,
 * this must not allocate, lock or call another library.
 */
#include "interpose/hook/resolve.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "interpose/account/drivers_pools.h"
#include "interpose/account/known_kernels.h"
#include "interpose/driver/driver.h"
#include "interpose/driver/elfsym.h"
#include "interpose/driver/real.h"
#include "interpose/hook/hooks.h"
#include "interpose/pool/streams.h"

EARLY static bool may_be_ours(const char *name)
{
    return name && ((name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v'));
}

static void *ask(void *handle, const char *name, const char *version)
{
    return version ? real_dlvsym(handle, name, version) : real_dlsym(handle, name);
}

/* Returns the hook for an address that a look-up of `name` found, if it is the driver's (or NVML's) own. */
static void *hook_of(const char *name, void *address)
{
    if (name[0] == 'n')
        return hooks_for_nvml(name, address);
    return driver_bind(address) ? hooks_for(address) : address;
}

/* Looks up a name in the driver or NVML that the program has loaded for one of its libraries only. */
static void *ask_loaded(const char *name, const char *version)
{
    void *library = dlopen(name[0] == 'n' ? "libnvidia-ml.so.1" : "libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);

    return library ? ask(library, name, version) : NULL; /* the library stays open */
}

/* Looks up a name for RTLD_DEFAULT. False: an object before us defines it, so the real function applies. */
static bool look_up_default(const char *name, const char *version, void *own, const void *caller,
                            void **found)
{
    if (ask(RTLD_DEFAULT, name, version) != own)
        return false;
    *found = ask(RTLD_NEXT, name, version); /* after us */
    if (!*found && elfsym_after(caller, own, name).start_is_later)
        *found = ask_loaded(name, version);
    if (!*found)
        ask(RTLD_NEXT, name, version); /* for dlerror */
    return true;
}

/* Looks up a name for RTLD_NEXT. Returns false if the real function finds what it would without us. */
static bool look_up_next(const char *name, const char *version, void *own, const void *caller, void **found)
{
    struct elfsym_next next = elfsym_after(caller, own, name);

    if (!next.known || (next.address && next.is_earlier))
        return false;
    /* A caller behind us must not get its own definition. */
    *found = next.start_is_later ? next.address : ask(RTLD_NEXT, name, version);
    return *found || !next.start_is_later;
}

static struct trampoline_answer look_up_ours(void *handle, const char *name, const char *version, void *own,
                                             const void *caller)
{
    const struct trampoline_answer not_ours = {0};
    void *found;

    if (handle == RTLD_DEFAULT) {
        if (!look_up_default(name, version, own, caller, &found))
            return not_ours;
    } else if (handle == RTLD_NEXT) {
        if (!look_up_next(name, version, own, caller, &found))
            return not_ours;
    } else {
        found = ask(handle, name, version);
        if (!found)
            return not_ours;
        if (found == own) /* the handle of the whole program, in which we come first */
            found = ask(RTLD_NEXT, name, version);
    }
    /* Without us the program would have found nothing, and dlerror says so already. With a version the real
     * function does not find our name either, and sets its own error. */
    if (!found)
        return (struct trampoline_answer){NULL, version == NULL};
    found = hook_of(name, found);
    dlerror(); /* our own failed look-ups must not show in the program's dlerror */
    return (struct trampoline_answer){found, 1};
}

/* Returns true for a name such as "cuMem..." in none of our lists. "cublas..." and "cudnn..." do not count:
 * they reach the driver through entry points of their own. */
static bool is_unknown(const char *name)
{
    return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z' && !hooks_quiet(name);
}

/* Looks up a name that looks like a driver entry point and is in none of our lists. It counts only if the
 * program gets an address in the driver: many programs try names that do not exist. */
static struct trampoline_answer look_up_unknown(void *handle, const char *name, const char *version)
{
    const struct trampoline_answer not_ours = {0};

    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT) {
        /* The result depends on the caller, so we must jump to the real function. */
        if (elfsym_defines("libcuda.so", name))
            resolve_passed_on(name);
        return not_ours;
    }
    void *found = ask(handle, name, version);
    if (!found)
        return not_ours;
    if (driver_bind(found) && driver_owns(found))
        resolve_passed_on(name);
    dlerror(); /* driver_bind has looked up names as well */
    return (struct trampoline_answer){found, 1};
}

EARLY struct trampoline_answer resolve_look_up(void *handle, const char *name, const char *version,
                                               const void *caller)
{
    void *own;

    real_find();
    rebind_check();
    if (!may_be_ours(name))
        return (struct trampoline_answer){0};
    own = name[0] == 'c' ? hooks_find(name) : hooks_find_nvml(name);
    if (!own)
        return is_unknown(name) ? look_up_unknown(handle, name, version) : (struct trampoline_answer){0};
    return look_up_ours(handle, name, version, own, caller);
}

void resolve_passed_on(const char *name)
{
    if (is_unknown(name)) {
        streams_unknown(name);
        known_kernels_stop();
        drivers_pools_ask_always();
    }
}
