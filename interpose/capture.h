/* capture: the stream captures that the program has open.
 *
 * Beside an open capture many calls are refused or destroy it, in whatever thread: to wait for a context, to
 * put an event into it, to ask about one. So nobody of us makes such a call without asking here first. A
 * capture is announced before the driver is told, and begins when those are gone who have found none open.
 *
 * A capture never waits for long, nor anybody for it: the device may be waiting for what that thread does
 * next. So once a program has captured, events are waited for, outside the lock. Owns capture_lock, held for
 * reading by whoever forbids captures, early_lock, by who waits and has seen none yet, and names_lock, held
 * for a few instructions.
 */
#ifndef GPUCAP_CAPTURE_H
#define GPUCAP_CAPTURE_H

#include <stdint.h>

#include "driver.h"

/* A capture of this stream (a key of fence.h) and context is about to begin, by this thread (a key too):
 * before the driver is told. */
void capture_begins(uintptr_t stream, uintptr_t thread, CUcontext context);
/* It has ended, or not begun: after the driver says so. Any thread may end one. Nothing if the stream has
 * begun none: those that have joined a capture may go before it ends. */
void capture_ended(uintptr_t stream, uintptr_t thread);
/* The context has ended, and so have the captures in it. */
void capture_context_ended(CUcontext context);
void capture_after_fork(void);

/* True if any is open, or about to begin. */
bool capture_any(void);
/* True if what goes to the stream only adds to a graph. */
bool capture_takes(CUstream stream);
/* How many have begun in the process; 0 as well while one of this thread's own is open, which does not end
 * while that thread waits. */
uint64_t capture_elsewhere(uintptr_t thread);

/* True if no capture is open, and then none begins until capture_allow, within half a second. Between two
 * calls of the driver's, capture_any tells that one waits to begin. */
bool capture_forbid(void);
void capture_allow(void);
/* Waits for all work of a context, which is current; captures may begin meanwhile. *result: what the driver
 * says. False: one is open, and nobody has waited. */
bool capture_wait_context(CUcontext context, CUresult *result);
/* Waits for an event or a stream that captures nothing; captures may be open or begin. */
CUresult capture_wait_event(CUevent event);
CUresult capture_wait_stream(CUstream stream);

#endif
