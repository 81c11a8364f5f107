/* sim_nccl_error: texts of error codes, and the last failure. See sim_nccl_error.h. */
#include "tools/simgpu/nccl/sim_nccl_error.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char reason[256];

ncclResult_t sim_nccl_fail(ncclResult_t result, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    vsnprintf(reason, sizeof(reason), format, values);
    va_end(values);
    return result;
}

ncclResult_t sim_nccl_cuda(cudaError_t error, const char *what)
{
    return error == cudaSuccess
               ? ncclSuccess
               : sim_nccl_fail(ncclUnhandledCudaError, "%s: %s", what, cudaGetErrorString(error));
}

/* The texts are NCCL's. */
const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
        return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
        return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
        return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
        return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    default:
        return "unknown result code";
    }
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return reason;
}

ncclResult_t ncclGetVersion(int *version)
{
    if (!version)
        return sim_nccl_fail(ncclInvalidArgument, "ncclGetVersion: NULL");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
