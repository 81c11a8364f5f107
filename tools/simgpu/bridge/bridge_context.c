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

SINGLE(cuCtxDestroy_v2, sim_context_destroy(context), CUcontext context)
SINGLE(cuCtxAttach, sim_context_attach(out, flags), CUcontext *out, unsigned int flags)
SINGLE(cuCtxDetach, sim_context_detach(context), CUcontext context)
SINGLE(cuCtxPushCurrent_v2, sim_context_push(context), CUcontext context)
SINGLE(cuCtxPopCurrent_v2, sim_context_pop(out), CUcontext *out)
SINGLE(cuCtxSetCurrent, sim_context_set(context), CUcontext context)
SINGLE(cuCtxGetCurrent, sim_context_get(out), CUcontext *out)
SINGLE(cuCtxGetDevice, sim_context_device(out, NULL), CUdevice *out)
SINGLE(cuCtxGetDevice_v2, sim_context_device(out, context), CUdevice *out, CUcontext context)
SINGLE(cuCtxGetId, sim_context_id(context, out), CUcontext context, unsigned long long *out)
SINGLE(cuCtxGetFlags, sim_context_get_flags(out), unsigned int *out)
SINGLE(cuCtxSetFlags, sim_context_set_flags(flags), unsigned int flags)
SINGLE(cuCtxSynchronize, sim_context_synchronize(NULL), void)
SINGLE(cuCtxSynchronize_v2, sim_context_synchronize(context), CUcontext context)
SINGLE(cuCtxGetLimit, sim_context_get_limit(out, limit), size_t *out, CUlimit limit)
SINGLE(cuCtxSetLimit, sim_context_set_limit(limit, value), CUlimit limit, size_t value)
SINGLE(cuCtxGetCacheConfig, sim_context_get_cache_config(out), CUfunc_cache *out)
SINGLE(cuCtxSetCacheConfig, sim_context_set_cache_config(config), CUfunc_cache config)
SINGLE(cuCtxGetApiVersion, sim_context_api_version(context, out), CUcontext context, unsigned int *out)

static CUresult priority_range(int *least, int *greatest)
{
    CUresult result = sim_context_check_current();

    if (result == CUDA_SUCCESS && least)
        *least = LEAST_PRIORITY;
    if (result == CUDA_SUCCESS && greatest)
        *greatest = GREATEST_PRIORITY;
    return result;
}

SINGLE(cuCtxGetStreamPriorityRange, priority_range(least, greatest), int *least, int *greatest)
SINGLE(cuCtxResetPersistingL2Cache, sim_context_check_current(), void)

static CUresult enable_peer(CUcontext peer, unsigned int flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : sim_context_enable_peer(peer);
}

SINGLE(cuCtxEnablePeerAccess, enable_peer(peer, flags), CUcontext peer, unsigned int flags)
SINGLE(cuCtxDisablePeerAccess, sim_context_disable_peer(peer), CUcontext peer)
SINGLE(cuCtxRecordEvent, sim_event_record_context(context, event), CUcontext context, CUevent event)
SINGLE(cuCtxWaitEvent, sim_event_wait_context(context, event), CUcontext context, CUevent event)
