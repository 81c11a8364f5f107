/* ranges: which bytes of a pool's reservation are live, free, dead, or holes. The ranges themselves and how
 * they are found by address are in range_nodes.h, by size and by time in range_lists.h.
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

#include "interpose/pool/range_nodes.h"

/* Makes [base, base + span) one hole in each zone; both are multiples of RANGES_PAGE. Returns 0 or
 * -ENOMEM. */
int ranges_init(struct ranges *ranges, uint64_t base, uint64_t span);
void ranges_destroy(struct ranges *ranges);

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

/* Returns the bytes that would be mapped, with another block of `bytes`, if no chunk had ever moved and none
 * had been given back. */
uint64_t ranges_unmoved(const struct ranges *ranges, enum ranges_zone zone, uint64_t bytes);

/* Turn part of a hole into a free range (map), or part of a free range into a hole (unmap). Each needs two
 * prepared nodes. */
void ranges_map(struct ranges *ranges, uint64_t start, uint64_t bytes, uint64_t epoch);
void ranges_unmap(struct ranges *ranges, uint64_t start, uint64_t bytes);

/* Make part of a free range or hole dead (retire; needs two prepared nodes), a dead range free again
 * (revive), or a dead range a hole (unmap_dead). */
void ranges_retire(struct ranges *ranges, uint64_t start, uint64_t bytes);
void ranges_revive(struct ranges *ranges, uint64_t start, uint64_t epoch);
void ranges_unmap_dead(struct ranges *ranges, uint64_t start);

/* Returns the size of the largest free range. */
uint64_t ranges_largest(const struct ranges *ranges);

/* Checks everything. Returns NULL, or a message that says what is wrong. */
const char *ranges_check(const struct ranges *ranges);

#endif
