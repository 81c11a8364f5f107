/* snapshot: see snapshot.h. */
#include "tools/gpucap/snapshot.h"

#include <stdlib.h>
#include <string.h>

#define HANDLES_AT (UINT64_C(1) << 50)

/* What is held beside blocks, with the item that stands for it now. */
enum { CONTEXT, UNNAMED, FIGURES };

struct builder {
    struct snapshot *snapshot;
    uint64_t next;             /* place for a handle or a figure */
    uint32_t figures[FIGURES]; /* items, SNAPSHOT_NONE: none */
};

static bool has_address(const struct timeline_block *block)
{
    return block->kind != RECORDING_VMM && block->kind != RECORDING_ARRAY && block->kind != RECORDING_GRAPH;
}

static uint64_t take_place(struct builder *builder, uint64_t bytes)
{
    const uint64_t place = builder->next;

    builder->next += (bytes / SNAPSHOT_GAP + 3) * SNAPSHOT_GAP;
    if (builder->next >= RECORDING_BYTES_MAX - RECORDING_BYTES_MAX / 8) /* an invalid recording */
        builder->next = HANDLES_AT;
    return place;
}

static void add_blocks(struct builder *builder)
{
    const struct timeline *timeline = builder->snapshot->timeline;

    for (size_t i = 0; i < timeline->block_count; i++) {
        const struct timeline_block *block = &timeline->blocks[i];
        struct snapshot_item *item = &builder->snapshot->items[i];

        *item = (struct snapshot_item){.stream = block->stream,
                                       .stack = block->stack,
                                       .owner = block->owner,
                                       .tag = block->tag,
                                       .kind = block->kind,
                                       .last = SNAPSHOT_NONE};
        if (block->kind == RECORDING_IMPORT || !block->bytes)
            continue;
        item->bytes = block->bytes < HANDLES_AT ? block->bytes : HANDLES_AT;
        item->place = has_address(block) ? block->address % HANDLES_AT : take_place(builder, item->bytes);
    }
    builder->snapshot->item_count = (uint32_t)timeline->block_count;
}

static void add_move(struct snapshot *snapshot, uint64_t time_ns, uint32_t item, bool free)
{
    if (!snapshot->items[item].bytes)
        return;
    *(free ? &snapshot->items[item].last : &snapshot->items[item].first) = snapshot->move_count;
    snapshot->moves[snapshot->move_count++] =
        (struct snapshot_move){time_ns, item, SNAPSHOT_NONE, SNAPSHOT_NONE, free};
}

/* Replaces the item of a figure by a new one. */
static void add_figure(struct builder *builder, const struct timeline_step *step, int figure)
{
    static const char *const names[FIGURES] = {"CUDA context", "not named"};
    struct snapshot *snapshot = builder->snapshot;
    const uint64_t bytes = step->value < HANDLES_AT ? step->value : HANDLES_AT;
    const uint32_t old = builder->figures[figure], item = snapshot->item_count;

    if ((old == SNAPSHOT_NONE ? 0 : snapshot->items[old].bytes) == bytes)
        return;
    if (old != SNAPSHOT_NONE)
        add_move(snapshot, step->time_ns, old, true);
    builder->figures[figure] = SNAPSHOT_NONE;
    if (!bytes)
        return;
    snapshot->items[snapshot->item_count++] = (struct snapshot_item){
        .place = take_place(builder, bytes), .bytes = bytes, .figure = names[figure], .last = SNAPSHOT_NONE};
    builder->figures[figure] = item;
    add_move(snapshot, step->time_ns, item, false);
}

static void add_moves(struct builder *builder)
{
    const struct timeline *timeline = builder->snapshot->timeline;

    for (size_t i = 0; i < timeline->step_count; i++) {
        const struct timeline_step *step = &timeline->steps[i];

        if (step->change <= TIMELINE_FREE)
            add_move(builder->snapshot, step->time_ns, step->block, step->change == TIMELINE_FREE);
        else if (step->change == TIMELINE_CONTEXT)
            add_figure(builder, step, CONTEXT);
        else if (step->change == TIMELINE_UNNAMED)
            add_figure(builder, step, UNNAMED);
    }
}

/* ---- segments ---- */

static int by_place(const void *a, const void *b, void *context)
{
    const struct snapshot_item *items = context;
    const uint64_t x = items[*(const uint32_t *)a].place, y = items[*(const uint32_t *)b].place;

    return (x > y) - (x < y);
}

static void open_and_close(struct snapshot *snapshot, uint32_t segment, uint32_t first, uint32_t last)
{
    snapshot->segments[segment].stays = last == SNAPSHOT_NONE;
    snapshot->moves[first].opens = segment;
    if (last != SNAPSHOT_NONE)
        snapshot->moves[last].closes = segment;
}

static void add_segments(struct snapshot *snapshot)
{
    for (uint32_t i = 0; i < snapshot->order_count;) {
        const uint64_t from = snapshot->items[snapshot->order[i]].place;
        uint32_t end = i, first = SNAPSHOT_NONE, last = 0;
        uint64_t to = from;

        for (; end < snapshot->order_count; end++) {
            const struct snapshot_item *item = &snapshot->items[snapshot->order[end]];

            if (item->place > to + SNAPSHOT_GAP)
                break;
            to = item->place + item->bytes > to ? item->place + item->bytes : to;
            first = item->first < first ? item->first : first;
            last = item->last > last ? item->last : last;
        }
        snapshot->segments[snapshot->segment_count] =
            (struct snapshot_segment){.from = from, .to = to, .first = i, .count = end - i};
        open_and_close(snapshot, snapshot->segment_count++, first, last);
        i = end;
    }
}

bool snapshot_open(struct snapshot *snapshot, const struct timeline *timeline)
{
    struct builder builder = {snapshot, HANDLES_AT, {SNAPSHOT_NONE, SNAPSHOT_NONE}};
    const size_t most = timeline->block_count + timeline->step_count + 1;

    memset(snapshot, 0, sizeof(*snapshot));
    snapshot->timeline = timeline;
    snapshot->items = calloc(most, sizeof(*snapshot->items));
    snapshot->moves = calloc(2 * timeline->step_count + 1, sizeof(*snapshot->moves));
    snapshot->order = calloc(most, sizeof(*snapshot->order));
    snapshot->segments = calloc(most, sizeof(*snapshot->segments));
    if (!snapshot->items || !snapshot->moves || !snapshot->order || !snapshot->segments ||
        most > SNAPSHOT_NONE / 2) {
        snapshot_close(snapshot);
        return false;
    }
    add_blocks(&builder);
    add_moves(&builder);
    for (uint32_t i = 0; i < snapshot->item_count; i++) {
        if (snapshot->items[i].bytes)
            snapshot->order[snapshot->order_count++] = i;
    }
    qsort_r(snapshot->order, snapshot->order_count, sizeof(*snapshot->order), by_place, snapshot->items);
    add_segments(snapshot);
    return true;
}

void snapshot_close(struct snapshot *snapshot)
{
    free(snapshot->items);
    free(snapshot->moves);
    free(snapshot->order);
    free(snapshot->segments);
    memset(snapshot, 0, sizeof(*snapshot));
}
