/* Pinned host memory for batches: a jemalloc arena whose extents are blocks of cudaHostAlloc, which costs
 * milliseconds a call. Freed blocks are kept for the next batch size and go back to the runtime when the
 * arena is closed or trimmed. The jemalloc inside is private: its names are renamed when it is linked, so
 * malloc stays the program's own. Without jemalloc at build time every block is a cudaHostAlloc of its own.
 *
 * Mind: jemalloc rounds a block up to its size class, by at most a fifth. Any thread may allocate; the device
 * that is current there must be a valid one. */
#ifndef HARNESS_PINNED_H
#define HARNESS_PINNED_H

#include <stddef.h>

#include "harness/base/status.h"

struct pinned;

/* limit: bytes that may be held from the runtime at any time. */
enum status pinned_open(struct pinned **out, size_t limit);

/* Gives everything back, also blocks that are still in use. */
void pinned_close(struct pinned *pinned);

/* NULL when the runtime or the limit has no more. */
void *pinned_alloc(struct pinned *pinned, size_t bytes);
void pinned_free(struct pinned *pinned, void *block);

/* Returns to the runtime what no block uses. */
void pinned_trim(struct pinned *pinned);

/* Bytes held from the runtime now. */
size_t pinned_held(struct pinned *pinned);

/* "jemalloc", or "cudaHostAlloc" where that was not there at build time. */
const char *pinned_allocator(void);

#endif
