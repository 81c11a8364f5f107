/* ranges: which bytes of a pool's reservation are live, free, dead, or holes.
 *
 * Pure: works on numbers only, never touches the memory it manages, no driver, no clock. The owner of a
 * struct ranges guards it with its own lock. All metadata is out of band, in memory from mmap.
 *
 * Live and free ranges are mapped; holes are not. Bins find free ranges by size (exact below 32 KiB, then 32
 * bins to each doubling), so a search costs the same with one block and with a hundred thousand.
 *
 * The address space has two zones: small and large blocks live apart, because a small block that stays keeps
 * a whole chunk from moving (smallest capacity for a speech model's trace: 1.021 of peak live with one zone,
 * 1.019 with two). No range crosses the border between them.
 */
#ifndef GPUCAP_RANGES_H
#define GPUCAP_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/base/mark.h"

#define RANGES_UNIT UINT64_C(512) /* blocks begin and end on multiples of this */
#define RANGES_PAGE                                                                                          \
    (UINT64_C(2) << 20) /* memory is mapped and released in multiples of this (the driver's granularity) */
#define RANGES_BINS       (64 + 32 * 32)
#define RANGES_HINT       RANGES_PAGE         /* bytes of address space per hint */
#define RANGES_LEVELS     4                   /* levels of bits above the hints: enough for 64^4 pages */
#define RANGES_LARGE_FROM (UINT64_C(1) << 20) /* smallest block of the large zone */
#define RANGES_SMALL_PART 8                   /* the small zone is 1/RANGES_SMALL_PART of the address space */

enum ranges_zone { RANGES_SMALL, RANGES_LARGE, RANGES_ZONES };

static inline enum ranges_zone ranges_zone_for(uint64_t bytes)
{
    return bytes < RANGES_LARGE_FROM ? RANGES_SMALL : RANGES_LARGE;
}

/* RANGE_DEAD: still mapped, but its chunk is mapped and used elsewhere, or the driver let it be neither used
 * nor unmapped. */
enum range_state { RANGE_LIVE, RANGE_FREE, RANGE_HOLE, RANGE_DEAD };

struct range {
    uint64_t start, bytes;
    struct range *lower, *upper; /* neighbours by address */
    struct range *next, *prev;   /* free: others in its bin; hole: other holes */
    struct range *older, *newer; /* free, a page or more: by the time of the last free */
    uint64_t epoch;              /* free: epoch of the latest free in it; only the owner interprets it */
    enum range_state state;
    bool aged;                  /* is in the list by time */
    struct mark mark;           /* live: used by the owner */
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
    uint64_t base, span, border; /* of the zones */
    struct range *spare;         /* nodes not in use, linked by next */
    uint64_t spares, nodes;
    uint64_t live_bytes, free_bytes, live_count;
    struct ranges_slab *slabs;
};

/* Makes [base, base + span) one hole in each zone; both are multiples of RANGES_PAGE. Returns 0 or
 * -ENOMEM. */
int ranges_init(struct ranges *ranges, uint64_t base, uint64_t span);
void ranges_destroy(struct ranges *ranges);

/* Allocates spare nodes so that the next `count` nodes need no memory. Returns 0 or -ENOMEM. */
int ranges_prepare(struct ranges *ranges, unsigned count);

/* Returns the size of the free range of a zone that fits `bytes` best; 0 if none fits. */
uint64_t ranges_best(const struct ranges *ranges, enum ranges_zone zone, uint64_t bytes);

/* Takes `bytes` (a multiple of RANGES_UNIT) from the free range of a zone that fits best, as a live range of
 * exactly that size. Returns NULL if none fits. Needs one prepared node. */
struct range *ranges_take(struct ranges *ranges, enum ranges_zone zone, uint64_t bytes);

/* The same, starting at a multiple of `alignment`, a power of two of at least RANGES_UNIT. Needs two prepared
 * nodes. */
struct range *ranges_take_aligned(struct ranges *ranges, enum ranges_zone zone, uint64_t bytes,
                                  uint64_t alignment);

/* The same at a given place inside one free range. Needs two prepared nodes. */
struct range *ranges_take_at(struct ranges *ranges, uint64_t start, uint64_t bytes);

/* Frees a live range in `epoch` and merges it with its free neighbours. Never fails. */
void ranges_give(struct ranges *ranges, struct range *range, uint64_t epoch);

/* Plans where to map memory in a zone so that `bytes` fit, with the least new memory, next to what is free
 * already. Returns false if there is no place. */
struct ranges_plan {
    uint64_t start;     /* of the planned block */
    uint64_t map_start; /* inside one hole */
    uint64_t map_bytes; /* a multiple of RANGES_PAGE */
};
bool ranges_plan(const struct ranges *ranges, enum ranges_zone zone, uint64_t bytes,
                 struct ranges_plan *plan);

/* Turn part of a hole into a free range (map), or part of a free range into a hole (unmap). Each needs two
 * prepared nodes. */
void ranges_map(struct ranges *ranges, uint64_t start, uint64_t bytes, uint64_t epoch);
void ranges_unmap(struct ranges *ranges, uint64_t start, uint64_t bytes);

/* Make part of a free range or hole dead (retire; needs two prepared nodes), a dead range free again
 * (revive), or a dead range a hole (unmap_dead). */
void ranges_retire(struct ranges *ranges, uint64_t start, uint64_t bytes);
void ranges_revive(struct ranges *ranges, uint64_t start, uint64_t epoch);
void ranges_unmap_dead(struct ranges *ranges, uint64_t start);

/* Returns the range that contains an address; NULL if it is outside. */
struct range *ranges_at(const struct ranges *ranges, uint64_t address);

/* Returns the size of the largest free range. */
uint64_t ranges_largest(const struct ranges *ranges);

/* Checks everything. Returns NULL, or a message that says what is wrong. */
const char *ranges_check(const struct ranges *ranges);

#endif
