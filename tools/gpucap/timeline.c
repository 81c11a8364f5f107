/* timeline: see timeline.h. */
#include "tools/gpucap/timeline.h"

#include "interpose/base/table.h"

#include <stdlib.h>
#include <string.h>

#define CONTEXTS_MAX 256 /* of one device; others are ignored */

/* ---- building ---- */

/* A block that is live at an address. The numbers of handles (cuMemCreate, arrays, graphs) may be equal to
 * addresses and mean different blocks: their space is their kind. */
struct live {
    uint64_t address;
    uint32_t space, index;
};
static const struct table_of of_live = {sizeof(struct live), true};

struct builder {
    struct timeline *timeline;
    struct table map; /* of live blocks */
    struct timeline_state state;
    struct {
        uint64_t context, bytes;
    } contexts[CONTEXTS_MAX];
    size_t context_count;
    bool failed;
};

static uint32_t space_of(uint8_t kind)
{
    const bool handle = kind == RECORDING_VMM || kind == RECORDING_ARRAY || kind == RECORDING_GRAPH;

    return handle ? kind : RECORDING_MALLOC;
}

static void add_step(struct builder *builder, struct timeline_step step)
{
    struct timeline *timeline = builder->timeline;
    struct timeline_step *to =
        recording_room((void **)&timeline->steps, timeline->step_count, &timeline->step_room, sizeof(*to));

    if (!to) {
        builder->failed = true;
        return;
    }
    *to = step;
    timeline->step_count++;
    timeline_advance(&builder->state, timeline, to);
}

/* Ends the block at the event's address. Returns false if there is none. */
static bool end_block(struct builder *builder, const struct recording_event *event)
{
    struct live *found =
        table_find(&builder->map, &of_live, &(struct live){event->address, space_of(event->kind), 0});

    if (!found)
        return false;
    struct timeline_block *block = &builder->timeline->blocks[found->index];
    block->end_ns = event->time_ns;
    add_step(builder, (struct timeline_step){event->time_ns, block->bytes, found->index, TIMELINE_FREE, 0});
    table_erase(&builder->map, &of_live, found);
    return true;
}

static void add_block(struct builder *builder, const struct recording_event *event)
{
    struct timeline *timeline = builder->timeline;
    const struct live place = {event->address, space_of(event->kind), (uint32_t)timeline->block_count};

    if (event->bytes > RECORDING_BYTES_MAX - builder->state.live || timeline->block_count >= UINT32_MAX)
        return; /* the sum would be invalid */
    /* An earlier block there ends now: its release is missing. */
    end_block(builder, event);
    struct timeline_block *block = recording_room((void **)&timeline->blocks, timeline->block_count,
                                                  &timeline->block_room, sizeof(*block));
    if (!block || table_prepare(&builder->map, &of_live, 1)) {
        builder->failed = true;
        return;
    }
    table_put(&builder->map, &of_live, &place);
    *block = (struct timeline_block){
        .start_ns = event->time_ns,
        .end_ns = TIMELINE_NEVER,
        .address = event->address,
        .bytes = event->bytes,
        .stream = event->other,
        .stack = event->stack,
        .thread = event->thread,
        .owner = event->owner,
        .tag = event->tag,
        .kind = event->kind,
    };
    add_step(builder, (struct timeline_step){event->time_ns, event->bytes, (uint32_t)timeline->block_count++,
                                             TIMELINE_ALLOC, 0});
}

/* A measurement sets two figures: what contexts hold, and what idles in the driver's pools. Puts the one that
 * fell before the other, so that no memory counts in both. */
static void shrink_first(struct timeline *timeline)
{
    struct timeline_step *last = timeline->steps + timeline->step_count - 1;

    if (timeline->step_count < 2 || last[-1].change != TIMELINE_DRIVER || last[-1].time_ns != last->time_ns)
        return;
    const struct timeline_step context = *last;
    *last = last[-1];
    last[-1] = context;
}

/* All contexts together. */
static void set_context(struct builder *builder, const struct recording_event *event)
{
    size_t i = 0;
    uint64_t sum = 0;

    while (i < builder->context_count && builder->contexts[i].context != event->other)
        i++;
    if (i == CONTEXTS_MAX)
        return;
    builder->context_count += i == builder->context_count;
    builder->contexts[i].context = event->other;
    builder->contexts[i].bytes = event->bytes;
    for (i = 0; i < builder->context_count; i++)
        sum += builder->contexts[i].bytes;
    const bool less = sum < builder->state.context;
    if (sum >= RECORDING_BYTES_MAX)
        return;
    add_step(builder, (struct timeline_step){event->time_ns, sum, 0, TIMELINE_CONTEXT, 0});
    if (less && !builder->failed)
        shrink_first(builder->timeline);
}

/* Sets what the driver's figure has beyond all known memory. */
static void set_unnamed(struct builder *builder, const struct recording_event *event)
{
    const uint64_t known = timeline_used(&builder->state) - builder->state.unnamed;
    const uint64_t beyond = event->bytes > known ? event->bytes - known : 0;

    if (beyond != builder->state.unnamed)
        add_step(builder, (struct timeline_step){event->time_ns, beyond, 0, TIMELINE_UNNAMED, 0});
}

static void add_mark(struct builder *builder, const struct recording_event *event)
{
    struct timeline *timeline = builder->timeline;
    const struct recording_event **to =
        recording_room((void **)&timeline->marks, timeline->mark_count, &timeline->mark_room, sizeof(*to));

    if (!to) {
        builder->failed = true;
        return;
    }
    *to = event;
    timeline->mark_count++;
}

static void take_event(struct builder *builder, const struct recording_event *event)
{
    switch (event->head.type) {
    case RECORDING_ALLOC:
        add_block(builder, event);
        break;
    case RECORDING_FREE:
        builder->timeline->unmatched += !end_block(builder, event);
        break;
    case RECORDING_GROW:
    case RECORDING_TRIM:
        if (event->other < RECORDING_BYTES_MAX)
            add_step(builder, (struct timeline_step){event->time_ns, event->other, 0, TIMELINE_HELD, 0});
        break;
    case RECORDING_CONTEXT:
        if (event->bytes) /* 0: it has ended, measured or not */
            builder->timeline->measured = true;
        set_context(builder, event);
        break;
    case RECORDING_DRIVER:
        add_step(builder, (struct timeline_step){event->time_ns, event->bytes, 0, TIMELINE_DRIVER, 0});
        break;
    case RECORDING_USED:
        builder->timeline->measured = true;
        set_unnamed(builder, event);
        break;
    case RECORDING_LIMIT:
        add_step(builder, (struct timeline_step){
                              event->time_ns, event->bytes < RECORDING_BYTES_MAX ? event->bytes : TIMELINE_NO,
                              0, TIMELINE_LIMIT, (uint8_t)event->other});
        break;
    case RECORDING_STITCH:
    case RECORDING_LEND:
    case RECORDING_BORROW:
    case RECORDING_WAIT:
    case RECORDING_REFUSAL:
        add_mark(builder, event);
        break;
    default:
        break;
    }
}

static void find_peaks(struct timeline *timeline)
{
    struct timeline_state state = TIMELINE_START;
    uint64_t most_used = 0, live_then = 0, most_live = 0;

    for (size_t i = 0; i < timeline->step_count; i++) {
        timeline_advance(&state, timeline, &timeline->steps[i]);
        const uint64_t used = timeline_used(&state), named = timeline_named(&state);
        if (used > most_used || (used == most_used && named > live_then)) {
            most_used = used;
            live_then = named;
            timeline->peak = i + 1;
        }
        if (named > most_live) {
            most_live = named;
            timeline->live_peak = i + 1;
        }
    }
}

bool timeline_open(struct timeline *timeline, const struct recording *recording, uint16_t device)
{
    struct builder builder = {.timeline = timeline, .state = TIMELINE_START};

    memset(timeline, 0, sizeof(*timeline));
    timeline->recording = recording;
    timeline->device = device;
    if (recording->count)
        timeline->end_ns = recording->events[recording->count - 1].time_ns;
    for (size_t i = 0; i < recording->count && !builder.failed; i++) {
        if (recording->events[i].device == device)
            take_event(&builder, &recording->events[i]);
    }
    table_close(&builder.map, &of_live);
    if (builder.failed) {
        timeline_close(timeline);
        return false;
    }
    find_peaks(timeline);
    return true;
}

void timeline_close(struct timeline *timeline)
{
    free(timeline->blocks);
    free(timeline->steps);
    free((void *)timeline->marks);
    memset(timeline, 0, sizeof(*timeline));
}

static bool names_device(uint16_t type)
{
    return type != RECORDING_END && type != RECORDING_DROPPED;
}

size_t timeline_devices(const struct recording *recording, uint16_t *devices, size_t room)
{
    size_t count = 0;

    for (size_t i = 0; i < recording->count; i++) {
        const uint16_t device = recording->events[i].device;
        size_t at = 0;

        if (!names_device(recording->events[i].head.type))
            continue;
        while (at < count && devices[at] < device)
            at++;
        if ((at < count && devices[at] == device) || count == room)
            continue;
        memmove(devices + at + 1, devices + at, (count - at) * sizeof(*devices));
        devices[at] = device;
        count++;
    }
    return count;
}

/* ---- stepping ---- */

/* Returns false for memory that was opened from another process, where it counts. */
static bool counts_here(const struct timeline_block *block)
{
    return block->kind != RECORDING_IMPORT;
}

void timeline_advance(struct timeline_state *state, const struct timeline *timeline,
                      const struct timeline_step *step)
{
    const uint64_t pooled = timeline->blocks && timeline->block_count > step->block &&
                                    timeline->blocks[step->block].kind == RECORDING_MALLOC
                                ? step->value
                                : 0;

    switch (step->change) {
    case TIMELINE_ALLOC:
    case TIMELINE_FREE:
        if (!counts_here(&timeline->blocks[step->block]))
            break;
        state->live += step->change == TIMELINE_ALLOC ? step->value : -step->value;
        state->pool_live += step->change == TIMELINE_ALLOC ? pooled : -pooled;
        break;
    case TIMELINE_HELD:
        state->held = step->value;
        break;
    case TIMELINE_CONTEXT:
        state->context = step->value;
        break;
    case TIMELINE_UNNAMED:
        state->unnamed = step->value;
        break;
    case TIMELINE_DRIVER:
        state->driver = step->value;
        break;
    case TIMELINE_LIMIT:
        state->limit = step->value;
        state->limit_kind = step->limit;
        break;
    default:
        break;
    }
}

struct timeline_state timeline_state_after(const struct timeline *timeline, size_t steps)
{
    struct timeline_state state = TIMELINE_START;

    for (size_t i = 0; i < steps && i < timeline->step_count; i++)
        timeline_advance(&state, timeline, &timeline->steps[i]);
    return state;
}

size_t timeline_steps_until(const struct timeline *timeline, uint64_t time_ns)
{
    size_t low = 0, high = timeline->step_count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (timeline->steps[middle].time_ns <= time_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t timeline_idle(const struct timeline_state *state)
{
    return state->held > state->pool_live ? state->held - state->pool_live : 0;
}

uint64_t timeline_named(const struct timeline_state *state)
{
    return state->live + state->context + state->unnamed;
}

uint64_t timeline_used(const struct timeline_state *state)
{
    return timeline_named(state) + timeline_idle(state) + state->driver;
}

/* ---- who holds it ---- */

uint16_t timeline_id(const struct timeline_block *block, enum timeline_by by)
{
    return by == TIMELINE_BY_OWNER ? block->owner : by == TIMELINE_BY_TAG ? block->tag : block->kind;
}

static int largest_share(const void *a, const void *b)
{
    const struct timeline_share *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

size_t timeline_shares(const struct timeline *timeline, size_t steps, enum timeline_by by,
                       struct timeline_share **shares)
{
    size_t last = 0, count = 0;

    for (size_t i = 0; i < timeline->block_count; i++)
        last = timeline_id(&timeline->blocks[i], by) > last ? timeline_id(&timeline->blocks[i], by) : last;
    struct timeline_share *all = calloc(last + 1, sizeof(*all));

    *shares = all;
    if (!all)
        return 0;
    for (size_t i = 0; i < steps && i < timeline->step_count; i++) {
        const struct timeline_step *step = &timeline->steps[i];

        if (step->change > TIMELINE_FREE || !counts_here(&timeline->blocks[step->block]))
            continue;
        all[timeline_id(&timeline->blocks[step->block], by)].bytes +=
            step->change == TIMELINE_ALLOC ? step->value : -step->value;
    }
    for (size_t id = 0; id <= last; id++) {
        if (!all[id].bytes)
            continue;
        all[count] = all[id];
        all[count++].id = (uint16_t)id;
    }
    qsort(all, count, sizeof(*all), largest_share);
    return count;
}

static int largest_block(const void *a, const void *b, void *context)
{
    const struct timeline_block *blocks = context;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;

    if (blocks[i].bytes != blocks[j].bytes)
        return blocks[i].bytes < blocks[j].bytes ? 1 : -1;
    return (i > j) - (i < j);
}

size_t timeline_live_blocks(const struct timeline *timeline, size_t steps, uint32_t **indices)
{
    bool *live = calloc(timeline->block_count + 1, sizeof(*live));
    size_t count = 0;

    *indices = NULL;
    for (size_t i = 0; live && i < steps && i < timeline->step_count; i++) {
        const struct timeline_step *step = &timeline->steps[i];

        if (step->change <= TIMELINE_FREE)
            live[step->block] = step->change == TIMELINE_ALLOC;
    }
    uint32_t *found = live ? malloc((timeline->block_count + 1) * sizeof(*found)) : NULL;
    if (!found) {
        free(live);
        return 0;
    }
    for (size_t i = 0; i < timeline->block_count; i++) {
        if (live[i])
            found[count++] = (uint32_t)i;
    }
    free(live);
    qsort_r(found, count, sizeof(*found), largest_block, timeline->blocks);
    *indices = found;
    return count;
}

static const char *kind_name(uint16_t kind)
{
    static const char *const names[] = {
        [0] = "other",
        [RECORDING_MALLOC] = "cudaMalloc",
        [RECORDING_ASYNC] = "cudaMallocAsync",
        [RECORDING_VMM] = "cuMemCreate",
        [RECORDING_ARRAY] = "array",
        [RECORDING_GRAPH] = "graph",
        [RECORDING_MANAGED] = "managed",
        [RECORDING_IMPORT] = "imported",
    };

    return kind < sizeof(names) / sizeof(*names) ? names[kind] : "of a later version";
}

const char *timeline_name(const struct recording *recording, enum timeline_by by, uint16_t id)
{
    if (by == TIMELINE_BY_KIND)
        return kind_name(id);
    const char *name = recording_text(by == TIMELINE_BY_OWNER ? &recording->owners : &recording->tags, id, 0);
    if (*name)
        return name;
    if (id)
        return by == TIMELINE_BY_OWNER ? "unknown library" : "unknown tag";
    return by == TIMELINE_BY_OWNER ? "program" : "no tag";
}

enum timeline_by timeline_best_by(const struct timeline *timeline, size_t steps)
{
    struct timeline_share *shares;
    const size_t count = timeline_shares(timeline, steps, TIMELINE_BY_TAG, &shares);
    uint64_t tagged = 0, all = 0;

    for (size_t i = 0; i < count; i++) {
        all += shares[i].bytes;
        tagged += shares[i].id ? shares[i].bytes : 0;
    }
    free(shares);
    return tagged > all / 2 ? TIMELINE_BY_TAG : TIMELINE_BY_OWNER;
}
