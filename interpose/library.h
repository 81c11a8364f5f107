/* library: the mode of libgpucap.so in this process, from the first CUDA call to fork and exit. */
#ifndef GPUCAP_LIBRARY_H
#define GPUCAP_LIBRARY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/settings/options.h"

enum library_mode {
    LIBRARY_PASS = 0, /* no limit and no pool, or after exit, or in a forked child: all calls go straight to
                         the driver */
    LIBRARY_ON,       /* limits are enforced and memory is pooled */
    LIBRARY_REFUSE,   /* limits were asked for but cannot be enforced: CUDA does not start */
};

/* Points to the mode, which is negative until the options are read. Once CUDA has started, the mode is in
 * a page that the kernel clears on fork, so that a child reads LIBRARY_PASS. */
extern _Atomic(atomic_int *) library_state;
enum library_mode library_begin(void);

/* Returns the mode. The first call reads the options. */
static inline enum library_mode library_mode(void)
{
    const int state = atomic_load_explicit(atomic_load_explicit(&library_state, memory_order_acquire),
                                           memory_order_acquire);

    return __builtin_expect(state >= 0, 1) ? (enum library_mode)state : library_begin();
}

/* True if any card may be limited. Set together with the mode. */
extern bool library_limited;

/* Returns the options in force. */
const struct options *library_options(void);

/* Switches to LIBRARY_REFUSE because the limits cannot be enforced. */
void library_refuse(void);

/* Call when the program has initialized CUDA. From then on a forked child passes all calls through, because
 * it cannot use CUDA. Returns true once, if the mode is LIBRARY_ON. */
bool library_cuda_started(void);

#endif
