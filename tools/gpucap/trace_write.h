/* trace_write: traces for ui.perfetto.dev. Writes the few TrackEvent packets that a recording or a profile
 * needs: tracks, counters of bytes, slices, instants. The caller chooses the tracks' numbers: any but 0, each
 * once per file. Slices of one track must nest: one that begins inside another also ends inside it. Check
 * ferror() for write errors. Owns no lock. */
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
    bool failed; /* memory ran out: the trace is incomplete */
};

/* Assigns the following packets to this sequence (any number but 0), whose times count from there. */
void trace_write_sequence(struct trace_write *trace, uint32_t sequence, uint64_t origin_ns);

/* Writes a process, as a track that contains others. */
void trace_write_process(struct trace_write *trace, uint64_t track, uint64_t pid, const char *title);

/* Writes a track inside another one, which was written before. */
void trace_write_track(struct trace_write *trace, uint64_t track, uint64_t parent, const char *name);
void trace_write_counter(struct trace_write *trace, uint64_t track, uint64_t parent, const char *name);

/* Write an event of a track. */
void trace_write_count(struct trace_write *trace, uint64_t track, uint64_t time_ns, uint64_t bytes);
void trace_write_begin(struct trace_write *trace, uint64_t track, uint64_t time_ns, const char *category,
                       const char *name);
void trace_write_end(struct trace_write *trace, uint64_t track, uint64_t time_ns);
void trace_write_instant(struct trace_write *trace, uint64_t track, uint64_t time_ns, const char *category,
                         const char *name);

/* Frees all buffers, but leaves the file open. Returns false if memory ran out on the way. */
bool trace_write_close(struct trace_write *trace);

#endif
