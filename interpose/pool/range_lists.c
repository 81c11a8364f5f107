/* range_lists: see range_lists.h. */
#include "interpose/pool/range_lists.h"

#define EXACT_BINS   64 /* one for each number of units below this */
#define SUB_BITS     5  /* 32 bins to each doubling above */
#define SEARCH_LIMIT 32 /* ranges of one bin that are compared for the best fit */

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
    const enum ranges_zone zone = range_zone(r, node);
    const unsigned bin = bin_of(node->bytes);

    push(&r->bins[zone][bin], node);
    r->bin_map[zone][bin / 64] |= UINT64_C(1) << bin % 64;
}

static void bin_remove(struct ranges *r, struct range *node)
{
    const enum ranges_zone zone = range_zone(r, node);
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

/* Returns true if only the hole at the end of the zone follows. */
static bool is_last(const struct ranges *r, const struct range *f)
{
    const struct range *hole = f->upper;

    return r->roomy && hole && hole->state == RANGE_HOLE && (!hole->upper || hole->upper->start == r->border);
}

/* Returns the smallest of the first `limit` ranges in a bin that fits, the lowest among equals, which keeps
 * high addresses free. The last range of the zone, if it would be that, goes to *last instead. */
static struct range *best_in(const struct ranges *r, struct range *list, uint64_t bytes, uint64_t limit,
                             struct range **last)
{
    struct range *best = NULL;

    for (struct range *f = list; f && limit > 0; f = f->next, limit--) {
        if (f->bytes < bytes)
            continue;
        if (best && (f->bytes > best->bytes || (f->bytes == best->bytes && f->start > best->start)))
            continue;
        if (is_last(r, f))
            *last = f;
        else
            best = f;
    }
    return best;
}

struct range *range_best_fit(const struct ranges *r, enum ranges_zone zone, uint64_t bytes)
{
    const unsigned own = bin_of(bytes);
    struct range *best = NULL, *last = NULL;

    for (unsigned bin = own; !best && (bin = bin_next(r, zone, bin)) < RANGES_BINS; bin++)
        best = best_in(r, r->bins[zone][bin], bytes, SEARCH_LIMIT, &last);
    /* Only its own bin can hold ranges that are too small, so one that fits may come after the first `limit`.
     * Searching all of them is cheaper than new memory. */
    if (!best)
        best = best_in(r, r->bins[zone][own], bytes, UINT64_MAX, &last);
    return best ? best : last;
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

/* ---- all lists ---- */

void range_free_add(struct ranges *r, struct range *node, struct range *older)
{
    bin_add(r, node);
    age_add(r, node, older);
    r->free_bytes += node->bytes;
}

void range_free_remove(struct ranges *r, struct range *node)
{
    bin_remove(r, node);
    age_remove(r, node);
    r->free_bytes -= node->bytes;
}

struct range *range_free_cut(struct ranges *r, struct range *node, uint64_t bytes)
{
    bin_remove(r, node);
    struct range *cut = range_split(r, node, bytes);
    bin_add(r, node);
    r->free_bytes -= bytes;
    if (node->bytes < RANGES_PAGE)
        age_remove(r, node);
    return cut;
}

void range_hole_add(struct ranges *r, struct range *node)
{
    push(&r->holes[range_zone(r, node)], node);
}

void range_lists_remove(struct ranges *r, struct range *node)
{
    if (node->state == RANGE_FREE)
        range_free_remove(r, node);
    else
        unlink_from(&r->holes[range_zone(r, node)], node);
}

/* ---- check ---- */

static const char *check_bins(const struct ranges *r, enum ranges_zone zone, struct range_counts *seen)
{
    for (unsigned bin = 0; bin < RANGES_BINS; bin++) {
        const struct range *before = NULL;

        if (!r->bins[zone][bin] != !(r->bin_map[zone][bin / 64] >> bin % 64 & 1))
            return "the map of bins is wrong";
        for (const struct range *f = r->bins[zone][bin]; f; before = f, f = f->next) {
            if (f->state != RANGE_FREE || bin_of(f->bytes) != bin || range_zone(r, f) != zone ||
                f->prev != before)
                return "a bin holds what it should not";
            if (f->aged != (f->bytes >= RANGES_PAGE))
                return "a range is missing in the list by time, or too small for it";
            seen->free++;
            seen->free_bytes += f->bytes;
        }
    }
    for (const struct range *h = r->holes[zone]; h; h = h->next) {
        if (h->state != RANGE_HOLE || range_zone(r, h) != zone)
            return "the list of holes is wrong";
        seen->holes++;
    }
    return NULL;
}

static const char *check_ages(const struct ranges *r, struct range_counts *seen)
{
    const struct range *before = NULL;

    for (const struct range *f = r->oldest; f; before = f, f = f->newer) {
        if (!f->aged || f->state != RANGE_FREE || f->older != before)
            return "the list by time is wrong";
        seen->pages++;
    }
    return before == r->newest ? NULL : "the list by time ends elsewhere";
}

const char *range_lists_check(const struct ranges *r, struct range_counts *seen)
{
    const char *wrong = check_bins(r, RANGES_SMALL, seen);

    wrong = wrong ? wrong : check_bins(r, RANGES_LARGE, seen);
    return wrong ? wrong : check_ages(r, seen);
}
