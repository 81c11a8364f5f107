/* export_perfetto: TrackEvent packets, written by hand from Perfetto's published schema
 * (protos/perfetto/trace/trace_packet.proto, track_event/track_event.proto, track_descriptor.proto,
 * counter_descriptor.proto, process_descriptor.proto): the few fields that are needed. See export.h. */
#include "export.h"
#include "page_bytes.h"
#include "recording_words.h"

#include <stdlib.h>
#include <string.h>

/* Field numbers of the messages. */
enum {
    TRACE_PACKET = 1,
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE = 10,
    PACKET_TRACK_EVENT = 11,
    PACKET_FLAGS = 13,
    PACKET_DESCRIPTOR = 60,
    DESCRIPTOR_UUID = 1,
    DESCRIPTOR_NAME = 2,
    DESCRIPTOR_PROCESS = 3,
    DESCRIPTOR_PARENT = 5,
    DESCRIPTOR_COUNTER = 8,
    PROCESS_PID = 1,
    PROCESS_CMDLINE = 2,
    PROCESS_NAME = 6,
    COUNTER_UNIT = 3,
    EVENT_TYPE = 9,
    EVENT_TRACK = 11,
    EVENT_CATEGORY = 22,
    EVENT_NAME = 23,
    EVENT_COUNTER = 30,
};
enum { UNIT_BYTES = 3, SLICE_BEGIN = 1, SLICE_END = 2, INSTANT = 3, COUNTER = 4, STATE_CLEARED = 1 };
enum { VARINT = 0, BYTES = 2 }; /* wire types */

/* Tracks of one process and device, by what is added to its first number. */
enum { PROCESS_TRACK, WAITS_TRACK, USED_TRACK, LIMIT_TRACK, CONTEXT_TRACK, OWNER_TRACKS };
#define TAG_TRACKS   (OWNER_TRACKS + UINT16_MAX + 1)
#define TRACKS_OF_IT (TAG_TRACKS + UINT16_MAX + 1)

struct trace {
    FILE *out;
    struct page_bytes packet, inner, text; /* used again for each packet */
    uint64_t first;                        /* number of the first track of this process and device */
    uint64_t origin_ns;                    /* moment 0 of this recording on the machine's clock */
    uint32_t sequence;
    bool begun;
    bool failed;
};

static void put_number(struct page_bytes *to, unsigned field, uint64_t number)
{
    page_bytes_number(to, field << 3 | VARINT);
    page_bytes_number(to, number);
}

static void put_bytes(struct page_bytes *to, unsigned field, const void *bytes, size_t count)
{
    page_bytes_number(to, field << 3 | BYTES);
    page_bytes_number(to, count);
    page_bytes_add(to, bytes, count);
}

static void put_text(struct page_bytes *to, unsigned field, const char *text)
{
    put_bytes(to, field, text, strlen(text));
}

/* Writes a packet with `inner` as its field. */
static void write_packet(struct trace *trace, unsigned field, bool timed, uint64_t time_ns)
{
    trace->packet.count = trace->text.count = 0;
    if (timed)
        put_number(&trace->packet, PACKET_TIMESTAMP, trace->origin_ns + time_ns);
    put_number(&trace->packet, PACKET_SEQUENCE, trace->sequence);
    if (!trace->begun)
        put_number(&trace->packet, PACKET_FLAGS, STATE_CLEARED);
    trace->begun = true;
    put_bytes(&trace->packet, field, trace->inner.bytes, trace->inner.count);
    put_bytes(&trace->text, TRACE_PACKET, trace->packet.bytes, trace->packet.count);
    fwrite(trace->text.bytes, 1, trace->text.count, trace->out);
    trace->failed = trace->failed || trace->packet.failed || trace->inner.failed || trace->text.failed;
    trace->inner.count = 0;
}

/* ---- tracks ---- */

static void describe_process(struct trace *trace, const struct recording_set *set,
                             const struct recording_track *track)
{
    struct page_bytes process = {0};
    const char *title = recording_set_title(set, track->file);

    put_number(&process, PROCESS_PID, set->recordings[track->file].head.pid);
    put_text(&process, PROCESS_CMDLINE, title);
    put_text(&process, PROCESS_NAME, title);
    put_number(&trace->inner, DESCRIPTOR_UUID, trace->first + PROCESS_TRACK);
    put_bytes(&trace->inner, DESCRIPTOR_PROCESS, process.bytes, process.count);
    trace->failed = trace->failed || process.failed;
    page_bytes_free(&process);
    write_packet(trace, PACKET_DESCRIPTOR, false, 0);
}

static void describe_track(struct trace *trace, uint64_t track, const char *before, const char *name,
                           bool counter)
{
    static const unsigned char bytes_unit[] = {COUNTER_UNIT << 3 | VARINT, UNIT_BYTES};
    char text[RECORDING_SENTENCE];

    snprintf(text, sizeof text, "%s%.400s", before, name);
    put_number(&trace->inner, DESCRIPTOR_UUID, trace->first + track);
    put_number(&trace->inner, DESCRIPTOR_PARENT, trace->first + PROCESS_TRACK);
    put_text(&trace->inner, DESCRIPTOR_NAME, text);
    if (counter)
        put_bytes(&trace->inner, DESCRIPTOR_COUNTER, bytes_unit, sizeof bytes_unit);
    write_packet(trace, PACKET_DESCRIPTOR, false, 0);
}

static void describe_groups(struct trace *trace, const struct timeline *timeline, enum timeline_by by,
                            uint64_t first, const char *before)
{
    bool *seen = calloc(UINT16_MAX + 1, sizeof *seen);

    if (!seen) {
        trace->failed = true;
        return;
    }
    for (size_t i = 0; i < timeline->block_count; i++) {
        const uint16_t id = by == TIMELINE_BY_OWNER ? timeline->blocks[i].owner : timeline->blocks[i].tag;

        if (!seen[id])
            describe_track(trace, first + id, before, timeline_name(timeline->recording, by, id), true);
        seen[id] = true;
    }
    free(seen);
}

/* ---- events ---- */

static void count(struct trace *trace, uint64_t track, uint64_t time_ns, uint64_t bytes)
{
    put_number(&trace->inner, EVENT_TYPE, COUNTER);
    put_number(&trace->inner, EVENT_TRACK, trace->first + track);
    put_number(&trace->inner, EVENT_COUNTER, bytes);
    write_packet(trace, PACKET_TRACK_EVENT, true, time_ns);
}

static void mark(struct trace *trace, uint64_t track, unsigned type, uint64_t time_ns, const char *name)
{
    put_number(&trace->inner, EVENT_TYPE, type);
    put_number(&trace->inner, EVENT_TRACK, trace->first + track);
    if (name) {
        put_text(&trace->inner, EVENT_CATEGORY, "memory");
        put_text(&trace->inner, EVENT_NAME, name);
    }
    write_packet(trace, PACKET_TRACK_EVENT, true, time_ns);
}

static void write_mark(struct trace *trace, const struct timeline *timeline,
                       const struct recording_event *event)
{
    char text[RECORDING_SENTENCE], size[RECORDING_TIME];
    const char *owner = timeline_name(timeline->recording, TIMELINE_BY_OWNER, event->owner);

    recording_size(event->bytes, size);
    switch (event->head.type) {
    case RECORDING_REFUSAL:
        snprintf(text, sizeof text, "refused %s for %.100s (%s)", size, owner,
                 recording_limit_name(event->limit));
        mark(trace, PROCESS_TRACK, INSTANT, event->time_ns, text);
        break;
    case RECORDING_WAIT:
        snprintf(text, sizeof text, "waits for %s for %.100s", size, owner);
        mark(trace, WAITS_TRACK, SLICE_BEGIN,
             event->time_ns > event->other ? event->time_ns - event->other : 0, text);
        mark(trace, WAITS_TRACK, SLICE_END, event->time_ns, NULL);
        break;
    case RECORDING_LEND:
    case RECORDING_BORROW:
        snprintf(text, sizeof text, event->head.type == RECORDING_LEND ? "lends %s" : "borrows %s", size);
        mark(trace, PROCESS_TRACK, INSTANT, event->time_ns, text);
        break;
    default:
        snprintf(text, sizeof text, "joins free chunks, %s", size);
        mark(trace, PROCESS_TRACK, INSTANT, event->time_ns, text);
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
    struct sums *sums = calloc(1, sizeof *sums);
    uint64_t used = 0;

    if (!sums) {
        trace->failed = true;
        return;
    }
    describe_process(trace, set, track);
    describe_track(trace, WAITS_TRACK, "", "waits", false);
    describe_track(trace, USED_TRACK, "", "in use", true);
    describe_track(trace, LIMIT_TRACK, "", "limit", true);
    describe_track(trace, CONTEXT_TRACK, "", "CUDA context", true);
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
    struct trace trace = {.out = out};

    for (int i = 0; i < set->track_count && !trace.failed; i++) {
        trace.sequence = (uint32_t)i + 1;
        trace.first = 1 + (uint64_t)i * TRACKS_OF_IT;
        trace.origin_ns =
            set->recordings[0].head.began_mono_ns % RECORDING_BYTES_MAX + set->tracks[i].offset_ns;
        trace.begun = false;
        write_track(&trace, set, &set->tracks[i]);
    }
    page_bytes_free(&trace.packet);
    page_bytes_free(&trace.inner);
    page_bytes_free(&trace.text);
    return !trace.failed;
}
