/* NVTX ranges. See profile_nvtx.h. */
#include "harness/profile/profile_nvtx.h"

#if defined(__has_include) && __has_include(<nvtx3/nvToolsExt.h>)

#include <stddef.h>

#include <nvtx3/nvToolsExt.h>

void profile_nvtx_open(void)
{
    nvtxInitialize(NULL);
}

void profile_nvtx_push(const char *name)
{
    nvtxRangePushA(name);
}

void profile_nvtx_pop(void)
{
    nvtxRangePop();
}

#else

void profile_nvtx_open(void) {}

void profile_nvtx_push(const char *name)
{
    (void)name;
}

void profile_nvtx_pop(void) {}

#endif
