/* bridge_per_thread: defines the _ptsz and _ptds entry points, which differ from the others only in the
 * meaning of the NULL stream.
 *
 * PAIR(symbol, (parameters), work) defines symbol and symbol_ptsz; a parameter must be `CUstream stream`, and
 * work is an expression over the parameters. PAIR_DS(symbol, (parameters), work) is for calls without a
 * stream parameter: it defines symbol and symbol_ptds, and `stream` in work is the default stream of each.
 */
#ifndef SIMGPU_PER_THREAD_H
#define SIMGPU_PER_THREAD_H

#include "tools/simgpu/bridge/bridge_call.h"

static inline CUstream sim_per_thread(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

#define PAIR(symbol, parameters, work)                                                                       \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        return CALL(symbol, work);                                                                           \
    }                                                                                                        \
    CUresult symbol##_ptsz parameters                                                                        \
    {                                                                                                        \
        stream = sim_per_thread(stream);                                                                     \
        return CALL(symbol##_ptsz, work);                                                                    \
    }

#define PAIR_DS(symbol, parameters, work)                                                                    \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        CUstream stream = NULL;                                                                              \
        return CALL(symbol, work);                                                                           \
    }                                                                                                        \
    CUresult symbol##_ptds parameters                                                                        \
    {                                                                                                        \
        CUstream stream = CU_STREAM_PER_THREAD;                                                              \
        return CALL(symbol##_ptds, work);                                                                    \
    }

#endif
