/* The perceptron over the table of operations. A layer computes y = act(x W + b); backward, with g = dL/d(x W
 * + b): db = column sums of g, dW = x^T g, dx = g W^T. The last layer's output is turned into probabilities
 * in place. */
#include "mlp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rng.h"

static size_t matrix_bytes(int rows, int cols)
{
    return (size_t)rows * (size_t)cols * sizeof(float);
}

static enum status queue_gemm(struct mlp *mlp, const struct op_gemm *gemm)
{
    return device_status(mlp->device->ops->gemm(mlp->device->ops, mlp->device->stream, gemm), "gemm");
}

/* Glorot's uniform start, drawn on the host so that every device begins with the same weights. */
static enum status init_weight(struct mlp *mlp, const struct mlp_layer *layer, struct rng *rng)
{
    float limit = sqrtf(6.0f / (float)(layer->in + layer->out));
    size_t bytes = matrix_bytes(layer->in, layer->out);
    float *host = malloc(bytes);
    enum status status;

    if (!host)
        return status_fail(STATUS_NO_MEMORY, "no host memory for %zu bytes of weights", bytes);
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        host[i] = limit * rng_symmetric(rng);
    status = device_status(
        cudaMemcpyAsync(layer->weight.data, host, bytes, cudaMemcpyHostToDevice, mlp->device->stream),
        "copying weights");
    /* The copy must have read the buffer before it is freed. */
    if (!status)
        status = device_status(cudaStreamSynchronize(mlp->device->stream), "copying weights");
    free(host);
    return status;
}

static enum status fill_zero(struct mlp *mlp, const struct tensor *tensor)
{
    struct op_fill fill = {.out = tensor->data, .count = tensor->bytes / sizeof(float), .value = 0.0f};

    return device_status(mlp->device->ops->fill(mlp->device->ops, mlp->device->stream, &fill), "fill");
}

static enum status open_layer(struct mlp *mlp, struct mlp_layer *layer, struct rng *rng)
{
    size_t weight_bytes = matrix_bytes(layer->in, layer->out);
    size_t bias_bytes = matrix_bytes(1, layer->out);
    enum status status = mem_need(mlp->mem, &layer->weight, weight_bytes, MEM_PARAMETERS);

    if (!status)
        status = mem_need(mlp->mem, &layer->bias, bias_bytes, MEM_PARAMETERS);
    if (!status)
        status = mem_need(mlp->mem, &layer->weight_velocity, weight_bytes, MEM_OPTIMIZER);
    if (!status)
        status = mem_need(mlp->mem, &layer->bias_velocity, bias_bytes, MEM_OPTIMIZER);
    if (!status)
        status = init_weight(mlp, layer, rng);
    if (!status)
        status = fill_zero(mlp, &layer->bias);
    if (!status)
        status = fill_zero(mlp, &layer->weight_velocity);
    if (!status)
        status = fill_zero(mlp, &layer->bias_velocity);
    return status;
}

enum status mlp_open(struct mlp *mlp, struct device *device, struct mem *mem,
                     const struct option_list *hidden, int features, int classes, uint64_t seed)
{
    struct rng rng = rng_derive(seed, UINT64_MAX);
    enum status status = STATUS_OK;
    int in = features;

    memset(mlp, 0, sizeof(*mlp));
    mlp->device = device;
    mlp->mem = mem;
    mlp->layers = (int)hidden->count + 1;
    for (int l = 0; l < mlp->layers && !status; l++) {
        struct mlp_layer *layer = &mlp->layer[l];

        layer->in = in;
        layer->relu = l + 1 < mlp->layers;
        layer->out = layer->relu ? (int)hidden->item[l] : classes;
        in = layer->out;
        status = open_layer(mlp, layer, &rng);
    }
    return status;
}

enum status mlp_close(struct mlp *mlp)
{
    enum status status = STATUS_OK;

    for (int l = 0; l < mlp->layers; l++) {
        struct mlp_layer *layer = &mlp->layer[l];
        struct tensor *all[] = {
            &layer->weight,      &layer->bias,      &layer->weight_velocity, &layer->bias_velocity,
            &layer->weight_grad, &layer->bias_grad, &layer->output,          &layer->output_grad,
        };

        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
            status |= mem_drop(mlp->mem, all[i]);
    }
    status |= mem_drop(mlp->mem, &mlp->losses);
    return status ? STATUS_FAILED : STATUS_OK;
}

static enum status layer_forward(struct mlp *mlp, struct mlp_layer *layer, const struct tensor *x, int count)
{
    struct ops *ops = mlp->device->ops;
    enum status status = mem_need(mlp->mem, &layer->output, matrix_bytes(count, layer->out), MEM_ACTIVATIONS);

    if (!status)
        status = queue_gemm(mlp, &(struct op_gemm){.a = x->data,
                                                   .b = layer->weight.data,
                                                   .c = layer->output.data,
                                                   .m = count,
                                                   .n = layer->out,
                                                   .k = layer->in,
                                                   .alpha = 1.0f});
    if (!status)
        status = device_status(ops->bias_relu_forward(ops, mlp->device->stream,
                                                      &(struct op_bias_relu_forward){.x = layer->output.data,
                                                                                     .bias = layer->bias.data,
                                                                                     .y = layer->output.data,
                                                                                     .rows = count,
                                                                                     .cols = layer->out,
                                                                                     .relu = layer->relu}),
                               "bias_relu_forward");
    return status;
}

enum status mlp_forward(struct mlp *mlp, const struct mlp_batch *batch)
{
    struct ops *ops = mlp->device->ops;
    struct mlp_layer *last = &mlp->layer[mlp->layers - 1];
    const struct tensor *x = &batch->x;
    enum status status = STATUS_OK;

    for (int l = 0; l < mlp->layers && !status; l++) {
        status = layer_forward(mlp, &mlp->layer[l], x, batch->count);
        x = &mlp->layer[l].output;
    }
    if (!status)
        status = mem_need(mlp->mem, &mlp->losses, matrix_bytes(1, batch->count), MEM_ACTIVATIONS);
    if (!status)
        status = device_status(
            ops->softmax_xent_forward(ops, mlp->device->stream,
                                      &(struct op_softmax_xent_forward){.logits = last->output.data,
                                                                        .labels = batch->labels.data,
                                                                        .probs = last->output.data,
                                                                        .losses = mlp->losses.data,
                                                                        .rows = batch->count,
                                                                        .cols = last->out}),
            "softmax_xent_forward");
    return status;
}

/* The gradient of the mean loss by the logits, where layer_backward expects it. */
static enum status loss_backward(struct mlp *mlp, struct mlp_layer *last, const struct mlp_batch *batch)
{
    struct ops *ops = mlp->device->ops;
    enum status status =
        mem_need(mlp->mem, &last->output_grad, matrix_bytes(batch->count, last->out), MEM_ACTIVATIONS);

    if (!status)
        status = device_status(ops->softmax_xent_backward(
                                   ops, mlp->device->stream,
                                   &(struct op_softmax_xent_backward){.probs = last->output.data,
                                                                      .labels = batch->labels.data,
                                                                      .dlogits = last->output_grad.data,
                                                                      .rows = batch->count,
                                                                      .cols = last->out,
                                                                      .scale = 1.0f / (float)batch->count}),
                               "softmax_xent_backward");
    return status;
}

/* From output_grad to weight_grad and bias_grad; output_grad becomes the gradient by x W + b. */
static enum status layer_grads(struct mlp *mlp, struct mlp_layer *layer, const struct tensor *x, int count)
{
    struct ops *ops = mlp->device->ops;
    enum status status =
        mem_need(mlp->mem, &layer->weight_grad, matrix_bytes(layer->in, layer->out), MEM_GRADIENTS);

    if (!status)
        status = mem_need(mlp->mem, &layer->bias_grad, matrix_bytes(1, layer->out), MEM_GRADIENTS);
    if (!status)
        status = device_status(
            ops->bias_relu_backward(ops, mlp->device->stream,
                                    &(struct op_bias_relu_backward){.dy = layer->output_grad.data,
                                                                    .y = layer->output.data,
                                                                    .dx = layer->output_grad.data,
                                                                    .dbias = layer->bias_grad.data,
                                                                    .rows = count,
                                                                    .cols = layer->out,
                                                                    .relu = layer->relu}),
            "bias_relu_backward");
    if (!status)
        status = queue_gemm(mlp, &(struct op_gemm){.a = x->data,
                                                   .trans_a = 1,
                                                   .b = layer->output_grad.data,
                                                   .c = layer->weight_grad.data,
                                                   .m = layer->in,
                                                   .n = layer->out,
                                                   .k = count,
                                                   .alpha = 1.0f});
    return status;
}

/* Hands the gradient to the layer below: its output_grad = output_grad W^T. */
static enum status pass_down(struct mlp *mlp, struct mlp_layer *layer, struct mlp_layer *below, int count)
{
    enum status status =
        mem_need(mlp->mem, &below->output_grad, matrix_bytes(count, layer->in), MEM_ACTIVATIONS);

    if (!status)
        status = queue_gemm(mlp, &(struct op_gemm){.a = layer->output_grad.data,
                                                   .b = layer->weight.data,
                                                   .trans_b = 1,
                                                   .c = below->output_grad.data,
                                                   .m = count,
                                                   .n = layer->in,
                                                   .k = layer->out,
                                                   .alpha = 1.0f});
    return status;
}

enum status mlp_backward(struct mlp *mlp, const struct mlp_batch *batch)
{
    enum status status = loss_backward(mlp, &mlp->layer[mlp->layers - 1], batch);

    for (int l = mlp->layers - 1; l >= 0 && !status; l--) {
        struct mlp_layer *layer = &mlp->layer[l];
        struct mlp_layer *below = l > 0 ? layer - 1 : NULL;

        status = layer_grads(mlp, layer, below ? &below->output : &batch->x, batch->count);
        if (!status && below)
            status = pass_down(mlp, layer, below, batch->count);
        if (!status)
            status = mem_done(mlp->mem, &layer->output);
        if (!status)
            status = mem_done(mlp->mem, &layer->output_grad);
    }
    return status;
}

static enum status update_tensor(struct mlp *mlp, struct tensor *weight, struct tensor *velocity,
                                 struct tensor *grad, float rate, float momentum)
{
    struct ops *ops = mlp->device->ops;
    struct op_sgd sgd = {
        .weight = weight->data,
        .velocity = velocity->data,
        .grad = grad->data,
        .count = weight->bytes / sizeof(float),
        .rate = rate,
        .momentum = momentum,
    };
    enum status status = device_status(ops->sgd(ops, mlp->device->stream, &sgd), "sgd");

    return status ? status : mem_done(mlp->mem, grad);
}

enum status mlp_update(struct mlp *mlp, float rate, float momentum)
{
    enum status status = STATUS_OK;

    for (int l = 0; l < mlp->layers && !status; l++) {
        struct mlp_layer *layer = &mlp->layer[l];

        status =
            update_tensor(mlp, &layer->weight, &layer->weight_velocity, &layer->weight_grad, rate, momentum);
        if (!status)
            status =
                update_tensor(mlp, &layer->bias, &layer->bias_velocity, &layer->bias_grad, rate, momentum);
    }
    return status;
}
