/* engine_fake: a fake driver with only the calls that the pool uses. It checks the rules of the real one and
 * stops the test at the first violation: a handle is mapped and unmapped as a whole, nothing overlaps, memory
 * is used only with access and while no work is pending on it, everything is given back. Any call can be made
 * to fail.
 *
 * Work: the test says which stream works on which bytes. The work of a stream ends in order, when the test
 * says so or a call waits for it. Has a lock of its own, so that threads may use it.
 */
#ifndef GPUCAP_TESTS_ENGINE_FAKE_H
#define GPUCAP_TESTS_ENGINE_FAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "interpose/driver/driver.h"

#define MIB UINT64_C(0x100000)
#define GIB UINT64_C(0x40000000)

#define FAKE_CONTEXT   ((CUcontext)0x1000)
#define FAKE_ELSEWHERE ((CUcontext)0x2000) /* a context of which the fake knows nothing */
#define FAKE_STREAMS   8
#define FAKE_CAPTURE   ((uintptr_t)0x20000) /* for the fence, a stream that captures */

/* Ends this process, which is the child of a test (fake_child). First waits a moment, because another thread,
 * such as a sanitizer's, may be printing what went wrong. */
#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            sleep(2);                                                                                        \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

enum fake_call {
    FAKE_CREATE,
    FAKE_MAP,
    FAKE_ACCESS,
    FAKE_UNMAP,
    FAKE_RELEASE,
    FAKE_RESERVE,
    FAKE_EVENT_CREATE,
    FAKE_RECORD,
    FAKE_WAIT,
    FAKE_SYNCHRONIZE,
    FAKE_CALLS
};

/* Starts a fresh driver with so much memory. */
void fake_start(uint64_t capacity);
/* Makes cuMemCreate refuse memory with special properties, whatever the attributes of the card say. */
void fake_plain_only(void);
/* The same only for memory to decompress into. */
void fake_no_decompression(void);
/* The driver has no room for a small block of its own. */
void fake_full_of_others(void);
/* The calling thread's own context is another one. */
extern _Thread_local bool fake_elsewhere;
/* Ends the driver. Nothing may be left allocated, and no context on the thread's stack. */
void fake_end(void);

/* The n-th call from now (1: the next) of those in `mask` (1 << FAKE_...) fails, and so do the `more` after
 * it. */
void fake_fail(unsigned mask, uint64_t nth, uint64_t more);
/* Number of calls that were made to fail, and of all calls of a kind. */
uint64_t fake_failed(void);
uint64_t fake_count(enum fake_call call);

/* Bytes that exist, and bytes that are mapped. */
uint64_t fake_physical(void);
uint64_t fake_mapped(void);
/* Is all of it mapped with access? */
bool fake_usable(uint64_t start, uint64_t bytes);

/* The library's clock stands: it waits for other threads as long as they need. */
extern atomic_bool fake_clock_stands;

/* Submits work on a block to a stream (0 .. FAKE_STREAMS - 1). `block` names the block: work of one
 * block may overlap in time with that of another on the same bytes only in one stream. With 0 bytes it
 * touches nothing, but still takes its time. */
void fake_work(unsigned stream, uint64_t start, uint64_t bytes, uint64_t block);
/* Ends the oldest work of a stream. Returns false if there is none. */
bool fake_progress(unsigned stream);
/* How much work of a stream has not ended. */
uint64_t fake_backlog(unsigned stream);
/* Does unfinished work touch these bytes? */
bool fake_pending(uint64_t start, uint64_t bytes);
/* The same, except for work that all later work is ordered behind. */
bool fake_in_the_way(uint64_t start, uint64_t bytes);
/* A call that the driver refuses, or that destroys a capture, while one is open, ends the test: context
 * events and waits. Events, and frees of the driver's own memory, are waited for by a thread that has relaxed
 * itself. */
void fake_set_capturing(bool capturing);
/* cuCtxSynchronize and cuEventSynchronize call this first, for tests that want to do something meanwhile. */
extern void (*fake_on_synchronize)(void);

/* Runs a function in a process of its own: the fence's state belongs to the process. True if it came back. */
bool fake_child(void (*run)(void));

/* A small random number generator: the same seed gives the same test. */
struct fake_random {
    uint64_t state;
};
uint64_t fake_random(struct fake_random *random);
/* A number below `limit`. */
uint64_t fake_below(struct fake_random *random, uint64_t limit);
/* A number from an environment variable. */
uint64_t fake_number(const char *variable, uint64_t standard);

#endif
