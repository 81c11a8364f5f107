/* The options of `train`. One table (train_options_table.c) drives the parser, the limits, --help and the
 * manual page. A choice is stored as its index in the table's list of names; the enums here have the same
 * order. */
#ifndef HARNESS_TRAIN_OPTIONS_H
#define HARNESS_TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "harness/base/status.h"

enum { TRAIN_OPTIONS_MAX_HIDDEN = 8, TRAIN_OPTIONS_PAIR = 2 };

/* How a model takes its memory. */
enum alloc_mode { ALLOC_NAIVE, ALLOC_CACHE, ALLOC_ARENA, ALLOC_ASYNC, ALLOC_STATIC };
enum model_name {
    MODEL_MLP,
    MODEL_CNN,
    MODEL_RESNET18,
    MODEL_RESNET50,
    MODEL_GPT,
    MODEL_GPT2_SMALL,
    MODEL_UNET
};
enum precision { PRECISION_FP32, PRECISION_TF32, PRECISION_BF16, PRECISION_FP16 };
enum optimizer_name { OPTIMIZER_AUTO, OPTIMIZER_SGD, OPTIMIZER_ADAM, OPTIMIZER_ADAMW };
enum schedule_name { SCHEDULE_CONSTANT, SCHEDULE_COSINE, SCHEDULE_STEP };
enum pair_mode { PAIR_INTERLEAVED, PAIR_STREAMS, PAIR_THREADS };
enum pair_memory { PAIR_SHARED, PAIR_PRIVATE };
enum quantize_mode { QUANTIZE_NONE, QUANTIZE_INT8 };
enum prune_pattern { PRUNE_ANY, PRUNE_TWO_OF_FOUR };
enum on_nan { ON_NAN_STOP, ON_NAN_SKIP, ON_NAN_GO };
enum augment { AUGMENT_OFF, AUGMENT_GPU, AUGMENT_CPU };
enum decode_place { DECODE_AUTO, DECODE_CPU, DECODE_GPU };
enum preprocess { PREPROCESS_GPU, PREPROCESS_CPU };

struct option_list {
    uint64_t count;
    uint64_t item[TRAIN_OPTIONS_MAX_HIDDEN];
};

/* Two models, as indices into the names of --model. */
struct option_pair {
    bool given;
    uint64_t model[TRAIN_OPTIONS_PAIR];
};

struct train_options {
    /* the model; a size of 0 means the model's default */
    uint64_t model;
    struct option_list hidden;
    uint64_t layers, width, heads, length, vocabulary, image, classes;
    double dropout;
    /* training */
    uint64_t steps, batch, accumulate;
    uint64_t optimizer;
    double rate, momentum, beta2, decay, clip;
    uint64_t schedule, warmup;
    uint64_t precision;
    double loss_scale;
    uint64_t on_nan;
    bool checkpoint_activations, graph, tune;
    uint64_t seed;
    bool vary;
    /* validation */
    uint64_t validate_every, val_batches, val_batch;
    /* checkpoints */
    const char *save;
    uint64_t save_every, keep;
    bool save_best;
    const char *resume;
    const char *load_weights, *save_weights, *dump;
    /* memory */
    uint64_t alloc;
    double fraction;
    uint64_t budget;
    bool find_batch, auto_accum;
    double prune;
    uint64_t prune_pattern, prune_steps;
    uint64_t quantize;
    /* several at once */
    struct option_pair pair;
    uint64_t pair_mode, pair_memory;
    const char *replicas;
    uint64_t bucket;
    /* data; format and corrupt are enums of harness/data/dataset.h */
    const char *data;
    uint64_t format, decode, augment, val_preprocess, raw, samples, shuffle, workers, prefetch;
    double validation;
    uint64_t data_budget, data_cache, val_cache, corrupt;
    /* the rest */
    uint64_t device;
    uint64_t report_every;
    const char *log;
    const char *profile;
    uint64_t profile_steps;
    bool nvtx;
    bool quiet, help, man;
};

/* Sets the defaults, then parses the arguments. On failure prints a message that says which values are
 * accepted. */
enum status train_options_parse(struct train_options *options, int argc, char **argv);

void train_options_print_help(FILE *out);
void train_options_print_manual(FILE *out);

/* Writes the name of a choice's value into `buf` and returns it: train_options_choice("alloc", ALLOC_CACHE,
 * ...) gives "cache". */
const char *train_options_choice(const char *option, uint64_t value, char *buf, size_t size);

enum { OPTION_TEXT_BYTES = 64 };

/* Compares the options named in `names`, a list ended by NULL; they must not be options whose value is text.
 * Returns the name of the first one that differs and writes its two values to `texts`; NULL if none does. */
const char *train_options_difference(const struct train_options *a, const struct train_options *b,
                                     const char *const *names, char texts[2][OPTION_TEXT_BYTES]);

#endif
