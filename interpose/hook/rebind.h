/* rebind: binds to our hooks those calls that the dynamic loader has bound past them.
 *
 * That concerns objects loaded by dlopen with RTLD_DEEPBIND: such an object finds the driver, and dlsym, in
 * its own dependencies before it finds us. So we also hook dlopen and dlmopen (trampoline.S). All other calls
 * of these jump to the real function with the caller's return address in place, on which RPATH and the
 * namespace depend.
 *
 *  - A file named by its path is the same for every caller: we load it ourselves, and write its slots before
 *    the program gets the handle. Its constructors have run by then. If they may have looked up the driver,
 *    the object counts as one that cannot be bound.
 *  - A file that is searched for is loaded by the real function, with the program as its caller. Its slots
 *    are written at the next look-up, dlopen, cuInit or cuGetProcAddress, and it counts as one that cannot
 *    be bound.
 *  - An object that dlmopen loads into another namespace, with a driver of its own, cannot be bound; nor can
 *    one whose slots cannot be made writable.
 *
 * Once there is an object that cannot be bound, the order of streams is no longer relied on
 * (streams_distrust), and each grant measures first (account_expect_unseen). Not detected at all: a program
 * that finds the driver's functions in files or in memory by itself, or that got libc's own dlopen or dlsym
 * from a look-up in libc.
 *
 * Owns no lock: slots are written inside dl_iterate_phdr.
 */
#ifndef GPUCAP_REBIND_H
#define GPUCAP_REBIND_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>

/* Returned to the trampoline in two registers, as it expects. */
struct trampoline_answer {
    void *address;
    uintptr_t decided; /* 0: jump to the real function */
};

/* Called by the trampoline. */
struct trampoline_answer rebind_dlopen(const char *file, int mode, const void *unused, const void *caller);
struct trampoline_answer rebind_dlmopen(Lmid_t name_space, const char *file, int mode, const void *caller);

/* True, for good, once an object was loaded whose slots may have to be written. */
extern atomic_bool rebind_pending;
void rebind_pending_now(void);

/* Writes the slots of objects that were loaded since the last call, if there are any. Calls nothing of the
 * dynamic loader that waits for another thread's dlopen. May run before sanitizers are ready. */
__attribute__((no_sanitize("address", "thread", "undefined"))) static inline void rebind_check(void)
{
    if (__builtin_expect(atomic_load_explicit(&rebind_pending, memory_order_relaxed), 0))
        rebind_pending_now();
}

#endif
