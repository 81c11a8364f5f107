/* NVTX ranges, for Nsight Systems and others. Without the toolkit's header, functions do nothing; without a
 * tool, they cost a few instructions. */
#ifndef HARNESS_PROFILE_NVTX_H
#define HARNESS_PROFILE_NVTX_H

/* Looks for the tool. Call before there are threads: the first call in NVIDIA's header is not thread-safe. */
void profile_nvtx_open(void);

/* Begin and end a range of this thread; ranges lie within each other. */
void profile_nvtx_push(const char *name);
void profile_nvtx_pop(void);

#endif
