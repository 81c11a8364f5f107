/* sim_stream_calls: the driver's entry points for streams. See sim_stream_calls.h. */
#include "tools/simgpu/engine/sim_stream_calls.h"

#include "tools/simgpu/engine/sim_block.h"
#include "tools/simgpu/engine/sim_capture.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"
#include "tools/simgpu/engine/sim_pool.h"
#include "tools/simgpu/engine/sim_stream.h"
#include "tools/simgpu/engine/sim_stream_work.h"

CUresult sim_stream_create_in(CUstream *out, struct CUctx_st *context, unsigned int flags, int priority)
{
    struct CUstream_st *stream;

    if (priority > 0)
        priority = 0;
    if (priority < STREAM_GREATEST_PRIORITY)
        priority = STREAM_GREATEST_PRIORITY;
    stream = sim_stream_new(context, flags, priority);
    if (stream && sim_object_add(stream, OBJECT_STREAM)) {
        *out = stream;
        return CUDA_SUCCESS;
    }
    if (stream)
        sim_stream_end(stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_stream_create(CUstream *out, unsigned int flags, int priority)
{
    struct CUctx_st *context;

    if (!out || (flags & ~(unsigned int)CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_context_current_itself(&context));
    return sim_stream_create_in(out, context, flags, priority);
}

CUresult sim_stream_destroy(CUstream handle)
{
    struct CUstream_st *stream;

    SIM_LOCKED();
    if (!sim_object_is(handle, OBJECT_STREAM)) /* default streams are no objects of the program */
        return CUDA_ERROR_INVALID_HANDLE;
    SIM_TRY(sim_stream_find(handle, &stream));
    sim_stream_end(stream);
    return CUDA_SUCCESS;
}

/* Finds a stream to query or to wait for, and its pending work, if captures allow that. A query of any stream
 * or event invalidates a capture that forbids unsafe calls (measured). Lock held. */
static CUresult find_to_ask(CUstream handle, struct CUstream_st **out, struct sim_ops *pending)
{
    SIM_TRY(sim_stream_find(handle, out));
    SIM_TRY(sim_capture_check_stream(*out));
    SIM_TRY(sim_capture_check_unsafe());
    return sim_stream_pending(*out, pending) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_stream_synchronize(CUstream handle)
{
    struct CUstream_st *stream;
    struct sim_ops pending;
    uint64_t settled;

    SIM_LOCKED();
    SIM_TRY(find_to_ask(handle, &stream, &pending));
    settled = stream->legacy ? 0 : stream->id; /* the stream may be gone after the wait */
    sim_ops_wait(&pending);
    sim_ops_clear(&pending);
    sim_pool_settle_all(settled);
    return CUDA_SUCCESS;
}

CUresult sim_stream_query(CUstream handle)
{
    struct CUstream_st *stream;
    struct sim_ops pending;
    bool done;

    SIM_LOCKED();
    SIM_TRY(find_to_ask(handle, &stream, &pending));
    done = sim_ops_done(&pending);
    sim_ops_clear(&pending);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult sim_stream_check(CUstream handle)
{
    struct CUstream_st *stream;

    SIM_LOCKED();
    return sim_stream_find(handle, &stream);
}

CUresult sim_stream_get_priority(CUstream handle, int *out)
{
    struct CUstream_st *stream;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    *out = stream->priority;
    return CUDA_SUCCESS;
}

CUresult sim_stream_get_flags(CUstream handle, unsigned int *out)
{
    struct CUstream_st *stream;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    *out = stream->flags;
    return CUDA_SUCCESS;
}

CUresult sim_stream_get_id(CUstream handle, unsigned long long *out)
{
    struct CUstream_st *stream;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    *out = stream->id;
    return CUDA_SUCCESS;
}

CUresult sim_stream_get_context(CUstream handle, CUcontext *out)
{
    struct CUstream_st *stream;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    *out = stream->green ? stream->green : stream->context;
    return CUDA_SUCCESS;
}

CUresult sim_stream_get_contexts(CUstream handle, CUcontext *out, CUgreenCtx *green)
{
    struct CUstream_st *stream;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    *out = stream->context;
    if (green)
        *green = stream->green ? stream->green->green : NULL;
    return CUDA_SUCCESS;
}

CUresult sim_stream_get_device(CUstream handle, CUdevice *out)
{
    struct CUstream_st *stream;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    *out = stream->context->device;
    return CUDA_SUCCESS;
}

CUresult sim_stream_put(CUstream handle, struct sim_work *work)
{
    struct CUstream_st *stream;
    CUresult result;

    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    SIM_LOCKED();
    result = sim_stream_find(handle, &stream);
    if (result == CUDA_SUCCESS)
        return sim_stream_submit(stream, work, false);
    sim_work_delete(work);
    return result;
}

CUresult sim_stream_put_value(CUstream handle, enum sim_work_kind kind, const struct sim_work_value *value)
{
    size_t width = value->wide ? sizeof(uint64_t) : sizeof(uint32_t);
    struct sim_work *work;
    bool known;

    sim_lock_take();
    known = value->address % width == 0 && sim_block_covers(value->address, width);
    sim_lock_drop();
    if (!known)
        return CUDA_ERROR_INVALID_VALUE;
    work = sim_work_new(kind);
    if (work)
        work->value = *value;
    return sim_stream_put(handle, work);
}
