/* sim_ranges: a set of disjoint address ranges, found by any address inside.
 *
 * A treap whose nodes are inside the owners' structures; it allocates nothing. Guarded by the owner's lock.
 */
#ifndef SIMGPU_RANGES_H
#define SIMGPU_RANGES_H

#include <stddef.h>
#include <stdint.h>

struct sim_range {
    uint64_t start;
    uint64_t size;
    struct sim_range *left, *right;
    uint32_t priority;
};

struct sim_ranges {
    struct sim_range *root;
};

void sim_ranges_insert(struct sim_ranges *set, struct sim_range *range); /* must not overlap */
void sim_ranges_remove(struct sim_ranges *set, struct sim_range *range);
/* Returns the range that contains the address, or NULL. */
struct sim_range *sim_ranges_find(const struct sim_ranges *set, uint64_t address);
/* Returns the first range with start >= address, or NULL. */
struct sim_range *sim_ranges_next(const struct sim_ranges *set, uint64_t address);

#endif
