/* The multilayer perceptron: dense layers with rectifiers between them, softmax cross-entropy on top, SGD
 * with momentum. Forward, backward and update only queue work on the device's stream; tensors are needed and
 * done as each layer passes, so that the allocation mode decides what lives when. */
#ifndef HARNESS_MLP_H
#define HARNESS_MLP_H

#include <stdint.h>

#include "device.h"
#include "mem.h"

enum { MLP_MAX_LAYERS = OPTIONS_MAX_HIDDEN + 1 };

struct mlp_layer {
    int in, out;
    bool relu;
    struct tensor weight, bias;                   /* [in][out], [out] */
    struct tensor weight_velocity, bias_velocity; /* like them */
    struct tensor weight_grad, bias_grad;         /* like them; from backward to update */
    struct tensor output;                         /* [batch][out]; from forward to backward */
    struct tensor output_grad;                    /* [batch][out]; within backward */
};

struct mlp {
    struct device *device;
    struct mem *mem;
    int layers;
    struct mlp_layer layer[MLP_MAX_LAYERS];
    struct tensor losses; /* [batch]; from forward until the caller drops it */
};

struct mlp_batch {
    struct tensor x;      /* [count][features] */
    struct tensor labels; /* int32_t [count] */
    int count;
};

/* Layers features -> hidden... -> classes with weights that follow from the seed. mlp_close also after a
 * failure. */
enum status mlp_open(struct mlp *mlp, struct device *device, struct mem *mem,
                     const struct option_list *hidden, int features, int classes, uint64_t seed);
enum status mlp_close(struct mlp *mlp);

/* Afterwards the last layer's output holds the probabilities and losses[count] the loss of each sample. */
enum status mlp_forward(struct mlp *mlp, const struct mlp_batch *batch);

/* Gradients of the mean loss; the layers' outputs are done with. */
enum status mlp_backward(struct mlp *mlp, const struct mlp_batch *batch);

enum status mlp_update(struct mlp *mlp, float rate, float momentum);

#endif
