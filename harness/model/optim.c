/* The optimizer. The table of parameters is copied to the device only when an address in it has changed: once
 * if gradients keep their memory, every step otherwise. */
#include "harness/model/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float adam_epsilon = 1e-8f;
enum { SCALE_GROWTH = 2000 }; /* good steps before the loss scale doubles, as PyTorch has it */

double optim_rate(const struct train_options *options, uint64_t step)
{
    const double pi = 3.14159265358979323846;
    const double lowest = 0.1; /* of the rate, at the end of a cosine */
    double rate = options->rate;
    uint64_t length = options->steps > options->warmup ? options->steps - options->warmup : 1;
    double part;

    if (step < options->warmup)
        return rate * (double)(step + 1) / (double)(options->warmup + 1);
    part = (double)(step - options->warmup) / (double)length;
    part = part > 1.0 ? 1.0 : part;
    switch ((enum schedule_name)options->schedule) {
    case SCHEDULE_CONSTANT:
        break;
    case SCHEDULE_COSINE:
        rate *= lowest + (1.0 - lowest) * 0.5 * (1.0 + cos(pi * part));
        break;
    case SCHEDULE_STEP:
        rate *= part >= 0.75 ? 0.01 : part >= 0.5 ? 0.1 : 1.0;
        break;
    }
    return rate;
}

static enum status zero(struct optim *optim, const struct tensor *tensor)
{
    return MODEL_OP(optim->model, fill, .out = tensor->data, .type = OPS_F32,
                    .count = tensor->bytes / sizeof(float));
}

static enum status open_states(struct optim *optim)
{
    struct model *model = optim->model;
    bool adam = optim->options->optimizer != OPTIMIZER_SGD;
    enum status status = STATUS_OK;

    for (int p = 0; p < model->param_count && !status; p++) {
        struct param *param = &model->params[p];

        if (!param->trained)
            continue;
        optim->count++;
        optim->largest = param_count(param) > optim->largest ? param_count(param) : optim->largest;
        if (model->packed)
            continue;
        status = mem_need(model->mem, &param->first, param_count(param) * sizeof(float), MEM_OPTIMIZER);
        if (!status)
            status = zero(optim, &param->first);
        if (!status && adam)
            status = mem_need(model->mem, &param->second, param_count(param) * sizeof(float), MEM_OPTIMIZER);
        if (!status && adam)
            status = zero(optim, &param->second);
    }
    return status;
}

static enum status open_slots(struct optim *optim)
{
    size_t bytes = (size_t)optim->count * sizeof(struct ops_param);
    enum status status = STATUS_OK;

    optim->wanted = calloc(1, bytes);
    optim->uploaded = calloc(1, bytes);
    if (!optim->wanted || !optim->uploaded)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the table of parameters");
    for (int i = 0; i < OPTIM_ALL_SLOTS && !status; i++) {
        status = cuda_device_status(cudaMallocHost((void **)&optim->slot[i].table, bytes),
                                    "pinned memory for the table of parameters");
        if (!status)
            status =
                cuda_device_status(cudaEventCreateWithFlags(&optim->slot[i].copied, cudaEventDisableTiming),
                                   "creating an event");
    }
    return status;
}

static enum status start_scalars(struct optim *optim)
{
    struct model *model = optim->model;
    bool scaled = optim->options->precision == PRECISION_FP16;
    struct ops_scalars start = {.scale = scaled ? (float)optim->options->loss_scale : 1.0f,
                                .multiplier = 1.0f};

    model->step = &optim_scalars(optim)->step;
    return cuda_device_write(model->device, optim->scalars.data, &start, sizeof(start),
                             "copying the optimizer's start");
}

enum status optim_open(struct optim *optim, const struct train_options *options, struct model *model)
{
    enum status status;

    memset(optim, 0, sizeof(*optim));
    optim->options = options;
    optim->model = model;
    status = open_states(optim);
    if (!status)
        status = mem_need(model->mem, &optim->table, (size_t)optim->count * sizeof(struct ops_param),
                          MEM_OPTIMIZER);
    if (!status)
        status = mem_need(model->mem, &optim->scalars, sizeof(struct ops_scalars), MEM_OPTIMIZER);
    if (!status)
        status = open_slots(optim);
    return status ? status : start_scalars(optim);
}

void optim_close(struct optim *optim)
{
    if (!optim->model)
        return;
    for (int i = 0; i < OPTIM_ALL_SLOTS; i++) {
        if (optim->slot[i].copied)
            cudaEventDestroy(optim->slot[i].copied);
        if (optim->slot[i].table)
            cudaFreeHost(optim->slot[i].table);
    }
    free(optim->wanted);
    free(optim->uploaded);
    mem_drop(optim->model->mem, &optim->table);
    mem_drop(optim->model->mem, &optim->scalars);
    memset(optim, 0, sizeof(*optim));
}

enum status optim_set_rate(struct optim *optim, double rate)
{
    return MODEL_OP(optim->model, fill, .out = &optim_scalars(optim)->rate, .type = OPS_F32, .count = 1,
                    .value = (float)rate);
}

/* Every parameter has a gradient: each is read by a layer whose backward pass writes it. */
static void fill_wanted(struct optim *optim)
{
    struct model *model = optim->model;
    struct ops_param *entry = optim->wanted;

    for (int p = 0; p < model->param_count; p++) {
        struct param *param = &model->params[p];

        if (!param->trained)
            continue;
        *entry++ = (struct ops_param){.weight = param->weight.data,
                                      .first = param->first.data,
                                      .second = param->second.data,
                                      .grad = param->grad.data,
                                      .copy = param->copy.data,
                                      .count = param_count(param),
                                      .decay = param->decays ? 1.0f : 0.0f,
                                      .keep_zeros = param->keep_zeros};
    }
}

static enum status copy_table(struct optim *optim, struct optim_slot *slot)
{
    size_t bytes = (size_t)optim->count * sizeof(struct ops_param);

    memcpy(slot->table, optim->wanted, bytes);
    memcpy(optim->uploaded, optim->wanted, bytes);
    return cuda_device_status(cudaMemcpyAsync(optim->table.data, slot->table, bytes, cudaMemcpyHostToDevice,
                                              optim->model->device->stream),
                              "copying the table of parameters");
}

static enum status upload_table(struct optim *optim, bool capturing)
{
    size_t bytes = (size_t)optim->count * sizeof(struct ops_param);
    struct optim_slot *slot = &optim->slot[optim->turn % OPTIM_SLOTS];
    enum status status;

    fill_wanted(optim);
    /* A graph always copies its own table: another graph's may be on the device when it is replayed. */
    if (capturing)
        return copy_table(optim, &optim->slot[OPTIM_SLOTS + optim->graphs++ % OPTIM_GRAPH_SLOTS]);
    if (memcmp(optim->wanted, optim->uploaded, bytes) == 0)
        return STATUS_OK;
    optim->turn++;
    status = cuda_device_status(cudaEventSynchronize(slot->copied), "waiting for a copy");
    if (!status)
        status = copy_table(optim, slot);
    return status ? status
                  : cuda_device_status(cudaEventRecord(slot->copied, optim->model->device->stream),
                                       "recording an event");
}

static enum status apply(struct optim *optim)
{
    const struct train_options *options = optim->options;
    struct model *model = optim->model;

    if (options->optimizer == OPTIMIZER_SGD)
        return MODEL_OP(model, sgd, .params = optim->table.data, .scalars = optim->scalars.data,
                        .count = optim->count, .largest = optim->largest, .copy_type = model->type,
                        .momentum = (float)options->momentum, .decay = (float)options->decay);
    return MODEL_OP(model, adamw, .params = optim->table.data, .scalars = optim->scalars.data,
                    .count = optim->count, .largest = optim->largest, .copy_type = model->type,
                    .beta1 = (float)options->momentum, .beta2 = (float)options->beta2,
                    .epsilon = adam_epsilon, .decay = (float)options->decay,
                    .decoupled = options->optimizer == OPTIMIZER_ADAMW);
}

enum status optim_update(struct optim *optim, bool capturing)
{
    const struct train_options *options = optim->options;
    struct model *model = optim->model;
    bool scaled = options->precision == PRECISION_FP16;
    bool before = scaled || options->clip > 0.0 || options->on_nan == ON_NAN_SKIP;
    enum status status = upload_table(optim, capturing);

    /* Only what must be known before the update is looked for here: the update notices bad gradients too. */
    if (!status && before)
        status = MODEL_OP(model, grad_check, .params = optim->table.data, .scalars = optim->scalars.data,
                          .count = optim->count, .largest = optim->largest,
                          .workspace = model->workspace.data, .workspace_bytes = model->workspace.bytes);
    if (!status)
        status = MODEL_OP(model, step_begin, .scalars = optim->scalars.data, .clip = (float)options->clip,
                          .dynamic = scaled, .growth = SCALE_GROWTH, .beta1 = (float)options->momentum,
                          .beta2 = (float)options->beta2, .loss = optim->loss, .skip_loss = optim->skip_loss);
    if (!status)
        status = apply(optim);
    for (int p = 0; p < model->param_count && !status; p++) {
        model->params[p].has_grad = false;
        if (!optim->keep_grads)
            status = mem_done(model->mem, &model->params[p].grad);
    }
    return status;
}
