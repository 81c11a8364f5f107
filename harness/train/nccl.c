/* The few entry points of libnccl.so.2 that replicas need, declared here because its header may not be
 * there. See nccl.h. Owns the lock of each communicator. */
#include "harness/train/nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { NCCL_FLOAT = 7, NCCL_AVERAGE = 4 }; /* ncclFloat32, ncclAvg */

/* How long an abort waits for another thread's call: queueing takes microseconds, and a call that takes
 * longer hangs, which is what NCCL lets another thread abort. */
enum { ABORT_WAIT_S = 1 };

struct ncclComm; /* NCCL's own */

struct nccl_comm {
    pthread_mutex_t lock;    /* held during each call on the handle, but perhaps not by an abort */
    struct ncclComm *handle; /* not valid once aborted */
    atomic_bool aborted;
};

static struct {
    pthread_once_t once;
    void *library;
    int (*get_unique_id)(struct nccl_id *id);
    int (*comm_init_rank)(struct ncclComm **comm, int size, struct nccl_id id, int rank);
    int (*comm_destroy)(struct ncclComm *comm);
    int (*comm_abort)(struct ncclComm *comm);
    int (*comm_get_async_error)(struct ncclComm *comm, int *error);
    int (*all_reduce)(const void *from, void *to, size_t count, int type, int op, struct ncclComm *comm,
                      cudaStream_t stream);
    int (*group_start)(void);
    int (*group_end)(void);
    const char *(*get_error_string)(int error);
} nccl = {.once = PTHREAD_ONCE_INIT};

static void load(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);

    if (!library)
        return;
    *(void **)&nccl.get_unique_id = dlsym(library, "ncclGetUniqueId");
    *(void **)&nccl.comm_init_rank = dlsym(library, "ncclCommInitRank");
    *(void **)&nccl.comm_destroy = dlsym(library, "ncclCommDestroy");
    *(void **)&nccl.comm_abort = dlsym(library, "ncclCommAbort");
    *(void **)&nccl.comm_get_async_error = dlsym(library, "ncclCommGetAsyncError");
    *(void **)&nccl.all_reduce = dlsym(library, "ncclAllReduce");
    *(void **)&nccl.group_start = dlsym(library, "ncclGroupStart");
    *(void **)&nccl.group_end = dlsym(library, "ncclGroupEnd");
    *(void **)&nccl.get_error_string = dlsym(library, "ncclGetErrorString");
    if (nccl.get_unique_id && nccl.comm_init_rank && nccl.comm_destroy && nccl.comm_abort &&
        nccl.comm_get_async_error && nccl.all_reduce && nccl.group_start && nccl.group_end &&
        nccl.get_error_string)
        nccl.library = library;
}

bool nccl_is_there(void)
{
    pthread_once(&nccl.once, load);
    return nccl.library;
}

static enum status need_library(void)
{
    return nccl_is_there()
               ? STATUS_OK
               : status_fail(STATUS_FAILED,
                             "replicas on several cards need NCCL, but libnccl.so.2 cannot be loaded");
}

static enum status check(int error, const char *what)
{
    return error ? status_fail(STATUS_FAILED, "NCCL: %s: %s", what, nccl.get_error_string(error)) : STATUS_OK;
}

enum status nccl_new_id(struct nccl_id *id)
{
    enum status status = need_library();

    return status ? status : check(nccl.get_unique_id(id), "creating an id");
}

enum status nccl_open(struct nccl_comm **out, const struct nccl_id *id, int rank, int size)
{
    enum status status = need_library();
    struct nccl_comm *comm;

    *out = NULL;
    if (status)
        return status;
    comm = calloc(1, sizeof(*comm));
    if (!comm)
        return status_fail(STATUS_NO_MEMORY, "out of host memory");
    status = check(nccl.comm_init_rank(&comm->handle, size, *id, rank), "joining the replicas");
    if (status) {
        free(comm);
        return status;
    }
    pthread_mutex_init(&comm->lock, NULL);
    *out = comm;
    return STATUS_OK;
}

void nccl_close(struct nccl_comm *comm)
{
    if (!comm)
        return;
    if (!atomic_load(&comm->aborted))
        nccl.comm_destroy(comm->handle);
    pthread_mutex_destroy(&comm->lock);
    free(comm);
}

static int queue_average(struct nccl_comm *comm, const struct nccl_part *parts, int count,
                         cudaStream_t stream)
{
    int error = nccl.group_start();
    int ended;

    if (error)
        return error;
    for (int i = 0; i < count && !error; i++)
        error = nccl.all_reduce(parts[i].values, parts[i].values, parts[i].count, NCCL_FLOAT, NCCL_AVERAGE,
                                comm->handle, stream);
    ended = nccl.group_end();
    return error ? error : ended;
}

enum status nccl_average(struct nccl_comm *comm, const struct nccl_part *parts, int count,
                         cudaStream_t stream)
{
    int error = 0;

    pthread_mutex_lock(&comm->lock);
    if (!atomic_load(&comm->aborted))
        error = queue_average(comm, parts, count, stream);
    pthread_mutex_unlock(&comm->lock);
    /* An abort may also be why the call has failed. */
    if (atomic_load(&comm->aborted))
        return STATUS_FAILED;
    return check(error, "averaging gradients");
}

bool nccl_has_failed(struct nccl_comm *comm)
{
    int error = 0;

    if (pthread_mutex_trylock(&comm->lock))
        return false; /* looks again later */
    if (!atomic_load(&comm->aborted) && nccl.comm_get_async_error(comm->handle, &error))
        error = 1;
    pthread_mutex_unlock(&comm->lock);
    return error != 0;
}

void nccl_abort(struct nccl_comm *comm)
{
    struct timespec until;
    bool locked;

    if (atomic_exchange(&comm->aborted, true))
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABORT_WAIT_S;
    locked = pthread_mutex_timedlock(&comm->lock, &until) == 0;
    nccl.comm_abort(comm->handle);
    if (locked)
        pthread_mutex_unlock(&comm->lock);
}
