/* range_lists: free ranges by size and by time, and holes. For ranges.c only. The owner of a struct ranges
 * guards it. */
#ifndef GPUCAP_RANGE_LISTS_H
#define GPUCAP_RANGE_LISTS_H

#include "interpose/pool/range_nodes.h"

/* Enters a free node into the lists by size and by time, there behind `older` (NULL: as the oldest), and
 * takes it out again. */
void range_free_add(struct ranges *ranges, struct range *node, struct range *older);
void range_free_remove(struct ranges *ranges, struct range *node);

/* Enters a hole into its list. */
void range_hole_add(struct ranges *ranges, struct range *node);

/* Takes a free node or a hole out of its lists. */
void range_lists_remove(struct ranges *ranges, struct range *node);

/* Cuts the first `bytes` off a larger free node and returns them as a node in no list. The rest keeps its
 * age: it was not freed just now. */
struct range *range_free_cut(struct ranges *ranges, struct range *node, uint64_t bytes);

/* Returns the free range of a zone that fits best, the lowest among equals, which keeps high addresses free;
 * NULL if none fits. With much room the last one, behind which nothing is mapped, is taken only if no other
 * fits: it can grow for any request, so blocks that fit elsewhere should not break it. */
struct range *range_best_fit(const struct ranges *ranges, enum ranges_zone zone, uint64_t bytes);

/* What the lists hold. */
struct range_counts {
    uint64_t free, free_bytes; /* by size */
    uint64_t pages;            /* by time: free, a page or more */
    uint64_t holes;
};
/* Checks the lists and counts what they hold. Returns NULL, or a message that says what is wrong. */
const char *range_lists_check(const struct ranges *ranges, struct range_counts *seen);

#endif
