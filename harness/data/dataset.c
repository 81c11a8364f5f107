/* Opens a dataset: detects the format of the path, checks the configuration, and calls the format's own
 * file. */
#include "harness/data/dataset_source.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/data/image_shrink.h"

typedef enum status (*open_fn)(struct dataset **out, const struct data_config *config);

/* In the order of enum data_format, without auto. `mark` is the file by which a folder of this format is
 * recognized. */
static const struct {
    const char *name;
    open_fn open;
    const char *mark;
} formats[] = {
    [DATA_SYNTHETIC] = {"synthetic", data_open_synth, NULL},
    [DATA_IDX] = {"idx", data_open_idx, "train-images-idx3-ubyte"},
    [DATA_CIFAR] = {"cifar", data_open_cifar, "data_batch_1.bin"},
    [DATA_FOLDER] = {"folder", data_open_folder, NULL},
    [DATA_TEXT] = {"text", data_open_text, NULL},
};

uint8_t *scratch_need(struct scratch *scratch, size_t bytes)
{
    if (bytes > scratch->capacity || !scratch->data) {
        free(scratch->data);
        scratch->data = malloc(bytes ? bytes : 1);
        scratch->capacity = scratch->data ? bytes : 0;
    }
    return scratch->data;
}

enum status source_alloc(void **out, size_t bytes, const char *what)
{
    *out = calloc(1, bytes ? bytes : 1);
    if (!*out)
        return status_fail(STATUS_NO_MEMORY, "no host memory for %s (%zu bytes)", what, bytes);
    return STATUS_OK;
}

enum status source_set_picture(struct data_spec *spec, const struct data_config *config, int native_h,
                               int native_w, int channels)
{
    spec->c = channels;
    spec->raw_h = config->raw ? config->raw : native_h;
    spec->raw_w = config->raw ? config->raw : native_w;
    spec->h = config->image ? config->image : native_h;
    spec->w = config->image ? config->image : native_w;
    if (spec->h > DATA_MAX_SIDE || spec->w > DATA_MAX_SIDE || spec->raw_h > DATA_MAX_SIDE ||
        spec->raw_w > DATA_MAX_SIDE)
        return status_fail(STATUS_FAILED,
                           "pictures of %dx%d, prepared to %dx%d: at most %d a side is supported",
                           spec->raw_h, spec->raw_w, spec->h, spec->w, DATA_MAX_SIDE);
    return STATUS_OK;
}

static enum status find_format(const struct data_config *config, enum data_format *format)
{
    struct stat info;

    *format = config->format;
    if (!config->path && (*format == DATA_AUTO || *format == DATA_SYNTHETIC)) {
        *format = DATA_SYNTHETIC;
        return STATUS_OK;
    }
    if (!config->path)
        return status_fail(STATUS_FAILED, "--format=%s needs --data=PATH", formats[*format].name);
    if (*format != DATA_AUTO)
        return STATUS_OK;
    if (stat(config->path, &info))
        return status_fail(STATUS_FAILED, "%s: %s", config->path, strerror(errno));
    if (!S_ISDIR(info.st_mode)) {
        *format = DATA_TEXT;
        return STATUS_OK;
    }
    *format = DATA_FOLDER;
    for (size_t i = DATA_SYNTHETIC; i < sizeof(formats) / sizeof(formats[0]); i++) {
        char path[PATH_MAX];

        if (formats[i].mark &&
            snprintf(path, sizeof(path), "%s/%s", config->path, formats[i].mark) < (int)sizeof(path) &&
            !stat(path, &info))
            *format = (enum data_format)i;
    }
    return STATUS_OK;
}

static bool kind_fits(enum data_format format, enum data_kind kind)
{
    switch (format) {
    case DATA_SYNTHETIC:
        return true;
    case DATA_TEXT:
        return kind == DATA_TOKENS;
    default: /* any picture can be degraded and restored */
        return kind == DATA_IMAGES || kind == DATA_PAIRS;
    }
}

static enum status check_config(const struct data_config *config, enum data_format format)
{
    static const char *const kinds[] = {"images with classes", "images to repair", "tokens", "floats"};

    if (!kind_fits(format, config->kind))
        return status_fail(STATUS_FAILED, "%s: it holds %s, but the model needs %s",
                           config->path ? config->path : "synthetic data",
                           format == DATA_TEXT ? "text" : "images", kinds[config->kind]);
    if (config->image < 0 || config->raw < 0 || config->length < 0 || config->classes < 0)
        return status_fail(STATUS_FAILED, "sizes of the data must not be negative");
    if (config->validation < 0.0 || config->validation >= 1.0)
        return status_fail(STATUS_FAILED, "--validation=%g: a fraction from 0 to less than 1 is expected",
                           config->validation);
    return STATUS_OK;
}

enum status dataset_open(struct dataset **out, const struct data_config *config)
{
    enum data_format format;
    enum status status = find_format(config, &format);

    *out = NULL;
    if (!status)
        status = check_config(config, format);
    if (!status)
        status = formats[format].open(out, config);
    if (status)
        return status;
    (*out)->format = formats[format].name;
    (*out)->corrupt = config->corrupt;
    (*out)->spec.kind = config->kind;
    if (config->kind == DATA_PAIRS)
        (*out)->spec.classes = 0;
    return STATUS_OK;
}

void dataset_close(struct dataset *dataset)
{
    if (dataset)
        dataset->close(dataset);
}

const struct data_spec *dataset_spec(const struct dataset *dataset)
{
    return &dataset->spec;
}

const char *dataset_format_name(const struct dataset *dataset)
{
    return dataset->format;
}

void dataset_fit(const struct data_spec *spec, uint32_t h, uint32_t w, uint32_t *fit_h, uint32_t *fit_w)
{
    image_shrink_fit(h, w, (uint32_t)spec->raw_h, (uint32_t)spec->raw_w, fit_h, fit_w);
}

bool dataset_has_files(const struct dataset *dataset)
{
    return dataset->has_files && dataset->spec.kind == DATA_IMAGES;
}
