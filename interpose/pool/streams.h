/* streams: which streams the program uses, as far as the hooks see it. Only `free = deferred` relies on this.
 *
 * While all work goes to one stream (the home stream), the order of that stream keeps two uses of a block
 * apart: a freed block may be handed out again at once. The first work on another stream waits for the home
 * stream, once; while that other work lasts, and for good after many such visits, freed blocks wait for their
 * epochs (fence.h). That holds only if every submission is seen: each entry point that submits work reports
 * its stream here (work.def). Handing out an entry point that is not known, a library that is bound past the
 * hooks, and programmatic dependent launches end it for good (streams_distrust).
 *
 * Owns streams_lock.
 */
#ifndef GPUCAP_STREAMS_H
#define GPUCAP_STREAMS_H

#include <stdint.h>

#include "interpose/driver/driver.h"

/* ---- keys ----
 *
 * A stream handle is its own key; the legacy default stream has key 1; a per-thread default stream has its
 * thread's odd number, which is never given twice. 0 is no stream; 2 marks work that is not settled yet. */
extern _Thread_local uintptr_t streams_last;   /* the stream that this thread used last, if that is settled */
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

/* The same for entry points whose default stream is the thread's own. */
static inline uintptr_t streams_key_ptsz(CUstream stream)
{
    return stream ? streams_key(stream) : streams_thread_key();
}

/* ---- submissions ---- */

bool streams_work_slow(uintptr_t key);

/* Call before work is submitted to a stream. Returns true for a stream other than the home stream; then
 * streams_worked must follow the submission. */
static inline bool streams_work(uintptr_t key)
{
    return __builtin_expect(streams_last != key, 0) && streams_work_slow(key);
}

void streams_worked(void);

/* Submits work: `call` is the driver call, `key` the stream's key. */
#define STREAMS_SUBMIT(key, call)                                                                            \
    ({                                                                                                       \
        const bool visitor_ = streams_work(key);                                                             \
        CUresult submitted_ = (call);                                                                        \
        if (__builtin_expect(visitor_, 0))                                                                   \
            streams_worked();                                                                                \
        submitted_;                                                                                          \
    })

/* Call before a stream is destroyed: another one may get its handle. */
void streams_end(CUstream stream);

/* From now on no order of work is relied upon. Waits for the home stream if blocks were handed out in its
 * order. */
void streams_distrust(void);
/* The same, and says at level info which entry point or object is the reason. */
void streams_unknown(const char *name);

/* ---- what frees rely on ---- */

/* True if the order of the home stream is enough for a freed block to be handed out again. */
bool streams_in_order(void);

/* Call when a block is freed before its work is known to be done. */
void streams_note_early_free(void);

/* Submissions to streams other than the home stream at some moment. When they are done (streams_mark_done),
 * and none was made since, the order of the home stream is enough again. */
struct streams_mark {
    uint64_t seen;
    bool quiet; /* no submission was under way */
};
struct streams_mark streams_mark(void);
void streams_mark_done(struct streams_mark mark);

void streams_after_fork(void);

#endif
