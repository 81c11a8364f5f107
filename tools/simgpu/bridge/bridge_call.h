/* bridge_call: what every entry point does before and after its work: count the call, apply the fault script,
 * and refuse the call if the driver is not ready.
 *
 * Most entry points are one row: SINGLE(cuEventQuery, sim_event_query(event), CUevent event).
 */
#ifndef SIMGPU_CALL_H
#define SIMGPU_CALL_H

#include "tools/simgpu/engine/sim_abi.h"
#include "tools/simgpu/engine/sim_fault.h"

#include <stdbool.h>

/* One number for each exported entry point. */
enum sim_entry {
#define ENTRY(base, symbol, version)                                ENTRY_##symbol,
#define ENTRY_PT(base, symbol, version, per_thread, thread_version) ENTRY_##symbol, ENTRY_##per_thread,
#define ALIAS(base, symbol, version)
#include "tools/simgpu/bridge/entries.def"
#undef ENTRY
#undef ENTRY_PT
#undef ALIAS
    ENTRY_COUNT
};

/* The only entry point that cuda.h does not declare: see entries.def. */
CUresult cuSimgpuUnlisted(void);

struct sim_call {
    CUresult refused; /* if not CUDA_SUCCESS: return this and do nothing */
    bool kill_after;
};

/* Begins a call of an entry point. With anytime it is allowed before cuInit and after a fork. */
struct sim_call sim_call_enter(enum sim_entry entry, bool anytime);
/* Ends a call that was not refused. Returns its result. */
CUresult sim_call_leave(const struct sim_call *call, CUresult result);

bool sim_call_script_is_bad(void); /* GPUCAP_SIM_FAULT does not parse: cuInit has to fail */

#define CALL_WHEN(symbol, anytime, work)                                                                     \
    ({                                                                                                       \
        struct sim_call call_ = sim_call_enter(ENTRY_##symbol, anytime);                                     \
        call_.refused != CUDA_SUCCESS ? call_.refused : sim_call_leave(&call_, (work));                      \
    })
#define CALL(symbol, work)         CALL_WHEN(symbol, false, work)
#define CALL_ANYTIME(symbol, work) CALL_WHEN(symbol, true, work)

/* Defines an entry point with the parameters (...). Its work is an expression over them. For what fits into
 * one line. */
#define SINGLE(symbol, work, ...)                                                                            \
    CUresult symbol(__VA_ARGS__)                                                                             \
    {                                                                                                        \
        return CALL(symbol, work);                                                                           \
    }

#endif
