/* sim_ops: ops in the queues of streams, and sets of them. See sim_ops.h. */
#include "tools/simgpu/engine/sim_ops.h"

#include "tools/simgpu/engine/sim_lock.h"

#include <stdlib.h>

void sim_op_drop(struct sim_op *op)
{
    if (op && --op->refs == 0) {
        sim_op_drop(op->beside);
        free(op->after);
        free(op);
    }
}

bool sim_ops_done(const struct sim_ops *ops)
{
    unsigned int i;

    for (i = 0; i < ops->count; i++)
        if (!ops->items[i]->done)
            return false;
    return true;
}

void sim_ops_wait(const struct sim_ops *ops)
{
    while (!sim_ops_done(ops))
        sim_lock_wait();
}

void sim_ops_clear(struct sim_ops *ops)
{
    unsigned int i;

    for (i = 0; i < ops->count; i++)
        sim_op_drop(ops->items[i]);
    free(ops->items);
    *ops = (struct sim_ops){NULL, 0};
}

bool sim_ops_copy(struct sim_ops *out, const struct sim_ops *ops)
{
    unsigned int i;

    *out = (struct sim_ops){NULL, 0};
    if (ops->count == 0)
        return true;
    out->items = malloc(ops->count * sizeof(struct sim_op *));
    if (!out->items)
        return false;
    out->count = ops->count;
    for (i = 0; i < ops->count; i++) {
        out->items[i] = ops->items[i];
        out->items[i]->refs++;
    }
    return true;
}

/* Does the set have an op of the same stream from `place` on? Then that is all there is to wait for. */
static bool is_covered(const struct sim_op *op, const struct sim_ops *by, uint64_t place)
{
    unsigned int i;

    for (i = 0; i < by->count; i++)
        if (by->items[i]->stream == op->stream && by->items[i]->place >= place)
            return true;
    return false;
}

bool sim_ops_join(struct sim_ops *into, const struct sim_ops *more)
{
    struct sim_op **items = malloc((into->count + more->count + 1) * sizeof(struct sim_op *));
    unsigned int i, count = 0;

    if (!items)
        return false;
    for (i = 0; i < into->count + more->count; i++) {
        const bool is_old = i < into->count;
        struct sim_op *op = is_old ? into->items[i] : more->items[i - into->count];

        if (!op->done && !(is_old ? is_covered(op, more, op->place + 1) : is_covered(op, into, op->place))) {
            op->refs++;
            items[count++] = op;
        }
    }
    sim_ops_clear(into);
    *into = (struct sim_ops){items, count};
    return true;
}
