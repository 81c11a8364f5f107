/* fence: when may bytes that the program has freed be used again, unmapped or given back?
 *
 * Native frees wait for all work of the context. We either wait as they do (strict), or return at once and
 * remember what must be done first (deferred): frees are gathered into epochs, and one context event closes
 * an epoch for all of them. While all work of the process has gone to one stream, the order of that stream is
 * the fence: a freed block may be handed out again at once, and only unmapping must wait. With several
 * streams the same can be had when it is needed (fence_join): the device itself puts all later work of the
 * context behind what was there before, and nobody on the host waits.
 *
 * That holds only if every piece of work is seen: each entry point that submits work reports its stream here
 * (work.def), and handing out one that we do not know ends the shortcut for good. Owns work_lock and one lock
 * per struct fence, held for a few instructions (rank: after capture_lock).
 */
#ifndef GPUCAP_FENCE_H
#define GPUCAP_FENCE_H

#include <pthread.h>
#include <stdint.h>

#include "driver.h"

/* ---- who submits work ---- */

/* What distinguishes streams: a handle is its own key, the legacy default stream is 1, and a per-thread one
 * has the odd number of its thread, which no other thread ever gets. 0: none. 2: work whose fence is not
 * settled yet. */
extern _Thread_local uintptr_t fence_last_stream;
extern _Thread_local uintptr_t fence_own_key;
uintptr_t fence_new_key(void);
bool fence_work_slow(uintptr_t stream);
void fence_worked(void);

/* Work is about to go to a stream. True: to another than the home stream, and fence_worked must follow. */
static inline bool fence_work(uintptr_t stream)
{
    return __builtin_expect(fence_last_stream != stream, 0) && fence_work_slow(stream);
}

/* Submits work: a driver call that goes to a stream. */
#define FENCE_SUBMIT(stream, call)                                                                           \
    ({                                                                                                       \
        const bool guest_ = fence_work(stream);                                                              \
        CUresult submitted_ = (call);                                                                        \
        if (__builtin_expect(guest_, 0))                                                                     \
            fence_worked();                                                                                  \
        submitted_;                                                                                          \
    })

static inline uintptr_t fence_thread(void)
{
    return fence_own_key ? fence_own_key : fence_new_key();
}

static inline uintptr_t fence_stream(CUstream stream)
{
    const uintptr_t key = (uintptr_t)stream;

    return __builtin_expect(key > 2, 1) ? key : key == 2 ? fence_thread() : 1;
}

/* The same for entry points whose default stream is the thread's own. */
static inline uintptr_t fence_stream_ptsz(CUstream stream)
{
    return stream ? fence_stream(stream) : fence_thread();
}

/* A stream is about to end: another may get its address. */
void fence_stream_ends(CUstream stream);

/* An entry point that we do not know has been handed out, or a second context made. */
void fence_trust_nothing(void);
/* Work that no context event covers may touch pooled blocks: that of another context or of a peer card. What
 * has been handed out before is at rest after fence_settle. */
void fence_no_joins(void);
void fence_unknown(const char *name);

/* A capture of this stream (a key) and context is about to begin (capture_begins). While one is open nothing
 * is handed out before its work is done, or only what all later work is behind; so its beginning waits for
 * all work once, if anything has been handed out in the order of one stream. */
void fence_capture_begins(uintptr_t stream, CUcontext context);
/* It has ended, or not begun (capture_ended). */
void fence_capture_ended(uintptr_t stream);

/* True if every thread that has submitted work has seen it done since: by a wait, or by an event behind
 * everything. */
bool fence_idle(void);
/* This thread has waited for all work. */
void fence_waited(void);

/* Waits for all work of a context, as a native free does; *result: what the driver says. False: a capture is
 * open, and nothing can be waited for. */
bool fence_wait_context(CUcontext context, CUresult *result);

/* True if the order of a stream is fence enough for the reuse of a block. */
bool fence_one_stream(void);

/* A child after fork: others may have held the locks, and the driver will do no work here, so that there is
 * nothing to wait for. */
void fence_after_fork(void);

/* What of other streams' work had been submitted at some moment, and that it is done now. */
struct fence_guests {
    uint64_t seen;
    bool quiet; /* nobody was in the middle of it */
};
struct fence_guests fence_guests_now(void);
void fence_guests_done(struct fence_guests when);

/* ---- epochs of one context ---- */

#define FENCE_EVENTS 32
#define FENCE_EPOCH_FREES                                                                                    \
    64 /* so many frees of a thread close an epoch: 0.2 us for an event, 1.3 us for a look (measured) */

struct fence {
    CUcontext context;
    _Atomic uint64_t open;    /* the epoch that frees now belong to; written under lock */
    _Atomic uint64_t done;    /* all work of this epoch and those before it is done; written under lock */
    _Atomic uint64_t ordered; /* all later work comes behind this epoch's on the device; written under lock */
    atomic_bool used;         /* somebody belongs to the open epoch */
    pthread_mutex_t lock;
    /* guarded by lock */
    uint64_t closed[FENCE_EVENTS]; /* epochs whose events are under way, oldest first */
    CUevent events[FENCE_EVENTS];
    struct fence_guests guests[FENCE_EVENTS];
    unsigned first, count;
};

int fence_open(struct fence *fence, CUcontext context); /* 0 or -errno */
void fence_close(struct fence *fence, bool context_lives);

/* The epoch of a free that happens now. 0: everything is done already. */
uint64_t fence_epoch(struct fence *fence);
/* The same without a call into the driver, as at the end of the process. */
uint64_t fence_epoch_quietly(struct fence *fence);

/* Whether an epoch is done, as far as known. */
bool fence_done(struct fence *fence, uint64_t epoch);

/* Closes the open epoch if anybody belongs to it, and takes in what has been done since. Never waits. */
void fence_poll(struct fence *fence);

/* All epochs up to this one are done, as far as known. */
uint64_t fence_reached(struct fence *fence);

/* What was freed in epochs up to this one may be handed out again, though not unmapped: its work is done, or
 * whatever is submitted from now on comes behind it. */
uint64_t fence_usable(struct fence *fence);

/* Makes everything freed so far usable without waiting: two calls of 0.5 us each while the device is idle, 2
 * us while several streams work (H200; work of every kind, and on streams that are made later, came behind in
 * a throw-away probe). False if nothing has become usable. */
bool fence_join(struct fence *fence);

#define FENCE_NOW UINT64_MAX /* everything that has been freed so far */

/* Waits until the oldest epoch is done that is not, or the older half of them. *more: there are others. 0 or
 * as fence_wait. */
int fence_wait_oldest(struct fence *fence, bool *more);

/* Around a wait for all work of the context, ours or the program's: what was freed before it began is done
 * when it has ended well. */
uint64_t fence_before_wait(struct fence *fence);
void fence_after_wait(struct fence *fence, uint64_t epoch, bool success);

/* Waits until an epoch is done. 0; -EBUSY if a capture forbids it; -EIO if the context has failed. */
int fence_wait(struct fence *fence, uint64_t epoch);

/* Waits for the work behind everything freed so far, if it is not known to be done: what has been handed out
 * again is then at rest also for those whose work is in no stream of ours. 0, or -EIO. */
int fence_settle(struct fence *fence);

#endif
