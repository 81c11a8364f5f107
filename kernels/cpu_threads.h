/* A parallel loop for the CPU reference. The first use starts the threads: one less than the process may use
 * processors, since the caller works too. They sleep when there is nothing to do and are shared by all
 * callers; a child of fork starts its own. Any thread may take any piece, so that a piece must not depend on
 * another or write what another reads. Results are then the same for any number of threads. */
#ifndef KERNELS_CPU_THREADS_H
#define KERNELS_CPU_THREADS_H

#include <stddef.h>

typedef void (*cpu_threads_fn)(const void *arg, size_t begin, size_t end);

/* Calls fn(arg, begin, end) for the pieces [0, grain), [grain, 2 * grain), ... of [0, count), and returns
 * when all are done. The pieces do not depend on the number of threads. */
void cpu_threads_for(size_t count, size_t grain, cpu_threads_fn fn, const void *arg);

/* Returns the number of threads that a loop may use, the caller included. */
int cpu_threads_count(void);

#endif
