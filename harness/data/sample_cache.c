/* One pointer per sample, set once with release order. */
#include "harness/data/sample_cache.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    int32_t label;
    int h, w;
    uint8_t pixels[];
};

struct sample_cache {
    size_t budget;
    uint64_t count;
    atomic_size_t bytes;
    _Atomic(struct entry *) entry[];
};

enum status sample_cache_open(struct sample_cache **out, size_t budget, uint64_t count)
{
    size_t table;
    struct sample_cache *cache;

    *out = NULL;
    if (__builtin_mul_overflow(count, sizeof(cache->entry[0]), &table) ||
        __builtin_add_overflow(table, sizeof(*cache), &table) || table >= budget)
        return STATUS_OK;
    cache = calloc(1, table);
    if (!cache)
        return status_fail(STATUS_NO_MEMORY, "no host memory for a cache of %llu samples",
                           (unsigned long long)count);
    cache->budget = budget;
    cache->count = count;
    atomic_init(&cache->bytes, table);
    *out = cache;
    return STATUS_OK;
}

void sample_cache_close(struct sample_cache *cache)
{
    for (uint64_t i = 0; cache && i < cache->count; i++)
        free(atomic_load_explicit(&cache->entry[i], memory_order_relaxed));
    free(cache);
}

bool sample_cache_get(struct sample_cache *cache, uint64_t index, size_t stride, int channels,
                      struct sample *sample)
{
    const struct entry *entry;
    size_t row;

    if (!cache || !(entry = atomic_load_explicit(&cache->entry[index], memory_order_acquire)))
        return false;
    row = (size_t)entry->w * (size_t)channels;
    for (int y = 0; y < entry->h; y++)
        memcpy(sample->bytes + (size_t)y * stride, entry->pixels + (size_t)y * row, row);
    *sample->labels = entry->label;
    sample->h = entry->h;
    sample->w = entry->w;
    return true;
}

void sample_cache_put(struct sample_cache *cache, uint64_t index, size_t stride, int channels,
                      const struct sample *sample)
{
    size_t row = (size_t)sample->w * (size_t)channels;
    size_t bytes = sizeof(struct entry) + row * (size_t)sample->h;
    struct entry *entry, *none = NULL;

    if (!cache || atomic_load_explicit(&cache->entry[index], memory_order_relaxed))
        return;
    if (atomic_fetch_add_explicit(&cache->bytes, bytes, memory_order_relaxed) + bytes > cache->budget ||
        !(entry = malloc(bytes))) {
        atomic_fetch_sub_explicit(&cache->bytes, bytes, memory_order_relaxed);
        return;
    }
    entry->label = *sample->labels;
    entry->h = sample->h;
    entry->w = sample->w;
    for (int y = 0; y < entry->h; y++)
        memcpy(entry->pixels + (size_t)y * row, sample->bytes + (size_t)y * stride, row);
    if (!atomic_compare_exchange_strong_explicit(&cache->entry[index], &none, entry, memory_order_release,
                                                 memory_order_relaxed)) {
        free(entry); /* another worker was first */
        atomic_fetch_sub_explicit(&cache->bytes, bytes, memory_order_relaxed);
    }
}
