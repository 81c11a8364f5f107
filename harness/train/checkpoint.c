/* Saving and loading: the file as a whole. checkpoint_param.c has one parameter of it. See checkpoint.h. */
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

#include "harness/train/checkpoint_param.h"
#include "harness/train/checkpoint_place.h"

_Static_assert(sizeof(struct ops_scalars) <= CHECKPOINT_SCALARS_BYTES,
               "the scalars have a place of fixed size");

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

static void set_scale(uint8_t scalars[CHECKPOINT_SCALARS_BYTES], float scale)
{
    memcpy(scalars + offsetof(struct ops_scalars, scale), &scale, sizeof(scale));
}

/* Clears the note of a bad step: with --on-nan=skip or go a run saves after one, and the run that resumes
 * must not stop because of it. */
static void forget_bad_step(uint8_t scalars[CHECKPOINT_SCALARS_BYTES])
{
    memset(scalars + offsetof(struct ops_scalars, bad_step), 0, sizeof(uint64_t));
}

/* Fits the loss scale of a file to this run: it is for fp16, but a run may resume in another precision. A
 * file of a run without scaling has 0; a run without scaling uses 1, whatever the file has. */
static void fit_scale(const struct train_options *options, uint8_t scalars[CHECKPOINT_SCALARS_BYTES])
{
    struct ops_scalars saved;

    memcpy(&saved, scalars, sizeof(saved));
    if (options->precision != PRECISION_FP16)
        set_scale(scalars, 1.0f);
    else if (!(saved.scale > 0.0f && isfinite(saved.scale)))
        set_scale(scalars, (float)options->loss_scale);
}

/* ---- saving ---- */

static enum status fill_header(struct trainer *trainer, const struct checkpoint_entry *entries,
                               struct checkpoint_header *header)
{
    struct model *model = &trainer->model;
    struct pipeline_position position = {0};
    uint64_t bytes = sizeof(*header) + (uint64_t)model->param_count * sizeof(struct checkpoint_entry);
    enum status status;

    memset(header, 0, sizeof(*header));
    memcpy(header->magic, CHECKPOINT_MAGIC, sizeof(header->magic));
    input_tell(&trainer->input, &position);
    for (int p = 0; p < model->param_count; p++)
        bytes += checkpoint_entry_bytes(&entries[p]);
    header->version = CHECKPOINT_VERSION;
    header->param_count = (uint32_t)model->param_count;
    header->file_bytes = bytes;
    header->step = trainer->step;
    header->micro = trainer->micro;
    header->data_seed = position.seed;
    header->data_samples = position.samples;
    header->train_samples = dataset_spec(trainer->dataset)->count[DATA_TRAIN];
    header->val_samples = dataset_spec(trainer->dataset)->count[DATA_VALIDATION];
    header->val_best = trainer->val_best;
    header->missed = trainer->missed && trainer->missed == trainer->step;
    describe(trainer, header->name, sizeof(header->name));
    status = cuda_device_read(trainer->device, header->scalars, trainer->optim.scalars.data,
                              sizeof(struct ops_scalars), "copying a checkpoint");
    if (!status && trainer->options.precision != PRECISION_FP16)
        set_scale(header->scalars, 0.0f);
    return status;
}

static enum status write_contents(struct trainer *trainer, struct checkpoint_file *file,
                                  const struct checkpoint_entry *entries)
{
    struct model *model = &trainer->model;
    const size_t unsummed = offsetof(struct checkpoint_header, version);
    struct checkpoint_header header;
    enum status status = fill_header(trainer, entries, &header);

    checkpoint_sum_open(&file->sum);
    checkpoint_sum_add(&file->sum, (uint8_t *)&header + unsummed, sizeof(header) - unsummed);
    if (!status)
        status = checkpoint_file_write(file, &header, sizeof(header));
    if (!status)
        status = checkpoint_file_add(file, entries, (size_t)model->param_count * sizeof(*entries));
    for (int p = 0; p < model->param_count && !status; p++)
        status = checkpoint_param_save(trainer, file, &model->params[p], &entries[p]);
    if (status)
        return status;
    header.checksum = checkpoint_sum_close(&file->sum);
    if (pwrite(file->fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
        return checkpoint_file_fail(file, STATUS_UNSAVED, "the checkpoint cannot be written");
    return STATUS_OK;
}

static enum status write_kind(struct trainer *trainer, struct checkpoint_file *file,
                              enum checkpoint_kind kind)
{
    struct model *model = &trainer->model;
    struct checkpoint_entry *entries = calloc((size_t)model->param_count + 1, sizeof(*entries));
    enum status status = STATUS_OK;

    file->buffer = malloc(CHECKPOINT_CHUNK);
    if (!entries || !file->buffer)
        status = status_fail(STATUS_NO_MEMORY, "no host memory for a checkpoint");
    for (int p = 0; p < model->param_count && !status; p++)
        status = checkpoint_param_entry(trainer, &model->params[p], kind, &entries[p]);
    if (!status)
        status = write_contents(trainer, file, entries);
    free(file->buffer);
    free(entries);
    return status;
}

/* Returns true if there is a file with something else in it. */
static bool holds_other(const char *path)
{
    struct checkpoint_file file = {.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    char start[sizeof(((struct checkpoint_header *)NULL)->magic)];
    struct stat info;
    bool other = file.fd >= 0 && !fstat(file.fd, &info) && info.st_size > 0 &&
                 (!checkpoint_file_read(&file, start, sizeof(start)) ||
                  memcmp(start, CHECKPOINT_MAGIC, sizeof(start)) != 0);

    if (file.fd >= 0)
        close(file.fd);
    return other;
}

enum status checkpoint_can_save(const char *path)
{
    struct checkpoint_file file = {.path = path};
    char temporary[PATH_MAX];
    struct stat info;

    if (!stat(path, &info) && !S_ISREG(info.st_mode))
        return status_fail(STATUS_FAILED,
                           "--save=%s: it exists and is not a regular file, so it is not replaced", path);
    if (holds_other(path))
        return status_fail(STATUS_FAILED,
                           "--save=%s: it exists and is not a checkpoint, so it is not replaced", path);
    /* Permissions alone do not tell: root has all of them, also where nothing can be created. */
    file.fd = checkpoint_place_create(path, temporary);
    if (file.fd < 0)
        return checkpoint_file_fail(&file, STATUS_FAILED, "the checkpoint cannot be created");
    unlink(temporary);
    close(file.fd);
    return STATUS_OK;
}

static enum status save(struct trainer *trainer, const char *path, uint64_t keep, enum checkpoint_kind kind)
{
    char temporary[PATH_MAX];
    struct checkpoint_file file = {.path = path, .fd = checkpoint_place_create(path, temporary)};
    enum status status;

    if (file.fd < 0)
        return checkpoint_file_fail(&file, STATUS_UNSAVED, "the checkpoint cannot be created");
    status = write_kind(trainer, &file, kind);
    if (!status && fsync(file.fd))
        status = checkpoint_file_fail(&file, STATUS_UNSAVED, "the checkpoint cannot be flushed");
    if (!status && checkpoint_place_commit(temporary, path, keep))
        status = checkpoint_file_fail(&file, STATUS_UNSAVED, "the checkpoint cannot be put in its place");
    if (status) {
        unlink(temporary);
        status_fail(status, "%s: an earlier checkpoint there is unchanged", path);
    }
    close(file.fd); /* with it goes the lock, which has to outlive the rename */
    return status;
}

enum status checkpoint_save(struct trainer *trainer, const char *path, uint64_t keep)
{
    return save(trainer, path, keep, CHECKPOINT_FULL);
}

enum status checkpoint_save_small(struct trainer *trainer, bool sparse, uint64_t *bytes)
{
    char path[PATH_MAX];
    struct stat info;
    enum status status;

    if (snprintf(path, sizeof(path), "%s%s", trainer->options.save, sparse ? ".pruned" : ".int8") >=
        (int)sizeof(path))
        return status_fail(STATUS_FAILED, "--save=%s: the path is too long", trainer->options.save);
    status = save(trainer, path, 1, sparse ? CHECKPOINT_SMALL_SPARSE : CHECKPOINT_SMALL_INT8);
    *bytes = !status && !stat(path, &info) ? (uint64_t)info.st_size : 0;
    return status;
}

/* ---- loading ---- */

static enum status refuse(const struct checkpoint_file *file, const char *what)
{
    return status_fail(STATUS_FAILED, "--resume=%s: %s", file->path, what);
}

/* Checks header, table and checksum. Changes nothing. */
static enum status check_file(struct checkpoint_file *file, struct checkpoint_header *header,
                              struct checkpoint_entry **entries)
{
    const size_t unsummed = offsetof(struct checkpoint_header, version);
    struct stat info;
    const char *wrong;
    uint64_t left;
    size_t table;

    if (fstat(file->fd, &info))
        return checkpoint_file_fail(file, STATUS_FAILED, "fstat");
    if (!S_ISREG(info.st_mode))
        return refuse(file, "it is not a file");
    if (!checkpoint_file_read(file, header, sizeof(*header)))
        return refuse(file, "it is too short for a checkpoint");
    wrong = checkpoint_check_header(header, (uint64_t)info.st_size);
    if (wrong)
        return refuse(file, wrong);
    table = header->param_count * sizeof(**entries);
    *entries = calloc(1, table);
    if (!*entries)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the table of a checkpoint");
    if (!checkpoint_file_read(file, *entries, table))
        return refuse(file, "it is truncated");
    wrong = checkpoint_check_entries(header, *entries);
    if (wrong)
        return refuse(file, wrong);
    checkpoint_sum_open(&file->sum);
    checkpoint_sum_add(&file->sum, (uint8_t *)header + unsummed, sizeof(*header) - unsummed);
    checkpoint_sum_add(&file->sum, *entries, table);
    for (left = header->file_bytes - sizeof(*header) - table; left > 0;) {
        size_t part = left < CHECKPOINT_CHUNK ? (size_t)left : CHECKPOINT_CHUNK;

        if (!checkpoint_file_read(file, file->buffer, part))
            return refuse(file, "it cannot be read to its end");
        checkpoint_sum_add(&file->sum, file->buffer, part);
        left -= part;
    }
    if (checkpoint_sum_close(&file->sum) != header->checksum)
        return refuse(file, "its checksum does not fit its contents: it is damaged");
    return STATUS_OK;
}

/* Returns true if the same data is divided in another way, so that samples which were trained on would be
 * validated with. */
static bool validates_trained(const struct trainer *trainer, const struct checkpoint_header *header)
{
    const struct data_spec *spec = dataset_spec(trainer->dataset);
    uint64_t before = header->train_samples + header->val_samples;
    uint64_t now = spec->count[DATA_TRAIN] + spec->count[DATA_VALIDATION];
    uint64_t lost = spec->kind == DATA_TOKENS; /* a window at the border */

    return trainer->options.data && header->train_samples && now + lost >= before && before + lost >= now &&
           spec->count[DATA_VALIDATION] > header->val_samples;
}

/* Prints a note if the number of files has changed: then another random part of them is for validation. */
static void note_other_files(const struct trainer *trainer, const struct checkpoint_header *header)
{
    const struct data_spec *spec = dataset_spec(trainer->dataset);
    uint64_t before = header->train_samples + header->val_samples;
    uint64_t now = spec->count[DATA_TRAIN] + spec->count[DATA_VALIDATION];

    if (spec->divided && header->train_samples && now != before && !trainer->options.quiet && !trainer->shard)
        fprintf(
            stderr,
            "note: %s has %llu files and had %llu: others than before are left for validation, and may have "
            "been trained on; a folder val beside train avoids that\n",
            trainer->options.data, (unsigned long long)now, (unsigned long long)before);
}

static enum status check_model(struct trainer *trainer, struct checkpoint_file *file,
                               const struct checkpoint_header *header, const struct checkpoint_entry *entries)
{
    struct model *model = &trainer->model;
    bool small = checkpoint_is_small(header, entries);
    char name[CHECKPOINT_NAME_BYTES];

    describe(trainer, name, sizeof(name));
    if (strcmp(name, header->name) != 0)
        return status_fail(STATUS_FAILED,
                           "--resume=%s: it is of another model or optimizer: %s, but this one is %s",
                           file->path, header->name, name);
    if (header->param_count != (uint32_t)model->param_count)
        return status_fail(STATUS_FAILED,
                           "--resume=%s: it is of another model: %u parameters, but this one has %d",
                           file->path, header->param_count, model->param_count);
    for (int p = 0; p < model->param_count; p++) {
        struct param *param = &model->params[p];

        if (!checkpoint_param_fits(param, &entries[p], small))
            return status_fail(
                STATUS_FAILED,
                "--resume=%s: it is of another model: parameter %d is %u x %u, but here %u x %u", file->path,
                p, entries[p].rows, entries[p].cols, (uint32_t)param->rows, (uint32_t)param->cols);
    }
    /* The seed chooses the files for validation: with another one, files that were trained on would be
     * validated with. */
    if (header->data_seed != trainer->options.seed &&
        (trainer->options.steps > header->step || trainer->options.data))
        return status_fail(
            STATUS_FAILED,
            "--resume=%s: it was trained with --seed=%llu, and now it is --seed=%llu: the seed "
            "chooses samples and their order, so use the same",
            file->path, (unsigned long long)header->data_seed, (unsigned long long)trainer->options.seed);
    if (validates_trained(trainer, header))
        return status_fail(
            STATUS_FAILED,
            "--resume=%s: it was trained with %llu samples left for validation, and now these are %llu: the "
            "others it was trained on; use the same --validation, or less",
            file->path, (unsigned long long)header->val_samples,
            (unsigned long long)dataset_spec(trainer->dataset)->count[DATA_VALIDATION]);
    if (small && trainer->options.steps > header->step)
        return status_fail(STATUS_FAILED,
                           "--resume=%s: it holds weights without the optimizer's state, for evaluation: "
                           "use --steps=0, or go on from the checkpoint beside it",
                           file->path);
    if (small && trainer->options.save && trainer->options.quantize == QUANTIZE_NONE)
        return status_fail(STATUS_FAILED,
                           "--resume=%s: it holds weights without the optimizer's state, for evaluation: "
                           "nothing would be saved to --save=%s",
                           file->path, trainer->options.save);
    return STATUS_OK;
}

static enum status read_contents(struct trainer *trainer, struct checkpoint_file *file,
                                 const struct checkpoint_header *header,
                                 const struct checkpoint_entry *entries)
{
    struct model *model = &trainer->model;
    off_t start = (off_t)(sizeof(*header) + header->param_count * sizeof(*entries));
    bool small = checkpoint_is_small(header, entries);
    enum status status = STATUS_OK;

    if (lseek(file->fd, start, SEEK_SET) != start)
        return checkpoint_file_fail(file, STATUS_FAILED, "lseek");
    for (int p = 0; p < model->param_count && !status; p++)
        status = checkpoint_param_load(trainer, file, &model->params[p], &entries[p], small);
    if (!status && small)
        status = supply_trim(trainer->supply, trainer->device->stream);
    trainer->small = small;
    if (!status)
        status = cuda_device_write(trainer->device, trainer->optim.scalars.data, header->scalars,
                                   sizeof(struct ops_scalars), "copying a checkpoint");
    if (status)
        return status;
    trainer->step = header->step;
    trainer->micro = trainer->first_micro = header->micro;
    trainer->missed = header->missed && !trainer->shard ? header->step : 0; /* replica 0 validates */
    trainer->val_best = isfinite(header->val_best) && header->val_best > 0.0 ? header->val_best : 0.0;
    return input_seek(&trainer->input, &(struct pipeline_position){.seed = header->data_seed,
                                                                   .samples = header->data_samples});
}

enum status checkpoint_load(struct trainer *trainer, const char *path)
{
    /* O_NONBLOCK: opening a pipe by mistake must not hang. */
    struct checkpoint_file file = {.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    struct checkpoint_entry *entries = NULL;
    struct checkpoint_header header = {0};
    enum status status;

    if (file.fd < 0)
        return status_fail(STATUS_FAILED, "--resume=%s: %s", path, strerror(errno));
    file.buffer = malloc(CHECKPOINT_CHUNK);
    status = file.buffer ? check_file(&file, &header, &entries)
                         : status_fail(STATUS_NO_MEMORY, "no host memory for a checkpoint");
    if (!status && entries)
        status = check_model(trainer, &file, &header, entries);
    if (!status) {
        note_other_files(trainer, &header);
        fit_scale(&trainer->options, header.scalars);
        forget_bad_step(header.scalars);
        status = read_contents(trainer, &file, &header, entries);
    }
    free(entries);
    free(file.buffer);
    close(file.fd);
    return status;
}

bool checkpoint_is_int8(const char *path)
{
    struct checkpoint_file file = {.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    struct checkpoint_header header;
    struct checkpoint_entry entry;
    struct stat info;
    bool found = false;
    bool good = file.fd >= 0 && !fstat(file.fd, &info) &&
                checkpoint_file_read(&file, &header, sizeof(header)) &&
                !checkpoint_check_header(&header, (uint64_t)info.st_size);

    for (uint32_t i = 0; good && i < header.param_count; i++) {
        good = checkpoint_file_read(&file, &entry, sizeof(entry));
        found |= good && entry.form == CHECKPOINT_INT8;
    }
    if (file.fd >= 0)
        close(file.fd);
    return good && found;
}
