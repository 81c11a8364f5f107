/* The public API: see gpucap.h. */
#include "gpucap.h"

#include "hooks.h"

EXPORT const char *gpucap_version(void)
{
    return GPUCAP_VERSION;
}
