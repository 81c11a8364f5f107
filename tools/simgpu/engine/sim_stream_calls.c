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
    CUresult result;

    if (!out || (flags & ~(unsigned int)CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock_take();
    result = sim_context_current_itself(&context);
    if (result == CUDA_SUCCESS)
        result = sim_stream_create_in(out, context, flags, priority);
    sim_lock_drop();
    return result;
}

CUresult sim_stream_destroy(CUstream handle)
{
    struct CUstream_st *stream;
    CUresult result;

    sim_lock_take();
    if (!sim_object_is(handle, OBJECT_STREAM)) /* default streams are no objects of the program */
        result = CUDA_ERROR_INVALID_HANDLE;
    else
        result = sim_stream_find(handle, &stream);
    if (result == CUDA_SUCCESS)
        sim_stream_end(stream);
    sim_lock_drop();
    return result;
}

/* Finds a stream to query or to wait for, and its pending work, if captures allow that. A query of any stream
 * or event invalidates a capture that forbids unsafe calls (measured). Lock held. */
static CUresult find_to_ask(CUstream handle, struct CUstream_st **out, struct sim_ops *pending)
{
    CUresult result = sim_stream_find(handle, out);

    if (result == CUDA_SUCCESS)
        result = sim_capture_check_stream(*out);
    if (result == CUDA_SUCCESS)
        result = sim_capture_check_unsafe();
    if (result == CUDA_SUCCESS && !sim_stream_pending(*out, pending))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

CUresult sim_stream_synchronize(CUstream handle)
{
    struct CUstream_st *stream;
    struct sim_ops pending;
    CUresult result;

    sim_lock_take();
    result = find_to_ask(handle, &stream, &pending);
    if (result == CUDA_SUCCESS) {
        const uint64_t settled = stream->legacy ? 0 : stream->id; /* the stream may be gone after the wait */

        sim_ops_wait(&pending);
        sim_ops_clear(&pending);
        sim_pool_settle_all(settled);
    }
    sim_lock_drop();
    return result;
}

CUresult sim_stream_query(CUstream handle)
{
    struct CUstream_st *stream;
    struct sim_ops pending;
    CUresult result;

    sim_lock_take();
    result = find_to_ask(handle, &stream, &pending);
    if (result == CUDA_SUCCESS) {
        result = sim_ops_done(&pending) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
        sim_ops_clear(&pending);
    }
    sim_lock_drop();
    return result;
}

/* Copies the fields of a stream that do not change. */
static CUresult look(CUstream handle, struct CUstream_st *out)
{
    struct CUstream_st *stream;
    CUresult result;

    sim_lock_take();
    result = sim_stream_find(handle, &stream);
    if (result == CUDA_SUCCESS) {
        out->context = stream->context;
        out->green = stream->green;
        out->flags = stream->flags;
        out->priority = stream->priority;
        out->id = stream->id;
    }
    sim_lock_drop();
    return result;
}

CUresult sim_stream_check(CUstream handle)
{
    struct CUstream_st seen;

    return look(handle, &seen);
}

CUresult sim_stream_get_priority(CUstream handle, int *out)
{
    struct CUstream_st seen;
    CUresult result = out ? look(handle, &seen) : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS)
        *out = seen.priority;
    return result;
}

CUresult sim_stream_get_flags(CUstream handle, unsigned int *out)
{
    struct CUstream_st seen;
    CUresult result = out ? look(handle, &seen) : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS)
        *out = seen.flags;
    return result;
}

CUresult sim_stream_get_id(CUstream handle, unsigned long long *out)
{
    struct CUstream_st seen;
    CUresult result = out ? look(handle, &seen) : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS)
        *out = seen.id;
    return result;
}

CUresult sim_stream_get_context(CUstream handle, CUcontext *out)
{
    struct CUstream_st seen;
    CUresult result = out ? look(handle, &seen) : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS)
        *out = seen.green ? seen.green : seen.context;
    return result;
}

CUresult sim_stream_get_contexts(CUstream handle, CUcontext *out, CUgreenCtx *green)
{
    struct CUstream_st seen;
    CUresult result = out ? look(handle, &seen) : CUDA_ERROR_INVALID_VALUE;

    if (result != CUDA_SUCCESS)
        return result;
    *out = seen.context;
    if (green)
        *green = seen.green ? seen.green->green : NULL;
    return CUDA_SUCCESS;
}

CUresult sim_stream_get_device(CUstream handle, CUdevice *out)
{
    struct CUstream_st seen;
    CUresult result = out ? look(handle, &seen) : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS)
        *out = seen.context->device;
    return result;
}

CUresult sim_stream_put(CUstream handle, struct sim_work *work)
{
    struct CUstream_st *stream;
    CUresult result;

    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_lock_take();
    result = sim_stream_find(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = sim_stream_submit(stream, work, false);
    else
        sim_work_delete(work);
    sim_lock_drop();
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
