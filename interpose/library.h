/* library: the life of libgpucap.so in a process: what mode it is in, from the first CUDA call to fork and
 * exit. */
#ifndef GPUCAP_LIBRARY_H
#define GPUCAP_LIBRARY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/settings/options.h"

enum library_mode {
    LIBRARY_PASS = 0, /* nothing is limited or pooled here, or we are past exit or in a forked child: the
                         program as without us */
    LIBRARY_ON,       /* limits hold, memory is pooled */
    LIBRARY_REFUSE,   /* limits were asked for and cannot hold: CUDA does not start */
};

/* The mode, once the options have been read; negative before. From the start of CUDA it stands where every
 * copy of the process reads 0: LIBRARY_PASS. */
extern _Atomic(atomic_int *) library_state;
enum library_mode library_begin(void);

/* The mode; the first call reads the options. */
static inline enum library_mode library_mode(void)
{
    const int state = atomic_load_explicit(atomic_load_explicit(&library_state, memory_order_acquire),
                                           memory_order_acquire);

    return __builtin_expect(state >= 0, 1) ? (enum library_mode)state : library_begin();
}

/* True if any card may be limited; set with the mode. */
extern bool library_limited;

/* The options in force. */
const struct options *library_options(void);

/* The limits cannot hold: CUDA does not start. */
void library_refuse(void);

/* The program has initialized CUDA: after a fork the child cannot use it. */
void library_cuda_started(void);

#endif
