/* ranges: disjoint address ranges, found by any address inside.
 *
 * A treap with the node inside the owner's structure; no memory of its own. Guarded by the owner's lock.
 */
#ifndef SIMGPU_RANGES_H
#define SIMGPU_RANGES_H

#include <stddef.h>
#include <stdint.h>

struct range {
    uint64_t start;
    uint64_t size;
    struct range *left, *right;
    uint32_t priority;
};

struct ranges {
    struct range *root;
};

void ranges_insert(struct ranges *set, struct range *range); /* must not overlap */
void ranges_remove(struct ranges *set, struct range *range);
struct range *ranges_find(const struct ranges *set,
                          uint64_t address); /* the range that contains it, or NULL */
struct range *ranges_next(const struct ranges *set, uint64_t address); /* the first with start >= address */

#endif
