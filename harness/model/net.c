/* Chooses the network, sets its default sizes, and refuses impossible ones. */
#include "harness/model/net.h"

static void fill(uint64_t *size, uint64_t own)
{
    if (!*size)
        *size = own;
}

static enum status fill_gpt(struct train_options *options)
{
    bool small = options->model == MODEL_GPT2_SMALL;
    enum { MAX_DIM = 128 };

    fill(&options->layers, small ? 12 : 6);
    fill(&options->width, small ? 768 : 384);
    fill(&options->heads, small ? 12 : 6);
    fill(&options->length, small ? 1024 : 256);
    fill(&options->vocabulary, small ? 50304 : 256);
    if (options->width % options->heads || options->width / options->heads > MAX_DIM)
        return status_fail(
            STATUS_USAGE,
            "--width=%llu --heads=%llu: the width must be a multiple of the heads, at most %d per head",
            (unsigned long long)options->width, (unsigned long long)options->heads, MAX_DIM);
    return STATUS_OK;
}

static enum status fill_unet(struct train_options *options)
{
    enum { MAX_LEVELS = 8 };

    fill(&options->layers, 3);
    fill(&options->width, 32);
    fill(&options->image, 64);
    if (options->layers > MAX_LEVELS || options->image % (1ull << options->layers))
        return status_fail(STATUS_USAGE,
                           "--model=unet --layers=%llu --image=%llu: at most %d levels, and the picture must "
                           "be divisible by 2 that many times",
                           (unsigned long long)options->layers, (unsigned long long)options->image,
                           MAX_LEVELS);
    return STATUS_OK;
}

enum status net_fill_options(struct train_options *options)
{
    if (options->optimizer == OPTIMIZER_AUTO)
        options->optimizer = options->model <= MODEL_RESNET50 ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
    if (options->rate <= 0.0)
        options->rate = options->optimizer == OPTIMIZER_SGD ? 0.01 : 0.001;
    switch ((enum model_name)options->model) {
    case MODEL_MLP:
        break;
    case MODEL_CNN:
        fill(&options->width, 32);
        break;
    case MODEL_RESNET18:
    case MODEL_RESNET50:
        fill(&options->width, 64);
        if (!options->data)
            fill(&options->image, 224);
        break;
    case MODEL_GPT:
    case MODEL_GPT2_SMALL:
        return fill_gpt(options);
    case MODEL_UNET:
        return fill_unet(options);
    }
    return STATUS_OK;
}

enum data_kind net_data_kind(const struct train_options *options)
{
    switch ((enum model_name)options->model) {
    case MODEL_GPT:
    case MODEL_GPT2_SMALL:
        return DATA_TOKENS;
    case MODEL_UNET:
        return DATA_PAIRS;
    case MODEL_MLP:
        return options->data ? DATA_IMAGES : DATA_FLOATS;
    default:
        return DATA_IMAGES;
    }
}

enum status net_build(struct model *model, const struct train_options *options, const struct data_spec *spec)
{
    switch ((enum model_name)options->model) {
    case MODEL_MLP:
        net_build_mlp(model, options, spec);
        break;
    case MODEL_CNN:
        net_build_cnn(model, options, spec);
        break;
    case MODEL_RESNET18:
    case MODEL_RESNET50:
        net_build_resnet(model, options, spec);
        break;
    case MODEL_GPT:
    case MODEL_GPT2_SMALL:
        net_build_gpt(model, options, spec);
        break;
    case MODEL_UNET:
        net_build_unet(model, options, spec);
        break;
    }
    return model->build_status;
}
