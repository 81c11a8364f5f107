/* export_pytorch: what torch.cuda.memory._snapshot() gives, as a pickle. Of protocol 4 only the operations
 * that PyTorch's viewer (torch/utils/viz/MemoryViz.js) reads. See export.h.
 *
 * The viewer wants every block inside a segment at every moment. So segments are the runs of addresses that
 * were ever used; blocks without addresses (handles) get places of their own above all others. Colours follow
 * categories, here tags or owners; the viewer stumbles if no event has the category "unknown", so one has. */
#include "tools/gpucap/export.h"
#include "tools/gpucap/page_bytes.h"
#include "tools/gpucap/recording_frames.h"

#include <stdlib.h>
#include <string.h>

#define HANDLES_AT (UINT64_C(1) << 50)
#define PAGE       (UINT64_C(2) << 20)
#define BATCH      1000 /* entries of a list at a time, as Python's own pickler does */
#define BATCH_FLAT 4096 /* bytes that are kept before they are written */

struct pickle {
    FILE *out;
    struct page_bytes bytes;
    uint32_t memos;        /* texts and lists that were remembered */
    uint32_t *stack_memos; /* by place in the recording's stacks: memo + 1, 0: not written yet */
    uint32_t no_frames;    /* memo + 1 */
    struct {
        const char *text;
        uint32_t memo;
    } known[64]; /* keys and names, by address of their text */
    size_t known_count;
};

/* ---- pickling ---- */

static void put(struct pickle *pickle, unsigned char byte)
{
    page_bytes_add(&pickle->bytes, &byte, 1);
    if (pickle->bytes.count < BATCH_FLAT)
        return;
    fwrite(pickle->bytes.bytes, 1, pickle->bytes.count, pickle->out);
    pickle->bytes.count = 0;
}

static void put_little(struct pickle *pickle, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        put(pickle, (unsigned char)(number >> 8 * i));
}

static void put_number(struct pickle *pickle, uint64_t number)
{
    if (number < 256) {
        put(pickle, 'K'); /* BININT1 */
        put_little(pickle, number, 1);
    } else if (number <= INT32_MAX) {
        put(pickle, 'J'); /* BININT */
        put_little(pickle, number, 4);
    } else {
        put(pickle, 0x8a); /* LONG1, signed */
        put(pickle, 8);
        put_little(pickle, number & INT64_MAX, 8);
    }
}

static void get_memo(struct pickle *pickle, uint32_t memo)
{
    put(pickle, 'j'); /* LONG_BINGET */
    put_little(pickle, memo, 4);
}

static uint32_t memoize(struct pickle *pickle)
{
    put(pickle, 0x94); /* MEMOIZE */
    return pickle->memos++;
}

static void put_text(struct pickle *pickle, const char *text)
{
    const size_t length = strlen(text);

    for (size_t i = 0; i < pickle->known_count; i++) {
        if (pickle->known[i].text == text) {
            get_memo(pickle, pickle->known[i].memo);
            return;
        }
    }
    put(pickle, 'X'); /* BINUNICODE */
    put_little(pickle, length, 4);
    for (size_t i = 0; i < length; i++)
        put(pickle, (unsigned char)text[i]);
}

/* The same for texts that come again and stay where they are in memory. */
static void put_key(struct pickle *pickle, const char *text)
{
    put_text(pickle, text);
    for (size_t i = 0; i < pickle->known_count; i++) {
        if (pickle->known[i].text == text)
            return;
    }
    if (pickle->known_count == sizeof(pickle->known) / sizeof(*pickle->known))
        return;
    pickle->known[pickle->known_count].text = text;
    pickle->known[pickle->known_count++].memo = memoize(pickle);
}

static void begin_dict(struct pickle *pickle)
{
    put(pickle, '}'); /* EMPTY_DICT */
    put(pickle, '('); /* MARK */
}

static void end_dict(struct pickle *pickle)
{
    put(pickle, 'u'); /* SETITEMS */
}

static void begin_list(struct pickle *pickle)
{
    put(pickle, ']'); /* EMPTY_LIST */
    put(pickle, '('); /* MARK */
}

static void end_list(struct pickle *pickle)
{
    put(pickle, 'e'); /* APPENDS */
}

/* Call after each entry of a long list. */
static void next_entry(struct pickle *pickle, size_t *count)
{
    if (++*count % BATCH)
        return;
    put(pickle, 'e');
    put(pickle, '(');
}

static void put_pair(struct pickle *pickle, const char *key, uint64_t number)
{
    put_key(pickle, key);
    put_number(pickle, number);
}

/* ---- what is in it ---- */

struct snapshot {
    struct pickle pickle;
    const struct recording *recording;
    const struct timeline *timeline;
    struct frames frames;
    enum timeline_by by;
    uint64_t *places; /* of each block */
};

static bool has_address(const struct timeline_block *block)
{
    return block->kind != RECORDING_VMM && block->kind != RECORDING_ARRAY && block->kind != RECORDING_GRAPH;
}

static bool place_blocks(struct snapshot *snapshot)
{
    const struct timeline *timeline = snapshot->timeline;
    uint64_t next = HANDLES_AT;

    snapshot->places = calloc(timeline->block_count + 1, sizeof(*snapshot->places));
    if (!snapshot->places)
        return false;
    for (size_t i = 0; i < timeline->block_count; i++) {
        const struct timeline_block *block = &timeline->blocks[i];

        snapshot->places[i] = has_address(block) ? block->address % HANDLES_AT : next;
        if (!has_address(block))
            next = (next + block->bytes + PAGE) / PAGE * PAGE % RECORDING_BYTES_MAX;
    }
    return true;
}

static void put_frames(struct snapshot *snapshot, uint32_t id)
{
    struct pickle *pickle = &snapshot->pickle;
    const struct recording_frames *stack = id ? recording_stack(snapshot->recording, id) : NULL;
    uint32_t *memo =
        stack ? &pickle->stack_memos[stack - snapshot->recording->stacks.entries] : &pickle->no_frames;
    char text[FRAMES_TEXT];

    if (*memo) {
        get_memo(pickle, *memo - 1);
        return;
    }
    begin_list(pickle);
    for (uint32_t i = 0; stack && i < stack->count; i++) {
        const char *name = frames_text(&snapshot->frames, stack->frames[i], text);

        begin_dict(pickle);
        put_key(pickle, "name");
        put_text(pickle, name);
        put_key(pickle, "filename");
        put_text(pickle, frames_path(&snapshot->frames, stack->frames[i]));
        put_pair(pickle, "line", 0);
        end_dict(pickle);
    }
    end_list(pickle);
    *memo = memoize(pickle) + 1;
}

static void put_event(struct snapshot *snapshot, const char *action, uint64_t place, uint64_t bytes,
                      uint64_t stream, uint64_t time_ns, uint32_t stack, const char *category)
{
    struct pickle *pickle = &snapshot->pickle;

    begin_dict(pickle);
    put_key(pickle, "action");
    put_key(pickle, action);
    put_pair(pickle, "addr", place);
    put_pair(pickle, "size", bytes);
    put_pair(pickle, "stream", stream);
    put_pair(pickle, "time_us", time_ns / 1000 + snapshot->recording->head.began_unix_ns / 1000);
    put_key(pickle, "frames");
    put_frames(snapshot, stack);
    put_key(pickle, "category");
    put_key(pickle, category);
    end_dict(pickle);
}

static const char *category_of(const struct snapshot *snapshot, const struct timeline_block *block)
{
    const uint16_t id = snapshot->by == TIMELINE_BY_TAG ? block->tag : block->owner;

    return id ? timeline_name(snapshot->recording, snapshot->by, id) : "unknown";
}

static void put_refusals(struct snapshot *snapshot, size_t *mark, uint64_t until_ns, size_t *count)
{
    const struct timeline *timeline = snapshot->timeline;
    struct pickle *pickle = &snapshot->pickle;

    for (; *mark < timeline->mark_count && timeline->marks[*mark]->time_ns <= until_ns; ++*mark) {
        const struct recording_event *event = timeline->marks[*mark];

        if (event->head.type != RECORDING_REFUSAL)
            continue;
        begin_dict(pickle);
        put_key(pickle, "action");
        put_key(pickle, "oom");
        put_pair(pickle, "addr", event->other);
        put_pair(pickle, "device_free", event->other);
        put_pair(pickle, "size", event->bytes);
        put_pair(pickle, "stream", 0);
        put_pair(pickle, "time_us", event->time_ns / 1000 + snapshot->recording->head.began_unix_ns / 1000);
        put_key(pickle, "frames");
        put_frames(snapshot, event->stack);
        end_dict(pickle);
        next_entry(pickle, count);
    }
}

static void put_trace(struct snapshot *snapshot)
{
    const struct timeline *timeline = snapshot->timeline;
    struct pickle *pickle = &snapshot->pickle;
    size_t count = 0, mark = 0;

    for (size_t i = 0; i < timeline->step_count; i++) {
        const struct timeline_step *step = &timeline->steps[i];

        if (step->change > TIMELINE_FREE || timeline->blocks[step->block].kind == RECORDING_IMPORT)
            continue;
        const struct timeline_block *block = &timeline->blocks[step->block];
        put_refusals(snapshot, &mark, step->time_ns, &count);
        if (step->change == TIMELINE_FREE) {
            put_event(snapshot, "free_requested", snapshot->places[step->block], block->bytes, block->stream,
                      step->time_ns, 0, category_of(snapshot, block));
            next_entry(pickle, &count);
        }
        put_event(snapshot, step->change == TIMELINE_ALLOC ? "alloc" : "free_completed",
                  snapshot->places[step->block], block->bytes, block->stream, step->time_ns,
                  step->change == TIMELINE_ALLOC ? block->stack : 0, category_of(snapshot, block));
        next_entry(pickle, &count);
    }
    put_refusals(snapshot, &mark, UINT64_MAX, &count);
    put_event(snapshot, "snapshot", 0, 0, 0, timeline->end_ns, 0, "unknown");
    next_entry(pickle, &count);
}

/* ---- segments ---- */

static int by_place(const void *a, const void *b, void *context)
{
    const uint64_t *places = context;
    const uint64_t x = places[*(const uint32_t *)a], y = places[*(const uint32_t *)b];

    return (x > y) - (x < y);
}

static void put_piece(struct snapshot *snapshot, uint64_t from, uint64_t bytes,
                      const struct timeline_block *block)
{
    struct pickle *pickle = &snapshot->pickle;

    begin_dict(pickle);
    put_pair(pickle, "address", from);
    put_pair(pickle, "size", bytes);
    put_pair(pickle, "requested_size", block ? bytes : 0);
    put_key(pickle, "state");
    put_key(pickle, block ? "active_allocated" : "inactive");
    put_key(pickle, "frames");
    put_frames(snapshot, block ? block->stack : 0);
    end_dict(pickle);
}

/* Blocks that are live at the end, and what is between them. Returns the live bytes. */
static uint64_t put_pieces(struct snapshot *snapshot, const uint32_t *order, size_t count, uint64_t from,
                           uint64_t to)
{
    uint64_t at = from, live = 0;
    size_t pieces = 0;

    for (size_t i = 0; i < count; i++) {
        const struct timeline_block *block = &snapshot->timeline->blocks[order[i]];
        const uint64_t place = snapshot->places[order[i]];

        if (block->end_ns != TIMELINE_NEVER || place < at || !block->bytes)
            continue;
        if (place > at) {
            put_piece(snapshot, at, place - at, NULL);
            next_entry(&snapshot->pickle, &pieces);
        }
        put_piece(snapshot, place, block->bytes, block);
        next_entry(&snapshot->pickle, &pieces);
        at = place + block->bytes;
        live += block->bytes;
    }
    if (at < to)
        put_piece(snapshot, at, to - at, NULL);
    return live;
}

static void put_segment(struct snapshot *snapshot, const uint32_t *order, size_t count, uint64_t from,
                        uint64_t to)
{
    struct pickle *pickle = &snapshot->pickle;

    begin_dict(pickle);
    put_pair(pickle, "device", snapshot->timeline->device);
    put_pair(pickle, "address", from);
    put_pair(pickle, "total_size", to - from);
    put_pair(pickle, "stream", 0);
    put_key(pickle, "segment_type");
    put_key(pickle, "large");
    put_key(pickle, "is_expandable");
    put(pickle, 0x88); /* NEWTRUE */
    put_key(pickle, "frames");
    put_frames(snapshot, 0);
    put_key(pickle, "blocks");
    begin_list(pickle);
    const uint64_t live = put_pieces(snapshot, order, count, from, to);
    end_list(pickle);
    put_pair(pickle, "allocated_size", live);
    put_pair(pickle, "active_size", live);
    put_pair(pickle, "requested_size", live);
    end_dict(pickle);
}

/* Runs of addresses without a gap of more than a page. */
static bool put_segments(struct snapshot *snapshot, size_t *entries)
{
    const struct timeline *timeline = snapshot->timeline;
    uint32_t *order = calloc(timeline->block_count + 1, sizeof(*order));
    size_t count = 0;

    if (!order)
        return false;
    for (size_t i = 0; i < timeline->block_count; i++) {
        if (timeline->blocks[i].kind != RECORDING_IMPORT)
            order[count++] = (uint32_t)i;
    }
    qsort_r(order, count, sizeof(*order), by_place, snapshot->places);
    for (size_t i = 0; i < count;) {
        const uint64_t from = snapshot->places[order[i]];
        uint64_t to = from;
        size_t end = i;

        while (end < count && snapshot->places[order[end]] <= to + PAGE) {
            const uint64_t last = snapshot->places[order[end]] + timeline->blocks[order[end]].bytes;

            to = last > to ? last : to;
            end++;
        }
        put_segment(snapshot, order + i, end - i, from, to > from ? to : from + 1);
        next_entry(&snapshot->pickle, entries);
        i = end;
    }
    free(order);
    return true;
}

/* ---- all of it ---- */

static bool with_track(struct snapshot *snapshot, const struct recording_track *track)
{
    free(snapshot->places);
    snapshot->timeline = &track->timeline;
    snapshot->by = timeline_best_by(&track->timeline, track->timeline.peak);
    return place_blocks(snapshot);
}

static bool put_snapshot(struct snapshot *snapshot, const struct recording_set *set)
{
    struct pickle *pickle = &snapshot->pickle;
    size_t segments = 0, traces = 0;
    bool good = true;

    put(pickle, 0x80); /* PROTO */
    put(pickle, 4);
    begin_dict(pickle);
    put_key(pickle, "segments");
    begin_list(pickle);
    for (int i = 0; i < set->track_count && good; i++)
        good = with_track(snapshot, &set->tracks[i]) && put_segments(snapshot, &segments);
    end_list(pickle);
    put_key(pickle, "device_traces"); /* a list for each number of a device */
    begin_list(pickle);
    for (int i = 0; i < set->track_count && good; i++) {
        for (; traces < set->tracks[i].timeline.device; next_entry(pickle, &traces))
            put(pickle, ']');
        good = with_track(snapshot, &set->tracks[i]);
        begin_list(pickle);
        if (good)
            put_trace(snapshot);
        end_list(pickle);
        next_entry(pickle, &traces);
    }
    end_list(pickle);
    put_key(pickle, "allocator_settings");
    put(pickle, '}');
    end_dict(pickle);
    put(pickle, '.'); /* STOP */
    return good;
}

bool export_pytorch(FILE *out, const struct recording_set *set)
{
    struct snapshot snapshot = {.pickle = {.out = out}, .recording = &set->recordings[0]};
    struct pickle *pickle = &snapshot.pickle;

    pickle->stack_memos = calloc(set->recordings[0].stacks.count + 1, sizeof(*pickle->stack_memos));
    if (!pickle->stack_memos || !frames_open(&snapshot.frames, &set->recordings[0])) {
        free(pickle->stack_memos);
        return false;
    }
    const bool good = put_snapshot(&snapshot, set) && !pickle->bytes.failed;
    fwrite(pickle->bytes.bytes, 1, pickle->bytes.count, out);
    page_bytes_free(&pickle->bytes);
    free(pickle->stack_memos);
    free(snapshot.places);
    frames_close(&snapshot.frames);
    return good;
}
