/* Names and layouts of parameters in PyTorch. See names.h. Each network's function here lists its modules in
 * the order in which net_*.c builds them; a layer of another kind than expected ends the walk. */
#include "harness/model/names.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct walk {
    const struct model *model;
    struct names_entry *entries;
    int layer; /* the next one */
    int named; /* parameters */
    bool lost; /* the network is not as described */
};

static bool has_params(const struct layer *layer)
{
    for (int i = 0; i < LAYER_PARAMS; i++)
        if (layer->param[i] != NO_VALUE)
            return true;
    return false;
}

/* Shape and layout of parameter `slot` of a layer. */
static void describe(const struct walk *walk, const struct layer *layer, int slot, struct names_entry *entry)
{
    const struct param *param = &walk->model->params[layer->param[slot]];
    const struct value *in = &walk->model->values[layer->in[0]];
    const struct ops_conv *conv = &layer->conv;

    entry->positions = 1;
    entry->channels = param->cols;
    entry->dims = 2;
    entry->shape[0] = param->rows;
    entry->shape[1] = param->cols;
    if (strcmp(layer->type->name, "conv") == 0) {
        entry->dims = 4;
        entry->shape[1] = entry->channels = conv->c;
        entry->shape[2] = conv->r;
        entry->shape[3] = conv->s;
        entry->positions = conv->r * conv->s;
    } else if (layer->flat && slot == 0) {
        entry->channels = in->c;
        entry->positions = in->h * in->w;
    } else if (param->rows == 1 && strcmp(layer->type->name, "embedding") != 0 &&
               !(slot == 0 && strcmp(layer->type->name, "dense") == 0)) {
        entry->dims = 1;
        entry->shape[0] = param->cols;
    }
}

/* The next layer with parameters must be of this type: names its parameters MODULE.SUFFIX, in order. Tied
 * ones have their name already. */
__attribute__((format(printf, 4, 5))) static void take(struct walk *walk, const char *type,
                                                       const char *const *suffixes, const char *format, ...)
{
    const struct model *model = walk->model;
    char module[NAMES_BYTES / 2];
    const struct layer *layer;
    va_list values;

    va_start(values, format);
    vsnprintf(module, sizeof(module), format, values);
    va_end(values);
    while (walk->layer < model->layer_count && !has_params(&model->layers[walk->layer]))
        walk->layer++;
    if (walk->lost || walk->layer == model->layer_count ||
        strcmp(model->layers[walk->layer].type->name, type) != 0) {
        walk->lost = true;
        return;
    }
    layer = &model->layers[walk->layer++];
    for (int i = 0; i < LAYER_PARAMS && suffixes[i]; i++) {
        struct names_entry *entry = layer->param[i] == NO_VALUE ? NULL : &walk->entries[layer->param[i]];

        if (!entry || entry->name[0])
            continue;
        snprintf(entry->name, sizeof(entry->name), "%s.%s", module, suffixes[i]);
        describe(walk, layer, i, entry);
        walk->named++;
    }
}

static const char *const weight_and_bias[] = {"weight", "bias", NULL};
static const char *const bias_only[] = {"bias", NULL};
static const char *const of_batchnorm[] = {"weight", "bias", "running_mean", "running_var", NULL};
static const char *const of_embedding[] = {"wte.weight", "wpe.weight", NULL};

static void take_conv_norm(struct walk *walk, const char *prefix, const char *conv, const char *norm)
{
    take(walk, "conv", weight_and_bias, "%s%s", prefix, conv);
    take(walk, "batchnorm", of_batchnorm, "%s%s", prefix, norm);
}

/* ---- the networks ---- */

static void name_mlp(struct walk *walk, const struct train_options *options)
{
    for (uint64_t i = 0; i <= options->hidden.count; i++)
        take(walk, "dense", weight_and_bias, "layers.%d", (int)i);
}

static void name_cnn(struct walk *walk)
{
    for (int i = 1; i <= 2; i++) {
        take(walk, "conv", weight_and_bias, "conv%d", i);
        take(walk, "bias", bias_only, "conv%d", i);
    }
    for (int i = 1; i <= 2; i++)
        take(walk, "dense", weight_and_bias, "fc%d", i);
}

static void name_resnet(struct walk *walk, bool deep)
{
    enum { STAGES = 4 };
    static const int blocks18[STAGES] = {2, 2, 2, 2};
    static const int blocks50[STAGES] = {3, 4, 6, 3};
    char prefix[NAMES_BYTES / 2];

    take_conv_norm(walk, "", "conv1", "bn1");
    for (int stage = 0; stage < STAGES; stage++) {
        for (int block = 0; block < (deep ? blocks50 : blocks18)[stage]; block++) {
            snprintf(prefix, sizeof(prefix), "layer%d.%d.", stage + 1, block);
            /* The projection is built first. */
            if (block == 0 && (stage > 0 || deep))
                take_conv_norm(walk, prefix, "downsample.0", "downsample.1");
            take_conv_norm(walk, prefix, "conv1", "bn1");
            take_conv_norm(walk, prefix, "conv2", "bn2");
            if (deep)
                take_conv_norm(walk, prefix, "conv3", "bn3");
        }
    }
    take(walk, "dense", weight_and_bias, "fc");
}

static void name_gpt(struct walk *walk, const struct train_options *options)
{
    int blocks = (int)options->layers;

    take(walk, "embedding", of_embedding, "transformer");
    for (int block = 0; block < blocks; block++) {
        take(walk, "layernorm", weight_and_bias, "transformer.h.%d.ln_1", block);
        take(walk, "dense", weight_and_bias, "transformer.h.%d.attn.c_attn", block);
        take(walk, "dense", weight_and_bias, "transformer.h.%d.attn.c_proj", block);
        take(walk, "layernorm", weight_and_bias, "transformer.h.%d.ln_2", block);
        take(walk, "dense", weight_and_bias, "transformer.h.%d.mlp.c_fc", block);
        take(walk, "dense", weight_and_bias, "transformer.h.%d.mlp.c_proj", block);
    }
    take(walk, "layernorm", weight_and_bias, "transformer.ln_f");
    take(walk, "dense", weight_and_bias, "lm_head"); /* tied to wte */
}

static void take_two(struct walk *walk, const char *prefix)
{
    take_conv_norm(walk, prefix, "conv1", "bn1");
    take_conv_norm(walk, prefix, "conv2", "bn2");
}

static void name_unet(struct walk *walk, const struct train_options *options)
{
    int levels = (int)options->layers;
    char prefix[NAMES_BYTES / 2];

    for (int level = 0; level < levels; level++) {
        snprintf(prefix, sizeof(prefix), "down.%d.", level);
        take_two(walk, prefix);
    }
    take_two(walk, "middle.");
    for (int level = 0; level < levels; level++) {
        snprintf(prefix, sizeof(prefix), "up.%d.", level);
        take_conv_norm(walk, prefix, "conv", "bn");
        take_two(walk, prefix);
    }
    take(walk, "conv", weight_and_bias, "out");
    take(walk, "bias", bias_only, "out");
}

enum status names_make(const struct model *model, const struct train_options *options,
                       struct names_entry *entries)
{
    struct walk walk = {.model = model, .entries = entries};

    memset(entries, 0, (size_t)model->param_count * sizeof(*entries));
    switch ((enum model_name)options->model) {
    case MODEL_MLP:
        name_mlp(&walk, options);
        break;
    case MODEL_CNN:
        name_cnn(&walk);
        break;
    case MODEL_RESNET18:
    case MODEL_RESNET50:
        name_resnet(&walk, options->model == MODEL_RESNET50);
        break;
    case MODEL_GPT:
    case MODEL_GPT2_SMALL:
        name_gpt(&walk, options);
        break;
    case MODEL_UNET:
        name_unet(&walk, options);
        break;
    }
    return walk.lost || walk.named != model->param_count
               ? status_fail(STATUS_FAILED, "the parameters of this model have no names: %d of %d",
                             walk.named, model->param_count)
               : STATUS_OK;
}

/* ---- layouts ---- */

/* Turns each row of from[inner][outer] into to[outer][inner]. */
static void transpose(int rows, size_t outer, size_t inner, const float *from, float *to)
{
    for (int row = 0; row < rows; row++, from += outer * inner)
        for (size_t i = 0; i < outer; i++)
            for (size_t j = 0; j < inner; j++)
                *to++ = from[j * outer + i];
}

void names_to_torch(const struct names_entry *entry, int rows, const float *ours, float *theirs)
{
    transpose(rows, (size_t)entry->channels, (size_t)entry->positions, ours, theirs);
}

void names_from_torch(const struct names_entry *entry, int rows, const float *theirs, float *ours)
{
    transpose(rows, (size_t)entry->positions, (size_t)entry->channels, theirs, ours);
}
