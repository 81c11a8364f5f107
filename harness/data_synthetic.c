/* The synthetic source: sample i belongs to a random class and lies around the centre of that class with
 * noise of variance 1 in each feature. Every number follows from the seed and i alone, so that two runs see
 * the same samples on any machine. Its shape is MNIST's. */
#include "data.h"

#include <stdlib.h>

#include "rng.h"

enum { FEATURES = 784, CLASSES = 10 };

/* How far the centres lie from the origin in each feature: two of them are about 3 standard deviations of the
 * noise apart, so a model has something to learn and cannot get it all right at once. */
static const float centre_spread = 0.15f;

struct synthetic {
    struct data data;
    uint64_t seed;
    uint64_t next_sample;
    float centre[CLASSES][FEATURES];
};

static void synthetic_next(struct data *data, size_t count, float *x, int32_t *labels)
{
    struct synthetic *source = (struct synthetic *)data;

    for (size_t i = 0; i < count; i++) {
        struct rng rng = rng_derive(source->seed, ++source->next_sample);
        const float *centre;

        labels[i] = (int32_t)rng_below(&rng, CLASSES);
        centre = source->centre[labels[i]];
        for (int f = 0; f < FEATURES; f++)
            x[i * FEATURES + f] = centre[f] + rng_normal(&rng);
    }
}

static void synthetic_close(struct data *data)
{
    free(data);
}

enum status data_open_synthetic(struct data **out, uint64_t seed)
{
    struct synthetic *source = malloc(sizeof(*source));
    struct rng rng = rng_derive(seed, 0);

    if (!source)
        return status_fail(STATUS_NO_MEMORY, "no host memory for the synthetic data");
    source->data = (struct data){FEATURES, CLASSES, synthetic_next, synthetic_close};
    source->seed = seed;
    source->next_sample = 0;
    for (int c = 0; c < CLASSES; c++) {
        for (int f = 0; f < FEATURES; f++)
            source->centre[c][f] = centre_spread * rng_normal(&rng);
    }
    *out = &source->data;
    return STATUS_OK;
}
