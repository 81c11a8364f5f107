/* engine_fence: for tests of the fence: one fence over the fake driver, and work on streams by their handles.
 */
#ifndef GPUCAP_TESTS_ENGINE_FENCE_H
#define GPUCAP_TESTS_ENGINE_FENCE_H

#include <pthread.h>

#include "tests/unit/interpose/engine_fake.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/fence.h"

#define STREAM_A ((CUstream)0x10000)
#define STREAM_B ((CUstream)0x10100)
#define LEGACY   ((CUstream)0x1)
#define OWN      ((CUstream)0x2)
#define ADDRESS  (UINT64_C(1) << 45)

static struct fence fence;

static inline void open_fence(void)
{
    fake_start(GIB);
    fence_open(&fence, FAKE_CONTEXT);
}

/* No thread is left that uses an event or keeps captures from beginning, which would wait for ever here. */
static inline void close_fence(void)
{
    for (int i = 0; i < FENCE_EVENTS; i++)
        CHECK(fence.events[i].users == 0);
    alarm(250);
    atomic_store(&fake_clock_stands, true);
    capture_begin(FAKE_CAPTURE, streams_thread_key(), FAKE_CONTEXT);
    capture_end(FAKE_CAPTURE, streams_thread_key());
    atomic_store(&fake_clock_stands, false);
    fence_close(&fence, true);
    fake_end();
}

/* Submits work that touches no memory of the fake. */
static inline void work(unsigned stream, CUstream handle)
{
    const bool foreign = streams_submit_begin(streams_key(handle));

    fake_work(stream, ADDRESS, 0, 1);
    if (foreign)
        streams_submit_end();
}

/* Frees a block behind work, so that from now on blocks may be handed out again before their work is done. */
static inline void free_early(void)
{
    struct fence elsewhere;

    fence_open(&elsewhere, FAKE_CONTEXT);
    CHECK(fence_epoch(&elsewhere));
    fence_close(&elsewhere, true);
}

static inline void on_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, run, argument) == 0 && pthread_join(thread, NULL) == 0);
}

/* A capture of this thread's. */
static inline void open_capture(void)
{
    capture_begin(FAKE_CAPTURE, streams_thread_key(), FAKE_CONTEXT);
    fake_set_capturing(true);
}

static inline void close_capture(void)
{
    fake_set_capturing(false);
    capture_end(FAKE_CAPTURE, streams_thread_key());
}

#endif
