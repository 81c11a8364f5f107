/* Dense layers: y = act(x w' + b) for each row, with w [out][in]. Backward, with g the gradient before the
 * activation: db = the column sums of g, dw = g' x, dx = g w. A gelu keeps what went into it as a second
 * output; a relu needs only y. Dropout acts on y in place. */
#include "harness/model/layers.h"

enum { X, Y = 0, AUX = 1, WEIGHT = 0, BIAS = 1 };

static int rows_of(const struct model *model, const struct layer *layer)
{
    return layer->flat ? model->n : model_rows(model, &model->values[layer->in[X]]);
}

static enum status drop_out(struct model *model, const struct layer *layer, const void *x, void *y)
{
    const struct value *value = &model->values[layer->out[Y]];

    return MODEL_OP(model, dropout, .x = x, .y = y, .type = model->type,
                    .count = (size_t)rows_of(model, layer) * (size_t)value->c, .rate = layer->dropout,
                    .seed = layer->seed + model->micro, .step = model->step);
}

static enum status forward(struct model *model, struct layer *layer)
{
    const struct value *y = &model->values[layer->out[Y]];
    int bias = layer->param[BIAS];
    enum status status =
        MODEL_OP(model, gemm, .a = model->values[layer->in[X]].data.data,
                 .b = param_read(&model->params[layer->param[WEIGHT]]), .c = y->data.data,
                 .bias = bias == NO_VALUE ? NULL : param_read(&model->params[bias]),
                 .aux = layer->out[AUX] == NO_VALUE ? NULL : model->values[layer->out[AUX]].data.data,
                 .type = model->type, .c_type = model->type, .act = layer->act, .m = rows_of(model, layer),
                 .n = y->c, .k = layer->features, .trans_b = 1, .alpha = 1.0f, .tf32 = model->tf32,
                 .workspace = model->workspace.data, .workspace_bytes = model->workspace.bytes);

    if (!status && layer->dropout > 0.0f && model->training)
        status = drop_out(model, layer, y->data.data, y->data.data);
    return status;
}

/* Computes the gradient before the activation into *g, and db. Reuses the memory of y's gradient if no
 * other layer reads it. */
static enum status before_activation(struct model *model, struct layer *layer, struct tensor **g)
{
    struct value *y = &model->values[layer->out[Y]];
    struct tensor *own = &layer->saved[0];
    const void *dy = y->grad->data;
    bool changes = layer->act != OPS_ACT_NONE || layer->dropout > 0.0f;
    enum status status = STATUS_OK;
    float *dbias = NULL;
    int accumulate = 0;

    *g = y->grad;
    if (changes && y->grad->holders > 1) {
        status = mem_need(model->mem, own, model_value_bytes(model, y), MEM_ACTIVATIONS);
        *g = own;
    }
    if (!status && layer->dropout > 0.0f) {
        status = drop_out(model, layer, dy, (*g)->data);
        dy = (*g)->data;
    }
    if (!status && layer->param[BIAS] != NO_VALUE)
        status = param_grad(&model->params[layer->param[BIAS]], model->mem, &dbias, &accumulate);
    if (status || (!dbias && layer->act == OPS_ACT_NONE))
        return status;
    return MODEL_OP(model, bias_act_backward, .dy = dy,
                    .saved =
                        layer->act == OPS_ACT_GELU ? model->values[layer->out[AUX]].data.data : y->data.data,
                    .dx = (*g)->data, .dbias = dbias, .type = model->type, .act = layer->act,
                    .rows = rows_of(model, layer), .cols = y->c, .accumulate = accumulate,
                    .workspace = model->workspace.data, .workspace_bytes = model->workspace.bytes);
}

static enum status weight_grad(struct model *model, struct layer *layer, const void *g)
{
    const struct value *y = &model->values[layer->out[Y]];
    float *dw = NULL;
    int accumulate = 0;
    enum status status = param_grad(&model->params[layer->param[WEIGHT]], model->mem, &dw, &accumulate);

    if (status)
        return status;
    return MODEL_OP(model, gemm, .a = g, .b = model->values[layer->in[X]].data.data, .c = dw,
                    .type = model->type, .c_type = OPS_F32, .m = y->c, .n = layer->features,
                    .k = rows_of(model, layer), .trans_a = 1, .alpha = 1.0f, .beta = accumulate ? 1.0f : 0.0f,
                    .tf32 = model->tf32, .workspace = model->workspace.data,
                    .workspace_bytes = model->workspace.bytes);
}

static enum status backward(struct model *model, struct layer *layer)
{
    const struct value *y = &model->values[layer->out[Y]];
    struct grad_target dx;
    struct tensor *g;
    enum status status = before_activation(model, layer, &g);

    if (!status)
        status = weight_grad(model, layer, g->data);
    if (!status)
        status = model_grad_begin(model, layer->in[X], true, &dx);
    if (!status && dx.data)
        status = MODEL_OP(model, gemm, .a = g->data, .b = param_read(&model->params[layer->param[WEIGHT]]),
                          .c = dx.data, .type = model->type, .c_type = model->type,
                          .m = rows_of(model, layer), .n = layer->features, .k = y->c, .alpha = 1.0f,
                          .beta = dx.accumulate ? 1.0f : 0.0f, .tf32 = model->tf32,
                          .workspace = model->workspace.data, .workspace_bytes = model->workspace.bytes);
    return status ? status : model_grad_end(model, &dx);
}

static const struct layer_type dense_type = {"dense", forward, backward};

int layer_dense(struct model *model, int x, const struct dense_config *config)
{
    const struct value in = model->build_status ? (struct value){0} : model->values[x];
    int features = config->flat ? in.h * in.w * in.c : in.c;
    int weight = config->tied - 1;
    int bias = NO_VALUE;
    struct layer *layer;

    if (!config->tied)
        weight = model_add_param(model, config->out, features,
                                 &(struct param_init){.deviation = config->deviation});
    if (!config->no_bias)
        bias = model_add_param(model, 1, config->out, &(struct param_init){.value = 0.0f});
    layer = model_begin_layer(model, &dense_type, x, NO_VALUE);
    layer->param[WEIGHT] = weight;
    layer->param[BIAS] = bias;
    layer->features = features;
    layer->flat = config->flat;
    layer->act = config->act;
    layer->dropout = config->dropout;
    layer->reads_in[X] = true;
    layer->reads_out[Y] = config->act == OPS_ACT_RELU;
    layer->out[Y] = config->flat ? model_add_value(model, 1, 1, config->out, false)
                                 : model_add_value(model, in.h, in.w, config->out, in.tokens);
    if (config->act == OPS_ACT_GELU) {
        layer->out[AUX] = model_add_value(model, in.h, in.w, config->out, in.tokens);
        layer->reads_out[AUX] = true;
    }
    return model_end_layer(model);
}
