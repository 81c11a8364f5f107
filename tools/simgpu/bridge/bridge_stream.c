/* bridge_stream: entry points for streams and events. Only checks arguments; see engine/sim_stream_calls.h,
 * sim_event.h.
 */
#include "tools/simgpu/engine/sim_stream_calls.h"

#include "tools/simgpu/bridge/bridge_call.h"
#include "tools/simgpu/bridge/bridge_per_thread.h"

#include "tools/simgpu/engine/sim_batch.h"
#include "tools/simgpu/engine/sim_event.h"

SINGLE(cuStreamCreate, sim_stream_create(out, flags, 0), CUstream *out, unsigned int flags)

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
    return CALL(cuStreamCreateWithPriority, sim_stream_create(out, flags, priority));
}

SINGLE(cuStreamDestroy_v2, sim_stream_destroy(stream), CUstream stream)

PAIR(cuStreamSynchronize, (CUstream stream), sim_stream_synchronize(stream))
PAIR(cuStreamQuery, (CUstream stream), sim_stream_query(stream))
PAIR(cuStreamGetPriority, (CUstream stream, int *out), sim_stream_get_priority(stream, out))
PAIR(cuStreamGetFlags, (CUstream stream, unsigned int *out), sim_stream_get_flags(stream, out))
PAIR(cuStreamGetId, (CUstream stream, unsigned long long *out), sim_stream_get_id(stream, out))
PAIR(cuStreamGetDevice, (CUstream stream, CUdevice *out), sim_stream_get_device(stream, out))
PAIR(cuStreamGetCtx, (CUstream stream, CUcontext *out), sim_stream_get_context(stream, out))

PAIR(cuStreamGetCtx_v2, (CUstream stream, CUcontext *out, CUgreenCtx *green),
     sim_stream_get_contexts(stream, out, green))

static CUresult green_of(CUstream stream, CUgreenCtx *green)
{
    CUcontext context;

    return green ? sim_stream_get_contexts(stream, &context, green) : CUDA_ERROR_INVALID_VALUE;
}

SINGLE(cuStreamGetGreenCtx, green_of(stream, green), CUstream stream, CUgreenCtx *green)

static CUresult wait_event(CUstream stream, CUevent event, unsigned int flags)
{
    return flags & ~(unsigned int)CU_EVENT_WAIT_EXTERNAL ? CUDA_ERROR_INVALID_VALUE
                                                         : sim_event_wait(stream, event);
}

PAIR(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags),
     wait_event(stream, event, flags))

static CUresult host_function(CUstream stream, CUhostFn function, void *data)
{
    struct sim_work *work;

    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    work = sim_work_new(WORK_HOST);
    if (work) {
        work->host.function = function;
        work->host.data = data;
    }
    return sim_stream_put(stream, work);
}

PAIR(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data),
     host_function(stream, function, data))

static CUresult add_callback(CUstream stream, CUstreamCallback function, void *data, unsigned int flags)
{
    struct sim_work *work;

    if (!function || flags)
        return CUDA_ERROR_INVALID_VALUE;
    work = sim_work_new(WORK_CALLBACK);
    if (work) {
        work->callback.function = function;
        work->callback.stream = stream;
        work->callback.data = data;
    }
    return sim_stream_put(stream, work);
}

PAIR(cuStreamAddCallback, (CUstream stream, CUstreamCallback function, void *data, unsigned int flags),
     add_callback(stream, function, data, flags))

static CUresult write_value(CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags,
                            bool wide)
{
    return sim_stream_put_value(stream, WORK_WRITE, &(struct sim_work_value){address, value, flags, wide});
}

static CUresult wait_value(CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags,
                           bool wide)
{
    return sim_stream_put_value(stream, WORK_AWAIT, &(struct sim_work_value){address, value, flags, wide});
}

PAIR(cuStreamWriteValue32_v2, (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),
     write_value(stream, address, value, flags, false))
PAIR(cuStreamWriteValue64_v2, (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags),
     write_value(stream, address, value, flags, true))
PAIR(cuStreamWaitValue32_v2, (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),
     wait_value(stream, address, value, flags, false))
PAIR(cuStreamWaitValue64_v2, (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags),
     wait_value(stream, address, value, flags, true))

PAIR(cuStreamBatchMemOp_v2,
     (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list, unsigned int flags),
     sim_batch_put(stream, list, count, flags))

static CUresult attach(CUstream stream, CUdeviceptr address, size_t length, unsigned int flags)
{
    (void)address, (void)length, (void)flags; /* a hint for managed memory */
    return sim_stream_check(stream);
}

PAIR(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr address, size_t length, unsigned int flags),
     attach(stream, address, length, flags))

/* ---- events ---- */

SINGLE(cuEventCreate, sim_event_create(out, flags), CUevent *out, unsigned int flags)
SINGLE(cuEventDestroy_v2, sim_event_destroy(event), CUevent event)

PAIR(cuEventRecord, (CUevent event, CUstream stream), sim_event_record(event, stream))

static CUresult record_with_flags(CUevent event, CUstream stream, unsigned int flags)
{
    return flags & ~(unsigned int)CU_EVENT_RECORD_EXTERNAL ? CUDA_ERROR_INVALID_VALUE
                                                           : sim_event_record(event, stream);
}

PAIR(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags),
     record_with_flags(event, stream, flags))

SINGLE(cuIpcGetEventHandle, sim_event_export(out, event), CUipcEventHandle *out, CUevent event)
SINGLE(cuIpcOpenEventHandle, sim_event_open(out, handle), CUevent *out, CUipcEventHandle handle)
SINGLE(cuEventQuery, sim_event_query(event), CUevent event)
SINGLE(cuEventSynchronize, sim_event_synchronize(event), CUevent event)

CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to)
{
    return CALL(cuEventElapsedTime, sim_event_elapsed(milliseconds, from, to));
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent from, CUevent to)
{
    return CALL(cuEventElapsedTime_v2, sim_event_elapsed(milliseconds, from, to));
}
