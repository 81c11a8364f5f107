/* Weights as safetensors. See weights.h. Never changes a weight before the whole file has been checked. */
#include "harness/train/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/data/file.h"
#include "harness/model/names.h"
#include "harness/train/checkpoint_param.h"
#include "harness/train/tensor_file.h"

/* Names, and room on the host for the largest parameter in both layouts. */
struct transfer {
    struct trainer *trainer;
    struct names_entry *names;
    float *ours, *theirs;
};

static enum status open_transfer(struct transfer *transfer, struct trainer *trainer)
{
    struct model *model = &trainer->model;
    size_t most = 1; /* floats */

    *transfer = (struct transfer){.trainer = trainer};
    for (int p = 0; p < model->param_count; p++)
        most = param_count(&model->params[p]) > most ? param_count(&model->params[p]) : most;
    transfer->names = calloc((size_t)model->param_count, sizeof(*transfer->names));
    transfer->ours = malloc(most * sizeof(float));
    transfer->theirs = malloc(most * sizeof(float));
    if (!transfer->names || !transfer->ours || !transfer->theirs)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the weights");
    return names_make(model, &trainer->options, transfer->names);
}

static void close_transfer(struct transfer *transfer)
{
    free(transfer->names);
    free(transfer->ours);
    free(transfer->theirs);
}

/* ---- saving ---- */

static void fill_tensor(const struct names_entry *entry, struct safetensors_tensor *tensor)
{
    *tensor = (struct safetensors_tensor){.type = "F32", .dims = entry->dims};
    snprintf(tensor->name, sizeof(tensor->name), "%s", entry->name);
    for (int i = 0; i < entry->dims; i++)
        tensor->shape[i] = (uint64_t)entry->shape[i];
}

static enum status write_weights(struct transfer *transfer, struct tensor_file *file)
{
    struct model *model = &transfer->trainer->model;
    enum status status = STATUS_OK;

    for (int p = 0; p < model->param_count && !status; p++) {
        struct param *param = &model->params[p];

        status = cuda_device_read(model->device, transfer->ours, param->weight.data,
                                  param_count(param) * sizeof(float), "copying weights");
        if (!status)
            status = checkpoint_check_finite(transfer->trainer, transfer->ours,
                                             param_count(param) * sizeof(float));
        if (!status) {
            names_to_torch(&transfer->names[p], param->rows, transfer->ours, transfer->theirs);
            status = tensor_file_write(file, transfer->theirs, param_count(param) * sizeof(float));
        }
    }
    return status;
}

enum status weights_save(struct trainer *trainer, const char *path)
{
    struct model *model = &trainer->model;
    struct tensor_file file = {0};
    struct safetensors_tensor *tensors = calloc((size_t)model->param_count, sizeof(*tensors));
    struct transfer transfer;
    enum status status = open_transfer(&transfer, trainer);

    if (!status && !tensors)
        status = status_fail(STATUS_NO_MEMORY, "no host memory for the weights");
    for (int p = 0; p < model->param_count && !status; p++) {
        if (model->params[p].bytes.data)
            status = status_fail(STATUS_FAILED,
                                 "--save-weights=%s: it takes floats, and the weights are int8", path);
    }
    for (int p = 0; p < model->param_count && !status; p++)
        fill_tensor(&transfer.names[p], &tensors[p]);
    if (!status)
        status = tensor_file_open(&file, path, tensors, (size_t)model->param_count);
    if (!status)
        status = write_weights(&transfer, &file);
    status = tensor_file_close(&file, status);
    close_transfer(&transfer);
    free(tensors);
    return status;
}

enum status weights_can_save(const char *path)
{
    struct tensor_file file = {0};
    struct stat info;
    enum status status;

    if (!stat(path, &info) && !S_ISREG(info.st_mode))
        return status_fail(STATUS_FAILED,
                           "--save-weights=%s: it exists and is not a regular file, so it is not replaced",
                           path);
    status = tensor_file_open(&file, path, NULL, 0);
    if (file.file) {
        fclose(file.file);
        unlink(file.temporary);
    }
    return status;
}

/* ---- loading ---- */

static enum status refuse(const char *path, const char *what)
{
    return status_fail(STATUS_FAILED, "--load-weights=%s: %s", path, what);
}

static enum status read_at(int fd, const char *path, void *bytes, size_t count, off_t from)
{
    const char *reason;

    return file_read_at(fd, bytes, count, (uint64_t)from, &reason) ? refuse(path, reason) : STATUS_OK;
}

/* Reads and checks the header. Sets *data to where the data begins. */
static enum status read_header(int fd, const char *path, struct safetensors_table *table, off_t *data)
{
    struct stat info;
    uint64_t length = 0;
    enum status status;
    const char *wrong;
    char *text;

    if (fstat(fd, &info) || !S_ISREG(info.st_mode))
        return refuse(path, "it is not a file");
    if (info.st_size < SAFETENSORS_LENGTH_BYTES)
        return refuse(path, "it is too short for a safetensors file");
    status = read_at(fd, path, &length, sizeof(length), 0);
    if (status)
        return status;
    if (length > SAFETENSORS_MAX_HEADER || length > (uint64_t)info.st_size - SAFETENSORS_LENGTH_BYTES)
        return refuse(path, "it is not a safetensors file, or truncated: its header is longer than the file");
    text = malloc(length + 1);
    if (!text)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the table of %s", path);
    *data = SAFETENSORS_LENGTH_BYTES + (off_t)length;
    status = read_at(fd, path, text, length, SAFETENSORS_LENGTH_BYTES);
    if (!status) {
        wrong = safetensors_parse(text, length, (uint64_t)(info.st_size - *data), table);
        if (wrong)
            status = refuse(path, wrong);
    }
    free(text);
    return status;
}

static bool same_shape(const struct names_entry *entry, const struct safetensors_tensor *tensor)
{
    bool same = entry->dims == tensor->dims;

    for (int i = 0; i < entry->dims && same; i++)
        same = (uint64_t)entry->shape[i] == tensor->shape[i];
    return same;
}

/* Tensors that PyTorch's modules have and these do not: counts of batches, and a second name of a tied table.
 */
static bool may_ignore(const char *name)
{
    static const char count[] = "num_batches_tracked";
    size_t length = strlen(name);

    return strcmp(name, "lm_head.weight") == 0 ||
           (length >= sizeof(count) - 1 && strcmp(name + length - (sizeof(count) - 1), count) == 0);
}

static enum status check_names(struct transfer *transfer, const char *path,
                               const struct safetensors_table *table)
{
    struct model *model = &transfer->trainer->model;
    int ignored = 0;

    for (size_t i = 0; i < table->count; i++)
        ignored += may_ignore(table->tensors[i].name);
    for (int p = 0; p < model->param_count; p++) {
        const struct names_entry *entry = &transfer->names[p];
        const struct safetensors_tensor *tensor = safetensors_find(table, entry->name);

        if (!tensor)
            return status_fail(STATUS_FAILED, "--load-weights=%s: it is of another model: it has no %s", path,
                               entry->name);
        if (strcmp(tensor->type, "F32") != 0)
            return status_fail(STATUS_FAILED, "--load-weights=%s: %s is %s, but only F32 can be loaded", path,
                               entry->name, tensor->type);
        if (!same_shape(entry, tensor))
            return status_fail(STATUS_FAILED,
                               "--load-weights=%s: it is of another model: %s has another shape", path,
                               entry->name);
    }
    if (table->count != (size_t)(model->param_count + ignored))
        return status_fail(STATUS_FAILED,
                           "--load-weights=%s: it is of another model: it has %zu tensors, but this one %d",
                           path, table->count - (size_t)ignored, model->param_count);
    return STATUS_OK;
}

static enum status read_weights(struct transfer *transfer, int fd, const char *path, off_t data,
                                const struct safetensors_table *table)
{
    struct model *model = &transfer->trainer->model;
    enum status status = STATUS_OK;

    for (int p = 0; p < model->param_count && !status; p++) {
        struct param *param = &model->params[p];
        const struct safetensors_tensor *tensor = safetensors_find(table, transfer->names[p].name);

        status = read_at(fd, path, transfer->theirs, param_count(param) * sizeof(float),
                         data + (off_t)tensor->begin);
        if (!status) {
            names_from_torch(&transfer->names[p], param->rows, transfer->theirs, transfer->ours);
            status = cuda_device_write(model->device, param->weight.data, transfer->ours,
                                       param_count(param) * sizeof(float), "copying weights");
        }
        if (!status)
            status = param_refresh(param, model->device, model->type);
    }
    return status;
}

enum status weights_load(struct trainer *trainer, const char *path)
{
    /* O_NONBLOCK: opening a pipe by mistake must not hang. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct safetensors_table table = {0};
    struct transfer transfer;
    enum status status;
    off_t data = 0;

    if (fd < 0)
        return refuse(path, strerror(errno));
    status = open_transfer(&transfer, trainer);
    if (!status)
        status = read_header(fd, path, &table, &data);
    if (!status)
        status = check_names(&transfer, path, &table);
    if (!status)
        status = read_weights(&transfer, fd, path, data, &table);
    safetensors_free(&table);
    close_transfer(&transfer);
    close(fd);
    return status;
}
