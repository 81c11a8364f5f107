/* sim_nodes: a set of nodes of a graph. Never reads or owns a node. Guarded by the engine's lock. */
#ifndef SIMGPU_NODES_H
#define SIMGPU_NODES_H

#include <stdbool.h>
#include <stddef.h>

struct CUgraphNode_st;

struct sim_nodes {
    struct CUgraphNode_st **items;
    size_t count;
};

bool sim_nodes_add(struct sim_nodes *set,
                   struct CUgraphNode_st *node); /* no duplicates; false: out of memory */
bool sim_nodes_add_all(struct sim_nodes *set, const struct sim_nodes *other);
void sim_nodes_clear(struct sim_nodes *set);

#endif
