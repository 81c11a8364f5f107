/* ranges: see ranges.h. */
#include "ranges.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define SLAB_BYTES   (UINT64_C(256) << 10)
#define EXACT_BINS   64 /* one for each number of units below this */
#define SUB_BITS     5  /* 32 bins to each doubling above */
#define SEARCH_LIMIT 32 /* how many ranges of one bin are compared for the best fit */

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

static struct range **hint_of(const struct ranges *r, uint64_t address)
{
    return &r->hints[(address - r->base) / RANGES_HINT];
}

static struct range *new_node(struct ranges *r, uint64_t start, uint64_t bytes, enum range_state state)
{
    struct range *node = r->spare;

    r->spare = node->next;
    r->spares--;
    r->nodes++;
    /* All but the mark: a thread may still compare a word with that of the block that once was here. */
    node->start = start;
    node->bytes = bytes;
    node->lower = node->upper = node->next = node->prev = node->older = node->newer = NULL;
    node->epoch = 0;
    node->state = state;
    node->aged = false;
    *hint_of(r, start) = node;
    return node;
}

static void drop_node(struct ranges *r, struct range *node)
{
    if (*hint_of(r, node->start) == node)
        *hint_of(r, node->start) = NULL;
    node->next = r->spare;
    r->spare = node;
    r->spares++;
    r->nodes--;
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
    unsigned bin = bin_of(node->bytes);

    push(&r->bins[bin], node);
    r->bin_map[bin / 64] |= UINT64_C(1) << bin % 64;
}

static void bin_remove(struct ranges *r, struct range *node)
{
    unsigned bin = bin_of(node->bytes);

    unlink_from(&r->bins[bin], node);
    if (!r->bins[bin])
        r->bin_map[bin / 64] &= ~(UINT64_C(1) << bin % 64);
}

/* The first bin at or after `bin` that holds something, or RANGES_BINS. */
static unsigned bin_next(const struct ranges *r, unsigned bin)
{
    unsigned word = bin / 64;
    uint64_t bits;

    if (bin >= RANGES_BINS)
        return RANGES_BINS;
    bits = r->bin_map[word] & ~UINT64_C(0) << bin % 64;
    while (!bits) {
        if (++word == sizeof r->bin_map / sizeof *r->bin_map)
            return RANGES_BINS;
        bits = r->bin_map[word];
    }
    return word * 64 + (unsigned)__builtin_ctzll(bits);
}

/* Of the first `limit` in a bin, the smallest that fits, lower addresses first among equals: keeps high ones
 * free. */
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

static struct range *best_fit(const struct ranges *r, uint64_t bytes)
{
    const unsigned own = bin_of(bytes);
    struct range *best = NULL;

    for (unsigned bin = own; !best && (bin = bin_next(r, bin)) < RANGES_BINS; bin++)
        best = best_in(r->bins[bin], bytes, SEARCH_LIMIT);
    /* Only its own bin can hold ranges that are too small, and one that fits behind more of them than were
     * looked at. Looking at all is cheaper than new memory. */
    return best ? best : best_in(r->bins[own], bytes, UINT64_MAX);
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

/* Behind `older` in the list by time; NULL: as the oldest. */
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

/* Cuts a node off at `offset`; the lower part is new, the given node keeps the upper part. In no list. */
static struct range *split_lower(struct ranges *r, struct range *node, uint64_t offset)
{
    struct range *low = new_node(r, node->start, offset, node->state);

    low->epoch = node->epoch;
    low->lower = node->lower;
    low->upper = node;
    *(node->lower ? &node->lower->upper : &r->first) = low;
    node->lower = low;
    if (*hint_of(r, node->start) == node)
        *hint_of(r, node->start) = low;
    node->start += offset;
    node->bytes -= offset;
    *hint_of(r, node->start) = node;
    return low;
}

/* Makes one node of two neighbours; the upper one goes. In no list. */
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

/* Joins a free node or hole, which is in no list, with neighbours of its kind, and enters the result into the
 * lists. */
static void settle(struct ranges *r, struct range *node)
{
    struct range *low = node->lower, *high = node->upper;

    if (low && low->state == node->state) {
        if (low->state == RANGE_FREE)
            free_remove(r, low);
        else
            unlink_from(&r->holes, low);
        node = join(r, low, node);
    }
    if (high && high->state == node->state) {
        if (high->state == RANGE_FREE)
            free_remove(r, high);
        else
            unlink_from(&r->holes, high);
        node = join(r, node, high);
    }
    if (node->state == RANGE_FREE)
        free_add(r, node, r->newest);
    else
        push(&r->holes, node);
}

/* Leaves the list, cut down to [start, start + bytes); what is cut off goes back into the lists as it was. */
static struct range *carve(struct ranges *r, struct range *node, uint64_t start, uint64_t bytes)
{
    const enum range_state state = node->state;
    struct range *rest = NULL, *low = NULL;
    struct range *older = node->aged ? node->older : r->newest;

    if (state == RANGE_FREE)
        free_remove(r, node);
    else
        unlink_from(&r->holes, node);
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
            push(&r->holes, part);
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

uint64_t ranges_best(const struct ranges *r, uint64_t bytes)
{
    const struct range *best = best_fit(r, bytes);

    return best ? best->bytes : 0;
}

struct range *ranges_take(struct ranges *r, uint64_t bytes)
{
    struct range *best = best_fit(r, bytes);

    if (!best)
        return NULL;
    if (best->bytes == bytes) {
        free_remove(r, best);
        return make_live(r, best);
    }
    /* The remainder keeps its place in time: it has not been freed just now. */
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

struct range *ranges_take_aligned(struct ranges *r, uint64_t bytes, uint64_t alignment)
{
    struct range *best = best_fit(r, bytes);

    /* The best may lie as it should; one with room for every alignment does. */
    if (best && aligned_up(best->start, alignment) + bytes > best->start + best->bytes)
        best = best_fit(r, bytes + alignment - RANGES_UNIT);
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

void ranges_bury(struct ranges *r, uint64_t start)
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

/* The ways to fit a block around one hole: over the free range below it, the whole of it, or into the one
 * above. */
static void plan_at(const struct range *hole, uint64_t bytes, struct ranges_plan *plan, bool *found)
{
    const struct range *low = hole->lower, *high = hole->upper;
    const uint64_t below = low && low->state == RANGE_FREE ? low->bytes : 0;
    const uint64_t above = high && high->state == RANGE_FREE ? high->bytes : 0;
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

bool ranges_plan(const struct ranges *r, uint64_t bytes, struct ranges_plan *plan)
{
    bool found = false;

    for (const struct range *hole = r->holes; hole; hole = hole->next)
        plan_at(hole, bytes, plan, &found);
    return found;
}

/* ---- the whole ---- */

static size_t hint_bytes(uint64_t span)
{
    return (span / RANGES_HINT + 1) * sizeof(struct range *);
}

int ranges_init(struct ranges *r, uint64_t base, uint64_t span)
{
    memset(r, 0, sizeof *r);
    r->base = base;
    r->span = span;
    r->hints = mmap(NULL, hint_bytes(span), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r->hints == MAP_FAILED)
        return -ENOMEM;
    if (ranges_prepare(r, 1)) {
        munmap(r->hints, hint_bytes(span));
        return -ENOMEM;
    }
    r->first = new_node(r, base, span, RANGE_HOLE);
    push(&r->holes, r->first);
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
    memset(r, 0, sizeof *r);
}

struct range *ranges_at(const struct ranges *r, uint64_t address)
{
    struct range *node = NULL;

    if (address - r->base >= r->span)
        return NULL;
    /* The nearest hint at or below, then upwards. */
    for (struct range **hint = hint_of(r, address); !node && hint >= r->hints; hint--)
        node = *hint && (*hint)->start <= address ? *hint : NULL;
    for (node = node ? node : r->first; address - node->start >= node->bytes;)
        node = node->upper;
    return node;
}

uint64_t ranges_largest(const struct ranges *r)
{
    uint64_t largest = 0;

    for (unsigned bin = RANGES_BINS; bin-- > 0;) {
        if (!r->bins[bin])
            continue;
        for (const struct range *f = r->bins[bin]; f; f = f->next)
            largest = f->bytes > largest ? f->bytes : largest;
        break;
    }
    return largest;
}

/* ---- check ---- */

static int check_bins(const struct ranges *r, uint64_t *binned, uint64_t *bytes)
{
    for (unsigned bin = 0; bin < RANGES_BINS; bin++) {
        if (!r->bins[bin] != !(r->bin_map[bin / 64] >> bin % 64 & 1))
            return __LINE__;
        for (const struct range *f = r->bins[bin], *before = NULL; f; before = f, f = f->next) {
            if (f->state != RANGE_FREE || bin_of(f->bytes) != bin || f->prev != before)
                return __LINE__;
            if (f->aged != (f->bytes >= RANGES_PAGE))
                return __LINE__;
            (*binned)++;
            *bytes += f->bytes;
        }
    }
    return 0;
}

static int check_ages(const struct ranges *r, uint64_t *aged)
{
    const struct range *before = NULL;

    for (const struct range *f = r->oldest; f; before = f, f = f->newer) {
        if (!f->aged || f->state != RANGE_FREE || f->older != before)
            return __LINE__;
        (*aged)++;
    }
    return before == r->newest ? 0 : __LINE__;
}

int ranges_check(const struct ranges *r)
{
    uint64_t binned = 0, binned_bytes = 0, aged = 0, free_count = 0, pages = 0, holes = 0, nodes = 0;
    uint64_t live_bytes = 0, live_count = 0, listed_holes = 0;
    int wrong = check_bins(r, &binned, &binned_bytes);

    if (wrong || (wrong = check_ages(r, &aged)))
        return wrong;
    for (const struct range *n = r->first; n; n = n->upper) {
        nodes++;
        if (!n->bytes || n->bytes % RANGES_UNIT || n->start % RANGES_UNIT)
            return __LINE__;
        if (n->upper && (n->upper->start != n->start + n->bytes || n->upper->lower != n))
            return __LINE__;
        if ((n->state == RANGE_FREE || n->state == RANGE_HOLE) && n->upper && n->upper->state == n->state)
            return __LINE__;
        const struct range *hint = *hint_of(r, n->start);
        if (hint && (hint->start < r->base || hint_of(r, hint->start) != hint_of(r, n->start)))
            return __LINE__;
        if ((n->state == RANGE_HOLE || n->state == RANGE_DEAD) &&
            (n->start % RANGES_PAGE || n->bytes % RANGES_PAGE))
            return __LINE__;
        free_count += n->state == RANGE_FREE;
        pages += n->state == RANGE_FREE && n->bytes >= RANGES_PAGE;
        holes += n->state == RANGE_HOLE;
        live_count += n->state == RANGE_LIVE;
        live_bytes += n->state == RANGE_LIVE ? n->bytes : 0;
    }
    for (const struct range *h = r->holes; h; h = h->next)
        listed_holes++;
    if (binned != free_count || binned_bytes != r->free_bytes || aged != pages || listed_holes != holes)
        return __LINE__;
    if (live_count != r->live_count || live_bytes != r->live_bytes || nodes != r->nodes)
        return __LINE__;
    return 0;
}
