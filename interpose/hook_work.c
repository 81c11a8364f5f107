/* The hooks on work: each reports the stream it goes to, and jumps on. */
#include "capture.h"
#include "fence.h"
#include "hooks.h"
#include "memops.h"
#include "pools.h"

/* For work whose streams are not in the parameters. */
static uintptr_t fence_every_stream(void)
{
    fence_trust_nothing();
    return 1;
}

#define WORK(symbol, stream, parameters, arguments)                                                          \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        return FENCE_SUBMIT(stream, driver.symbol arguments);                                                \
    }
#define SYNC_WORK(symbol, stream, parameters, arguments)                                                     \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        const uintptr_t key_ = stream;                                                                       \
        return memops_finish(FENCE_SUBMIT(key_, driver.symbol arguments), key_);                             \
    }
#define AWAIT_WORK(symbol, stream, parameters, arguments)                                                    \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        pools_before_await();                                                                                \
        return FENCE_SUBMIT(stream, driver.symbol arguments);                                                \
    }
#include "work.def"
#undef AWAIT_WORK
#undef SYNC_WORK
#undef WORK

/* A capture makes a stream do work later, and forbids much meanwhile: other streams must be done with what is
 * reused, and nobody may put events into the context. */
#define BEGIN(suffix, stream, call)                                                                          \
    ({                                                                                                       \
        const uintptr_t key_ = fence_stream##suffix(stream);                                                 \
        CUcontext context_ = NULL;                                                                           \
        driver.cuStreamGetCtx##suffix(stream, &context_); /* a stream that captures is left alone */         \
        const bool guest_ = fence_work(key_);                                                                \
        fence_capture_begins(key_, context_); /* so that no event of ours slips in */                        \
        CUresult result_ = (call);                                                                           \
        if (guest_)                                                                                          \
            fence_worked();                                                                                  \
        if (result_ != CUDA_SUCCESS)                                                                         \
            fence_capture_ended(key_);                                                                       \
        result_;                                                                                             \
    })

#define CAPTURE_HOOKS(suffix)                                                                                \
    CUresult cuStreamBeginCapture##suffix(CUstream stream)                                                   \
    {                                                                                                        \
        return BEGIN(suffix, stream, driver.cuStreamBeginCapture##suffix(stream));                           \
    }                                                                                                        \
                                                                                                             \
    CUresult cuStreamBeginCapture_v2##suffix(CUstream stream, CUstreamCaptureMode mode)                      \
    {                                                                                                        \
        return BEGIN(suffix, stream, driver.cuStreamBeginCapture_v2##suffix(stream, mode));                  \
    }                                                                                                        \
                                                                                                             \
    CUresult cuStreamBeginCaptureToGraph##suffix(                                                            \
        CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges,       \
        size_t count, CUstreamCaptureMode mode)                                                              \
    {                                                                                                        \
        return BEGIN(                                                                                        \
            suffix, stream,                                                                                  \
            driver.cuStreamBeginCaptureToGraph##suffix(stream, graph, dependencies, edges, count, mode));    \
    }                                                                                                        \
                                                                                                             \
    CUresult cuStreamEndCapture##suffix(CUstream stream, CUgraph *graph)                                     \
    {                                                                                                        \
        CUstreamCaptureStatus before = CU_STREAM_CAPTURE_STATUS_NONE, after = CU_STREAM_CAPTURE_STATUS_NONE; \
                                                                                                             \
        driver.cuStreamIsCapturing##suffix(stream, &before);                                                 \
        CUresult result = driver.cuStreamEndCapture##suffix(stream, graph);                                  \
        /* It also ends when it has been made invalid, and not when the wrong thread asks or a second. */    \
        if (result == CUDA_SUCCESS ||                                                                        \
            (result != CUDA_ERROR_ILLEGAL_STATE && before != CU_STREAM_CAPTURE_STATUS_NONE &&                \
             driver.cuStreamIsCapturing##suffix(stream, &after) == CUDA_SUCCESS &&                           \
             after == CU_STREAM_CAPTURE_STATUS_NONE))                                                        \
            fence_capture_ended(fence_stream##suffix(stream));                                               \
        return result;                                                                                       \
    }

CAPTURE_HOOKS()
CAPTURE_HOOKS(_ptsz)

/* A stream that captures when it is destroyed takes a capture that it has begun with it. */
#define DESTROY(stream, call)                                                                                \
    ({                                                                                                       \
        CUstreamCaptureStatus status_ = CU_STREAM_CAPTURE_STATUS_NONE;                                       \
        fence_stream_ends(stream);                                                                           \
        if (capture_any())                                                                                   \
            driver.cuStreamIsCapturing(stream, &status_);                                                    \
        CUresult result_ = (call);                                                                           \
        if (result_ == CUDA_SUCCESS && status_ != CU_STREAM_CAPTURE_STATUS_NONE)                             \
            fence_capture_ended(fence_stream(stream));                                                       \
        result_;                                                                                             \
    })

CUresult cuStreamDestroy(CUstream stream)
{
    return DESTROY(stream, driver.cuStreamDestroy(stream));
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    return DESTROY(stream, driver.cuStreamDestroy_v2(stream));
}
