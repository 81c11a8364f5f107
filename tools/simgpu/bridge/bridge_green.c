/* bridge_green: entry points for green contexts. Only checks arguments; see engine/sim_green.h. */
#include "tools/simgpu/engine/sim_green.h"

#include "tools/simgpu/bridge/bridge_call.h"

#include "tools/simgpu/engine/sim_event.h"

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    return CALL(cuDeviceGetDevResource, sim_green_device_resource(resource, device, type));
}

CUresult cuCtxGetDevResource(CUcontext context, CUdevResource *resource, CUdevResourceType type)
{
    return CALL(cuCtxGetDevResource, sim_green_context_resource(resource, context, type));
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *resource, CUdevResourceType type)
{
    return CALL(cuGreenCtxGetDevResource, sim_green_resource(resource, green, type));
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *out, unsigned int *groups, const CUdevResource *input,
                                     CUdevResource *remaining, unsigned int flags, unsigned int least)
{
    return CALL(cuDevSmResourceSplitByCount, sim_green_split(out, groups, input, remaining, flags, least));
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *out, CUdevResource *resources, unsigned int count)
{
    return CALL(cuDevResourceGenerateDesc, sim_green_describe(out, resources, count));
}

CUresult cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc description, CUdevice device, unsigned int flags)
{
    return CALL(cuGreenCtxCreate, sim_green_create(out, description, device, flags));
}

SINGLE(cuGreenCtxDestroy, sim_green_destroy(green), CUgreenCtx green)
SINGLE(cuCtxFromGreenCtx, sim_green_context(out, green), CUcontext *out, CUgreenCtx green)
SINGLE(cuGreenCtxGetId, sim_green_id(green, out), CUgreenCtx green, unsigned long long *out)

CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx green, unsigned int flags, int priority)
{
    return CALL(cuGreenCtxStreamCreate, sim_green_stream_create(out, green, flags, priority));
}

static CUresult record(CUgreenCtx green, CUevent event)
{
    CUcontext context;
    CUresult result = sim_green_context(&context, green);

    return result ? result : sim_event_record_context(context, event);
}

SINGLE(cuGreenCtxRecordEvent, record(green, event), CUgreenCtx green, CUevent event)

static CUresult wait_event(CUgreenCtx green, CUevent event)
{
    CUcontext context;
    CUresult result = sim_green_context(&context, green);

    return result ? result : sim_event_wait_context(context, event);
}

SINGLE(cuGreenCtxWaitEvent, wait_event(green, event), CUgreenCtx green, CUevent event)
