/* Convolutions, their bias with activation, and batch normalization with activation and residual in one. All
 * on [n][h][w][c]. */
#include "harness/model/layers.h"

#include <math.h>

enum { X = 0, RESIDUAL = 1, Y = 0, WEIGHT = 0 };
enum { GAMMA = 0, BETA = 1, RUNNING_MEAN = 2, RUNNING_VARIANCE = 3 };
enum { MEAN = 0, RSTD = 1, MASK = 2 };

static const float epsilon = 1e-5f;
static const float momentum = 0.1f;

/* ---- convolution ---- */

static struct ops_conv conv_shape(const struct model *model, const struct layer *layer)
{
    struct ops_conv shape = layer->conv;

    shape.n = model->n;
    shape.type = model->type;
    shape.tf32 = model->tf32;
    return shape;
}

static enum status conv_forward(struct model *model, struct layer *layer)
{
    return MODEL_OP(
        model, conv_forward, .shape = conv_shape(model, layer), .x = model->values[layer->in[X]].data.data,
        .w = param_read(&model->params[layer->param[WEIGHT]]), .y = model->values[layer->out[Y]].data.data,
        .workspace = model->workspace.data, .workspace_bytes = model->workspace.bytes);
}

static enum status conv_backward(struct model *model, struct layer *layer)
{
    struct ops_conv shape = conv_shape(model, layer);
    const void *dy = model->values[layer->out[Y]].grad->data;
    struct grad_target dx = {0};
    float *dw = NULL;
    int accumulate = 0;
    enum status status = param_grad(&model->params[layer->param[WEIGHT]], model->mem, &dw, &accumulate);

    if (!status)
        status =
            MODEL_OP(model, conv_backward_filter, .shape = shape, .x = model->values[layer->in[X]].data.data,
                     .dy = dy, .dw = dw, .accumulate = accumulate, .workspace = model->workspace.data,
                     .workspace_bytes = model->workspace.bytes);
    if (!status)
        status = model_grad_begin(model, layer->in[X], true, &dx);
    if (!status && dx.data)
        status = MODEL_OP(model, conv_backward_data, .shape = shape, .dy = dy,
                          .w = param_read(&model->params[layer->param[WEIGHT]]), .dx = dx.data,
                          .accumulate = dx.accumulate, .workspace = model->workspace.data,
                          .workspace_bytes = model->workspace.bytes);
    return status ? status : model_grad_end(model, &dx);
}

static const struct layer_type conv_type = {"conv", conv_forward, conv_backward};

int layer_conv(struct model *model, int x, int filters, int size, int stride, int pad)
{
    const struct value in = model->build_status ? (struct value){.c = 1} : model->values[x];
    int features = size * size * in.c;
    /* He initialization, for rectifiers. */
    struct param_init init = {.deviation = sqrtf(2.0f / (float)features)};
    int weight = model_add_param(model, filters, features, &init);
    struct layer *layer = model_begin_layer(model, &conv_type, x, NO_VALUE);

    layer->param[WEIGHT] = weight;
    layer->conv = (struct ops_conv){
        .h = in.h, .w = in.w, .c = in.c, .k = filters, .r = size, .s = size, .stride = stride, .pad = pad};
    layer->reads_in[X] = true;
    layer->out[Y] = model_add_value(model, (in.h + 2 * pad - size) / stride + 1,
                                    (in.w + 2 * pad - size) / stride + 1, filters, false);
    return model_end_layer(model);
}

/* ---- bias and activation ---- */

static enum status bias_forward(struct model *model, struct layer *layer)
{
    const struct value *y = &model->values[layer->out[Y]];

    return MODEL_OP(model, bias_act_forward, .x = model->values[layer->in[X]].data.data,
                    .bias = param_read(&model->params[layer->param[WEIGHT]]), .y = y->data.data,
                    .type = model->type, .act = layer->act, .rows = model_rows(model, y), .cols = y->c);
}

static enum status bias_backward(struct model *model, struct layer *layer)
{
    const struct value *y = &model->values[layer->out[Y]];
    struct grad_target dx = {0};
    float *dbias = NULL;
    int accumulate = 0;
    const void *dy = y->grad->data;
    bool in_place = model_grad_pass(model, layer->out[Y], layer->in[X]);
    enum status status = param_grad(&model->params[layer->param[WEIGHT]], model->mem, &dbias, &accumulate);

    if (!status && !in_place)
        status = model_grad_begin(model, layer->in[X], false, &dx);
    if (!status)
        status =
            MODEL_OP(model, bias_act_backward, .dy = dy, .saved = y->data.data,
                     .dx = in_place ? y->grad->data : dx.data, .dbias = dbias, .type = model->type,
                     .act = layer->act, .rows = model_rows(model, y), .cols = y->c, .accumulate = accumulate,
                     .workspace = model->workspace.data, .workspace_bytes = model->workspace.bytes);
    return status || in_place ? status : model_grad_end(model, &dx);
}

static const struct layer_type bias_type = {"bias", bias_forward, bias_backward};

int layer_bias_act(struct model *model, int x, enum ops_act act)
{
    const struct value in = model->build_status ? (struct value){0} : model->values[x];
    int bias = model_add_param(model, 1, in.c, &(struct param_init){.value = 0.0f});
    struct layer *layer = model_begin_layer(model, &bias_type, x, NO_VALUE);

    layer->param[WEIGHT] = bias;
    layer->act = act;
    layer->reads_out[Y] = act == OPS_ACT_RELU;
    layer->out[Y] = model_add_value(model, in.h, in.w, in.c, false);
    return model_end_layer(model);
}

/* ---- batch normalization ---- */

enum { MASK_BITS = 8 };

/* With a residual, the mask of relu does not follow from x. It is then kept as a bit for each element, so
 * that the backward pass reads a sixteenth of the bytes of y. */
static bool wants_mask(const struct model *model, const struct layer *layer)
{
    return model->training && model->type != OPS_F32 && layer->act == OPS_ACT_RELU &&
           layer->in[RESIDUAL] != NO_VALUE && model->values[layer->out[Y]].c % MASK_BITS == 0;
}

static enum status norm_forward(struct model *model, struct layer *layer)
{
    const struct value *y = &model->values[layer->out[Y]];
    int residual = layer->in[RESIDUAL];
    size_t bytes = (size_t)y->c * sizeof(float);
    enum status status = mem_need(model->mem, &layer->saved[MEAN], bytes, MEM_ACTIVATIONS);

    if (!status)
        status = mem_need(model->mem, &layer->saved[RSTD], bytes, MEM_ACTIVATIONS);
    if (!status && wants_mask(model, layer))
        status = mem_need(model->mem, &layer->saved[MASK],
                          (size_t)model_rows(model, y) * (size_t)y->c / MASK_BITS, MEM_ACTIVATIONS);
    if (status)
        return status;
    return MODEL_OP(model, batchnorm_forward, .x = model->values[layer->in[X]].data.data,
                    .residual = residual == NO_VALUE ? NULL : model->values[residual].data.data,
                    .y = y->data.data, .gamma = model->params[layer->param[GAMMA]].weight.data,
                    .beta = model->params[layer->param[BETA]].weight.data,
                    .running_mean = model->params[layer->param[RUNNING_MEAN]].weight.data,
                    .running_variance = model->params[layer->param[RUNNING_VARIANCE]].weight.data,
                    .mean = layer->saved[MEAN].data, .rstd = layer->saved[RSTD].data, .type = model->type,
                    .act = layer->act, .rows = model_rows(model, y), .cols = y->c, .epsilon = epsilon,
                    .momentum = model->frozen_statistics ? 0.0f : momentum, .training = model->training,
                    .workspace = model->workspace.data, .workspace_bytes = model->workspace.bytes,
                    .mask = wants_mask(model, layer) ? layer->saved[MASK].data : NULL);
}

static enum status norm_backward(struct model *model, struct layer *layer)
{
    const struct value *y = &model->values[layer->out[Y]];
    struct grad_target dx = {0};
    struct grad_target residual = {0};
    float *dgamma = NULL;
    float *dbeta = NULL;
    int accumulate = 0;
    const void *dy = y->grad->data;
    bool in_place = model_grad_pass(model, layer->out[Y], layer->in[X]);
    enum status status = param_grad(&model->params[layer->param[GAMMA]], model->mem, &dgamma, &accumulate);

    if (!status)
        status = param_grad(&model->params[layer->param[BETA]], model->mem, &dbeta, &accumulate);
    if (!status && !in_place)
        status = model_grad_begin(model, layer->in[X], false, &dx);
    if (!status && layer->in[RESIDUAL] != NO_VALUE)
        status = model_grad_begin(model, layer->in[RESIDUAL], false, &residual);
    if (!status)
        status = MODEL_OP(
            model, batchnorm_backward, .dy = dy, .x = model->values[layer->in[X]].data.data,
            .y = y->data.data, .dx = in_place ? y->grad->data : dx.data, .dresidual = residual.data,
            .gamma = model->params[layer->param[GAMMA]].weight.data,
            .beta = layer->in[RESIDUAL] == NO_VALUE ? model->params[layer->param[BETA]].weight.data : NULL,
            .mean = layer->saved[MEAN].data, .rstd = layer->saved[RSTD].data, .dgamma = dgamma,
            .dbeta = dbeta, .type = model->type, .act = layer->act, .rows = model_rows(model, y),
            .cols = y->c, .accumulate = accumulate, .workspace = model->workspace.data,
            .workspace_bytes = model->workspace.bytes,
            .mask = wants_mask(model, layer) ? layer->saved[MASK].data : NULL);
    if (!status && !in_place)
        status = model_grad_end(model, &dx);
    return status || layer->in[RESIDUAL] == NO_VALUE ? status : model_grad_end(model, &residual);
}

static const struct layer_type norm_type = {"batchnorm", norm_forward, norm_backward};

int layer_batchnorm(struct model *model, int x, int residual, enum ops_act act, float gamma)
{
    const struct value in = model->build_status ? (struct value){0} : model->values[x];
    int first = model_add_param(model, 1, in.c, &(struct param_init){.value = gamma, .plain = true});
    struct layer *layer;

    model_add_param(model, 1, in.c, &(struct param_init){.value = 0.0f, .plain = true});
    model_add_param(model, 1, in.c, &(struct param_init){.value = 0.0f, .plain = true, .statistic = true});
    model_add_param(model, 1, in.c, &(struct param_init){.value = 1.0f, .plain = true, .statistic = true});
    layer = model_begin_layer(model, &norm_type, x, residual);
    for (int i = 0; i < LAYER_PARAMS; i++)
        layer->param[i] = first + i;
    layer->act = act;
    layer->reads_in[X] = true;
    layer->reads_out[Y] = act == OPS_ACT_RELU;
    layer->out[Y] = model_add_value(model, in.h, in.w, in.c, false);
    return model_end_layer(model);
}
