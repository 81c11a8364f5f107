/* Walks a model's layers forward and backward and decides how long each value lives. See model.h. */
#include "harness/model/model.h"

#include <limits.h>

int model_rows(const struct model *model, const struct value *value)
{
    return value->tokens ? model->n * model->length : model->n * value->h * value->w;
}

bool model_can_hold(const struct model *model, uint64_t n)
{
    for (int v = 0; v < model->value_count; v++) {
        const struct value *value = &model->values[v];
        uint64_t rows =
            value->tokens ? (uint64_t)model->length_limit : (uint64_t)value->h * (uint64_t)value->w;

        if (n > INT_MAX / rows)
            return false;
    }
    return true;
}

size_t model_value_bytes(const struct model *model, const struct value *value)
{
    return (size_t)model_rows(model, value) * (size_t)value->c * ops_type_bytes(model->type);
}

static enum status need_value(struct model *model, int value)
{
    struct value *v = &model->values[value];

    return mem_need(model->mem, &v->data, model_value_bytes(model, v), MEM_ACTIVATIONS);
}

static int last_segment(const struct model *model)
{
    return model->layers[model->layer_count - 1].segment;
}

/* Returns true if the contents are kept after the last reader of the forward pass. */
static bool kept(const struct model *model, const struct value *value)
{
    int segment = value->maker >= 0 ? model->layers[value->maker].segment : -1;

    if (!model->training)
        return false;
    if (!model->checkpointing || segment == last_segment(model))
        return value->backward_reads;
    return value->last_segment > segment;
}

/* The input's memory belongs to the caller. */
static enum status release(struct model *model, struct value *value)
{
    return value->maker < 0 ? STATUS_OK : mem_done(model->mem, &value->data);
}

/* Unpacks the packed weights of this layer, until its work is queued. No other place does. */
static enum status unpack_params(struct model *model, const struct layer *layer)
{
    enum status status = STATUS_OK;

    for (int i = 0; i < LAYER_PARAMS && !status; i++) {
        struct param *param = layer->param[i] == NO_VALUE ? NULL : &model->params[layer->param[i]];

        if (!param || !param->bytes.data)
            continue;
        status = mem_need(model->mem, &model->unpacked[i], param_count(param) * ops_type_bytes(model->type),
                          MEM_WORKSPACE);
        if (!status)
            status = param_unpack(param, model->device, model->type, model->unpacked[i].data);
    }
    return status;
}

static enum status release_params(struct model *model, const struct layer *layer)
{
    enum status status = STATUS_OK;

    for (int i = 0; i < LAYER_PARAMS && !status; i++) {
        if (layer->param[i] != NO_VALUE)
            model->params[layer->param[i]].unpacked = NULL;
        status = mem_done(model->mem, &model->unpacked[i]);
    }
    return status;
}

static enum status forward_layer(struct model *model, struct layer *layer)
{
    enum status status = STATUS_OK;

    model->place.layer = (int)(layer - model->layers);
    for (int i = 0; i < LAYER_OUTPUTS && !status; i++) {
        if (layer->out[i] != NO_VALUE)
            status = need_value(model, layer->out[i]);
    }
    if (!status)
        status = unpack_params(model, layer);
    if (!status)
        status = layer->type->forward(model, layer);
    return status ? status : release_params(model, layer);
}

/* After the forward pass of a layer: removes it from the readers of its inputs. */
static enum status pass_readers(struct model *model, const struct layer *layer)
{
    enum status status = STATUS_OK;

    for (int i = 0; i < LAYER_INPUTS && !status; i++) {
        struct value *value = layer->in[i] == NO_VALUE ? NULL : &model->values[layer->in[i]];

        if (value && --value->readers_left == 0 && !kept(model, value))
            status = release(model, value);
    }
    for (int i = 0; i < LAYER_OUTPUTS && !status; i++) {
        struct value *value = layer->out[i] == NO_VALUE ? NULL : &model->values[layer->out[i]];

        if (value && value->readers == 0 && !kept(model, value))
            status = release(model, value);
    }
    return status;
}

static enum status forward_loss(struct model *model, const struct model_targets *targets)
{
    struct value *output = &model->values[model->output];
    size_t bytes = (size_t)model_loss_rows(model) * sizeof(float);
    enum status status = mem_need(model->mem, &model->losses, bytes, MEM_ACTIVATIONS);

    model->place.layer = model->layer_count;
    if (status)
        return status;
    if (model->loss == LOSS_PICTURE)
        return MODEL_OP(model, mse_forward, .x = output->data.data, .target = targets->picture,
                        .losses = model->losses.data, .type = model->type, .rows = model->n,
                        .cols = output->h * output->w * output->c);
    status = mem_need(model->mem, &model->lse, bytes, MEM_ACTIVATIONS);
    if (status)
        return status;
    return MODEL_OP(model, softmax_xent_forward, .logits = output->data.data, .labels = targets->labels,
                    .losses = model->losses.data, .lse = model->lse.data, .type = model->type,
                    .rows = model_loss_rows(model), .cols = output->c);
}

enum status model_forward(struct model *model, const struct model_targets *targets)
{
    enum status status =
        mem_need(model->mem, &model->workspace, model->device->ops->workspace_bytes, MEM_WORKSPACE);

    model->place.pass = PASS_FORWARD;
    for (int v = 0; v < model->value_count; v++) {
        model->values[v].readers_left = model->values[v].readers;
        model->values[v].grad = NULL;
    }
    for (int l = 0; l < model->layer_count && !status; l++) {
        status = forward_layer(model, &model->layers[l]);
        if (!status)
            status = pass_readers(model, &model->layers[l]);
    }
    return status ? status : forward_loss(model, targets);
}

/* ---- backward ---- */

/* The gradient of the output takes the place of the output. */
static enum status backward_loss(struct model *model, const struct model_targets *targets, float scale,
                                 const float *scale_by)
{
    struct value *output = &model->values[model->output];

    model->place = (struct model_place){PASS_BACKWARD, model->layer_count};
    output->grad = &output->data;
    mem_share(output->grad);
    if (model->loss == LOSS_PICTURE)
        return MODEL_OP(model, mse_backward, .x = output->data.data, .target = targets->picture,
                        .dx = output->data.data, .type = model->type, .rows = model->n,
                        .cols = output->h * output->w * output->c, .scale = scale, .scale_by = scale_by);
    return MODEL_OP(model, softmax_xent_backward, .logits = output->data.data, .labels = targets->labels,
                    .lse = model->lse.data, .dlogits = output->data.data, .type = model->type,
                    .rows = model_loss_rows(model), .cols = output->c, .scale = scale, .scale_by = scale_by);
}

static int readers_in_segment(const struct model *model, int value, int segment)
{
    int count = 0;

    for (int l = 0; l < model->layer_count; l++) {
        const struct layer *layer = &model->layers[l];

        for (int i = 0; i < LAYER_INPUTS; i++)
            count += layer->segment == segment && layer->in[i] == value;
    }
    return count;
}

static bool outputs_present(const struct model *model, const struct layer *layer)
{
    for (int i = 0; i < LAYER_OUTPUTS; i++) {
        if (layer->out[i] != NO_VALUE && !model->values[layer->out[i]].data.holders)
            return false;
    }
    return true;
}

/* Recomputes the segment that ends at this layer from the values that entered it. */
static enum status repeat_segment(struct model *model, int last)
{
    int segment = model->layers[last].segment;
    int first = last;
    bool frozen = model->frozen_statistics;
    enum status status = STATUS_OK;

    while (first > 0 && model->layers[first - 1].segment == segment)
        first--;
    model->place.pass = PASS_REPEAT;
    model->frozen_statistics = true;
    for (int l = first; l <= last; l++)
        for (int i = 0; i < LAYER_OUTPUTS; i++)
            if (model->layers[l].out[i] != NO_VALUE)
                model->values[model->layers[l].out[i]].readers_left =
                    readers_in_segment(model, model->layers[l].out[i], segment);
    for (int l = first; l <= last && !status; l++) {
        struct layer *layer = &model->layers[l];

        if (!outputs_present(model, layer))
            status = forward_layer(model, layer);
        for (int i = 0; i < LAYER_INPUTS && !status; i++) {
            struct value *value = layer->in[i] == NO_VALUE ? NULL : &model->values[layer->in[i]];

            if (value && value->maker >= first && --value->readers_left == 0 && !value->backward_reads)
                status = release(model, value);
        }
    }
    model->frozen_statistics = frozen;
    return status;
}

static enum status backward_layer(struct model *model, struct layer *layer)
{
    enum status status;

    model->place = (struct model_place){PASS_BACKWARD, (int)(layer - model->layers)};
    status = layer->type->backward(model, layer);
    for (int i = 0; i < LAYER_OUTPUTS && !status; i++) {
        struct value *value = layer->out[i] == NO_VALUE ? NULL : &model->values[layer->out[i]];

        if (!value)
            continue;
        if (value->grad)
            status = mem_done(model->mem, value->grad);
        value->grad = NULL;
        if (!status)
            status = mem_done(model->mem, &value->data);
    }
    for (int i = 0; i < LAYER_SAVED && !status; i++)
        status = mem_done(model->mem, &layer->saved[i]);
    return status;
}

enum status model_backward(struct model *model, const struct model_targets *targets, float scale,
                           const float *scale_by)
{
    enum status status = backward_loss(model, targets, scale, scale_by);
    int segment = last_segment(model);

    for (int l = model->layer_count - 1; l >= 0 && !status; l--) {
        if (model->checkpointing && model->layers[l].segment != segment) {
            segment = model->layers[l].segment;
            status = repeat_segment(model, l);
        }
        if (!status)
            status = backward_layer(model, &model->layers[l]);
        if (!status && model->listener.layer_done)
            status = model->listener.layer_done(model->listener.owner, model, l);
    }
    return status;
}

enum status model_end(struct model *model)
{
    struct value *output = &model->values[model->output];
    enum status status = STATUS_OK;

    if (!model->training) {
        status = mem_done(model->mem, &output->data);
        for (int l = 0; l < model->layer_count && !status; l++)
            for (int i = 0; i < LAYER_SAVED && !status; i++)
                status = mem_done(model->mem, &model->layers[l].saved[i]);
    }
    if (!status)
        status = mem_done(model->mem, &model->losses);
    if (!status)
        status = mem_done(model->mem, &model->lse);
    return status;
}

void model_drop_all(struct model *model)
{
    for (int v = 0; v < model->value_count; v++) {
        struct value *value = &model->values[v];

        if (value->maker >= 0)
            mem_drop(model->mem, &value->data);
        mem_drop(model->mem, &value->grad_memory);
        mem_drop(model->mem, &value->grad_part);
        value->grad = NULL;
    }
    for (int l = 0; l < model->layer_count; l++)
        for (int i = 0; i < LAYER_SAVED; i++)
            mem_drop(model->mem, &model->layers[l].saved[i]);
    for (int p = 0; p < model->param_count; p++) {
        mem_drop(model->mem, &model->params[p].grad);
        model->params[p].has_grad = false;
    }
    mem_drop(model->mem, &model->workspace);
    for (int i = 0; i < LAYER_PARAMS; i++)
        mem_drop(model->mem, &model->unpacked[i]);
    mem_drop(model->mem, &model->losses);
    mem_drop(model->mem, &model->lse);
    model->frozen_statistics = false;
}

/* ---- gradients of values ---- */

enum status model_grad_begin(struct model *model, int value, bool can_add, struct grad_target *target)
{
    struct value *v = &model->values[value];
    size_t bytes = model_value_bytes(model, v);
    struct tensor *memory = &v->grad_memory;
    enum status status;

    *target = (struct grad_target){.value = v};
    if (!v->wants_grad)
        return STATUS_OK;
    /* Shared memory must not be added to: the sum goes to memory of its own. */
    target->add_after = v->grad && (!can_add || v->grad->holders > 1);
    target->accumulate = v->grad && !target->add_after;
    if (target->add_after)
        memory = &v->grad_part;
    else if (v->grad)
        memory = v->grad;
    status = v->grad && !target->add_after ? STATUS_OK : mem_need(model->mem, memory, bytes, MEM_ACTIVATIONS);
    if (!v->grad)
        v->grad = memory;
    target->data = memory->data;
    return status;
}

static enum status add_into(struct model *model, struct value *value, struct tensor *tensor)
{
    size_t bytes = model_value_bytes(model, value);
    struct tensor *into = value->grad;
    enum status status = STATUS_OK;

    if (into->holders > 1) {
        status = mem_need(model->mem, &value->grad_memory, bytes, MEM_ACTIVATIONS);
        into = &value->grad_memory;
    }
    if (!status)
        status = MODEL_OP(model, add, .a = value->grad->data, .b = tensor->data, .out = into->data,
                          .type = model->type, .count = bytes / ops_type_bytes(model->type));
    if (!status && into != value->grad) {
        status = mem_done(model->mem, value->grad);
        value->grad = into;
    }
    return status;
}

enum status model_grad_end(struct model *model, struct grad_target *target)
{
    enum status status;

    if (!target->add_after)
        return STATUS_OK;
    status = add_into(model, target->value, &target->value->grad_part);
    /* Done, not dropped: a graph of this step goes on writing there. */
    return status ? status : mem_done(model->mem, &target->value->grad_part);
}

bool model_grad_pass(struct model *model, int out, int in)
{
    struct value *from = &model->values[out];
    struct value *to = &model->values[in];

    if (!to->wants_grad || to->grad || from->grad->holders > 1)
        return false;
    to->grad = from->grad;
    mem_share(to->grad);
    return true;
}

enum status model_grad_assign(struct model *model, int value, struct tensor *tensor)
{
    struct value *v = &model->values[value];

    if (!v->wants_grad)
        return STATUS_OK;
    if (v->grad)
        return add_into(model, v, tensor);
    v->grad = tensor;
    mem_share(tensor);
    return STATUS_OK;
}
