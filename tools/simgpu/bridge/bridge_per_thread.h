/* bridge_per_thread: the _ptsz and _ptds entry points differ from the others only in what the NULL stream
 * means.
 *
 * PAIR(symbol, (parameters), work) defines symbol and symbol_ptsz; a parameter must be `CUstream stream`, and
 * work is an expression over the parameters. PAIR_DS(symbol, (parameters), work) is for calls without a
 * stream parameter: symbol and symbol_ptds, where work uses `stream`, the default stream of the two.
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
