/* symbols: which entry points of a driver library hand out memory, and which of them gpucap counts.
 *
 * The hooked names come from interpose/driver/hooks.def, the one list of them. Pure. Owns no lock.
 */
#ifndef GPUCAP_SYMBOLS_H
#define GPUCAP_SYMBOLS_H

#include <stdbool.h>

enum symbols_kind {
    SYMBOLS_OTHER,       /* hands out no memory */
    SYMBOLS_HOOKED,      /* counted */
    SYMBOLS_HOST,        /* hands out memory of the host, which the cap does not concern */
    SYMBOLS_NOT_COUNTED, /* hands out device memory without a hook */
};

enum symbols_kind symbols_classify(const char *name);

/* Whether a library that defines this name would get between a program and gpucap. */
bool symbols_conflict(const char *name);

#endif
