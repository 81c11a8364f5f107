/* Hooks on work: each reports the stream that it uses, and calls the driver. */
#include "interpose/base/lock.h"
#include "interpose/hook/hooks.h"
#include "interpose/hook/memops.h"
#include "interpose/hook/submit.h"
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

/* Announces a capture before the driver's call, so that no context event of ours falls in between. If the
 * thread were cancelled in the call, a capture would count as open for ever. */
#define BEGIN_CAPTURE(stream, call)                                                                          \
    ({                                                                                                       \
        const uintptr_t key_ = NAMED(streams_key)(stream);                                                   \
        CUcontext context_ = NULL;                                                                           \
        lock_disable_cancel();                                                                               \
        driver.NAMED(cuStreamGetCtx)(stream, &context_);                                                     \
        capture_begin(key_, streams_thread_key(), context_);                                                 \
        CUresult result_ = STREAMS_SUBMIT(key_, call);                                                       \
        if (result_ != CUDA_SUCCESS)                                                                         \
            capture_end(key_, streams_thread_key());                                                         \
        lock_restore_cancel();                                                                               \
        result_;                                                                                             \
    })

#define SUFFIX
#include "interpose/hook/hook_work_capture.inc"
#undef SUFFIX
#define SUFFIX _ptsz
#include "interpose/hook/hook_work_capture.inc"
#undef SUFFIX

/* Destroys a stream. If it is capturing, the capture that it began ends with it. */
#define DESTROY(stream, call)                                                                                \
    ({                                                                                                       \
        CUstreamCaptureStatus status_ = CU_STREAM_CAPTURE_STATUS_NONE;                                       \
        lock_disable_cancel();                                                                               \
        streams_end(stream);                                                                                 \
        if (capture_any())                                                                                   \
            driver.cuStreamIsCapturing(stream, &status_);                                                    \
        CUresult result_ = (call);                                                                           \
        if (result_ == CUDA_SUCCESS && status_ != CU_STREAM_CAPTURE_STATUS_NONE)                             \
            capture_end(streams_key(stream), streams_thread_key());                                          \
        lock_restore_cancel();                                                                               \
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
