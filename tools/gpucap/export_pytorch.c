/* export_pytorch: what torch.cuda.memory._snapshot() gives, as a pickle. See export.h; what lies where is
 * snapshot.h's.
 *
 * Colours follow categories, here tags or owners. The viewer fails if no event has the category "unknown", so
 * one has. For a block without frames it shows advice about PyTorch's settings, so each block without a call
 * stack has one frame that names its owner. */
#include "tools/gpucap/export.h"
#include "tools/gpucap/pickle_write.h"
#include "tools/gpucap/recording_frames.h"
#include "tools/gpucap/recording_words.h"
#include "tools/gpucap/snapshot.h"
#include "tools/gpucap/words.h"

#include <stdlib.h>

#define HOLDERS 256 /* whose descriptions are remembered; those of more are written each time */

/* Who has a block: its owner, tag and kind, or what figure it is. */
struct holder {
    const char *figure;
    uint16_t owner, tag;
    uint8_t kind;
    uint32_t frames, words; /* memos + 1, 0: not written yet */
};

struct writer {
    struct pickle pickle;
    const struct recording *recording;
    struct snapshot snapshot;
    struct frames frames;
    uint32_t *stack_memos; /* by place in the recording's stacks: memo + 1, 0: not written yet */
    struct holder holders[HOLDERS];
    size_t holder_count;
    enum timeline_by by;
};

/* ---- who and where ---- */

static bool same_holder(const struct holder *holder, const struct snapshot_item *item)
{
    return holder->figure == item->figure && holder->owner == item->owner && holder->tag == item->tag &&
           holder->kind == item->kind;
}

/* The holder of an item; `spare` if there is no room for one more. */
static struct holder *find_holder(struct writer *writer, const struct snapshot_item *item,
                                  struct holder *spare)
{
    size_t i = 0;

    while (i < writer->holder_count && !same_holder(&writer->holders[i], item))
        i++;
    if (i < writer->holder_count)
        return &writer->holders[i];
    *spare =
        (struct holder){.figure = item->figure, .owner = item->owner, .tag = item->tag, .kind = item->kind};
    if (writer->holder_count == HOLDERS)
        return spare;
    writer->holders[writer->holder_count++] = *spare;
    return &writer->holders[i];
}

/* "activations, cudaMalloc"; "cudaMalloc". */
static void what_it_is(const struct writer *writer, const struct holder *holder,
                       char text[RECORDING_SENTENCE])
{
    const char *kind = holder->kind ? timeline_name(writer->recording, TIMELINE_BY_KIND, holder->kind) : "";
    const char *tag = holder->tag ? timeline_name(writer->recording, TIMELINE_BY_TAG, holder->tag) : "";

    snprintf(text, RECORDING_SENTENCE, "%.300s%s%.60s", tag, *tag && *kind ? ", " : "", kind);
    words_clean(text); /* the last character may have been cut */
}

static const char *owner_name(const struct writer *writer, const struct holder *holder)
{
    return holder->figure ? holder->figure
                          : timeline_name(writer->recording, TIMELINE_BY_OWNER, holder->owner);
}

static void put_frame(struct pickle *pickle, const char *file, const char *name)
{
    pickle_begin_dict(pickle);
    pickle_text_pair(pickle, "name", name);
    pickle_text_pair(pickle, "filename", file);
    pickle_pair(pickle, "line", 0);
    pickle_end_dict(pickle);
}

static void put_holder_frames(struct writer *writer, struct holder *holder)
{
    struct pickle *pickle = &writer->pickle;
    char text[RECORDING_SENTENCE];

    if (holder->frames) {
        pickle_again(pickle, holder->frames - 1);
        return;
    }
    what_it_is(writer, holder, text);
    pickle_begin_list(pickle);
    put_frame(pickle, holder->figure ? "gpucap" : owner_name(writer, holder),
              holder->figure ? holder->figure : text);
    if (!holder->figure && !(writer->recording->head.flags & RECORDING_STACKS))
        put_frame(pickle, "gpucap", "no call stacks were recorded: gpucap run --stacks=on");
    pickle_end_list(pickle);
    holder->frames = pickle_remember(pickle) + 1;
}

static void put_stack(struct writer *writer, const struct recording_frames *stack)
{
    struct pickle *pickle = &writer->pickle;
    uint32_t *memo = &writer->stack_memos[stack - writer->recording->stacks.entries];
    char text[FRAMES_TEXT];

    if (*memo) {
        pickle_again(pickle, *memo - 1);
        return;
    }
    pickle_begin_list(pickle);
    for (uint32_t i = 0; i < stack->count; i++) {
        frames_text(&writer->frames, stack->frames[i], text);
        words_clean(text);
        put_frame(pickle, frames_path(&writer->frames, stack->frames[i]), text);
    }
    pickle_end_list(pickle);
    *memo = pickle_remember(pickle) + 1;
}

/* Frames, and the words that newer viewers show with them. */
static void put_who(struct writer *writer, const struct snapshot_item *item, uint32_t stack)
{
    const struct recording_frames *frames = stack ? recording_stack(writer->recording, stack) : NULL;
    struct pickle *pickle = &writer->pickle;
    char what[RECORDING_SENTENCE], text[2 * RECORDING_SENTENCE];
    struct holder spare, *holder = find_holder(writer, item, &spare);

    pickle_key(pickle, "frames");
    if (frames && frames->count)
        put_stack(writer, frames);
    else
        put_holder_frames(writer, holder);
    pickle_key(pickle, "user_metadata");
    if (holder->words) {
        pickle_again(pickle, holder->words - 1);
        return;
    }
    what_it_is(writer, holder, what);
    snprintf(text, sizeof(text), "%.400s%s%s", owner_name(writer, holder), *what ? ": " : "", what);
    words_clean(text);
    pickle_text(pickle, text);
    holder->words = pickle_remember(pickle) + 1;
}

static const char *category_of(const struct writer *writer, const struct snapshot_item *item)
{
    const uint16_t id = writer->by == TIMELINE_BY_TAG ? item->tag : item->owner;

    if (item->figure)
        return item->figure;
    return id || writer->by == TIMELINE_BY_OWNER ? timeline_name(writer->recording, writer->by, id)
                                                 : "unknown";
}

/* ---- what happened ---- */

static void begin_event(struct writer *writer, const char *action, uint64_t place, uint64_t bytes,
                        uint64_t stream, uint64_t time_ns)
{
    struct pickle *pickle = &writer->pickle;

    pickle_begin_dict(pickle);
    pickle_key(pickle, "action");
    pickle_key(pickle, action);
    pickle_pair(pickle, "addr", place);
    pickle_pair(pickle, "size", bytes);
    pickle_pair(pickle, "stream", stream);
    pickle_pair(pickle, "time_us", time_ns / 1000 + writer->recording->head.began_unix_ns / 1000);
}

static void end_event(struct writer *writer, size_t *count)
{
    pickle_end_dict(&writer->pickle);
    pickle_next(&writer->pickle, count);
}

static void put_change(struct writer *writer, const char *action, const struct snapshot_move *move,
                       size_t *count)
{
    const struct snapshot_item *item = &writer->snapshot.items[move->item];

    begin_event(writer, action, item->place, item->bytes, item->stream, move->time_ns);
    put_who(writer, item, move->free ? 0 : item->stack);
    pickle_key(&writer->pickle, "category");
    pickle_key(&writer->pickle, category_of(writer, item));
    end_event(writer, count);
}

static void put_segment_event(struct writer *writer, const char *action, uint32_t number, uint64_t time_ns,
                              size_t *count)
{
    const struct snapshot_segment *segment = &writer->snapshot.segments[number];

    begin_event(writer, action, segment->from, segment->to - segment->from, 0, time_ns);
    put_who(writer, &writer->snapshot.items[writer->snapshot.order[segment->first]], 0);
    end_event(writer, count);
}

static void put_refusals(struct writer *writer, size_t *mark, uint64_t until_ns, size_t *count)
{
    const struct timeline *timeline = writer->snapshot.timeline;

    for (; *mark < timeline->mark_count && timeline->marks[*mark]->time_ns <= until_ns; ++*mark) {
        const struct recording_event *event = timeline->marks[*mark];
        const struct snapshot_item item = {.owner = event->owner, .tag = event->tag, .kind = event->kind};

        if (event->head.type != RECORDING_REFUSAL)
            continue;
        begin_event(writer, "oom", event->other, event->bytes, 0, event->time_ns);
        pickle_pair(&writer->pickle, "device_free", event->other);
        put_who(writer, &item, event->stack);
        end_event(writer, count);
    }
}

static void put_trace(struct writer *writer)
{
    const struct snapshot *snapshot = &writer->snapshot;
    const struct snapshot_item end = {.figure = "end of the recording"};
    size_t count = 0, mark = 0;

    for (uint32_t i = 0; i < snapshot->move_count; i++) {
        const struct snapshot_move *move = &snapshot->moves[i];

        put_refusals(writer, &mark, move->time_ns, &count);
        if (move->opens != SNAPSHOT_NONE)
            put_segment_event(writer, "segment_alloc", move->opens, move->time_ns, &count);
        if (move->free)
            put_change(writer, "free_requested", move, &count);
        put_change(writer, move->free ? "free_completed" : "alloc", move, &count);
        if (move->closes != SNAPSHOT_NONE)
            put_segment_event(writer, "segment_free", move->closes, move->time_ns, &count);
    }
    put_refusals(writer, &mark, UINT64_MAX, &count);
    begin_event(writer, "snapshot", 0, 0, 0, snapshot->timeline->end_ns);
    put_who(writer, &end, 0);
    pickle_key(&writer->pickle, "category");
    pickle_key(&writer->pickle, "unknown");
    end_event(writer, &count);
}

/* ---- what is there at the end ---- */

static void put_piece(struct writer *writer, uint64_t from, uint64_t bytes, const struct snapshot_item *item)
{
    static const struct snapshot_item idle = {.figure = "idle"};
    struct pickle *pickle = &writer->pickle;

    pickle_begin_dict(pickle);
    pickle_pair(pickle, "address", from);
    pickle_pair(pickle, "size", bytes);
    pickle_pair(pickle, "requested_size", item ? bytes : 0);
    pickle_key(pickle, "state");
    pickle_key(pickle, item ? "active_allocated" : "inactive");
    put_who(writer, item ? item : &idle, item ? item->stack : 0);
    pickle_end_dict(pickle);
}

/* Items that are there at the end, and what is between them. Returns their bytes. */
static uint64_t put_pieces(struct writer *writer, const struct snapshot_segment *segment)
{
    uint64_t at = segment->from, live = 0;
    size_t pieces = 0;

    for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
        const struct snapshot_item *item = &writer->snapshot.items[writer->snapshot.order[i]];

        if (item->last != SNAPSHOT_NONE || item->place < at)
            continue;
        if (item->place > at) {
            put_piece(writer, at, item->place - at, NULL);
            pickle_next(&writer->pickle, &pieces);
        }
        put_piece(writer, item->place, item->bytes, item);
        pickle_next(&writer->pickle, &pieces);
        at = item->place + item->bytes;
        live += item->bytes;
    }
    if (at < segment->to)
        put_piece(writer, at, segment->to - at, NULL);
    return live;
}

static void put_segment(struct writer *writer, const struct snapshot_segment *segment)
{
    struct pickle *pickle = &writer->pickle;

    pickle_begin_dict(pickle);
    pickle_pair(pickle, "device", writer->snapshot.timeline->device);
    pickle_pair(pickle, "address", segment->from);
    pickle_pair(pickle, "total_size", segment->to - segment->from);
    pickle_pair(pickle, "stream", 0);
    pickle_text_pair(pickle, "segment_type", "large");
    pickle_key(pickle, "segment_pool_id"); /* no private pool */
    pickle_number(pickle, 0);
    pickle_number(pickle, 0);
    pickle_join(pickle);
    pickle_key(pickle, "is_expandable");
    pickle_true(pickle);
    put_who(writer, &writer->snapshot.items[writer->snapshot.order[segment->first]], 0);
    pickle_key(pickle, "blocks");
    pickle_begin_list(pickle);
    const uint64_t live = put_pieces(writer, segment);
    pickle_end_list(pickle);
    pickle_pair(pickle, "allocated_size", live);
    pickle_pair(pickle, "active_size", live);
    pickle_pair(pickle, "requested_size", live);
    pickle_end_dict(pickle);
}

/* ---- all of it ---- */

static bool with_track(struct writer *writer, const struct recording_track *track)
{
    snapshot_close(&writer->snapshot);
    writer->by = timeline_best_by(&track->timeline, track->timeline.peak);
    return snapshot_open(&writer->snapshot, &track->timeline);
}

/* What the viewer shows as settings of the allocator. */
static void put_settings(struct writer *writer, const struct recording_set *set)
{
    struct pickle *pickle = &writer->pickle;
    char card[RECORDING_CARD], sentence[RECORDING_SENTENCE];

    pickle_begin_dict(pickle);
    pickle_text_pair(pickle, "recorded by", "gpucap");
    pickle_text_pair(pickle, "program", recording_set_title(set, 0));
    for (int i = 0; i < set->track_count; i++) {
        recording_set_card(&set->tracks[i], card);
        words_clean(card);
        recording_sentence(&set->tracks[i].timeline, sentence);
        words_clean(sentence);
        pickle_text(pickle, card);
        pickle_text(pickle, sentence);
    }
    pickle_end_dict(pickle);
}

static bool put_all(struct writer *writer, const struct recording_set *set)
{
    struct pickle *pickle = &writer->pickle;
    size_t segments = 0, traces = 0;
    bool good = true;

    pickle_begin_dict(pickle);
    pickle_key(pickle, "segments");
    pickle_begin_list(pickle);
    for (int i = 0; i < set->track_count && good; i++) {
        good = with_track(writer, &set->tracks[i]);
        for (uint32_t j = 0; j < writer->snapshot.segment_count; j++) {
            if (!writer->snapshot.segments[j].stays)
                continue;
            put_segment(writer, &writer->snapshot.segments[j]);
            pickle_next(pickle, &segments);
        }
    }
    pickle_end_list(pickle);
    pickle_key(pickle, "device_traces"); /* a list for each number of a device */
    pickle_begin_list(pickle);
    for (int i = 0; i < set->track_count && good; i++) {
        for (; traces < set->tracks[i].timeline.device; pickle_next(pickle, &traces)) {
            pickle_begin_list(pickle);
            pickle_end_list(pickle);
        }
        good = with_track(writer, &set->tracks[i]);
        pickle_begin_list(pickle);
        if (good)
            put_trace(writer);
        pickle_end_list(pickle);
        pickle_next(pickle, &traces);
    }
    pickle_end_list(pickle);
    pickle_key(pickle, "allocator_settings");
    put_settings(writer, set);
    pickle_end_dict(pickle);
    return good;
}

bool export_pytorch(FILE *out, const struct recording_set *set)
{
    struct writer *writer = calloc(1, sizeof(*writer));
    const struct recording *recording = &set->recordings[0];

    if (!writer)
        return false;
    writer->recording = recording;
    writer->stack_memos = calloc(recording->stacks.count + 1, sizeof(*writer->stack_memos));
    bool good = writer->stack_memos && frames_open(&writer->frames, recording);
    if (good) {
        pickle_begin(&writer->pickle, out);
        good = put_all(writer, set);
        good = pickle_end(&writer->pickle) && good;
        frames_close(&writer->frames);
    }
    snapshot_close(&writer->snapshot);
    free(writer->stack_memos);
    free(writer);
    return good;
}
