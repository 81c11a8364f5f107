/* A GPT-2-like Transformer: learned positions, normalization before each branch, gelu, and the table of
 * tokens used again at the end. The residual sum is made in the normalization that follows it. */
#include "harness/model/net.h"

#include <math.h>

static const float deviation = 0.02f; /* GPT-2's initial weights */

void net_build_gpt(struct model *model, const struct train_options *options, const struct data_spec *spec)
{
    enum { QKV = 3, HIDDEN = 4 };
    int width = (int)options->width;
    int blocks = (int)options->layers;
    float dropout = (float)options->dropout;
    /* Each block adds two branches to the residual sum. Their initial weights are smaller, so that the sum
     * does not grow with depth. */
    float branch = deviation / sqrtf(2.0f * (float)blocks);
    int tokens = model_add_tokens(model, spec->length);
    int table, sum;
    int x = layer_embedding(model, tokens, spec->vocabulary, width, dropout, &table);

    x = layer_layernorm(model, x, NO_VALUE, &sum);
    for (int block = 0; block < blocks; block++) {
        model_next_segment(model);
        x = layer_dense(model, x, &(struct dense_config){.out = QKV * width, .deviation = deviation});
        x = layer_attention(model, x, (int)options->heads);
        x = layer_dense(model, x,
                        &(struct dense_config){.out = width, .deviation = branch, .dropout = dropout});
        x = layer_layernorm(model, x, sum, &sum);
        x = layer_dense(
            model, x,
            &(struct dense_config){.out = HIDDEN * width, .act = OPS_ACT_GELU, .deviation = deviation});
        x = layer_dense(model, x,
                        &(struct dense_config){.out = width, .deviation = branch, .dropout = dropout});
        x = layer_layernorm(model, x, sum, &sum);
    }
    model_next_segment(model);
    x = layer_dense(model, x,
                    &(struct dense_config){.out = spec->vocabulary, .no_bias = true, .tied = table + 1});
    model_finish(model, x, LOSS_CLASSES);
}
