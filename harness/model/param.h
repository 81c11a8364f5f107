/* The parameters of a model: float master weights, what the optimizer keeps of them, their gradients, and
 * where activations are not float a copy of the weights in that type, which is what layers read. All of them
 * are updated by one operation over a table in device memory (optim.h).
 *
 * For evaluation only, a matrix can be packed: bytes and a scale for each row take the place of weight and
 * copy, and model.c unpacks it for each layer that reads it. */
#ifndef HARNESS_PARAM_H
#define HARNESS_PARAM_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/base/cuda_device.h"
#include "harness/memory/mem.h"
#include "harness/base/rng.h"

/* What a parameter starts with. */
struct param_init {
    float deviation; /* of a bell curve, or 0 */
    float value;     /* constant, where deviation is 0 */
    bool plain;      /* read as float in every precision */
    bool statistic;  /* not trained: it follows the batches */
};

struct param {
    struct tensor weight; /* float [rows][cols] */
    struct tensor copy;   /* the same in the model's type; unused where that is float, or `plain` */
    struct tensor first, second;
    struct tensor grad;
    struct tensor bytes; /* packed: int8 [rows][cols] */
    struct tensor scale; /* packed: float [rows] */
    const void
        *unpacked;  /* packed, while a layer runs: the weight in the model's type, memory of the model */
    int rows, cols; /* a vector has one row */
    bool plain;     /* layers read it as float in every precision: norms */
    bool trained;   /* running statistics are not */
    bool decays;
    bool has_grad; /* something was written to grad since the last update */
};

static inline size_t param_count(const struct param *param)
{
    return (size_t)param->rows * (size_t)param->cols;
}

/* Draws the weights on the host, so that every device begins with the same ones, and copies them. */
enum status param_open(struct param *param, struct cuda_device *device, struct mem *mem, enum ops_type type,
                       const struct param_init *init, struct rng *rng);
void param_close(struct param *param, struct mem *mem);

/* What layers read, in the model's type. */
static inline const void *param_read(const struct param *param)
{
    if (param->bytes.data)
        return param->unpacked;
    return param->copy.data ? param->copy.data : param->weight.data;
}

/* Makes the copy follow the weight. */
enum status param_refresh(struct param *param, struct cuda_device *device, enum ops_type type);

/* Vectors stay as they are: biases and norms are small and matter much. */
static inline bool param_can_pack(const struct param *param)
{
    return param->rows > 1 && param->trained && !param->plain;
}

/* Rounds the weight to bytes and gives back the memory of weight and copy. No update, no checkpoint and no
 * backward pass after it. */
enum status param_pack(struct param *param, struct cuda_device *device, struct mem *mem);

/* Writes a packed weight in that type to where layers read it. */
enum status param_unpack(struct param *param, struct cuda_device *device, enum ops_type type, void *to);

/* Where to write the gradient, and whether to add to what is there. */
enum status param_grad(struct param *param, struct mem *mem, float **out, int *accumulate);

#endif
