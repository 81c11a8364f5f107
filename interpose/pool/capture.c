/* capture: see capture.h. */
#include "interpose/pool/capture.h"

#include <string.h>

#include "interpose/base/clock.h"
#include "interpose/base/lock.h"

#define CAPTURES_MAX 64
#define PATIENCE_NS  UINT64_C(500000000)
#define MOMENT_NS    20000 /* between two looks */
#define SPINS        200   /* of a wait for another thread's answer: 10 us (x86_64) */
#define PROBE_BYTES  512   /* usually fits into a page that the driver holds */
#define PROBE_HOST   4096  /* of host memory, if the card is full */

static struct lock captures_lock = LOCK_INITIALIZER(LOCK_CAPTURES);
static atomic_int captures; /* open or about to begin */
static atomic_int excluded; /* threads between capture_exclude and capture_admit */
/* guarded by captures_lock */
static struct {
    uintptr_t stream, thread; /* the stream it captures and the thread that began it; stream 0: unused */
    CUcontext context;
} names[CAPTURES_MAX];
static int nameless; /* open captures beyond the table */
static struct capture_questions *all_questions;

bool capture_any(void)
{
    return atomic_load(&captures) > 0;
}

bool capture_takes(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    /* The legacy stream cannot capture, and asking about it while another stream captures is an error. */
    return capture_any() && stream && stream != CU_STREAM_LEGACY &&
           driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* ---- keeping captures from beginning ---- */

bool capture_exclude(void)
{
    if (capture_any())
        return false;
    atomic_fetch_add(&excluded, 1);
    if (!capture_any())
        return true;
    capture_admit();
    return false;
}

void capture_admit(void)
{
    atomic_fetch_sub(&excluded, 1);
}

/* ---- questions ---- */

void capture_add_questions(struct capture_questions *questions)
{
    lock_take(&captures_lock);
    questions->next = all_questions;
    all_questions = questions;
    lock_release(&captures_lock);
}

void capture_remove_questions(struct capture_questions *questions)
{
    struct capture_questions **at = &all_questions;

    lock_take(&captures_lock);
    while (*at && *at != questions)
        at = &(*at)->next;
    if (*at)
        *at = questions->next;
    lock_release(&captures_lock);
}

/* Changes the word and then reads `captures`; capture_begin does the opposite, so one sees the other. */
uint64_t capture_begin_question(struct capture_questions *questions)
{
    uint64_t word = atomic_load_explicit(&questions->word, memory_order_relaxed);

    if ((word & 1) || !atomic_compare_exchange_strong(&questions->word, &word, word + 1))
        return 0;
    if (!capture_any())
        return word + 1;
    capture_end_question(questions, word + 1, false);
    return 0;
}

/* Only the thread that asks writes an odd word, so a store is enough. Release: a thread that shares the
 * answer sees what this thread has seen. */
void capture_end_question(struct capture_questions *questions, uint64_t number, bool answered)
{
    atomic_store_explicit(&questions->word, answered ? number + 1 : number - 1, memory_order_release);
}

/* A locked addition, not a load: all that this thread submitted is visible before it, and so to a thread that
 * changes the word later and then asks the driver. */
uint64_t capture_next_question(struct capture_questions *questions)
{
    return (atomic_fetch_add(&questions->word, 0) + 1) | 1;
}

bool capture_await_answer(struct capture_questions *questions, uint64_t number)
{
    uint64_t word = atomic_load_explicit(&questions->word, memory_order_acquire);

    for (int i = 0; i < SPINS && (word & 1) && word <= number; i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#else
        __asm__ volatile("yield");
#endif
        word = atomic_load_explicit(&questions->word, memory_order_acquire);
    }
    return word > number;
}

/* Returns true if a thread asks or records an event. One that asks may take long: the next in its context
 * waits for an event instead. */
static bool any_excludes(void)
{
    bool any = atomic_load(&excluded) > 0;

    lock_take(&captures_lock);
    for (struct capture_questions *at = all_questions; at; at = at->next) {
        if (!(atomic_load(&at->word) & 1))
            continue;
        atomic_store_explicit(&at->quick, 0, memory_order_relaxed);
        any = true;
    }
    lock_release(&captures_lock);
    return any;
}

static void await_excluded(void)
{
    const uint64_t until = clock_ns() + PATIENCE_NS;

    while (any_excludes() && clock_ns() < until)
        clock_sleep(MOMENT_NS);
}

/* ---- waiting ---- */

/* Relaxes the calling thread's capture mode for a driver call, and disables cancellation. Returns the mode
 * before. */
static CUstreamCaptureMode relax(void)
{
    lock_disable_cancel();
    return driver_relax();
}

/* Undoes it after the call, and returns the call's result. */
static CUresult restore(CUstreamCaptureMode mode, CUresult result)
{
    driver_restore(mode);
    lock_restore_cancel();
    return result;
}

CUresult capture_wait_event(CUevent event)
{
    const CUstreamCaptureMode mode = relax();

    return restore(mode, driver.cuEventSynchronize(event));
}

CUresult capture_wait_stream(CUstream stream)
{
    const CUstreamCaptureMode mode = relax();

    return restore(mode, driver.cuStreamSynchronize(stream));
}

CUresult capture_query_event(CUevent event)
{
    const CUstreamCaptureMode mode = relax();

    return restore(mode, driver.cuEventQuery(event));
}

/* Allocates and frees a small block of the driver in the current context: cuMemFree waits for all work of the
 * context and disturbs no capture that allows it (measured, also beside thread-local and relaxed
 * captures). */
static CUresult free_probe(void)
{
    CUdeviceptr block;
    void *host;
    CUresult result = driver.cuMemAlloc_v2(&block, PROBE_BYTES);

    if (result == CUDA_SUCCESS)
        return driver.cuMemFree_v2(block);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    result = driver.cuMemHostAlloc(&host, PROBE_HOST, 0); /* its free waits as well */
    return result == CUDA_SUCCESS ? driver.cuMemFreeHost(host) : result;
}

/* Waits for an event behind all work of the current context. Returns false if a capture is open or there is
 * no event; otherwise *result is the driver's answer. */
static bool wait_behind_event(CUcontext context, CUresult *result)
{
    CUevent event;

    if (!capture_exclude())
        return false;
    *result = driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    const bool created = *result == CUDA_SUCCESS;
    if (created)
        *result = driver.cuCtxRecordEvent(context, event);
    capture_admit();
    const bool recorded = *result == CUDA_SUCCESS;
    if (recorded)
        *result = capture_wait_event(event);
    if (created)
        driver.cuEventDestroy_v2(event);
    return recorded;
}

bool capture_order_behind(CUcontext context, CUevent *event)
{
    CUcontext current = NULL;

    if (driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context || !capture_exclude())
        return false;
    lock_disable_cancel();
    CUresult result = *event ? CUDA_SUCCESS : driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        *event = NULL;
    else if ((result = driver.cuCtxRecordEvent(context, *event)) == CUDA_SUCCESS)
        result = driver.cuCtxWaitEvent(context, *event);
    capture_admit();
    lock_restore_cancel();
    return result == CUDA_SUCCESS;
}

static CUresult wait_pushed(CUcontext context, CUresult (*wait)(CUcontext context))
{
    CUcontext before;
    CUresult result = driver.cuCtxPushCurrent_v2(context);

    if (result != CUDA_SUCCESS)
        return result;
    result = wait(context);
    driver.cuCtxPopCurrent_v2(&before);
    return result;
}

/* Calls `wait` with the context current and cancellation disabled. */
static CUresult in_context(CUcontext context, CUresult (*wait)(CUcontext context))
{
    CUcontext before = NULL;

    lock_disable_cancel();
    driver.cuCtxGetCurrent(&before);
    const CUresult result = before == context ? wait(context) : wait_pushed(context, wait);
    lock_restore_cancel();
    return result;
}

static CUresult wait_relaxed(CUcontext context)
{
    CUresult result;

    if (wait_behind_event(context, &result))
        return result;
    const CUstreamCaptureMode mode = relax();
    return restore(mode, free_probe());
}

static CUresult wait_as_free(CUcontext context)
{
    (void)context;
    return free_probe();
}

CUresult capture_wait_context(CUcontext context)
{
    return in_context(context, wait_relaxed);
}

CUresult capture_wait_as_free(CUcontext context)
{
    return in_context(context, wait_as_free);
}

/* ---- beginnings and ends ---- */

/* Returns the index of the thread's own capture of this stream, else of any, else CAPTURES_MAX. */
static int name_of(uintptr_t stream, uintptr_t thread)
{
    int found = CAPTURES_MAX;

    lock_assert_held(&captures_lock);
    for (int i = 0; i < CAPTURES_MAX; i++) {
        if (names[i].stream == stream && (found == CAPTURES_MAX || names[i].thread == thread))
            found = i;
    }
    return found;
}

void capture_begin(uintptr_t stream, uintptr_t thread, CUcontext context)
{
    lock_disable_cancel();
    atomic_fetch_add(&captures, 1);
    await_excluded();
    lock_take(&captures_lock);
    const int i = name_of(0, 0);
    if (i < CAPTURES_MAX) {
        names[i].stream = stream;
        names[i].thread = thread;
        names[i].context = context;
    } else {
        nameless++;
    }
    lock_release(&captures_lock);
    lock_restore_cancel();
}

void capture_end(uintptr_t stream, uintptr_t thread)
{
    lock_take(&captures_lock);
    const int i = name_of(stream, thread);
    const bool known = i < CAPTURES_MAX || nameless > 0;
    if (i < CAPTURES_MAX)
        names[i].stream = 0;
    else
        nameless -= known;
    lock_release(&captures_lock);
    atomic_fetch_sub(&captures, known);
}

void capture_context_end(CUcontext context)
{
    int ended = 0;

    lock_take(&captures_lock);
    for (int i = 0; i < CAPTURES_MAX; i++) {
        if (!names[i].stream || names[i].context != context)
            continue;
        names[i].stream = 0;
        ended++;
    }
    lock_release(&captures_lock);
    atomic_fetch_sub(&captures, ended);
}

void capture_after_fork(void)
{
    lock_init(&captures_lock, LOCK_CAPTURES);
    atomic_store(&captures, 0);
    atomic_store(&excluded, 0);
    memset(names, 0, sizeof(names));
    nameless = 0;
    all_questions = NULL;
}
