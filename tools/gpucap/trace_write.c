/* trace_write: TrackEvent packets, written by hand from Perfetto's published schema
 * (protos/perfetto/trace/trace_packet.proto, track_event/track_event.proto, track_descriptor.proto,
 * counter_descriptor.proto, process_descriptor.proto): the few fields that are needed. See trace_write.h. */
#include "tools/gpucap/trace_write.h"

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
static void write_packet(struct trace_write *trace, unsigned field, bool timed, uint64_t time_ns)
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

void trace_write_sequence(struct trace_write *trace, uint32_t sequence, uint64_t origin_ns)
{
    trace->sequence = sequence;
    trace->origin_ns = origin_ns;
    trace->begun = false;
}

/* ---- tracks ---- */

void trace_write_process(struct trace_write *trace, uint64_t track, uint64_t pid, const char *title)
{
    struct page_bytes process = {0};

    put_number(&process, PROCESS_PID, pid);
    put_text(&process, PROCESS_CMDLINE, title);
    put_text(&process, PROCESS_NAME, title);
    put_number(&trace->inner, DESCRIPTOR_UUID, track);
    put_bytes(&trace->inner, DESCRIPTOR_PROCESS, process.bytes, process.count);
    trace->failed = trace->failed || process.failed;
    page_bytes_free(&process);
    write_packet(trace, PACKET_DESCRIPTOR, false, 0);
}

static void describe(struct trace_write *trace, uint64_t track, uint64_t parent, const char *name)
{
    put_number(&trace->inner, DESCRIPTOR_UUID, track);
    put_number(&trace->inner, DESCRIPTOR_PARENT, parent);
    put_text(&trace->inner, DESCRIPTOR_NAME, name);
}

void trace_write_track(struct trace_write *trace, uint64_t track, uint64_t parent, const char *name)
{
    describe(trace, track, parent, name);
    write_packet(trace, PACKET_DESCRIPTOR, false, 0);
}

void trace_write_counter(struct trace_write *trace, uint64_t track, uint64_t parent, const char *name)
{
    static const unsigned char bytes_unit[] = {COUNTER_UNIT << 3 | VARINT, UNIT_BYTES};

    describe(trace, track, parent, name);
    put_bytes(&trace->inner, DESCRIPTOR_COUNTER, bytes_unit, sizeof(bytes_unit));
    write_packet(trace, PACKET_DESCRIPTOR, false, 0);
}

/* ---- events ---- */

static void put_event(struct trace_write *trace, unsigned type, uint64_t track, const char *category,
                      const char *name)
{
    put_number(&trace->inner, EVENT_TYPE, type);
    put_number(&trace->inner, EVENT_TRACK, track);
    if (name) {
        put_text(&trace->inner, EVENT_CATEGORY, category);
        put_text(&trace->inner, EVENT_NAME, name);
    }
}

void trace_write_count(struct trace_write *trace, uint64_t track, uint64_t time_ns, uint64_t bytes)
{
    put_event(trace, COUNTER, track, NULL, NULL);
    put_number(&trace->inner, EVENT_COUNTER, bytes);
    write_packet(trace, PACKET_TRACK_EVENT, true, time_ns);
}

void trace_write_begin(struct trace_write *trace, uint64_t track, uint64_t time_ns, const char *category,
                       const char *name)
{
    put_event(trace, SLICE_BEGIN, track, category, name);
    write_packet(trace, PACKET_TRACK_EVENT, true, time_ns);
}

void trace_write_end(struct trace_write *trace, uint64_t track, uint64_t time_ns)
{
    put_event(trace, SLICE_END, track, NULL, NULL);
    write_packet(trace, PACKET_TRACK_EVENT, true, time_ns);
}

void trace_write_instant(struct trace_write *trace, uint64_t track, uint64_t time_ns, const char *category,
                         const char *name)
{
    put_event(trace, INSTANT, track, category, name);
    write_packet(trace, PACKET_TRACK_EVENT, true, time_ns);
}

bool trace_write_close(struct trace_write *trace)
{
    page_bytes_free(&trace->packet);
    page_bytes_free(&trace->inner);
    page_bytes_free(&trace->text);
    return !trace->failed;
}
