/* fence: when bytes that the program has freed may be used again, unmapped or given back.
 *
 * Frees are gathered into epochs. One context event (cuCtxRecordEvent covers every stream of a context)
 * closes the open epoch; when that event is done, so is all work that could touch what was freed in the
 * epoch. `free = strict` closes the epoch at each free and waits for it, as a native free waits (fence_pass):
 * the driver is asked each time, so work that the hooks never saw is covered too. `free = deferred` returns
 * at once: a block is usable when its epoch is done, or when all later work is ordered behind it: by the one
 * stream that is in use (streams.h), or by the device itself (fence_join).
 *
 * The context is never a green one: an event of a primary context covers its green contexts as well, an event
 * of a green context covers only itself (measured). Owns one lock per struct fence.
 */
#ifndef GPUCAP_FENCE_H
#define GPUCAP_FENCE_H

#include <stdint.h>

#include "interpose/base/lock.h"
#include "interpose/pool/streams.h"

/* After so many answers at once a strict free asks by cuCtxSynchronize, until that takes long. It costs 0.3
 * us on an idle H200; an event costs 1.3 us where several streams were used, but a capture may begin while
 * one waits for it. */
#define FENCE_QUICK  4
#define FENCE_EVENTS 32 /* closed epochs whose work is not known to be done */
#define FENCE_EPOCH_FREES                                                                                    \
    64 /* so many frees of a thread close an epoch: 0.3 us for an event and a look (H200) */

struct fence_event {
    CUevent event;  /* made at its first use */
    uint64_t epoch; /* that it closed; 0: not in use */
    unsigned users; /* threads that wait for it: it is not recorded again before they are gone */
    struct streams_mark mark;
};

struct fence {
    CUcontext context;
    _Atomic uint64_t open;    /* the epoch that frees now belong to; written with lock */
    _Atomic uint64_t done;    /* all work of this epoch and those before it is done; written with lock */
    _Atomic uint64_t ordered; /* all later work is behind this epoch's on the device; written with lock */
    atomic_bool used;         /* some free belongs to the open epoch */
    atomic_uint quick;        /* answers to strict frees in a row that came at once, up to FENCE_QUICK */
    atomic_bool asking;       /* a thread is in cuCtxSynchronize, for others too */
    struct lock lock;
    /* guarded by lock */
    uint64_t closed;  /* the newest epoch that an event has closed */
    unsigned waiting; /* events with an epoch */
    struct fence_event events[FENCE_EVENTS];
};

int fence_open(struct fence *fence, CUcontext context); /* 0 or -errno */
void fence_close(struct fence *fence, bool context_lives);

/* From now on nothing is ordered behind other work on the device (fence_join does nothing): work that no
 * event of a context covers may touch pooled blocks, or a stream may wait for a flag that later work sets. */
void fence_forbid_joins(void);

/* From now on a stream may be waiting for a flag that the calling thread would set: fence_wait_oldest gives
 * up after half a second. */
void fence_expect_flags(void);

/* ---- free = strict ---- */

/* Called before a thread blocks: if it returns an error, the thread does not, and that is the answer. */
struct fence_check {
    CUresult (*call)(void *argument);
    void *argument;
};

/* Waits for all work of the context that was submitted before the call, as a native free does. Threads that
 * call it at the same time share one question to the driver, which is asked after each of their calls began.
 * `check` may be NULL. Returns the driver's answer. */
CUresult fence_pass(struct fence *fence, const struct fence_check *check);

/* ---- free = deferred ---- */

/* The epoch of a free that happens now. */
uint64_t fence_epoch(struct fence *fence);
/* The same without a call into the driver, as at the end of the process. */
uint64_t fence_epoch_quietly(struct fence *fence);

/* True if the epoch is done, as far as known. */
bool fence_done(struct fence *fence, uint64_t epoch);
/* The newest epoch that is done, as far as known. */
uint64_t fence_reached(struct fence *fence);
/* The newest epoch whose blocks may be handed out again, though not unmapped: its work is done, or all later
 * work is ordered behind it. */
uint64_t fence_usable(struct fence *fence);

/* Closes the open epoch if any free belongs to it, unless a capture is open, and learns what is done. Never
 * waits. */
void fence_poll(struct fence *fence);

/* Orders all later work of the context behind everything freed so far, on the device: two calls of 0.5 us
 * each on an idle device, 2 us while several streams work (H200). Returns false if nothing has become usable.
 */
bool fence_join(struct fence *fence);

/* ---- waiting ---- */

#define FENCE_NOW UINT64_MAX /* everything freed so far */

/* Waits until an epoch is done, or everything freed before the call. 0, or -EIO if the context has failed. */
int fence_wait(struct fence *fence, uint64_t epoch);

/* Waits for the work behind everything freed so far, unless it is known to be done: blocks that were handed
 * out again are then at rest also for streams of other contexts, other processes and devices. 0 or -EIO. */
int fence_settle(struct fence *fence);

/* Waits until the oldest closed epoch is done, or the older half of them where several streams work. *more:
 * there are others. 0, or -EIO if the context has failed or the wait was given up. */
int fence_wait_oldest(struct fence *fence, bool *more);

/* Around a wait for all work of the context that the program makes itself: what was freed before it began is
 * done when it has succeeded. */
uint64_t fence_wait_begin(struct fence *fence);
void fence_wait_end(struct fence *fence, uint64_t epoch, bool success);

#endif
