/* Decoded pictures that are kept for the next epoch. It fills up to its budget and then stays as it is: with
 * every sample seen once per epoch in random order, putting out one for another would gain nothing. Any
 * thread, no lock: an entry is published once and lives until the cache is closed. */
#ifndef HARNESS_SAMPLE_CACHE_H
#define HARNESS_SAMPLE_CACHE_H

#include <stdbool.h>

#include "harness/data/dataset_source.h"

struct sample_cache;

/* budget bytes for pictures and the table of `count` samples together; a budget that the table alone exceeds
 * gives no cache (*out is NULL, which all functions take). */
enum status sample_cache_open(struct sample_cache **out, size_t budget, uint64_t count);
void sample_cache_close(struct sample_cache *cache);

/* Copies sample `index` with its label and size into the picture of stride bytes a row. False: not there. */
bool sample_cache_get(struct sample_cache *cache, uint64_t index, size_t stride, int channels,
                      struct sample *sample);

/* Keeps a copy, if there is room. */
void sample_cache_put(struct sample_cache *cache, uint64_t index, size_t stride, int channels,
                      const struct sample *sample);

size_t sample_cache_bytes(const struct sample_cache *cache);
uint64_t sample_cache_hits(const struct sample_cache *cache);

#endif
