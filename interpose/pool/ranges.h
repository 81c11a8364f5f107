/* ranges: which bytes of a pool's address space are live, free, or have no memory behind them.
 *
 * Pure: numbers only, never touches what it manages, no driver, no clock. The owner of a struct ranges guards
 * it with its own lock. All metadata is out of band, in memory from mmap.
 *
 * Live and free ranges are backed by memory; holes are not. Free ranges are found by size through bins (exact
 * below 32 KiB, then 32 to each doubling), so a fit costs the same with one block and with a hundred
 * thousand.
 *
 * The address space has two zones: small and large blocks live apart, because a small block that stays keeps
 * a whole chunk from moving (smallest capacity of a speech model's trace: 1.021 of peak live in one
 * zone, 1.019 in two). No range crosses the border between them.
 */
#ifndef GPUCAP_RANGES_H
#define GPUCAP_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/base/mark.h"

#define RANGES_UNIT UINT64_C(512) /* blocks begin and end on multiples of this */
#define RANGES_PAGE                                                                                          \
    (UINT64_C(2) << 20) /* memory comes and goes in multiples of this (granularity of the driver) */
#define RANGES_BINS       (64 + 32 * 32)
#define RANGES_HINT       RANGES_PAGE         /* one hint for so many bytes of address space */
#define RANGES_LEVELS     4                   /* of bits above the hints: for up to 64^4 pages */
#define RANGES_LARGE_FROM (UINT64_C(1) << 20) /* blocks from this size on live in the zone of large ones */
#define RANGES_SMALL_PART 8                   /* the zone of small blocks is this part of the address space */

enum ranges_zone { RANGES_SMALL, RANGES_LARGE, RANGES_ZONES };

static inline enum ranges_zone ranges_zone_for(uint64_t bytes)
{
    return bytes < RANGES_LARGE_FROM ? RANGES_SMALL : RANGES_LARGE;
}

/* Dead: still mapped, but its chunk has been mapped elsewhere as well and is used there, or the driver would
 * neither let it be used nor unmapped. */
enum range_state { RANGE_LIVE, RANGE_FREE, RANGE_HOLE, RANGE_DEAD };

struct range {
    uint64_t start, bytes;
    struct range *lower, *upper; /* neighbours by address */
    struct range *next, *prev;   /* free: others of its bin; hole: other holes */
    struct range *older, *newer; /* free, a page or more: by the time of the last free */
    uint64_t epoch;              /* free: of the latest free in it; what that means is the owner's affair */
    enum range_state state;
    bool aged;                  /* stands in the list by time */
    struct mark mark;           /* live: the owner's own */
} __attribute__((aligned(64))); /* threads change the words of neighbours */

struct ranges {
    struct range *bins[RANGES_ZONES][RANGES_BINS];
    uint64_t bin_map[RANGES_ZONES][(RANGES_BINS + 63) / 64];
    struct range *holes[RANGES_ZONES];
    struct range *oldest, *newest;
    struct range *first;  /* lowest address */
    struct range **hints; /* some range that begins in each page of the address space, or NULL */
    uint64_t *
        hinted[RANGES_LEVELS]; /* a bit for each page with a hint; above it one for each word that is not 0 */
    uint64_t base, span, border; /* of the zones */
    struct range *spare;         /* nodes not in use, linked by next */
    uint64_t spares, nodes;
    uint64_t live_bytes, free_bytes, live_count;
    struct ranges_slab *slabs;
};

/* The whole of [base, base + span) is without memory; both are multiples of RANGES_PAGE. 0 or -ENOMEM. */
int ranges_init(struct ranges *ranges, uint64_t base, uint64_t span);
void ranges_destroy(struct ranges *ranges);

/* Makes sure that the next `count` nodes need no memory. 0 or -ENOMEM. */
int ranges_prepare(struct ranges *ranges, unsigned count);

/* The size of the best free range of a zone for `bytes`; 0 if none fits. */
uint64_t ranges_best(const struct ranges *ranges, enum ranges_zone zone, uint64_t bytes);

/* Turns the best free range of a zone for `bytes` (a multiple of RANGES_UNIT) into a live one of exactly that
 * size. NULL if none fits. Needs one prepared node. */
struct range *ranges_take(struct ranges *ranges, enum ranges_zone zone, uint64_t bytes);

/* The same, beginning at a multiple of `alignment`, a power of two of at least RANGES_UNIT. Needs two
 * prepared nodes. */
struct range *ranges_take_aligned(struct ranges *ranges, enum ranges_zone zone, uint64_t bytes,
                                  uint64_t alignment);

/* The same at a given place, which must be inside one free range. Needs two prepared nodes. */
struct range *ranges_take_at(struct ranges *ranges, uint64_t start, uint64_t bytes);

/* A live range becomes free, one with its free neighbours; `epoch` is that of this free. Never fails. */
void ranges_give(struct ranges *ranges, struct range *range, uint64_t epoch);

/* Where memory must be put in a zone so that `bytes` fit: the least new memory, beside what is free already.
 */
struct ranges_plan {
    uint64_t start;     /* of the block to be */
    uint64_t map_start; /* inside one hole */
    uint64_t map_bytes; /* a multiple of RANGES_PAGE */
};
bool ranges_plan(const struct ranges *ranges, enum ranges_zone zone, uint64_t bytes,
                 struct ranges_plan *plan);

/* Part of a hole now has memory: free. Part of a free range now has none: a hole. Each needs two prepared
 * nodes. */
void ranges_map(struct ranges *ranges, uint64_t start, uint64_t bytes, uint64_t epoch);
void ranges_unmap(struct ranges *ranges, uint64_t start, uint64_t bytes);

/* Part of a free range or hole is dead from now on (two prepared nodes); a dead range is free again; or it is
 * a hole. */
void ranges_retire(struct ranges *ranges, uint64_t start, uint64_t bytes);
void ranges_revive(struct ranges *ranges, uint64_t start, uint64_t epoch);
void ranges_bury(struct ranges *ranges, uint64_t start);

/* The range that holds an address; NULL if it is outside. */
struct range *ranges_at(const struct ranges *ranges, uint64_t address);

/* The largest free range, in bytes. */
uint64_t ranges_largest(const struct ranges *ranges);

/* Verifies everything. NULL, or what is wrong. */
const char *ranges_check(const struct ranges *ranges);

#endif
