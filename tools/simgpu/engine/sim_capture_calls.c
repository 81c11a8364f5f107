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

    if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED || (count > 0 && !after))
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    if ((into && !sim_object_is(into, OBJECT_GRAPH)) || !sim_graph_valid_after(into, after, count))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_capture_start(stream, mode, into, &set);
}

CUresult sim_capture_end(CUstream handle, CUgraph *out)
{
    struct CUstream_st *stream;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    return sim_capture_finish(stream, out);
}

CUresult sim_capture_status(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                            const CUgraphNode **after, size_t *count)
{
    struct CUstream_st *stream;

    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    SIM_TRY(sim_capture_check_implicit(stream));
    *status = sim_capture_look(stream, id, graph);
    if (after)
        *after = stream->frontier.items;
    if (count)
        *count = stream->frontier.count;
    return CUDA_SUCCESS;
}

CUresult sim_capture_update(CUstream handle, CUgraphNode *items, size_t count, unsigned int flags)
{
    struct CUstream_st *stream;
    CUgraph graph = NULL;

    SIM_LOCKED();
    SIM_TRY(sim_stream_find(handle, &stream));
    if (sim_capture_look(stream, NULL, &graph) != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (!sim_graph_valid_after(graph, items, count))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        sim_nodes_clear(&stream->frontier);
    return sim_nodes_add_all(&stream->frontier, &(struct sim_nodes){items, count}) ? CUDA_SUCCESS
                                                                                   : CUDA_ERROR_OUT_OF_MEMORY;
}
