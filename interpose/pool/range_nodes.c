/* range_nodes: see range_nodes.h. */
#include "interpose/pool/range_nodes.h"

#include <errno.h>

#include "interpose/base/pages.h"

#define SLAB_BYTES (UINT64_C(256) << 10)

struct ranges_slab {
    struct ranges_slab *next;
    uint64_t begun; /* nodes that have been used before; the others have never been written */
    struct range nodes[];
};

#define SLAB_NODES ((SLAB_BYTES - sizeof(struct ranges_slab)) / sizeof(struct range))

/* ---- nodes ---- */

static void make_spare(struct ranges *r, struct range *node)
{
    node->next = r->spare;
    r->spare = node;
}

static int add_slab(struct ranges *r)
{
    struct ranges_slab *slab = pages_map(SLAB_BYTES), *before = r->slabs;

    if (!slab)
        return -ENOMEM;
    while (before && before->begun < SLAB_NODES)
        make_spare(r, &before->nodes[before->begun++]);
    slab->next = before;
    r->slabs = slab;
    r->spares += SLAB_NODES;
    return 0;
}

/* Returns a used node, or else the next of the newest slab: a small pool touches few pages. */
static struct range *take_spare(struct ranges *r)
{
    struct range *node = r->spare;

    if (node)
        r->spare = node->next;
    else
        node = &r->slabs->nodes[r->slabs->begun++];
    r->spares--;
    return node;
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
    return (address - r->base) / RANGES_PAGE;
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

bool range_hint_is_right(const struct ranges *r, const struct range *node)
{
    const struct range *hint = hint_at(r, node->start);

    return !hint || (hint->start >= r->base && page_of(r, hint->start) == page_of(r, node->start));
}

/* ---- changes ---- */

struct range *range_new(struct ranges *r, uint64_t start, uint64_t bytes, enum range_state state)
{
    struct range *node = take_spare(r);

    r->nodes++;
    /* Sets all but the mark: a thread may still compare its word with that of an earlier block here. */
    node->start = start;
    node->bytes = bytes;
    node->lower = node->upper = node->next = node->prev = node->older = node->newer = NULL;
    node->epoch = 0;
    node->state = state;
    node->aged = node->pending = false;
    set_hint(r, node);
    return node;
}

static void drop(struct ranges *r, struct range *node)
{
    clear_hint(r, node);
    make_spare(r, node);
    r->spares++;
    r->nodes--;
}

struct range *range_split(struct ranges *r, struct range *node, uint64_t offset)
{
    struct range *low = range_new(r, node->start, offset, node->state);

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

struct range *range_join(struct ranges *r, struct range *low, struct range *high)
{
    low->bytes += high->bytes;
    if (high->epoch > low->epoch)
        low->epoch = high->epoch;
    low->upper = high->upper;
    if (high->upper)
        high->upper->lower = low;
    drop(r, high);
    return low;
}

/* ---- the whole ---- */

/* Returns the number of words of one level with `bits` bits. */
static uint64_t words_of(uint64_t bits)
{
    return bits / 64 + 1;
}

static uint64_t hint_bytes(uint64_t span)
{
    const uint64_t pages = span / RANGES_PAGE + 1;
    uint64_t bytes = pages * sizeof(struct range *);

    for (uint64_t level = 0, bits = pages; level < RANGES_LEVELS; level++, bits = words_of(bits))
        bytes += words_of(bits) * sizeof(uint64_t);
    return bytes;
}

/* Maps the hints and the bits above them as one piece of memory, touched only where there are ranges. */
int range_nodes_open(struct ranges *r)
{
    const uint64_t pages = r->span / RANGES_PAGE + 1;

    r->hints = pages_map_sparse(hint_bytes(r->span));
    if (!r->hints)
        return -ENOMEM;
    uint64_t *at = (uint64_t *)(r->hints + pages);
    for (uint64_t level = 0, bits = pages; level < RANGES_LEVELS; level++, bits = words_of(bits)) {
        r->hinted[level] = at;
        at += words_of(bits);
    }
    return 0;
}

void range_nodes_close(struct ranges *r)
{
    while (r->slabs) {
        struct ranges_slab *slab = r->slabs;

        r->slabs = slab->next;
        munmap(slab, SLAB_BYTES);
    }
    if (r->hints)
        munmap(r->hints, hint_bytes(r->span));
}
