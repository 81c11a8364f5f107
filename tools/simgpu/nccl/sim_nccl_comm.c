/* sim_nccl_comm: creates and destroys communicators. See sim_nccl_comm.h. Never dereferences a handle before
 * it has found it in the list, since programs pass old ones. Owns the list's lock and each communicator's
 * lock; no thread holds both. */
#include "tools/simgpu/nccl/sim_nccl_comm.h"

#include <stdlib.h>
#include <string.h>

#include "tools/simgpu/nccl/sim_nccl_call.h"
#include "tools/simgpu/nccl/sim_nccl_error.h"
#include "tools/simgpu/nccl/sim_nccl_group.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *comms;
static struct ncclComm
    *kept; /* aborted ones whose calls a graph may still run: reachable for leak checkers, never freed */

/* ---- the list ---- */

static void enlist(struct ncclComm **list, ncclComm_t comm)
{
    pthread_mutex_lock(&list_lock);
    comm->next = *list;
    *list = comm;
    pthread_mutex_unlock(&list_lock);
}

/* Removes a communicator from the list. Returns true for only one of several callers. */
static bool delist(ncclComm_t comm)
{
    struct ncclComm **at = &comms;
    bool found;

    pthread_mutex_lock(&list_lock);
    while (*at && *at != comm)
        at = &(*at)->next;
    found = *at;
    if (found)
        *at = comm->next;
    pthread_mutex_unlock(&list_lock);
    return found;
}

ncclResult_t sim_nccl_comm_check(ncclComm_t comm, const char *caller)
{
    struct ncclComm *at;

    pthread_mutex_lock(&list_lock);
    for (at = comms; at && at != comm;)
        at = at->next;
    pthread_mutex_unlock(&list_lock);
    return at ? ncclSuccess : sim_nccl_fail(ncclInvalidArgument, "%s: not a communicator", caller);
}

void sim_nccl_comm_drop(ncclComm_t comm)
{
    bool last;

    pthread_mutex_lock(&comm->lock);
    last = --comm->refs == 0;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    if (!last)
        return;
    sim_nccl_call_free_captured(comm->captured);
    sim_nccl_shared_leave(comm->shared);
    pthread_cond_destroy(&comm->changed);
    pthread_mutex_destroy(&comm->lock);
    free(comm);
}

/* ---- creating ---- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId)
{
    return uniqueId ? sim_nccl_shared_create(uniqueId)
                    : sim_nccl_fail(ncclInvalidArgument, "ncclGetUniqueId: NULL");
}

static ncclResult_t find_card(int *device, unsigned char *card)
{
    struct cudaDeviceProp properties;
    ncclResult_t result = sim_nccl_cuda(cudaGetDevice(device), "cudaGetDevice");

    if (result == ncclSuccess)
        result = sim_nccl_cuda(cudaGetDeviceProperties(&properties, *device), "cudaGetDeviceProperties");
    if (result == ncclSuccess)
        memcpy(card, properties.uuid.bytes, SIM_NCCL_CARD);
    return result;
}

/* Joins as one rank, without waiting for the others; sim_nccl_comm_meet() waits. */
static ncclResult_t join(ncclComm_t *out, int size, const ncclUniqueId *id, int rank)
{
    unsigned char card[SIM_NCCL_CARD];
    struct ncclComm *comm;
    ncclResult_t result;
    int device;

    if (!out || size < 1 || size > SIM_NCCL_RANKS || rank < 0 || rank >= size)
        return sim_nccl_fail(ncclInvalidArgument, "rank %d of %d ranks (at most %d)", rank, size,
                             SIM_NCCL_RANKS);
    *out = NULL;
    result = find_card(&device, card);
    if (result != ncclSuccess)
        return result;
    comm = calloc(1, sizeof(*comm));
    if (!comm)
        return sim_nccl_fail(ncclSystemError, "no memory for a communicator");
    *comm = (struct ncclComm){.rank = rank, .size = size, .device = device, .refs = 1};
    result = sim_nccl_shared_enter(id, size, rank, card, &comm->shared);
    if (result != ncclSuccess) {
        free(comm);
        return result;
    }
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->changed, NULL);
    enlist(&comms, comm);
    *out = comm;
    return ncclSuccess;
}

static ncclResult_t check_cards(const struct ncclComm *comm)
{
    const struct sim_nccl_rank_state *ranks = comm->shared->rank;

    for (int i = 0; i < comm->size; i++)
        for (int j = 0; j < i; j++)
            if (memcmp(ranks[i].card, ranks[j].card, SIM_NCCL_CARD) == 0)
                return sim_nccl_fail(ncclInvalidUsage, "Duplicate GPU detected : rank %d and rank %d", j, i);
    return ncclSuccess;
}

ncclResult_t sim_nccl_comm_meet(ncclComm_t comm)
{
    ncclResult_t result = sim_nccl_shared_wait_joined(comm->shared, &comm->aborted)
                              ? check_cards(comm)
                              : sim_nccl_fail(ncclInternalError, "aborted before all ranks had joined");

    if (result != ncclSuccess && delist(comm))
        sim_nccl_comm_drop(comm);
    return result;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    ncclResult_t result = join(comm, nranks, &commId, rank);

    if (result == ncclSuccess)
        result = sim_nccl_group_meet(*comm);
    else
        sim_nccl_group_failed(result);
    return result;
}

static ncclResult_t join_all(ncclComm_t *comm, int count, const int *devices, const ncclUniqueId *id)
{
    ncclResult_t result = ncclSuccess;

    for (int i = 0; i < count && result == ncclSuccess; i++) {
        result = sim_nccl_cuda(cudaSetDevice(devices ? devices[i] : i), "cudaSetDevice");
        if (result == ncclSuccess)
            result = join(&comm[i], count, id, i);
    }
    for (int i = 0; i < count && result == ncclSuccess; i++)
        result = sim_nccl_comm_meet(comm[i]);
    return result;
}

ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    ncclUniqueId id;
    int device = 0;
    int cards = 0;
    ncclResult_t result = sim_nccl_cuda(cudaGetDeviceCount(&cards), "cudaGetDeviceCount");

    if (!comm || ndev < 1 || ndev > SIM_NCCL_RANKS)
        return sim_nccl_fail(ncclInvalidArgument, "ncclCommInitAll: %d devices", ndev);
    for (int i = 0; i < ndev && result == ncclSuccess; i++) {
        int number = devlist ? devlist[i] : i;

        if (number < 0 || number >= cards)
            return sim_nccl_fail(ncclInvalidArgument, "ncclCommInitAll: there is no device %d", number);
        for (int j = 0; j < i && devlist; j++)
            if (devlist[j] == number)
                return sim_nccl_fail(ncclInvalidUsage, "ncclCommInitAll: device %d is listed twice", number);
    }
    memset(comm, 0, (size_t)ndev * sizeof(*comm));
    if (result == ncclSuccess)
        result = sim_nccl_cuda(cudaGetDevice(&device), "cudaGetDevice");
    if (result == ncclSuccess)
        result = sim_nccl_shared_create(&id);
    if (result == ncclSuccess) {
        result = join_all(comm, ndev, devlist, &id);
        cudaSetDevice(device);
    }
    for (int i = 0; i < ndev && result != ncclSuccess; i++)
        if (comm[i] && delist(comm[i]))
            sim_nccl_comm_drop(comm[i]);
    return result;
}

/* ---- destroying ---- */

/* Waits for the queued calls. */
static void flush(ncclComm_t comm)
{
    pthread_mutex_lock(&comm->lock);
    while (comm->refs > 1 || comm->running)
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t result = sim_nccl_comm_check(comm, "ncclCommFinalize");
    bool again;

    if (result != ncclSuccess)
        return result;
    pthread_mutex_lock(&comm->lock);
    again = comm->finalized;
    comm->finalized = true;
    pthread_mutex_unlock(&comm->lock);
    if (again)
        return sim_nccl_fail(ncclInvalidArgument, "ncclCommFinalize: called before");
    flush(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    if (!delist(comm))
        return sim_nccl_fail(ncclInvalidArgument, "ncclCommDestroy: not a communicator");
    flush(comm);
    sim_nccl_comm_drop(comm);
    return ncclSuccess;
}

/* Does not wait: queued calls hold a reference until their streams reach them. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    bool in_graphs;

    if (!comm)
        return ncclSuccess;
    if (!delist(comm))
        return sim_nccl_fail(ncclInvalidArgument, "ncclCommAbort: not a communicator");
    pthread_mutex_lock(&comm->lock);
    atomic_store(&comm->aborted, true);
    in_graphs = comm->captured;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    sim_nccl_shared_wake(comm->shared);
    if (in_graphs)
        enlist(&kept, comm);
    else
        sim_nccl_comm_drop(comm);
    return ncclSuccess;
}

/* ---- attributes ---- */

static ncclResult_t check_question(ncclComm_t comm, const void *out, const char *caller)
{
    ncclResult_t result = sim_nccl_comm_check(comm, caller);

    return result != ncclSuccess || out ? result : sim_nccl_fail(ncclInvalidArgument, "%s: NULL", caller);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    ncclResult_t result = check_question(comm, asyncError, "ncclCommGetAsyncError");

    if (result == ncclSuccess)
        *asyncError = (ncclResult_t)atomic_load(&comm->async_error);
    return result;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    ncclResult_t result = check_question(comm, count, "ncclCommCount");

    if (result == ncclSuccess)
        *count = comm->size;
    return result;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    ncclResult_t result = check_question(comm, device, "ncclCommCuDevice");

    if (result == ncclSuccess)
        *device = comm->device;
    return result;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    ncclResult_t result = check_question(comm, rank, "ncclCommUserRank");

    if (result == ncclSuccess)
        *rank = comm->rank;
    return result;
}
