/* bridge_context: entry points for contexts. Only checks arguments and adapts older ABI versions; see
 * engine/sim_context_life.h.
 */
#include "tools/simgpu/engine/sim_context_life.h"

#include "tools/simgpu/bridge/bridge_call.h"

#include "tools/simgpu/engine/sim_event.h"

/* Of streams. A lower number is a higher priority. */
#define LEAST_PRIORITY    0
#define GREATEST_PRIORITY (-5)

CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device)
{
    return CALL(cuCtxCreate_v2, sim_context_create(out, flags, device));
}

static CUresult create_v3(CUcontext *out, const CUexecAffinityParam *params, int count, unsigned int flags,
                          CUdevice device)
{
    if (count != 0 || params)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return sim_context_create(out, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *params, int count, unsigned int flags,
                        CUdevice device)
{
    return CALL(cuCtxCreate_v3, create_v3(out, params, count, flags, device));
}

static CUresult create_v4(CUcontext *out, const CUctxCreateParams *params, unsigned int flags,
                          CUdevice device)
{
    if (params && (params->numExecAffinityParams != 0 || params->cigParams))
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return sim_context_create(out, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned int flags, CUdevice device)
{
    return CALL(cuCtxCreate_v4, create_v4(out, params, flags, device));
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    return CALL(cuCtxDestroy_v2, sim_context_destroy(context));
}

CUresult cuCtxAttach(CUcontext *out, unsigned int flags)
{
    return CALL(cuCtxAttach, sim_context_attach(out, flags));
}

CUresult cuCtxDetach(CUcontext context)
{
    return CALL(cuCtxDetach, sim_context_detach(context));
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    return CALL(cuCtxPushCurrent_v2, sim_context_push(context));
}

CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
    return CALL(cuCtxPopCurrent_v2, sim_context_pop(out));
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    return CALL(cuCtxSetCurrent, sim_context_set(context));
}

CUresult cuCtxGetCurrent(CUcontext *out)
{
    return CALL(cuCtxGetCurrent, sim_context_get(out));
}

CUresult cuCtxGetDevice(CUdevice *out)
{
    return CALL(cuCtxGetDevice, sim_context_device(out, NULL));
}

CUresult cuCtxGetDevice_v2(CUdevice *out, CUcontext context)
{
    return CALL(cuCtxGetDevice_v2, sim_context_device(out, context));
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *out)
{
    return CALL(cuCtxGetId, sim_context_id(context, out));
}

CUresult cuCtxGetFlags(unsigned int *out)
{
    return CALL(cuCtxGetFlags, sim_context_get_flags(out));
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    return CALL(cuCtxSetFlags, sim_context_set_flags(flags));
}

CUresult cuCtxSynchronize(void)
{
    return CALL(cuCtxSynchronize, sim_context_synchronize(NULL));
}

CUresult cuCtxSynchronize_v2(CUcontext context)
{
    return CALL(cuCtxSynchronize_v2, sim_context_synchronize(context));
}

CUresult cuCtxGetLimit(size_t *out, CUlimit limit)
{
    return CALL(cuCtxGetLimit, sim_context_get_limit(out, limit));
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    return CALL(cuCtxSetLimit, sim_context_set_limit(limit, value));
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *out)
{
    return CALL(cuCtxGetCacheConfig, sim_context_get_cache_config(out));
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    return CALL(cuCtxSetCacheConfig, sim_context_set_cache_config(config));
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *out)
{
    return CALL(cuCtxGetApiVersion, sim_context_api_version(context, out));
}

static CUresult priority_range(int *least, int *greatest)
{
    CUresult result = sim_context_check_current();

    if (result == CUDA_SUCCESS && least)
        *least = LEAST_PRIORITY;
    if (result == CUDA_SUCCESS && greatest)
        *greatest = GREATEST_PRIORITY;
    return result;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    return CALL(cuCtxGetStreamPriorityRange, priority_range(least, greatest));
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    return CALL(cuCtxResetPersistingL2Cache, sim_context_check_current());
}

static CUresult enable_peer(CUcontext peer, unsigned int flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : sim_context_enable_peer(peer);
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    return CALL(cuCtxEnablePeerAccess, enable_peer(peer, flags));
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    return CALL(cuCtxDisablePeerAccess, sim_context_disable_peer(peer));
}

CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
    return CALL(cuCtxRecordEvent, sim_event_record_context(context, event));
}

CUresult cuCtxWaitEvent(CUcontext context, CUevent event)
{
    return CALL(cuCtxWaitEvent, sim_event_wait_context(context, event));
}
