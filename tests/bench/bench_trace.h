/* bench_trace: the allocations of a program, in its order: `a ID BYTES STREAM` and `f ID` lines, gzipped or
 * plain, or a recording of gpucap's (interpose/see/recording.h). Kept in a memory file, so that every child
 * maps the same one and none reads text while it is timed.
 */
#ifndef GPUCAP_BENCH_TRACE_H
#define GPUCAP_BENCH_TRACE_H

#include <stdint.h>

struct trace_event {
    uint64_t bytes; /* 0: a free */
    uint32_t block; /* below trace.blocks */
    uint32_t stream;
};

struct trace {
    char name[128];
    int file; /* holds the events */
    const struct trace_event *events;
    uint64_t count, blocks, peak_live;
};

/* Ends the program if it cannot be read, or frees what it has not allocated. */
void trace_read(struct trace *trace, const char *path);
/* A child: the events of a file that it was given. */
void trace_map(struct trace *trace, int file);
void trace_close(struct trace *trace);

#endif
