/* bench_program: writes the allocations of a training, operation by operation, as a framework without a cache
 * of its own would make them: activations kept for the backward pass, workspaces, gradients that live until
 * the next step's backward pass, the optimizer's state after the first step. Knows nothing of networks: its
 * caller (bench_families) says what each operation allocates. */
#ifndef GPUCAP_BENCH_PROGRAM_H
#define GPUCAP_BENCH_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

struct program_event {
    uint64_t bytes; /* 0: a free */
    uint32_t id;    /* below program.ids */
};

/* What is written: events in order, and what follows from them. */
struct program {
    struct program_event *events;
    uint64_t count, capacity;
    uint64_t *sizes; /* by ID; 0: freed */
    uint32_t ids, ids_capacity;
    uint64_t live, peak_live, allocated;
    uint64_t random; /* state */
};

/* One operation of a forward pass. */
struct program_op {
    uint64_t out;       /* bytes of its result */
    uint64_t extra;     /* kept for the backward pass beside the result: masks, statistics */
    uint64_t workspace; /* while it runs */
    uint64_t weight;    /* parameters: the same in every step; 0: none */
    bool keeps;         /* the backward pass needs the result */
};

#define PROGRAM_OPS 512 /* of a model, at most */

struct program_model {
    uint32_t weights[PROGRAM_OPS], biases[PROGRAM_OPS]; /* IDs + 1; 0: none */
    uint32_t gradients[PROGRAM_OPS], bias_gradients[PROGRAM_OPS];
    uint32_t states[PROGRAM_OPS][2];
    unsigned states_each; /* 0: plain descent; 1: momentum; 2: Adam */
    bool has_states;
};

void program_start(struct program *program, uint64_t seed);
void program_forget(struct program *program);

uint32_t program_alloc(struct program *program, uint64_t bytes);
void program_free(struct program *program, uint32_t id);

/* A number from `low` to `high`, both included. */
uint64_t program_between(struct program *program, uint64_t low, uint64_t high);
/* Likewise, but each power of two is as likely as another. */
uint64_t program_magnitude(struct program *program, uint64_t low, uint64_t high);

/* Allocates the parameters of a model. */
void program_make_model(struct program *program, struct program_model *model, const struct program_op *ops,
                        unsigned count, unsigned states_each);
/* Frees everything of a model. */
void program_drop_model(struct program *program, struct program_model *model);

/* One step. With a segment length, only results at the end of each segment are kept, and the backward pass
 * computes the others again (checkpointing); 0: keeps all. */
void program_train(struct program *program, struct program_model *model, const struct program_op *ops,
                   unsigned count, unsigned segment);
/* A forward pass of which nothing is kept. */
void program_infer(struct program *program, const struct program_op *ops, unsigned count);

#endif
