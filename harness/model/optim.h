/* The update: the learning rate by its schedule, gradient clipping, the loss scale, and the step itself, one
 * operation over all parameters. What changes from step to step is in device memory (struct ops_scalars), so
 * that a captured step can be replayed. */
#ifndef HARNESS_OPTIM_H
#define HARNESS_OPTIM_H

#include "harness/model/model.h"
#include "harness/base/train_options.h"

/* Slots for tables on their way to the device, in turn, and those that captured graphs read for ever. */
enum { OPTIM_SLOTS = 4, OPTIM_GRAPH_SLOTS = 2, OPTIM_ALL_SLOTS = OPTIM_SLOTS + OPTIM_GRAPH_SLOTS };

struct optim_slot {
    struct ops_param *table; /* pinned */
    cudaEvent_t copied;
};

struct optim {
    const struct train_options *options;
    struct model *model;
    int count;        /* of trained parameters */
    uint64_t largest; /* elements of the largest */
    struct tensor table;
    struct tensor scalars;
    struct ops_param *wanted; /* the table as it should be */
    struct ops_param *uploaded;
    struct optim_slot slot[OPTIM_ALL_SLOTS];
    unsigned turn;
    int graphs;      /* captured */
    bool keep_grads; /* gradients stay where they are, for graphs */
};

/* Takes the memory that the optimizer keeps. optim_close also after a failure. */
enum status optim_open(struct optim *optim, const struct train_options *options, struct model *model);
void optim_close(struct optim *optim);

static inline struct ops_scalars *optim_scalars(const struct optim *optim)
{
    return optim->scalars.data;
}

/* The rate of that step (from 0): host arithmetic only. */
double optim_rate(const struct train_options *options, uint64_t step);

/* Queues the rate for the next update; outside a capture. */
enum status optim_set_rate(struct optim *optim, double rate);

/* Queues the update with the gradients there are, and is done with them. capturing: into a graph, which
 * happens OPTIM_GRAPH_SLOTS times at most. */
enum status optim_update(struct optim *optim, bool capturing);

#endif
