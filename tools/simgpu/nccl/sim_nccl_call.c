/* sim_nccl_call: all-reduce and broadcast, as host functions on the program's streams; they can read simgpu's
 * device memory directly. See sim_nccl_call.h. Like NCCL's kernels they wait on the stream for all ranks, so
 * that the streams hang until ncclCommAbort if a rank has ended. Never calls the CUDA runtime from a stream.
 *
 * Differences from NCCL: if arguments differ between ranks, the call ends with an asynchronous
 * ncclInvalidUsage, where NCCL hangs or writes anything; pointers are always checked, as with
 * NCCL_CHECK_POINTERS=1; only sums and means of 16 and 32 bit floating point are supported. */
#include "tools/simgpu/nccl/sim_nccl_call.h"

#include <stdlib.h>
#include <string.h>

#include "tools/simgpu/nccl/sim_nccl_error.h"
#include "tools/simgpu/nccl/sim_nccl_group.h"
#include "tools/simgpu/nccl/sim_nccl_number.h"

enum { ALL_REDUCE = 1, BROADCAST = 2 };

/* ---- on the stream ---- */

static bool same_calls(struct ncclComm *comm, uint64_t stage)
{
    const struct sim_nccl_rank_state *ranks = comm->shared->rank;

    for (int i = 1; i < comm->size; i++)
        if (memcmp(&ranks[i].call[stage % 2], &ranks[0].call[stage % 2], sizeof(ranks[0].call[0])) != 0)
            return false;
    return true;
}

/* Computes the result of one stage from the slots of all ranks. */
static void combine(const struct sim_nccl_op *op, uint64_t stage, char *to, size_t count, size_t bytes)
{
    struct ncclComm *comm = op->comm;
    const void *from[SIM_NCCL_RANKS];

    for (int i = 0; i < comm->size; i++)
        from[i] = sim_nccl_shared_slot(comm->shared, i, stage);
    if (op->call.kind == BROADCAST)
        memcpy(to, from[op->call.root], count * bytes);
    else
        sim_nccl_number_reduce(to, from, comm->size, count, (ncclDataType_t)op->call.type,
                               (ncclRedOp_t)op->call.op);
}

static void exchange(const struct sim_nccl_op *op)
{
    struct ncclComm *comm = op->comm;
    size_t bytes = sim_nccl_number_bytes((ncclDataType_t)op->call.type);
    size_t most = SIM_NCCL_SLOT / bytes;

    for (size_t at = 0; at < op->call.count; at += most) {
        size_t count = op->call.count - at < most ? op->call.count - at : most;
        uint64_t stage = ++comm->stage;

        if (op->call.kind == ALL_REDUCE || op->call.root == comm->rank)
            memcpy(sim_nccl_shared_slot(comm->shared, comm->rank, stage), (const char *)op->from + at * bytes,
                   count * bytes);
        comm->shared->rank[comm->rank].call[stage % 2] = op->call;
        sim_nccl_shared_publish(comm->shared, comm->rank, stage);
        if (!sim_nccl_shared_wait_stage(comm->shared, stage, &comm->aborted))
            return;
        if (!same_calls(comm, stage)) {
            atomic_store(&comm->async_error, (int)ncclInvalidUsage);
            return;
        }
        combine(op, stage, (char *)op->to + at * bytes, count, bytes);
    }
}

/* Waits for the earlier calls of the communicator. */
static void begin_call(struct sim_nccl_op *op)
{
    struct ncclComm *comm = op->comm;

    pthread_mutex_lock(&comm->lock);
    while (comm->running || (!op->captured && op->number != comm->served && !atomic_load(&comm->aborted)))
        pthread_cond_wait(&comm->changed, &comm->lock);
    comm->running = true;
    pthread_mutex_unlock(&comm->lock);
}

static void end_call(struct sim_nccl_op *op)
{
    struct ncclComm *comm = op->comm;

    pthread_mutex_lock(&comm->lock);
    comm->running = false;
    comm->served += !op->captured;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
}

static void run_call(void *arg)
{
    struct sim_nccl_op *op = arg;
    struct ncclComm *comm = op->comm;
    bool captured = op->captured;

    begin_call(op);
    if (!atomic_load(&comm->aborted))
        exchange(op);
    end_call(op);
    if (captured)
        return; /* the graph may run it again */
    free(op);
    sim_nccl_comm_drop(comm);
}

/* ---- on the host ---- */

void sim_nccl_call_free_captured(struct sim_nccl_op *op)
{
    while (op) {
        struct sim_nccl_op *next = op->next;

        free(op);
        op = next;
    }
}

/* Gives the call a number, or adds it to the list of captured ones. Returns false if the communicator has
 * ended. */
static bool enter(struct sim_nccl_op *op)
{
    struct ncclComm *comm = op->comm;
    bool open;

    pthread_mutex_lock(&comm->lock);
    open = !comm->finalized && !atomic_load(&comm->aborted);
    if (open && op->captured) {
        op->next = comm->captured;
        comm->captured = op;
    } else if (open) {
        op->number = comm->issued++;
        comm->refs++;
    }
    pthread_mutex_unlock(&comm->lock);
    return open;
}

static ncclResult_t put_on_stream(struct sim_nccl_op *op)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    ncclResult_t result = sim_nccl_cuda(cudaStreamIsCapturing(op->stream, &status), "cudaStreamIsCapturing");

    op->captured = status != cudaStreamCaptureStatusNone;
    if (result == ncclSuccess && !enter(op))
        result = sim_nccl_fail(ncclInvalidUsage, "the communicator has been finalized");
    if (result != ncclSuccess) {
        free(op);
        return result;
    }
    result = sim_nccl_cuda(cudaLaunchHostFunc(op->stream, run_call, op), "launching a collective");
    /* Run it here: later calls wait for this number. */
    if (result != ncclSuccess && !op->captured)
        run_call(op);
    return result;
}

ncclResult_t sim_nccl_call_launch(struct sim_nccl_op *op)
{
    int before = 0;
    ncclResult_t result = sim_nccl_comm_check(op->comm, "a collective");

    if (result == ncclSuccess)
        result = sim_nccl_cuda(cudaGetDevice(&before), "cudaGetDevice");
    if (result == ncclSuccess)
        result = sim_nccl_cuda(cudaSetDevice(op->comm->device), "cudaSetDevice");
    if (result != ncclSuccess) {
        free(op);
        return result;
    }
    result = put_on_stream(op);
    cudaSetDevice(before);
    return result;
}

static ncclResult_t check_pointer(const struct ncclComm *comm, const void *pointer, const char *caller)
{
    struct cudaPointerAttributes attributes;

    if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess || !attributes.devicePointer)
        return sim_nccl_fail(ncclInvalidArgument, "%s: %p is not device memory", caller, pointer);
    if (attributes.type == cudaMemoryTypeDevice && attributes.device != comm->device)
        return sim_nccl_fail(ncclInvalidArgument, "%s: %p is on device %d, the communicator on %d", caller,
                             pointer, attributes.device, comm->device);
    return ncclSuccess;
}

static ncclResult_t check_call(const struct sim_nccl_op *op, const char *caller)
{
    const struct sim_nccl_call *call = &op->call;
    ncclResult_t result = sim_nccl_comm_check(op->comm, caller);

    if (result != ncclSuccess)
        return result;
    if (!sim_nccl_number_bytes((ncclDataType_t)call->type))
        return sim_nccl_fail(ncclInvalidArgument, "%s: unknown type %d", caller, call->type);
    if (call->root < 0 || call->root >= op->comm->size)
        return sim_nccl_fail(ncclInvalidArgument, "%s: unknown rank %d", caller, call->root);
    if (call->op < 0 || call->op >= (int)ncclNumOps)
        return sim_nccl_fail(ncclInvalidArgument, "%s: unknown operation %d", caller, call->op);
    if (call->count == 0)
        return ncclSuccess;
    if (call->count > SIZE_MAX / 8)
        return sim_nccl_fail(ncclInvalidArgument, "%s: %llu elements", caller,
                             (unsigned long long)call->count);
    if (call->kind == ALL_REDUCE &&
        !sim_nccl_number_can_reduce((ncclDataType_t)call->type, (ncclRedOp_t)call->op))
        return sim_nccl_fail(ncclInvalidUsage, "%s: simgpu does not support operation %d for type %d", caller,
                             call->op, call->type);
    if (call->kind == ALL_REDUCE || call->root == op->comm->rank)
        result = check_pointer(op->comm, op->from, caller);
    return result == ncclSuccess ? check_pointer(op->comm, op->to, caller) : result;
}

static ncclResult_t make_call(const struct sim_nccl_op *wanted, const char *caller)
{
    ncclResult_t result = check_call(wanted, caller);
    struct sim_nccl_op *op;

    if (result != ncclSuccess)
        return sim_nccl_group_failed(result);
    if (wanted->call.count == 0)
        return ncclSuccess;
    op = malloc(sizeof(*op));
    if (!op)
        return sim_nccl_group_failed(sim_nccl_fail(ncclSystemError, "%s: no memory", caller));
    *op = *wanted;
    return sim_nccl_group_call(op);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    struct sim_nccl_op wanted = {.comm = comm, .from = sendbuff, .to = recvbuff, .stream = stream};

    wanted.call = (struct sim_nccl_call){ALL_REDUCE, (int32_t)datatype, (int32_t)op, 0, count};
    return make_call(&wanted, "ncclAllReduce");
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                           int root, ncclComm_t comm, cudaStream_t stream)
{
    struct sim_nccl_op wanted = {.comm = comm, .from = sendbuff, .to = recvbuff, .stream = stream};

    wanted.call = (struct sim_nccl_call){BROADCAST, (int32_t)datatype, 0, root, count};
    return make_call(&wanted, "ncclBroadcast");
}

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}
