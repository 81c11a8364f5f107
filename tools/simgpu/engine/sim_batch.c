/* batch: several writes and waits of values in memory. See batch.h. */
#include "tools/simgpu/engine/sim_batch.h"

#include "tools/simgpu/engine/sim_block.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_stream_calls.h"

#include <stdlib.h>

#define BATCH_MAX 256 /* as the driver has it */

/* False: there is no such operation. */
static bool read_step(const CUstreamBatchMemOpParams *from, struct work_step *step)
{
    switch (from->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        step->kind = WORK_AWAIT;
        step->value.wide = from->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
        step->value.address = from->waitValue.address;
        step->value.value = step->value.wide ? from->waitValue.value64 : from->waitValue.value;
        step->value.flags = from->waitValue.flags;
        return true;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        step->kind = WORK_WRITE;
        step->value.wide = from->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        step->value.address = from->writeValue.address;
        step->value.value = step->value.wide ? from->writeValue.value64 : from->writeValue.value;
        step->value.flags = from->writeValue.flags;
        return true;
    case CU_STREAM_MEM_OP_BARRIER:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        step->kind = WORK_NOTHING; /* every step is behind the one before */
        return true;
    default:
        return false;
    }
}

/* Lock held. */
static bool is_good(const struct work_step *step)
{
    const size_t width = step->value.wide ? sizeof(uint64_t) : sizeof(uint32_t);

    return step->kind == WORK_NOTHING ||
           (step->value.address % width == 0 && block_covers(step->value.address, width));
}

static CUresult read_steps(const CUstreamBatchMemOpParams *list, unsigned int count, struct work_step *steps)
{
    CUresult result = CUDA_SUCCESS;
    unsigned int i;

    lock_take();
    for (i = 0; i < count; i++)
        if (!read_step(&list[i], &steps[i]) || !is_good(&steps[i]))
            result = CUDA_ERROR_INVALID_VALUE;
    lock_drop();
    return result;
}

CUresult batch_work(const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int flags,
                    struct work **out)
{
    struct work *work;
    CUresult result;

    if (!list || count == 0 || count > BATCH_MAX || flags)
        return CUDA_ERROR_INVALID_VALUE;
    work = work_new(WORK_BATCH);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->steps = count;
    work->owned_size = count * sizeof(struct work_step);
    work->owned = calloc(count, sizeof(struct work_step));
    result = work->owned ? read_steps(list, count, work->owned) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        *out = work;
    else
        work_delete(work);
    return result;
}

CUresult batch_put(CUstream stream, const CUstreamBatchMemOpParams *list, unsigned int count,
                   unsigned int flags)
{
    struct work *work;
    const CUresult result = batch_work(list, count, flags, &work);

    return result == CUDA_SUCCESS ? stream_put(stream, work) : result;
}
