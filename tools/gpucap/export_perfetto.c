/* export_perfetto: a recording as a trace of Perfetto's (trace_write.h). See export.h. */
#include "tools/gpucap/export.h"
#include "tools/gpucap/recording_words.h"
#include "tools/gpucap/trace_write.h"

#include <stdlib.h>

/* Tracks of one process and device, by what is added to its first number. */
enum { PROCESS_TRACK, WAITS_TRACK, USED_TRACK, LIMIT_TRACK, CONTEXT_TRACK, DRIVER_TRACK, OWNER_TRACKS };
#define TAG_TRACKS   (OWNER_TRACKS + UINT16_MAX + 1)
#define TRACKS_OF_IT (TAG_TRACKS + UINT16_MAX + 1)

struct trace {
    struct trace_write out;
    uint64_t first; /* number of the first track of this process and device */
    bool failed;
};

/* ---- tracks ---- */

static void describe_counter(struct trace *trace, uint64_t track, const char *before, const char *name)
{
    char text[RECORDING_SENTENCE];

    snprintf(text, sizeof(text), "%s%.400s", before, name);
    trace_write_counter(&trace->out, trace->first + track, trace->first + PROCESS_TRACK, text);
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
        const uint16_t id = by == TIMELINE_BY_OWNER ? timeline->blocks[i].owner : timeline->blocks[i].tag;

        if (!seen[id])
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

static void say(struct trace *trace, uint64_t time_ns, const char *name)
{
    trace_write_instant(&trace->out, trace->first + PROCESS_TRACK, time_ns, "memory", name);
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
        trace_write_begin(&trace->out, trace->first + WAITS_TRACK,
                          event->time_ns > event->other ? event->time_ns - event->other : 0, "memory", text);
        trace_write_end(&trace->out, trace->first + WAITS_TRACK, event->time_ns);
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

static void write_track(struct trace *trace, const struct recording_set *set,
                        const struct recording_track *track)
{
    const struct timeline *timeline = &track->timeline;
    struct timeline_state state = TIMELINE_START;
    struct sums *sums = calloc(1, sizeof(*sums));
    const uint64_t process = trace->first + PROCESS_TRACK;
    uint64_t used = 0;

    if (!sums) {
        trace->failed = true;
        return;
    }
    trace_write_process(&trace->out, process, set->recordings[track->file].head.pid,
                        recording_set_title(set, track->file));
    trace_write_track(&trace->out, trace->first + WAITS_TRACK, process, "waits");
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

bool export_perfetto(FILE *out, const struct recording_set *set)
{
    struct trace trace = {.out = {.out = out}};

    for (int i = 0; i < set->track_count && !trace.failed && !trace.out.failed; i++) {
        trace.first = 1 + (uint64_t)i * TRACKS_OF_IT;
        trace_write_sequence(&trace.out, (uint32_t)i + 1,
                             set->recordings[0].head.began_mono_ns % RECORDING_BYTES_MAX +
                                 set->tracks[i].offset_ns);
        write_track(&trace, set, &set->tracks[i]);
    }
    return trace_write_close(&trace.out) && !trace.failed;
}
