/* Building a model: values, layers and parameters in growing arrays. A failure is remembered, so that the
 * functions that describe a network need not check every line. */
#include "harness/model/model.h"

#include <stdlib.h>
#include <string.h>

void model_open(struct model *model, const struct model_config *config)
{
    memset(model, 0, sizeof(*model));
    model->device = config->device;
    model->mem = config->mem;
    model->type = config->type;
    model->tf32 = config->tf32;
    model->checkpointing = config->checkpointing;
    model->blank = config->blank;
    model->packed = config->packed;
    model->rng = rng_derive(config->seed, UINT64_MAX);
    model->input = model->output = NO_VALUE;
}

void model_close(struct model *model)
{
    if (!model->mem)
        return;
    model_drop_all(model);
    for (int p = 0; p < model->param_count; p++)
        param_close(&model->params[p], model->mem);
    free(model->values);
    free(model->layers);
    free(model->params);
    memset(model, 0, sizeof(*model));
}

/* Room for one more item. */
static bool grow(struct model *model, void *items, int count, int *room, size_t size)
{
    void **array = items;
    int wanted = *room ? 2 * *room : 64;
    void *larger;

    if (model->build_status)
        return false;
    if (count < *room)
        return true;
    larger = realloc(*array, (size_t)wanted * size);
    if (!larger) {
        model->build_status = status_fail(STATUS_NO_MEMORY, "no host memory for the model");
        return false;
    }
    *array = larger;
    *room = wanted;
    return true;
}

int model_add_value(struct model *model, int h, int w, int c, bool tokens)
{
    if (!grow(model, &model->values, model->value_count, &model->value_room, sizeof(struct value)))
        return 0;
    model->values[model->value_count] = (struct value){
        .h = h, .w = w, .c = c, .tokens = tokens, .maker = model->layer_count, .wants_grad = true};
    return model->value_count++;
}

int model_add_input(struct model *model, int h, int w, int c)
{
    int value = model_add_value(model, h, w, c, false);

    if (model->build_status)
        return 0;
    model->values[value].maker = -1;
    model->values[value].wants_grad = false;
    model->input = value;
    return value;
}

int model_add_tokens(struct model *model, int length)
{
    int value = model_add_input(model, 1, 1, 1);

    if (model->build_status)
        return 0;
    model->values[value].tokens = true;
    model->length_limit = length;
    return value;
}

void model_next_segment(struct model *model)
{
    model->segment++;
}

struct layer *model_begin_layer(struct model *model, const struct layer_type *type, int in0, int in1)
{
    struct layer *layer;

    if (!grow(model, &model->layers, model->layer_count, &model->layer_room, sizeof(struct layer))) {
        model->nowhere = (struct layer){0};
        return &model->nowhere;
    }
    layer = &model->layers[model->layer_count];
    *layer = (struct layer){.type = type,
                            .in = {in0, in1},
                            .out = {NO_VALUE, NO_VALUE},
                            .param = {NO_VALUE, NO_VALUE, NO_VALUE, NO_VALUE},
                            .segment = model->segment,
                            .seed = rng_next(&model->rng)};
    return layer;
}

/* Returns the first output, which the next layer of the network takes. */
int model_end_layer(struct model *model)
{
    if (model->build_status)
        return 0;
    return model->layers[model->layer_count++].out[0];
}

int model_add_param(struct model *model, int rows, int cols, const struct param_init *init)
{
    struct param_init start = *init;
    struct param *param;

    if (!grow(model, &model->params, model->param_count, &model->param_room, sizeof(struct param)))
        return 0;
    param = &model->params[model->param_count];
    *param = (struct param){.rows = rows,
                            .cols = cols,
                            .plain = init->plain,
                            .trained = !init->statistic,
                            .decays = init->deviation > 0.0f};
    model->param_count++;
    start.deviation = model->blank ? 0.0f : init->deviation;
    model->build_status =
        model->packed && param_can_pack(param)
            ? param_hold_bytes(param, model->mem)
            : param_open(param, model->device, model->mem, model->type, &start, &model->rng);
    return model->param_count - 1;
}

void model_finish(struct model *model, int output, enum model_loss loss)
{
    if (model->build_status)
        return;
    model->output = output;
    model->loss = loss;
    for (int l = 0; l < model->layer_count; l++) {
        const struct layer *layer = &model->layers[l];

        for (int i = 0; i < LAYER_INPUTS; i++) {
            struct value *value = layer->in[i] == NO_VALUE ? NULL : &model->values[layer->in[i]];

            if (!value)
                continue;
            value->readers++;
            value->last_segment = layer->segment;
            value->backward_reads |= layer->reads_in[i];
        }
        for (int i = 0; i < LAYER_OUTPUTS; i++) {
            struct value *value = layer->out[i] == NO_VALUE ? NULL : &model->values[layer->out[i]];

            if (!value)
                continue;
            value->backward_reads |= layer->reads_out[i];
            value->last_segment = value->last_segment > layer->segment ? value->last_segment : layer->segment;
        }
    }
    model->values[output].readers++; /* the loss */
    model->values[output].backward_reads = true;
}
