/* resolve: which address a program gets when it looks a name up.
 *
 * dlsym and dlvsym are ours (trampoline.S); they ask resolve_look_up and, when the name is not ours, jump to
 * the real function with the caller's own return address still in place, because RTLD_NEXT and RTLD_DEFAULT
 * depend on it. A name is ours only if it stands in hooks.def (or in the NVML list) letter by letter and the
 * address that the real look-up gave belongs to the driver.
 */
#ifndef GPUCAP_RESOLVE_H
#define GPUCAP_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>

/* Two registers, as the trampoline expects. */
struct resolve_answer {
    void *address;
    uintptr_t decided; /* 0: ask the real function */
};

/* Called by the trampoline. `version` is NULL for dlsym; `caller` is where the call returns to. */
struct resolve_answer resolve_look_up(void *handle, const char *name, const char *version,
                                      const void *caller);

/* What to hand out instead of an address that the driver returned: our hook, or the same address. */
void *resolve_hook(void *address);

/* Call when the driver's own entry point `name`, which has no hook, has been handed out to the program. If we
 * do not know it, work may now go unseen, and the fence is told. */
void resolve_passed_on(const char *name);

#endif
