/* fence: see fence.h. */
#include "interpose/pool/fence.h"

#include <errno.h>
#include <string.h>

#include "interpose/base/clock.h"

#define QUICK_NS UINT64_C(20000) /* an answer by an event within this time is quick */
#define SHARES   3               /* times a thread waits for another's question before it asks itself */

#define FLAG_WAIT_NS  UINT64_C(500000000) /* for work that may wait for the calling thread */
#define FLAG_PAUSE_NS 50000

static atomic_bool joins_forbidden; /* for good */
static atomic_bool flags_expected;  /* for good */
static atomic_bool reused_early;    /* for good */

void fence_forbid_joins(void)
{
    atomic_store(&joins_forbidden, true);
}

void fence_expect_flags(void)
{
    atomic_store(&flags_expected, true);
}

void fence_open(struct fence *fence, CUcontext context)
{
    memset(fence, 0, sizeof(*fence));
    fence->context = context;
    atomic_store(&fence->open, 1);
    lock_init(&fence->lock, LOCK_FENCE);
    capture_add_questions(&fence->questions);
}

void fence_close(struct fence *fence, bool context_lives)
{
    capture_remove_questions(&fence->questions);
    for (int i = 0; i < FENCE_EVENTS && context_lives; i++) {
        if (fence->events[i].event)
            driver.cuEventDestroy_v2(fence->events[i].event);
    }
    if (!context_lives)
        streams_context_end(fence->context);
    lock_destroy(&fence->lock);
    memset(fence, 0, sizeof(*fence));
}

uint64_t fence_reached(struct fence *fence)
{
    return atomic_load(&fence->done);
}

bool fence_done(struct fence *fence, uint64_t epoch)
{
    return epoch <= fence_reached(fence);
}

uint64_t fence_usable(struct fence *fence)
{
    const uint64_t done = fence_reached(fence), ordered = atomic_load(&fence->ordered);

    return done > ordered ? done : ordered;
}

/* ---- events ---- */

/* Returns an event that closed no epoch and that no thread waits for, or NULL. */
static struct fence_event *unused_event(struct fence *fence)
{
    for (int i = 0; i < FENCE_EVENTS; i++) {
        if (!fence->events[i].epoch && !fence->events[i].users)
            return &fence->events[i];
    }
    return NULL;
}

/* Returns the event of the first closed epoch from `epoch` on, or NULL. */
static struct fence_event *event_from(struct fence *fence, uint64_t epoch)
{
    struct fence_event *first = NULL;

    for (int i = 0; i < FENCE_EVENTS && fence->waiting; i++) {
        struct fence_event *event = &fence->events[i];

        if (event->epoch && event->epoch >= epoch && (!first || event->epoch < first->epoch))
            first = event;
    }
    return first;
}

/* Creates the event in the fence's context: it belongs to the current one, and frees come from any. */
static CUresult make_event(const struct fence *fence, struct fence_event *event)
{
    CUcontext before;

    if (event->event)
        return CUDA_SUCCESS;
    CUresult result = driver.cuCtxPushCurrent_v2(fence->context);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver.cuEventCreate(&event->event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        event->event = NULL;
    driver.cuCtxPopCurrent_v2(&before);
    return result;
}

/* Begins the next epoch and returns the one that ends. Any thread may call it, without the lock. The order
 * matters: a free that still reads the old number did so before the caller asks the driver; a free that reads
 * the new number sees `used` of the new epoch. */
uint64_t fence_wait_begin(struct fence *fence)
{
    if (atomic_load(&fence->used))
        atomic_store(&fence->used, false);
    return atomic_fetch_add(&fence->open, 1);
}

/* Closes the open epoch by recording `event` behind all work of the context. No capture may begin meanwhile
 * (capture_exclude). */
static CUresult record(struct fence *fence, struct fence_event *event)
{
    CUresult result = make_event(fence, event);

    if (result != CUDA_SUCCESS)
        return result;
    const uint64_t epoch = fence_wait_begin(fence);
    const struct streams_mark mark = streams_mark();
    result = driver.cuCtxRecordEvent(fence->context, event->event);
    if (result == CUDA_SUCCESS) {
        fence->waiting += event->epoch == 0;
        event->epoch = fence->closed = epoch;
        event->mark = mark; /* otherwise the event may still stand for an earlier epoch, and less work */
    } else {
        atomic_store(&fence->used, true); /* the next event will cover this epoch too */
    }
    return result;
}

static void raise_to(_Atomic uint64_t *value, uint64_t least)
{
    uint64_t now = atomic_load(value);

    while (least > now && !atomic_compare_exchange_weak(value, &now, least))
        ;
}

/* Records that all work up to an epoch is done, without the lock. */
static void note_done(struct fence *fence, uint64_t epoch)
{
    raise_to(&fence->done, epoch);
}

/* The same, and makes the events of these epochs usable again. */
static void settle_epoch(struct fence *fence, uint64_t epoch)
{
    lock_assert_held(&fence->lock);
    note_done(fence, epoch);
    for (unsigned i = 0, seen = 0, all = fence->waiting; seen < all; i++) {
        struct fence_event *event = &fence->events[i];

        seen += event->epoch != 0;
        if (!event->epoch || event->epoch > fence->done)
            continue;
        streams_mark_done(event->mark);
        event->epoch = 0;
        fence->waiting--;
    }
}

/* Finds out which closed epochs are done, oldest first. `query` is cuEventQuery or works beside captures. */
static void learn(struct fence *fence, CUresult (*query)(CUevent event))
{
    struct fence_event *oldest;

    while ((oldest = event_from(fence, 1)) && query(oldest->event) == CUDA_SUCCESS)
        settle_epoch(fence, oldest->epoch);
}

/* ---- free = strict ---- */

/* Notes whether an answer to a strict free was quick. */
static void note_answer(struct capture_questions *questions, bool at_once)
{
    if (!at_once)
        atomic_store_explicit(&questions->quick, 0, memory_order_relaxed);
    else if (atomic_load_explicit(&questions->quick, memory_order_relaxed) < FENCE_QUICK)
        atomic_fetch_add_explicit(&questions->quick, 1, memory_order_relaxed);
}

/* Returns true if cuCtxSynchronize would wait for this context; with a green context current it waits for
 * that one only. */
static bool is_current(const struct fence *fence)
{
    CUcontext current = NULL;

    return driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == fence->context;
}

/* Returns true if the last answers were quick and cuCtxSynchronize would wait for this context. */
static bool is_at_rest(struct fence *fence)
{
    return atomic_load_explicit(&fence->questions.quick, memory_order_relaxed) >= FENCE_QUICK &&
           !capture_any() && is_current(fence);
}

/* A question by cuCtxSynchronize. */
struct question {
    struct fence *fence;
    uint64_t number; /* 0: another thread's question is open, and this one began by capture_exclude */
    uint64_t epoch;  /* the epoch that it ends; 0: none */
    bool answered;
};

static void end_question(struct question *question)
{
    struct fence *fence = question->fence;

    if (question->epoch)
        fence_wait_end(fence, question->epoch, question->answered);
    if (question->number)
        capture_end_question(&fence->questions, question->number, question->answered);
    else
        capture_admit();
}

/* Asks by cuCtxSynchronize, without the lock. A capture that begins waits for the answer, half a second at
 * most. If the thread is cancelled in the driver's call, unwinding its stack ends the question; to disable
 * cancellation would cost two locked instructions. An epoch is ended only if something was freed in it or
 * an earlier one waits for its event. */
static CUresult synchronize(struct fence *fence, uint64_t number)
{
    struct question question __attribute__((cleanup(end_question))) = {.fence = fence, .number = number};

    if (atomic_load(&fence->used) || atomic_load(&fence->waiting))
        question.epoch = fence_wait_begin(fence);
    const CUresult result = driver.cuCtxSynchronize();
    question.answered = result == CUDA_SUCCESS;
    return result;
}

/* Waits for the answer to another thread's question that begins after the call. Returns false if there is
 * none soon; then *number is that of a question that this thread has begun, or 0. */
static bool share_answer(struct capture_questions *questions, uint64_t *number)
{
    const uint64_t next = capture_next_question(questions);

    for (int i = 0; i < SHARES && !*number; i++) {
        if (capture_await_answer(questions, next))
            return true;
        *number = capture_begin_question(questions);
    }
    return false;
}

/* For a context at rest: one thread asks. The others share its answer, or ask too if it does not come soon.
 * Returns false if a capture is open: then nothing was asked. */
static bool ask_at_rest(struct fence *fence, CUresult *result)
{
    uint64_t number = capture_begin_question(&fence->questions);

    *result = CUDA_SUCCESS;
    if (__builtin_expect(!number, 0) && share_answer(&fence->questions, &number))
        return true;
    if (!number && !capture_exclude())
        return false;
    *result = synchronize(fence, number);
    return true;
}

/* Asks the driver by an event, unless another thread has asked since this thread read its epoch. *event: the
 * event to wait for, or NULL. Returns false without asking if a capture is open or all events are in use. */
static bool ask(struct fence *fence, uint64_t epoch, struct fence_event **event, CUresult *result)
{
    const bool shared = fence->closed >= epoch;

    lock_assert_held(&fence->lock);
    *result = CUDA_SUCCESS;
    *event = shared ? event_from(fence, epoch) : unused_event(fence);
    if (shared)
        return true;
    if (!*event || !capture_exclude())
        return false;
    *result = record(fence, *event);
    if (*result == CUDA_SUCCESS) {
        *result = driver.cuEventQuery((*event)->event);
        if (*result == CUDA_SUCCESS) {
            settle_epoch(fence, (*event)->epoch);
            *event = NULL;
        } else if (*result == CUDA_ERROR_NOT_READY) {
            *result = CUDA_SUCCESS;
        } else {
            atomic_store(&fence->used, true);
        }
    }
    capture_admit();
    return true;
}

/* Waits for an event for at most FLAG_WAIT_NS. Returns CUDA_ERROR_NOT_READY if it is not done by then. */
static CUresult wait_a_while(CUevent event)
{
    const uint64_t until = clock_ns() + FLAG_WAIT_NS;
    CUresult result;

    while ((result = capture_query_event(event)) == CUDA_ERROR_NOT_READY && clock_ns() < until)
        clock_sleep(FLAG_PAUSE_NS);
    return result;
}

/* The check of fence_wait_oldest: waits only for a limited time if streams may wait for flags. */
static CUresult check_flags(void *argument)
{
    const struct fence_event *event = argument;

    return atomic_load(&flags_expected) ? wait_a_while(event->event) : CUDA_SUCCESS;
}

/* Waits for an event, with the fence's lock dropped. `check`: as for fence_pass. */
static CUresult wait_event(struct fence *fence, struct fence_event *event, const struct fence_check *check)
{
    const uint64_t epoch = event->epoch;
    CUresult result = CUDA_SUCCESS;

    event->users++;
    lock_disable_cancel(); /* a cancelled thread would stay a user */
    lock_release(&fence->lock);
    if (check)
        result = check->call(check->argument);
    if (!fence_done(fence, epoch) && result == CUDA_SUCCESS)
        result = capture_wait_event(event->event);
    lock_take(&fence->lock);
    lock_restore_cancel();
    event->users--;
    if (result == CUDA_SUCCESS)
        settle_epoch(fence, epoch);
    return result;
}

/* fence_pass beside a capture, and when all events are in use. */
static CUresult pass_as_free(struct fence *fence, const struct fence_check *check)
{
    CUresult result = check ? check->call(check->argument) : CUDA_SUCCESS;

    if (result != CUDA_SUCCESS)
        return result;
    lock_disable_cancel(); /* the epoch would never be known to be done */
    const uint64_t epoch = fence_wait_begin(fence);
    result = capture_wait_as_free(fence->context);
    fence_wait_end(fence, epoch, result == CUDA_SUCCESS);
    lock_restore_cancel();
    return result;
}

/* Not inlined, because a strict free at rest would pay for its registers. */
__attribute__((noinline)) static CUresult pass_by_event(struct fence *fence, const struct fence_check *check)
{
    const uint64_t epoch = atomic_load(&fence->open), began = clock_ns();
    struct fence_event *event;
    CUresult result;

    lock_take(&fence->lock);
    const bool asked = ask(fence, epoch, &event, &result);
    if (asked && result == CUDA_SUCCESS && event)
        result = wait_event(fence, event, check);
    lock_release(&fence->lock);
    if (asked)
        note_answer(&fence->questions, clock_ns() - began <= QUICK_NS);
    return asked ? result : pass_as_free(fence, check);
}

CUresult fence_pass(struct fence *fence, const struct fence_check *check)
{
    CUresult result = CUDA_SUCCESS;

    if (is_at_rest(fence)) {
        if (check)
            result = check->call(check->argument);
        if (result != CUDA_SUCCESS || ask_at_rest(fence, &result))
            return result;
    }
    return pass_by_event(fence, check);
}

/* ---- free = deferred ---- */

uint64_t fence_epoch_quietly(struct fence *fence)
{
    const uint64_t epoch = atomic_load(&fence->open);

    if (!atomic_load_explicit(&fence->used, memory_order_relaxed))
        atomic_store(&fence->used, true);
    if (atomic_load_explicit(&fence->freed, memory_order_relaxed) < epoch)
        raise_to(&fence->freed, epoch);
    if (!atomic_load_explicit(&reused_early, memory_order_relaxed) && streams_relied_on())
        atomic_store(&reused_early, true);
    return epoch;
}

uint64_t fence_epoch(struct fence *fence)
{
    static _Thread_local unsigned frees;
    const uint64_t epoch = fence_epoch_quietly(fence);

    /* Must come before the caller checks whether stream order is enough, and so before a later stream waits
     * for the main stream. */
    streams_note_early_free(fence->context);
    /* Keeps epochs small: a thread that must wait then waits for the oldest work, not for the newest. */
    if (++frees % FENCE_EPOCH_FREES == 0)
        fence_poll(fence);
    return epoch;
}

/* Closes the open epoch if it has a free. Returns false if that is impossible now. */
static bool close_epoch(struct fence *fence)
{
    if (!atomic_load(&fence->used))
        return true;
    struct fence_event *event = unused_event(fence);
    return event && record(fence, event) == CUDA_SUCCESS;
}

void fence_poll(struct fence *fence)
{
    const bool excluded = capture_exclude();

    lock_take(&fence->lock);
    if (excluded && !close_epoch(fence)) {
        learn(fence, driver.cuEventQuery); /* this may free an event */
        close_epoch(fence);
    }
    learn(fence, excluded ? driver.cuEventQuery : capture_query_event);
    lock_release(&fence->lock);
    if (excluded)
        capture_admit();
}

/* Returns the event behind everything freed so far, or NULL. Reuses the newest if all are in use. */
static struct fence_event *newest_event(struct fence *fence)
{
    if (close_epoch(fence))
        return event_from(fence, fence->closed);
    struct fence_event *newest = event_from(fence, fence->closed);
    return newest && !newest->users && record(fence, newest) == CUDA_SUCCESS ? newest : NULL;
}

bool fence_join(struct fence *fence)
{
    const uint64_t before = fence_usable(fence);

    if (!capture_exclude())
        return false;
    lock_take(&fence->lock);
    /* Read with the lock: a thread that forbids joins and then waits also waits for the last join. */
    struct fence_event *newest = atomic_load(&joins_forbidden) ? NULL : newest_event(fence);
    if (newest && newest->epoch > fence_usable(fence) &&
        driver.cuCtxWaitEvent(fence->context, newest->event) == CUDA_SUCCESS) {
        atomic_store(&reused_early, true);
        atomic_store(&fence->ordered, newest->epoch);
    }
    lock_release(&fence->lock);
    capture_admit();
    return fence_usable(fence) > before;
}

/* ---- waiting ---- */

void fence_wait_end(struct fence *fence, uint64_t epoch, bool success)
{
    if (!success) {
        atomic_store(&fence->used, true); /* the next event will cover that epoch too */
        return;
    }
    note_done(fence, epoch);
    if (!atomic_load(&fence->waiting))
        return;
    lock_take(&fence->lock);
    settle_epoch(fence, epoch);
    lock_release(&fence->lock);
}

/* Waits for all work of the context, and so for everything freed before. Returns 0 or -EIO. */
static int wait_context(struct fence *fence)
{
    lock_disable_cancel(); /* the epoch would never be known to be done */
    const uint64_t ended = fence_wait_begin(fence);
    const struct streams_mark mark = streams_mark();
    const bool success = capture_wait_context(fence->context) == CUDA_SUCCESS;
    if (success)
        streams_mark_done(mark);
    fence_wait_end(fence, ended, success);
    lock_restore_cancel();
    return success ? 0 : -EIO;
}

/* Chooses the event that fence_wait_oldest waits for. With the order of one stream, waiting only serves
 * moving and unmapping, and the oldest will do. Otherwise nothing freed is usable before its epoch is done,
 * and a wait for each costs more: gpt_varlen behind two streams took 635 waits and 151,000 driver calls with
 * the oldest, 136 and 100,000 with the middle one, 104 and 74,000 with the latest, which leaves the device
 * idle. */
static struct fence_event *choose_event(struct fence *fence)
{
    struct fence_event *event = event_from(fence, 1);

    for (int ahead = streams_in_order() ? 0 : (int)fence->waiting / 2; event && ahead > 0; ahead--) {
        struct fence_event *next = event_from(fence, event->epoch + 1);

        event = next ? next : event;
    }
    return event;
}

int fence_wait_oldest(struct fence *fence, bool *more)
{
    CUresult result = CUDA_SUCCESS;

    fence_poll(fence);
    lock_take(&fence->lock);
    struct fence_event *event = choose_event(fence);
    const struct fence_check check = {check_flags, event};
    const bool unclosed = !event && atomic_load(&fence->used);
    if (event)
        result = wait_event(fence, event, &check);
    *more = event_from(fence, 1) != NULL;
    lock_release(&fence->lock);
    if (unclosed) /* a capture is open, or no event could be recorded */
        return wait_context(fence);
    return result == CUDA_SUCCESS ? 0 : -EIO;
}

bool fence_reused_early(void)
{
    return atomic_load(&reused_early);
}

int fence_wait_all(struct fence *fence)
{
    const uint64_t freed = atomic_load(&fence->freed);
    CUresult result = CUDA_SUCCESS;

    if (fence_done(fence, freed))
        return 0;
    fence_poll(fence);
    lock_take(&fence->lock);
    struct fence_event *event = event_from(fence, freed);
    if (event)
        result = wait_event(fence, event, NULL);
    lock_release(&fence->lock);
    if (result != CUDA_SUCCESS)
        return -EIO;
    /* A capture is open, no event could be recorded, or another thread's wait has ended the epoch. */
    return fence_done(fence, freed) ? 0 : wait_context(fence);
}
