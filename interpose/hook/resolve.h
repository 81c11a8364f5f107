/* resolve: which address a program gets when it looks up a name.
 *
 * dlsym and dlvsym are ours (trampoline.S). They call resolve_look_up and, if the name is not ours, jump to
 * the real function with the caller's return address in place, because RTLD_NEXT and RTLD_DEFAULT depend on
 * it. A name is ours only if it is exactly in hooks.def (or in the NVML list) and the real look-up finds it
 * in the driver. Owns no lock.
 */
#ifndef GPUCAP_RESOLVE_H
#define GPUCAP_RESOLVE_H

#include "interpose/hook/rebind.h"

/* Called by the trampoline. `version` is NULL for dlsym; `caller` is the return address of the call. */
struct trampoline_answer resolve_look_up(void *handle, const char *name, const char *version,
                                         const void *caller);

/* Call when the program has got the driver's own entry point `name`, which has no hook. If we do not know it,
 * work may go unseen from now on: calls streams_unknown. */
void resolve_passed_on(const char *name);

#endif
