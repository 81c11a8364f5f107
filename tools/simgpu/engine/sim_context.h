/* sim_context: which contexts there are, and which one is current to a thread.
 *
 * What cuCtxFromGreenCtx gives is a context of its own only for streams and for what waits for them; in all
 * else the primary context stands for it (sim_green.h).
 *
 * A context's structure is never freed: a thread may still hold it as current when another one has destroyed
 * it, and then every call answers CONTEXT_IS_DESTROYED. All state is guarded by the engine's lock.
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
    bool ending; /* its end waits for its work; it must not be started again meanwhile */
    bool primary;
    struct CUgreenCtx_st *green; /* whose context this is, or NULL */
    struct CUctx_st *base;       /* of a green one: the primary context that has its memory; else NULL */
    unsigned int flags;
    unsigned int retained; /* primary only */
    unsigned int attached; /* cuCtxAttach; never the primary one */
    bool peers[CONTEXT_PEERS];
    size_t limits[CU_LIMIT_MAX];
    uint64_t local_bytes, local_charged; /* sim_local.h: of a thread, and what the card was charged for it */
    CUfunc_cache cache_config;
    struct CUstream_st *legacy; /* the NULL stream */
    struct sim_ops *barrier;    /* what streams that are made later wait for too (cuCtxWaitEvent), or NULL */
    /* All of them, also the legacy one and those that drain after their destruction. */
    struct sim_link streams;
    struct sim_link blocks, slabs;   /* memory: sim_alloc.h */
    struct sim_link arrays, modules; /* sim_array.h, sim_kernel.h */
    struct sim_link events;
    struct sim_link all; /* every context of the process, dead or alive */
};

/* With the lock held: the context current to this thread, or why there is none. For a green one that is its
 * primary context, where memory, events and modules are. */
CUresult sim_context_current(struct CUctx_st **out);
CUresult sim_context_current_itself(struct CUctx_st **out); /* a green one, if that is current */
/* The primary context of a green one, or itself. */
struct CUctx_st *sim_context_base(struct CUctx_st *context);
bool sim_context_is_valid(CUcontext context);  /* known and alive; lock held */
void sim_context_must_stay(CUcontext context); /* ends the program if it is just being destroyed; lock held */
struct sim_link *sim_context_all(void);        /* lock held */

/* With the lock held: the thread's stack of contexts. */
bool sim_context_has_room(void);
void sim_context_enter(struct CUctx_st *context);       /* becomes current; there is room */
void sim_context_leave(const struct CUctx_st *context); /* nothing, if it is not current */

/* The driver's calls; they take the lock. */
CUresult sim_context_push(CUcontext context);
CUresult sim_context_pop(CUcontext *out);
CUresult sim_context_set(CUcontext context);
CUresult sim_context_get(CUcontext *out);
CUresult sim_context_check_current(void); /* for calls that only need one */

#endif
