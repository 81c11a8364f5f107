/* tags: see tags.h. */
#include "interpose/see/tags.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

_Thread_local uint16_t tags_current;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char names[TAGS_MAX][TAGS_NAME]; /* written under lock before `count` includes them */
static atomic_uint count = 1;           /* the first has no name */
static _Atomic uint64_t live_bytes[TAGS_MAX], peak_bytes[TAGS_MAX];

/* Returns the index of a known name, or -1. */
static int find(const char *name)
{
    const unsigned known = atomic_load_explicit(&count, memory_order_acquire);

    for (unsigned i = 0; i < known; i++) {
        if (!strncmp(names[i], name, TAGS_NAME - 1))
            return (int)i;
    }
    return -1;
}

bool tags_set(const char *name)
{
    if (!name)
        name = "";
    int tag = find(name);

    if (tag < 0) {
        pthread_mutex_lock(&lock);
        tag = find(name);
        const unsigned next = atomic_load(&count);
        if (tag < 0 && next < TAGS_MAX) {
            strncpy(names[next], name, TAGS_NAME - 1);
            atomic_store_explicit(&count, next + 1, memory_order_release);
            tag = (int)next;
        }
        pthread_mutex_unlock(&lock);
    }
    tags_current = tag < 0 ? 0 : (uint16_t)tag;
    return tag >= 0;
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
    const int tag = find(name ? name : "");

    if (tag < 0)
        return false;
    *live = atomic_load(&live_bytes[tag]);
    *peak = atomic_load(&peak_bytes[tag]);
    return true;
}
