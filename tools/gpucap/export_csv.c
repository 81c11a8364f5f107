/* export_csv: a line per event. Names stand in quotes; a quote in them is doubled. See export.h. */
#include "tools/gpucap/export.h"

#include "tools/gpucap/why_apart.h"

#include <inttypes.h>

static const char *event_name(uint16_t type)
{
    static const char *const names[] = {
        [RECORDING_ALLOC] = "alloc",     [RECORDING_FREE] = "free",     [RECORDING_GROW] = "grow",
        [RECORDING_TRIM] = "trim",       [RECORDING_STITCH] = "stitch", [RECORDING_USED] = "used",
        [RECORDING_LEND] = "lend",       [RECORDING_BORROW] = "borrow", [RECORDING_WAIT] = "wait",
        [RECORDING_REFUSAL] = "refusal", [RECORDING_LIMIT] = "limit",   [RECORDING_CONTEXT] = "context",
        [RECORDING_DROPPED] = "dropped", [RECORDING_END] = "end",       [RECORDING_APART] = "apart",
        [RECORDING_DRIVER] = "driver",
    };

    return type < sizeof(names) / sizeof(*names) && names[type] ? names[type] : "unknown";
}

static void write_quoted(FILE *out, const char *text)
{
    putc('"', out);
    for (; *text; text++) {
        if (*text == '"')
            putc('"', out);
        putc(*text, out);
    }
    putc('"', out);
}

static const char *kind_name(const struct recording *recording, const struct recording_event *event)
{
    if (event->head.type == RECORDING_APART)
        return why_apart_word(event->limit);
    return event->kind ? timeline_name(recording, TIMELINE_BY_KIND, event->kind) : "";
}

static void write_event(FILE *out, const struct recording_track *track, const struct recording_event *event,
                        const struct timeline_state *state)
{
    const struct recording *recording = track->timeline.recording;

    fprintf(out, "%" PRIu64 ",%u,%u,%s,%s,", track->offset_ns + event->time_ns, recording->head.pid,
            event->device, event_name(event->head.type), kind_name(recording, event));
    write_quoted(out, timeline_name(recording, TIMELINE_BY_OWNER, event->owner));
    putc(',', out);
    write_quoted(out, event->tag ? timeline_name(recording, TIMELINE_BY_TAG, event->tag) : "");
    fprintf(out, ",0x%" PRIx64 ",%" PRIu64 ",%" PRIu64 ",%u,%" PRIu64 ",%" PRIu64 "\n", event->address,
            event->bytes, event->other, event->thread, state->live, timeline_used(state));
}

bool export_csv(FILE *out, const struct recording_set *set)
{
    fputs("time_ns,pid,device,event,kind,owner,tag,address,bytes,other,thread,live_bytes,used_bytes\n", out);
    for (int i = 0; i < set->track_count; i++) {
        const struct timeline *timeline = &set->tracks[i].timeline;
        const struct recording *recording = timeline->recording;
        struct timeline_state state = TIMELINE_START;
        size_t step = 0;

        for (size_t j = 0; j < recording->count; j++) {
            const struct recording_event *event = &recording->events[j];

            if (event->device != timeline->device)
                continue;
            while (step < timeline->step_count && timeline->steps[step].time_ns <= event->time_ns)
                timeline_advance(&state, timeline, &timeline->steps[step++]);
            write_event(out, &set->tracks[i], event, &state);
        }
    }
    return true;
}
