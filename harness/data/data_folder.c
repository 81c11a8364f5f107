/* Image files in folders (listing.h describes the layouts). A file is opened, read and decoded, and its
 * errors found, when its sample is needed. Without a folder for validation, the seed chooses files for it. */
#include "harness/data/dataset_source.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/data/file.h"
#include "harness/data/image_decode.h"
#include "harness/data/image_header.h"
#include "harness/data/listing.h"
#include "harness/data/shuffle.h"

enum {
    DEFAULT_SIDE = 64,
    CODED_MAX_PIXELS = 1 << 22 /* of a picture that the device decodes whole: 12 MiB of its memory */
};

static const double default_validation = 0.1;

struct folder_split {
    struct listing listing; /* empty: the training split's is used */
    char *path;
};

struct folder {
    struct dataset dataset;
    struct folder_split split[DATA_SPLITS];
    uint64_t aside; /* files of the training listing used for validation; 0 if that has a folder */
    uint64_t key;   /* chooses them */
};

/* Finds the listing and the file of a sample. */
static const struct folder_split *find(const struct folder *source, enum data_split split, uint64_t index,
                                       uint64_t *file)
{
    const struct folder_split *train = &source->split[DATA_TRAIN];

    *file = index;
    if (!source->aside)
        return &source->split[split];
    *file = shuffle_place(source->key, split == DATA_VALIDATION ? index : source->aside + index,
                          train->listing.count);
    return train;
}

static enum source_result load(const char *path, struct scratch *scratch, size_t *bytes, const char **reason)
{
    enum source_result result = SOURCE_CORRUPT;
    uint64_t size;
    int fd;

    if (file_open(path, &fd, &size, reason))
        return SOURCE_CORRUPT;
    if (size > IMAGE_MAX_FILE) {
        *reason = "it is larger than 64 MiB";
    } else if (!scratch_need(scratch, size)) {
        *reason = "no host memory to read it";
        result = SOURCE_NO_MEMORY;
    } else if (!file_read_at(fd, scratch->data, size, 0, reason)) {
        result = SOURCE_OK;
    }
    *bytes = size;
    close(fd);
    return result;
}

static enum source_result decode(const struct data_spec *spec, const struct scratch *scratch, size_t bytes,
                                 struct sample *sample, char wrong[IMAGE_MESSAGE])
{
    struct image image = {.out = sample->bytes, (uint32_t)spec->raw_h, (uint32_t)spec->raw_w, 0, 0};

    switch (image_decode(&image, scratch->data, bytes, wrong)) {
    case IMAGE_OK:
        sample->h = (int)image.h;
        sample->w = (int)image.w;
        return SOURCE_OK;
    case IMAGE_NO_MEMORY:
        return SOURCE_NO_MEMORY;
    default:
        return SOURCE_CORRUPT;
    }
}

/* Hands the file over as it is, if the device can decode it and it fits. */
static bool leave_coded(const struct data_spec *spec, const struct scratch *scratch, size_t bytes,
                        struct sample *sample)
{
    struct image_header header;
    uint32_t h, w;

    if (!sample->coded || bytes > sample->room || !image_header_read(scratch->data, bytes, &header) ||
        (uint64_t)header.h * header.w > CODED_MAX_PIXELS)
        return false;
    memcpy(sample->bytes, scratch->data, bytes);
    *sample->coded = (struct coded_picture){(uint32_t)bytes, header.h, header.w};
    dataset_fit(spec, header.h, header.w, &h, &w);
    sample->h = (int)h;
    sample->w = (int)w;
    return true;
}

static enum source_result folder_read(struct dataset *dataset, enum data_split split, uint64_t index,
                                      struct rng *rng, struct sample *sample, struct scratch *scratch,
                                      char message[SOURCE_MESSAGE_BYTES])
{
    char path[PATH_MAX], wrong[IMAGE_MESSAGE] = "the path is too long";
    const char *reason = wrong;
    enum source_result result = SOURCE_CORRUPT;
    uint64_t file;
    size_t bytes;
    const struct folder_split *from = find((struct folder *)dataset, split, index, &file);

    (void)rng;
    if (sample->coded)
        *sample->coded = (struct coded_picture){0};
    if (snprintf(path, sizeof(path), "%s/%s", from->path, listing_name(&from->listing, file)) <
        (int)sizeof(path))
        result = load(path, scratch, &bytes, &reason);
    if (result == SOURCE_OK && !leave_coded(&dataset->spec, scratch, bytes, sample))
        result = decode(&dataset->spec, scratch, bytes, sample, wrong);
    if (result == SOURCE_OK)
        *sample->labels = from->listing.file[file].label;
    else
        snprintf(message, SOURCE_MESSAGE_BYTES, "%.240s: %.240s", path, reason);
    return result;
}

static void folder_close(struct dataset *dataset)
{
    struct folder *source = (struct folder *)dataset;

    for (int i = 0; i < DATA_SPLITS; i++) {
        listing_free(&source->split[i].listing);
        free(source->split[i].path);
    }
    free(source);
}

static enum status set_path(struct folder_split *split, const char *dir, const char *name)
{
    if (asprintf(&split->path, "%s%s%s", dir, name[0] ? "/" : "", name) < 0) {
        split->path = NULL;
        return status_fail(STATUS_NO_MEMORY, "no host memory for a path");
    }
    return STATUS_OK;
}

static enum status list_files(struct folder *source, const struct data_config *config)
{
    static const char *const names[] = {"val", "validation", "test"};
    struct folder_split *train = &source->split[DATA_TRAIN], *other = &source->split[DATA_VALIDATION];
    const char *dir = config->path, *name = NULL;
    bool divided = listing_is_folder(dir, "train"), classes = config->kind == DATA_IMAGES;
    enum status status = set_path(train, dir, divided ? "train" : "");

    for (size_t i = 0; divided && !name && i < sizeof(names) / sizeof(names[0]); i++)
        name = listing_is_folder(dir, names[i]) ? names[i] : NULL;
    if (!status)
        status = listing_read(&train->listing, train->path, NULL);
    if (!status && name)
        status = set_path(other, dir, name);
    if (!status && name)
        status = listing_read(&other->listing, other->path,
                              classes && train->listing.classes ? &train->listing : NULL);
    return status;
}

static enum status fill_spec(struct folder *source, const struct data_config *config)
{
    /* The usual values for photographs, those of ImageNet. */
    static const float mean[] = {0.485f, 0.456f, 0.406f}, deviation[] = {0.229f, 0.224f, 0.225f};
    struct data_spec *spec = &source->dataset.spec;
    const struct listing *train = &source->split[DATA_TRAIN].listing;
    struct data_config sides = *config;
    struct rng rng = rng_derive(config->seed, train->count);

    if (config->kind == DATA_IMAGES && train->classes < 2)
        return status_fail(STATUS_FAILED,
                           "%s: classes are needed: at least two folders with images in each, and no "
                           "image beside them",
                           source->split[DATA_TRAIN].path);
    spec->classes = train->classes;
    memcpy(spec->mean, mean, sizeof(mean));
    memcpy(spec->deviation, deviation, sizeof(deviation));
    spec->count[DATA_VALIDATION] = source->split[DATA_VALIDATION].listing.count;
    if (!source->split[DATA_VALIDATION].path && !config->no_validation)
        source->aside = (uint64_t)((double)train->count *
                                   (config->validation > 0 ? config->validation : default_validation));
    source->key = rng_next(&rng);
    spec->divided = source->aside > 0;
    spec->count[DATA_VALIDATION] += source->aside;
    spec->count[DATA_TRAIN] = train->count - source->aside;
    sides.image = config->image ? config->image : DEFAULT_SIDE;
    sides.raw = config->raw ? config->raw : sides.image * 3 / 2;
    if (!config->raw && sides.raw > DATA_MAX_SIDE)
        sides.raw = DATA_MAX_SIDE;
    return source_set_picture(spec, &sides, 0, 0, IMAGE_CHANNELS);
}

enum status data_open_folder(struct dataset **out, const struct data_config *config)
{
    struct folder *source;
    enum status status = source_alloc((void **)&source, sizeof(*source), "the data source");

    if (status)
        return status;
    source->dataset.read = folder_read;
    source->dataset.close = folder_close;
    source->dataset.worth_caching = true;
    source->dataset.has_files = true;
    source->dataset.augment = (struct source_augment){.min_area = 0.35f, .mirror = true};
    status = list_files(source, config);
    if (!status)
        status = fill_spec(source, config);
    if (status)
        folder_close(&source->dataset);
    else
        *out = &source->dataset;
    return status;
}
