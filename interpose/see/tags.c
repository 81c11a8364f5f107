/* tags: see tags.h. */
#include "interpose/see/tags.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define EMPTY_HASH 2166136261u /* of "" */

_Thread_local uint16_t tags_current;
static _Thread_local uint16_t own, range; /* set by tags_set and tags_set_range */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char names[TAGS_MAX][TAGS_NAME];          /* written under lock before `count` includes them */
static uint32_t hashes[TAGS_MAX] = {EMPTY_HASH}; /* likewise */
static atomic_uint count = 1;                    /* the first has no name */
static unsigned range_names;                     /* guarded by lock */
static _Atomic uint64_t live_bytes[TAGS_MAX], peak_bytes[TAGS_MAX];

/* FNV-1a of the part of a name that counts. */
static uint32_t hash_of(const char *name)
{
    uint32_t hash = EMPTY_HASH;

    for (int i = 0; i < TAGS_NAME - 1 && name[i]; i++)
        hash = (hash ^ (unsigned char)name[i]) * 16777619U;
    return hash;
}

/* Returns the index of a known name, or -1. */
static int find(const char *name, uint32_t hash)
{
    const unsigned known = atomic_load_explicit(&count, memory_order_acquire);

    for (unsigned i = 0; i < known; i++) {
        if (hashes[i] == hash && !strncmp(names[i], name, TAGS_NAME - 1))
            return (int)i;
    }
    return -1;
}

/* Returns the index of a name, which it adds if need be; -1: there are too many. */
static int find_or_add(const char *name, bool of_range)
{
    const uint32_t hash = hash_of(name);
    int tag = find(name, hash);

    if (tag >= 0)
        return tag;
    pthread_mutex_lock(&lock);
    tag = find(name, hash);
    const unsigned next = atomic_load(&count);
    if (tag < 0 && next < TAGS_MAX && !(of_range && range_names >= TAGS_RANGES)) {
        strncpy(names[next], name, TAGS_NAME - 1);
        hashes[next] = hash;
        range_names += of_range;
        atomic_store_explicit(&count, next + 1, memory_order_release);
        tag = (int)next;
    }
    pthread_mutex_unlock(&lock);
    return tag;
}

bool tags_set(const char *name)
{
    const int tag = find_or_add(name ? name : "", false);

    own = tag < 0 ? 0 : (uint16_t)tag;
    tags_current = own ? own : range;
    return tag >= 0;
}

uint16_t tags_of_range(const char *name)
{
    const int tag = find_or_add(name, true);

    return tag < 0 ? 0 : (uint16_t)tag;
}

void tags_set_range(uint16_t tag)
{
    range = tag;
    tags_current = own ? own : range;
}

const char *tags_name(uint16_t tag)
{
    return tag < atomic_load_explicit(&count, memory_order_acquire) ? names[tag] : "";
}

void tags_add(uint16_t tag, uint64_t bytes)
{
    const uint64_t now = atomic_fetch_add_explicit(&live_bytes[tag], bytes, memory_order_relaxed) + bytes;
    uint64_t peak = atomic_load_explicit(&peak_bytes[tag], memory_order_relaxed);

    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes[tag], &peak, now))
        ;
}

void tags_remove(uint16_t tag, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&live_bytes[tag], bytes, memory_order_relaxed);
}

bool tags_read(const char *name, uint64_t *live, uint64_t *peak)
{
    const int tag = find(name ? name : "", hash_of(name ? name : ""));

    if (tag < 0)
        return false;
    *live = atomic_load(&live_bytes[tag]);
    *peak = atomic_load(&peak_bytes[tag]);
    return true;
}
