/* NVTX ranges. See profile_nvtx.h. */
#include "harness/profile/profile_nvtx.h"

#if defined(__has_include) && __has_include(<nvtx3/nvToolsExt.h>)

#include <nvtx3/nvToolsExt.h>

bool profile_nvtx_is_there(void)
{
    return true;
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

bool profile_nvtx_is_there(void)
{
    return false;
}

void profile_nvtx_push(const char *name)
{
    (void)name;
}

void profile_nvtx_pop(void) {}

#endif
