/* capture: the stream captures that the program has open, and how to wait beside them.
 *
 * While any stream of a context captures, cuCtxSynchronize and cuCtxRecordEvent fail and destroy the capture
 * (measured). Waiting for an event or a stream does not, in a thread whose capture mode is relaxed, and
 * neither does freeing memory of the driver's own, which waits for all work of the context. So the library
 * records context events only while no capture is open (capture_exclude), and waits in the other ways.
 *
 * Owns captures_lock.
 */
#ifndef GPUCAP_CAPTURE_H
#define GPUCAP_CAPTURE_H

#include <stdatomic.h>
#include <stdint.h>

#include "interpose/driver/driver.h"

/* Call before the driver begins a capture of `stream` (a key of streams.h) in `context`; `thread` is the
 * calling thread's key. Waits until no thread is between capture_exclude and capture_admit, but at most half
 * a second: such a thread may be blocked in the driver by work that only this thread can release. */
void capture_begin(uintptr_t stream, uintptr_t thread, CUcontext context);
/* Call after the driver has ended the capture, in any thread, or refused to begin it. Does nothing if no
 * capture of the stream was begun: a stream that joined a capture may end before it. */
void capture_end(uintptr_t stream, uintptr_t thread);
/* Forgets the captures of a context that has ended. */
void capture_context_end(CUcontext context);
void capture_after_fork(void);

/* Returns true if any capture is open or about to begin. */
bool capture_any(void);
/* Returns true if work submitted to the stream becomes part of a graph. */
bool capture_takes(CUstream stream);

/* Returns true if no capture is open. Then none begins before capture_admit, which must follow soon. */
bool capture_exclude(void);
void capture_admit(void);

/* The questions about one context's work by cuCtxSynchronize (fence.h). One thread asks at a time, and no
 * capture begins meanwhile. */
struct capture_questions {
    struct capture_questions *next; /* guarded by captures_lock */
    _Atomic uint64_t word;          /* twice the number of answered questions, plus 1 while a thread asks */
    atomic_uint quick; /* quick answers in a row, up to FENCE_QUICK; 0 again if a capture had to wait */
};
void capture_add_questions(struct capture_questions *questions);
void capture_remove_questions(struct capture_questions *questions);

/* Begins a question. Returns its number, for capture_end_question, which must follow also if the thread is
 * cancelled; or 0 if another thread asks or a capture is open. */
uint64_t capture_begin_question(struct capture_questions *questions);
void capture_end_question(struct capture_questions *questions, uint64_t number, bool answered);
/* Returns the number of the first question that begins after the call. */
uint64_t capture_next_question(struct capture_questions *questions);
/* Spins until that question was answered (returns true), or no thread asks, or for 10 us. */
bool capture_await_answer(struct capture_questions *questions, uint64_t number);

/* Orders all later work of the context behind all that was submitted, on the device. *event is recorded for
 * that, and created if it is NULL. Returns false if a capture is open, another context is current, or the
 * driver cannot. */
bool capture_order_behind(CUcontext context, CUevent *event);

/* Waits for all work of the context. Works while captures are open and leaves them intact. */
CUresult capture_wait_context(CUcontext context);
/* The same, but fails where a native cuMemFree would: in a thread's own capture or beside a global one the
 * driver refuses the free and destroys the capture. */
CUresult capture_wait_as_free(CUcontext context);

/* Wait for an event or a stream that does not capture; query an event. All work beside captures. */
CUresult capture_wait_event(CUevent event);
CUresult capture_wait_stream(CUstream stream);
CUresult capture_query_event(CUevent event);

#endif
