/* Replicas as threads. On one card they meet at a gate before every update: replica 0's stream waits for the
 * others' gradients and averages them in place in a fixed order, and the other streams wait for that. Between
 * cards NCCL averages. The host never waits for a device. A replica that fails aborts the others'
 * communicators, so that none waits for it. Owns the job's lock. */
#include "harness/train/replicas.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/train/buckets.h"
#include "harness/train/gate.h"
#include "harness/train/nccl.h"
#include "harness/train/session.h"

enum {
    LOOK_MS = 200,   /* between two looks for errors of NCCL */
    GRACE_MS = 10000 /* for replicas to end once the job is broken */
};

struct job;

struct replica {
    struct job *job;
    int number;
    uint64_t device_index;
    struct cuda_device device;
    struct supply supply;
    struct trainer trainer;
    struct session_result result;
    struct nccl_comm *comm; /* set with the job's lock held */
    struct buckets buckets;
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
    struct dataset *dataset;
    struct nccl_id id;
    atomic_bool broken;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ended; /* threads; guarded by lock */
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

static enum status reduce(void *owner, struct model *model)
{
    struct replica *replica = owner;

    return replica->job->by_operation ? reduce_by_operation(replica) : buckets_join(&replica->buckets, model);
}

static enum status layer_done(void *owner, struct model *model, int layer)
{
    struct replica *replica = owner;

    return buckets_layer_done(&replica->buckets, model, layer);
}

static bool is_good(void *owner)
{
    struct replica *replica = owner;

    return !atomic_load(&replica->job->broken);
}

/* ---- the end of a job ---- */

/* Ends the others' waits. Returns true for the first caller. Needs the job's lock. */
static bool break_job(struct job *job)
{
    bool first = !atomic_exchange(&job->broken, true);

    gate_break(&job->gate);
    for (int i = 0; i < job->count; i++)
        if (job->replica[i].comm)
            nccl_abort(job->replica[i].comm);
    return first;
}

static void end_replica(struct replica *replica, enum status status)
{
    struct job *job = replica->job;

    pthread_mutex_lock(&job->lock);
    replica->status = status;
    if (status && break_job(job) && status != STATUS_STOPPED && status != STATUS_UNSAVED)
        status_fail(status, "replica %d of %d failed: the run ends", replica->number, job->count);
    job->ended++;
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->lock);
}

/* ---- one replica ---- */

static struct train_options options_of(const struct replica *replica)
{
    const struct job *job = replica->job;
    struct train_options options = *job->options;

    options.device = replica->device_index;
    if (replica->number > 0)
        options.save = NULL;
    /* Arenas on one card get equal shares of the free memory: the first takes 1/N of it, the next 1/(N - 1)
     * of the rest, and so on. */
    if (job->one_card)
        options.fraction /= job->count - replica->number;
    return options;
}

static enum status open_card(struct replica *replica)
{
    struct train_options options = options_of(replica);
    enum status status = cuda_device_open(&replica->device, replica->device_index);

    if (!status)
        status = supply_open(&replica->supply, (enum alloc_mode)options.alloc, options.fraction,
                             &replica->job->budget);
    if (!status)
        status = cuda_device_status(cudaEventCreateWithFlags(&replica->ready, cudaEventDisableTiming),
                                    "creating an event");
    return status;
}

static enum status open_trainer(struct replica *replica)
{
    struct job *job = replica->job;
    struct train_options options = options_of(replica);
    struct trainer_shard shard = {(uint64_t)replica->number, (uint64_t)job->count, job->dataset};
    enum status status =
        trainer_open_shard(&replica->trainer, &options, &replica->device, &replica->supply, &shard);

    replica->trainer.reduce = (struct trainer_reduce){.run = reduce,
                                                      .layer_done = job->by_operation ? NULL : layer_done,
                                                      .good = is_good,
                                                      .captures = !job->by_operation,
                                                      .owner = replica};
    return status;
}

/* Joins the communicator, for which all replicas are needed: they must have met at the gate. */
static enum status open_comm(struct replica *replica)
{
    struct job *job = replica->job;
    struct nccl_comm *comm = NULL;
    enum status status = nccl_open(&comm, &job->id, replica->number, job->count);

    pthread_mutex_lock(&job->lock);
    replica->comm = comm;
    if (comm && atomic_load(&job->broken))
        nccl_abort(comm);
    pthread_mutex_unlock(&job->lock);
    if (!status)
        status = buckets_open(&replica->buckets, &replica->trainer.model, comm, job->options->bucket);
    replica->buckets.profile = replica->trainer.profile;
    return status;
}

/* On cards of their own, replicas open in parallel. */
static enum status open_in_thread(struct replica *replica)
{
    enum status status = open_card(replica);

    if (!status)
        status = open_trainer(replica);
    if (!status && !gate_pass(&replica->job->gate))
        status = STATUS_FAILED;
    return status ? status : open_comm(replica);
}

static void *run_replica(void *arg)
{
    struct replica *replica = arg;
    struct job *job = replica->job;
    enum status status = STATUS_OK;

    if (!job->by_operation)
        status = open_in_thread(replica);
    if (!status)
        status = cuda_device_status(cudaSetDevice((int)replica->device_index), "cudaSetDevice");
    if (!status && !gate_pass(&job->gate))
        status = STATUS_FAILED;
    if (!status)
        status = session_run(&replica->trainer, &replica->result);
    end_replica(replica, status);
    return NULL;
}

/* ---- the job ---- */

static enum status finish_job(struct job *job)
{
    struct profile **profiles = calloc((size_t)job->count, sizeof(struct profile *));
    enum status status;
    struct session_result *result = &job->replica[0].result;
    float first = 0.0f;
    float last = 0.0f;
    double flops_per_s = 0.0;

    if (!profiles)
        return status_fail(STATUS_NO_MEMORY, "out of host memory");
    for (int i = 0; i < job->count; i++) {
        profiles[i] = job->replica[i].trainer.profile;
        flops_per_s += job->replica[i].result.flops_per_s;
        first += job->replica[i].result.loss_first / (float)job->count;
        last += job->replica[i].result.loss_last / (float)job->count;
    }
    result->loss_first = first;
    result->loss_last = last;
    result->flops_per_s = flops_per_s;
    result->cards = job->one_card ? 1 : job->count;
    result->peak_bytes = atomic_load(&job->budget.peak);
    printf("replicas=%d ", job->count);
    status = session_finish(result, profiles, job->count);
    free(profiles);
    return status;
}

/* Opens what all replicas share, and on one card the replicas too: one after the other, so that each arena
 * sees what the others left. */
static enum status open_job(struct job *job)
{
    enum status status = trainer_open_dataset(&job->dataset, job->options);

    if (!job->by_operation)
        return status ? status : nccl_new_id(&job->id);
    for (int i = 0; i < job->count && !status; i++) {
        status = open_card(&job->replica[i]);
        if (!status)
            status = open_trainer(&job->replica[i]);
    }
    /* The event belongs to the card of the stream that records it. */
    if (!status)
        status = cuda_device_status(cudaSetDevice((int)job->replica[0].device_index), "cudaSetDevice");
    if (!status)
        status = cuda_device_status(cudaEventCreateWithFlags(&job->averaged, cudaEventDisableTiming),
                                    "creating an event");
    return status;
}

static bool nccl_of_any_failed(struct job *job)
{
    for (int i = 0; i < job->count; i++)
        if (job->replica[i].comm && nccl_has_failed(job->replica[i].comm))
            return true;
    return false;
}

/* Waits for `started` threads. Looks for errors of NCCL, which no replica notices: its streams hang. Ends the
 * process if a replica still hangs long after the job was broken. */
static void wait_for_replicas(struct job *job, int started)
{
    const long ns_per_ms = 1000000;
    int waited_ms = 0;
    bool failed = false;

    pthread_mutex_lock(&job->lock);
    while (job->ended < started) {
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_MS * ns_per_ms;
        until.tv_sec += until.tv_nsec / (1000 * ns_per_ms);
        until.tv_nsec %= 1000 * ns_per_ms;
        pthread_cond_timedwait(&job->changed, &job->lock, &until);
        failed = !atomic_load(&job->broken) && nccl_of_any_failed(job);
        if (failed && break_job(job))
            status_fail(STATUS_FAILED, "NCCL has failed between replicas: the run ends");
        waited_ms += atomic_load(&job->broken) ? LOOK_MS : 0;
        if (waited_ms > GRACE_MS && job->ended < started) {
            status_fail(STATUS_FAILED, "a replica hangs and cannot be ended");
            _exit(STATUS_FAILED);
        }
    }
    pthread_mutex_unlock(&job->lock);
}

static enum status run_job(struct job *job)
{
    enum status status = open_job(job);
    int started = 0;

    if (status)
        return status;
    while (started < job->count &&
           pthread_create(&job->replica[started].thread, NULL, run_replica, &job->replica[started]) == 0)
        started++;
    if (started < job->count) {
        status = status_fail(STATUS_FAILED, "a thread for replica %d cannot be started", started);
        pthread_mutex_lock(&job->lock);
        break_job(job);
        pthread_mutex_unlock(&job->lock);
    }
    wait_for_replicas(job, started);
    for (int i = 0; i < started; i++)
        pthread_join(job->replica[i].thread, NULL);
    for (int i = 0; i < started; i++)
        status = job->replica[i].status > status ? job->replica[i].status : status;
    return status || !atomic_load(&job->broken) ? status : STATUS_FAILED;
}

static void close_job(struct job *job)
{
    for (int i = 0; i < job->count; i++) {
        if (job->replica[i].device.stream)
            cudaStreamSynchronize(job->replica[i].device.stream);
    }
    for (int i = 0; i < job->count; i++) {
        struct replica *replica = &job->replica[i];

        buckets_close(&replica->buckets);
        trainer_close(&replica->trainer);
        nccl_close(replica->comm);
        if (replica->ready)
            cudaEventDestroy(replica->ready);
        supply_close(&replica->supply);
        cuda_device_close(&replica->device);
    }
    if (job->averaged)
        cudaEventDestroy(job->averaged);
    if (job->dataset)
        dataset_close(job->dataset);
}

static enum status count_replicas(const struct train_options *options, int *count, bool *one_card)
{
    char *end = NULL;
    long number = strtol(options->replicas, &end, 10);

    *one_card = strcmp(options->replicas, "all") != 0;
    if (!*one_card)
        return cuda_device_status(cudaGetDeviceCount(count), "looking for CUDA devices");
    if (!isdigit((unsigned char)options->replicas[0]) || *end || number < 1 || number > OPS_PARTS)
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
    /* A single replica needs no NCCL, but uses it if it is installed, so that it runs as several would. */
    job.by_operation = job.one_card || (job.count == 1 && !nccl_is_there());
    job.replica = calloc((size_t)job.count, sizeof(*job.replica));
    if (!job.replica)
        return status_fail(STATUS_NO_MEMORY, "no host memory for %d replicas", job.count);
    gate_open(&job.gate, job.count);
    pthread_mutex_init(&job.lock, NULL);
    pthread_cond_init(&job.changed, NULL);
    for (int i = 0; i < job.count; i++) {
        job.replica[i].job = &job;
        job.replica[i].number = i;
        job.replica[i].device_index = job.one_card ? options->device : (uint64_t)i;
    }
    status = run_job(&job);
    if (!status)
        status = finish_job(&job);
    close_job(&job);
    pthread_cond_destroy(&job.changed);
    pthread_mutex_destroy(&job.lock);
    gate_close(&job.gate);
    free(job.replica);
    return status;
}
