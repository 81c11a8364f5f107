/* fence: when freed memory may be reused, unmapped or released.
 *
 * `free = strict`: each free asks the driver whether all earlier work of the context is done, and waits for
 * it, as a native free does (fence_pass). So work that the hooks never saw is covered too. The question is an
 * event or cuCtxSynchronize; threads that free at the same time may share one.
 *
 * `free = deferred`: a free returns at once and belongs to the open epoch. One context event
 * (cuCtxRecordEvent covers every stream of a context) closes the epoch; when that event is done, so is all
 * work that could touch what was freed in the epoch. A block is usable when its epoch is done, or earlier if
 * all later work is ordered after it, by the one stream in use (streams.h) or by the device itself
 * (fence_join).
 *
 * The context is never a green one: an event of a primary context covers its green contexts too, an event of
 * a green context covers only itself (measured). Owns one lock per struct fence.
 */
#ifndef GPUCAP_FENCE_H
#define GPUCAP_FENCE_H

#include <stdint.h>

#include "interpose/base/lock.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/streams.h"

/* After this many quick answers in a row a strict free asks by cuCtxSynchronize, until a capture has to wait.
 * cuCtxSynchronize costs 0.3 us on an idle H200. An event costs 1.3 us where several streams were used, but
 * lets a capture begin while a thread waits for it. */
#define FENCE_QUICK  4
#define FENCE_EVENTS 32 /* closed epochs whose work is not known to be done */
#define FENCE_EPOCH_FREES                                                                                    \
    64 /* frees of one thread after which it closes the epoch: 0.3 us for an event and a query (H200) */

struct fence_event {
    CUevent event;  /* created at first use */
    uint64_t epoch; /* the epoch it closed; 0: not in use */
    unsigned users; /* threads that wait for it; it is not recorded again before all have finished */
    struct streams_mark mark;
};

struct fence {
    CUcontext context;
    _Atomic uint64_t open;    /* the epoch of frees that happen now; only rises */
    _Atomic uint64_t done;    /* all work of this epoch and those before it is done; only rises */
    _Atomic uint64_t ordered; /* all later work is ordered behind this epoch; written with lock */
    atomic_bool used;         /* the open epoch has a free */
    _Atomic uint64_t freed;   /* the newest epoch that has a free; only rises */
    atomic_uint waiting;      /* events with an epoch; written with lock */
    struct capture_questions questions;
    struct lock lock;
    /* guarded by lock */
    uint64_t closed; /* the newest epoch that an event has closed */
    struct fence_event events[FENCE_EVENTS];
};

void fence_open(struct fence *fence, CUcontext context);
void fence_close(struct fence *fence, bool context_lives);

/* Disables fence_join for good. Call when work that no event of one context covers may touch pooled blocks,
 * or when a stream may wait for a flag that later work sets. */
void fence_forbid_joins(void);

/* Limits fence_wait_oldest to half a second, for good. Call when a stream may wait for a flag that the
 * calling thread would set. */
void fence_expect_flags(void);

/* ---- free = strict ---- */

/* A check that runs before a thread blocks. If it returns an error, the thread returns that instead. */
struct fence_check {
    CUresult (*call)(void *argument);
    void *argument;
};

/* Waits for all work of the context submitted before the call, as a native free does. Concurrent callers
 * share one question to the driver, asked after each of their calls began. `check` may be NULL. Returns the
 * driver's answer. */
CUresult fence_pass(struct fence *fence, const struct fence_check *check);

/* ---- free = deferred ---- */

/* Returns the epoch of a free that happens now. May close an epoch; never waits. */
uint64_t fence_epoch(struct fence *fence);
/* The same without calling the driver. */
uint64_t fence_epoch_quietly(struct fence *fence);

/* Returns true if the epoch is known to be done. */
bool fence_done(struct fence *fence, uint64_t epoch);
/* Returns the newest epoch that is known to be done. */
uint64_t fence_reached(struct fence *fence);
/* Returns the newest usable epoch: its blocks may be handed out again, but not unmapped. Its work is done, or
 * all later work is ordered behind it. */
uint64_t fence_usable(struct fence *fence);

/* Closes the open epoch if it has a free and no capture is open; learns which are done. Never waits. */
void fence_poll(struct fence *fence);

/* Orders all later work of the context behind everything freed so far, on the device. Costs two calls of 0.5
 * us each on an idle device, 2 us while several streams work (H200). Returns true if memory has become
 * usable. */
bool fence_join(struct fence *fence);

/* ---- waiting ---- */

/* Returns true if freed memory may ever have been handed out again, in any context, before its work was done.
 * Never with `free = strict`. */
bool fence_reused_early(void);

/* Waits until everything freed so far is done, for no later work if there is an event behind it. Then blocks
 * that were handed out again are also safe to use from other contexts, processes and devices. Returns 0 or
 * -EIO. */
int fence_wait_all(struct fence *fence);

/* Waits until the oldest closed epoch is done, or the older half of them where several streams work. *more:
 * there are others. Returns 0, or -EIO if the context has failed or the wait was given up. */
int fence_wait_oldest(struct fence *fence, bool *more);

/* Call before and after the program's own wait for all work of the context. If it succeeds, everything freed
 * before it began is done. */
uint64_t fence_wait_begin(struct fence *fence);
void fence_wait_end(struct fence *fence, uint64_t epoch, bool success);

#endif
