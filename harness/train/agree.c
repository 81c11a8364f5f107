/* Each rank compares itself with rank 0, and one that differs fails, which ends the job. See agree.h. */
#include "harness/train/agree.h"

#include <stdlib.h>
#include <string.h>

#include "harness/train/checkpoint_file.h"
#include "harness/train/nccl.h"
#include "harness/train/watch.h"

/* Gathers one record of each rank. The caller frees it. */
static enum status gather(struct comm *comm, const void *own, size_t bytes, void **all)
{
    *all = calloc((size_t)comm->size, bytes);
    if (!*all)
        return status_fail(STATUS_NO_MEMORY, "out of host memory");
    if (comm->gather(own, bytes, *all))
        return status_fail(STATUS_FAILED, "MPI could not compare the replicas");
    return STATUS_OK;
}

enum status agree_on_options(struct comm *comm, const struct train_options *options)
{
    /* The others concern a rank alone: where it takes memory, reads data, prints. */
    static const char *const names[] = {
        "model",   "hidden",  "layers", "width",    "heads",      "length",    "vocabulary", "image",
        "classes", "dropout", "steps",  "batch",    "accumulate", "optimizer", "rate",       "momentum",
        "beta2",   "decay",   "clip",   "schedule", "warmup",     "precision", "loss-scale", "on-nan",
        "seed",    "vary",    "bucket", "augment",  "samples",    "shuffle",   "validation", NULL};
    struct train_options *all = NULL;
    char texts[2][OPTION_TEXT_BYTES];
    const char *name = NULL;
    enum status status = gather(comm, options, sizeof(*options), (void **)&all);

    if (!status)
        name = train_options_difference(options, &all[0], names, texts);
    if (name)
        status = status_fail(STATUS_USAGE,
                             "replica %d of %d has --%s=%s, but replica 0 has --%s=%s: start all with the "
                             "same options",
                             comm->rank, comm->size, name, texts[0], name, texts[1]);
    free(all);
    return status;
}

/* The name of a card on all machines, and whether its rank can load NCCL. */
struct card {
    char boot[WATCH_BOOT_BYTES];
    char bus[32]; /* empty: not known */
    bool nccl;
};

static bool is_same(const struct card *a, const struct card *b)
{
    return !a->bus[0] || (!strcmp(a->boot, b->boot) && !strcmp(a->bus, b->bus));
}

enum status agree_on_nccl(struct comm *comm, int device, const char **why_not)
{
    struct card own = {.nccl = nccl_is_there()};
    struct card *all = NULL;
    enum status status;

    watch_read_boot(own.boot);
    if (cudaDeviceGetPCIBusId(own.bus, (int)sizeof(own.bus), device))
        own.bus[0] = '\0';
    status = gather(comm, &own, sizeof(own), (void **)&all);
    *why_not = NULL;
    for (int i = 0; i < comm->size && !status; i++) {
        if (!all[i].nccl)
            *why_not = "libnccl.so.2 cannot be loaded";
        for (int k = 0; k < i; k++)
            if (is_same(&all[i], &all[k]))
                *why_not = "replicas share cards";
    }
    free(all);
    return status;
}

static enum status sum_tensor(struct trainer *trainer, const struct tensor *tensor, size_t bytes,
                              uint8_t *buffer, struct checkpoint_sum *sum)
{
    enum status status = STATUS_OK;

    for (size_t done = 0; done < bytes && !status; done += CHECKPOINT_CHUNK) {
        size_t part = bytes - done < CHECKPOINT_CHUNK ? bytes - done : CHECKPOINT_CHUNK;

        status = cuda_device_read(trainer->device, buffer, (const char *)tensor->data + done, part,
                                  "reading the weights");
        if (!status)
            checkpoint_sum_add(sum, buffer, part);
    }
    return status;
}

static enum status sum_weights(struct trainer *trainer, uint64_t *out)
{
    struct model *model = &trainer->model;
    uint8_t *buffer = malloc(CHECKPOINT_CHUNK);
    struct checkpoint_sum sum;
    enum status status = buffer ? STATUS_OK : status_fail(STATUS_NO_MEMORY, "out of host memory");

    checkpoint_sum_open(&sum);
    for (int p = 0; p < model->param_count && !status; p++) {
        struct param *param = &model->params[p];
        bool floats = param->weight.data;

        status = sum_tensor(trainer, floats ? &param->weight : &param->bytes,
                            param_count(param) * (floats ? sizeof(float) : 1), buffer, &sum);
    }
    *out = checkpoint_sum_close(&sum);
    free(buffer);
    return status;
}

/* What a rank starts from. Without a file, the seed has chosen the weights: sum is 0. */
struct start {
    uint64_t step, sum;
};

enum status agree_on_start(struct comm *comm, struct trainer *trainer)
{
    struct start own = {.step = trainer->step};
    struct start *all = NULL;
    enum status status = STATUS_OK;

    if (trainer->options.resume || trainer->options.load_weights)
        status = sum_weights(trainer, &own.sum);
    if (!status)
        status = gather(comm, &own, sizeof(own), (void **)&all);
    if (!status && (own.step != all[0].step || own.sum != all[0].sum))
        status = status_fail(
            STATUS_FAILED,
            "replica %d of %d starts at step %llu from other weights than replica 0, which is "
            "at step %llu: is the file of --resume or --load-weights the same for all?",
            comm->rank, comm->size, (unsigned long long)own.step, (unsigned long long)all[0].step);
    free(all);
    return status;
}
