/* Replicas as threads. They meet at a gate before every update. On one card, replica 0's stream waits for
 * the others' gradients and averages them in place in a fixed order, and the other streams wait for that.
 * Between cards NCCL averages. The host never waits for a device. */
#include "harness/train/replicas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/train/gate.h"
#include "harness/train/nccl.h"
#include "harness/train/session.h"

struct job;

struct replica {
    struct job *job;
    int number;
    uint64_t device_index;
    struct cuda_device device;
    struct supply supply;
    struct trainer trainer;
    struct session_result result;
    struct nccl_comm *comm;
    cudaEvent_t ready; /* recorded when its gradients are complete */
    pthread_t thread;
    enum status status;
};

struct job {
    const struct train_options *options;
    struct budget budget;
    struct gate gate;
    int count;
    bool one_card;
    bool by_operation; /* averaged by an operation, else by NCCL */
    struct nccl_id id;
    cudaEvent_t averaged;
    struct replica *replica;
};

/* ---- averaging ---- */

static enum status average_param(struct job *job, struct cuda_device *device, int p)
{
    struct op_average average = {.count = job->count};

    average.elements = param_count(&job->replica[0].trainer.model.params[p]);
    for (int i = 0; i < job->count; i++)
        average.parts[i] = job->replica[i].trainer.model.params[p].grad.data;
    return cuda_device_status(device->ops->average(device->ops, device->stream, &average), "average");
}

/* Called by replica 0 after all have recorded `ready`. */
static enum status average_all(struct job *job)
{
    struct replica *first = &job->replica[0];
    struct model *model = &first->trainer.model;
    enum status status = STATUS_OK;

    for (int i = 1; i < job->count && !status; i++)
        status = cuda_device_status(cudaStreamWaitEvent(first->device.stream, job->replica[i].ready, 0),
                                    "waiting for a replica");
    for (int p = 0; p < model->param_count && !status; p++) {
        if (model->params[p].trained)
            status = average_param(job, &first->device, p);
    }
    return status ? status
                  : cuda_device_status(cudaEventRecord(job->averaged, first->device.stream),
                                       "recording an event");
}

static enum status reduce_by_operation(struct replica *replica)
{
    struct job *job = replica->job;
    enum status status =
        cuda_device_status(cudaEventRecord(replica->ready, replica->device.stream), "recording an event");

    if (status)
        return status;
    if (!gate_pass(&job->gate))
        return STATUS_FAILED;
    if (replica->number == 0)
        status = average_all(job);
    if (status)
        return status;
    if (!gate_pass(&job->gate))
        return STATUS_FAILED;
    return cuda_device_status(cudaStreamWaitEvent(replica->device.stream, job->averaged, 0),
                              "waiting for the average");
}

static enum status reduce_nccl(struct replica *replica, struct model *model)
{
    enum status status = nccl_group_start();

    for (int p = 0; p < model->param_count && !status; p++) {
        struct param *param = &model->params[p];

        if (param->trained)
            status =
                nccl_average(replica->comm, param->grad.data, param_count(param), replica->device.stream);
    }
    return status ? status : nccl_group_end();
}

static enum status reduce(void *owner, struct model *model)
{
    struct replica *replica = owner;

    return replica->job->by_operation ? reduce_by_operation(replica) : reduce_nccl(replica, model);
}

/* ---- one replica ---- */

static enum status open_replica(struct replica *replica)
{
    struct job *job = replica->job;
    struct train_options options = *job->options;
    enum status status = cuda_device_open(&replica->device, replica->device_index);

    options.device = replica->device_index;
    if (replica->number > 0)
        options.save = NULL;
    /* Arenas on one card get equal shares of the free memory: the first takes 1/N of it, the next 1/(N - 1)
     * of the rest, and so on. */
    if (job->one_card)
        options.fraction /= job->count - replica->number;
    if (!status)
        status =
            supply_open(&replica->supply, (enum alloc_mode)options.alloc, options.fraction, &job->budget);
    if (!status)
        status = cuda_device_status(cudaEventCreateWithFlags(&replica->ready, cudaEventDisableTiming),
                                    "creating an event");
    if (!status && !job->by_operation)
        status = nccl_open(&replica->comm, &job->id, replica->number, job->count);
    if (!status)
        status = trainer_open(&replica->trainer, &options, &replica->device, &replica->supply,
                              (uint64_t)replica->number, (uint64_t)job->count);
    replica->trainer.reduce = (struct trainer_reduce){reduce, replica};
    return status;
}

static void *run_replica(void *arg)
{
    struct replica *replica = arg;
    struct job *job = replica->job;
    enum status status = STATUS_OK;

    /* One after the other, so that each arena sees what the others left. NCCL needs all at once. */
    if (!job->by_operation)
        status = open_replica(replica);
    if (!status)
        status = cuda_device_status(cudaSetDevice((int)replica->device_index), "cudaSetDevice");
    if (status)
        gate_break(&job->gate);
    else if (!gate_pass(&job->gate))
        status = STATUS_FAILED;
    if (!status) {
        status = session_run(&replica->trainer, &replica->result);
        if (status && gate_break(&job->gate))
            status_fail(status, "replica %d of %d failed: the run ends", replica->number, job->count);
    }
    replica->status = status;
    return NULL;
}

/* ---- the job ---- */

static void print_job(struct job *job)
{
    struct session_result *result = &job->replica[0].result;
    float first = 0.0f;
    float last = 0.0f;

    for (int i = 0; i < job->count; i++) {
        first += job->replica[i].result.loss_first / (float)job->count;
        last += job->replica[i].result.loss_last / (float)job->count;
    }
    result->loss_first = first;
    result->loss_last = last;
    result->peak_bytes = atomic_load(&job->budget.peak);
    printf("replicas=%d ", job->count);
    session_print_result(result);
}

static enum status run_job(struct job *job)
{
    enum status status = STATUS_OK;
    int started = 0;

    for (int i = 0; i < job->count && job->by_operation && !status; i++)
        status = open_replica(&job->replica[i]);
    /* The event belongs to the card of the stream that records it. */
    if (!status && job->by_operation)
        status = cuda_device_status(cudaSetDevice((int)job->replica[0].device_index), "cudaSetDevice");
    if (!status && job->by_operation)
        status = cuda_device_status(cudaEventCreateWithFlags(&job->averaged, cudaEventDisableTiming),
                                    "creating an event");
    if (!status && !job->by_operation)
        status = nccl_new_id(&job->id);
    if (status)
        return status;
    while (started < job->count &&
           pthread_create(&job->replica[started].thread, NULL, run_replica, &job->replica[started]) == 0)
        started++;
    if (started < job->count) {
        status = status_fail(STATUS_FAILED, "a thread for replica %d cannot be started", started);
        gate_break(&job->gate);
    }
    for (int i = 0; i < started; i++)
        pthread_join(job->replica[i].thread, NULL);
    for (int i = 0; i < started; i++)
        status = job->replica[i].status > status ? job->replica[i].status : status;
    return status;
}

static void close_job(struct job *job)
{
    for (int i = 0; i < job->count; i++) {
        if (job->replica[i].device.stream)
            cudaStreamSynchronize(job->replica[i].device.stream);
    }
    for (int i = 0; i < job->count; i++) {
        struct replica *replica = &job->replica[i];

        trainer_close(&replica->trainer);
        nccl_close(replica->comm);
        if (replica->ready)
            cudaEventDestroy(replica->ready);
        supply_close(&replica->supply);
        cuda_device_close(&replica->device);
    }
    if (job->averaged)
        cudaEventDestroy(job->averaged);
}

static enum status count_replicas(const struct train_options *options, int *count, bool *one_card)
{
    char *end = NULL;
    long number = strtol(options->replicas, &end, 10);

    *one_card = strcmp(options->replicas, "all") != 0;
    if (!*one_card) {
        enum status status = cuda_device_status(cudaGetDeviceCount(count), "looking for CUDA devices");

        *one_card = !status && *count == 1;
        return status;
    }
    if (end == options->replicas || *end || number < 1 || number > OPS_PARTS)
        return status_fail(STATUS_USAGE, "--replicas=%s: expected a number from 1 to %d, all, or mpi",
                           options->replicas, OPS_PARTS);
    *count = (int)number;
    return STATUS_OK;
}

enum status replicas_run(const struct train_options *options)
{
    struct job job = {.options = options, .budget = {.limit = options->budget}};
    enum status status;

    if (strcmp(options->replicas, "mpi") == 0)
        return replicas_run_mpi(options);
    status = count_replicas(options, &job.count, &job.one_card);
    if (status)
        return status;
    if (job.count < 1)
        return status_fail(STATUS_FAILED, "--replicas=%s: there is no CUDA device", options->replicas);
    job.by_operation = job.one_card || cuda_device_is_simulated(0);
    job.replica = calloc((size_t)job.count, sizeof(*job.replica));
    if (!job.replica)
        return status_fail(STATUS_NO_MEMORY, "no host memory for %d replicas", job.count);
    gate_open(&job.gate, job.count);
    for (int i = 0; i < job.count; i++) {
        job.replica[i].job = &job;
        job.replica[i].number = i;
        job.replica[i].device_index = job.one_card ? options->device : (uint64_t)i;
    }
    status = run_job(&job);
    if (!status)
        print_job(&job);
    close_job(&job);
    gate_close(&job.gate);
    free(job.replica);
    return status;
}
