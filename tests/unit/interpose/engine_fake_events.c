/* engine_fake_events: the fake driver's events, and everything that waits. See engine_fake.h. */
#include "tests/unit/interpose/engine_fake_state.h"

void (*fake_on_synchronize)(void);
static _Thread_local CUstreamCaptureMode thread_mode;

static CUresult fake_event_create(CUevent *event, unsigned flags)
{
    CUresult result = CUDA_ERROR_UNKNOWN;

    CHECK(flags & CU_EVENT_DISABLE_TIMING);
    fake_lock();
    const bool fail = fake_fails(FAKE_EVENT_CREATE);
    for (uintptr_t i = 1; i < EVENTS_MAX && !fail && result != CUDA_SUCCESS; i++) {
        if (fake.events[i].exists)
            continue;
        fake.events[i] = (struct fake_event){.exists = true};
        *event = (CUevent)i;
        result = CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS)
        *event = (CUevent)EVENTS_MAX; /* the driver promises nothing; no call knows this one */
    fake_unlock();
    return result;
}

static struct fake_event *event_of(CUevent event)
{
    CHECK((uintptr_t)event < EVENTS_MAX && fake.events[(uintptr_t)event].exists);
    return &fake.events[(uintptr_t)event];
}

static CUresult fake_event_destroy(CUevent event)
{
    fake_lock();
    event_of(event)->exists = false;
    fake_unlock();
    return CUDA_SUCCESS;
}

static CUresult fake_record(CUcontext context, CUevent event)
{
    CHECK(context == FAKE_CONTEXT);
    fake_lock();
    CHECK(!fake.capturing); /* would destroy the capture */
    const bool fail = fake_fails(FAKE_RECORD);
    struct fake_event *e = event_of(event);
    for (unsigned s = 0; s < FAKE_STREAMS && !fail; s++)
        e->behind[s] = fake.streams[s].submitted;
    e->recorded |= !fail;
    e->failed |= fail;
    fake_unlock();
    return fail ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult fake_wait(CUcontext context, CUevent event)
{
    CHECK(context == FAKE_CONTEXT);
    fake_lock();
    CHECK(!fake.capturing); /* would destroy the capture */
    const bool fail = fake_fails(FAKE_WAIT);
    struct fake_event *e = event_of(event);
    e->waited_for = true;
    for (unsigned s = 0; s < FAKE_STREAMS && e->recorded && !fail; s++) {
        if (fake.barrier[s] < e->behind[s])
            fake.barrier[s] = e->behind[s];
    }
    fake_unlock();
    return fail ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult fake_event_query(CUevent event)
{
    CUresult result = CUDA_SUCCESS;

    fake_lock();
    CHECK(!fake.capturing || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    const struct fake_event *e = event_of(event);
    for (unsigned s = 0; s < FAKE_STREAMS && e->recorded; s++) {
        if (fake.streams[s].done < e->behind[s])
            result = CUDA_ERROR_NOT_READY;
    }
    fake_unlock();
    return result;
}

static CUresult wait_for_all(bool in_captures)
{
    if (fake_on_synchronize)
        fake_on_synchronize();
    fake_lock();
    CHECK(in_captures || !fake.capturing);
    const bool fail = fake_fails(FAKE_SYNCHRONIZE);
    for (unsigned s = 0; s < FAKE_STREAMS && !fail; s++)
        fake.streams[s].done = fake.streams[s].submitted;
    fake_unlock();
    return fail ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult fake_synchronize(void)
{
    CHECK(!fake_elsewhere); /* would wait for that context */
    return wait_for_all(false);
}

/* Waiting for an event lets its streams get as far as it. */
static CUresult fake_event_synchronize(CUevent event)
{
    if (fake_on_synchronize)
        fake_on_synchronize();
    fake_lock();
    CHECK(!fake.capturing || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    const bool fail = fake_fails(FAKE_SYNCHRONIZE);
    const struct fake_event *e = event_of(event);
    for (unsigned s = 0; s < FAKE_STREAMS && e->recorded && !fail; s++) {
        fake_finish(s, e->behind[s]);
    }
    fake_unlock();
    return fail ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

/* A small block of the driver's own: its free waits for all work, beside a capture only in a relaxed thread.
 */
static CUresult fake_alloc_plain(CUdeviceptr *address, size_t bytes)
{
    fake_lock();
    const bool full = fake.physical + bytes > fake.capacity || fake.no_plain;
    fake_unlock();
    if (full)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *address = FAKE_PLAIN;
    return CUDA_SUCCESS;
}

static CUresult wait_in_free(void)
{
    fake_lock();
    const bool refused = fake.capturing && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    fake_unlock();
    return refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : wait_for_all(true);
}

static CUresult fake_free_plain(CUdeviceptr address)
{
    CHECK(address == FAKE_PLAIN);
    return wait_in_free();
}

static CUresult fake_host_alloc(void **host, size_t bytes, unsigned flags)
{
    (void)bytes, (void)flags;
    *host = &fake;
    return CUDA_SUCCESS;
}

static CUresult fake_host_free(void *host)
{
    CHECK(host == &fake);
    return wait_in_free();
}

static CUresult fake_exchange_mode(CUstreamCaptureMode *mode)
{
    const CUstreamCaptureMode before = thread_mode;

    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

void fake_events_enter(struct driver_table *table)
{
    table->cuEventCreate = fake_event_create;
    table->cuEventDestroy_v2 = fake_event_destroy;
    table->cuCtxRecordEvent = fake_record;
    table->cuCtxWaitEvent = fake_wait;
    table->cuEventQuery = fake_event_query;
    table->cuEventSynchronize = fake_event_synchronize;
    table->cuMemAlloc_v2 = fake_alloc_plain;
    table->cuMemFree_v2 = fake_free_plain;
    table->cuMemHostAlloc = fake_host_alloc;
    table->cuMemFreeHost = fake_host_free;
    table->cuThreadExchangeStreamCaptureMode = fake_exchange_mode;
    table->cuCtxSynchronize = fake_synchronize;
}
