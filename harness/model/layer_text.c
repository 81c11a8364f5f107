/* The layers of a Transformer besides dense ones: embedding, layer normalization with the residual sum, and
 * causal attention. */
#include "harness/model/layers.h"

enum { X = 0, RESIDUAL = 1, Y = 0, SUM = 1 };
enum { TOKENS = 0, POSITIONS = 1, GAMMA = 0, BETA = 1 };
enum { MEAN = 0, RSTD = 1, DX = 2, LSE = 0, DELTA = 1 };

static const float epsilon = 1e-5f;
static const float table_deviation = 0.02f; /* GPT-2's */

/* ---- embedding ---- */

static enum status embedding_forward(struct model *model, struct layer *layer)
{
    const struct value *y = &model->values[layer->out[Y]];
    const struct param *table = &model->params[layer->param[TOKENS]];
    enum status status =
        MODEL_OP(model, embedding_forward, .tokens = model->tokens, .tokens_table = param_read(table),
                 .positions_table = param_read(&model->params[layer->param[POSITIONS]]), .out = y->data.data,
                 .type = model->type, .rows = model_rows(model, y), .cols = y->c, .length = model->length,
                 .vocabulary = table->rows);

    if (!status && layer->dropout > 0.0f && model->training)
        status = MODEL_OP(model, dropout, .x = y->data.data, .y = y->data.data, .type = model->type,
                          .count = (size_t)model_rows(model, y) * (size_t)y->c, .rate = layer->dropout,
                          .seed = layer->seed + model->micro, .step = model->step);
    return status;
}

static enum status embedding_backward(struct model *model, struct layer *layer)
{
    const struct value *y = &model->values[layer->out[Y]];
    struct param *positions = &model->params[layer->param[POSITIONS]];
    int rows = model_rows(model, y);
    float *dtokens = NULL;
    float *dpositions = NULL;
    int tied = 0;
    int accumulate = 0;
    enum status status = STATUS_OK;

    if (layer->dropout > 0.0f)
        status = MODEL_OP(model, dropout, .x = y->grad->data, .y = y->grad->data, .type = model->type,
                          .count = (size_t)rows * (size_t)y->c, .rate = layer->dropout,
                          .seed = layer->seed + model->micro, .step = model->step);
    if (!status)
        status = param_grad(&model->params[layer->param[TOKENS]], model->mem, &dtokens, &tied);
    if (!status)
        status = param_grad(positions, model->mem, &dpositions, &accumulate);
    /* One `accumulate` applies to both tables, but the tied one already has the gradient from the output
     * layer. */
    if (!status && tied && !accumulate)
        status = MODEL_OP(model, fill, .out = dpositions, .type = OPS_F32, .count = param_count(positions));
    if (status)
        return status;
    return MODEL_OP(model, embedding_backward, .tokens = model->tokens, .dout = y->grad->data,
                    .dtokens_table = dtokens, .dpositions_table = dpositions, .type = model->type,
                    .rows = rows, .cols = y->c, .length = model->length,
                    .vocabulary = model->params[layer->param[TOKENS]].rows, .accumulate = tied,
                    .workspace = model->workspace.data, .workspace_bytes = model->workspace.bytes);
}

static const struct layer_type embedding_type = {"embedding", embedding_forward, embedding_backward};

int layer_embedding(struct model *model, int tokens, int vocabulary, int width, float dropout, int *table)
{
    struct param_init init = {.deviation = table_deviation};
    int positions;
    struct layer *layer;

    *table = model_add_param(model, vocabulary, width, &init);
    positions = model_add_param(model, model->length_limit, width, &init);
    layer = model_begin_layer(model, &embedding_type, tokens, NO_VALUE);
    layer->param[TOKENS] = *table;
    layer->param[POSITIONS] = positions;
    layer->dropout = dropout;
    layer->out[Y] = model_add_value(model, 1, 1, width, true);
    return model_end_layer(model);
}

/* ---- layer normalization ---- */

/* The value whose rows are normalized. */
static int normalized(const struct layer *layer)
{
    return layer->out[SUM] == NO_VALUE ? layer->in[X] : layer->out[SUM];
}

static enum status norm_forward(struct model *model, struct layer *layer)
{
    const struct value *y = &model->values[layer->out[Y]];
    int residual = layer->in[RESIDUAL];
    int rows = model_rows(model, y);
    size_t bytes = (size_t)rows * sizeof(float);
    enum status status = mem_need(model->mem, &layer->saved[MEAN], bytes, MEM_ACTIVATIONS);

    if (!status)
        status = mem_need(model->mem, &layer->saved[RSTD], bytes, MEM_ACTIVATIONS);
    if (status)
        return status;
    return MODEL_OP(model, layernorm_forward, .x = model->values[layer->in[X]].data.data,
                    .residual = residual == NO_VALUE ? NULL : model->values[residual].data.data,
                    .sum = residual == NO_VALUE ? NULL : model->values[layer->out[SUM]].data.data,
                    .y = y->data.data, .gamma = model->params[layer->param[GAMMA]].weight.data,
                    .beta = model->params[layer->param[BETA]].weight.data, .mean = layer->saved[MEAN].data,
                    .rstd = layer->saved[RSTD].data, .type = model->type, .rows = rows, .cols = y->c,
                    .epsilon = epsilon);
}

/* Finds memory for the gradient of the sum: its existing gradient from the residual path, or that of y if
 * no other layer reads it. */
static enum status choose_dx(struct model *model, struct layer *layer, struct tensor *dsum,
                             struct tensor **dx)
{
    struct value *y = &model->values[layer->out[Y]];

    if (dsum && dsum->holders == 1)
        *dx = dsum;
    else if (y->grad->holders == 1)
        *dx = y->grad;
    else
        *dx = &layer->saved[DX];
    return *dx == &layer->saved[DX] ? mem_need(model->mem, *dx, model_value_bytes(model, y), MEM_ACTIVATIONS)
                                    : STATUS_OK;
}

/* The gradient of the sum is also that of x and of the residual. */
static enum status give_dx(struct model *model, struct layer *layer, struct tensor *dsum, struct tensor *dx)
{
    struct value *x = &model->values[layer->in[X]];
    enum status status = STATUS_OK;

    if (layer->in[RESIDUAL] == NO_VALUE && dx == dsum)
        return STATUS_OK; /* it already is the gradient of x */
    if (layer->in[RESIDUAL] == NO_VALUE && dsum) {
        status = mem_done(model->mem, x->grad);
        x->grad = NULL;
    }
    if (!status)
        status = model_grad_assign(model, layer->in[X], dx);
    if (!status && layer->in[RESIDUAL] != NO_VALUE)
        status = model_grad_assign(model, layer->in[RESIDUAL], dx);
    return status;
}

static enum status norm_backward(struct model *model, struct layer *layer)
{
    const struct value *y = &model->values[layer->out[Y]];
    struct value *source = &model->values[normalized(layer)];
    struct tensor *dsum = source->grad;
    struct tensor *dx = NULL;
    float *dgamma = NULL;
    float *dbeta = NULL;
    int accumulate = 0;
    enum status status = param_grad(&model->params[layer->param[GAMMA]], model->mem, &dgamma, &accumulate);

    if (!status)
        status = param_grad(&model->params[layer->param[BETA]], model->mem, &dbeta, &accumulate);
    if (!status)
        status = choose_dx(model, layer, dsum, &dx);
    if (!status)
        status =
            MODEL_OP(model, layernorm_backward, .dy = y->grad->data, .dsum = dsum ? dsum->data : NULL,
                     .x = source->data.data, .dx = dx->data,
                     .gamma = model->params[layer->param[GAMMA]].weight.data, .mean = layer->saved[MEAN].data,
                     .rstd = layer->saved[RSTD].data, .dgamma = dgamma, .dbeta = dbeta, .type = model->type,
                     .rows = model_rows(model, y), .cols = y->c, .accumulate = accumulate,
                     .workspace = model->workspace.data, .workspace_bytes = model->workspace.bytes);
    return status ? status : give_dx(model, layer, dsum, dx);
}

static const struct layer_type norm_type = {"layernorm", norm_forward, norm_backward};

int layer_layernorm(struct model *model, int x, int residual, int *sum)
{
    const struct value in = model->build_status ? (struct value){0} : model->values[x];
    int gamma = model_add_param(model, 1, in.c, &(struct param_init){.value = 1.0f, .plain = true});
    int beta = model_add_param(model, 1, in.c, &(struct param_init){.value = 0.0f, .plain = true});
    struct layer *layer = model_begin_layer(model, &norm_type, x, residual);

    layer->param[GAMMA] = gamma;
    layer->param[BETA] = beta;
    layer->out[Y] = model_add_value(model, in.h, in.w, in.c, in.tokens);
    *sum = x;
    if (residual != NO_VALUE) {
        *sum = layer->out[SUM] = model_add_value(model, in.h, in.w, in.c, in.tokens);
        layer->reads_out[SUM] = true;
    } else {
        layer->reads_in[X] = true;
    }
    return model_end_layer(model);
}

/* ---- attention ---- */

static enum status attention_forward(struct model *model, struct layer *layer)
{
    const struct value *y = &model->values[layer->out[Y]];
    size_t bytes = (size_t)model_rows(model, y) * (size_t)layer->heads * sizeof(float);
    enum status status = mem_need(model->mem, &layer->saved[LSE], bytes, MEM_ACTIVATIONS);

    if (status)
        return status;
    return MODEL_OP(model, attention_forward, .qkv = model->values[layer->in[X]].data.data,
                    .out = y->data.data, .lse = layer->saved[LSE].data, .type = model->type,
                    .batch = model->n, .length = model->length, .heads = layer->heads,
                    .dim = y->c / layer->heads, .causal = 1);
}

static enum status attention_backward(struct model *model, struct layer *layer)
{
    const struct value *y = &model->values[layer->out[Y]];
    struct grad_target dqkv = {0};
    size_t bytes = (size_t)model_rows(model, y) * (size_t)layer->heads * sizeof(float);
    enum status status = mem_need(model->mem, &layer->saved[DELTA], bytes, MEM_ACTIVATIONS);

    if (!status)
        status = model_grad_begin(model, layer->in[X], false, &dqkv);
    if (!status)
        status = MODEL_OP(model, attention_backward, .qkv = model->values[layer->in[X]].data.data,
                          .out = y->data.data, .dout = y->grad->data, .lse = layer->saved[LSE].data,
                          .dqkv = dqkv.data, .delta = layer->saved[DELTA].data, .type = model->type,
                          .batch = model->n, .length = model->length, .heads = layer->heads,
                          .dim = y->c / layer->heads, .causal = 1);
    return status ? status : model_grad_end(model, &dqkv);
}

static const struct layer_type attention_type = {"attention", attention_forward, attention_backward};

int layer_attention(struct model *model, int qkv, int heads)
{
    const struct value in = model->build_status ? (struct value){.c = 3} : model->values[qkv];
    struct layer *layer = model_begin_layer(model, &attention_type, qkv, NO_VALUE);

    layer->heads = heads;
    layer->reads_in[X] = true;
    layer->reads_out[Y] = true;
    layer->out[Y] = model_add_value(model, in.h, in.w, in.c / 3, in.tokens);
    return model_end_layer(model);
}
