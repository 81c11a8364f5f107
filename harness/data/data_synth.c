/* The synthetic source needs no file and can be learned: pictures that follow a pattern of their class,
 * tokens of which most follow from the one before, vectors around the centre of their class. Every number
 * follows from the seed and the sample's number alone, in integers or exact floats, so that two runs see the
 * same on any machine. */
#include "harness/data/dataset_source.h"

#include <stdlib.h>

enum {
    DEFAULT_CLASSES = 10,
    DEFAULT_VOCABULARY = 256,
    DEFAULT_LENGTH = 128,
    DEFAULT_SIDE = 28,
    DEFAULT_SAMPLES = 60000,
    VALIDATION_PART = 6,
    CHANNELS = 3,
    MAX_CLASSES = 1 << 16,
    MAX_FEATURES = 1 << 20,
    GRID = 8,       /* a class's pattern is random on GRID x GRID points and smooth between them */
    ONE = 256,      /* 1.0 in the fixed-point position between two grid points */
    NOISE = 64,     /* range of the noise added to a byte: -32 to 31 */
    PERIOD = 8,     /* one token in PERIOD is random */
    NOISE_BYTES = 8 /* bytes of noise from one draw */
};

/* Distance of the centres from the origin in each feature. Two centres are about 3 standard deviations of
 * the noise apart, so that a model can learn but not separate the classes perfectly. */
static const float centre_spread = 0.15f;

struct synth {
    struct dataset dataset;
    uint64_t seed;
    uint8_t (*pattern)[GRID + 1][GRID + 1][CHANNELS]; /* [classes], the last row and column are the first */
    float *centre;                                    /* [classes][features] */
    int32_t *follows;                                 /* [vocabulary] */
    int classes;
};

/* The two splits have different samples. */
static struct rng sample_rng(const struct synth *source, enum data_split split, uint64_t index)
{
    return rng_derive(source->seed + 1 + (uint64_t)split, index);
}

/* Adds noise to bytes, eight at a draw. */
static void add_noise(uint8_t *bytes, size_t count, struct rng *rng)
{
    for (size_t i = 0; i < count; i += NOISE_BYTES) {
        uint64_t noise = rng_next(rng);
        size_t end = count - i < NOISE_BYTES ? count : i + NOISE_BYTES;

        for (size_t j = i; j < end; j++, noise >>= NOISE_BYTES) {
            int value = bytes[j] + (int)(noise & (NOISE - 1)) - NOISE / 2;

            bytes[j] = (uint8_t)(value < 0 ? 0 : value > UINT8_MAX ? UINT8_MAX : value);
        }
    }
}

/* Computes one row by interpolating between two rows of the pattern, and along them. */
static void draw_row(const struct synth *source, int32_t class, uint32_t at_y, uint32_t shift_x, uint8_t *out)
{
    uint32_t width = (uint32_t)source->dataset.spec.raw_w, row = at_y / ONE, down = at_y % ONE;
    uint32_t blend[GRID + 1][CHANNELS];

    for (int x = 0; x <= GRID; x++) {
        for (int c = 0; c < CHANNELS; c++)
            blend[x][c] = source->pattern[class][row][x][c] * (ONE - down) +
                          source->pattern[class][row + 1][x][c] * down;
    }
    for (uint32_t x = 0; x < width; x++) {
        uint32_t at_x = x * (GRID - 1) * ONE / width + shift_x;
        uint32_t col = at_x / ONE, right = at_x % ONE;

        for (int c = 0; c < CHANNELS; c++)
            *out++ = (uint8_t)((blend[col][c] * (ONE - right) + blend[col + 1][c] * right) / (ONE * ONE));
    }
}

/* The pattern of the class, shifted a little, with noise. */
static void read_picture(const struct synth *source, struct sample *sample, struct rng *rng, int32_t class)
{
    const struct data_spec *spec = &source->dataset.spec;
    uint32_t shift_y = (uint32_t)rng_below(rng, ONE), shift_x = (uint32_t)rng_below(rng, ONE);
    size_t stride = (size_t)spec->raw_w * CHANNELS;

    for (uint32_t y = 0; y < (uint32_t)spec->raw_h; y++)
        draw_row(source, class, y * (GRID - 1) * ONE / (uint32_t)spec->raw_h + shift_y, shift_x,
                 sample->bytes + y * stride);
    add_noise(sample->bytes, stride * (size_t)spec->raw_h, rng);
    *sample->labels = class;
    sample->h = spec->raw_h;
    sample->w = spec->raw_w;
}

static void read_tokens(const struct synth *source, struct sample *sample, struct rng *rng)
{
    const struct data_spec *spec = &source->dataset.spec;
    int32_t token = (int32_t)rng_below(rng, (uint64_t)spec->vocabulary);

    for (int i = 0; i < spec->length; i++) {
        sample->tokens[i] = token;
        if (rng_below(rng, PERIOD))
            token = source->follows[token];
        else
            token = (int32_t)rng_below(rng, (uint64_t)spec->vocabulary);
        sample->labels[i] = token;
    }
}

static void read_floats(const struct synth *source, struct sample *sample, struct rng *rng, int32_t class)
{
    size_t features = (size_t)source->dataset.spec.c;
    const float *centre = source->centre + (size_t) class * features;

    for (size_t f = 0; f < features; f++)
        sample->floats[f] = centre[f] + rng_normal(rng);
    *sample->labels = class;
}

static enum source_result synth_read(struct dataset *dataset, enum data_split split, uint64_t index,
                                     struct rng *rng, struct sample *sample, struct scratch *scratch,
                                     char message[SOURCE_MESSAGE_BYTES])
{
    const struct synth *source = (struct synth *)dataset;
    struct rng own = sample_rng(source, split, index);
    int32_t class = (int32_t)rng_below(&own, (uint64_t)source->classes);

    (void)rng;
    (void)scratch;
    (void)message;
    if (dataset->spec.kind == DATA_TOKENS)
        read_tokens(source, sample, &own);
    else if (dataset->spec.kind == DATA_FLOATS)
        read_floats(source, sample, &own, class);
    else
        read_picture(source, sample, &own, class);
    return SOURCE_OK;
}

static void synth_close(struct dataset *dataset)
{
    struct synth *source = (struct synth *)dataset;

    free(source->pattern);
    free(source->centre);
    free(source->follows);
    free(source);
}

static enum status make_patterns(struct synth *source, const struct data_config *config)
{
    struct data_spec *spec = &source->dataset.spec;
    struct rng rng = rng_derive(source->seed, 0);
    enum status status = source_alloc((void **)&source->pattern,
                                      (size_t)source->classes * sizeof(*source->pattern), "the patterns");

    if (status)
        return status;
    for (int i = 0; i < source->classes; i++) {
        for (int y = 0; y <= GRID; y++) {
            for (int x = 0; x <= GRID; x++) {
                for (int c = 0; c < CHANNELS; c++)
                    source->pattern[i][y][x][c] = (uint8_t)rng_next(&rng);
            }
        }
    }
    for (int c = 0; c < CHANNELS; c++) {
        spec->mean[c] = 0.5f;
        spec->deviation[c] = 0.25f;
    }
    spec->classes = source->classes;
    return source_set_picture(spec, config, config->image ? config->image : DEFAULT_SIDE,
                              config->image ? config->image : DEFAULT_SIDE, CHANNELS);
}

static enum status make_tokens(struct synth *source, const struct data_config *config)
{
    struct data_spec *spec = &source->dataset.spec;
    struct rng rng = rng_derive(source->seed, 0);
    enum status status;

    spec->vocabulary = config->classes ? config->classes : DEFAULT_VOCABULARY;
    spec->length = config->length ? config->length : DEFAULT_LENGTH;
    status = source_alloc((void **)&source->follows, (size_t)spec->vocabulary * sizeof(*source->follows),
                          "the tokens");
    for (int i = 0; i < spec->vocabulary && !status; i++)
        source->follows[i] = (int32_t)rng_below(&rng, (uint64_t)spec->vocabulary);
    return status;
}

static enum status make_centres(struct synth *source, const struct data_config *config)
{
    struct data_spec *spec = &source->dataset.spec;
    struct rng rng = rng_derive(source->seed, 0);
    size_t side = config->image ? (size_t)config->image : DEFAULT_SIDE, features = side * side;
    enum status status;

    if (features > MAX_FEATURES)
        return status_fail(STATUS_USAGE, "--image=%zu: at most %d floats a sample are supported", side,
                           MAX_FEATURES);
    spec->h = 1;
    spec->w = 1;
    spec->c = (int)features;
    spec->classes = source->classes;
    status = source_alloc((void **)&source->centre, (size_t)source->classes * features * sizeof(float),
                          "the centres");
    for (size_t i = 0; i < (size_t)source->classes * features && !status; i++)
        source->centre[i] = centre_spread * rng_normal(&rng);
    return status;
}

enum status data_open_synth(struct dataset **out, const struct data_config *config)
{
    struct synth *source;
    enum status status = source_alloc((void **)&source, sizeof(*source), "the data source");

    if (status)
        return status;
    source->seed = config->seed;
    source->classes = config->classes ? config->classes : DEFAULT_CLASSES;
    source->dataset.read = synth_read;
    source->dataset.close = synth_close;
    source->dataset.never_corrupt = true;
    source->dataset.worth_caching = config->kind == DATA_IMAGES || config->kind == DATA_PAIRS;
    source->dataset.augment = (struct source_augment){.shift = 2.0f, .min_area = 1.0f, .mirror = false};
    source->dataset.spec.count[DATA_TRAIN] = config->samples ? config->samples : DEFAULT_SAMPLES;
    source->dataset.spec.count[DATA_VALIDATION] = source->dataset.spec.count[DATA_TRAIN] / VALIDATION_PART;
    if (source->classes > MAX_CLASSES)
        status =
            status_fail(STATUS_USAGE, "--%s=%d: synthetic data has at most %d",
                        config->kind == DATA_TOKENS ? "vocabulary" : "classes", source->classes, MAX_CLASSES);
    else if (config->kind == DATA_TOKENS)
        status = make_tokens(source, config);
    else if (config->kind == DATA_FLOATS)
        status = make_centres(source, config);
    else
        status = make_patterns(source, config);
    if (status)
        synth_close(&source->dataset);
    else
        *out = &source->dataset;
    return status;
}
