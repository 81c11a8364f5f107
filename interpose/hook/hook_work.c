/* Hooks on work: each reports the stream that it uses, and calls the driver. */
#include "interpose/hook/hooks.h"
#include "interpose/hook/memops.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "interpose/pool/streams.h"

/* For work whose streams are not among the parameters. */
static uintptr_t every_stream(void)
{
    streams_distrust();
    return 1;
}

#define WORK(symbol, stream, parameters, arguments)                                                          \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        return STREAMS_SUBMIT(stream, driver.symbol arguments);                                              \
    }
#define SYNC_WORK(symbol, stream, parameters, arguments)                                                     \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        const uintptr_t key_ = stream;                                                                       \
        return memops_finish(STREAMS_SUBMIT(key_, driver.symbol arguments), key_);                           \
    }
#define AWAIT_WORK(symbol, stream, parameters, arguments)                                                    \
    CUresult symbol parameters                                                                               \
    {                                                                                                        \
        pools_before_flag();                                                                                 \
        return STREAMS_SUBMIT(stream, driver.symbol arguments);                                              \
    }
#include "interpose/driver/work.def"
#undef AWAIT_WORK
#undef SYNC_WORK
#undef WORK

/* Announces a capture before the driver's call, so that no context event of ours falls in between. */
#define BEGIN(suffix, stream, call)                                                                          \
    ({                                                                                                       \
        const uintptr_t key_ = streams_key##suffix(stream);                                                  \
        CUcontext context_ = NULL;                                                                           \
        driver.cuStreamGetCtx##suffix(stream, &context_);                                                    \
        capture_begin(key_, streams_thread_key(), context_);                                                 \
        CUresult result_ = STREAMS_SUBMIT(key_, call);                                                       \
        if (result_ != CUDA_SUCCESS)                                                                         \
            capture_end(key_, streams_thread_key());                                                         \
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
        /* An error also ends an invalidated capture, but not from the wrong thread or a second caller. */   \
        if (result == CUDA_SUCCESS ||                                                                        \
            (result != CUDA_ERROR_ILLEGAL_STATE && before != CU_STREAM_CAPTURE_STATUS_NONE &&                \
             driver.cuStreamIsCapturing##suffix(stream, &after) == CUDA_SUCCESS &&                           \
             after == CU_STREAM_CAPTURE_STATUS_NONE))                                                        \
            capture_end(streams_key##suffix(stream), streams_thread_key());                                  \
        return result;                                                                                       \
    }

CAPTURE_HOOKS()
CAPTURE_HOOKS(_ptsz)

/* Destroys a stream. If it is capturing, the capture that it began ends with it. */
#define DESTROY(stream, call)                                                                                \
    ({                                                                                                       \
        CUstreamCaptureStatus status_ = CU_STREAM_CAPTURE_STATUS_NONE;                                       \
        streams_end(stream);                                                                                 \
        if (capture_any())                                                                                   \
            driver.cuStreamIsCapturing(stream, &status_);                                                    \
        CUresult result_ = (call);                                                                           \
        if (result_ == CUDA_SUCCESS && status_ != CU_STREAM_CAPTURE_STATUS_NONE)                             \
            capture_end(streams_key(stream), streams_thread_key());                                          \
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
