/* Layers that change the shape of pictures: pooling, upsampling, and putting channels together. */
#include "harness/model/layers.h"

enum { X = 0, OTHER = 1, Y = 0, WHERE = 0 };

/* ---- the largest of a window ---- */

static enum status maxpool_forward(struct model *model, struct layer *layer)
{
    const struct value *y = &model->values[layer->out[Y]];
    const struct ops_conv *window = &layer->conv;
    enum status status = mem_need(model->mem, &layer->saved[WHERE],
                                  (size_t)model_rows(model, y) * (size_t)y->c, MEM_ACTIVATIONS);

    if (status)
        return status;
    return MODEL_OP(model, maxpool_forward, .x = model->values[layer->in[X]].data.data, .y = y->data.data,
                    .where = layer->saved[WHERE].data, .type = model->type, .n = model->n, .h = window->h,
                    .w = window->w, .c = window->c, .size = window->r, .stride = window->stride,
                    .pad = window->pad);
}

static enum status maxpool_backward(struct model *model, struct layer *layer)
{
    const struct ops_conv *window = &layer->conv;
    struct grad_target dx;
    enum status status = model_grad_begin(model, layer->in[X], false, &dx);

    if (!status && dx.data)
        status = MODEL_OP(model, maxpool_backward, .dy = model->values[layer->out[Y]].grad->data,
                          .where = layer->saved[WHERE].data, .dx = dx.data, .type = model->type,
                          .n = model->n, .h = window->h, .w = window->w, .c = window->c, .size = window->r,
                          .stride = window->stride, .pad = window->pad);
    return status ? status : model_grad_end(model, &dx);
}

static const struct layer_type maxpool_type = {"maxpool", maxpool_forward, maxpool_backward};

int layer_maxpool(struct model *model, int x, int size, int stride, int pad)
{
    const struct value in = model->build_status ? (struct value){0} : model->values[x];
    struct layer *layer = model_begin_layer(model, &maxpool_type, x, NO_VALUE);

    layer->conv = (struct ops_conv){
        .h = in.h, .w = in.w, .c = in.c, .r = size, .s = size, .stride = stride, .pad = pad};
    layer->out[Y] = model_add_value(model, (in.h + 2 * pad - size) / stride + 1,
                                    (in.w + 2 * pad - size) / stride + 1, in.c, false);
    return model_end_layer(model);
}

/* ---- the mean of a picture ---- */

static enum status avgpool_forward(struct model *model, struct layer *layer)
{
    const struct value *x = &model->values[layer->in[X]];

    return MODEL_OP(model, avgpool_forward, .x = x->data.data, .y = model->values[layer->out[Y]].data.data,
                    .type = model->type, .n = model->n, .h = x->h, .w = x->w, .c = x->c);
}

static enum status avgpool_backward(struct model *model, struct layer *layer)
{
    const struct value *x = &model->values[layer->in[X]];
    struct grad_target dx;
    enum status status = model_grad_begin(model, layer->in[X], false, &dx);

    if (!status && dx.data)
        status = MODEL_OP(model, avgpool_backward, .dy = model->values[layer->out[Y]].grad->data,
                          .dx = dx.data, .type = model->type, .n = model->n, .h = x->h, .w = x->w, .c = x->c);
    return status ? status : model_grad_end(model, &dx);
}

static const struct layer_type avgpool_type = {"avgpool", avgpool_forward, avgpool_backward};

int layer_avgpool(struct model *model, int x)
{
    const struct value in = model->build_status ? (struct value){0} : model->values[x];
    struct layer *layer = model_begin_layer(model, &avgpool_type, x, NO_VALUE);

    layer->out[Y] = model_add_value(model, 1, 1, in.c, false);
    return model_end_layer(model);
}

/* ---- twice the height and width ---- */

static enum status upsample_forward(struct model *model, struct layer *layer)
{
    const struct value *x = &model->values[layer->in[X]];

    return MODEL_OP(model, upsample_forward, .x = x->data.data, .y = model->values[layer->out[Y]].data.data,
                    .type = model->type, .n = model->n, .h = x->h, .w = x->w, .c = x->c);
}

static enum status upsample_backward(struct model *model, struct layer *layer)
{
    const struct value *x = &model->values[layer->in[X]];
    struct grad_target dx;
    enum status status = model_grad_begin(model, layer->in[X], false, &dx);

    if (!status && dx.data)
        status = MODEL_OP(model, upsample_backward, .dy = model->values[layer->out[Y]].grad->data,
                          .dx = dx.data, .type = model->type, .n = model->n, .h = x->h, .w = x->w, .c = x->c);
    return status ? status : model_grad_end(model, &dx);
}

static const struct layer_type upsample_type = {"upsample", upsample_forward, upsample_backward};

int layer_upsample(struct model *model, int x)
{
    const struct value in = model->build_status ? (struct value){0} : model->values[x];
    struct layer *layer = model_begin_layer(model, &upsample_type, x, NO_VALUE);

    layer->out[Y] = model_add_value(model, 2 * in.h, 2 * in.w, in.c, false);
    return model_end_layer(model);
}

/* ---- the channels of two pictures side by side ---- */

static enum status concat_forward(struct model *model, struct layer *layer)
{
    const struct value *y = &model->values[layer->out[Y]];
    enum status status = STATUS_OK;
    int from = 0;

    for (int i = 0; i < LAYER_INPUTS && !status; i++) {
        const struct value *x = &model->values[layer->in[i]];

        status = MODEL_OP(model, channels_copy, .x = x->data.data, .out = y->data.data, .type = model->type,
                          .rows = (size_t)model_rows(model, y), .cols = x->c, .x_cols = x->c,
                          .out_cols = y->c, .out_from = from);
        from += x->c;
    }
    return status;
}

static enum status concat_backward(struct model *model, struct layer *layer)
{
    const struct value *y = &model->values[layer->out[Y]];
    enum status status = STATUS_OK;
    int from = 0;

    for (int i = 0; i < LAYER_INPUTS && !status; i++) {
        const struct value *x = &model->values[layer->in[i]];
        struct grad_target dx;

        status = model_grad_begin(model, layer->in[i], true, &dx);
        if (!status && dx.data)
            status = MODEL_OP(model, channels_copy, .x = y->grad->data, .out = dx.data, .type = model->type,
                              .rows = (size_t)model_rows(model, y), .cols = x->c, .x_cols = y->c,
                              .x_from = from, .out_cols = x->c, .accumulate = dx.accumulate);
        if (!status)
            status = model_grad_end(model, &dx);
        from += x->c;
    }
    return status;
}

static const struct layer_type concat_type = {"concat", concat_forward, concat_backward};

int layer_concat(struct model *model, int a, int b)
{
    const struct value first = model->build_status ? (struct value){0} : model->values[a];
    int channels = first.c + (model->build_status ? 0 : model->values[b].c);
    struct layer *layer = model_begin_layer(model, &concat_type, a, b);

    layer->out[Y] = model_add_value(model, first.h, first.w, channels, false);
    return model_end_layer(model);
}
