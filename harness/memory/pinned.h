/* Pinned host memory for batches: a jemalloc arena whose extents come from cudaHostAlloc, which takes
 * milliseconds per call. Freed blocks are kept for later requests and return to the runtime with
 * pinned_trim or pinned_close. jemalloc is private: the build renames its symbols, so the program's malloc
 * is not replaced. Built without jemalloc, every block is a cudaHostAlloc of its own.
 *
 * jemalloc rounds a block up to its size class, by at most a fifth. Any thread may allocate; its current
 * CUDA device must be valid. */
#ifndef HARNESS_PINNED_H
#define HARNESS_PINNED_H

#include <stddef.h>

#include "harness/base/status.h"

struct pinned;

/* `limit`: the most bytes held from the runtime at any time. */
enum status pinned_open(struct pinned **out, size_t limit);

/* Frees everything, including blocks still in use. */
void pinned_close(struct pinned *pinned);

/* Returns NULL when the limit is reached or the runtime has no memory. */
void *pinned_alloc(struct pinned *pinned, size_t bytes);
void pinned_free(struct pinned *pinned, void *block);

/* Returns unused memory to the runtime. */
void pinned_trim(struct pinned *pinned);

/* Returns the bytes held from the runtime now. */
size_t pinned_held(struct pinned *pinned);

/* Returns "jemalloc", or "cudaHostAlloc" if built without jemalloc. */
const char *pinned_allocator(void);

#endif
