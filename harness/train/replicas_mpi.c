/* Replicas as processes of an MPI job. Between cards NCCL averages the gradients; where ranks share a card,
 * which NCCL refuses, MPI does it in host memory. A rank that fails aborts the job; one that is killed is
 * noticed by the others (watch.h), before MPI ends them. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/train/agree.h"
#include "harness/train/buckets.h"
#include "harness/train/comm.h"
#include "harness/train/nccl.h"
#include "harness/train/option_notes.h"
#include "harness/train/replicas.h"
#include "harness/train/session.h"
#include "harness/train/watch.h"

#define MPI_TABLE "libtrain_mpi.so"

struct rank {
    struct comm comm;
    struct nccl_comm *nccl; /* NULL: through host memory */
    struct buckets buckets;
    struct watch *watch;
    bool said;    /* why the run ends */
    bool trained; /* as all ranks have: none waits for another */
    struct trainer *trainer;
    float *host; /* pinned, room for all gradients */
    size_t room;
};

static enum status open_comm(struct comm *comm)
{
    void *library = dlopen(MPI_TABLE, RTLD_NOW | RTLD_GLOBAL);
    comm_open_fn open_table = library ? (comm_open_fn)dlsym(library, COMM_OPEN_NAME) : NULL;

    if (!library) {
        status_fail(STATUS_FAILED, "--replicas=mpi: %s (was it built? Open MPI is needed)", dlerror());
        return STATUS_FAILED;
    }
    if (!open_table || open_table(sizeof(*comm), comm) || !comm->broadcast || !comm->gather || !comm->sum ||
        !comm->abort || !comm->close) {
        status_fail(STATUS_FAILED, "--replicas=mpi: MPI cannot be started");
        return STATUS_FAILED;
    }
    return STATUS_OK;
}

static size_t count_gradients(const struct model *model)
{
    size_t count = 0;

    for (int p = 0; p < model->param_count; p++)
        count += model->params[p].trained ? param_count(&model->params[p]) : 0;
    return count;
}

/* Copies all gradients to the host, or back. */
static enum status move_gradients(struct rank *rank, struct model *model, bool back)
{
    float *host = rank->host;
    enum status status = STATUS_OK;

    for (int p = 0; p < model->param_count && !status; p++) {
        struct param *param = &model->params[p];
        size_t bytes = param_count(param) * sizeof(float);

        if (!param->trained)
            continue;
        status = cuda_device_status(back ? cudaMemcpyAsync(param->grad.data, host, bytes,
                                                           cudaMemcpyHostToDevice, model->device->stream)
                                         : cudaMemcpyAsync(host, param->grad.data, bytes,
                                                           cudaMemcpyDeviceToHost, model->device->stream),
                                    "copying gradients");
        host += param_count(param);
    }
    return status ? status
                  : cuda_device_status(cudaStreamSynchronize(model->device->stream), "copying gradients");
}

static enum status reduce_host(struct rank *rank, struct model *model)
{
    enum status status = move_gradients(rank, model, false);

    if (!status && rank->comm.sum(rank->host, rank->room))
        status = status_fail(STATUS_FAILED, "MPI could not add up the gradients");
    for (size_t i = 0; i < rank->room && !status; i++)
        rank->host[i] /= (float)rank->comm.size;
    return status ? status : move_gradients(rank, model, true);
}

static enum status reduce(void *owner, struct model *model)
{
    struct rank *rank = owner;

    return rank->nccl ? buckets_join(&rank->buckets, model) : reduce_host(rank, model);
}

static enum status layer_done(void *owner, struct model *model, int layer)
{
    struct rank *rank = owner;

    return buckets_layer_done(&rank->buckets, model, layer);
}

static enum status begin(void *owner, struct trainer *trainer)
{
    struct rank *rank = owner;

    return agree_on_start(&rank->comm, trainer);
}

static bool is_good(void *owner)
{
    struct rank *rank = owner;

    return !watch_has_seen_the_end(rank->watch);
}

static enum status open_nccl(struct rank *rank)
{
    struct nccl_id id = {{0}};
    enum status status = STATUS_OK;
    float ready = 1.0f;

    /* Joining waits for all ranks without an end: begins when each has come so far. */
    if (rank->comm.sum(&ready, 1))
        status = status_fail(STATUS_FAILED, "MPI could not synchronize the replicas");
    if (!status && rank->comm.rank == 0)
        status = nccl_new_id(&id);
    if (!status && rank->comm.broadcast(&id, sizeof(id)))
        status = status_fail(STATUS_FAILED, "MPI could not broadcast NCCL's id");
    if (!status)
        status = nccl_open(&rank->nccl, &id, rank->comm.rank, rank->comm.size);
    if (!status)
        status =
            buckets_open(&rank->buckets, &rank->trainer->model, rank->nccl, rank->trainer->options.bucket);
    rank->buckets.profile = rank->trainer->profile;
    return status;
}

static enum status open_reduce(struct rank *rank)
{
    const struct train_options *options = &rank->trainer->options;
    const char *why_not = NULL;
    enum status status = agree_on_nccl(&rank->comm, (int)options->device, &why_not);
    bool by_nccl = !why_not;

    if (status)
        return status;
    if (!by_nccl && !options->quiet)
        fprintf(stderr, "note: %s: MPI averages gradients in host memory\n", why_not);
    if (by_nccl) {
        status = open_nccl(rank);
    } else {
        rank->room = count_gradients(&rank->trainer->model);
        status = cuda_device_status(cudaMallocHost((void **)&rank->host, rank->room * sizeof(float)),
                                    "pinned memory for the gradients");
    }
    rank->trainer->reduce = (struct trainer_reduce){.begin = begin,
                                                    .run = reduce,
                                                    .layer_done = by_nccl ? layer_done : NULL,
                                                    .good = is_good,
                                                    .captures = by_nccl,
                                                    .owner = rank};
    return status ? status : watch_open(&rank->watch, &rank->comm, rank->nccl);
}

static enum status run_rank(struct rank *rank, const struct train_options *wanted)
{
    struct train_options options = *wanted;
    struct budget budget = {.limit = options.budget};
    struct cuda_device device = {0};
    struct supply supply = {0};
    struct trainer trainer = {0};
    struct session_result result = {0};
    int devices = 0;
    float losses[2];
    enum status status = agree_on_options(&rank->comm, wanted);

    if (!status)
        status = cuda_device_status(cudaGetDeviceCount(&devices), "looking for CUDA devices");

    if (!status && devices > 0)
        options.device = (uint64_t)(rank->comm.local_rank % devices);
    options.quiet = options.quiet || rank->comm.rank > 0;
    if (rank->comm.rank > 0) {
        options.save = NULL;
        progress_log_close(); /* one writes what all do */
    }
    if (!status && !options.quiet)
        option_notes_print(&options, stderr);
    if (!status)
        status = cuda_device_open(&device, options.device);
    if (!status)
        status = supply_open(&supply, (enum alloc_mode)options.alloc, options.fraction, &budget);
    if (!status)
        status = trainer_open(&trainer, &options, &device, &supply, (uint64_t)rank->comm.rank,
                              (uint64_t)rank->comm.size);
    rank->trainer = &trainer;
    if (!status)
        status = open_reduce(rank);
    if (!status)
        status = session_run(&trainer, &result);
    losses[0] = result.loss_first;
    losses[1] = result.loss_last;
    if (!status && rank->comm.sum(losses, 2))
        status = status_fail(STATUS_FAILED, "MPI could not add up the losses");
    /* From here on a rank may end: all have trained to the end. */
    rank->said = watch_has_seen_the_end(rank->watch);
    if (rank->said && !status)
        status = STATUS_FAILED;
    rank->trained = !status;
    watch_close(rank->watch);
    rank->watch = NULL;
    if (status && rank->nccl)
        nccl_abort(rank->nccl);
    /* Ranks that share cards: how many cards there are is not known here. */
    result.flops_per_s *= rank->comm.size;
    result.cards = rank->nccl ? rank->comm.size : 0;
    result.loss_first = losses[0] / (float)rank->comm.size;
    result.loss_last = losses[1] / (float)rank->comm.size;
    if (!status && rank->comm.rank == 0) {
        printf("replicas=%d ", rank->comm.size);
        /* All are profiled, so that all capture their graphs in the same step. */
        status = session_finish(&result, &trainer.profile, 1);
    }
    buckets_close(&rank->buckets);
    trainer_close(&trainer);
    nccl_close(rank->nccl);
    if (rank->host)
        cudaFreeHost(rank->host);
    supply_close(&supply);
    cuda_device_close(&device);
    return status;
}

enum status replicas_run_mpi(const struct train_options *options)
{
    struct rank rank = {0};
    enum status status = open_comm(&rank.comm);

    if (status)
        return status;
    status = run_rank(&rank, options);
    /* What is not written after the training is no reason to abort, which would lose the result line. */
    if (status && !rank.trained) {
        if (!rank.said && status != STATUS_STOPPED && status != STATUS_UNSAVED)
            status_fail(status, "replica %d of %d failed: the run ends", rank.comm.rank, rank.comm.size);
        progress_log_end(status); /* an abort ends this process too */
        rank.comm.abort(status);
    }
    if (status)
        fflush(stdout); /* early: mpirun ends the job when this process exits with a status */
    rank.comm.close();
    return status;
}
