/* fence: see fence.h. */
#include "fence.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "capture.h"
#include "log.h"

/* ---- who submits work ---- */

_Thread_local uintptr_t fence_last_stream;
_Thread_local uintptr_t fence_own_key;

#define SAID_MAX   16
#define VISITS_MAX 64 /* drains that other streams may cost before every free waits for an event instead */
#define TRIES      8  /* of a wait without which blocks would be used too early */
#define UNSETTLED  2  /* a value of fence_last_stream that no stream has */

static pthread_mutex_t work_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uintptr_t only_stream;     /* the home stream; written under work_lock */
static atomic_bool many_streams;         /* for good */
static atomic_bool unseen;               /* work may be submitted that nobody reports; for good */
static atomic_bool no_joins;             /* for good */
static atomic_bool drained;              /* since another stream than the home one is at work */
static atomic_bool unsettled;            /* something has been freed before its work was done; for good */
static atomic_uint_fast64_t workers;     /* threads of which `working` is true, and the orphans */
static atomic_uint_fast64_t orphans;     /* threads that ended so, and nobody has waited for all work since */
static atomic_int guests_active;         /* submissions to other streams under way; raised under work_lock */
static atomic_uint_fast64_t guests;      /* such submissions, ever */
static atomic_uint_fast64_t guests_gone; /* of these, known to be done; written under work_lock */
static atomic_int intents;               /* captures that wait for the home stream before they begin */
static int visits;                       /* how often guests came to an empty house; under work_lock */
static atomic_uintptr_t last_key = 1;
static _Thread_local bool working; /* has submitted what it has not seen done */
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* so that the end of a thread at work is seen */
static bool have_key;     /* written once */
static _Thread_local bool watched;

/* Odd, as no stream handle is, and never given twice: the next thread may get this one's address. */
uintptr_t fence_new_key(void)
{
    return fence_own_key = atomic_fetch_add(&last_key, 2) + 2;
}

/* ---- threads that end at work ---- */

/* A destructor that comes later may work again; then this one does too. */
static void thread_ends(void *unused)
{
    (void)unused;
    watched = false;
    if (working)
        atomic_fetch_add(&orphans, 1);
    working = false;
}

static void make_key(void)
{
    have_key = pthread_key_create(&key, thread_ends) == 0;
}

static void watch_end(void)
{
    pthread_once(&key_once, make_key);
    watched = have_key && pthread_setspecific(key, &watched) == 0;
}

/* Before a wait for all work: so many are waited for too. */
static uint64_t orphans_take(void)
{
    return atomic_load(&orphans) ? atomic_exchange(&orphans, 0) : 0;
}

/* After it. */
static void orphans_waited(uint64_t count, bool done)
{
    if (count)
        atomic_fetch_add(done ? &workers : &orphans, done ? 0 - count : count);
}

/* ---- streams ---- */

static bool guests_present(void)
{
    return atomic_load(&guests_active) || atomic_load(&guests) != atomic_load(&guests_gone);
}

bool fence_one_stream(void)
{
    return !atomic_load(&many_streams) && !guests_present() && !atomic_load(&intents) && !capture_any();
}

/* Waits for all work of the current context, several times if that fails. False: in vain. */
static bool synchronize(int tries)
{
    CUresult result = CUDA_ERROR_UNKNOWN;
    CUcontext current = NULL;

    driver.cuCtxGetCurrent(&current);
    while (tries-- > 0 && result != CUDA_SUCCESS && capture_wait_context(current, &result))
        ;
    return result == CUDA_SUCCESS;
}

/* Before another stream is used: blocks may have been handed out again while the home stream still works on
 * them. That was right as long as only that stream could touch them. Whoever comes while this has not been
 * done does it too. False if it cannot be done now: then a capture is open, and nothing has been handed out
 * like that since before it began, which has waited; or the context has failed, and so will the work. Where
 * every free has waited nobody waits here: the home stream may be waiting for the work that comes now. */
static bool drain(void)
{
    if (!atomic_load(&drained) && (!atomic_load(&unsettled) || synchronize(TRIES)))
        atomic_store(&drained, true);
    return atomic_load(&drained);
}

/* At level info, the first few: who works on which other stream. */
static void say_second(uintptr_t stream, const void *caller)
{
    static atomic_int said;
    Dl_info info;

    if (atomic_load(&said) < SAID_MAX && atomic_fetch_add(&said, 1) < SAID_MAX)
        log_info("work on another stream: %#lx by %s, first was %#lx", (unsigned long)stream,
                 dladdr(caller, &info) && info.dli_sname ? info.dli_sname : "?",
                 (unsigned long)atomic_load(&only_stream));
}

/* Takes note of a stream. With the lock. True: it is a guest. */
static bool note(uintptr_t stream)
{
    if (!atomic_load(&only_stream))
        atomic_store(&only_stream, stream);
    if (atomic_load(&only_stream) == stream || atomic_load(&many_streams))
        return false;
    if (!guests_present() && ++visits > VISITS_MAX)
        atomic_store(&many_streams, true); /* no guests any more: they live here */
    else
        atomic_fetch_add(&guests_active, 1);
    return !atomic_load(&many_streams);
}

bool fence_work_slow(uintptr_t stream)
{
    bool guest = false;

    if (!working) {
        working = true;
        atomic_fetch_add(&workers, 1);
        if (!watched)
            watch_end();
    }
    if (!atomic_load(&many_streams)) {
        pthread_mutex_lock(&work_lock);
        guest = note(stream);
        pthread_mutex_unlock(&work_lock);
    }
    const bool home = stream == atomic_load(&only_stream);
    if (!home)
        say_second(stream, __builtin_return_address(0));
    const bool settled = home || drain();
    /* A guest comes here each time, so that it is seen to come and go. */
    fence_last_stream = settled && !guest ? stream : UNSETTLED;
    return guest;
}

void fence_worked(void)
{
    atomic_fetch_add(&guests, 1);
    atomic_fetch_sub(&guests_active, 1);
}

struct fence_guests fence_guests_now(void)
{
    const bool quiet = atomic_load(&guests_active) == 0;

    return (struct fence_guests){.seen = atomic_load(&guests), .quiet = quiet};
}

void fence_guests_done(struct fence_guests when)
{
    if (!when.quiet || atomic_load(&guests_gone) == when.seen)
        return;
    pthread_mutex_lock(&work_lock);
    if (atomic_load(&guests_active) == 0 && atomic_load(&guests) == when.seen &&
        !atomic_load(&many_streams)) {
        atomic_store(&drained, false);
        atomic_store(&guests_gone, when.seen);
    }
    pthread_mutex_unlock(&work_lock);
}

void fence_trust_nothing(void)
{
    pthread_mutex_lock(&work_lock);
    const bool before = atomic_exchange(&many_streams, true);
    atomic_store(&unseen, true);
    if (!before && !atomic_load(&only_stream))
        atomic_store(&drained, true); /* nothing has been submitted */
    pthread_mutex_unlock(&work_lock);
    if (!before)
        drain();
}

void fence_no_joins(void)
{
    atomic_store(&no_joins, true);
}

void fence_unknown(const char *name)
{
    if (!atomic_load(&many_streams))
        log_info("%s is not known to gpucap: work may go unseen, so freed blocks wait for events", name);
    fence_trust_nothing();
}

void fence_stream_ends(CUstream stream)
{
    if (fence_stream(stream) == atomic_load(&only_stream) && !atomic_load(&many_streams))
        fence_trust_nothing();
}

/* While a capture is open nobody can wait for the home stream, so nothing it still works on may be in other
 * hands. Until this one is announced others wait for themselves. If another is open, that one has waited. */
void fence_capture_begins(uintptr_t stream, CUcontext context)
{
    atomic_fetch_add(&intents, 1);
    if (!atomic_load(&drained) && atomic_load(&unsettled))
        synchronize(TRIES);
    capture_begins(stream, fence_thread(), context);
    atomic_fetch_sub(&intents, 1);
}

void fence_capture_ended(uintptr_t stream)
{
    capture_ended(stream, fence_thread());
}

/* The epoch whose event this thread recorded last, if it has submitted nothing since: when that is done, so
 * is everything. */
static _Thread_local struct {
    struct fence *fence;
    uint64_t epoch;
} last_event;

/* This thread has seen all that it has submitted done. */
static void rest(void)
{
    last_event.fence = NULL;
    if (working) {
        working = false;
        atomic_fetch_sub(&workers, 1);
    }
}

bool fence_idle(void)
{
    if (atomic_load(&unseen)) /* then the fence of the last event may have ended too */
        return false;
    if (working && !fence_last_stream &&
        !(last_event.fence && !fence_done(last_event.fence, last_event.epoch)))
        rest();
    return !working && !atomic_load(&workers);
}

void fence_waited(void)
{
    fence_last_stream = 0;
    rest();
}

bool fence_wait_context(CUcontext context, CUresult *result)
{
    CUcontext before = NULL;

    if (capture_any())
        return false;
    driver.cuCtxGetCurrent(&before);
    const bool push = before != context;
    *result = push ? driver.cuCtxPushCurrent_v2(context) : CUDA_SUCCESS;
    if (*result != CUDA_SUCCESS)
        return true;
    const uint64_t others = orphans_take();
    const bool waited = capture_wait_context(context, result);
    orphans_waited(others, waited && *result == CUDA_SUCCESS);
    if (waited && *result == CUDA_SUCCESS)
        fence_waited();
    if (push)
        driver.cuCtxPopCurrent_v2(&before);
    return waited;
}

void fence_after_fork(void)
{
    pthread_mutex_init(&work_lock, NULL);
    atomic_store(&many_streams, true);
    atomic_store(&unseen, true);
    atomic_store(&drained, true);
    atomic_store(&intents, 0);
}

/* ---- epochs of one context ---- */

int fence_open(struct fence *fence, CUcontext context)
{
    memset(fence, 0, sizeof *fence);
    fence->context = context;
    atomic_store(&fence->open, 1);
    pthread_mutex_init(&fence->lock, NULL);
    return 0;
}

void fence_close(struct fence *fence, bool context_lives)
{
    for (int i = 0; i < FENCE_EVENTS && context_lives; i++) {
        if (fence->events[i])
            driver.cuEventDestroy_v2(fence->events[i]);
    }
    pthread_mutex_destroy(&fence->lock);
    memset(fence, 0, sizeof *fence);
}

uint64_t fence_epoch_quietly(struct fence *fence)
{
    if (fence_idle())
        return 0;
    const uint64_t epoch = atomic_load(&fence->open);
    if (!atomic_load_explicit(&fence->used, memory_order_relaxed))
        atomic_store(&fence->used, true);
    return epoch;
}

uint64_t fence_epoch(struct fence *fence)
{
    static _Thread_local unsigned frees;
    const uint64_t epoch = fence_epoch_quietly(fence);

    if (!epoch)
        return 0;
    /* Before the caller asks whether one stream is trusted, and so before a stream that comes later drains.
     */
    if (!atomic_load(&unsettled))
        atomic_store(&unsettled, true);
    /* Many small epochs: whoever must wait then waits for the oldest of them and not for the newest work. */
    if (++frees % FENCE_EPOCH_FREES == 0)
        fence_poll(fence);
    return epoch;
}

uint64_t fence_reached(struct fence *fence)
{
    return atomic_load(&fence->done);
}

bool fence_done(struct fence *fence, uint64_t epoch)
{
    return epoch <= fence_reached(fence);
}

/* An event belongs to the context that is current when it is made, and frees come from any. */
static bool make_event(const struct fence *fence, CUevent *event)
{
    CUcontext before;

    if (*event)
        return true;
    if (driver.cuCtxPushCurrent_v2(fence->context) != CUDA_SUCCESS)
        return false;
    if (driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        *event = NULL;
    driver.cuCtxPopCurrent_v2(&before);
    return *event != NULL;
}

/* Begins the next epoch and returns the number of the one that ends. In this order: a free that still reads
 * the old number did so before whatever the caller does now to learn of the end of its work; one that reads
 * the new number finds `used` as it is for the new one. With the lock. */
static uint64_t next_epoch(struct fence *fence)
{
    atomic_store(&fence->used, false);
    return atomic_fetch_add(&fence->open, 1);
}

/* Puts an event behind all work of the context; `again`: if all events are under way, the newest once more,
 * for both epochs. With the lock. False if that cannot be done now. */
static bool close_epoch(struct fence *fence, bool again)
{
    const bool full = fence->count == FENCE_EVENTS;
    const unsigned place = (fence->first + fence->count - full) % FENCE_EVENTS;

    if (!atomic_load(&fence->used))
        return true;
    if ((full && !again) || capture_any() || !make_event(fence, &fence->events[place]))
        return false;
    const uint64_t epoch = next_epoch(fence);
    const struct fence_guests guests_now = fence_guests_now();
    const uintptr_t last = fence_last_stream;
    if (guests_now.quiet)
        fence_last_stream = 0; /* whatever this thread submits behind the event will be seen */
    if (driver.cuCtxRecordEvent(fence->context, fence->events[place]) != CUDA_SUCCESS) {
        fence_last_stream = last;
        atomic_store(&fence->used, true); /* the next one will cover this one too */
        return false;
    }
    if (guests_now.quiet) {
        last_event.fence = fence;
        last_event.epoch = epoch;
    }
    fence->closed[place] = epoch;
    fence->guests[place] = guests_now;
    fence->count += !full;
    return true;
}

static void take_in(struct fence *fence, unsigned upto)
{
    while (fence->count && fence->first != upto) {
        if (fence->closed[fence->first] > fence->done)
            fence->done = fence->closed[fence->first];
        fence_guests_done(fence->guests[fence->first]);
        fence->first = (fence->first + 1) % FENCE_EVENTS;
        fence->count--;
    }
}

/* True if there was any. */
static bool take_in_done(struct fence *fence)
{
    bool any = false;

    while (fence->count && !capture_any() &&
           driver.cuEventQuery(fence->events[fence->first]) == CUDA_SUCCESS) {
        take_in(fence, (fence->first + 1) % FENCE_EVENTS);
        any = true;
    }
    return any;
}

void fence_poll(struct fence *fence)
{
    if (!capture_forbid())
        return;
    pthread_mutex_lock(&fence->lock);
    const bool closed = close_epoch(fence, false);
    /* There may be an event for it now. */
    if (take_in_done(fence) && !closed && close_epoch(fence, false))
        take_in_done(fence);
    pthread_mutex_unlock(&fence->lock);
    capture_allow();
}

uint64_t fence_usable(struct fence *fence)
{
    const uint64_t done = fence_reached(fence), ordered = atomic_load(&fence->ordered);

    return done > ordered ? done : ordered;
}

/* Puts all later work behind the newest event. With the lock. */
static void wait_on_device(struct fence *fence)
{
    const unsigned newest = (fence->first + fence->count - 1) % FENCE_EVENTS;

    if (fence->count && fence->closed[newest] > fence_usable(fence) && !capture_any() &&
        driver.cuCtxWaitEvent(fence->context, fence->events[newest]) == CUDA_SUCCESS)
        atomic_store(&fence->ordered, fence->closed[newest]);
}

bool fence_join(struct fence *fence)
{
    const uint64_t before = fence_usable(fence);

    if (!capture_forbid())
        return false;
    pthread_mutex_lock(&fence->lock);
    /* Asked with the lock: whoever forbids joins and then waits (fence_settle) comes behind the last one. */
    if (!atomic_load(&no_joins) && close_epoch(fence, true))
        wait_on_device(fence);
    pthread_mutex_unlock(&fence->lock);
    capture_allow();
    return fence_usable(fence) > before;
}

int fence_wait_oldest(struct fence *fence, bool *more)
{
    fence_poll(fence);
    pthread_mutex_lock(&fence->lock);
    /* Where one stream is trusted, waiting only serves stitching, and the oldest will do. Else nothing freed
     * is usable before its epoch is done, and coming back for each costs more: gpt_varlen behind two streams
     * 635 waits and 151,000 driver calls with the oldest, 136 and 100,000 with the middle, 104 and 74,000
     * with the latest, which drains the device. */
    const unsigned ahead = fence_one_stream() ? 0 : fence->count / 2;
    CUevent oldest = fence->count ? fence->events[(fence->first + ahead) % FENCE_EVENTS] : NULL;
    const bool settled = !oldest && !atomic_load(&fence->used);
    pthread_mutex_unlock(&fence->lock);
    *more = false;
    if (settled) /* the last of it has just been taken in; later work may never end by itself */
        return 0;
    if (!oldest)
        return fence_wait(fence, FENCE_NOW);
    if (capture_any())
        return -EBUSY;
    /* Another thread may record it anew meanwhile; then this waits longer than it must. */
    if (capture_wait_event(oldest) != CUDA_SUCCESS)
        return -EIO;
    fence_poll(fence);
    pthread_mutex_lock(&fence->lock);
    *more = fence->count > 0;
    pthread_mutex_unlock(&fence->lock);
    return 0;
}

uint64_t fence_before_wait(struct fence *fence)
{
    pthread_mutex_lock(&fence->lock);
    const uint64_t epoch = next_epoch(fence);
    pthread_mutex_unlock(&fence->lock);
    return epoch;
}

/* The end of everything submitted so far is the end of every epoch before the one that is open now. */
void fence_after_wait(struct fence *fence, uint64_t epoch, bool success)
{
    if (!success) {
        atomic_store(&fence->used, true); /* the next event will cover that epoch too */
        return;
    }
    pthread_mutex_lock(&fence->lock);
    if (epoch > fence->done)
        fence->done = epoch;
    while (fence->count && fence->closed[fence->first] <= fence->done)
        take_in(fence, (fence->first + 1) % FENCE_EVENTS);
    pthread_mutex_unlock(&fence->lock);
}

int fence_wait(struct fence *fence, uint64_t epoch)
{
    if (fence_done(fence, epoch))
        return 0;
    if (capture_any())
        return -EBUSY;
    const uint64_t ended = fence_before_wait(fence);
    const struct fence_guests guests_now = fence_guests_now();
    const uint64_t others = orphans_take();
    const bool done = synchronize(1);
    orphans_waited(others, done);
    if (done) {
        fence_waited();
        fence_guests_done(guests_now);
    }
    fence_after_wait(fence, ended, done);
    if (done)
        return 0;
    return capture_any() ? -EBUSY : -EIO;
}

/* Beside a capture. What is in other hands in the order of one stream was waited for when it began; what is
 * by a join is behind an event. */
static int settle_joined(struct fence *fence)
{
    pthread_mutex_lock(&fence->lock);
    const unsigned newest = (fence->first + fence->count - 1) % FENCE_EVENTS;
    CUevent event = fence->count ? fence->events[newest] : NULL;
    pthread_mutex_unlock(&fence->lock);
    return !event || capture_wait_event(event) == CUDA_SUCCESS ? 0 : -EIO;
}

int fence_settle(struct fence *fence)
{
    fence_poll(fence);
    pthread_mutex_lock(&fence->lock);
    const bool settled = !atomic_load(&fence->used) && fence->done + 1 == fence->open;
    pthread_mutex_unlock(&fence->lock);
    return settled || fence_wait(fence, FENCE_NOW) == 0 ? 0 : settle_joined(fence);
}
