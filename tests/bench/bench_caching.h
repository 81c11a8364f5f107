/* bench_caching: a caching allocator with PyTorch's default policy, over cudaMalloc, as a program would bring
 * its own.
 *
 * Requests are rounded to 512 bytes. Up to 1 MiB they come out of segments of 2 MiB, below 10 MiB out of
 * segments of 20 MiB, above that out of segments of their own size rounded to 2 MiB. A free block is split if
 * what remains is worth it and joined with free neighbours of its segment. Nothing goes back until the driver
 * refuses. For one thread. */
#ifndef GPUCAP_BENCH_CACHING_H
#define GPUCAP_BENCH_CACHING_H

#include <stdbool.h>
#include <stdint.h>

struct caching_block;

/* NULL: out of memory, also after everything cached was given back. */
struct caching_block *caching_alloc(uint64_t bytes, uint32_t stream);
void caching_free(struct caching_block *block);

/* cudaMalloc and cudaFree calls so far. */
uint64_t caching_calls(void);

#endif
