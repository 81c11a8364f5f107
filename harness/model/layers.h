/* The layers. Each function adds one to the model and returns the value that it produces. */
#ifndef HARNESS_LAYERS_H
#define HARNESS_LAYERS_H

#include "harness/model/model.h"

/* y = act(x w' + b). `flat`: a sample is one row, whatever its shape. `deviation`: standard deviation of
 * the initial weights. */
struct dense_config {
    int out;
    enum ops_act act;
    bool flat, no_bias;
    float deviation;
    float dropout;
    int tied; /* 1 + the parameter to use as the weight; 0: a weight of its own */
};
int layer_dense(struct model *model, int x, const struct dense_config *config);

/* Square filters, no bias: layer_bias_act adds bias and activation. */
int layer_conv(struct model *model, int x, int filters, int size, int stride, int pad);
int layer_bias_act(struct model *model, int x, enum ops_act act);

/* y = act(norm(x) + residual). `residual` may be NO_VALUE. `gamma`: initial scale. */
int layer_batchnorm(struct model *model, int x, int residual, enum ops_act act, float gamma);
int layer_maxpool(struct model *model, int x, int size, int stride, int pad);
int layer_avgpool(struct model *model, int x);
int layer_upsample(struct model *model, int x);
int layer_concat(struct model *model, int a, int b);

/* Embeds tokens and positions. Sets *table to the parameter with the tokens' embeddings. */
int layer_embedding(struct model *model, int tokens, int vocabulary, int width, float dropout, int *table);

/* sum = x + residual, y = norm(sum). `residual` may be NO_VALUE: then *sum is x. */
int layer_layernorm(struct model *model, int x, int residual, int *sum);

/* `qkv` has three times the width of the result. */
int layer_attention(struct model *model, int qkv, int heads);

#endif
