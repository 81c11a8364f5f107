/* bench_quiet: a processor that nobody else disturbs now. On a shared machine the same code takes 165 ns on one
 * and 285 ns on another, whose sibling works for somebody else (seen on an H200's host). */
#ifndef GPUCAP_BENCH_QUIET_H
#define GPUCAP_BENCH_QUIET_H

/* Moves the calling thread to the processor that is fastest at this moment, among those it was allowed at the
 * first call. */
void bench_quiet(void);

/* Lets it run anywhere again, and so the threads that it starts. */
void bench_anywhere(void);

#endif
