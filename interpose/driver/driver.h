/* driver: the real CUDA driver, as a table of its entry points. Everything that touches the driver goes
 * through it, so that a test can put functions of its own there.
 *
 * Must never load the driver into a program that does not use it: binding happens when the program itself
 * first reaches for an entry point, by a look-up or by calling one of our hooks. Owns no lock.
 */
#ifndef GPUCAP_DRIVER_H
#define GPUCAP_DRIVER_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL /* cuda.h then declares every ABI under its own name */
#endif
#include <cudaTypedefs.h>
#include <stdatomic.h>
#include <stdbool.h>

struct driver_table {
#define HOOK(symbol, type) type symbol;
#define CALL(symbol, type) type symbol;
#include "interpose/driver/hooks.def"
#undef HOOK
#undef CALL
};

extern atomic_bool driver_bound;
extern struct driver_table driver_entries; /* valid once bound */

/* Binds if that has not happened, and returns the table; without a driver, one whose entries all say
 * CUDA_ERROR_NOT_INITIALIZED. */
struct driver_table *driver_bind_now(void);

static inline struct driver_table *driver_get(void)
{
    return __builtin_expect(atomic_load_explicit(&driver_bound, memory_order_acquire), 1) ? &driver_entries
                                                                                          : driver_bind_now();
}
#define driver (*driver_get())

/* A request that no card can meet: the driver answers "out of memory" at once (measured), unless something
 * else is wrong: no context, one that has ended, a capture, an error that sticks. */
#define NEVER_FITS ((size_t)1 << 50)

/* Binds to the libcuda that defines `symbol` (an address that a look-up of the program gave), if it is one.
 */
bool driver_bind(const void *symbol);

/* Returns true if the address lies in the library that we are bound to, or in another driver. */
bool driver_owns(const void *address);

/* Tests: these are the driver's entry points now. Entries left NULL answer CUDA_ERROR_NOT_SUPPORTED. */
void driver_use(const struct driver_table *table);

/* A child after fork: somebody else may have been binding. */
void driver_after_fork(void);

#endif
