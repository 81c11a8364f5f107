/* ranges: see ranges.h. */
#include "interpose/pool/ranges.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define SLAB_BYTES   (UINT64_C(256) << 10)
#define EXACT_BINS   64 /* one for each number of units below this */
#define SUB_BITS     5  /* 32 bins to each doubling above */
#define SEARCH_LIMIT 32 /* ranges of one bin that are compared for the best fit */

struct ranges_slab {
    struct ranges_slab *next;
    struct range nodes[];
};

#define SLAB_NODES ((SLAB_BYTES - sizeof(struct ranges_slab)) / sizeof(struct range))

/* ---- nodes ---- */

static int add_slab(struct ranges *r)
{
    struct ranges_slab *slab =
        mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (slab == MAP_FAILED)
        return -ENOMEM;
    slab->next = r->slabs;
    r->slabs = slab;
    for (size_t i = SLAB_NODES; i-- > 0;) {
        slab->nodes[i].next = r->spare;
        r->spare = &slab->nodes[i];
    }
    r->spares += SLAB_NODES;
    return 0;
}

int ranges_prepare(struct ranges *r, unsigned count)
{
    while (r->spares < count) {
        if (add_slab(r))
            return -ENOMEM;
    }
    return 0;
}

/* ---- by address ----
 *
 * A bit for each page says whether it has a hint, and bits above it which words of bits are not 0. So the
 * nearest hint below an address is found in a few steps, however large the block around the address is.
 */

static uint64_t page_of(const struct ranges *r, uint64_t address)
{
    return (address - r->base) / RANGES_HINT;
}

static struct range *hint_at(const struct ranges *r, uint64_t address)
{
    return r->hints[page_of(r, address)];
}

static void set_hint(struct ranges *r, struct range *node)
{
    uint64_t i = page_of(r, node->start);

    r->hints[i] = node;
    for (int level = 0; level < RANGES_LEVELS; level++, i /= 64)
        r->hinted[level][i / 64] |= UINT64_C(1) << i % 64;
}

static void clear_hint(struct ranges *r, const struct range *node)
{
    uint64_t i = page_of(r, node->start);

    if (r->hints[i] != node)
        return;
    r->hints[i] = NULL;
    for (int level = 0; level < RANGES_LEVELS; level++, i /= 64) {
        if (r->hinted[level][i / 64] &= ~(UINT64_C(1) << i % 64))
            break;
    }
}

/* Returns the last page before `page` that has a hint; 0 if there is none. */
static uint64_t hinted_before(const struct ranges *r, uint64_t page)
{
    uint64_t i = page, bits = 0;
    int level = 0;

    for (; level < RANGES_LEVELS; level++, i /= 64) {
        bits = r->hinted[level][i / 64] & ((UINT64_C(1) << i % 64) - 1);
        if (bits)
            break;
    }
    if (!bits)
        return 0;
    i = i / 64 * 64 + 63 - (uint64_t)__builtin_clzll(bits);
    while (level-- > 0)
        i = i * 64 + 63 - (uint64_t)__builtin_clzll(r->hinted[level][i]);
    return i;
}

static struct range *new_node(struct ranges *r, uint64_t start, uint64_t bytes, enum range_state state)
{
    struct range *node = r->spare;

    r->spare = node->next;
    r->spares--;
    r->nodes++;
    /* Sets all but the mark: a thread may still compare its word with that of the block that used to be
     * here. */
    node->start = start;
    node->bytes = bytes;
    node->lower = node->upper = node->next = node->prev = node->older = node->newer = NULL;
    node->epoch = 0;
    node->state = state;
    node->aged = false;
    set_hint(r, node);
    return node;
}

static void drop_node(struct ranges *r, struct range *node)
{
    clear_hint(r, node);
    node->next = r->spare;
    r->spare = node;
    r->spares++;
    r->nodes--;
}

static enum ranges_zone zone_of(const struct ranges *r, const struct range *node)
{
    return node->start < r->border ? RANGES_SMALL : RANGES_LARGE;
}

/* ---- by size ---- */

static unsigned bin_of(uint64_t bytes)
{
    uint64_t units = bytes / RANGES_UNIT;

    if (units < EXACT_BINS)
        return (unsigned)units;
    unsigned top = 63 - (unsigned)__builtin_clzll(units);
    unsigned sub = (unsigned)(units >> (top - SUB_BITS)) & ((1U << SUB_BITS) - 1);
    unsigned bin = EXACT_BINS + (top - 6) * (1U << SUB_BITS) + sub;
    return bin < RANGES_BINS ? bin : RANGES_BINS - 1;
}

static void push(struct range **list, struct range *node)
{
    node->prev = NULL;
    node->next = *list;
    if (*list)
        (*list)->prev = node;
    *list = node;
}

static void unlink_from(struct range **list, struct range *node)
{
    if (node->prev)
        node->prev->next = node->next;
    else
        *list = node->next;
    if (node->next)
        node->next->prev = node->prev;
}

static void bin_add(struct ranges *r, struct range *node)
{
    const enum ranges_zone zone = zone_of(r, node);
    const unsigned bin = bin_of(node->bytes);

    push(&r->bins[zone][bin], node);
    r->bin_map[zone][bin / 64] |= UINT64_C(1) << bin % 64;
}

static void bin_remove(struct ranges *r, struct range *node)
{
    const enum ranges_zone zone = zone_of(r, node);
    const unsigned bin = bin_of(node->bytes);

    unlink_from(&r->bins[zone][bin], node);
    if (!r->bins[zone][bin])
        r->bin_map[zone][bin / 64] &= ~(UINT64_C(1) << bin % 64);
}

/* Returns the first bin of a zone from `bin` on that is not empty, or RANGES_BINS. */
static unsigned bin_next(const struct ranges *r, enum ranges_zone zone, unsigned bin)
{
    const uint64_t *map = r->bin_map[zone];
    unsigned word = bin / 64;
    uint64_t bits;

    if (bin >= RANGES_BINS)
        return RANGES_BINS;
    bits = map[word] & ~UINT64_C(0) << bin % 64;
    while (!bits) {
        if (++word == sizeof(r->bin_map[zone]) / sizeof(*map))
            return RANGES_BINS;
        bits = map[word];
    }
    return word * 64 + (unsigned)__builtin_ctzll(bits);
}

/* Returns the smallest of the first `limit` ranges in a bin that fits, the lowest among equals, which keeps
 * high addresses free. */
static struct range *best_in(struct range *list, uint64_t bytes, uint64_t limit)
{
    struct range *best = NULL;

    for (struct range *f = list; f && limit > 0; f = f->next, limit--) {
        if (f->bytes < bytes)
            continue;
        if (!best || f->bytes < best->bytes || (f->bytes == best->bytes && f->start < best->start))
            best = f;
    }
    return best;
}

static struct range *best_fit(const struct ranges *r, enum ranges_zone zone, uint64_t bytes)
{
    const unsigned own = bin_of(bytes);
    struct range *best = NULL;

    for (unsigned bin = own; !best && (bin = bin_next(r, zone, bin)) < RANGES_BINS; bin++)
        best = best_in(r->bins[zone][bin], bytes, SEARCH_LIMIT);
    /* Only its own bin can hold ranges that are too small, so one that fits may come after the first `limit`.
     * Searching all of them is cheaper than new memory. */
    return best ? best : best_in(r->bins[zone][own], bytes, UINT64_MAX);
}

/* ---- by time ---- */

static void age_remove(struct ranges *r, struct range *node)
{
    if (!node->aged)
        return;
    *(node->older ? &node->older->newer : &r->oldest) = node->newer;
    *(node->newer ? &node->newer->older : &r->newest) = node->older;
    node->aged = false;
}

/* Inserts a node behind `older` in the list by time; NULL: as the oldest. */
static void age_add(struct ranges *r, struct range *node, struct range *older)
{
    if (node->bytes < RANGES_PAGE)
        return;
    node->older = older;
    node->newer = older ? older->newer : r->oldest;
    *(older ? &older->newer : &r->oldest) = node;
    *(node->newer ? &node->newer->older : &r->newest) = node;
    node->aged = true;
}

/* ---- state changes ---- */

static void free_add(struct ranges *r, struct range *node, struct range *older)
{
    bin_add(r, node);
    age_add(r, node, older);
    r->free_bytes += node->bytes;
}

static void free_remove(struct ranges *r, struct range *node)
{
    bin_remove(r, node);
    age_remove(r, node);
    r->free_bytes -= node->bytes;
}

/* Splits a node that is in no list at `offset`: returns a new node for the lower part; `node` keeps the upper
 * part. */
static struct range *split_lower(struct ranges *r, struct range *node, uint64_t offset)
{
    struct range *low = new_node(r, node->start, offset, node->state);

    low->epoch = node->epoch;
    low->lower = node->lower;
    low->upper = node;
    *(node->lower ? &node->lower->upper : &r->first) = low;
    node->lower = low;
    node->start += offset;
    node->bytes -= offset;
    set_hint(r, node);
    return low;
}

/* Merges two neighbours that are in no list into the lower node; the upper one is dropped. */
static struct range *join(struct ranges *r, struct range *low, struct range *high)
{
    low->bytes += high->bytes;
    if (high->epoch > low->epoch)
        low->epoch = high->epoch;
    low->upper = high->upper;
    if (high->upper)
        high->upper->lower = low;
    drop_node(r, high);
    return low;
}

/* Removes a free node or hole from its lists. */
static void lists_remove(struct ranges *r, struct range *node)
{
    if (node->state == RANGE_FREE)
        free_remove(r, node);
    else
        unlink_from(&r->holes[zone_of(r, node)], node);
}

static bool may_join(const struct ranges *r, const struct range *low, const struct range *high)
{
    return low && high && low->state == high->state && high->start != r->border;
}

/* Merges a free node or hole, which is in no list, with neighbours of its state, and enters the result into
 * the lists. */
static void settle(struct ranges *r, struct range *node)
{
    struct range *low = node->lower, *high = node->upper;

    if (may_join(r, low, node)) {
        lists_remove(r, low);
        node = join(r, low, node);
    }
    if (may_join(r, node, high)) {
        lists_remove(r, high);
        node = join(r, node, high);
    }
    if (node->state == RANGE_FREE)
        free_add(r, node, r->newest);
    else
        push(&r->holes[zone_of(r, node)], node);
}

/* Removes a node from its lists and cuts it down to [start, start + bytes). The parts cut off return to the
 * lists with the same state and age. */
static struct range *carve(struct ranges *r, struct range *node, uint64_t start, uint64_t bytes)
{
    const enum range_state state = node->state;
    struct range *rest = NULL, *low = NULL;
    struct range *older = node->aged ? node->older : r->newest;

    lists_remove(r, node);
    if (start > node->start)
        low = split_lower(r, node, start - node->start);
    if (node->bytes > bytes) {
        rest = node;
        node = split_lower(r, node, bytes);
    }
    for (int i = 0; i < 2; i++) {
        struct range *part = i ? rest : low;

        if (part && state == RANGE_FREE)
            free_add(r, part, older);
        else if (part)
            push(&r->holes[zone_of(r, part)], part);
    }
    return node;
}

static struct range *make_live(struct ranges *r, struct range *node)
{
    node->state = RANGE_LIVE;
    node->mark.pins = 0;
    r->live_bytes += node->bytes;
    r->live_count++;
    return node;
}

uint64_t ranges_best(const struct ranges *r, enum ranges_zone zone, uint64_t bytes)
{
    const struct range *best = best_fit(r, zone, bytes);

    return best ? best->bytes : 0;
}

struct range *ranges_take(struct ranges *r, enum ranges_zone zone, uint64_t bytes)
{
    struct range *best = best_fit(r, zone, bytes);

    if (!best)
        return NULL;
    if (best->bytes == bytes) {
        free_remove(r, best);
        return make_live(r, best);
    }
    /* The remainder keeps its age: it was not freed just now. */
    bin_remove(r, best);
    struct range *block = split_lower(r, best, bytes);
    bin_add(r, best);
    r->free_bytes -= bytes;
    if (best->bytes < RANGES_PAGE)
        age_remove(r, best);
    return make_live(r, block);
}

static uint64_t aligned_up(uint64_t address, uint64_t alignment)
{
    return (address + alignment - 1) & ~(alignment - 1);
}

struct range *ranges_take_aligned(struct ranges *r, enum ranges_zone zone, uint64_t bytes, uint64_t alignment)
{
    struct range *best = best_fit(r, zone, bytes);

    /* The best fit may happen to be aligned; one with room for every alignment always is. */
    if (best && aligned_up(best->start, alignment) + bytes > best->start + best->bytes)
        best = best_fit(r, zone, bytes + alignment - RANGES_UNIT);
    if (!best)
        return NULL;
    return make_live(r, carve(r, best, aligned_up(best->start, alignment), bytes));
}

struct range *ranges_take_at(struct ranges *r, uint64_t start, uint64_t bytes)
{
    struct range *node = ranges_at(r, start);

    return make_live(r, carve(r, node, start, bytes));
}

void ranges_give(struct ranges *r, struct range *range, uint64_t epoch)
{
    r->live_bytes -= range->bytes;
    r->live_count--;
    range->state = RANGE_FREE;
    range->epoch = epoch;
    settle(r, range);
}

void ranges_map(struct ranges *r, uint64_t start, uint64_t bytes, uint64_t epoch)
{
    struct range *node = carve(r, ranges_at(r, start), start, bytes);

    node->state = RANGE_FREE;
    node->epoch = epoch;
    settle(r, node);
}

void ranges_unmap(struct ranges *r, uint64_t start, uint64_t bytes)
{
    struct range *node = carve(r, ranges_at(r, start), start, bytes);

    node->state = RANGE_HOLE;
    settle(r, node);
}

void ranges_retire(struct ranges *r, uint64_t start, uint64_t bytes)
{
    carve(r, ranges_at(r, start), start, bytes)->state = RANGE_DEAD;
}

void ranges_revive(struct ranges *r, uint64_t start, uint64_t epoch)
{
    struct range *node = ranges_at(r, start);

    node->state = RANGE_FREE;
    node->epoch = epoch;
    settle(r, node);
}

void ranges_unmap_dead(struct ranges *r, uint64_t start)
{
    struct range *node = ranges_at(r, start);

    node->state = RANGE_HOLE;
    settle(r, node);
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

/* ---- the whole ---- */

/* Returns the number of words of one level with `bits` bits. */
static uint64_t words_of(uint64_t bits)
{
    return bits / 64 + 1;
}

static uint64_t hint_bytes(uint64_t span)
{
    const uint64_t pages = span / RANGES_HINT + 1;
    uint64_t bytes = pages * sizeof(struct range *);

    for (uint64_t level = 0, bits = pages; level < RANGES_LEVELS; level++, bits = words_of(bits))
        bytes += words_of(bits) * sizeof(uint64_t);
    return bytes;
}

/* Maps the hints and the bits above them as one piece of memory, touched only where there are ranges. */
static int map_hints(struct ranges *r)
{
    const uint64_t pages = r->span / RANGES_HINT + 1;

    r->hints = mmap(NULL, hint_bytes(r->span), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r->hints == MAP_FAILED)
        return -ENOMEM;
    uint64_t *at = (uint64_t *)(r->hints + pages);
    for (uint64_t level = 0, bits = pages; level < RANGES_LEVELS; level++, bits = words_of(bits)) {
        r->hinted[level] = at;
        at += words_of(bits);
    }
    return 0;
}

int ranges_init(struct ranges *r, uint64_t base, uint64_t span)
{
    memset(r, 0, sizeof(*r));
    r->base = base;
    r->span = span;
    if (map_hints(r))
        return -ENOMEM;
    if (ranges_prepare(r, RANGES_ZONES)) {
        munmap(r->hints, hint_bytes(span));
        return -ENOMEM;
    }
    r->border = base + span / RANGES_SMALL_PART / RANGES_PAGE * RANGES_PAGE;
    r->first = new_node(r, base, r->border - base, RANGE_HOLE);
    r->first->upper = new_node(r, r->border, base + span - r->border, RANGE_HOLE);
    r->first->upper->lower = r->first;
    push(&r->holes[RANGES_SMALL], r->first);
    push(&r->holes[RANGES_LARGE], r->first->upper);
    return 0;
}

void ranges_destroy(struct ranges *r)
{
    while (r->slabs) {
        struct ranges_slab *slab = r->slabs;

        r->slabs = slab->next;
        munmap(slab, SLAB_BYTES);
    }
    if (r->hints)
        munmap(r->hints, hint_bytes(r->span));
    memset(r, 0, sizeof(*r));
}

struct range *ranges_at(const struct ranges *r, uint64_t address)
{
    if (address - r->base >= r->span)
        return NULL;
    struct range *node = hint_at(r, address);
    if (!node || node->start > address)
        node = r->hints[hinted_before(r, page_of(r, address))];
    node = node && node->start <= address ? node : r->first;
    while (address - node->start >= node->bytes)
        node = node->upper;
    return node;
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

/* ---- check ---- */

/* Sums that ranges_check computes in two ways and compares. */
struct counts {
    uint64_t free, free_bytes, pages, holes, live, live_bytes, nodes;
};

static const char *check_bins(const struct ranges *r, enum ranges_zone zone, struct counts *seen)
{
    for (unsigned bin = 0; bin < RANGES_BINS; bin++) {
        const struct range *before = NULL;

        if (!r->bins[zone][bin] != !(r->bin_map[zone][bin / 64] >> bin % 64 & 1))
            return "the map of bins is wrong";
        for (const struct range *f = r->bins[zone][bin]; f; before = f, f = f->next) {
            if (f->state != RANGE_FREE || bin_of(f->bytes) != bin || zone_of(r, f) != zone ||
                f->prev != before)
                return "a bin holds what it should not";
            if (f->aged != (f->bytes >= RANGES_PAGE))
                return "a range is missing in the list by time, or too small for it";
            seen->free++;
            seen->free_bytes += f->bytes;
        }
    }
    for (const struct range *h = r->holes[zone]; h; h = h->next) {
        if (h->state != RANGE_HOLE || zone_of(r, h) != zone)
            return "the list of holes is wrong";
        seen->holes++;
    }
    return NULL;
}

static const char *check_ages(const struct ranges *r, struct counts *seen)
{
    const struct range *before = NULL;

    for (const struct range *f = r->oldest; f; before = f, f = f->newer) {
        if (!f->aged || f->state != RANGE_FREE || f->older != before)
            return "the list by time is wrong";
        seen->pages++;
    }
    return before == r->newest ? NULL : "the list by time ends elsewhere";
}

/* Checks one node and its upper neighbour. */
static const char *check_node(const struct ranges *r, const struct range *n)
{
    const struct range *hint = hint_at(r, n->start);
    const bool whole = n->state == RANGE_HOLE || n->state == RANGE_DEAD;

    if (!n->bytes || n->bytes % RANGES_UNIT || n->start % RANGES_UNIT)
        return "a range is not a multiple of the unit";
    if (n->upper && (n->upper->start != n->start + n->bytes || n->upper->lower != n))
        return "neighbours do not meet";
    if (n->start < r->border && n->start + n->bytes > r->border)
        return "a range crosses the border of the zones";
    if ((n->state == RANGE_FREE || n->state == RANGE_HOLE) && may_join(r, n, n->upper))
        return "neighbours of one kind are apart";
    if (hint && (hint->start < r->base || page_of(r, hint->start) != page_of(r, n->start)))
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
        counted->free += n->state == RANGE_FREE;
        counted->free_bytes += n->state == RANGE_FREE ? n->bytes : 0;
        counted->pages += n->state == RANGE_FREE && n->bytes >= RANGES_PAGE;
        counted->holes += n->state == RANGE_HOLE;
        counted->live += n->state == RANGE_LIVE;
        counted->live_bytes += n->state == RANGE_LIVE ? n->bytes : 0;
    }
    return wrong;
}

const char *ranges_check(const struct ranges *r)
{
    struct counts listed = {0}, counted = {0};
    const char *wrong = check_bins(r, RANGES_SMALL, &listed);

    wrong = wrong ? wrong : check_bins(r, RANGES_LARGE, &listed);
    wrong = wrong ? wrong : check_ages(r, &listed);
    wrong = wrong ? wrong : check_nodes(r, &counted);
    if (wrong)
        return wrong;
    if (listed.free != counted.free || listed.free_bytes != counted.free_bytes ||
        listed.pages != counted.pages || listed.holes != counted.holes)
        return "the lists do not hold what the address space does";
    if (counted.free_bytes != r->free_bytes || counted.live != r->live_count ||
        counted.live_bytes != r->live_bytes || counted.nodes != r->nodes)
        return "the sums are wrong";
    return NULL;
}
