/* range_nodes: the ranges of a pool's reservation as a list by address, out of band, in memory from mmap.
 * What they are for is in ranges.h; only ranges.c and range_lists.c call what begins with range_. The owner
 * of a struct ranges guards it. */
#ifndef GPUCAP_RANGE_NODES_H
#define GPUCAP_RANGE_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/base/mark.h"

#define RANGES_UNIT UINT64_C(512) /* blocks begin and end on multiples of this */
#define RANGES_PAGE                                                                                          \
    (UINT64_C(2) << 20) /* memory is mapped and released in multiples of this (the driver's granularity) */
#define RANGES_BINS       (64 + 32 * 32)
#define RANGES_LEVELS     4                   /* levels of bits above the hints: enough for 64^4 pages */
#define RANGES_LARGE_FROM (UINT64_C(1) << 20) /* smallest block of the large zone; see ranges_zone_for */
#define RANGES_SMALL_PART 8                   /* the small zone is 1/RANGES_SMALL_PART of the address space */

enum ranges_zone { RANGES_SMALL, RANGES_LARGE, RANGES_ZONES };

/* RANGE_DEAD: still mapped, but its chunk is used elsewhere, or could be neither used nor unmapped. */
enum range_state { RANGE_LIVE, RANGE_FREE, RANGE_HOLE, RANGE_DEAD };

struct range {
    uint64_t start, bytes;
    struct range *lower, *upper; /* neighbours by address */
    struct range *next, *prev;   /* free: others in its bin; hole: other holes; live: for the owner */
    struct range *older, *newer; /* free, a page or more: by the time of the last free */
    uint64_t epoch;              /* free: epoch of the latest free in it; only the owner interprets it */
    enum range_state state;
    bool aged;                  /* is in the list by time */
    bool pending;               /* live: the program has freed it, and its work may go on; set by the owner */
    struct mark mark;           /* live: used by the owner */
    struct range *twin;         /* live: the same block in ranges.unmoved; NULL: none */
} __attribute__((aligned(64))); /* avoids false sharing: threads change the marks of neighbouring ranges */

struct ranges {
    struct range *bins[RANGES_ZONES][RANGES_BINS];
    uint64_t bin_map[RANGES_ZONES][(RANGES_BINS + 63) / 64];
    struct range *holes[RANGES_ZONES];
    struct range *oldest, *newest;
    struct range *first;  /* lowest address */
    struct range **hints; /* for each page of the address space a range that begins in it, or NULL */
    uint64_t *
        hinted[RANGES_LEVELS]; /* a bit for each page with a hint; above it one for each word that is not 0 */
    bool roomy;                /* much more could be mapped; the owner sets it */
    uint64_t base, span, border; /* of the zones */
    struct range *spare;         /* nodes that were in use, linked by next */
    uint64_t spares, nodes;      /* spares: also those of the newest slab that were not */
    uint64_t live_bytes, free_bytes, live_count;
    struct ranges_slab *slabs;
    struct ranges *unmoved; /* the same blocks as they would lie if no chunk had ever moved; NULL: not kept */
};

/* Allocates spare nodes so that the next `count` nodes need no memory. Returns 0 or -ENOMEM. */
int ranges_prepare(struct ranges *ranges, unsigned count);

/* Returns the range that contains an address; NULL if it is outside. */
struct range *ranges_at(const struct ranges *ranges, uint64_t address);

/* Maps what ranges_at needs, for ranges->base and span. Returns 0 or -ENOMEM. */
int range_nodes_open(struct ranges *ranges);
/* Unmaps that and all nodes. */
void range_nodes_close(struct ranges *ranges);

/* Returns a node without neighbours. A spare one must have been prepared. */
struct range *range_new(struct ranges *ranges, uint64_t start, uint64_t bytes, enum range_state state);

/* Splits a node that is in no list at `offset`. Returns a new node for the lower part; `node` is the rest. */
struct range *range_split(struct ranges *ranges, struct range *node, uint64_t offset);
/* Merges two neighbours that are in no list into the lower node; the upper one is dropped. */
struct range *range_join(struct ranges *ranges, struct range *low, struct range *high);

/* Returns false if the hint of the node's page leads elsewhere. For ranges_check. */
bool range_hint_is_right(const struct ranges *ranges, const struct range *node);

/* Returns the zone for a new block. With much room a block of exactly RANGES_LARGE_FROM is small, as in
 * PyTorch: then a pool holds as little as its expandable segments do (utilization on segment_varres 0.977
 * instead of 0.975). With little room it is large: a speech model's trace then needs a capacity of 1.017
 * instead of 1.021 times its peak of live bytes. */
static inline enum ranges_zone ranges_zone_for(const struct ranges *ranges, uint64_t bytes)
{
    return bytes < RANGES_LARGE_FROM + (ranges->roomy ? RANGES_UNIT : 0) ? RANGES_SMALL : RANGES_LARGE;
}

static inline enum ranges_zone range_zone(const struct ranges *ranges, const struct range *node)
{
    return node->start < ranges->border ? RANGES_SMALL : RANGES_LARGE;
}

#endif
