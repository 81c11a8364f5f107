/* known_kernels: kernels that need no more stack than any context has from its beginning, so that their
 * launches need not ask how much they need. For other kernels each launch asks the driver. In a program with
 * thousands of kernels its answer takes 80 to 150 ns (H200), because what it reads has left the processor's
 * caches.
 *
 * A kernel is known by its handle, in 4 bytes. Owns no lock.
 */
#ifndef GPUCAP_KNOWN_KERNELS_H
#define GPUCAP_KNOWN_KERNELS_H

#include <stdbool.h>

#include "interpose/driver/driver.h"

/* Returns true if `kernel` was added and is not forgotten: the oldest ones may be. */
bool known_kernels_has(CUfunction kernel);
/* Call when the driver says that `kernel` needs no more than ROUTE_STACK bytes of stack per thread. */
void known_kernels_add(CUfunction kernel);
/* Forgets all kernels. Call before the driver may end one, because another one may get its handle. */
void known_kernels_forget(void);
/* Forgets all kernels and knows none from now on: a kernel may end unseen. */
void known_kernels_stop(void);

#endif
