/* A model is a list of layers in order of computation, over values: what one layer produces and later ones
 * read. Each layer has its own forward and backward pass (layer_*.c). model.c walks the list and derives
 * from it how long each value lives. Forward, a value is kept if the backward pass reads it, else until its
 * last reader has run. Backward, a gradient is allocated by its first writer and freed after the layer that
 * produced the value. So the allocation mode sees what a framework's allocator would see. With checkpointed
 * activations only values that cross segments are kept, and each segment is computed again before its
 * backward pass.
 *
 * Everything here only queues work on the device's stream. One thread. */
#ifndef HARNESS_MODEL_H
#define HARNESS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/base/cuda_device.h"
#include "harness/memory/mem.h"
#include "harness/model/param.h"

enum { LAYER_INPUTS = 2, LAYER_OUTPUTS = 2, LAYER_PARAMS = 4, LAYER_SAVED = 3, NO_VALUE = -1 };

struct model;
struct layer;

/* n samples of [h][w][c]. A value of tokens has one row per token: `length` of the run per sample. */
struct value {
    int h, w, c;
    bool tokens;
    struct tensor data;
    struct tensor grad_memory;
    struct tensor grad_part; /* what a reader adds to a gradient that is there; between its begin and end */
    struct tensor *grad;     /* grad_memory, or another value's; NULL until written */
    int maker;               /* layer that produces it; -1: the model's input */
    int readers, readers_left;
    int last_segment; /* of its readers */
    bool wants_grad;
    bool backward_reads;
};

struct layer_type {
    const char *name;
    enum status (*forward)(struct model *model, struct layer *layer);
    enum status (*backward)(struct model *model, struct layer *layer);
};

struct layer {
    const struct layer_type *type;
    int in[LAYER_INPUTS], out[LAYER_OUTPUTS];
    int param[LAYER_PARAMS]; /* indices into params, or NO_VALUE */
    struct tensor saved[LAYER_SAVED];
    bool reads_in[LAYER_INPUTS], reads_out[LAYER_OUTPUTS]; /* the backward pass reads their contents */
    int segment;
    enum ops_act act;
    struct ops_conv conv; /* convolutions and pooling; n is the run's */
    int features;         /* dense: length of an input row */
    bool flat;            /* dense: a sample is one row */
    int heads;
    float dropout;
    uint64_t seed;
};

enum model_loss { LOSS_CLASSES, LOSS_PICTURE };

/* The pass and layer of the work that is queued now. Written before the work is queued; only profiles read
 * it. */
enum model_pass {
    PASS_INPUT,
    PASS_FORWARD,
    PASS_REPEAT,
    PASS_BACKWARD,
    PASS_AVERAGE,
    PASS_UPDATE,
    PASS_COUNT
};

struct model_place {
    enum model_pass pass;
    int layer; /* layer_count: the loss; NO_VALUE: none */
};

/* layer_done is called in the backward pass after a layer's work has been queued; it may be NULL. Layers come
 * in reverse order, so a parameter's gradient is complete after the first layer of the model that reads it.
 */
struct model_listener {
    enum status (*layer_done)(void *owner, struct model *model, int layer);
    void *owner;
};

struct model {
    struct cuda_device *device;
    struct mem *mem;
    enum ops_type type;
    int tf32;
    struct value *values;
    struct layer *layers;
    struct param *params;
    int value_count, layer_count, param_count;
    int value_room, layer_room, param_room;
    int segment; /* of layers added from now on */
    int input, output;
    int length_limit; /* most tokens of a sample; 0 without tokens */
    enum model_loss loss;
    bool checkpointing;
    bool blank, packed;
    struct rng rng;
    enum status build_status;
    struct layer nowhere; /* returned by model_begin_layer after a failure, for the caller to write to */

    /* of the current run */
    int n, length;
    bool training;
    bool frozen_statistics; /* the pass is a recomputation or a trial */
    uint64_t micro;         /* index of the part of an accumulated batch */
    const uint64_t *step;   /* in device memory */
    struct tensor workspace;
    struct tensor unpacked[LAYER_PARAMS]; /* the running layer's weights, unpacked */
    struct tensor losses, lse;
    const int32_t *tokens; /* the input, if it is tokens */
    struct model_listener listener;
    struct model_place place;
};

struct model_config {
    struct cuda_device *device;
    struct mem *mem;
    enum ops_type type;
    bool tf32, checkpointing;
    bool blank;  /* weights start as zeros: a trial need not draw them */
    bool packed; /* matrices are bytes from the start, without contents: a small checkpoint brings them. For
                  * evaluation only; the optimizer has no state. */
    uint64_t seed;
};

void model_open(struct model *model, const struct model_config *config);
void model_close(struct model *model);

/* ---- building: a failure is kept in build_status, and later calls do nothing ---- */
int model_add_input(struct model *model, int h, int w, int c);
int model_add_tokens(struct model *model, int length);
void model_next_segment(struct model *model);
int model_add_value(struct model *model, int h, int w, int c, bool tokens);

/* Adds a layer for the caller to fill in. model_end_layer ends it and returns its first output. */
struct layer *model_begin_layer(struct model *model, const struct layer_type *type, int in0, int in1);
int model_end_layer(struct model *model);
int model_add_param(struct model *model, int rows, int cols, const struct param_init *init);

/* Call after the last layer: derives from the list which layer reads which value when. */
void model_finish(struct model *model, int output, enum model_loss loss);

/* ---- running ---- */

struct model_targets {
    const int32_t *labels; /* classes, or for each token the next */
    const void *picture;   /* of the model's type */
};

/* Queues the forward pass. The caller has set the data of the input value, or `tokens`. Leaves the loss of
 * each row in `losses`. */
enum status model_forward(struct model *model, const struct model_targets *targets);

/* Queues the backward pass: adds the gradients of scale * *scale_by * (sum of the losses) to those of the
 * parameters. */
enum status model_backward(struct model *model, const struct model_targets *targets, float scale,
                           const float *scale_by);

/* Ends a pass that has no backward pass. */
enum status model_end(struct model *model);

/* After a failure within a pass: drops every activation and gradient. The parameters stay. */
void model_drop_all(struct model *model);

/* Returns false if a value of `n` samples would have a dimension of 2^31 or more. */
bool model_can_hold(const struct model *model, uint64_t n);

int model_rows(const struct model *model, const struct value *value);
static inline int model_loss_rows(const struct model *model)
{
    return model->loss == LOSS_CLASSES ? model_rows(model, &model->values[model->output]) : model->n;
}

/* ---- for layers ---- */

struct grad_target {
    void *data;
    int accumulate; /* add to the contents of data */
    bool add_after; /* data is the value's grad_part; model_grad_end adds it to the gradient */
    struct value *value;
};

/* Sets *target to where a layer writes the gradient of an input; data is NULL if the gradient is not
 * needed. `can_add`: the operation supports `accumulate`. */
enum status model_grad_begin(struct model *model, int value, bool can_add, struct grad_target *target);
enum status model_grad_end(struct model *model, struct grad_target *target);

/* Makes the tensor the gradient of a value, or adds it to the gradient there is. */
enum status model_grad_assign(struct model *model, int value, struct tensor *tensor);

/* Reuses the memory of the gradient of `out` for that of `in`, for an operation that works in place.
 * Returns false if the gradient of `out` is still needed, or `in` already has one. */
bool model_grad_pass(struct model *model, int out, int in);

size_t model_value_bytes(const struct model *model, const struct value *value);

#define MODEL_OP(model, name, ...)                                                                           \
    cuda_device_status((model)->device->ops->name((model)->device->ops, (model)->device->stream,             \
                                                  &(struct op_##name){__VA_ARGS__}),                         \
                       #name)

#endif
