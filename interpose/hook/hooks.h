/* hooks: our functions in front of the driver's, generated from hooks.def. No state, no lock. */
#ifndef GPUCAP_HOOKS_H
#define GPUCAP_HOOKS_H

#include "interpose/driver/driver.h"

#define EXPORT __attribute__((visibility("default")))

/* Each hook has the driver's own name and exactly the type of its row. */
#define HOOK(symbol, type) EXPORT extern __typeof__(*(type)0) symbol;
#define CALL(symbol, type)
#include "interpose/driver/hooks.def"
#undef HOOK
#undef CALL

/* The stream that an entry point means: NULL is another one for those of the per-thread default stream. */
#define STREAM(stream)      (stream)
#define STREAM_ptsz(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

/* Our hook of an exact name, or NULL. */
void *hooks_find(const char *name);

/* The same for NVML. */
void *hooks_find_nvml(const char *name);
/* Returns what to hand out for NVML's `name`, which a real look-up found at `address`. */
void *hooks_for_nvml(const char *name, void *address);

/* True for an entry point that we know to submit no work of its own. */
bool hooks_quiet(const char *name);

/* True for the address of one of our hooks. */
bool hooks_own(const void *address);

/* Our hook in front of the driver's entry point at `address`, or `address` itself. */
void *hooks_for(void *address);

#endif
