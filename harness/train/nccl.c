/* The few entry points of libnccl.so.2 that replicas need, declared here because its header may not be
 * there. See nccl.h. */
#include "harness/train/nccl.h"

#include <dlfcn.h>
#include <pthread.h>

enum { NCCL_FLOAT = 7, NCCL_AVERAGE = 4 }; /* ncclFloat32, ncclAvg */

static struct {
    pthread_once_t once;
    void *library;
    int (*get_unique_id)(struct nccl_id *id);
    int (*comm_init_rank)(struct nccl_comm **comm, int size, struct nccl_id id, int rank);
    int (*comm_destroy)(struct nccl_comm *comm);
    int (*all_reduce)(const void *from, void *to, size_t count, int type, int op, struct nccl_comm *comm,
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
    *(void **)&nccl.all_reduce = dlsym(library, "ncclAllReduce");
    *(void **)&nccl.group_start = dlsym(library, "ncclGroupStart");
    *(void **)&nccl.group_end = dlsym(library, "ncclGroupEnd");
    *(void **)&nccl.get_error_string = dlsym(library, "ncclGetErrorString");
    if (nccl.get_unique_id && nccl.comm_init_rank && nccl.comm_destroy && nccl.all_reduce &&
        nccl.group_start && nccl.group_end && nccl.get_error_string)
        nccl.library = library;
}

static enum status check(int error, const char *what)
{
    return error ? status_fail(STATUS_FAILED, "NCCL: %s: %s", what, nccl.get_error_string(error)) : STATUS_OK;
}

enum status nccl_new_id(struct nccl_id *id)
{
    pthread_once(&nccl.once, load);
    if (!nccl.library)
        return status_fail(STATUS_FAILED,
                           "replicas on several cards need NCCL, but libnccl.so.2 cannot be loaded");
    return check(nccl.get_unique_id(id), "making an identity");
}

enum status nccl_open(struct nccl_comm **out, const struct nccl_id *id, int rank, int size)
{
    pthread_once(&nccl.once, load);
    if (!nccl.library)
        return status_fail(STATUS_FAILED,
                           "replicas on several cards need NCCL, but libnccl.so.2 cannot be loaded");
    return check(nccl.comm_init_rank(out, size, *id, rank), "joining the replicas");
}

void nccl_close(struct nccl_comm *comm)
{
    if (comm)
        nccl.comm_destroy(comm);
}

enum status nccl_average(struct nccl_comm *comm, float *values, size_t count, cudaStream_t stream)
{
    return check(nccl.all_reduce(values, values, count, NCCL_FLOAT, NCCL_AVERAGE, comm, stream),
                 "averaging gradients");
}

enum status nccl_group_start(void)
{
    return check(nccl.group_start(), "starting a group");
}

enum status nccl_group_end(void)
{
    return check(nccl.group_end(), "averaging gradients");
}
