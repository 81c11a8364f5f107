/* The perceptron and the small convolutional network. */
#include "harness/model/net.h"

#include <math.h>

static int features_of(const struct model *model, int x)
{
    const struct value *value = &model->values[x];

    return model->build_status ? 1 : value->h * value->w * value->c;
}

/* He initialization before a rectifier, half of it before the loss. */
static int dense(struct model *model, int x, int out, bool last)
{
    struct dense_config config = {.out = out,
                                  .act = last ? OPS_ACT_NONE : OPS_ACT_RELU,
                                  .flat = true,
                                  .deviation = sqrtf((last ? 1.0f : 2.0f) / (float)features_of(model, x))};

    return layer_dense(model, x, &config);
}

void net_build_mlp(struct model *model, const struct train_options *options, const struct data_spec *spec)
{
    int x = model_add_input(model, spec->h, spec->w, spec->c);

    for (uint64_t i = 0; i < options->hidden.count; i++) {
        x = dense(model, x, (int)options->hidden.item[i], false);
        model_next_segment(model);
    }
    model_finish(model, dense(model, x, spec->classes, true), LOSS_CLASSES);
}

void net_build_cnn(struct model *model, const struct train_options *options, const struct data_spec *spec)
{
    enum { STAGES = 2, FILTER = 3, POOL = 2, HIDDEN = 4 };
    int x = model_add_input(model, spec->h, spec->w, spec->c);
    int width = (int)options->width;

    if (spec->h < POOL * POOL || spec->w < POOL * POOL) {
        model->build_status =
            status_fail(STATUS_FAILED, "--model=cnn: pictures of %d x %d are too small, at least 4 x 4",
                        spec->h, spec->w);
        return;
    }
    for (int i = 0; i < STAGES; i++) {
        x = layer_conv(model, x, width << i, FILTER, 1, FILTER / 2);
        x = layer_bias_act(model, x, OPS_ACT_RELU);
        x = layer_maxpool(model, x, POOL, POOL, 0);
        model_next_segment(model);
    }
    x = dense(model, x, HIDDEN * width, false);
    model_finish(model, dense(model, x, spec->classes, true), LOSS_CLASSES);
}
