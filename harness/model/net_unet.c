/* A U-Net-like network from picture to picture: levels of two convolutions, each half as high and wide as the
 * one before, and back up with the channels of the way down beside. The loss is the squared difference. */
#include "harness/model/net.h"

enum { MAX_LEVELS = 8 };

static int two_convs(struct model *model, int x, int filters)
{
    for (int i = 0; i < 2; i++) {
        x = layer_conv(model, x, filters, 3, 1, 1);
        x = layer_batchnorm(model, x, NO_VALUE, OPS_ACT_RELU, 1.0f);
    }
    return x;
}

void net_build_unet(struct model *model, const struct train_options *options, const struct data_spec *spec)
{
    int levels = (int)options->layers;
    int width = (int)options->width;
    int x = model_add_input(model, spec->h, spec->w, spec->c);
    int beside[MAX_LEVELS];

    for (int level = 0; level < levels; level++) {
        beside[level] = two_convs(model, x, width << level);
        x = layer_maxpool(model, beside[level], 2, 2, 0);
        model_next_segment(model);
    }
    x = two_convs(model, x, width << levels);
    for (int level = levels - 1; level >= 0; level--) {
        model_next_segment(model);
        x = layer_conv(model, layer_upsample(model, x), width << level, 3, 1, 1);
        x = layer_batchnorm(model, x, NO_VALUE, OPS_ACT_RELU, 1.0f);
        x = two_convs(model, layer_concat(model, beside[level], x), width << level);
    }
    x = layer_conv(model, x, spec->c, 1, 1, 0);
    model_finish(model, layer_bias_act(model, x, OPS_ACT_NONE), LOSS_PICTURE);
}
