/* capture: see capture.h. */
#include "capture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "clock.h"

#define CAPTURES_MAX 64
/* After so long, whoever was about to call the driver is in the call. */
#define ENTERED_NS UINT64_C(500000000)

static pthread_rwlock_t capture_lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t early_lock = PTHREAD_RWLOCK_INITIALIZER;
static atomic_uint_fast64_t early_until; /* by the clock; 0: there has been no capture */
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int captures;           /* open or about to begin */
static atomic_uint_fast64_t captured; /* how many have begun, ever */
static struct {
    uintptr_t stream, thread; /* that it is of, and that began it; 0: none */
    CUcontext context;
} names[CAPTURES_MAX];
static int nameless; /* open ones beyond these; both under names_lock */

bool capture_any(void)
{
    return atomic_load(&captures) > 0;
}

bool capture_takes(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    /* The legacy stream cannot capture, and it is an error to ask while another one does. */
    return capture_any() && stream && stream != CU_STREAM_LEGACY &&
           driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

uint64_t capture_elsewhere(uintptr_t thread)
{
    bool own = false;

    pthread_mutex_lock(&names_lock);
    for (int i = 0; i < CAPTURES_MAX; i++)
        own |= names[i].stream && names[i].thread == thread;
    pthread_mutex_unlock(&names_lock);
    return own ? 0 : atomic_load(&captured);
}

/* ---- waits ---- */

/* Nobody new comes once a capture is announced, so it gets its turn. */
bool capture_forbid(void)
{
    if (capture_any())
        return false;
    pthread_rwlock_rdlock(&capture_lock);
    if (!capture_any())
        return true;
    pthread_rwlock_unlock(&capture_lock);
    return false;
}

void capture_allow(void)
{
    pthread_rwlock_unlock(&capture_lock);
}

/* Behind all work of a context, which is current. NULL: no memory for one, a driver that has none of a
 * context, a context that has failed. */
static CUevent new_event(CUcontext context)
{
    CUevent event = NULL;

    if (driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return NULL;
    if (driver.cuCtxRecordEvent(context, event) == CUDA_SUCCESS)
        return event;
    driver.cuEventDestroy_v2(event);
    return NULL;
}

/* Waiting for a context destroys captures in it, waiting for an event does not, in a thread that no capture
 * forbids anything. */
static CUresult wait_relaxed(CUevent event, bool then_destroy)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool relaxed = driver.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    const CUresult result = driver.cuEventSynchronize(event);

    if (then_destroy)
        driver.cuEventDestroy_v2(event);
    if (relaxed)
        driver.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

CUresult capture_wait_event(CUevent event)
{
    return wait_relaxed(event, false);
}

CUresult capture_wait_stream(CUstream stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool relaxed = driver.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    const CUresult result = driver.cuStreamSynchronize(stream);

    if (relaxed)
        driver.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

/* Programs that do not capture wait as they would natively. False: this one does. */
static bool wait_early(CUresult *result)
{
    pthread_rwlock_rdlock(&early_lock);
    const bool early = !atomic_load(&early_until);
    if (early)
        *result = driver.cuCtxSynchronize();
    pthread_rwlock_unlock(&early_lock);
    return early;
}

bool capture_wait_context(CUcontext context, CUresult *result)
{
    if (!atomic_load(&early_until) && wait_early(result))
        return true;
    if (!capture_forbid())
        return false;
    CUevent event = new_event(context);
    const bool may = event || !capture_any();
    if (!event && may)
        *result = driver.cuCtxSynchronize();
    capture_allow();
    if (event)
        *result = wait_relaxed(event, true);
    return may;
}

/* ---- beginnings and ends ---- */

/* Waits until nobody holds a lock who did before, but not for ever: one that waits for the device may wait
 * for what this thread does next. It is in the driver's hands then, and a capture that begins now survives
 * it. */
static void let_go(pthread_rwlock_t *lock, uint64_t ns)
{
    const struct timespec until = clock_after(ns);

    if (pthread_rwlock_timedwrlock(lock, &until) == 0)
        pthread_rwlock_unlock(lock);
}

/* Those who wait since before the first capture have been in the driver's hands for long after a while. */
static void let_early_go(void)
{
    const uint64_t now = clock_ns();
    uint64_t until = 0;

    if (atomic_compare_exchange_strong(&early_until, &until, now + ENTERED_NS))
        until = now + ENTERED_NS;
    if (until > now)
        let_go(&early_lock, until - now);
}

/* The thread's own of this stream, else any of it; CAPTURES_MAX: it has none. With names_lock. */
static int name_of(uintptr_t stream, uintptr_t thread)
{
    int found = CAPTURES_MAX;

    for (int i = 0; i < CAPTURES_MAX; i++) {
        if (names[i].stream == stream && (found == CAPTURES_MAX || names[i].thread == thread))
            found = i;
    }
    return found;
}

void capture_begins(uintptr_t stream, uintptr_t thread, CUcontext context)
{
    atomic_fetch_add(&captured, 1);
    atomic_fetch_add(&captures, 1);
    let_early_go();
    let_go(&capture_lock, ENTERED_NS);
    pthread_mutex_lock(&names_lock);
    const int i = name_of(0, 0);
    if (i < CAPTURES_MAX) {
        names[i].stream = stream;
        names[i].thread = thread;
        names[i].context = context;
    } else {
        nameless++;
    }
    pthread_mutex_unlock(&names_lock);
}

void capture_ended(uintptr_t stream, uintptr_t thread)
{
    pthread_mutex_lock(&names_lock);
    const int i = name_of(stream, thread);
    const bool known = i < CAPTURES_MAX || nameless > 0;
    if (i < CAPTURES_MAX)
        names[i].stream = 0;
    else
        nameless -= known;
    pthread_mutex_unlock(&names_lock);
    atomic_fetch_sub(&captures, known);
}

void capture_context_ended(CUcontext context)
{
    int ended = 0;

    pthread_mutex_lock(&names_lock);
    for (int i = 0; i < CAPTURES_MAX; i++) {
        if (!names[i].stream || names[i].context != context)
            continue;
        names[i].stream = 0;
        ended++;
    }
    pthread_mutex_unlock(&names_lock);
    atomic_fetch_sub(&captures, ended);
}

void capture_after_fork(void)
{
    pthread_rwlock_init(&capture_lock, NULL);
    pthread_rwlock_init(&early_lock, NULL);
    pthread_mutex_init(&names_lock, NULL);
    atomic_store(&captures, 0);
    memset(names, 0, sizeof names);
    nameless = 0;
}
