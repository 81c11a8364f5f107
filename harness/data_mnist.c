/* The MNIST source: two IDX files that must fit each other, read whole at start. Samples come in a random
 * order that is drawn anew for each epoch; a batch may span two epochs. */
#include "data.h"

#include <stdio.h>
#include <stdlib.h>
#include <limits.h>

#include "idx.h"
#include "rng.h"

enum { CLASSES = 10, MAX_FEATURES = 1 << 16, IMAGE_DIMENSIONS = 3, LABEL_DIMENSIONS = 1 };

#define IMAGES_NAME "train-images-idx3-ubyte"
#define LABELS_NAME "train-labels-idx1-ubyte"

struct mnist {
    struct data data;
    struct idx images;
    struct idx labels;
    struct rng rng;
    uint32_t *order; /* a permutation of the samples */
    size_t count;
    size_t position; /* next entry of order */
};

static void shuffle(struct mnist *source)
{
    for (size_t i = source->count - 1; i > 0; i--) {
        size_t j = rng_below(&source->rng, i + 1);
        uint32_t swap = source->order[i];

        source->order[i] = source->order[j];
        source->order[j] = swap;
    }
    source->position = 0;
}

static void mnist_next(struct data *data, size_t count, float *x, int32_t *labels)
{
    const float scale = 1.0f / UINT8_MAX;
    struct mnist *source = (struct mnist *)data;
    size_t features = (size_t)data->features;

    for (size_t i = 0; i < count; i++) {
        size_t sample;

        if (source->position == source->count)
            shuffle(source);
        sample = source->order[source->position++];
        labels[i] = source->labels.data[sample];
        for (size_t f = 0; f < features; f++)
            x[i * features + f] = (float)source->images.data[sample * features + f] * scale;
    }
}

static void mnist_close(struct data *data)
{
    struct mnist *source = (struct mnist *)data;

    idx_unload(&source->images);
    idx_unload(&source->labels);
    free(source->order);
    free(source);
}

static enum status load(struct idx *idx, const char *dir, const char *name, int dimensions)
{
    char path[PATH_MAX];
    enum status status;

    if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
        return status_fail(STATUS_FAILED, "--data: the path is too long");
    status = idx_load(idx, path);
    if (!status && idx->dimensions != dimensions)
        status = status_fail(STATUS_FAILED, "%s: it has %d dimensions, expected %d", path, idx->dimensions,
                             dimensions);
    return status;
}

/* What the two files say of each other, and of the model's limits. */
static enum status check(const struct mnist *source, const char *dir)
{
    size_t features = source->images.size[1] * source->images.size[2];

    if (source->images.size[0] != source->labels.size[0])
        return status_fail(STATUS_FAILED, "%s: %zu images but %zu labels", dir, source->images.size[0],
                           source->labels.size[0]);
    if (features > MAX_FEATURES)
        return status_fail(STATUS_FAILED, "%s: images of %zu pixels, at most %d are supported", dir, features,
                           MAX_FEATURES);
    for (size_t i = 0; i < source->labels.count; i++) {
        if (source->labels.data[i] >= CLASSES)
            return status_fail(STATUS_FAILED, "%s/" LABELS_NAME ": label %zu is %d, expected 0 to %d", dir, i,
                               source->labels.data[i], CLASSES - 1);
    }
    return STATUS_OK;
}

static enum status prepare(struct mnist *source)
{
    source->count = source->labels.count;
    source->data.features = (int)(source->images.size[1] * source->images.size[2]);
    source->order = malloc(source->count * sizeof(*source->order));
    if (!source->order)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the order of %zu samples", source->count);
    for (size_t i = 0; i < source->count; i++)
        source->order[i] = (uint32_t)i;
    shuffle(source);
    return STATUS_OK;
}

enum status data_open_mnist(struct data **out, const char *dir, uint64_t seed)
{
    struct mnist *source = calloc(1, sizeof(*source));
    enum status status;

    if (!source)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the data source");
    source->data = (struct data){0, CLASSES, mnist_next, mnist_close};
    source->rng = rng_derive(seed, 0);
    status = load(&source->images, dir, IMAGES_NAME, IMAGE_DIMENSIONS);
    if (!status)
        status = load(&source->labels, dir, LABELS_NAME, LABEL_DIMENSIONS);
    if (!status)
        status = check(source, dir);
    if (!status)
        status = prepare(source);
    if (status) {
        mnist_close(&source->data);
        return status;
    }
    *out = &source->data;
    return STATUS_OK;
}
