/* Counts floating point operations. See flops.h. */
#include "harness/model/flops.h"

/* Returns the multiply-adds of the forward pass of one sample. The layer's fields show its kind: filters,
 * features or heads. */
static uint64_t multiply_adds(const struct model *model, const struct layer *layer, int length)
{
    const struct value *in = &model->values[layer->in[0]];
    const struct value *out = &model->values[layer->out[0]];
    const struct ops_conv *conv = &layer->conv;
    uint64_t tokens = (uint64_t)length;

    if (conv->k)
        return (uint64_t)out->h * (uint64_t)out->w * (uint64_t)conv->k * (uint64_t)(conv->r * conv->s) *
               (uint64_t)conv->c;
    if (layer->features) {
        uint64_t rows = in->tokens ? tokens : (uint64_t)in->h * (uint64_t)in->w;

        return (layer->flat ? 1 : rows) * (uint64_t)layer->features * (uint64_t)out->c;
    }
    /* Each token meets itself and those before it, once in the scores and once in the sum. */
    if (layer->heads)
        return 2 * (tokens * (tokens + 1) / 2) * (uint64_t)out->c;
    return 0;
}

static struct flops of_layer(const struct model *model, const struct layer *layer, int length)
{
    uint64_t forward = 2 * multiply_adds(model, layer, length);
    bool whole = layer->heads || model->values[layer->in[0]].wants_grad;

    return (struct flops){forward, whole ? 2 * forward : forward};
}

struct flops flops_of_sample(const struct model *model, int length)
{
    struct flops all = {0};

    for (int l = 0; l < model->layer_count; l++) {
        struct flops one = of_layer(model, &model->layers[l], length);

        all.forward += one.forward;
        all.backward += one.backward;
    }
    return all;
}
