/* Residual networks of 18 and 50 layers (He et al. 2015), with the stride in the 3 x 3 convolution of a
 * bottleneck. Small pictures keep their size in the first layer, as usual for CIFAR. */
#include "harness/model/net.h"

#include <math.h>

enum { STAGES = 4, EXPANSION = 4, SMALL_PICTURE = 64 };

static int conv_norm(struct model *model, int x, int filters, int size, int stride, enum ops_act act)
{
    x = layer_conv(model, x, filters, size, stride, size / 2);
    return layer_batchnorm(model, x, NO_VALUE, act, 1.0f);
}

static int channels_of(const struct model *model, int x)
{
    return model->build_status ? 0 : model->values[x].c;
}

/* Returns what is added to the branch: x itself, or a projection if the shape changes. */
static int shortcut(struct model *model, int x, int filters, int stride)
{
    if (stride == 1 && channels_of(model, x) == filters)
        return x;
    return conv_norm(model, x, filters, 1, stride, OPS_ACT_NONE);
}

static int basic_block(struct model *model, int x, int width, int stride)
{
    int side = shortcut(model, x, width, stride);
    int y = conv_norm(model, x, width, 3, stride, OPS_ACT_RELU);

    y = layer_conv(model, y, width, 3, 1, 1);
    return layer_batchnorm(model, y, side, OPS_ACT_RELU, 1.0f);
}

static int bottleneck_block(struct model *model, int x, int width, int stride)
{
    int side = shortcut(model, x, EXPANSION * width, stride);
    int y = conv_norm(model, x, width, 1, 1, OPS_ACT_RELU);

    y = conv_norm(model, y, width, 3, stride, OPS_ACT_RELU);
    y = layer_conv(model, y, EXPANSION * width, 1, 1, 0);
    return layer_batchnorm(model, y, side, OPS_ACT_RELU, 1.0f);
}

static int stem(struct model *model, int x, int width, const struct data_spec *spec)
{
    if (spec->h <= SMALL_PICTURE)
        return conv_norm(model, x, width, 3, 1, OPS_ACT_RELU);
    x = conv_norm(model, x, width, 7, 2, OPS_ACT_RELU);
    return layer_maxpool(model, x, 3, 2, 1);
}

void net_build_resnet(struct model *model, const struct train_options *options, const struct data_spec *spec)
{
    static const int blocks18[STAGES] = {2, 2, 2, 2};
    static const int blocks50[STAGES] = {3, 4, 6, 3};
    bool deep = options->model == MODEL_RESNET50;
    const int *blocks = deep ? blocks50 : blocks18;
    int width = (int)options->width;
    int x = stem(model, model_add_input(model, spec->h, spec->w, spec->c), width, spec);

    for (int stage = 0; stage < STAGES; stage++) {
        for (int block = 0; block < blocks[stage]; block++) {
            int stride = stage > 0 && block == 0 ? 2 : 1;

            model_next_segment(model);
            x = deep ? bottleneck_block(model, x, width << stage, stride)
                     : basic_block(model, x, width << stage, stride);
        }
    }
    model_next_segment(model);
    x = layer_avgpool(model, x);
    x = layer_dense(model, x,
                    &(struct dense_config){.out = spec->classes,
                                           .flat = true,
                                           .deviation = 1.0f / sqrtf((float)(width << (STAGES - 1)))});
    model_finish(model, x, LOSS_CLASSES);
}
