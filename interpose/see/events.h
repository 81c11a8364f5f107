/* events: what the threads of the program note for a recording (recorder.h), in one ring per thread.
 *
 * Noting an event takes no lock, calls no allocator and never waits: an event that finds its ring full is
 * lost and counted. Only the owning thread writes to a ring, and only the recorder's thread reads it. While
 * nothing is recorded, the cost is one load and a branch (events_are_on). Memory is bounded: EVENTS_THREADS
 * rings of EVENTS_RING events. Owns no lock.
 *
 * Order: a release is noted before the memory is given up, an allocation after the memory was obtained. The
 * reader takes a time, reads all rings, and uses only the events up to that time (events_begin). Then no
 * event is used without those before it: for an allocation, the release of the same memory.
 */
#ifndef GPUCAP_EVENTS_H
#define GPUCAP_EVENTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "interpose/see/recording.h"

#define EVENTS_RING    8192 /* events; a power of two */
#define EVENTS_THREADS 128  /* rings; threads beyond lose their events */

extern atomic_bool events_on; /* written by events_switch alone */

static inline bool events_are_on(void)
{
    return __builtin_expect(atomic_load_explicit(&events_on, memory_order_relaxed), 0);
}

/* The next slot of the calling thread's ring, or NULL: the event is lost. To be filled in and published. */
struct recording_event *events_slot(void);
void events_publish(struct recording_event *slot);

/* Notes an event of the calling thread, while a recording runs. time_ns and thread are filled in; the tag is
 * the thread's own (tags.h). Inline, so that the caller's values go straight into the slot: a copy reads them
 * in larger pieces than they were written in, and so waits for every store before it. */
__attribute__((always_inline)) static inline void events_note(const struct recording_event *event)
{
    struct recording_event *slot = events_slot();

    if (slot) {
        *slot = *event;
        events_publish(slot);
    }
}

/* The same for the events that have only a card and two numbers. */
static inline void events_note_bytes(enum recording_type type, int device, uint64_t bytes, uint64_t other)
{
    if (events_are_on())
        events_note(&(struct recording_event){
            .head.type = (uint16_t)type, .device = (uint16_t)device, .bytes = bytes, .other = other});
}

/* Notes that the program releases a block, just before its memory is given up. The recorder knows its size
 * and its owner. `kind` says only whether the number is an address, a handle or an array. */
static inline void events_note_free(enum recording_kind kind, uint64_t address, const void *stream)
{
    if (events_are_on())
        events_note(&(struct recording_event){.head.type = RECORDING_FREE,
                                              .kind = (uint8_t)kind,
                                              .address = address,
                                              .other = (uint64_t)(uintptr_t)stream});
}

/* Not events of the file: */
#define EVENTS_GONE 63 /* every block with an address in the `bytes` from `address` on is gone */
#define EVENTS_KEPT 62 /* the driver has refused the release that this thread noted last: the block stays */

/* Notes that a context has ended, and with it all blocks in a range of addresses. */
static inline void events_note_gone(int device, uint64_t start, uint64_t bytes)
{
    if (events_are_on())
        events_note(&(struct recording_event){
            .head.type = EVENTS_GONE, .device = (uint16_t)device, .address = start, .bytes = bytes});
}

/* Notes that the release was refused. */
static inline void events_note_kept(enum recording_kind kind, uint64_t address)
{
    if (events_are_on())
        events_note(
            &(struct recording_event){.head.type = EVENTS_KEPT, .kind = (uint8_t)kind, .address = address});
}

/* Writes the limits of the calling thread's stack; *low is 0 where they are not known. */
void events_stack(uintptr_t *low, uintptr_t *high);

/* ---- for the recorder's thread ---- */

void events_switch(bool on);

/* Sleeps until a ring is half full or events_wake was called, timeout_ms at most. */
void events_sleep(unsigned timeout_ms);
void events_wake(void);

/* A ring while its events are read. */
struct events_reader {
    const struct recording_event *slots;
    uint64_t at, end; /* events not yet read: slots[at % EVENTS_RING] and so on */
    uint32_t thread;  /* kernel's number of the thread */
    uint32_t ring;
    uint64_t dropped; /* events lost since the last events_end of this ring */
    bool named;       /* false: the first events of this thread; set it once its name is written */
};

/* Lists the rings that have events or have lost some. Returns how many. */
size_t events_begin(struct events_reader readers[EVENTS_THREADS]);
/* Gives the events before reader->at back to their threads. A thread that has ended gives up its ring. */
void events_end(const struct events_reader *readers, size_t count);
/* Returns how many events were lost by threads without a ring since the last call. */
uint64_t events_lost(void);

/* In the child of a fork: nothing is recorded, and no ring is in use. */
void events_after_fork(void);

#endif
