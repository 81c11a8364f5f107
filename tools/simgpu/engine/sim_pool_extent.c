/* pool_extent: what is free in one chunk of a pool. See pool_extent.h. */
#include "tools/simgpu/engine/sim_pool_extent.h"

#include <stdlib.h>

struct extent *extent_of(struct link *link)
{
    return LIST_ITEM(link, struct extent, link);
}

static void drop(struct extent *extent)
{
    list_remove(&extent->link);
    ops_clear(&extent->after);
    free(extent);
}

static bool joins(const struct extent *low, const struct extent *high)
{
    return low->start + low->size == high->start && low->stream == high->stream;
}

/* Joins the extent with its neighbours. It is the newest one of its stream, so its ops cover theirs. */
static void join(struct link *extents, struct extent *extent)
{
    struct link *low = extent->link.prev, *high = extent->link.next;

    if (low != extents && joins(extent_of(low), extent)) {
        extent->start = extent_of(low)->start;
        extent->size += extent_of(low)->size;
        drop(extent_of(low));
    }
    if (high != extents && joins(extent, extent_of(high))) {
        extent->size += extent_of(high)->size;
        drop(extent_of(high));
    }
}

bool extent_add(struct link *extents, uint64_t start, uint64_t size, uint64_t stream, struct ops *after)
{
    struct link *next = extents->next;
    struct extent *extent = calloc(1, sizeof(*extent));

    if (!extent)
        return false;
    while (next != extents && extent_of(next)->start < start)
        next = next->next;
    extent->start = start;
    extent->size = size;
    extent->stream = stream;
    if (stream)
        extent->after = *after;
    list_append(next, &extent->link); /* appended to the list whose head is the next item: before that item */
    join(extents, extent);
    return true;
}

static bool usable(const struct extent *extent, uint64_t stream)
{
    return extent->stream == 0 || extent->stream == stream;
}

/* The longest run that begins here. */
static struct extent_run run_from(struct link *extents, struct extent *first, uint64_t stream)
{
    struct extent_run run = {first, first->size};
    struct link *at;

    for (at = first->link.next;
         at != extents && usable(extent_of(at), stream) && extent_of(at)->start == first->start + run.size;
         at = at->next)
        run.size += extent_of(at)->size;
    return run;
}

bool extent_find(struct link *extents, uint64_t size, uint64_t stream, struct extent_run *best)
{
    uint64_t end = 0; /* of the last run: what lies in it begins no run of its own */
    bool found = false;
    struct link *at;

    for (at = extents->next; at != extents; at = at->next) {
        struct extent_run run;

        if (extent_of(at)->start < end || !usable(extent_of(at), stream))
            continue;
        run = run_from(extents, extent_of(at), stream);
        end = run.first->start + run.size;
        if (run.size < size || (best->first && run.size >= best->size))
            continue;
        *best = run;
        found = true;
    }
    return found;
}

uint64_t extent_take(struct extent *first, uint64_t size)
{
    const uint64_t start = first->start;

    while (size > 0) {
        struct extent *next = extent_of(first->link.next);
        const uint64_t part = first->size < size ? first->size : size;

        first->start += part;
        first->size -= part;
        size -= part;
        if (first->size == 0)
            drop(first);
        first = next;
    }
    return start;
}

void extent_settle(struct link *extents, uint64_t stream)
{
    struct link *at, *next;

    for (at = extents->next; at != extents; at = next) {
        struct extent *extent = extent_of(at);

        if (extent->stream && (stream == 0 || extent->stream == stream) && ops_done(&extent->after)) {
            ops_clear(&extent->after);
            extent->stream = 0;
            join(extents, extent);
        }
        next = extent->link.next;
    }
}

bool extent_cut(struct extent *extent, uint64_t start, uint64_t size)
{
    const uint64_t behind = extent->start + extent->size - (start + size);
    struct extent *rest = behind > 0 && start > extent->start ? calloc(1, sizeof(*rest)) : NULL;

    if (behind > 0 && start > extent->start && !rest)
        return false;
    if (rest) {
        rest->start = start + size;
        rest->size = behind;
        list_append(extent->link.next, &rest->link);
    }
    if (start > extent->start) {
        extent->size = start - extent->start;
    } else {
        extent->start += size;
        extent->size -= size;
    }
    if (extent->size == 0)
        drop(extent);
    return true;
}
