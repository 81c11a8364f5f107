/* hooks: our functions in front of the driver's, generated from hooks.def. No state, no lock. */
#ifndef GPUCAP_HOOKS_H
#define GPUCAP_HOOKS_H

#include "interpose/driver/driver.h"

#define EXPORT __attribute__((visibility("default")))

/* Each hook has the driver's own name and the exact type in its row. */
#define HOOK(symbol, type) EXPORT extern __typeof__(*(type)0) symbol;
#define CALL(symbol, type)
#include "interpose/driver/hooks.def"

/* What an entry point means by `stream`: for the _ptsz ones NULL is the per-thread default stream. */
#define STREAM(stream)      (stream)
#define STREAM_ptsz(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

/* Adds SUFFIX to a name. For the .inc files, which define entry points twice: SUFFIX empty, and _ptsz. */
#define NAMED_PASTE(name, suffix)  name##suffix
#define NAMED_EXPAND(name, suffix) NAMED_PASTE(name, suffix)
#define NAMED(name)                NAMED_EXPAND(name, SUFFIX)

/* Returns our hook of exactly this name, or NULL. */
void *hooks_find(const char *name);

/* The same for NVML. */
void *hooks_find_nvml(const char *name);
/* Returns what to hand out for NVML's `name`, which a real look-up found at `address`. */
void *hooks_for_nvml(const char *name, void *address);

/* Returns true for an entry point that is known to submit no work. */
bool hooks_quiet(const char *name);

/* Returns true for the address of one of our hooks. */
bool hooks_own(const void *address);

/* Returns our hook in front of the driver's entry point at `address`, or `address` itself. */
void *hooks_for(void *address);

#endif
