/* sim_ranges: disjoint address ranges, found by any address inside.
 *
 * A treap with the node inside the owner's structure; no memory of its own. Guarded by the owner's lock.
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
struct sim_range *sim_ranges_find(const struct sim_ranges *set,
                                  uint64_t address); /* the range that contains it, or NULL */
struct sim_range *sim_ranges_next(const struct sim_ranges *set,
                                  uint64_t address); /* the first with start >= address */

#endif
