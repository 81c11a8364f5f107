/* The text source: bytes are tokens. The last part of the file is for validation, in windows one after the
 * other; training windows start anywhere in the rest. Windows are read when they are needed, so the file may
 * be larger than memory. */
#include "harness/data/dataset_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/data/file.h"
#include "harness/data/text.h"

enum { VOCABULARY = 256, DEFAULT_LENGTH = 128, GZIP_FIRST = 0x1f, GZIP_SECOND = 0x8b };

static const double default_validation = 0.1;

struct text {
    struct dataset dataset;
    struct text_layout layout;
    int fd;
    char *path;
};

static enum source_result text_read(struct dataset *dataset, enum data_split split, uint64_t index,
                                    struct rng *rng, struct sample *sample, struct scratch *scratch,
                                    char message[SOURCE_MESSAGE_BYTES])
{
    struct text *source = (struct text *)dataset;
    size_t length = (size_t)dataset->spec.length;
    uint64_t at = text_window(&source->layout, split, index, rng);
    uint8_t *bytes = scratch_need(scratch, length + 1);
    const char *reason = "no host memory for a window";

    if (!bytes || file_read_at(source->fd, bytes, length + 1, at, &reason)) {
        snprintf(message, SOURCE_MESSAGE_BYTES, "%.300s: %s", source->path, reason);
        return bytes ? SOURCE_CORRUPT : SOURCE_NO_MEMORY;
    }
    for (size_t i = 0; i < length; i++) {
        sample->tokens[i] = bytes[i];
        sample->labels[i] = bytes[i + 1];
    }
    return SOURCE_OK;
}

static void text_close(struct dataset *dataset)
{
    struct text *source = (struct text *)dataset;

    if (source->fd >= 0)
        close(source->fd);
    free(source->path);
    free(source);
}

static enum status check_start(const struct text *source, uint64_t bytes)
{
    uint8_t start[2];
    const char *reason;

    if (bytes < sizeof(start))
        return STATUS_OK;
    if (file_read_at(source->fd, start, sizeof(start), 0, &reason))
        return status_fail(STATUS_FAILED, "%s: %s", source->path, reason);
    if (start[0] == GZIP_FIRST && start[1] == GZIP_SECOND)
        return status_fail(STATUS_FAILED, "%s: it is compressed with gzip; unpack it first", source->path);
    return STATUS_OK;
}

static enum status open_text(struct text *source, const struct data_config *config)
{
    struct data_spec *spec = &source->dataset.spec;
    const char *reason;
    double validation;
    uint64_t bytes;
    enum status status;

    source->path = strdup(config->path);
    if (!source->path)
        return status_fail(STATUS_NO_MEMORY, "no host memory for a path");
    if (file_open(source->path, &source->fd, &bytes, &reason))
        return status_fail(STATUS_FAILED, "%s: %s", source->path, reason);
    status = check_start(source, bytes);
    if (status)
        return status;
    spec->vocabulary = VOCABULARY;
    spec->length = config->length ? config->length : DEFAULT_LENGTH;
    validation = config->validation > 0.0 ? config->validation : default_validation;
    source->layout = text_divide(bytes, (uint64_t)spec->length, config->no_validation ? 0.0 : validation);
    spec->count[DATA_TRAIN] = source->layout.count[DATA_TRAIN];
    spec->count[DATA_VALIDATION] = source->layout.count[DATA_VALIDATION];
    if (spec->count[DATA_TRAIN] == 0)
        return status_fail(STATUS_FAILED, "%s: its %llu bytes are too few for windows of %d tokens",
                           source->path, (unsigned long long)bytes, spec->length);
    return STATUS_OK;
}

enum status data_open_text(struct dataset **out, const struct data_config *config)
{
    struct text *source;
    enum status status = source_alloc((void **)&source, sizeof(*source), "the data source");

    if (status)
        return status;
    source->dataset.read = text_read;
    source->dataset.close = text_close;
    source->fd = -1;
    status = open_text(source, config);
    if (status)
        text_close(&source->dataset);
    else
        *out = &source->dataset;
    return status;
}
