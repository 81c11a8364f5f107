/* A parallel loop for the CPU reference. The threads are started at the first use, one per processor that the
 * process may run on less the caller's own, sleep when there is nothing to do, and are shared by all callers;
 * a child of fork starts its own. Which thread takes which piece is left open, so a piece must not depend on
 * another and must not write what another reads: results are then the same for any number of threads. */
#ifndef KERNELS_CPU_THREADS_H
#define KERNELS_CPU_THREADS_H

#include <stddef.h>

typedef void (*cpu_threads_fn)(const void *arg, size_t begin, size_t end);

/* Calls fn(arg, begin, end) for the pieces [0, grain), [grain, 2 * grain), ... of [0, count), and returns
 * when all are done. Pieces begin at multiples of grain whatever the number of threads. */
void cpu_threads_for(size_t count, size_t grain, cpu_threads_fn fn, const void *arg);

/* The threads that a loop may use, the caller's included. */
int cpu_threads_count(void);

#endif
