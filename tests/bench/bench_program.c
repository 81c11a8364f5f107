/* bench_program: writes the allocations of a training. See bench_program.h. */
#include "bench_program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALLEST 4 /* bytes of a block */

static void *grown(void *list, uint64_t count, size_t each)
{
    list = realloc(list, count * each);
    if (!list) {
        fputs("no memory for a program\n", stderr);
        exit(1);
    }
    return list;
}

/* splitmix64 */
static uint64_t next_random(struct program *program)
{
    uint64_t z = program->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t program_between(struct program *program, uint64_t low, uint64_t high)
{
    return low + next_random(program) % (high - low + 1);
}

uint64_t program_magnitude(struct program *program, uint64_t low, uint64_t high)
{
    uint64_t octaves = 0;

    while (low << (octaves + 1) <= high)
        octaves++;
    const uint64_t from = low << program_between(program, 0, octaves), to = 2 * from - 1;
    return program_between(program, from, to < high ? to : high);
}

void program_start(struct program *program, uint64_t seed)
{
    *program = (struct program){.random = seed * UINT64_C(0x2545f4914f6cdd1d) + 1};
}

void program_forget(struct program *program)
{
    free(program->events);
    free(program->sizes);
    *program = (struct program){0};
}

static void add_event(struct program *program, uint64_t bytes, uint32_t id)
{
    if (program->count == program->capacity) {
        program->capacity = 2 * program->capacity + 1024;
        program->events = grown(program->events, program->capacity, sizeof(*program->events));
    }
    program->events[program->count++] = (struct program_event){bytes, id};
}

uint32_t program_alloc(struct program *program, uint64_t bytes)
{
    bytes = bytes < SMALLEST ? SMALLEST : bytes;
    if (program->ids == program->ids_capacity) {
        program->ids_capacity = 2 * program->ids_capacity + 1024;
        program->sizes = grown(program->sizes, program->ids_capacity, sizeof(*program->sizes));
    }
    program->sizes[program->ids] = bytes;
    program->live += bytes;
    program->allocated += bytes;
    program->peak_live = program->live > program->peak_live ? program->live : program->peak_live;
    add_event(program, bytes, program->ids);
    return program->ids++;
}

void program_free(struct program *program, uint32_t id)
{
    program->live -= program->sizes[id];
    program->sizes[id] = 0;
    add_event(program, 0, id);
}

/* A list entry is an ID + 1, so that 0 is none. */
static void drop(struct program *program, uint32_t *entry)
{
    if (*entry)
        program_free(program, *entry - 1);
    *entry = 0;
}

/* Biases and scales are as large as the square root of a weight, about. */
static uint64_t bias_of(uint64_t weight)
{
    return 4 * (uint64_t)sqrt((double)weight / 4);
}

void program_make_model(struct program *program, struct program_model *model, const struct program_op *ops,
                        unsigned count, unsigned states_each)
{
    memset(model, 0, sizeof(*model));
    model->states_each = states_each;
    for (unsigned i = 0; i < count; i++) {
        if (!ops[i].weight)
            continue;
        model->weights[i] = program_alloc(program, ops[i].weight) + 1;
        model->biases[i] = program_alloc(program, bias_of(ops[i].weight)) + 1;
    }
}

static void drop_gradients(struct program *program, struct program_model *model)
{
    for (unsigned i = 0; i < PROGRAM_OPS; i++) {
        drop(program, &model->gradients[i]);
        drop(program, &model->bias_gradients[i]);
    }
}

void program_drop_model(struct program *program, struct program_model *model)
{
    drop_gradients(program, model);
    for (unsigned i = 0; i < PROGRAM_OPS; i++) {
        drop(program, &model->weights[i]);
        drop(program, &model->biases[i]);
        for (unsigned s = 0; s < 2; s++)
            drop(program, &model->states[i][s]);
    }
}

/* What a forward pass leaves for the backward pass: IDs + 1. */
struct tape {
    uint32_t out[PROGRAM_OPS], extra[PROGRAM_OPS];
};

/* From one operation to another. `keeps`: for a backward pass; else only the last result is left. */
static void forward(struct program *program, const struct program_op *ops, unsigned from, unsigned to,
                    bool keeps, struct tape *tape)
{
    for (unsigned i = from; i < to; i++) {
        uint32_t workspace = ops[i].workspace ? program_alloc(program, ops[i].workspace) + 1 : 0;

        tape->out[i] = program_alloc(program, ops[i].out) + 1;
        if (ops[i].extra)
            tape->extra[i] = program_alloc(program, ops[i].extra) + 1;
        drop(program, &workspace);
        if (!keeps)
            drop(program, &tape->extra[i]);
        if (i > from && !(keeps && ops[i - 1].keeps))
            drop(program, &tape->out[i - 1]);
    }
}

/* `flow` is the gradient of the result of operation `to` - 1; returns that of `from` - 1, or 0. */
static uint32_t backward(struct program *program, struct program_model *model, const struct program_op *ops,
                         unsigned from, unsigned to, uint32_t flow, struct tape *tape)
{
    for (unsigned i = to; i-- > from;) {
        uint32_t workspace = ops[i].workspace ? program_alloc(program, ops[i].workspace) + 1 : 0;
        uint32_t next = i ? program_alloc(program, ops[i - 1].out) + 1 : 0;

        if (ops[i].weight) {
            model->gradients[i] = program_alloc(program, ops[i].weight) + 1;
            model->bias_gradients[i] = program_alloc(program, bias_of(ops[i].weight)) + 1;
        }
        drop(program, &workspace);
        drop(program, &flow);
        drop(program, &tape->extra[i]);
        drop(program, &tape->out[i]);
        flow = next;
    }
    return flow;
}

/* The state is made in the first step; Adam needs a temporary for every parameter, all at a time. */
static void optimize(struct program *program, struct program_model *model)
{
    uint32_t temporary[PROGRAM_OPS] = {0};

    for (unsigned i = 0; i < PROGRAM_OPS; i++) {
        for (unsigned s = 0; s < model->states_each && !model->has_states && model->weights[i]; s++)
            model->states[i][s] = program_alloc(program, program->sizes[model->weights[i] - 1]) + 1;
    }
    model->has_states = true;
    for (unsigned i = 0; i < PROGRAM_OPS && model->states_each == 2; i++) {
        if (model->weights[i])
            temporary[i] = program_alloc(program, program->sizes[model->weights[i] - 1]) + 1;
    }
    for (unsigned i = 0; i < PROGRAM_OPS; i++)
        drop(program, &temporary[i]);
}

void program_train(struct program *program, struct program_model *model, const struct program_op *ops,
                   unsigned count, unsigned segment)
{
    struct tape tape = {{0}, {0}};

    segment = segment ? segment : count;
    const bool again = segment < count;
    for (unsigned from = 0; from < count; from += segment)
        forward(program, ops, from, from + segment < count ? from + segment : count, !again, &tape);
    const uint32_t loss = program_alloc(program, SMALLEST);
    drop_gradients(program, model);
    uint32_t flow = program_alloc(program, ops[count - 1].out) + 1;
    for (unsigned from = (count - 1) / segment * segment;; from -= segment) {
        const unsigned to = from + segment < count ? from + segment : count;

        if (again) {
            drop(program, &tape.out[to - 1]);
            forward(program, ops, from, to, true, &tape);
        }
        flow = backward(program, model, ops, from, to, flow, &tape);
        if (!from)
            break;
    }
    drop(program, &flow);
    program_free(program, loss);
    optimize(program, model);
}

void program_infer(struct program *program, const struct program_op *ops, unsigned count)
{
    struct tape tape = {{0}, {0}};

    forward(program, ops, 0, count, false, &tape);
    drop(program, &tape.out[count - 1]);
}
