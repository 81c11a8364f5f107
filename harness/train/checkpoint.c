/* Saving and loading. Device memory goes through one buffer of bounded size. See checkpoint.h. */
#include "harness/train/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/train/checkpoint_format.h"
#include "harness/train/checkpoint_place.h"
#include "harness/train/trainer.h"

enum { CHUNK = 16 << 20, COPIES = 3 };

_Static_assert(sizeof(struct ops_scalars) <= CHECKPOINT_SCALARS_BYTES,
               "the scalars have a place of fixed size");

struct file {
    const char *path;
    int fd;
    struct checkpoint_sum sum;
    uint8_t *buffer; /* CHUNK bytes */
};

static void describe(const struct trainer *trainer, char *name, size_t size)
{
    const struct train_options *options = &trainer->options;
    char model[16];

    snprintf(name, size, "%s layers=%llu width=%llu heads=%llu length=%llu vocabulary=%llu optimizer=%s",
             train_options_choice("model", options->model, model, sizeof(model)),
             (unsigned long long)options->layers, (unsigned long long)options->width,
             (unsigned long long)options->heads, (unsigned long long)options->length,
             (unsigned long long)options->vocabulary, options->optimizer == OPTIMIZER_SGD ? "sgd" : "adam");
}

static enum status fail(const struct file *file, const char *what)
{
    return status_fail(STATUS_FAILED, "%s: %s: %s", file->path, what, strerror(errno));
}

static enum status write_all(struct file *file, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;

    while (count > 0) {
        ssize_t written = write(file->fd, at, count);

        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            errno = written < 0 ? errno : ENOSPC;
            return fail(file, "the checkpoint cannot be written");
        }
        at += written;
        count -= (size_t)written;
    }
    return STATUS_OK;
}

/* False at the end of the file and on an error. */
static bool read_all(struct file *file, void *bytes, size_t count)
{
    uint8_t *at = bytes;

    while (count > 0) {
        ssize_t got = read(file->fd, at, count);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        count -= (size_t)got;
    }
    return true;
}

static uint32_t arrays_of(struct param *param, struct tensor *out[COPIES])
{
    uint32_t count = 0;

    out[count++] = &param->weight;
    if (param->first.data)
        out[count++] = &param->first;
    if (param->second.data)
        out[count++] = &param->second;
    return count;
}

static bool all_finite(const uint8_t *bytes, size_t count)
{
    const uint32_t exponent = 0x7f800000u; /* all ones: infinite or not a number */
    uint32_t bad = 0;
    uint32_t bits;

    for (size_t at = 0; at < count; at += sizeof(bits)) {
        memcpy(&bits, bytes + at, sizeof(bits));
        bad |= (bits & exponent) == exponent;
    }
    return !bad;
}

/* Copies a tensor between the device and the file, chunk by chunk. An update can overflow though its loss and
 * gradients are finite: that is found here, before the file is put into its place. */
static enum status move_tensor(struct trainer *trainer, struct file *file, const struct tensor *tensor,
                               size_t bytes, bool save)
{
    cudaStream_t stream = trainer->device->stream;
    enum status status = STATUS_OK;

    for (size_t done = 0; done < bytes && !status; done += CHUNK) {
        size_t part = bytes - done < CHUNK ? bytes - done : CHUNK;
        char *device = (char *)tensor->data + done;

        if (!save && !read_all(file, file->buffer, part))
            return fail(file, "the checkpoint cannot be read");
        status = cuda_device_status(
            save ? cudaMemcpyAsync(file->buffer, device, part, cudaMemcpyDeviceToHost, stream)
                 : cudaMemcpyAsync(device, file->buffer, part, cudaMemcpyHostToDevice, stream),
            "copying a checkpoint");
        if (!status)
            status = cuda_device_status(cudaStreamSynchronize(stream), "copying a checkpoint");
        if (!status && save && trainer->options.on_nan != ON_NAN_GO && !all_finite(file->buffer, part))
            status = status_fail(STATUS_NOT_FINITE,
                                 "a weight or moment at step %llu is not finite: no checkpoint of it is kept",
                                 (unsigned long long)trainer->step);
        if (!status && save) {
            checkpoint_sum_add(&file->sum, file->buffer, part);
            status = write_all(file, file->buffer, part);
        }
    }
    return status;
}

/* The loss scale is for fp16, but a run may resume in another precision. A file of a run without scaling
 * has 0; a run without scaling uses 1, whatever the file has. */
static void set_scale(uint8_t scalars[CHECKPOINT_SCALARS_BYTES], float scale)
{
    memcpy(scalars + offsetof(struct ops_scalars, scale), &scale, sizeof(scale));
}

static void fit_scale(const struct train_options *options, uint8_t scalars[CHECKPOINT_SCALARS_BYTES])
{
    struct ops_scalars saved;

    memcpy(&saved, scalars, sizeof(saved));
    if (options->precision != PRECISION_FP16)
        set_scale(scalars, 1.0f);
    else if (saved.scale <= 0.0f)
        set_scale(scalars, (float)options->loss_scale);
}

/* ---- saving ---- */

static enum status fill_header(struct trainer *trainer, struct checkpoint_header *header)
{
    struct model *model = &trainer->model;
    struct pipeline_position position = {0};
    uint64_t bytes = sizeof(*header) + (uint64_t)model->param_count * sizeof(struct checkpoint_entry);
    struct tensor *arrays[COPIES];
    enum status status;

    memset(header, 0, sizeof(*header));
    memcpy(header->magic, CHECKPOINT_MAGIC, sizeof(header->magic));
    input_tell(&trainer->input, &position);
    for (int p = 0; p < model->param_count; p++)
        bytes += param_count(&model->params[p]) * sizeof(float) * arrays_of(&model->params[p], arrays);
    header->version = CHECKPOINT_VERSION;
    header->param_count = (uint32_t)model->param_count;
    header->file_bytes = bytes;
    header->step = trainer->step;
    header->micro = trainer->micro;
    header->data_seed = position.seed;
    header->data_samples = position.samples;
    header->val_best = trainer->val_best;
    describe(trainer, header->name, sizeof(header->name));
    status = cuda_device_status(cudaMemcpyAsync(header->scalars, trainer->optim.scalars.data,
                                                sizeof(struct ops_scalars), cudaMemcpyDeviceToHost,
                                                trainer->device->stream),
                                "copying a checkpoint");
    if (!status)
        status = cuda_device_status(cudaStreamSynchronize(trainer->device->stream), "copying a checkpoint");
    if (!status && trainer->options.precision != PRECISION_FP16)
        set_scale(header->scalars, 0.0f);
    return status;
}

static enum status write_contents(struct trainer *trainer, struct file *file)
{
    struct model *model = &trainer->model;
    const size_t unsummed = offsetof(struct checkpoint_header, version);
    struct checkpoint_header header;
    struct tensor *arrays[COPIES];
    enum status status = fill_header(trainer, &header);

    checkpoint_sum_open(&file->sum);
    checkpoint_sum_add(&file->sum, (uint8_t *)&header + unsummed, sizeof(header) - unsummed);
    if (!status)
        status = write_all(file, &header, sizeof(header));
    for (int p = 0; p < model->param_count && !status; p++) {
        struct param *param = &model->params[p];
        struct checkpoint_entry entry = {
            .rows = (uint32_t)param->rows, .cols = (uint32_t)param->cols, .copies = arrays_of(param, arrays)};

        checkpoint_sum_add(&file->sum, &entry, sizeof(entry));
        status = write_all(file, &entry, sizeof(entry));
    }
    for (int p = 0; p < model->param_count && !status; p++) {
        struct param *param = &model->params[p];
        uint32_t count = arrays_of(param, arrays);

        for (uint32_t i = 0; i < count && !status; i++)
            status = move_tensor(trainer, file, arrays[i], param_count(param) * sizeof(float), true);
    }
    if (status)
        return status;
    header.checksum = checkpoint_sum_close(&file->sum);
    if (pwrite(file->fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
        return fail(file, "the checkpoint cannot be written");
    return STATUS_OK;
}

enum status checkpoint_can_save(const char *path)
{
    struct file file = {.path = path};
    char folder[PATH_MAX];
    struct stat info;

    if (!stat(path, &info) && !S_ISREG(info.st_mode))
        return status_fail(STATUS_FAILED, "--save=%s: what is there is not a file, and stays", path);
    checkpoint_place_folder(path, folder);
    return access(folder, W_OK | X_OK) ? fail(&file, "the checkpoint cannot be created") : STATUS_OK;
}

enum status checkpoint_save(struct trainer *trainer, const char *path, uint64_t keep)
{
    char temporary[PATH_MAX];
    struct file file = {.path = path, .fd = checkpoint_place_create(path, temporary)};
    enum status status;

    if (file.fd < 0)
        return fail(&file, "the checkpoint cannot be created");
    file.buffer = malloc(CHUNK);
    status = file.buffer ? write_contents(trainer, &file)
                         : status_fail(STATUS_NO_MEMORY, "no host memory for a checkpoint");
    if (!status && fsync(file.fd))
        status = fail(&file, "the checkpoint cannot be flushed");
    if (!status && checkpoint_place_commit(temporary, path, keep))
        status = fail(&file, "the checkpoint cannot be put in its place");
    if (status) {
        unlink(temporary);
        status_fail(status, "%s: the checkpoint that was there before, if any, is untouched", path);
    }
    close(file.fd); /* with it goes the lock, which has to outlive the rename */
    free(file.buffer);
    return status;
}

/* ---- loading ---- */

static enum status refuse(const struct file *file, const char *what)
{
    return status_fail(STATUS_FAILED, "--resume=%s: %s", file->path, what);
}

/* Checks header, table and checksum. Changes nothing. */
static enum status check_file(struct file *file, struct checkpoint_header *header,
                              struct checkpoint_entry **entries)
{
    const size_t unsummed = offsetof(struct checkpoint_header, version);
    struct stat info;
    const char *wrong;
    uint64_t left;
    size_t table;

    if (fstat(file->fd, &info))
        return fail(file, "fstat");
    if (!S_ISREG(info.st_mode))
        return refuse(file, "it is not a file");
    if (!read_all(file, header, sizeof(*header)))
        return refuse(file, "it is too short for a checkpoint");
    wrong = checkpoint_check_header(header, (uint64_t)info.st_size);
    if (wrong)
        return refuse(file, wrong);
    table = header->param_count * sizeof(**entries);
    *entries = calloc(1, table);
    if (!*entries)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the table of a checkpoint");
    if (!read_all(file, *entries, table))
        return refuse(file, "it is truncated");
    wrong = checkpoint_check_entries(header, *entries);
    if (wrong)
        return refuse(file, wrong);
    checkpoint_sum_open(&file->sum);
    checkpoint_sum_add(&file->sum, (uint8_t *)header + unsummed, sizeof(*header) - unsummed);
    checkpoint_sum_add(&file->sum, *entries, table);
    for (left = header->file_bytes - sizeof(*header) - table; left > 0;) {
        size_t part = left < CHUNK ? (size_t)left : CHUNK;

        if (!read_all(file, file->buffer, part))
            return refuse(file, "it cannot be read to its end");
        checkpoint_sum_add(&file->sum, file->buffer, part);
        left -= part;
    }
    if (checkpoint_sum_close(&file->sum) != header->checksum)
        return refuse(file, "its checksum does not fit its contents: it is damaged");
    return STATUS_OK;
}

static enum status check_model(struct trainer *trainer, struct file *file,
                               const struct checkpoint_header *header, const struct checkpoint_entry *entries)
{
    struct model *model = &trainer->model;
    char name[CHECKPOINT_NAME_BYTES];
    struct tensor *arrays[COPIES];

    describe(trainer, name, sizeof(name));
    if (strcmp(name, header->name) != 0)
        return status_fail(STATUS_FAILED, "--resume=%s: it is of another model: %s, but this one is %s",
                           file->path, header->name, name);
    if (header->param_count != (uint32_t)model->param_count)
        return status_fail(STATUS_FAILED,
                           "--resume=%s: it is of another model: %u parameters, but this one has %d",
                           file->path, header->param_count, model->param_count);
    for (int p = 0; p < model->param_count; p++) {
        struct param *param = &model->params[p];

        if (entries[p].rows != (uint32_t)param->rows || entries[p].cols != (uint32_t)param->cols ||
            entries[p].copies != arrays_of(param, arrays))
            return status_fail(
                STATUS_FAILED,
                "--resume=%s: it is of another model: parameter %d is %u x %u, but here %u x %u", file->path,
                p, entries[p].rows, entries[p].cols, (uint32_t)param->rows, (uint32_t)param->cols);
    }
    return STATUS_OK;
}

static enum status read_contents(struct trainer *trainer, struct file *file,
                                 const struct checkpoint_header *header)
{
    struct model *model = &trainer->model;
    off_t start = (off_t)(sizeof(*header) + header->param_count * sizeof(struct checkpoint_entry));
    struct tensor *arrays[COPIES];
    enum status status = STATUS_OK;

    if (lseek(file->fd, start, SEEK_SET) != start)
        return fail(file, "lseek");
    for (int p = 0; p < model->param_count && !status; p++) {
        struct param *param = &model->params[p];
        uint32_t count = arrays_of(param, arrays);

        for (uint32_t i = 0; i < count && !status; i++)
            status = move_tensor(trainer, file, arrays[i], param_count(param) * sizeof(float), false);
        if (!status)
            status = param_refresh(param, trainer->device, model->type);
    }
    if (!status)
        status = cuda_device_status(cudaMemcpyAsync(trainer->optim.scalars.data, header->scalars,
                                                    sizeof(struct ops_scalars), cudaMemcpyHostToDevice,
                                                    trainer->device->stream),
                                    "copying a checkpoint");
    if (!status)
        status = cuda_device_status(cudaStreamSynchronize(trainer->device->stream), "copying a checkpoint");
    if (status)
        return status;
    trainer->step = header->step;
    trainer->micro = header->micro;
    trainer->val_best = isfinite(header->val_best) && header->val_best > 0.0 ? header->val_best : 0.0;
    return input_seek(&trainer->input, &(struct pipeline_position){.seed = header->data_seed,
                                                                   .samples = header->data_samples});
}

enum status checkpoint_load(struct trainer *trainer, const char *path)
{
    /* O_NONBLOCK: opening a pipe by mistake must not hang. */
    struct file file = {.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    struct checkpoint_entry *entries = NULL;
    struct checkpoint_header header = {0};
    enum status status;

    if (file.fd < 0)
        return status_fail(STATUS_FAILED, "--resume=%s: %s", path, strerror(errno));
    file.buffer = malloc(CHUNK);
    status = file.buffer ? check_file(&file, &header, &entries)
                         : status_fail(STATUS_NO_MEMORY, "no host memory for a checkpoint");
    if (!status && entries)
        status = check_model(trainer, &file, &header, entries);
    if (!status) {
        fit_scale(&trainer->options, header.scalars);
        status = read_contents(trainer, &file, &header);
    }
    free(entries);
    free(file.buffer);
    close(file.fd);
    return status;
}
