/* streams: which streams the program uses, as far as the hooks see it. Only `free = deferred` relies on this.
 *
 * While all work goes to one stream, the main stream, its order keeps two uses of a block apart: a freed
 * block may be handed out again at once. The first work on another stream is put behind the main stream's
 * work. While that work lasts, and for good after many such switches, freed blocks wait for their epochs
 * (fence.h). This is safe only if every submission is seen: each entry point that submits work reports its
 * stream here (work.def). An unknown entry point, a library bound past the hooks, or a programmatic dependent
 * launch ends this for good (streams_distrust).
 *
 * Owns streams_lock and order_lock.
 */
#ifndef GPUCAP_STREAMS_H
#define GPUCAP_STREAMS_H

#include <stdint.h>

#include "interpose/driver/driver.h"

/* ---- keys ----
 *
 * A stream handle is its own key; the legacy default stream has key 1; a per-thread default stream has an odd
 * number that belongs to its thread and is never reused. 0 is no stream; 2 marks work that is not settled
 * yet.
 */
extern _Thread_local uintptr_t streams_last;   /* this thread's last stream, if its work is settled */
extern _Thread_local uintptr_t streams_thread; /* this thread's key; 0: none yet */
uintptr_t streams_new_key(void);

static inline uintptr_t streams_thread_key(void)
{
    return streams_thread ? streams_thread : streams_new_key();
}

static inline uintptr_t streams_key(CUstream stream)
{
    const uintptr_t key = (uintptr_t)stream;

    return __builtin_expect(key > 2, 1) ? key : key == 2 ? streams_thread_key() : 1;
}

/* The same for entry points whose default stream is per thread. */
static inline uintptr_t streams_key_ptsz(CUstream stream)
{
    return stream ? streams_key(stream) : streams_thread_key();
}

/* ---- submissions ---- */

bool streams_submit_slow(uintptr_t key);

/* Call before work is submitted to a stream. Returns true for a stream other than the main stream; then
 * streams_submit_end must follow the submission. */
static inline bool streams_submit_begin(uintptr_t key)
{
    return __builtin_expect(streams_last != key, 0) && streams_submit_slow(key);
}

void streams_submit_end(void);

/* Call before a stream is destroyed: another one may get its handle. */
void streams_end(CUstream stream);

/* Stops relying on stream order, for good. Waits for the main stream if blocks were reused in its order. */
void streams_distrust(void);
/* The same, and logs at level info the entry point or object that is the reason. */
void streams_unknown(const char *name);

/* ---- what frees rely on ---- */

/* Returns false once stream order is not relied on any more. */
bool streams_relied_on(void);

/* Returns true if a freed block may be handed out again because the main stream's order is enough. */
bool streams_in_order(void);

/* Call when a block of `context`, which is not a green one, is freed before its work is known to be done. */
void streams_note_early_free(CUcontext context);
/* Call _begin before a context may end, and _abort if it did not. _begin returns after the threads that
 * waited in the context have finished. From then on none waits in it: work on other streams waits for _abort
 * or the end instead, half a second at most. */
void streams_context_end_begin(CUcontext context);
void streams_context_end_abort(CUcontext context);
/* Call when a context has ended: nothing in it is waited for any more. */
void streams_context_end(CUcontext context);

/* The number of submissions to other streams at some moment. Once they are done (streams_mark_done) and no
 * more were made since, the main stream's order is enough again. */
struct streams_mark {
    uint64_t seen;
    bool quiet; /* no such submission was in progress */
};
struct streams_mark streams_mark(void);
void streams_mark_done(struct streams_mark mark);

void streams_after_fork(void);

#endif
