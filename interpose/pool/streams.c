/* streams: see streams.h. */
#include "interpose/pool/streams.h"

#include <dlfcn.h>

#include "interpose/base/clock.h"
#include "interpose/base/lock.h"
#include "interpose/pool/capture.h"
#include "interpose/settings/log.h"

#define SAID_MAX     16
#define SWITCHES_MAX 64 /* times other streams may become active before blocks wait for events for good */
#define TRIES        8  /* attempts of a wait without which a block would be used too early */
#define UNSETTLED    2  /* a value of streams_last that no stream has */
#define PATIENCE_NS  UINT64_C(500000000) /* for the end of a context, which may wait for this thread */
#define MOMENT_NS    20000               /* between two looks */

_Thread_local uintptr_t streams_last;
_Thread_local uintptr_t streams_thread;

static struct lock streams_lock = LOCK_INITIALIZER(LOCK_STREAMS);
static atomic_uintptr_t main_stream; /* written with streams_lock */
static atomic_bool distrusted;       /* for good */
/* What keeps other streams from overtaking the main stream's work, since another stream is in use. */
enum { UNORDERED, ORDERED /* the device */, WAITED_FOR };
static atomic_int settled;
static struct lock order_lock = LOCK_INITIALIZER(LOCK_ORDER);
static CUevent main_event; /* where settled is ORDERED, behind the main stream's work; order_lock */
/* The first context in which something was freed before its work was done; NULL: none. While the order of
 * streams is relied upon there is no other: a second pool ends that. */
static _Atomic(CUcontext) early_context;
static CUcontext ending;         /* the early context while calls that may end it are under way; order_lock */
static int endings, early_waits; /* those calls; threads that wait in the early context; order_lock */
static pthread_cond_t early_waited = PTHREAD_COND_INITIALIZER; /* with order_lock */
static atomic_int foreign_now; /* submissions to other streams in progress; raised with streams_lock */
static atomic_uint_fast64_t foreign_seen; /* submissions to other streams so far */
static atomic_uint_fast64_t foreign_done; /* of these, known to be done; written with streams_lock */
static int
    switches; /* times another stream became active while only the main stream was in use; streams_lock */
static atomic_uintptr_t last_key = 1;

/* Odd, as no stream handle is. */
uintptr_t streams_new_key(void)
{
    return streams_thread = atomic_fetch_add(&last_key, 2) + 2;
}

static bool foreign_work(void)
{
    return atomic_load(&foreign_now) || atomic_load(&foreign_seen) != atomic_load(&foreign_done);
}

bool streams_relied_on(void)
{
    return !atomic_load(&distrusted);
}

bool streams_in_order(void)
{
    return !atomic_load(&distrusted) && !foreign_work() && !capture_any();
}

void streams_note_early_free(CUcontext context)
{
    /* Acquire: the caller looks at other streams' work only after another thread's store here is visible. */
    if (!atomic_load_explicit(&early_context, memory_order_acquire))
        atomic_store(&early_context, context);
}

void streams_context_end_begin(CUcontext context)
{
    lock_take(&order_lock);
    if (context && context == atomic_load(&early_context)) {
        ending = context;
        endings++;
        while (early_waits)
            lock_wait(&order_lock, &early_waited);
    }
    lock_release(&order_lock);
}

void streams_context_end_abort(CUcontext context)
{
    lock_take(&order_lock);
    if (context && context == ending && --endings == 0)
        ending = NULL;
    lock_release(&order_lock);
}

void streams_context_end(CUcontext context)
{
    CUcontext ended = context;

    lock_take(&order_lock);
    if (atomic_compare_exchange_strong(&early_context, &ended, NULL))
        main_event = NULL; /* it ended with its context */
    if (context == ending) {
        ending = NULL;
        endings = 0;
    }
    lock_release(&order_lock);
}

/* Returns true if the driver may be called for the early context: it has not ended and is not about to. First
 * waits for calls that may end it, no longer than `until`; one that does not end it takes microseconds. The
 * caller holds order_lock, which is dropped meanwhile. */
static bool is_usable(CUcontext context, uint64_t until)
{
    lock_disable_cancel();
    while (context == ending && clock_ns() < until) {
        lock_release(&order_lock);
        clock_sleep(MOMENT_NS);
        lock_take(&order_lock);
    }
    lock_restore_cancel();
    return context != ending && context == atomic_load(&early_context);
}

/* Waits for all work of the context, several times if that fails. */
static bool wait_for_main(CUcontext context)
{
    for (int tries = 0; tries < TRIES; tries++) {
        if (capture_wait_context(context) == CUDA_SUCCESS)
            return true;
    }
    return false;
}

/* Lets the device keep other streams behind the main stream. Returns false if it cannot. One thread does it:
 * a second event would also be behind the first thread's new work, and the main stream behind that. */
static bool order_behind_main(CUcontext context, uint64_t until)
{
    int before = UNORDERED;

    lock_take(&order_lock);
    const bool usable = is_usable(context, until);
    const bool ordered =
        atomic_load(&settled) != UNORDERED || (usable && capture_order_behind(context, &main_event));
    if (ordered)
        atomic_compare_exchange_strong(&settled, &before, ORDERED);
    lock_release(&order_lock);
    return ordered;
}

/* Waits for the main stream's work that others were ordered behind. Theirs may last: it may wait for this
 * thread. While the device keeps the order nothing is freed early, so this is all that matters. */
static bool wait_for_ordered(void)
{
    lock_take(&order_lock);
    CUevent event = main_event;
    lock_release(&order_lock);
    return event && capture_wait_event(event) == CUDA_SUCCESS;
}

/* Waits for the main stream's work, unless its context has ended or is ending: that waits for the work too,
 * and the driver must not be called for it. */
static bool wait_in_early(CUcontext context, uint64_t until, bool ordered)
{
    lock_disable_cancel(); /* the end of the context would wait for ever */
    lock_take(&order_lock);
    const bool may_wait = is_usable(context, until);
    early_waits += may_wait;
    lock_release(&order_lock);
    const bool done = may_wait && ((ordered && wait_for_ordered()) || wait_for_main(context));
    lock_take(&order_lock);
    early_waits -= may_wait;
    pthread_cond_broadcast(&early_waited);
    lock_release(&order_lock);
    lock_restore_cancel();
    return done;
}

/* Keeps the work of other streams behind that of the main stream: blocks may have been handed out again while
 * the main stream still works on them. With `order` the device keeps that order if it can; otherwise waits
 * for the main stream's work. streams_distrust waits, because the main stream's own order then does not count
 * either. Uses the context of these blocks: the current one may be a green context, which is only a part of
 * it, or another one, or there is none. Every thread that arrives before this is done waits too. Does nothing
 * if every free waited for its work. Returns false if the wait failed: then the work will fail too, or the
 * context is ending, with the blocks. */
static bool settle(bool order)
{
    CUcontext early = atomic_load(&early_context);
    const int before = atomic_load(&settled);

    if (before == WAITED_FOR || (before == ORDERED && order))
        return true;
    const uint64_t until = early ? clock_ns() + PATIENCE_NS : 0;
    if (early && order && order_behind_main(early, until))
        return true;
    if (early && !wait_in_early(early, until, before == ORDERED))
        return false;
    atomic_store(&settled, WAITED_FOR);
    return true;
}

/* Logs at level info which function works on another stream, the first few times. */
static void say_second(uintptr_t key, const void *caller)
{
    static atomic_int said;
    Dl_info info;

    if (atomic_load(&said) < SAID_MAX && atomic_fetch_add(&said, 1) < SAID_MAX)
        log_info("work on another stream: %#lx by %s, first was %#lx", (unsigned long)key,
                 dladdr(caller, &info) && info.dli_sname ? info.dli_sname : "?",
                 (unsigned long)atomic_load(&main_stream));
}

/* Registers a submission. Returns true for another than the main stream while stream order is relied on. */
static bool note(uintptr_t key)
{
    lock_assert_held(&streams_lock);
    if (!atomic_load(&main_stream))
        atomic_store(&main_stream, key);
    if (atomic_load(&main_stream) == key || atomic_load(&distrusted))
        return false;
    if (!foreign_work() && ++switches > SWITCHES_MAX)
        atomic_store(&distrusted, true);
    else
        atomic_fetch_add(&foreign_now, 1);
    return !atomic_load(&distrusted);
}

bool streams_submit_slow(uintptr_t key)
{
    bool is_foreign = false;

    if (!atomic_load(&distrusted)) {
        lock_take(&streams_lock);
        is_foreign = note(key);
        lock_release(&streams_lock);
    }
    const bool is_main = key == atomic_load(&main_stream);
    if (!is_main && !atomic_load(&distrusted))
        say_second(key, __builtin_return_address(0));
    const bool is_settled = is_main || settle(!atomic_load(&distrusted));
    /* Other streams never match streams_last, so that each of their submissions is counted. */
    streams_last = is_settled && !is_foreign ? key : UNSETTLED;
    return is_foreign;
}

void streams_submit_end(void)
{
    atomic_fetch_add(&foreign_seen, 1);
    atomic_fetch_sub(&foreign_now, 1);
}

struct streams_mark streams_mark(void)
{
    const bool quiet = atomic_load(&foreign_now) == 0;

    return (struct streams_mark){.seen = atomic_load(&foreign_seen), .quiet = quiet};
}

void streams_mark_done(struct streams_mark mark)
{
    if (!mark.quiet || atomic_load(&foreign_done) == mark.seen)
        return;
    lock_take(&streams_lock);
    if (atomic_load(&foreign_now) == 0 && atomic_load(&foreign_seen) == mark.seen &&
        !atomic_load(&distrusted)) {
        atomic_store(&settled, UNORDERED);
        atomic_store(&foreign_done, mark.seen);
    }
    lock_release(&streams_lock);
}

void streams_distrust(void)
{
    lock_take(&streams_lock);
    const bool before = atomic_exchange(&distrusted, true);
    if (!before && !atomic_load(&main_stream))
        atomic_store(&settled, WAITED_FOR); /* nothing has been submitted */
    lock_release(&streams_lock);
    if (!before)
        settle(false);
}

void streams_unknown(const char *name)
{
    if (!atomic_load(&distrusted))
        log_info("%s is not known to gpucap: work may go unseen, so freed blocks wait for events", name);
    streams_distrust();
}

void streams_end(CUstream stream)
{
    if (!atomic_load(&distrusted) && streams_key(stream) == atomic_load(&main_stream))
        streams_distrust();
}

void streams_after_fork(void)
{
    lock_init(&order_lock, LOCK_ORDER);
    lock_init(&streams_lock, LOCK_STREAMS);
    pthread_cond_init(&early_waited, NULL);
    ending = NULL;
    endings = early_waits = 0;
    atomic_store(&distrusted, true);
    atomic_store(&settled, WAITED_FOR);
}
