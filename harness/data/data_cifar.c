/* The CIFAR-10 source: data_batch_1.bin to data_batch_5.bin and test_batch.bin in one folder. Records are
 * read when they are needed, so the files take no memory. */
#include "harness/data/dataset_source.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/data/cifar.h"
#include "harness/data/file.h"

enum { TRAIN_FILES = 5, FILES = TRAIN_FILES + 1, NAME_BYTES = 32 };

struct cifar_file {
    int fd; /* -1: not there */
    uint64_t count;
};

struct cifar {
    struct dataset dataset;
    struct cifar_file file[FILES]; /* the last is for validation */
    char *path;
};

static void file_name(int file, char name[NAME_BYTES])
{
    if (file < TRAIN_FILES)
        snprintf(name, NAME_BYTES, "data_batch_%d.bin", file + 1);
    else
        snprintf(name, NAME_BYTES, "test_batch.bin");
}

static void say(const struct cifar *source, int file, uint64_t record, const char *reason,
                char message[SOURCE_MESSAGE_BYTES])
{
    char name[NAME_BYTES];

    file_name(file, name);
    snprintf(message, SOURCE_MESSAGE_BYTES, "%.300s/%s: record %llu: %s", source->path, name,
             (unsigned long long)record, reason);
}

static enum source_result cifar_read(struct dataset *dataset, enum data_split split, uint64_t index,
                                     struct rng *rng, struct sample *sample, struct scratch *scratch,
                                     char message[SOURCE_MESSAGE_BYTES])
{
    struct cifar *source = (struct cifar *)dataset;
    uint8_t record[CIFAR_RECORD], image[CIFAR_CHANNELS * CIFAR_PIXELS];
    int file = split == DATA_TRAIN ? 0 : TRAIN_FILES;
    const char *reason;

    (void)rng;
    (void)scratch;
    while (file < FILES - 1 && index >= source->file[file].count)
        index -= source->file[file++].count;
    if (file_read_at(source->file[file].fd, record, sizeof(record), index * CIFAR_RECORD, &reason) ||
        (reason = cifar_parse(record, sizeof(record), image, sample->labels))) {
        say(source, file, index, reason, message);
        return SOURCE_CORRUPT;
    }
    for (size_t y = 0; y < CIFAR_SIDE; y++)
        memcpy(sample->bytes + y * (size_t)dataset->spec.raw_w * CIFAR_CHANNELS,
               image + y * CIFAR_SIDE * CIFAR_CHANNELS, CIFAR_SIDE * CIFAR_CHANNELS);
    sample->h = CIFAR_SIDE;
    sample->w = CIFAR_SIDE;
    return SOURCE_OK;
}

static void cifar_close(struct dataset *dataset)
{
    struct cifar *source = (struct cifar *)dataset;

    for (int i = 0; i < FILES; i++) {
        if (source->file[i].fd >= 0)
            close(source->file[i].fd);
    }
    free(source->path);
    free(source);
}

/* The first file is required; a message names each of the others that is missing. */
static enum status open_file(struct cifar *source, int index, enum data_corrupt corrupt)
{
    struct cifar_file *file = &source->file[index];
    char path[PATH_MAX], name[NAME_BYTES];
    const char *reason;
    uint64_t bytes;

    file_name(index, name);
    if (snprintf(path, sizeof(path), "%s/%s", source->path, name) >= (int)sizeof(path))
        return status_fail(STATUS_FAILED, "--data: the path is too long");
    if (file_open(path, &file->fd, &bytes, &reason)) {
        if (index == 0 || corrupt == CORRUPT_REFUSE)
            return status_fail(STATUS_FAILED, "%s: %s", path, reason);
        return status_fail(STATUS_OK, "%s: %s; going on without it", path, reason);
    }
    file->count = cifar_count(bytes, &reason);
    if (reason && (corrupt == CORRUPT_REFUSE || (index == 0 && !file->count)))
        return status_fail(STATUS_FAILED, "%s: %s", path, reason);
    if (reason)
        return status_fail(STATUS_OK, "%s: %s; its first %llu records are used", path, reason,
                           (unsigned long long)file->count);
    return STATUS_OK;
}

static enum status fill_spec(struct cifar *source, const struct data_config *config)
{
    /* The usual means and deviations, those of the training set. */
    static const float mean[] = {0.4914f, 0.4822f, 0.4465f}, deviation[] = {0.2470f, 0.2435f, 0.2616f};
    struct data_spec *spec = &source->dataset.spec;

    spec->classes = CIFAR_CLASSES;
    memcpy(spec->mean, mean, sizeof(mean));
    memcpy(spec->deviation, deviation, sizeof(deviation));
    for (int i = 0; i < FILES; i++)
        spec->count[i < TRAIN_FILES ? DATA_TRAIN : DATA_VALIDATION] += source->file[i].count;
    if (config->raw && config->raw < CIFAR_SIDE)
        return status_fail(STATUS_FAILED, "--raw=%d: CIFAR-10 pictures are %d pixels a side", config->raw,
                           CIFAR_SIDE);
    return source_set_picture(spec, config, CIFAR_SIDE, CIFAR_SIDE, CIFAR_CHANNELS);
}

enum status data_open_cifar(struct dataset **out, const struct data_config *config)
{
    struct cifar *source;
    enum status status = source_alloc((void **)&source, sizeof(*source), "the data source");

    if (status)
        return status;
    source->dataset.read = cifar_read;
    source->dataset.close = cifar_close;
    source->dataset.worth_caching = true;
    source->dataset.augment = (struct source_augment){.shift = 4.0f, .min_area = 1.0f, .mirror = true};
    for (int i = 0; i < FILES; i++)
        source->file[i].fd = -1;
    source->path = strdup(config->path);
    if (!source->path)
        status = status_fail(STATUS_NO_MEMORY, "no host memory for a path");
    for (int i = 0; i < FILES && !status; i++)
        status = open_file(source, i, config->corrupt);
    if (!status)
        status = fill_spec(source, config);
    if (status)
        cifar_close(&source->dataset);
    else
        *out = &source->dataset;
    return status;
}
