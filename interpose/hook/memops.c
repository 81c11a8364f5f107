/* memops: see memops.h. */
#include "interpose/hook/memops.h"

#include "interpose/pool/capture.h"
#include "interpose/pool/streams.h"

atomic_bool memops_synchronous;

CUresult memops_wait(CUresult result, uintptr_t stream)
{
    /* In a capture we cannot wait, and what the driver allowed was recorded, not executed. */
    if (result != CUDA_SUCCESS || capture_any())
        return result;
    return driver.cuStreamSynchronize(stream == streams_key(NULL) ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD);
}
