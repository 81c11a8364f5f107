/* A model is a list of layers in the order in which they are computed, over values (what one layer makes and
 * later ones read). Each layer owns its forward and its backward pass (layer_*.c); model.c walks the list and
 * knows from it how long each value lives: forward it is kept if the backward pass reads it, else until its
 * last reader has run; backward, gradients appear with the first reader and go with the maker. So the
 * allocation mode sees the needs of a real framework. With checkpointed activations only what crosses from
 * one segment to another is kept, and a segment is computed again before its backward pass.
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

/* n samples of [h][w][c]; a value of tokens has as many rows per sample as the run's length. */
struct value {
    int h, w, c;
    bool tokens;
    struct tensor data;
    struct tensor grad_memory;
    struct tensor *grad; /* of this value: its own memory, or shared; NULL before it is written */
    int maker;           /* layer, or -1: the model's input */
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
    int param[LAYER_PARAMS]; /* indices of parameters, or NO_VALUE */
    struct tensor saved[LAYER_SAVED];
    bool reads_in[LAYER_INPUTS], reads_out[LAYER_OUTPUTS]; /* backward needs their contents */
    int segment;
    enum ops_act act;
    struct ops_conv conv; /* convolutions and pooling; n is the run's */
    int features;         /* dense: of a row that goes in */
    bool flat;            /* dense: a sample is one row */
    int heads;
    float dropout;
    uint64_t seed;
};

enum model_loss { LOSS_CLASSES, LOSS_PICTURE };

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
    int segment; /* of the layers that are added now */
    int input, output;
    int length_limit; /* tokens of a sample at most, 0 if not tokens */
    enum model_loss loss;
    bool checkpointing;
    bool blank;
    struct rng rng;
    enum status build_status;
    struct layer nowhere; /* what is written after a failure */

    /* of the run */
    int n, length;
    bool training;
    bool frozen_statistics; /* the pass is a repetition or a trial */
    uint64_t micro;         /* which part of an accumulated batch */
    const uint64_t *step;   /* in device memory */
    struct tensor workspace;
    struct tensor unpacked[LAYER_PARAMS]; /* weights of the layer that runs, where they are packed */
    struct tensor losses, lse;
    const int32_t *tokens; /* the input, if it is tokens */
};

struct model_config {
    struct cuda_device *device;
    struct mem *mem;
    enum ops_type type;
    bool tf32, checkpointing;
    bool blank; /* weights start as zeros, which takes no time */
    uint64_t seed;
};

void model_open(struct model *model, const struct model_config *config);
void model_close(struct model *model);

/* ---- building: each adds a layer and returns the value that it makes; a failure is kept in build_status
 * and the rest does nothing ---- */
int model_add_input(struct model *model, int h, int w, int c);
int model_add_tokens(struct model *model, int length);
void model_next_segment(struct model *model);
int model_add_value(struct model *model, int h, int w, int c, bool tokens);
/* To be filled by the caller, and ended with model_end_layer, which returns its first output. */
struct layer *model_begin_layer(struct model *model, const struct layer_type *type, int in0, int in1);
int model_end_layer(struct model *model);
int model_add_param(struct model *model, int rows, int cols, const struct param_init *init);
/* After the last layer: who reads what when. */
void model_finish(struct model *model, int output, enum model_loss loss);

/* ---- running ---- */

struct model_targets {
    const int32_t *labels; /* classes, or the tokens that follow */
    const void *picture;   /* of the model's type */
};

/* The input's data must have been set with model_set_input. Leaves the losses of the rows in losses. */
enum status model_forward(struct model *model, const struct model_targets *targets);

/* Gradients of scale * *scale_by * the sum of the losses are added to those of the parameters. */
enum status model_backward(struct model *model, const struct model_targets *targets, float scale,
                           const float *scale_by);

/* The end of a pass without a backward one. */
enum status model_end(struct model *model);

/* After a failure in the middle: every activation and gradient is dropped, the parameters stay. */
void model_drop_all(struct model *model);

/* Whether every value of that many samples can be counted: no dimension reaches 2^31. */
bool model_can_hold(const struct model *model, uint64_t n);

int model_rows(const struct model *model, const struct value *value);
static inline int model_loss_rows(const struct model *model)
{
    return model->loss == LOSS_CLASSES ? model_rows(model, &model->values[model->output]) : model->n;
}

/* ---- for layers ---- */

struct grad_target {
    void *data;
    int accumulate; /* add to what is there */
    bool add_after; /* data is a temporary that model_grad_end adds */
    struct value *value;
    struct tensor temporary;
};

/* Where a layer writes the gradient of an input. data is NULL if nobody wants it. can_add: the operation has
 * `accumulate`. */
enum status model_grad_begin(struct model *model, int value, bool can_add, struct grad_target *target);
enum status model_grad_end(struct model *model, struct grad_target *target);

/* The gradient of a value is (or gets added) what is in the tensor. */
enum status model_grad_assign(struct model *model, int value, struct tensor *tensor);

/* Lets the gradient of `in` be the memory of the gradient of `out`, which the operation changes in place.
 * False if others still need that, or `in` has one already. */
bool model_grad_pass(struct model *model, int out, int in);

enum status model_need_value(struct model *model, int value);
size_t model_value_bytes(const struct model *model, const struct value *value);

#define MODEL_OP(model, name, ...)                                                                           \
    cuda_device_status((model)->device->ops->name((model)->device->ops, (model)->device->stream,             \
                                                  &(struct op_##name){__VA_ARGS__}),                         \
                       #name)

#endif
