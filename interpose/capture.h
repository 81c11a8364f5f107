/* capture: the stream captures that the program has open.
 *
 * Beside an open capture many calls are refused or destroy it, in whatever thread: to wait for a context, to
 * put an event into it, to ask about one. So nobody of us makes such a call without asking here first. A
 * capture is announced before the driver is told, and begins when those are gone who have found none open.
 *
 * Nobody waits for the device under a lock that others need: the work of the one may be waiting for what the
 * other does next. Owns capture_lock, held for reading by whoever forbids captures; rest_lock (rank: before
 * it), held while the beginning of a capture waits; and names_lock, held for a few instructions.
 */
#ifndef GPUCAP_CAPTURE_H
#define GPUCAP_CAPTURE_H

#include <stdint.h>

#include "driver.h"

/* Of a wait without which blocks would be used too early. */
#define CAPTURE_TRIES 8

/* A capture of this stream (a key of fence.h) and context is about to begin: before the driver is told. If no
 * other is open and `restless` says so, all work of the current context is waited for first. */
void capture_begins(uintptr_t stream, CUcontext context, bool (*restless)(void));
/* It has ended, or not begun: after the driver says so. Nothing if the stream has begun none: those that have
 * joined a capture may go before it ends. */
void capture_ended(uintptr_t stream);
/* The context has ended, and so have the captures in it. */
void capture_context_ended(CUcontext context);
/* Waits until no beginning of a capture waits. */
void capture_await_rest(void);
void capture_after_fork(void);

/* True if any is open, or about to begin. */
bool capture_any(void);
/* True if there ever was one. */
bool capture_ever(void);
/* True if what goes to the stream only adds to a graph. */
bool capture_takes(CUstream stream);
/* How many have begun in the process; 0 as well while one of the calling thread's own is open, which does not
 * end while that thread waits. */
uint64_t capture_elsewhere(void);

/* True if no capture is open, and then none begins until capture_allow. Meanwhile: no wait. */
bool capture_forbid(void);
void capture_allow(void);
/* Waits for all work of a context, which is current; captures may begin meanwhile. *result: what the driver
 * says. False: one is open, and nobody has waited. */
bool capture_wait_context(CUcontext context, CUresult *result);
/* Waits for an event; captures may be open or begin. */
CUresult capture_wait_event(CUevent event);

#endif
