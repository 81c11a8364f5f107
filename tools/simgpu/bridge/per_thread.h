/* per_thread: the _ptsz and _ptds entry points differ from the others only in what the NULL stream means. */
#ifndef SIMGPU_PER_THREAD_H
#define SIMGPU_PER_THREAD_H

#include "../engine/abi.h"

static inline CUstream per_thread(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

#endif
