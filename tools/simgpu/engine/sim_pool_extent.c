/* sim_pool_extent: the free ranges of a pool. See sim_pool_extent.h. */
#include "tools/simgpu/engine/sim_pool_extent.h"

#include <stdlib.h>

static struct sim_extent *of_link(struct sim_link *link)
{
    return LIST_ITEM(link, struct sim_extent, link);
}

static void drop(struct sim_extent *extent)
{
    sim_list_remove(&extent->link);
    sim_ops_clear(&extent->after);
    free(extent);
}

static bool joins(const struct sim_extent *low, const struct sim_extent *high)
{
    return low->start + low->size == high->start && low->stream == high->stream;
}

/* Merges the extent with its neighbours. It is the newest of its stream, so that its ops cover theirs. */
static void join(struct sim_link *extents, struct sim_extent *extent)
{
    struct sim_link *low = extent->link.prev, *high = extent->link.next;

    if (low != extents && joins(of_link(low), extent)) {
        extent->start = of_link(low)->start;
        extent->size += of_link(low)->size;
        drop(of_link(low));
    }
    if (high != extents && joins(extent, of_link(high))) {
        extent->size += of_link(high)->size;
        drop(of_link(high));
    }
}

bool sim_extent_add(struct sim_link *extents, uint64_t start, uint64_t size, uint64_t stream,
                    struct sim_ops *after)
{
    struct sim_link *next = extents->next;
    struct sim_extent *extent = calloc(1, sizeof(*extent));

    if (!extent)
        return false;
    while (next != extents && of_link(next)->start < start)
        next = next->next;
    extent->start = start;
    extent->size = size;
    extent->stream = stream;
    if (stream)
        extent->after = *after;
    sim_list_append(next, &extent->link); /* appending to the next item as a head inserts before that item */
    join(extents, extent);
    return true;
}

static bool usable(const struct sim_extent *extent, uint64_t stream)
{
    return extent->stream == 0 || extent->stream == stream;
}

struct run {
    struct sim_extent *first;
    uint64_t size;
};

/* Returns the longest run that begins here. */
static struct run run_from(struct sim_link *extents, struct sim_extent *first, uint64_t stream)
{
    struct run run = {first, first->size};
    struct sim_link *at;

    for (at = first->link.next;
         at != extents && usable(of_link(at), stream) && of_link(at)->start == first->start + run.size;
         at = at->next)
        run.size += of_link(at)->size;
    return run;
}

struct sim_extent *sim_extent_find(struct sim_link *extents, uint64_t size, uint64_t stream)
{
    struct run best = {NULL, 0};
    uint64_t end = 0; /* of the last run: an extent inside it does not begin another run */
    struct sim_link *at;

    for (at = extents->next; at != extents; at = at->next) {
        struct run run;

        if (of_link(at)->start < end || !usable(of_link(at), stream))
            continue;
        run = run_from(extents, of_link(at), stream);
        end = run.first->start + run.size;
        if (run.size >= size && (!best.first || run.size < best.size))
            best = run;
    }
    return best.first;
}

uint64_t sim_extent_before(struct sim_link *extents, uint64_t end, uint64_t stream)
{
    uint64_t start = end;
    struct sim_link *at;

    for (at = extents->prev;
         at != extents && usable(of_link(at), stream) && of_link(at)->start + of_link(at)->size == start;
         at = at->prev)
        start = of_link(at)->start;
    return end - start;
}

uint64_t sim_extent_take(struct sim_extent *first, uint64_t size)
{
    const uint64_t start = first->start;

    while (size > 0) {
        struct sim_extent *next = of_link(first->link.next);
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

void sim_extent_settle(struct sim_link *extents, uint64_t stream)
{
    struct sim_link *at, *next;

    for (at = extents->next; at != extents; at = next) {
        struct sim_extent *extent = of_link(at);

        if (extent->stream && (stream == 0 || extent->stream == stream) && sim_ops_done(&extent->after)) {
            sim_ops_clear(&extent->after);
            extent->stream = 0;
            join(extents, extent);
        }
        next = extent->link.next;
    }
}

/* Returns the extent that contains the range and is free for every stream, or NULL. */
static struct sim_extent *around(struct sim_link *extents, uint64_t start, uint64_t size)
{
    struct sim_link *at;

    for (at = extents->next; at != extents && of_link(at)->start <= start; at = at->next)
        if (of_link(at)->start + of_link(at)->size >= start + size)
            return of_link(at)->stream == 0 ? of_link(at) : NULL;
    return NULL;
}

bool sim_extent_cut(struct sim_link *extents, uint64_t start, uint64_t size)
{
    struct sim_extent *extent = around(extents, start, size);
    const uint64_t behind = extent ? extent->start + extent->size - (start + size) : 0;
    struct sim_extent *rest = behind > 0 && start > extent->start ? calloc(1, sizeof(*rest)) : NULL;

    if (!extent || (behind > 0 && start > extent->start && !rest))
        return false;
    if (rest) {
        rest->start = start + size;
        rest->size = behind;
        sim_list_append(extent->link.next, &rest->link);
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
