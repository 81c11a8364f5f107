/* Order, cache or source, corrupt samples, and preparation. No lock: the threads share atomics only. */
#include "harness/data/mapper.h"

#include <stdlib.h>
#include <string.h>

#include "harness/data/augment.h"
#include "harness/data/shuffle.h"

enum {
    BITS = 8,
    ALIGNMENT = 256,       /* of each part of a batch, as device memory is aligned */
    SUBSTITUTES = 64,      /* samples tried in place of a corrupt one */
    CODED_ROOM = 192 << 10 /* least room for a JPEG file: most photographs of half a megapixel are smaller */
};

/* Keeps the random numbers of samples apart from those of their order. */
static const uint64_t sample_salt = 0x5bd1e9955bd1e995u;

static bool is_picture(const struct mapper *mapper)
{
    enum data_kind kind = mapper->dataset->spec.kind;

    return kind == DATA_IMAGES || kind == DATA_PAIRS;
}

enum status mapper_open(struct mapper *mapper, struct dataset *dataset, const struct pipeline_config *config)
{
    uint64_t count = dataset->spec.count[config->split];
    enum status status = STATUS_OK;

    memset(mapper, 0, sizeof(*mapper));
    if (count == 0)
        return status_fail(STATUS_FAILED, "the data has no samples for %s",
                           config->split == DATA_TRAIN ? "training" : "validation");
    mapper->dataset = dataset;
    mapper->split = config->split;
    mapper->prepare = config->prepare;
    mapper->augment = config->augment;
    mapper->shuffle = config->shuffle;
    mapper->count = count;
    if (!dataset->never_corrupt)
        status = source_alloc((void **)&mapper->bad, count / BITS + 1, "the list of corrupt samples");
    mapper->coded = config->coded && dataset->has_files && dataset->spec.kind == DATA_IMAGES &&
                    config->prepare == PREPARE_GPU;
    if (!status && config->cache && dataset->worth_caching && !mapper->coded)
        status = sample_cache_open(&mapper->cache, config->cache, count);
    return status;
}

void mapper_close(struct mapper *mapper)
{
    sample_cache_close(mapper->cache);
    free((void *)mapper->bad);
    mapper->cache = NULL;
    mapper->bad = NULL;
}

void mapper_free_scratch(struct mapper_scratch *scratch)
{
    free(scratch->file.data);
    free(scratch->picture.data);
    free(scratch->worse.data);
    memset(scratch, 0, sizeof(*scratch));
}

/* Returns the next part of a block; NULL if it has no bytes, or if only sizes are computed. */
static void *part(uint8_t *block, size_t *used, size_t bytes)
{
    void *at = block && bytes ? block + *used : NULL;

    *used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

/* Bytes from one picture of a batch to the next. */
static size_t picture_stride(const struct mapper *mapper)
{
    const struct data_spec *spec = &mapper->dataset->spec;
    size_t bytes = (size_t)spec->raw_h * (size_t)spec->raw_w * (size_t)spec->c;

    return mapper->coded && bytes < CODED_ROOM ? CODED_ROOM : bytes;
}

size_t mapper_layout(const struct mapper *mapper, size_t count, uint8_t *block, struct batch *batch)
{
    const struct data_spec *spec = &mapper->dataset->spec;
    bool picture = is_picture(mapper), pairs = spec->kind == DATA_PAIRS;
    bool on_gpu = picture && mapper->prepare == PREPARE_GPU;
    size_t bytes = on_gpu ? count * picture_stride(mapper) : 0;
    size_t floats = on_gpu || spec->kind == DATA_TOKENS
                        ? 0
                        : count * (size_t)spec->h * (size_t)spec->w * (size_t)spec->c * sizeof(float);
    size_t tokens = spec->kind == DATA_TOKENS ? count * (size_t)spec->length * sizeof(int32_t) : 0;
    size_t used = 0;

    batch->bytes = part(block, &used, bytes);
    batch->stride = picture_stride(mapper);
    batch->coded = part(block, &used, mapper->coded ? count * sizeof(*batch->coded) : 0);
    batch->pictures = part(block, &used, mapper->coded ? count * sizeof(*batch->pictures) : 0);
    batch->target_bytes = part(block, &used, pairs ? bytes : 0);
    batch->crops = part(block, &used, on_gpu ? count * sizeof(*batch->crops) : 0);
    batch->floats = part(block, &used, floats);
    batch->target_floats = part(block, &used, pairs ? floats : 0);
    batch->tokens = part(block, &used, tokens);
    batch->labels = part(block, &used, tokens ? tokens : pairs ? 0 : count * sizeof(int32_t));
    return used;
}

static bool is_bad(struct mapper *mapper, uint64_t index)
{
    return mapper->bad &&
           atomic_load_explicit(&mapper->bad[index / BITS], memory_order_relaxed) & 1u << index % BITS;
}

/* Names the sample, the first time only. */
static enum status report_bad(struct mapper *mapper, uint64_t index, const char *message)
{
    uint8_t bit = (uint8_t)(1u << index % BITS);
    bool first = !(atomic_fetch_or_explicit(&mapper->bad[index / BITS], bit, memory_order_relaxed) & bit);

    bool refuse = mapper->dataset->corrupt == CORRUPT_REFUSE;

    if (!first)
        return refuse ? STATUS_FAILED : STATUS_OK;
    atomic_fetch_add_explicit(&mapper->corrupt, 1, memory_order_relaxed);
    if (refuse)
        return status_fail(STATUS_FAILED, "%s (--corrupt=skip goes on without it)", message);
    return status_fail(STATUS_OK, "%s; skipped", message);
}

/* Sample `index` from the cache or the source. */
static enum source_result fetch(struct mapper *mapper, struct mapper_scratch *scratch, uint64_t index,
                                struct rng rng, struct sample *sample, char *message)
{
    struct dataset *dataset = mapper->dataset;
    size_t stride = (size_t)dataset->spec.raw_w * (size_t)dataset->spec.c;
    enum source_result result;

    if (sample_cache_get(mapper->cache, index, stride, dataset->spec.c, sample))
        return SOURCE_OK;
    result = dataset->read(dataset, mapper->split, index, &rng, sample, &scratch->file, message);
    if (result == SOURCE_OK)
        sample_cache_put(mapper->cache, index, stride, dataset->spec.c, sample);
    return result;
}

/* Makes a sample that is not counted (label -1). */
static void blank(const struct data_spec *spec, struct sample *sample)
{
    size_t labels = spec->kind == DATA_TOKENS ? (size_t)spec->length : 1;

    for (size_t i = 0; i < labels; i++) {
        sample->labels[i] = -1;
        if (sample->tokens)
            sample->tokens[i] = 0;
    }
    if (sample->floats)
        memset(sample->floats, 0, (size_t)spec->c * sizeof(float));
    if (sample->bytes)
        memset(sample->bytes, 0, (size_t)spec->raw_h * (size_t)spec->raw_w * (size_t)spec->c);
    sample->h = spec->raw_h;
    sample->w = spec->raw_w;
}

/* Reads sample `index`, or another one if it is corrupt, which is the same in every run. */
static enum status fetch_good(struct mapper *mapper, struct mapper_scratch *scratch, uint64_t index,
                              struct rng rng, struct sample *sample)
{
    const struct data_spec *spec = &mapper->dataset->spec;
    struct rng others = rng_derive(sample_salt, index);
    char message[SOURCE_MESSAGE_BYTES];

    for (int i = 0; i < SUBSTITUTES; i++) {
        if (is_bad(mapper, index)) {
            if (mapper->dataset->corrupt == CORRUPT_REFUSE)
                return STATUS_FAILED; /* the message was printed */
        } else {
            enum source_result result = fetch(mapper, scratch, index, rng, sample, message);
            enum status status;

            if (result == SOURCE_OK)
                return STATUS_OK;
            status = result == SOURCE_NO_MEMORY ? status_fail(STATUS_NO_MEMORY, "%s", message)
                                                : report_bad(mapper, index, message);
            if (status)
                return status;
        }
        if (mapper->split == DATA_VALIDATION && spec->kind != DATA_PAIRS) {
            blank(spec, sample);
            return STATUS_OK;
        }
        index = rng_below(&others, mapper->count);
    }
    return status_fail(STATUS_FAILED, "%d samples in a row cannot be read: too much of the data is corrupt",
                       SUBSTITUTES);
}

static enum status make_picture(struct mapper *mapper, struct mapper_scratch *scratch, uint64_t index,
                                struct rng rng, const struct mapper_target *target)
{
    const struct data_spec *spec = &mapper->dataset->spec;
    struct batch *batch = target->batch;
    size_t bytes = (size_t)spec->raw_h * (size_t)spec->raw_w * (size_t)spec->c, place = target->place;
    size_t floats = (size_t)spec->h * (size_t)spec->w * (size_t)spec->c;
    bool pairs = spec->kind == DATA_PAIRS, on_gpu = mapper->prepare == PREPARE_GPU;
    uint8_t *clean = on_gpu ? (pairs ? batch->target_bytes : batch->bytes) + place * batch->stride
                            : scratch_need(&scratch->picture, bytes);
    uint8_t *worse = !pairs   ? NULL
                     : on_gpu ? batch->bytes + place * batch->stride
                              : scratch_need(&scratch->worse, bytes);
    struct coded_picture *coded = batch->coded ? &batch->coded[place] : NULL;
    int32_t label = 0;
    struct sample sample = {.bytes = clean,
                            .coded = target->decoded ? NULL : coded,
                            .room = batch->stride,
                            .labels = pairs ? &label : batch->labels + place};
    struct ops_crop crop;
    enum status status;

    if (!clean || (pairs && !worse))
        return status_fail(STATUS_NO_MEMORY, "no host memory for a picture of %zu bytes", bytes);
    if (coded)
        *coded = (struct coded_picture){0};
    status = fetch_good(mapper, scratch, index, rng, &sample);
    if (status)
        return status;
    if (!coded || !coded->bytes)
        augment_extend(spec, clean, sample.h, sample.w);
    crop = mapper->augment ? augment_random(spec, &mapper->dataset->augment, sample.h, sample.w, &rng)
                           : augment_middle(spec, sample.h, sample.w);
    if (pairs)
        augment_degrade(spec, clean, worse, sample.h, sample.w, &rng);
    if (on_gpu) {
        batch->crops[place] = crop;
        return STATUS_OK;
    }
    augment_prepare(spec, &crop, pairs ? worse : clean, batch->floats + place * floats);
    if (pairs)
        augment_prepare(spec, &crop, clean, batch->target_floats + place * floats);
    return STATUS_OK;
}

enum status mapper_make(struct mapper *mapper, struct mapper_scratch *scratch, uint64_t seed, uint64_t number,
                        const struct mapper_target *target)
{
    const struct data_spec *spec = &mapper->dataset->spec;
    struct batch *batch = target->batch;
    uint64_t epoch = number / mapper->count;
    uint64_t index = shuffle_sample(seed, epoch, number % mapper->count, mapper->count, mapper->shuffle);
    struct rng rng = rng_derive(seed ^ sample_salt, number);

    if (is_picture(mapper))
        return make_picture(mapper, scratch, index, rng, target);
    if (spec->kind == DATA_TOKENS) {
        size_t at = target->place * (size_t)spec->length;
        struct sample sample = {.tokens = batch->tokens + at, .labels = batch->labels + at};

        return fetch_good(mapper, scratch, index, rng, &sample);
    }
    struct sample sample = {.floats = batch->floats + target->place * (size_t)spec->c,
                            .labels = batch->labels + target->place};

    return fetch_good(mapper, scratch, index, rng, &sample);
}
