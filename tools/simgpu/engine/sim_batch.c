/* sim_batch: several writes of and waits for values in memory, as one piece of work. See sim_batch.h. */
#include "tools/simgpu/engine/sim_batch.h"

#include "tools/simgpu/engine/sim_block.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_stream_calls.h"

#include <stdlib.h>

#define BATCH_MAX 256 /* the driver's limit */

/* Translates one operation. Returns false for an unknown one. */
static bool read_step(const CUstreamBatchMemOpParams *from, struct sim_work_step *step)
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
        step->kind = WORK_NOTHING; /* a barrier adds nothing: steps run in order anyway */
        return true;
    default:
        return false;
    }
}

/* Is the address aligned and in memory of the program? Lock held. */
static bool is_good(const struct sim_work_step *step)
{
    const size_t width = step->value.wide ? sizeof(uint64_t) : sizeof(uint32_t);

    return step->kind == WORK_NOTHING ||
           (step->value.address % width == 0 && sim_block_covers(step->value.address, width));
}

static CUresult read_steps(const CUstreamBatchMemOpParams *list, unsigned int count,
                           struct sim_work_step *steps)
{
    unsigned int i;

    SIM_LOCKED();
    for (i = 0; i < count; i++)
        if (!read_step(&list[i], &steps[i]) || !is_good(&steps[i]))
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult sim_batch_work(const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int flags,
                        struct sim_work **out)
{
    struct sim_work *work;
    CUresult result;

    if (!list || count == 0 || count > BATCH_MAX || flags)
        return CUDA_ERROR_INVALID_VALUE;
    work = sim_work_new(WORK_BATCH);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->steps = count;
    work->owned_size = count * sizeof(struct sim_work_step);
    work->owned = calloc(count, sizeof(struct sim_work_step));
    result = work->owned ? read_steps(list, count, work->owned) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        *out = work;
    else
        sim_work_delete(work);
    return result;
}

CUresult sim_batch_put(CUstream stream, const CUstreamBatchMemOpParams *list, unsigned int count,
                       unsigned int flags)
{
    struct sim_work *work;
    const CUresult result = sim_batch_work(list, count, flags, &work);

    return result == CUDA_SUCCESS ? sim_stream_put(stream, work) : result;
}
