/* sim_context: the list of contexts, and which one is current to a thread.
 *
 * A context from cuCtxFromGreenCtx has only streams of its own, and waits for only those; for everything else
 * the primary context is used (sim_green.h).
 *
 * A context's structure is never freed: another thread may have it current when it is destroyed, and then
 * gets CONTEXT_IS_DESTROYED from every call. All state is guarded by the engine's lock.
 */
#ifndef SIMGPU_CONTEXT_H
#define SIMGPU_CONTEXT_H

#include "tools/simgpu/engine/sim_abi.h"
#include "tools/simgpu/engine/sim_list.h"

#include <stdbool.h>
#include <stdint.h>

#define CONTEXT_PEERS 16 /* CARD_MAX_DEVICES */

struct sim_ops;

struct CUctx_st {
    CUdevice device;
    uint64_t id;
    bool alive;
    bool ending; /* is being destroyed and waits for its work: must not be started again meanwhile */
    bool primary;
    struct CUgreenCtx_st *green; /* the green context that this was made from, or NULL */
    struct CUctx_st *base; /* of a green context: the primary context that holds its memory; else NULL */
    unsigned int flags;
    unsigned int retained; /* primary only */
    unsigned int attached; /* count of cuCtxAttach; 0 for a primary context */
    bool peers[CONTEXT_PEERS];
    size_t limits[CU_LIMIT_MAX];
    uint64_t local_bytes,
        local_charged; /* sim_local.h: bytes per thread; bytes charged to the card for them */
    CUfunc_cache cache_config;
    struct CUstream_st *legacy; /* the NULL stream */
    struct sim_ops *barrier;    /* what new streams wait for (cuCtxWaitEvent), or NULL */
    /* All streams, with the legacy stream and destroyed ones that still drain. */
    struct sim_link streams;
    struct sim_link blocks, slabs;   /* memory: sim_alloc.h */
    struct sim_link arrays, modules; /* sim_array.h, sim_kernel.h */
    struct sim_link events;
    struct sim_link all; /* in the list of all contexts of the process, destroyed ones too */
};

/* The caller holds the lock, up to the driver's calls. */

/* Finds the context current to this thread, or returns the error of having none. For a green context that is
 * its primary context, which holds memory, events and modules. */
CUresult sim_context_current(struct CUctx_st **out);
/* The same, but finds the green context itself. */
CUresult sim_context_current_itself(struct CUctx_st **out);
/* Returns the primary context of a green context, and any other context itself. */
struct CUctx_st *sim_context_base(struct CUctx_st *context);
/* Is it the handle of a context that is not destroyed? */
bool sim_context_is_valid(CUcontext context);
/* Aborts the program if the context is being destroyed: see sim_context.c. */
void sim_context_must_stay(CUcontext context);
struct sim_link *sim_context_all(void);

/* The thread's stack of contexts: can another one be pushed? Push it; pop it if it is the current one. */
bool sim_context_has_room(void);
void sim_context_enter(struct CUctx_st *context);
void sim_context_leave(const struct CUctx_st *context);

/* The driver's calls; they take the lock. */
CUresult sim_context_push(CUcontext context);
CUresult sim_context_pop(CUcontext *out);
CUresult sim_context_set(CUcontext context);
CUresult sim_context_get(CUcontext *out);
CUresult sim_context_check_current(void); /* for calls that need a context and do not use it */

#endif
