/* bench_run: one replay of one trace with one engine, in a process of its own.
 *
 * The child prints "? EVENT LIVE" where it wants the memory in use to be looked at, and waits for one byte on
 * its reply descriptor; at the end it prints one "done" line. A child that is timed asks for nothing. */
#ifndef GPUCAP_BENCH_RUN_H
#define GPUCAP_BENCH_RUN_H

#include "bench_child.h"
#include "bench_trace.h"

struct run_sample {
    uint64_t event, live, physical;
};

struct run_result {
    bool completes;
    uint64_t ops, ns; /* replayed, and how long that took */
    uint64_t peak_live, peak_physical;
    uint64_t stitches, driver_calls;
    struct run_sample *samples; /* only of a measured run */
    uint64_t sample_count;
};

enum run_pass { RUN_TIMED, RUN_MEASURED };

/* Replays in a child. Measured: the caller has opened the meter for this place. */
struct run_result run_replay(const struct bench_engine *engine, const struct bench_place *place,
                             const struct trace *trace, enum run_pass pass);
void run_forget(struct run_result *result);

/* The child's side: 0, the exit status. `reply` is -1 in a timed run. */
int run_child(const struct bench_engine *engine, int trace_file, int reply);

/* What a process takes of a limit before it allocates anything; and the child's side. */
uint64_t run_probe(const struct bench_engine *engine, const struct bench_place *place);
int run_probe_child(void);

#endif
