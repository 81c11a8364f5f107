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

#include <stdint.h>

#include "interpose/driver/driver.h"

/* Before the driver is told to begin a capture of `stream` (a key of streams.h) in `context`; `thread` is the
 * calling thread's key. Waits until no thread is between capture_exclude and capture_admit, half a second at
 * most: such a thread may be stuck in the driver behind work that this one is to release. */
void capture_begin(uintptr_t stream, uintptr_t thread, CUcontext context);
/* After the driver has ended the capture, or refused to begin it. Any thread may end one. Does nothing if no
 * capture of the stream was begun: streams that joined a capture may end before it. */
void capture_end(uintptr_t stream, uintptr_t thread);
/* The context is gone, and so are the captures in it. */
void capture_context_end(CUcontext context);
void capture_after_fork(void);

/* True if any capture is open or about to begin. */
bool capture_any(void);
/* True if what is submitted to the stream becomes part of a graph. */
bool capture_takes(CUstream stream);

/* True if no capture is open; then none begins before capture_admit, which must follow soon. */
bool capture_exclude(void);
void capture_admit(void);

/* Waits for all work of the context. Works beside captures and leaves them alone. */
CUresult capture_wait_context(CUcontext context);
/* The same with the driver's own answer for a thread that may not free memory now: beside a global capture,
 * or in its own, cuMemFree is refused and destroys the capture. */
CUresult capture_wait_as_free(CUcontext context);

/* Wait for an event, or for a stream that does not capture; query an event. Work beside captures. */
CUresult capture_wait_event(CUevent event);
CUresult capture_wait_stream(CUstream stream);
CUresult capture_query_event(CUevent event);

#endif
