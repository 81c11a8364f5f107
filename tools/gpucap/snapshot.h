/* snapshot: a timeline in the form of PyTorch's viewer, in which every block has a place and lies in a
 * segment at every moment. Pure: computed once from the timeline, no locks.
 *
 * Items are the blocks, the memory of the contexts themselves, and what the driver counts beyond these. So
 * the viewer's sum is the memory in use without idle memory. Handles and such figures have no addresses; they
 * get places above all others. A segment is a run of places without a gap of more than SNAPSHOT_GAP, from the
 * first item in it to the end of the last; so idle memory of a pool is part of it. */
#ifndef GPUCAP_SNAPSHOT_H
#define GPUCAP_SNAPSHOT_H

#include "tools/gpucap/timeline.h"

#define SNAPSHOT_GAP  (UINT64_C(2) << 20)
#define SNAPSHOT_NONE UINT32_MAX

struct snapshot_item {
    uint64_t place, bytes; /* 0 bytes: does not appear */
    uint64_t stream;
    const char *figure; /* its description if it is not a block, else NULL */
    uint32_t stack;
    uint32_t first, last; /* moves; last is SNAPSHOT_NONE if it is live at the end */
    uint16_t owner, tag;
    uint8_t kind;
};

struct snapshot_move {
    uint64_t time_ns;
    uint32_t item;
    uint32_t opens, closes; /* segments, SNAPSHOT_NONE: none */
    bool free;
};

struct snapshot_segment {
    uint64_t from, to;
    uint32_t first, count; /* items, in `order` */
    bool stays;            /* an item in it is live at the end */
};

struct snapshot {
    const struct timeline *timeline;
    struct snapshot_item *items;
    struct snapshot_move *moves;
    struct snapshot_segment *segments;
    uint32_t *order; /* items by place */
    uint32_t item_count, move_count, segment_count, order_count;
};

/* Returns false without memory; then the caller need not close it. The timeline must outlive the snapshot. */
bool snapshot_open(struct snapshot *snapshot, const struct timeline *timeline);
void snapshot_close(struct snapshot *snapshot);

#endif
