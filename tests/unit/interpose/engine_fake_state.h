/* engine_fake_state: what the fake driver remembers, for its own parts: engine_fake.c (memory and work) and
 * engine_fake_events.c (events and waiting). */
#ifndef GPUCAP_TESTS_ENGINE_FAKE_STATE_H
#define GPUCAP_TESTS_ENGINE_FAKE_STATE_H

#include <pthread.h>

#include "tests/unit/interpose/engine_fake.h"

#define FAKE_BASE   (UINT64_C(1) << 45)
#define FAKE_PAGE   (UINT64_C(2) << 20)
#define FAKE_PLAIN  UINT64_C(0x700000000000) /* the driver's own small block */
#define HANDLES_MAX (1U << 20)
#define EVENTS_MAX  256
#define ALIASES_MAX 128
#define WORK_MAX    4096 /* submitted and not done, in one stream */

/* A handle may be mapped at several addresses. */
struct fake_handle {
    uint64_t bytes; /* 0: none */
    uint64_t at[ALIASES_MAX];
    uint32_t mapped; /* so often */
    uint32_t next_free;
};

struct fake_page {
    uint64_t base; /* where the mapping begins */
    uint32_t handle;
    bool access;
};

struct fake_use {
    uint64_t start, end, block;
    uint64_t behind[FAKE_STREAMS]; /* begins when so much of each stream has ended */
};

struct fake_stream {
    struct fake_use uses[WORK_MAX];
    uint64_t submitted, done;
};

struct fake_event {
    bool exists, recorded, waited_for, failed; /* failed: so did a call that should have recorded it */
    uint64_t behind[FAKE_STREAMS];
};

struct fake_state {
    pthread_mutex_t lock;
    uint64_t capacity, physical, mapped, span;
    struct fake_handle *handles;
    uint32_t free_handle, fresh_handle;
    struct fake_page *pages;
    struct fake_stream streams[FAKE_STREAMS];
    struct fake_event events[EVENTS_MAX];
    uint64_t barrier[FAKE_STREAMS]; /* what all work that comes now is behind */
    uint64_t counts[FAKE_CALLS];
    unsigned fail_mask;
    uint64_t fail_in, fail_more, failed;
    bool capturing, plain_only, no_decompression, no_plain;
};
extern struct fake_state fake;

void fake_lock(void);
void fake_unlock(void);

/* Counts a call; true if this one is to fail. With the lock. */
bool fake_fails(enum fake_call call);

/* A stream's work ends up to a place, and before it what it is behind. With the lock. */
void fake_finish(unsigned stream, uint64_t upto);

/* Enters the calls of engine_fake_events.c into the driver's table. */
void fake_events_enter(struct driver_table *table);

#endif
