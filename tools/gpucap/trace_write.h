/* trace_write: traces for ui.perfetto.dev. Writes the few TrackEvent packets that a recording or a profile
 * needs: tracks, counters of bytes, slices, instants. The caller chooses the tracks' numbers: any but 0, each
 * once per file. Slices of one track must nest: one that begins inside another also ends inside it. Whether
 * the file could be written, ferror() knows. Owns no lock.
 */
#ifndef GPUCAP_TRACE_WRITE_H
#define GPUCAP_TRACE_WRITE_H

#include "tools/gpucap/page_bytes.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct trace_write {
    FILE *out;
    struct page_bytes packet, inner, text; /* used again for each packet */
    uint64_t origin_ns;                    /* added to every time */
    uint32_t sequence;
    bool begun;
    bool failed; /* without memory: the trace is not whole */
};

/* What follows belongs to this sequence of packets (any number but 0), with its times counted from there. */
void trace_write_sequence(struct trace_write *trace, uint32_t sequence, uint64_t origin_ns);

/* A process, as a track for others to lie in. */
void trace_write_process(struct trace_write *trace, uint64_t track, uint64_t pid, const char *title);

/* A track in another one, which has been written before. */
void trace_write_track(struct trace_write *trace, uint64_t track, uint64_t parent, const char *name);
void trace_write_counter(struct trace_write *trace, uint64_t track, uint64_t parent, const char *name);

/* What happens on a track. */
void trace_write_count(struct trace_write *trace, uint64_t track, uint64_t time_ns, uint64_t bytes);
void trace_write_begin(struct trace_write *trace, uint64_t track, uint64_t time_ns, const char *category,
                       const char *name);
void trace_write_end(struct trace_write *trace, uint64_t track, uint64_t time_ns);
void trace_write_instant(struct trace_write *trace, uint64_t track, uint64_t time_ns, const char *category,
                         const char *name);

/* Frees what was used, but leaves the file open. False: there was no memory for all of it. */
bool trace_write_close(struct trace_write *trace);

#endif
