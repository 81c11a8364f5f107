/* events: see events.h. */
#include "interpose/see/events.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "interpose/base/clock.h"
#include "interpose/base/lock.h"
#include "interpose/base/pages.h"
#include "interpose/see/tags.h"

#define AHEAD 8 /* events: the slot of an event so far ahead is fetched */

enum { RING_FREE, RING_USED, RING_ENDED };

struct ring {
    /* written by the thread */
    _Atomic uint64_t head; /* events ever noted */
    _Atomic uint64_t dropped;
    uint64_t room; /* head may go up to here without another look at tail */
    struct recording_event *slots;
    uint32_t thread;
    uintptr_t low, high; /* of the thread's stack; low 0: not known */
    /* written by the recorder; processors fetch two lines of 64 bytes at a time */
    _Atomic uint64_t tail __attribute__((aligned(128))); /* events ever read */
    uint64_t told_dropped;
    bool named;
    atomic_int state;
} __attribute__((aligned(128)));

atomic_bool events_on;
static struct ring rings[EVENTS_THREADS];
static atomic_uint used; /* rings from this number on were never used */
static _Atomic uint64_t lost;
static _Atomic uint32_t bell;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* its destructor ends a thread's ring */
static bool have_key;

static _Thread_local struct ring *mine;
static _Thread_local bool ended; /* the thread is ending and gets no ring */

/* ---- the program's threads ---- */

static void thread_ends(void *ring)
{
    ended = true;
    if (ring == mine && mine)
        atomic_store_explicit(&mine->state, RING_ENDED, memory_order_release);
    mine = NULL;
}

static void make_key(void)
{
    have_key = pthread_key_create(&key, thread_ends) == 0;
}

/* Takes a free ring, if possible one that has memory. */
static struct ring *claim(void)
{
    for (unsigned i = 0; i < EVENTS_THREADS; i++) {
        int free_one = RING_FREE;
        unsigned before = atomic_load(&used);

        if (!atomic_compare_exchange_strong(&rings[i].state, &free_one, RING_USED))
            continue;
        while (before < i + 1 && !atomic_compare_exchange_weak(&used, &before, i + 1))
            continue;
        return &rings[i];
    }
    return NULL;
}

static void find_stack(struct ring *ring)
{
    pthread_attr_t attributes;
    void *low;
    size_t bytes;

    ring->low = ring->high = 0;
    if (pthread_getattr_np(pthread_self(), &attributes))
        return;
    if (pthread_attr_getstack(&attributes, &low, &bytes) == 0) {
        ring->low = (uintptr_t)low;
        ring->high = (uintptr_t)low + bytes;
    }
    pthread_attr_destroy(&attributes);
}

static struct ring *open_without_cancel(void)
{
    pthread_once(&once, make_key);
    struct ring *ring = ended || !have_key ? NULL : claim();
    if (!ring)
        return NULL;
    if (!ring->slots)
        ring->slots = pages_map(EVENTS_RING * sizeof(*ring->slots));
    if (!ring->slots || pthread_setspecific(key, ring)) {
        atomic_store(&ring->state, RING_FREE);
        return NULL;
    }
    ring->thread = (uint32_t)syscall(SYS_gettid);
    find_stack(ring);
    mine = ring;
    return ring;
}

static struct ring *open_ring(void)
{
    lock_disable_cancel(); /* a cancelled thread would keep the ring, or a lock of the C library */
    struct ring *ring = open_without_cancel();
    lock_restore_cancel();
    return ring;
}

static bool has_room(struct ring *ring, uint64_t head)
{
    if (__builtin_expect(head != ring->room, 1))
        return true;
    ring->room = atomic_load_explicit(&ring->tail, memory_order_acquire) + EVENTS_RING;
    return head != ring->room;
}

/* Asks for a slot that will be written soon. The recorder has read it on another processor, and to get it
 * back takes longer than to note an event. */
static inline void fetch_slot(const struct recording_event *slot)
{
#ifdef __x86_64__
    __asm__ volatile("prefetchw %0"
                     :
                     : "m"(*slot)); /* GCC's own fetches for reading only, unless told -mprfchw */
#else
    __builtin_prefetch(slot, 1);
#endif
}

struct recording_event *events_slot(void)
{
    struct ring *ring = __builtin_expect(mine != NULL, 1) ? mine : open_ring();

    if (!ring) {
        atomic_fetch_add_explicit(&lost, 1, memory_order_relaxed);
        return NULL;
    }
    const uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (!has_room(ring, head)) {
        atomic_store_explicit(&ring->dropped, atomic_load_explicit(&ring->dropped, memory_order_relaxed) + 1,
                              memory_order_relaxed);
        return NULL;
    }
    fetch_slot(&ring->slots[(head + AHEAD) % EVENTS_RING]);
    return &ring->slots[head % EVENTS_RING];
}

void events_publish(struct recording_event *slot)
{
    struct ring *ring = mine;
    const uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

    slot->head.size = sizeof(*slot);
    slot->thread = ring->thread;
    slot->tag = tags_current;
    slot->time_ns = clock_ns();
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    if (__builtin_expect((head + 1) % (EVENTS_RING / 2) == 0, 0))
        events_wake();
}

void events_stack(uintptr_t *low, uintptr_t *high)
{
    struct ring *ring = mine ? mine : open_ring();

    *low = ring ? ring->low : 0;
    *high = ring ? ring->high : 0;
}

/* ---- the recorder ---- */

void events_switch(bool on)
{
    atomic_store(&events_on, on);
}

void events_sleep(unsigned timeout_ms)
{
    const struct timespec span = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000L};

    if (!atomic_exchange(&bell, 0))
        syscall(SYS_futex, &bell, FUTEX_WAIT_PRIVATE, 0, &span, NULL, 0);
    atomic_store(&bell, 0);
}

void events_wake(void)
{
    if (!atomic_exchange(&bell, 1))
        syscall(SYS_futex, &bell, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

size_t events_begin(struct events_reader readers[EVENTS_THREADS])
{
    const unsigned known = atomic_load(&used);
    size_t count = 0;

    for (unsigned i = 0; i < known; i++) {
        struct ring *ring = &rings[i];
        /* The state first: what an ended thread has noted is then in `head`. */
        const int state = atomic_load_explicit(&ring->state, memory_order_acquire);
        const uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
        const uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        const uint64_t dropped = atomic_load_explicit(&ring->dropped, memory_order_relaxed);

        if (state == RING_ENDED && head == tail && dropped == ring->told_dropped) {
            ring->named = false;
            atomic_store_explicit(&ring->state, RING_FREE, memory_order_release);
        } else if (head != tail || dropped != ring->told_dropped) {
            readers[count++] = (struct events_reader){.slots = ring->slots,
                                                      .at = tail,
                                                      .end = head,
                                                      .thread = ring->thread,
                                                      .ring = i,
                                                      .dropped = dropped - ring->told_dropped,
                                                      .named = ring->named};
        }
    }
    return count;
}

void events_end(const struct events_reader *readers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct ring *ring = &rings[readers[i].ring];

        ring->named = readers[i].named;
        ring->told_dropped += readers[i].dropped;
        atomic_store_explicit(&ring->tail, readers[i].at, memory_order_release);
    }
}

uint64_t events_lost(void)
{
    return atomic_exchange(&lost, 0);
}

void events_after_fork(void)
{
    atomic_store(&events_on, false);
    mine = NULL;
    for (unsigned i = 0; i < EVENTS_THREADS; i++) {
        struct recording_event *slots = rings[i].slots;

        if (slots)
            munmap(slots, EVENTS_RING * sizeof(*slots));
        rings[i] = (struct ring){.slots = NULL};
    }
}
