/* A cache of decoded pictures for the next epochs. It fills up to its budget and then keeps what it has: an
 * epoch uses every sample once in random order, so replacing entries would gain nothing. Any thread, no
 * lock: an entry is published once and stays until the cache is closed. */
#ifndef HARNESS_SAMPLE_CACHE_H
#define HARNESS_SAMPLE_CACHE_H

#include <stdbool.h>

#include "harness/data/dataset_source.h"

struct sample_cache;

/* `budget` covers the pictures and the table of `count` samples. If the table alone exceeds it, *out is
 * NULL, which all functions accept. */
enum status sample_cache_open(struct sample_cache **out, size_t budget, uint64_t count);
void sample_cache_close(struct sample_cache *cache);

/* Copies sample `index` with its label and size into a picture of `stride` bytes per row. Returns false if
 * it is not in the cache. */
bool sample_cache_get(struct sample_cache *cache, uint64_t index, size_t stride, int channels,
                      struct sample *sample);

/* Stores a copy if there is room. */
void sample_cache_put(struct sample_cache *cache, uint64_t index, size_t stride, int channels,
                      const struct sample *sample);

#endif
