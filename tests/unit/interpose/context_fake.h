/* context_fake: a driver, and all that decides (route.h), for tests of the hooks on contexts and on what
 * makes a context grow. It answers as `fake` says and writes down in `got` what it was asked. */
#ifndef GPUCAP_CONTEXT_FAKE_H
#define GPUCAP_CONTEXT_FAKE_H

#include "interpose/library.h"
#include "interpose/route.h"

#define CARD  2
#define FIRST ((CUcontext)0x100)
#define GREEN ((CUgreenCtx)0x200)

extern atomic_int fake_mode; /* of the library */

extern struct fake {
    CUresult refuse, made; /* the answers of route_grow_... and of route_context_made */
    CUresult result;       /* the driver's */
    bool active;           /* the primary context exists */
    bool no_primary;       /* and cannot be retained */
    CUcontext current;
    bool inactive, captures;
    int local_bytes;  /* stack of a function; -1: it is a kernel */
    int kernel_bytes; /* the same of a CUkernel */
    bool one_way;     /* the driver's call makes or ends the primary context */
} fake;

extern struct got {
    int calls, begins, ends, made, failed, end_begins, end_aborts, ended, undone, resets, forgotten;
    uint64_t grow, stack;
    CUdevice ordinal;
    CUcontext context, captured, grown;
    int aborts, waits, wait_ends, distrusts, retains, pushed;
    bool waited_well;
    int wrong; /* a call that should not be: no assertion may end a test while a hook holds its lock */
} got;

void context_fake_setup(void);

#endif
