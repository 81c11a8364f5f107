/* sim_ops: ops (pieces of work in the queues of streams), and sets of ops to wait for.
 *
 * Whatever waits for an op holds a reference to it: an event, a later op of another stream, a thread of the
 * program. Guarded by the engine's lock.
 */
#ifndef SIMGPU_OPS_H
#define SIMGPU_OPS_H

#include "tools/simgpu/engine/sim_list.h"

#include <stdbool.h>
#include <stdint.h>

struct sim_work;

struct sim_op {
    struct sim_link link;
    unsigned int refs;
    bool is_kernel, begun, done;
    uint64_t done_ns;
    uint64_t stream, place; /* the stream's id, and which of its ops this is: they are done in that order */
    struct sim_op *beside;  /* must have begun before this one begins; NULL: none */
    struct sim_op **after;  /* must be done before this one begins */
    unsigned int after_count;
    struct sim_work *work;
};

struct sim_ops { /* a set of ops, with a reference to each */
    struct sim_op **items;
    unsigned int count;
};

void sim_op_drop(struct sim_op *op); /* drops one reference; NULL is allowed */

bool sim_ops_done(const struct sim_ops *ops);
void sim_ops_wait(const struct sim_ops *ops);
void sim_ops_clear(struct sim_ops *ops);
bool sim_ops_copy(struct sim_ops *out, const struct sim_ops *ops);
/* Adds ops to a set and removes those that are done, or behind which another one of the set is in the same
 * stream. Returns false if the host is out of memory. */
bool sim_ops_join(struct sim_ops *into, const struct sim_ops *more);

#endif
