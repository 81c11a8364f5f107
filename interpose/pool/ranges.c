/* ranges: see ranges.h. */
#include "interpose/pool/ranges.h"

#include <errno.h>
#include <string.h>

#include "interpose/pool/range_lists.h"

/* ---- state changes ---- */

static bool may_join(const struct ranges *r, const struct range *low, const struct range *high)
{
    return low && high && low->state == high->state && high->start != r->border;
}

/* Enters a free node, behind `older` in age, or a hole into its lists. */
static void enter_lists(struct ranges *r, struct range *node, struct range *older)
{
    if (node->state == RANGE_FREE)
        range_free_add(r, node, older);
    else
        range_hole_add(r, node);
}

/* Merges a free node or hole, which is in no list, with neighbours of its state, and enters the result into
 * the lists. */
static void settle(struct ranges *r, struct range *node)
{
    struct range *low = node->lower, *high = node->upper;

    if (may_join(r, low, node)) {
        range_lists_remove(r, low);
        node = range_join(r, low, node);
    }
    if (may_join(r, node, high)) {
        range_lists_remove(r, high);
        node = range_join(r, node, high);
    }
    enter_lists(r, node, r->newest);
}

/* Gives a node that is in no list its state, free or hole. The epoch of a hole is never read. */
static void become(struct ranges *r, struct range *node, enum range_state state, uint64_t epoch)
{
    node->state = state;
    node->epoch = epoch;
    settle(r, node);
}

/* Removes a node from its lists and cuts it down to [start, start + bytes). The parts cut off return to the
 * lists with the same state and age. */
static struct range *carve(struct ranges *r, struct range *node, uint64_t start, uint64_t bytes)
{
    struct range *rest = NULL, *low = NULL;
    struct range *older = node->aged ? node->older : r->newest;

    range_lists_remove(r, node);
    if (start > node->start)
        low = range_split(r, node, start - node->start);
    if (node->bytes > bytes) {
        rest = node;
        node = range_split(r, node, bytes);
    }
    if (low)
        enter_lists(r, low, older);
    if (rest)
        enter_lists(r, rest, older);
    return node;
}

static uint64_t aligned_up(uint64_t address, uint64_t alignment)
{
    return (address + alignment - 1) & ~(alignment - 1);
}

/* Returns a new range for a block in `unmoved`: the best fit, or behind all others. Returns NULL if there is
 * no memory for it; then `unmoved` counts too little. */
static struct range *make_twin(struct ranges *unmoved, enum ranges_zone zone, uint64_t bytes,
                               uint64_t alignment)
{
    struct ranges_plan plan;

    if (!unmoved || ranges_prepare(unmoved, 8))
        return NULL;
    struct range *twin = ranges_take_aligned(unmoved, zone, bytes, alignment);
    if (twin || !ranges_plan(unmoved, zone, bytes + alignment - RANGES_UNIT, &plan))
        return twin;
    ranges_map(unmoved, plan.map_start, plan.map_bytes, 0);
    return ranges_take_at(unmoved, aligned_up(plan.start, alignment), bytes);
}

static struct range *make_live(struct ranges *r, struct range *node, uint64_t alignment)
{
    node->state = RANGE_LIVE;
    node->mark.pins = 0;
    atomic_store_explicit(&node->mark.exposed, false, memory_order_relaxed);
    node->twin = make_twin(r->unmoved, range_zone(r, node), node->bytes, alignment);
    r->live_bytes += node->bytes;
    r->live_count++;
    return node;
}

uint64_t ranges_best(const struct ranges *r, enum ranges_zone zone, uint64_t bytes)
{
    const struct range *best = range_best_fit(r, zone, bytes);

    return best ? best->bytes : 0;
}

struct range *ranges_take(struct ranges *r, enum ranges_zone zone, uint64_t bytes)
{
    struct range *best = range_best_fit(r, zone, bytes);

    if (!best)
        return NULL;
    if (best->bytes == bytes) {
        range_free_remove(r, best);
        return make_live(r, best, RANGES_UNIT);
    }
    return make_live(r, range_free_cut(r, best, bytes), RANGES_UNIT);
}

struct range *ranges_take_aligned(struct ranges *r, enum ranges_zone zone, uint64_t bytes, uint64_t alignment)
{
    struct range *best = range_best_fit(r, zone, bytes);

    /* The best fit may happen to be aligned; one with room for every alignment always is. */
    if (best && aligned_up(best->start, alignment) + bytes > best->start + best->bytes)
        best = range_best_fit(r, zone, bytes + alignment - RANGES_UNIT);
    if (!best)
        return NULL;
    return make_live(r, carve(r, best, aligned_up(best->start, alignment), bytes), alignment);
}

struct range *ranges_take_at(struct ranges *r, uint64_t start, uint64_t bytes)
{
    return make_live(r, carve(r, ranges_at(r, start), start, bytes), RANGES_UNIT);
}

void ranges_give(struct ranges *r, struct range *range, uint64_t epoch)
{
    if (range->twin)
        ranges_give(r->unmoved, range->twin, 0);
    r->live_bytes -= range->bytes;
    r->live_count--;
    become(r, range, RANGE_FREE, epoch);
}

void ranges_map(struct ranges *r, uint64_t start, uint64_t bytes, uint64_t epoch)
{
    become(r, carve(r, ranges_at(r, start), start, bytes), RANGE_FREE, epoch);
}

void ranges_unmap(struct ranges *r, uint64_t start, uint64_t bytes)
{
    become(r, carve(r, ranges_at(r, start), start, bytes), RANGE_HOLE, 0);
}

void ranges_retire(struct ranges *r, uint64_t start, uint64_t bytes)
{
    carve(r, ranges_at(r, start), start, bytes)->state = RANGE_DEAD;
}

void ranges_revive(struct ranges *r, uint64_t start, uint64_t epoch)
{
    become(r, ranges_at(r, start), RANGE_FREE, epoch);
}

void ranges_unmap_dead(struct ranges *r, uint64_t start)
{
    become(r, ranges_at(r, start), RANGE_HOLE, 0);
}

/* Returns the largest free range of one zone. */
static uint64_t largest_in(const struct ranges *r, enum ranges_zone zone)
{
    uint64_t largest = 0;
    unsigned bin = RANGES_BINS;

    while (bin > 0 && !r->bins[zone][bin - 1])
        bin--;
    for (const struct range *f = bin ? r->bins[zone][bin - 1] : NULL; f; f = f->next)
        largest = f->bytes > largest ? f->bytes : largest;
    return largest;
}

uint64_t ranges_largest(const struct ranges *r)
{
    const uint64_t small = largest_in(r, RANGES_SMALL), large = largest_in(r, RANGES_LARGE);

    return small > large ? small : large;
}

/* ---- planning ---- */

static uint64_t page_up(uint64_t bytes)
{
    return (bytes + RANGES_PAGE - 1) & ~(RANGES_PAGE - 1);
}

static void better(struct ranges_plan *plan, bool *found, struct ranges_plan candidate)
{
    if (!*found || candidate.map_bytes < plan->map_bytes ||
        (candidate.map_bytes == plan->map_bytes && candidate.start < plan->start)) {
        *plan = candidate;
        *found = true;
    }
}

/* Tries the ways to fit a block around one hole: extend the free range below it upwards, map the whole hole,
 * or extend the free range above it downwards. */
static void plan_at(const struct ranges *r, const struct range *hole, uint64_t bytes,
                    struct ranges_plan *plan, bool *found)
{
    const struct range *low = hole->start == r->border ? NULL : hole->lower, *high = hole->upper;
    const uint64_t below = low && low->state == RANGE_FREE ? low->bytes : 0;
    const uint64_t above = high && high->start != r->border && high->state == RANGE_FREE ? high->bytes : 0;
    const uint64_t end = hole->start + hole->bytes;

    if (bytes > below && page_up(bytes - below) <= hole->bytes)
        better(plan, found, (struct ranges_plan){hole->start - below, hole->start, page_up(bytes - below)});
    else if (below + hole->bytes + above >= bytes)
        better(plan, found, (struct ranges_plan){hole->start - below, hole->start, hole->bytes});
    if (above && bytes > above && page_up(bytes - above) <= hole->bytes) {
        uint64_t map = page_up(bytes - above);

        better(plan, found, (struct ranges_plan){end - map, end - map, map});
    }
}

bool ranges_plan(const struct ranges *r, enum ranges_zone zone, uint64_t bytes, struct ranges_plan *plan)
{
    bool found = false;

    for (const struct range *hole = r->holes[zone]; hole; hole = hole->next)
        plan_at(r, hole, bytes, plan, &found);
    return found;
}

uint64_t ranges_unmoved(const struct ranges *r, enum ranges_zone zone, uint64_t bytes)
{
    const struct ranges *unmoved = r->unmoved;
    const uint64_t mapped = unmoved->live_bytes + unmoved->free_bytes;
    struct ranges_plan plan = {.map_bytes = 0};

    if (!range_best_fit(unmoved, zone, bytes))
        ranges_plan(unmoved, zone, bytes, &plan);
    return mapped + plan.map_bytes;
}

/* ---- the whole ---- */

int ranges_init(struct ranges *r, uint64_t base, uint64_t span)
{
    memset(r, 0, sizeof(*r));
    r->base = base;
    r->span = span;
    if (range_nodes_open(r))
        return -ENOMEM;
    if (ranges_prepare(r, RANGES_ZONES)) {
        range_nodes_close(r);
        return -ENOMEM;
    }
    r->border = base + span / RANGES_SMALL_PART / RANGES_PAGE * RANGES_PAGE;
    r->first = range_new(r, base, r->border - base, RANGE_HOLE);
    r->first->upper = range_new(r, r->border, base + span - r->border, RANGE_HOLE);
    r->first->upper->lower = r->first;
    range_hole_add(r, r->first);
    range_hole_add(r, r->first->upper);
    return 0;
}

void ranges_destroy(struct ranges *r)
{
    range_nodes_close(r);
    memset(r, 0, sizeof(*r));
}

/* ---- check ---- */

/* What there is by address, for comparison with the lists and sums. */
struct counts {
    struct range_counts listed;
    uint64_t live, live_bytes, nodes;
};

/* Checks one node and its upper neighbour. */
static const char *check_node(const struct ranges *r, const struct range *n)
{
    const bool whole = n->state == RANGE_HOLE || n->state == RANGE_DEAD;

    if (!n->bytes || n->bytes % RANGES_UNIT || n->start % RANGES_UNIT)
        return "a range is not a multiple of the unit";
    if (n->upper && (n->upper->start != n->start + n->bytes || n->upper->lower != n))
        return "neighbours do not meet";
    if (n->start < r->border && n->start + n->bytes > r->border)
        return "a range crosses the border of the zones";
    if ((n->state == RANGE_FREE || n->state == RANGE_HOLE) && may_join(r, n, n->upper))
        return "neighbours of one kind are apart";
    if (!range_hint_is_right(r, n))
        return "a hint leads elsewhere";
    if (ranges_at(r, n->start) != n || ranges_at(r, n->start + n->bytes - 1) != n)
        return "a range is not found by its address";
    if (whole && (n->start % RANGES_PAGE || n->bytes % RANGES_PAGE))
        return "a hole or a dead range is not made of pages";
    return NULL;
}

static const char *check_nodes(const struct ranges *r, struct counts *counted)
{
    const char *wrong = NULL;

    for (const struct range *n = r->first; n && !wrong; n = n->upper) {
        wrong = check_node(r, n);
        counted->nodes++;
        counted->listed.free += n->state == RANGE_FREE;
        counted->listed.free_bytes += n->state == RANGE_FREE ? n->bytes : 0;
        counted->listed.pages += n->state == RANGE_FREE && n->bytes >= RANGES_PAGE;
        counted->listed.holes += n->state == RANGE_HOLE;
        counted->live += n->state == RANGE_LIVE;
        counted->live_bytes += n->state == RANGE_LIVE ? n->bytes : 0;
    }
    return wrong;
}

const char *ranges_check(const struct ranges *r)
{
    struct range_counts listed = {0};
    struct counts counted = {.nodes = 0};
    const char *wrong = range_lists_check(r, &listed);

    wrong = wrong ? wrong : check_nodes(r, &counted);
    if (wrong)
        return wrong;
    if (listed.free != counted.listed.free || listed.free_bytes != counted.listed.free_bytes ||
        listed.pages != counted.listed.pages || listed.holes != counted.listed.holes)
        return "the lists do not hold what the address space does";
    if (counted.listed.free_bytes != r->free_bytes || counted.live != r->live_count ||
        counted.live_bytes != r->live_bytes || counted.nodes != r->nodes)
        return "the sums are wrong";
    return NULL;
}
