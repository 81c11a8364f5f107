/* sim_ranges: a set of disjoint address ranges. See sim_ranges.h. */
#include "tools/simgpu/engine/sim_ranges.h"

static uint32_t next_priority(void)
{
    static uint32_t state = 2463534242u; /* xorshift is random enough to balance the tree */

    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static struct sim_range *merge(struct sim_range *low, struct sim_range *high)
{
    if (!low || !high)
        return low ? low : high;
    if (low->priority > high->priority) {
        low->right = merge(low->right, high);
        return low;
    }
    high->left = merge(low, high->left);
    return high;
}

static void split(struct sim_range *tree, uint64_t start, struct sim_range **low, struct sim_range **high)
{
    if (!tree) {
        *low = *high = NULL;
    } else if (tree->start < start) {
        *low = tree;
        split(tree->right, start, &tree->right, high);
    } else {
        *high = tree;
        split(tree->left, start, low, &tree->left);
    }
}

void sim_ranges_insert(struct sim_ranges *set, struct sim_range *range)
{
    struct sim_range *low, *high;

    range->left = range->right = NULL;
    range->priority = next_priority();
    split(set->root, range->start, &low, &high);
    set->root = merge(merge(low, range), high);
}

void sim_ranges_remove(struct sim_ranges *set, struct sim_range *range)
{
    struct sim_range **at = &set->root;

    while (*at && *at != range)
        at = range->start < (*at)->start ? &(*at)->left : &(*at)->right;
    if (*at)
        *at = merge(range->left, range->right);
}

struct sim_range *sim_ranges_find(const struct sim_ranges *set, uint64_t address)
{
    struct sim_range *at = set->root;

    while (at) {
        if (address < at->start)
            at = at->left;
        else if (address - at->start < at->size)
            return at;
        else
            at = at->right;
    }
    return NULL;
}

struct sim_range *sim_ranges_next(const struct sim_ranges *set, uint64_t address)
{
    struct sim_range *at = set->root, *best = NULL;

    while (at) {
        if (at->start >= address) {
            best = at;
            at = at->left;
        } else {
            at = at->right;
        }
    }
    return best;
}
