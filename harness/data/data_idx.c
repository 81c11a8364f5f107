/* The IDX source (MNIST, Fashion-MNIST and the like): images and labels in two files of the same count, for
 * training and, if they exist, for validation (t10k-...). Read as a whole at the start. */
#include "harness/data/dataset_source.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/data/idx.h"

enum { CLASSES = 10, IMAGE_DIMENSIONS = 3, LABEL_DIMENSIONS = 1 };

struct idx_split {
    struct idx images;
    struct idx labels;
};

struct idx_source {
    struct dataset dataset;
    struct idx_split split[DATA_SPLITS];
};

static const char *const prefix[DATA_SPLITS] = {"train", "t10k"};

static enum source_result idx_read(struct dataset *dataset, enum data_split split, uint64_t index,
                                   struct rng *rng, struct sample *sample, struct scratch *scratch,
                                   char message[SOURCE_MESSAGE_BYTES])
{
    const struct idx_split *from = &((struct idx_source *)dataset)->split[split];
    size_t h = from->images.size[1], w = from->images.size[2];
    const uint8_t *image = from->images.data + index * h * w;

    (void)rng;
    (void)scratch;
    (void)message;
    for (size_t y = 0; y < h; y++)
        memcpy(sample->bytes + y * (size_t)dataset->spec.raw_w, image + y * w, w);
    *sample->labels = from->labels.data[index];
    sample->h = (int)h;
    sample->w = (int)w;
    return SOURCE_OK;
}

static void idx_close(struct dataset *dataset)
{
    struct idx_source *source = (struct idx_source *)dataset;

    for (int i = 0; i < DATA_SPLITS; i++) {
        idx_unload(&source->split[i].images);
        idx_unload(&source->split[i].labels);
    }
    free(source);
}

static enum status load(struct idx *idx, const char *dir, enum data_split split, const char *name,
                        int dimensions)
{
    char path[PATH_MAX];
    enum status status;

    if (snprintf(path, sizeof(path), "%s/%s-%s", dir, prefix[split], name) >= (int)sizeof(path))
        return status_fail(STATUS_FAILED, "--data: the path is too long");
    if (split == DATA_VALIDATION && access(path, F_OK))
        return STATUS_OK; /* idx stays empty */
    status = idx_load(idx, path);
    if (!status && idx->dimensions != dimensions)
        status = status_fail(STATUS_FAILED, "%s: it has %d dimensions, expected %d", path, idx->dimensions,
                             dimensions);
    return status;
}

/* Checks that images and labels match, and that validation pictures have the size of training pictures. */
static enum status check(const struct idx_source *source, const char *dir, enum data_split which)
{
    const struct idx *images = &source->split[which].images, *labels = &source->split[which].labels;
    const struct idx *first = &source->split[DATA_TRAIN].images;

    if (images->size[0] != labels->size[0])
        return status_fail(STATUS_FAILED, "%s: %zu images but %zu labels in the %s files", dir,
                           images->size[0], labels->size[0], prefix[which]);
    if (images->data && (images->size[1] != first->size[1] || images->size[2] != first->size[2]))
        return status_fail(STATUS_FAILED, "%s: images of %zux%zu for training and %zux%zu for validation",
                           dir, first->size[1], first->size[2], images->size[1], images->size[2]);
    for (size_t i = 0; i < labels->count; i++) {
        if (labels->data[i] >= CLASSES)
            return status_fail(STATUS_FAILED, "%s/%s-labels-idx1-ubyte: label %zu is %d, expected 0 to %d",
                               dir, prefix[which], i, labels->data[i], CLASSES - 1);
    }
    return STATUS_OK;
}

static enum status fill_spec(struct idx_source *source, const struct data_config *config)
{
    /* The usual values, those of MNIST's training set. */
    const float mean = 0.1307f, deviation = 0.3081f;
    struct data_spec *spec = &source->dataset.spec;
    const size_t *size = source->split[DATA_TRAIN].images.size;

    if (size[1] > DATA_MAX_SIDE || size[2] > DATA_MAX_SIDE)
        return status_fail(STATUS_FAILED, "%s: images of %zux%zu, at most %d a side is supported",
                           config->path, size[1], size[2], DATA_MAX_SIDE);
    if (config->raw && ((size_t)config->raw < size[1] || (size_t)config->raw < size[2]))
        return status_fail(STATUS_FAILED, "--raw=%d: the images are %zux%zu", config->raw, size[1], size[2]);
    spec->classes = CLASSES;
    spec->mean[0] = mean;
    spec->deviation[0] = deviation;
    for (int i = 0; i < DATA_SPLITS; i++)
        spec->count[i] = source->split[i].labels.count;
    return source_set_picture(spec, config, (int)size[1], (int)size[2], 1);
}

enum status data_open_idx(struct dataset **out, const struct data_config *config)
{
    struct idx_source *source;
    enum status status = source_alloc((void **)&source, sizeof(*source), "the data source");

    if (status)
        return status;
    source->dataset.read = idx_read;
    source->dataset.close = idx_close;
    source->dataset.never_corrupt = true;
    /* No mirroring: a mirrored digit is not the same digit. */
    source->dataset.augment = (struct source_augment){.shift = 2.0f, .min_area = 1.0f, .mirror = false};
    for (int i = 0; i < DATA_SPLITS && !status; i++) {
        struct idx_split *split = &source->split[i];

        status =
            load(&split->images, config->path, (enum data_split)i, "images-idx3-ubyte", IMAGE_DIMENSIONS);
        if (!status)
            status =
                load(&split->labels, config->path, (enum data_split)i, "labels-idx1-ubyte", LABEL_DIMENSIONS);
        if (!status)
            status = check(source, config->path, (enum data_split)i);
    }
    if (!status)
        status = fill_spec(source, config);
    if (status)
        idx_close(&source->dataset);
    else
        *out = &source->dataset;
    return status;
}
