/* export_perfetto: a recording as a trace of Perfetto's (trace_write.h). See export.h. */
#include "tools/gpucap/export.h"
#include "tools/gpucap/recording_words.h"
#include "tools/gpucap/trace_write.h"
#include "tools/gpucap/words.h"

#include <stdlib.h>

/* Tracks of one process and device, by what is added to its first number. */
enum { PROCESS_TRACK, CARD_TRACK, USED_TRACK, LIMIT_TRACK, CONTEXT_TRACK, DRIVER_TRACK, WAIT_TRACKS };
#define WAITS_AT_ONCE 64 /* on tracks of their own; more are cut short */
#define OWNER_TRACKS  (WAIT_TRACKS + WAITS_AT_ONCE)
#define TAG_TRACKS    (OWNER_TRACKS + UINT16_MAX + 1)
#define TRACKS_OF_IT  (TAG_TRACKS + UINT16_MAX + 1)

struct trace {
    struct trace_write out;
    uint64_t first;                    /* number of the first track of this process and device */
    uint64_t parent;                   /* of its other tracks: the process, or one of its cards */
    uint64_t waits_end[WAITS_AT_ONCE]; /* of the last wait on each of the first `wait_tracks` */
    uint64_t wait_tracks;
    bool failed;
};

/* ---- tracks ---- */

static void describe_counter(struct trace *trace, uint64_t track, const char *before, const char *name)
{
    char text[RECORDING_SENTENCE];

    snprintf(text, sizeof(text), "%s%.400s", before, name);
    words_clean(text); /* the last character may have been cut */
    trace_write_counter(&trace->out, trace->first + track, trace->parent, text);
}

static void describe_groups(struct trace *trace, const struct timeline *timeline, enum timeline_by by,
                            uint64_t first, const char *before)
{
    bool *seen = calloc(UINT16_MAX + 1, sizeof(*seen));

    if (!seen) {
        trace->failed = true;
        return;
    }
    for (size_t i = 0; i < timeline->block_count; i++) {
        const uint16_t id = timeline_id(&timeline->blocks[i], by);

        if (!seen[id] && (id || by == TIMELINE_BY_OWNER))
            describe_counter(trace, first + id, before, timeline_name(timeline->recording, by, id));
        seen[id] = true;
    }
    free(seen);
}

/* ---- events ---- */

static void count(struct trace *trace, uint64_t track, uint64_t time_ns, uint64_t bytes)
{
    trace_write_count(&trace->out, trace->first + track, time_ns, bytes);
}

static void say(struct trace *trace, uint64_t time_ns, char *name)
{
    words_clean(name);
    trace_write_instant(&trace->out, trace->parent, time_ns, "memory", name);
}

/* Slices of a track must not overlap, but threads wait at the same time: each wait is on a track that is free
 * then. All have one name, so that the viewer shows them together. */
static void write_wait(struct trace *trace, const struct recording_event *event, const char *text)
{
    uint64_t begin = event->time_ns > event->other ? event->time_ns - event->other : 0;
    uint64_t lane = 0;

    while (lane < trace->wait_tracks && trace->waits_end[lane] > begin)
        lane++;
    if (lane == WAITS_AT_ONCE)
        begin = trace->waits_end[--lane];
    if (lane == trace->wait_tracks)
        trace_write_track(&trace->out, trace->first + WAIT_TRACKS + trace->wait_tracks++, trace->parent,
                          "waits");
    trace->waits_end[lane] = event->time_ns;
    trace_write_begin(&trace->out, trace->first + WAIT_TRACKS + lane, begin, "memory", text);
    trace_write_end(&trace->out, trace->first + WAIT_TRACKS + lane, event->time_ns);
}

static void write_mark(struct trace *trace, const struct timeline *timeline,
                       const struct recording_event *event)
{
    char text[RECORDING_SENTENCE], size[RECORDING_TIME], who[32] = "";
    const char *owner = timeline_name(timeline->recording, TIMELINE_BY_OWNER, event->owner);

    recording_size(event->bytes, size);
    switch (event->head.type) {
    case RECORDING_REFUSAL:
        snprintf(text, sizeof(text), "refused %s for %.100s (%s)", size, owner,
                 recording_limit_name(event->limit));
        say(trace, event->time_ns, text);
        break;
    case RECORDING_WAIT:
        snprintf(text, sizeof(text), "waits for %s for %.100s", size, owner);
        words_clean(text);
        write_wait(trace, event, text);
        break;
    case RECORDING_LEND:
    case RECORDING_BORROW:
        if (event->other && event->other <= INT32_MAX)
            snprintf(who, sizeof(who),
                     event->head.type == RECORDING_LEND ? " to process %u" : " from process %u",
                     (unsigned)event->other);
        snprintf(text, sizeof(text), "%s %s%s", event->head.type == RECORDING_LEND ? "lends" : "borrows",
                 size, who);
        say(trace, event->time_ns, text);
        break;
    default:
        snprintf(text, sizeof(text), "joins free chunks, %s", size);
        say(trace, event->time_ns, text);
        break;
    }
}

struct sums {
    uint64_t owners[UINT16_MAX + 1], tags[UINT16_MAX + 1];
};

static void write_step(struct trace *trace, const struct timeline *timeline, const struct timeline_step *step,
                       struct sums *sums)
{
    if (step->change == TIMELINE_CONTEXT)
        count(trace, CONTEXT_TRACK, step->time_ns, step->value);
    if (step->change == TIMELINE_DRIVER)
        count(trace, DRIVER_TRACK, step->time_ns, step->value);
    if (step->change == TIMELINE_LIMIT && step->value != TIMELINE_NO)
        count(trace, LIMIT_TRACK, step->time_ns, step->value);
    if (step->change > TIMELINE_FREE || timeline->blocks[step->block].kind == RECORDING_IMPORT)
        return;
    const struct timeline_block *block = &timeline->blocks[step->block];
    const uint64_t change = step->change == TIMELINE_ALLOC ? step->value : -step->value;
    sums->owners[block->owner] += change;
    sums->tags[block->tag] += change;
    count(trace, OWNER_TRACKS + (uint64_t)block->owner, step->time_ns, sums->owners[block->owner]);
    if (block->tag)
        count(trace, TAG_TRACKS + (uint64_t)block->tag, step->time_ns, sums->tags[block->tag]);
}

static void write_track(struct trace *trace, const struct timeline *timeline)
{
    struct timeline_state state = TIMELINE_START;
    struct sums *sums = calloc(1, sizeof(*sums));
    uint64_t used = 0;

    if (!sums) {
        trace->failed = true;
        return;
    }
    describe_counter(trace, USED_TRACK, "", "in use");
    describe_counter(trace, LIMIT_TRACK, "", "limit");
    describe_counter(trace, CONTEXT_TRACK, "", "CUDA context");
    describe_counter(trace, DRIVER_TRACK, "", "idle in the driver's pools");
    describe_groups(trace, timeline, TIMELINE_BY_OWNER, OWNER_TRACKS, "owner: ");
    describe_groups(trace, timeline, TIMELINE_BY_TAG, TAG_TRACKS, "tag: ");
    for (size_t i = 0; i < timeline->step_count; i++) {
        timeline_advance(&state, timeline, &timeline->steps[i]);
        write_step(trace, timeline, &timeline->steps[i], sums);
        if (timeline_used(&state) != used)
            count(trace, USED_TRACK, timeline->steps[i].time_ns, used = timeline_used(&state));
    }
    for (size_t i = 0; i < timeline->mark_count; i++)
        write_mark(trace, timeline, timeline->marks[i]);
    free(sums);
}

/* A process is described once. If it uses several cards, each is a track in it. */
static void begin_track(struct trace *trace, const struct recording_set *set, int i)
{
    const struct recording_track *track = &set->tracks[i];
    const bool before = i > 0 && track[-1].file == track->file;
    const bool after = i + 1 < set->track_count && track[1].file == track->file;
    char card[RECORDING_CARD];
    int first = i;

    while (first > 0 && set->tracks[first - 1].file == track->file)
        first--;
    const uint64_t process = 1 + (uint64_t)first * TRACKS_OF_IT + PROCESS_TRACK;
    trace->first = 1 + (uint64_t)i * TRACKS_OF_IT;
    trace->parent = process;
    trace->wait_tracks = 0;
    if (!before)
        trace_write_process(&trace->out, process, set->recordings[track->file].head.pid,
                            recording_set_title(set, track->file));
    if (!before && !after)
        return;
    trace->parent = trace->first + CARD_TRACK;
    recording_set_card(track, card);
    words_clean(card);
    trace_write_track(&trace->out, trace->parent, process, card);
}

bool export_perfetto(FILE *out, const struct recording_set *set)
{
    struct trace trace = {.out = {.out = out}};

    for (int i = 0; i < set->track_count && !trace.failed && !trace.out.failed; i++) {
        trace_write_sequence(&trace.out, (uint32_t)i + 1,
                             set->recordings[0].head.began_mono_ns % RECORDING_BYTES_MAX +
                                 set->tracks[i].offset_ns);
        begin_track(&trace, set, i);
        write_track(&trace, &set->tracks[i].timeline);
    }
    return trace_write_close(&trace.out) && !trace.failed;
}
