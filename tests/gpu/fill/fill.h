/* fill: a program that allocates device memory until it is refused, goes on, and checks its bytes.
 *
 * fill_modes.c has the logic. It uses CUDA in three ways, as programs do: the driver by dlsym() (fill_dl),
 * the driver linked directly (fill_direct), the runtime, static or shared (fill_rt). Each way fills in this
 * table. Prints "key=value" lines; the exit status is 0 when every promise held. Must never use managed
 * memory beyond the card's.
 */
#ifndef TESTS_GPU_FILL_H
#define TESTS_GPU_FILL_H

#include <stddef.h>
#include <stdint.h>

#define FILL_OUT_OF_MEMORY 2 /* CUDA_ERROR_OUT_OF_MEMORY and cudaErrorMemoryAllocation alike */
#define FILL_NO_DRIVER     77

struct fill_graph {
    void *stream, *exec;
};

struct fill_api {
    const char *name;
    int (*start)(void); /* 0, FILL_NO_DRIVER, or a code; on each thread that uses the others */
    int (*info)(size_t *free_bytes, size_t *total);
    int (*alloc)(uintptr_t *p, size_t bytes);
    int (*release)(uintptr_t p);
    int (*set)(uintptr_t p, uint32_t value, size_t words); /* done when it returns */
    int (*read)(uint32_t *into, uintptr_t p, size_t words);
    /* A graph with a stream of its own that allocates, fills the last words of the block with a byte, copies
     * them to `out` and frees the block. */
    int (*graph_make)(struct fill_graph *graph, size_t bytes, unsigned char byte, uintptr_t out,
                      size_t words);
    int (*graph_run)(const struct fill_graph *graph); /* done when it returns */
    int (*graph_end)(struct fill_graph *graph);       /* also of one that could not be made */
};

int fill_main(int argc, char **argv, const struct fill_api *api);

#endif
