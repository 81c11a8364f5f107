/* The public API: see gpucap.h. Only passes calls on. */
#include "interpose/gpucap.h"

#include <string.h>

#include "interpose/account/device.h"
#include "interpose/hook/hooks.h"
#include "interpose/library.h"
#include "interpose/pool/pools.h"
#include "interpose/recorded.h"
#include "interpose/route.h"
#include "interpose/see/tags.h"

EXPORT const char *gpucap_version(void)
{
    return GPUCAP_VERSION;
}

struct gathered {
    int ordinal;
    bool any;
    struct gpucap_stats stats;
};

static void gather(struct pool *pool, void *argument)
{
    struct gathered *g = argument;

    if (pool->ordinal != g->ordinal)
        return;
    pool_poll(pool);
    const struct pool_stats s = pool_stats(pool);
    g->any = true;
    g->stats.live += s.live;
    g->stats.live_count += s.live_count;
    g->stats.cached += s.cached;
    g->stats.pending += s.pending;
    g->stats.physical += s.physical;
    g->stats.peak_live += s.peak_live;
    g->stats.peak_physical += s.peak_physical;
    g->stats.largest_free = s.largest > g->stats.largest_free ? s.largest : g->stats.largest_free;
    g->stats.fragmented += s.stranded;
    g->stats.hits += s.hits;
    g->stats.stitches += s.stitches;
    g->stats.stitched_chunks += s.stitched_chunks;
    g->stats.grows += s.grows;
    g->stats.waits += s.waits;
    g->stats.joins += s.joins;
    g->stats.trims += s.trims;
    g->stats.driver_calls += s.driver_calls;
    g->stats.room_ns += s.room_ns;
    g->stats.wait_ns += s.wait_ns;
}

EXPORT int gpucap_stats(int device, struct gpucap_stats *stats, size_t size)
{
    struct gathered g = {.ordinal = device, .stats = {.limit = UINT64_MAX}};
    struct device *limited = library_mode() == LIBRARY_ON ? device_get(device) : NULL;

    if (!stats || library_mode() != LIBRARY_ON)
        return -1;
    pools_each(gather, &g);
    if (limited) {
        const struct account_view view = account_view(&limited->account);

        g.stats.limit = view.limit;
        g.stats.used = view.used;
    }
    memcpy(stats, &g.stats, size < sizeof(g.stats) ? size : sizeof(g.stats));
    return g.any || limited ? 0 : -1;
}

static void look_for(struct pool *pool, void *argument)
{
    struct gathered *g = argument;

    g->any = g->any || pool->ordinal == g->ordinal;
}

EXPORT int gpucap_trim(int device, uint64_t bytes, uint64_t *given)
{
    struct gathered g = {.ordinal = device};

    if (library_mode() == LIBRARY_ON)
        pools_each(look_for, &g);
    if (!g.any)
        return -1;
    const uint64_t trimmed = pools_trim(device, bytes);
    if (given)
        *given = trimmed;
    return 0;
}

EXPORT int gpucap_set_limit(int device, uint64_t bytes)
{
    struct device *limited = library_mode() == LIBRARY_ON ? device_get(device) : NULL;

    return limited && bytes && route_set_limit(limited, bytes) ? 0 : -1;
}

EXPORT int gpucap_tag(const char *name)
{
    return tags_set(name) ? 0 : -1;
}

EXPORT int gpucap_tag_stats(const char *name, uint64_t *live, uint64_t *peak)
{
    return live && peak && tags_read(name, live, peak) ? 0 : -1;
}

/* ---- owners ---- */

struct listed {
    int device;
    char *list; /* entries of `size` bytes */
    size_t size, room, count;
};

static void list_owner(const struct recorded_owner *row, void *argument)
{
    struct listed *listed = argument;
    struct gpucap_owner owner = {.bytes = row->bytes, .blocks = row->blocks, .peak = row->peak};

    if (row->device != listed->device)
        return;
    strncpy(owner.owner, row->owner, sizeof(owner.owner) - 1);
    strncpy(owner.kind, row->kind, sizeof(owner.kind) - 1);
    strncpy(owner.tag, row->tag, sizeof(owner.tag) - 1);
    if (listed->count < listed->room)
        memcpy(listed->list + listed->count * listed->size, &owner,
               listed->size < sizeof(owner) ? listed->size : sizeof(owner));
    listed->count++;
}

EXPORT int gpucap_owners(int device, struct gpucap_owner *list, size_t size, size_t *count)
{
    struct listed listed = {
        .device = device, .list = (char *)list, .size = size, .room = count && list ? *count : 0};

    if (!count || library_mode() != LIBRARY_ON || !recorded_owners(list_owner, &listed))
        return -1;
    *count = listed.count;
    return 0;
}
