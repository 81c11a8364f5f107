/* bench_child: runs this program again, once per engine, each time with another environment, because
 * preloading is decided before a process starts. */
#ifndef GPUCAP_BENCH_CHILD_H
#define GPUCAP_BENCH_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum bench_policy {
    BENCH_PLAIN,   /* cudaMalloc and cudaFree */
    BENCH_CACHING, /* a cache like PyTorch's, over cudaMalloc */
    BENCH_ASYNC,   /* cudaMallocAsync and cudaFreeAsync */
    BENCH_WAIT     /* no memory: only cuCtxSynchronize */
};

struct bench_engine {
    const char *name;
    const char *free; /* GPUCAP_FREE of the pool; NULL: no pool */
    enum bench_policy policy;
};

/* Where the children run. */
struct bench_place {
    bool simulated;
    uint64_t capacity; /* bytes that can be allocated; 0: all */
    uint64_t overhead; /* what a process takes before it allocates: counts against a limit */
};

/* Simulated if asked for, or if this machine has no NVIDIA device. */
bool bench_simulated(bool asked);
/* Lets this process see the simulated machine that its children of that capacity will run on. */
void bench_join_place(const struct bench_place *place);
/* A library of the simulated machine, or of this one: the name to load it by. */
void bench_library(const struct bench_place *place, const char *name, char *path, size_t size);

/* Starts this program again with `arguments` (from argv[1] on) for an engine. The child has a pipe to us as
 * its standard output, of which *from is our end, and the descriptors in `kept` (up to -1) stay open in it.
 * Ends the program if that cannot be done. */
pid_t bench_spawn(const struct bench_engine *engine, const struct bench_place *place, char *const arguments[],
                  const int kept[], int *from);

/* True if the child came to its end by itself with status 0. */
bool bench_reap(pid_t child);

#endif
