/* nvtx: see nvtx.h. */
#include "interpose/see/nvtx.h"

#include <string.h>

#include "interpose/see/tags.h"

static _Thread_local struct {
    const void *domain;
    uint16_t tag;
} ranges[NVTX_DEPTH];
static _Thread_local int depth, beyond; /* `beyond` counts ranges that found no room */

/* Returns how many of the outer `count` ranges belong to a domain. */
static int level_of(const void *domain, int count)
{
    int level = 0;

    for (int i = 0; i < count; i++)
        level += ranges[i].domain == domain;
    return level;
}

/* The innermost range that has a name. */
static void use_innermost(void)
{
    int i = depth;

    while (i && !ranges[i - 1].tag)
        i--;
    tags_set_range(i ? ranges[i - 1].tag : 0);
}

int nvtx_push(const void *domain, uint16_t tag)
{
    const int level = level_of(domain, depth) + beyond;

    if (depth == NVTX_DEPTH) {
        beyond++;
        return level;
    }
    ranges[depth].domain = domain;
    ranges[depth++].tag = tag;
    use_innermost();
    return level;
}

int nvtx_pop(const void *domain)
{
    int i = depth;

    if (beyond) {
        beyond--;
        return level_of(domain, depth) + beyond;
    }
    while (i && ranges[i - 1].domain != domain)
        i--;
    if (!i)
        return -1;
    memmove(&ranges[i - 1], &ranges[i], (size_t)(depth - i) * sizeof(*ranges));
    depth--;
    use_innermost();
    return level_of(domain, i - 1);
}
