/* NVTX ranges, for Nsight Systems and others. Without the toolkit's header, functions do nothing. The header
 * looks for a tool on the first call and costs a few instructions without one. */
#ifndef HARNESS_PROFILE_NVTX_H
#define HARNESS_PROFILE_NVTX_H

#include <stdbool.h>

/* Returns true if ranges were built in. */
bool profile_nvtx_is_there(void);

/* Begin and end a range of this thread; ranges lie within each other. */
void profile_nvtx_push(const char *name);
void profile_nvtx_pop(void);

#endif
