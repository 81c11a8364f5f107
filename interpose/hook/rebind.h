/* rebind: objects whose calls the dynamic loader has bound past our hooks are bound to them after all.
 *
 * That happens to what dlopen loads with RTLD_DEEPBIND: such an object finds the driver, and dlsym, in its
 * own dependencies before it finds us. dlopen and dlmopen are therefore ours too (trampoline.S). All calls
 * but those go on to the real function with the caller's own return address, on which RPATH and the namespace
 * depend.
 *
 *  - A file that is named by its path does not depend on the caller: we load it ourselves, and its slots are
 *    written before the program gets the handle. Its constructors have run by then. If they may have looked
 * the driver up, it is taken for an object that cannot be bound to us.
 *  - A file that is searched for is loaded by the real function, called by the program. Its slots are written
 * at the next look-up, dlopen, cuInit or cuGetProcAddress, and it is taken for one that cannot be bound to
 * us.
 *  - An object that dlmopen loads into another namespace, with a driver of its own, cannot be bound to us;
 * nor can one whose slots cannot be made writable.
 *
 * What cannot be bound: from then on no order of work is relied upon (streams_distrust), and each grant asks
 * the driver what is in use (account_expect_unseen). Not seen at all: a program that finds the driver's
 * functions in the files or in memory by itself, or that has libc's own dlopen or dlsym from a look-up in
 * libc.
 *
 * Owns no lock: slots are written inside dl_iterate_phdr.
 */
#ifndef GPUCAP_REBIND_H
#define GPUCAP_REBIND_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/hook/resolve.h"

/* Called by the trampoline, as resolve_look_up is. */
struct resolve_answer rebind_dlopen(const char *file, int mode, const void *unused, const void *caller);
struct resolve_answer rebind_dlmopen(Lmid_t name_space, const char *file, int mode, const void *caller);

/* An object is, or was, loaded whose slots may have to be written; for good. */
extern atomic_bool rebind_pending;
void rebind_pending_now(void);

/* Writes the slots of objects that were loaded since, if there are any. Calls nothing of the dynamic loader
 * that waits for another thread's dlopen. Look-ups come here before sanitizers are ready. */
__attribute__((no_sanitize("address", "thread", "undefined"))) static inline void rebind_check(void)
{
    if (__builtin_expect(atomic_load_explicit(&rebind_pending, memory_order_relaxed), 0))
        rebind_pending_now();
}

#endif
