/* A parameter of a model: float master weights, the optimizer's state, the gradient, and, where activations
 * are not float, a copy of the weights in the activations' type, which layers read. One operation updates
 * all parameters, from a table in device memory (optim.h).
 *
 * For evaluation only, a matrix can be packed: bytes and a scale per row replace weights and copy, and
 * model.c unpacks it for each layer that reads it. */
#ifndef HARNESS_PARAM_H
#define HARNESS_PARAM_H

#include <stdbool.h>

#include "harness/base/cuda_device.h"
#include "harness/memory/mem.h"
#include "harness/base/rng.h"

/* Initial contents of a parameter. */
struct param_init {
    float deviation; /* of a normal distribution; 0: constant */
    float value;     /* the constant */
    bool plain;      /* layers read it as float in every precision */
    bool statistic;  /* not trained: a running statistic of the batches */
};

struct param {
    struct tensor weight; /* float [rows][cols] */
    struct tensor copy;   /* the weight in the model's type; unused if that is float, or `plain` */
    struct tensor first, second;
    struct tensor grad;
    struct tensor bytes;  /* packed: int8 [rows][cols] */
    struct tensor scale;  /* packed: float [rows] */
    const void *unpacked; /* packed: while a layer runs, the weight in the model's type */
    int rows, cols;       /* a vector has one row */
    bool plain;           /* see struct param_init; scales and shifts of norms */
    bool trained;         /* false for running statistics */
    bool decays;
    bool keep_zeros; /* updates leave weights that are zero alone: it was pruned */
    bool has_grad;   /* grad was written since the last update */
};

static inline size_t param_count(const struct param *param)
{
    return (size_t)param->rows * (size_t)param->cols;
}

/* Draws the weights on the host, so that they are the same on every device, and copies them. */
enum status param_open(struct param *param, struct cuda_device *device, struct mem *mem, enum ops_type type,
                       const struct param_init *init, struct rng *rng);
void param_close(struct param *param, struct mem *mem);

/* Returns what layers read, in the model's type. */
static inline const void *param_read(const struct param *param)
{
    if (param->bytes.data)
        return param->unpacked;
    return param->copy.data ? param->copy.data : param->weight.data;
}

/* Updates the copy from the weight. */
enum status param_refresh(struct param *param, struct cuda_device *device, enum ops_type type);

/* Returns true for trained matrices. Vectors stay float: biases and norms are small and sensitive. */
static inline bool param_can_pack(const struct param *param)
{
    return param->rows > 1 && param->trained && !param->plain;
}

/* Takes memory for bytes, without contents, and gives back weight and copy, if there are any. */
enum status param_hold_bytes(struct param *param, struct mem *mem);

/* Rounds the weight to bytes and frees weight and copy. Afterwards no update, checkpoint or backward pass
 * is possible. */
enum status param_pack(struct param *param, struct cuda_device *device, struct mem *mem);

/* Writes a packed weight to `to` in the given type, where layers read it. */
enum status param_unpack(struct param *param, struct cuda_device *device, enum ops_type type, void *to);

/* Sets *out to where the gradient goes, and *accumulate if it must be added to the contents. */
enum status param_grad(struct param *param, struct mem *mem, float **out, int *accumulate);

#endif
