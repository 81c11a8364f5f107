/* symbols: tells which entry points of a driver library allocate memory, and which of them gpucap counts.
 *
 * The hooked names come from interpose/driver/hooks.def, the one list of them. Pure. Owns no lock. */
#ifndef GPUCAP_SYMBOLS_H
#define GPUCAP_SYMBOLS_H

#include <stdbool.h>

enum symbols_kind {
    SYMBOLS_OTHER,       /* allocates no memory */
    SYMBOLS_HOOKED,      /* counted */
    SYMBOLS_HOST,        /* allocates host memory, which the cap does not limit */
    SYMBOLS_NOT_COUNTED, /* allocates device memory and has no hook */
};

enum symbols_kind symbols_classify(const char *name);

/* Returns true if a library that defines this name would come between a program and gpucap. */
bool symbols_conflict(const char *name);

#endif
