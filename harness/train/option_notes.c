/* Which options need which others. See option_notes.h. */
#include "harness/train/option_notes.h"

/* The models that have an option. */
enum {
    MLP = 1 << MODEL_MLP,
    TEXT = 1 << MODEL_GPT | 1 << MODEL_GPT2_SMALL,
    UNET = 1 << MODEL_UNET,
    ALL = (1 << (MODEL_UNET + 1)) - 1
};

static bool trains(const struct train_options *options, unsigned models)
{
    if (options->pair.given)
        return (models >> options->pair.model[0] | models >> options->pair.model[1]) & 1u;
    return models >> options->model & 1u;
}

void option_notes_unused(const struct train_options *options, const char *name, const char *needs, FILE *out)
{
    char program[] = "train";
    char *none[] = {program, NULL};
    const char *const names[] = {name, NULL};
    char texts[2][OPTION_TEXT_BYTES];
    struct train_options defaults;

    if (!train_options_parse(&defaults, 1, none) &&
        train_options_difference(options, &defaults, names, texts))
        fprintf(out, "note: --%s=%s has no effect here: it needs %s\n", name, texts[0], needs);
}

void option_notes_print(const struct train_options *options, FILE *out)
{
    bool adam = options->optimizer == OPTIMIZER_AUTO ? trains(options, TEXT | UNET)
                                                     : options->optimizer != OPTIMIZER_SGD;
    bool fixed = options->graph && options->alloc == ALLOC_STATIC; /* trainer_validate.c says why */
    const struct {
        const char *name;
        bool used;
        const char *needs;
    } rows[] = {
        {"hidden", trains(options, MLP), "--model=mlp"},
        {"layers", trains(options, TEXT | UNET), "--model=gpt, gpt2-small or unet"},
        {"width", trains(options, ALL & ~MLP), "a model other than mlp"},
        {"heads", trains(options, TEXT), "--model=gpt or gpt2-small"},
        {"length", trains(options, TEXT), "--model=gpt or gpt2-small"},
        {"vocabulary", trains(options, TEXT), "--model=gpt or gpt2-small"},
        {"dropout", trains(options, TEXT), "--model=gpt or gpt2-small"},
        {"image", trains(options, ALL & ~TEXT), "a model of pictures"},
        {"classes", trains(options, ALL & ~TEXT & ~UNET) && !options->data, "synthetic data with classes"},
        {"samples", !options->data, "synthetic data"},
        {"validation", options->data, "--data=PATH"},
        {"decode", options->data, "--data=PATH"},
        {"corrupt", options->data, "--data=PATH"},
        {"augment", trains(options, ALL & ~TEXT), "a model of pictures"},
        {"val-batch", !fixed || options->val_batch <= options->batch,
         "a --batch as large, with --graph and --alloc=static"},
        {"beta2", adam, "--optimizer=adam or adamw"},
        {"loss-scale", options->precision == PRECISION_FP16, "--precision=fp16"},
        {"fraction", options->alloc == ALLOC_ARENA, "--alloc=arena"},
        {"profile-steps", options->profile, "--profile=FILE"},
        {"pair-mode", options->pair.given, "--pair"},
        {"pair-memory", options->pair.given, "--pair"},
        {"bucket", options->replicas, "--replicas"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!rows[i].used)
            option_notes_unused(options, rows[i].name, rows[i].needs, out);
    }
    if (options->steps && options->warmup >= options->steps)
        fprintf(out, "note: --warmup=%llu is not over before --steps=%llu: the rate only grows\n",
                (unsigned long long)options->warmup, (unsigned long long)options->steps);
}
