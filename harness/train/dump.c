/* Batches and losses as safetensors files. See dump.h. */
#include "harness/train/dump.h"

#include <stdlib.h>

#include "harness/train/tensor_file.h"

enum { PARTS = 4 };

/* The tensors of one file, and their contents on the host. */
struct dump {
    struct trainer *trainer;
    struct safetensors_tensor tensors[PARTS];
    void *host[PARTS];
    int count;
};

/* Adds a tensor with room for its contents, in *host. */
static enum status add(struct dump *dump, const char *name, const char *type, const int *shape, int dims,
                       size_t *count, void **host)
{
    struct safetensors_tensor *tensor = &dump->tensors[dump->count];

    *count = 1;
    snprintf(tensor->name, sizeof(tensor->name), "%s", name);
    snprintf(tensor->type, sizeof(tensor->type), "%s", type);
    tensor->dims = dims;
    for (int i = 0; i < dims; i++) {
        tensor->shape[i] = (uint64_t)shape[i];
        *count *= (size_t)shape[i];
    }
    *host = dump->host[dump->count++] = malloc(*count * sizeof(float));
    return *host ? STATUS_OK : status_fail(STATUS_NO_MEMORY, "no host memory for a batch");
}

static enum status add_integers(struct dump *dump, const char *name, const void *device, int length)
{
    const int shape[] = {dump->trainer->model.n, length};
    size_t count;
    void *host;
    enum status status = add(dump, name, "I32", shape, length ? 2 : 1, &count, &host);

    return status ? status
                  : cuda_device_read(dump->trainer->device, host, device, count * sizeof(int32_t),
                                     "copying a batch");
}

/* Pictures or vectors, which are in the model's type. */
static enum status add_values(struct dump *dump, const char *name, const void *device)
{
    struct trainer *trainer = dump->trainer;
    struct model *model = &trainer->model;
    const struct value *input = &model->values[model->input];
    const int shape[] = {model->n, input->h, input->w, input->c};
    struct tensor cast = {0};
    size_t count;
    void *host;
    enum status status = add(dump, name, "F32", shape, 4, &count, &host);

    if (!status && model->type != OPS_F32) {
        status = mem_need(&trainer->mem, &cast, count * sizeof(float), MEM_WORKSPACE);
        if (!status)
            status = MODEL_OP(model, cast, .x = device, .out = cast.data, .x_type = model->type,
                              .out_type = OPS_F32, .count = count);
        device = cast.data;
    }
    if (!status)
        status = cuda_device_read(trainer->device, host, device, count * sizeof(float), "copying a batch");
    mem_drop(&trainer->mem, &cast);
    return status;
}

static enum status add_loss(struct dump *dump)
{
    const int shape[] = {1};
    float totals[TOTALS];
    size_t count;
    void *host;
    enum status status = add(dump, "loss", "F32", shape, 1, &count, &host);

    if (!status)
        status = cuda_device_read(dump->trainer->device, totals, dump->trainer->totals.data, sizeof(totals),
                                  "copying a batch");
    if (!status)
        *(float *)host = totals[TOTAL_LOSS] / totals[TOTAL_ROWS];
    return status;
}

static enum status fill(struct dump *dump, const struct input_set *set)
{
    struct model *model = &dump->trainer->model;
    enum status status = add_loss(dump);

    if (!status && set->tokens.data)
        status = add_integers(dump, "tokens", set->tokens.data, set->length);
    else if (!status)
        status = add_values(dump, "x", model->values[model->input].data.data);
    if (!status && set->raw_target.data)
        return add_values(dump, "target", set->target.data ? set->target.data : set->raw_target.data);
    return status ? status
                  : add_integers(dump, "labels", set->labels.data, set->tokens.data ? set->length : 0);
}

static enum status write_file(struct dump *dump)
{
    const struct trainer *trainer = dump->trainer;
    struct tensor_file file = {0};
    char path[PATH_MAX];
    enum status status;

    if (snprintf(path, sizeof(path), "%s/step-%06llu.safetensors", trainer->options.dump,
                 (unsigned long long)trainer->step) >= (int)sizeof(path))
        return status_fail(STATUS_FAILED, "--dump: the path is too long");
    status = tensor_file_open(&file, path, dump->tensors, (size_t)dump->count);
    for (int i = 0; i < dump->count && !status; i++)
        status = tensor_file_write(&file, dump->host[i], dump->tensors[i].end - dump->tensors[i].begin);
    return tensor_file_close(&file, status);
}

enum status dump_step(struct trainer *trainer)
{
    struct input_set *set = &trainer->input.set[(trainer->input.given + INPUT_SETS - 1) % INPUT_SETS];
    struct dump dump = {.trainer = trainer};
    enum status status = fill(&dump, set);

    if (!status)
        status = write_file(&dump);
    for (int i = 0; i < dump.count; i++)
        free(dump.host[i]);
    return status ? status : input_done(&trainer->input, set);
}
