/* sim_capture_calls: the driver's entry points for stream capture. See sim_capture_calls.h. */
#include "tools/simgpu/engine/sim_capture_calls.h"

#include "tools/simgpu/engine/sim_capture.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"
#include "tools/simgpu/engine/sim_stream_work.h"

CUresult sim_capture_begin(CUstream handle, CUstreamCaptureMode mode, CUgraph into, const CUgraphNode *after,
                           size_t count)
{
    struct sim_nodes set = {(struct CUgraphNode_st **)(uintptr_t)after, count};
    struct CUstream_st *stream;
    CUresult result;
    size_t i;

    if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED || (count > 0 && !after))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock_take();
    result = sim_stream_find(handle, &stream);
    if (result == CUDA_SUCCESS && into && !sim_object_is(into, OBJECT_GRAPH))
        result = CUDA_ERROR_INVALID_VALUE;
    for (i = 0; result == CUDA_SUCCESS && i < count; i++)
        if (!sim_object_is(after[i], OBJECT_NODE) || after[i]->graph != into)
            result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_capture_start(stream, mode, into, &set);
    sim_lock_drop();
    return result;
}

CUresult sim_capture_end(CUstream handle, CUgraph *out)
{
    struct CUstream_st *stream;
    CUresult result;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    sim_lock_take();
    result = sim_stream_find(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = sim_capture_finish(stream, out);
    sim_lock_drop();
    return result;
}

CUresult sim_capture_status(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                            const CUgraphNode **after, size_t *count)
{
    struct CUstream_st *stream;
    CUresult result;

    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock_take();
    result = sim_stream_find(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = sim_capture_check_implicit(stream);
    if (result == CUDA_SUCCESS) {
        *status = sim_capture_look(stream, id, graph);
        if (after)
            *after = stream->frontier.items;
        if (count)
            *count = stream->frontier.count;
    }
    sim_lock_drop();
    return result;
}

CUresult sim_capture_update(CUstream handle, CUgraphNode *items, size_t count, unsigned int flags)
{
    struct CUstream_st *stream;
    CUgraph graph = NULL;
    CUresult result;
    size_t i;

    sim_lock_take();
    result = sim_stream_find(handle, &stream);
    if (result == CUDA_SUCCESS && sim_capture_look(stream, NULL, &graph) != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        result = CUDA_ERROR_ILLEGAL_STATE;
    if (result == CUDA_SUCCESS && count > 0 && !items)
        result = CUDA_ERROR_INVALID_VALUE;
    for (i = 0; result == CUDA_SUCCESS && i < count; i++)
        if (!sim_object_is(items[i], OBJECT_NODE) || items[i]->graph != graph)
            result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
            sim_nodes_clear(&stream->frontier);
        if (!sim_nodes_add_all(&stream->frontier, &(struct sim_nodes){items, count}))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_lock_drop();
    return result;
}
