/* bench_families: programs whose sizes vary. See bench_families.h. */
#include "bench_families.h"

#include <string.h>

#define MIB   UINT64_C(0x100000)
#define HALF  2 /* bytes of a number of 16 bits */
#define FULL  4
#define STEPS 60

/* ---- lists of operations ---- */

struct list {
    struct program_op ops[PROGRAM_OPS];
    unsigned count;
};

static void add(struct list *list, struct program_op op)
{
    if (list->count < PROGRAM_OPS)
        list->ops[list->count++] = op;
}

static void add_input(struct list *list, uint64_t bytes)
{
    add(list, (struct program_op){.out = bytes, .keeps = true});
}

/* A matrix product over rows. */
static void add_linear(struct list *list, uint64_t rows, uint64_t in, uint64_t out, uint64_t element)
{
    add(list, (struct program_op){.out = rows * out * element, .weight = in * out * element, .keeps = true});
}

/* Normalization: statistics of each row or channel. */
static void add_norm(struct list *list, uint64_t bytes, uint64_t statistics)
{
    add(list, (struct program_op){.out = bytes, .extra = 2 * FULL * statistics, .keeps = true});
}

struct picture {
    uint64_t batch, height, width;
};

static uint64_t volume(const struct picture *picture, uint64_t channels)
{
    return picture->batch * channels * picture->height * picture->width * FULL;
}

/* Convolution and normalization; the library picks a workspace by the shape: none, a part of the result, or a
 * fixed size. */
static void add_conv(struct list *list, const struct picture *picture, uint64_t in, uint64_t out,
                     uint64_t kernel)
{
    const uint64_t bytes = volume(picture, out), kind = (bytes / 4096 + in + kernel) % 3;

    add(list, (struct program_op){.out = bytes,
                                  .workspace = kind == 0 ? 0 : (kind == 1 ? bytes / 2 : 24 * MIB),
                                  .weight = in * out * kernel * kernel * FULL,
                                  .keeps = true});
    add_norm(list, bytes, out);
}

/* ---- networks ---- */

struct shape {
    uint64_t depth, width, classes;
};

/* Four stages, each half as wide and high, and twice as deep. */
static void make_cnn(struct list *list, const struct shape *shape, struct picture picture)
{
    uint64_t in = 3;

    list->count = 0;
    add_input(list, volume(&picture, 3));
    for (unsigned stage = 0; stage < 4; stage++) {
        picture.height = (picture.height + 1) / 2;
        picture.width = (picture.width + 1) / 2;
        for (uint64_t i = 0; i < shape->depth; i++) {
            add_conv(list, &picture, in, shape->width << stage, i ? 3 : 1);
            in = shape->width << stage;
        }
    }
    add_linear(list, picture.batch, in, shape->classes, FULL);
}

static void make_unet(struct list *list, const struct shape *shape, struct picture picture)
{
    struct picture sizes[4];
    uint64_t in = 3;

    list->count = 0;
    add_input(list, volume(&picture, 3));
    for (unsigned level = 0; level < 4; level++) {
        sizes[level] = picture;
        for (uint64_t i = 0; i < shape->depth; i++, in = shape->width << level)
            add_conv(list, &picture, in, shape->width << level, 3);
        picture.height /= 2;
        picture.width /= 2;
        add(list, (struct program_op){.out = volume(&picture, in), .keeps = true});
    }
    for (unsigned level = 4; level-- > 0;) {
        const uint64_t out = shape->width << level;

        add_conv(list, &sizes[level], in, out, 2);
        add(list, (struct program_op){.out = volume(&sizes[level], 2 * out), .keeps = true}); /* joined */
        for (uint64_t i = 0; i < shape->depth; i++)
            add_conv(list, &sizes[level], i ? out : 2 * out, out, 3);
        in = out;
    }
    add_conv(list, &sizes[0], in, shape->classes, 1);
}

/* Attention of `heads` over a sequence; scores are kept unless the kernel is fused. */
static void add_attention(struct list *list, uint64_t batch, uint64_t length, uint64_t width, bool fused)
{
    const uint64_t tokens = batch * length, heads = width / 64;

    add_norm(list, tokens * width * HALF, tokens);
    add_linear(list, tokens, width, 3 * width, HALF);
    add(list,
        (struct program_op){.out = tokens * width * HALF,
                            .extra = fused ? tokens * heads * FULL : batch * heads * length * length * HALF,
                            .keeps = true});
    add_linear(list, tokens, width, width, HALF);
}

static void add_feed_forward(struct list *list, uint64_t rows, uint64_t width)
{
    add_norm(list, rows * width * HALF, rows);
    add_linear(list, rows, width, 4 * width, HALF);
    add(list, (struct program_op){.out = rows * 4 * width * HALF, .keeps = true});
    add_linear(list, rows, 4 * width, width, HALF);
}

/* The probabilities of a vocabulary, in full precision. */
static void add_vocabulary(struct list *list, uint64_t rows, uint64_t width, uint64_t words)
{
    add_linear(list, rows, width, words, HALF);
    add(list, (struct program_op){.out = rows * words * FULL, .keeps = true});
}

static void make_transformer(struct list *list, const struct shape *shape, uint64_t batch, uint64_t length,
                             bool fused)
{
    const uint64_t tokens = batch * length;

    list->count = 0;
    add_input(list, tokens * 8);
    add(list, (struct program_op){.out = tokens * shape->width * HALF,
                                  .weight = shape->classes * shape->width * HALF});
    for (uint64_t i = 0; i < shape->depth; i++) {
        add_attention(list, batch, length, shape->width, fused);
        add_feed_forward(list, tokens, shape->width);
    }
    add_vocabulary(list, tokens, shape->width, shape->classes);
}

/* ---- families: each writes a whole program ---- */

static struct list first, second;

static struct shape cnn_shape(struct program *program)
{
    return (struct shape){program_between(program, 3, 12), 16 * program_between(program, 2, 6), 1000};
}

static struct shape transformer_shape(struct program *program)
{
    return (struct shape){program_between(program, 4, 20), 256 * program_between(program, 2, 6),
                          program_magnitude(program, 8000, 50000)};
}

static struct picture square(uint64_t batch, uint64_t side)
{
    return (struct picture){batch, side, side};
}

static void cnn_resolution(struct program *program)
{
    const struct shape shape = cnn_shape(program);
    const uint64_t batch = program_between(program, 4, 32), step = 8 * program_between(program, 1, 4);
    const uint64_t validate = program_between(program, 8, 20);
    struct program_model model;

    make_cnn(&first, &shape, square(1, 128));
    program_make_model(program, &model, first.ops, first.count, 1);
    for (unsigned i = 0; i < STEPS; i++) {
        make_cnn(&first, &shape, square(batch, 128 + step * program_between(program, 0, 320 / step)));
        program_train(program, &model, first.ops, first.count, 0);
        if (i % validate == validate - 1) {
            make_cnn(&first, &shape, square(2 * batch, 320));
            program_infer(program, first.ops, first.count);
        }
    }
}

static void cnn_batch(struct program *program)
{
    const struct shape shape = cnn_shape(program);
    const uint64_t low = program_between(program, 4, 32), high = low + program_between(program, 8, 64);
    struct program_model model;

    make_cnn(&first, &shape, square(1, 224));
    program_make_model(program, &model, first.ops, first.count, (unsigned)program_between(program, 0, 2));
    for (unsigned i = 0; i < STEPS; i++) {
        make_cnn(&first, &shape, square(program_between(program, low, high), 224));
        program_train(program, &model, first.ops, first.count, 0);
    }
}

static void transformer(struct program *program, bool checkpoints)
{
    const struct shape shape = transformer_shape(program);
    const uint64_t batch = program_between(program, 2, 16), step = program_magnitude(program, 1, 64);
    const bool fused = program_between(program, 0, 1);
    struct program_model model;

    make_transformer(&first, &shape, 1, 64, fused);
    program_make_model(program, &model, first.ops, first.count, 2);
    for (unsigned i = 0; i < STEPS; i++) {
        const uint64_t length = 64 + step * program_between(program, 0, 960 / step);

        make_transformer(&first, &shape, batch, length, fused);
        program_train(program, &model, first.ops, first.count, checkpoints && i >= STEPS / 2 ? 8 : 0);
    }
}

static void transformer_length(struct program *program)
{
    transformer(program, false);
}

static void transformer_checkpoints(struct program *program)
{
    transformer(program, true);
}

/* Pictures of any size, padded to the largest of the batch; a head over as many regions as were found. */
static void detection(struct program *program)
{
    const struct shape shape = {program_between(program, 3, 8), 16 * program_between(program, 2, 4), 256};
    const uint64_t most = program_between(program, 2, 6);
    struct program_model model;

    for (unsigned i = 0; i <= STEPS; i++) {
        struct picture picture = {i ? program_between(program, 1, most) : 1, 0, 0};
        const uint64_t regions = picture.batch * program_between(program, 10, 512);

        for (uint64_t k = 0; k < picture.batch; k++) {
            const uint64_t height = program_between(program, 300, 900),
                           width = program_between(program, 300, 900);

            picture.height = height > picture.height ? height : picture.height;
            picture.width = width > picture.width ? width : picture.width;
        }
        make_cnn(&first, &shape, picture);
        for (uint64_t k = 0; k < 4 * picture.batch; k++) /* boxes, labels, matches */
            add(&first, (struct program_op){.out = 16 * program_between(program, 1, 20000), .keeps = true});
        while (first.count < PROGRAM_OPS / 4) /* the head's parameters have a place that does not vary */
            add(&first, (struct program_op){.out = 16 * program_between(program, 1, 2000)});
        add_input(&first, regions * 256 * 7 * 7 * FULL);
        add_linear(&first, regions, 256 * 7 * 7, 1024, FULL);
        add_linear(&first, regions, 1024, 1024, FULL);
        add_linear(&first, regions, 1024, 91 * 5, FULL);
        if (!i)
            program_make_model(program, &model, first.ops, first.count, 1);
        else
            program_train(program, &model, first.ops, first.count, 0);
    }
}

/* As many utterances as a budget of frames allows. */
static void speech(struct program *program)
{
    const struct shape shape = {program_between(program, 6, 16), 256 * program_between(program, 1, 3), 5000};
    const uint64_t budget = program_between(program, 8000, 40000);
    struct program_model model;

    for (unsigned i = 0; i <= STEPS; i++) {
        const uint64_t frames = program_magnitude(program, 200, 3000), most = budget / frames;
        const uint64_t batch = program_between(program, most / 2 + 1, most + 1);
        const struct picture spectrum = {batch, frames / 2, 40};

        make_transformer(&second, &shape, batch, frames / 4 + 1, false);
        first.count = 0;
        add_input(&first, batch * frames * 80 * FULL);
        add_conv(&first, &spectrum, 1, 32, 3);
        add_conv(&first, &spectrum, 32, 32, 3);
        for (unsigned k = 1; k < second.count; k++)
            add(&first, second.ops[k]);
        if (!i)
            program_make_model(program, &model, first.ops, first.count, 2);
        else
            program_train(program, &model, first.ops, first.count, 0);
    }
}

/* Few and large: a whole sequence is one operation, which keeps all gates. */
static void recurrent(struct program *program)
{
    const struct shape shape = {program_between(program, 1, 4), 256 * program_between(program, 1, 6),
                                program_magnitude(program, 1000, 40000)};
    struct program_model model;

    for (unsigned i = 0; i <= 2 * STEPS; i++) {
        const uint64_t batch = program_between(program, 8, 64), length = program_between(program, 10, 160);
        const uint64_t tokens = batch * length;

        first.count = 0;
        add_input(&first, tokens * 8);
        add(&first, (struct program_op){.out = tokens * shape.width * FULL,
                                        .weight = shape.classes * shape.width * FULL,
                                        .keeps = true});
        for (uint64_t k = 0; k < shape.depth; k++) {
            add(&first, (struct program_op){.out = tokens * shape.width * FULL,
                                            .extra = tokens * shape.width * 6 * FULL,
                                            .workspace = batch * shape.width * 16 * FULL,
                                            .weight = 8 * shape.width * shape.width * FULL,
                                            .keeps = true});
        }
        add_linear(&first, tokens, shape.width, shape.classes, FULL);
        add(&first, (struct program_op){.out = tokens * shape.classes * FULL, .keeps = true});
        if (!i)
            program_make_model(program, &model, first.ops, first.count, 2);
        else
            program_train(program, &model, first.ops, first.count, 0);
    }
}

/* Every expert gets as many tokens as the router happens to send it. */
static void experts(struct program *program)
{
    const struct shape shape = {program_between(program, 3, 8), 256 * program_between(program, 1, 4), 20000};
    const uint64_t count = program_between(program, 4, 12);
    struct program_model model;

    for (unsigned i = 0; i <= STEPS; i++) {
        const uint64_t batch = program_between(program, 4, 16), length = program_between(program, 64, 512);
        const uint64_t tokens = batch * length;

        first.count = 0;
        add_input(&first, tokens * 8);
        for (uint64_t layer = 0; layer < shape.depth; layer++) {
            uint64_t left = tokens;

            add_attention(&first, batch, length, shape.width, true);
            for (uint64_t e = 0; e < count; e++) {
                const uint64_t most = 2 * left / (count - e);
                const uint64_t rows =
                    e + 1 == count ? left : program_between(program, 0, most < left ? most : left);

                left -= rows;
                add_linear(&first, rows, shape.width, 4 * shape.width, HALF);
                add_linear(&first, rows, 4 * shape.width, shape.width, HALF);
            }
        }
        add_vocabulary(&first, tokens, shape.width, shape.classes);
        if (!i)
            program_make_model(program, &model, first.ops, first.count, 2);
        else
            program_train(program, &model, first.ops, first.count, 0);
    }
}

/* One model, then another beside it, then the other alone, with evaluation between. */
static void phases(struct program *program)
{
    const struct shape shape = cnn_shape(program), other = {2, 32, 4};
    const uint64_t batch = program_between(program, 8, 48), little = program_between(program, 1, 4);
    struct program_model model, later;

    for (unsigned i = 0; i < STEPS; i++) {
        make_cnn(&first, &shape, square(batch * program_between(program, 1, 3), 224));
        make_unet(&second, &other, square(little, 160 + 16 * program_between(program, 0, 22)));
        if (i == 0)
            program_make_model(program, &model, first.ops, first.count, 1);
        if (i == STEPS / 3)
            program_make_model(program, &later, second.ops, second.count, 2);
        if (i == 2 * STEPS / 3)
            program_drop_model(program, &model);
        if (i < 2 * STEPS / 3)
            program_train(program, &model, first.ops, first.count, 0);
        if (i >= STEPS / 3)
            program_train(program, &later, second.ops, second.count, 0);
        if (i % 10 == 9)
            program_infer(program, i < STEPS / 2 ? first.ops : second.ops,
                          i < STEPS / 2 ? first.count : second.count);
    }
}

static void two_models(struct program *program)
{
    const struct shape shape = cnn_shape(program), other = transformer_shape(program);
    struct program_model model, later;

    make_cnn(&first, &shape, square(1, 224));
    make_transformer(&second, &other, 1, 64, true);
    program_make_model(program, &model, first.ops, first.count, 1);
    program_make_model(program, &later, second.ops, second.count, 2);
    for (unsigned i = 0; i < STEPS; i++) {
        make_cnn(&first, &shape, square(program_between(program, 8, 48), 224));
        make_transformer(&second, &other, program_between(program, 2, 8), program_between(program, 64, 512),
                         true);
        program_train(program, &model, first.ops, first.count, 0);
        program_train(program, &later, second.ops, second.count, 0);
    }
}

static void unet_random(struct program *program)
{
    const struct shape shape = {2, 16 * program_between(program, 2, 4), 4};
    const uint64_t pixels = program_magnitude(program, 600000, 2500000);
    struct program_model model;

    make_unet(&first, &shape, square(1, 128));
    program_make_model(program, &model, first.ops, first.count, 2);
    for (unsigned i = 0; i < STEPS; i++) {
        struct picture picture = {1, 16 * program_between(program, 8, 48),
                                  16 * program_between(program, 8, 48)};
        const uint64_t most = pixels / (picture.height * picture.width);

        picture.batch = program_between(program, 1, most ? most : 1);
        make_unet(&first, &shape, picture);
        program_train(program, &model, first.ops, first.count, 0);
    }
}

/* Networks that grow: the resolution doubles from phase to phase. */
static void growing(struct program *program)
{
    const struct shape shape = {2, 16 * program_between(program, 2, 4), 3}, critic = cnn_shape(program);
    struct program_model model, other;

    make_unet(&first, &shape, square(1, 64));
    make_cnn(&second, &critic, square(1, 64));
    program_make_model(program, &model, first.ops, first.count, 2);
    program_make_model(program, &other, second.ops, second.count, 2);
    for (unsigned i = 0; i < STEPS; i++) {
        const uint64_t side = UINT64_C(64) << i * 4 / STEPS;
        const struct picture picture = square(program_between(program, 4, 32) * 64 / side + 1, side);

        make_unet(&first, &shape, picture);
        make_cnn(&second, &critic, picture);
        program_train(program, &other, second.ops, second.count, 0);
        program_train(program, &model, first.ops, first.count, 0);
    }
}

/* Batches of a graph: how many nodes and edges depends on which nodes were drawn. */
static void graph(struct program *program)
{
    const uint64_t layers = program_between(program, 2, 5), width = 64 * program_between(program, 1, 4);
    struct program_model model;

    for (unsigned i = 0; i <= 2 * STEPS; i++) {
        const uint64_t nodes = program_magnitude(program, 20000, 400000);

        first.count = 0;
        add_input(&first, nodes * width * FULL);
        for (uint64_t k = 0; k < layers; k++) {
            const uint64_t edges = nodes * program_between(program, 2, 12);

            add(&first, (struct program_op){.out = edges * width * FULL, .extra = edges * 16});
            add(&first, (struct program_op){.out = nodes * width * FULL, .keeps = true});
            add_linear(&first, nodes, width, width, FULL);
            add_norm(&first, nodes * width * FULL, width);
        }
        add_linear(&first, nodes, width, 100, FULL);
        if (!i)
            program_make_model(program, &model, first.ops, first.count, 2);
        else
            program_train(program, &model, first.ops, first.count, 0);
    }
}

/* Requests come and go; the keys and values of each grow by a copy that is a little longer. */
#define REQUESTS 24
#define LAYERS   16

struct request {
    uint64_t length, left;
    uint32_t cache[LAYERS];
};

static void prolong(struct program *program, struct request *request, uint64_t width, bool fresh)
{
    for (unsigned layer = 0; layer < LAYERS; layer++) {
        const uint32_t work = program_alloc(program, (fresh ? request->length : 1) * width * 8 * HALF);
        const uint32_t longer = program_alloc(program, request->length * width * 2 * HALF);

        if (!fresh)
            program_free(program, request->cache[layer]);
        request->cache[layer] = longer;
        program_free(program, work);
    }
}

static void serve(struct program *program)
{
    const uint64_t width = 512 * program_between(program, 1, 4), most = program_between(program, 4, REQUESTS);
    const uint64_t tokens = program_magnitude(program, 1, 32),
                   longest = program_magnitude(program, 1000, 8000);
    struct request requests[REQUESTS] = {{0}};

    for (unsigned w = 0; w < LAYERS; w++)
        program_alloc(program, 12 * width * width * HALF);
    for (unsigned i = 0; i < 4 * STEPS; i++) {
        for (uint64_t r = 0; r < most; r++) {
            struct request *request = &requests[r];
            const bool fresh = !request->left;

            if (fresh && program_between(program, 0, 3))
                continue;
            request->length = fresh ? program_magnitude(program, 64, longest) : request->length + tokens;
            request->left = fresh ? program_between(program, 5, 60) : request->left - 1;
            if (request->left) {
                prolong(program, request, width, fresh);
                continue;
            }
            for (unsigned layer = 0; layer < LAYERS; layer++)
                program_free(program, request->cache[layer]);
        }
    }
}

/* A nominal time comes from how many bytes a program allocates in a second. For a family that is like one of
 * the programs whose traces were recorded on an H200 (PyTorch 2.11 with its own cache), it is that program's
 * figure; for others the median of all of them. */
#define MEDIAN_RATE 259e9

static const struct family {
    const char *name;
    void (*write)(struct program *program);
    double rate; /* bytes allocated per second */
} families[] = {
    {"cnn_resolution", cnn_resolution, 202e9},                   /* segment_varres */
    {"cnn_batch", cnn_batch, 581e9},                             /* resnet50_var */
    {"transformer_length", transformer_length, 187e9},           /* gpt_varlen */
    {"transformer_checkpoints", transformer_checkpoints, 187e9}, /* gpt_varlen */
    {"detection", detection, 331e9},                             /* detect_var */
    {"speech", speech, 97e9},                                    /* speech_varlen */
    {"recurrent", recurrent, 92e9},                              /* lstm_var */
    {"experts", experts, 78e9},                                  /* moe_train */
    {"phases", phases, 336e9},                                   /* phases */
    {"two_models", two_models, 364e9},                           /* two_models */
    {"unet_random", unet_random, 328e9},                         /* unet_random */
    {"growing", growing, MEDIAN_RATE},
    {"graph", graph, MEDIAN_RATE},
    {"serve", serve, MEDIAN_RATE},
};
#define FAMILIES (sizeof(families) / sizeof(*families))

unsigned families_count(void)
{
    return FAMILIES;
}

const char *families_name(unsigned family)
{
    return families[family].name;
}

int families_find(const char *name)
{
    for (unsigned i = 0; i < FAMILIES; i++) {
        if (!strcmp(families[i].name, name))
            return (int)i;
    }
    return -1;
}

void families_write(unsigned family, uint64_t seed, struct program *program)
{
    program_start(program, seed * FAMILIES + family);
    families[family].write(program);
}

double families_seconds(unsigned family, const struct program *program)
{
    return (double)program->allocated / families[family].rate;
}
