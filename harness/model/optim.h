/* The update: learning rate schedule, gradient clipping, loss scale, and the step itself, which is one
 * operation over all parameters. Values that change from step to step are in device memory (struct
 * ops_scalars), so that a captured step can be replayed. */
#ifndef HARNESS_OPTIM_H
#define HARNESS_OPTIM_H

#include "harness/model/model.h"
#include "harness/base/train_options.h"

/* OPTIM_SLOTS buffers take turns for tables that are being copied to the device; a captured graph keeps one
 * of OPTIM_GRAPH_SLOTS for good. */
enum { OPTIM_SLOTS = 4, OPTIM_GRAPH_SLOTS = 2, OPTIM_ALL_SLOTS = OPTIM_SLOTS + OPTIM_GRAPH_SLOTS };

struct optim_slot {
    struct ops_param *table; /* pinned */
    cudaEvent_t copied;
};

struct optim {
    const struct train_options *options;
    struct model *model;
    int count;        /* trained parameters */
    uint64_t largest; /* elements of the largest parameter */
    struct tensor table;
    struct tensor scalars;
    struct ops_param *wanted; /* the table that the next update needs */
    struct ops_param *uploaded;
    struct optim_slot slot[OPTIM_ALL_SLOTS];
    unsigned turn;
    int graphs;        /* captured */
    bool keep_grads;   /* gradients keep their memory, for graphs */
    const float *loss; /* in device memory: the sum of the step's losses, watched by the update; or NULL */
    bool skip_loss;    /* leave an update out if only its loss is not finite */
};

/* Allocates the optimizer's state. Call optim_close also after a failure. */
enum status optim_open(struct optim *optim, const struct train_options *options, struct model *model);
void optim_close(struct optim *optim);

static inline struct ops_scalars *optim_scalars(const struct optim *optim)
{
    return optim->scalars.data;
}

/* Returns the learning rate of a step, counted from 0. Pure. */
double optim_rate(const struct train_options *options, uint64_t step);

/* Queues a copy of the rate for the next update. Not within a capture. */
enum status optim_set_rate(struct optim *optim, double rate);

/* Queues the update and releases the gradients. `capturing`: the stream is being captured, which may happen
 * OPTIM_GRAPH_SLOTS times. */
enum status optim_update(struct optim *optim, bool capturing);

#endif
