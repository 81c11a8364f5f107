/* graph: pieces of work and what they depend on, to be run together again and again.
 *
 * An executable graph is a copy in an order that respects the dependencies; a launch puts it into a stream
 * one piece after the other. Guarded by the engine's lock.
 */
#ifndef SIMGPU_GRAPH_H
#define SIMGPU_GRAPH_H

#include "tools/simgpu/engine/sim_list.h"
#include "tools/simgpu/engine/sim_work.h"

#include <stdbool.h>
#include <stdint.h>

struct nodes { /* a set of nodes; does not own them */
    struct CUgraphNode_st **items;
    size_t count;
};

struct graph_memory;

struct CUgraphNode_st {
    struct link link; /* in graph->nodes */
    struct CUgraph_st *graph;
    CUgraphNodeType type;
    struct work *work; /* NULL: nothing to run */
    struct nodes after;
    struct CUgraph_st *child;    /* its own copy; NULL but for child graphs */
    struct graph_memory *memory; /* NULL but for allocations and frees */
    size_t bytes;                /* of an allocation */
    unsigned int mark;           /* scratch of walks */
};

struct CUgraph_st {
    struct link nodes;
};

bool nodes_add(struct nodes *set, struct CUgraphNode_st *node); /* once; false: no memory */
bool nodes_add_all(struct nodes *set, const struct nodes *other);
bool nodes_contain(const struct nodes *set, const struct CUgraphNode_st *node);
void nodes_clear(struct nodes *set);

/* With the lock held. */
struct CUgraph_st *graph_new(void);
void graph_delete(struct CUgraph_st *graph);
/* Takes over work, also when it fails (NULL: no memory). */
struct CUgraphNode_st *graph_add(struct CUgraph_st *graph, CUgraphNodeType type, struct work *work,
                                 const struct nodes *after);
/* May a node of this graph come behind these? */
bool graph_valid_after(const struct CUgraph_st *graph, const CUgraphNode *after, size_t count);
/* Are all of `wanted` among `from` and what `from` depends on? */
bool graph_reaches(struct CUgraph_st *graph, const struct nodes *from, const struct nodes *wanted);

/* The driver's calls; they take the lock. */
CUresult graph_create(CUgraph *out, unsigned int flags);
CUresult graph_destroy(CUgraph graph);
CUresult graph_clone(CUgraph *out, CUgraph graph);
CUresult graph_add_work(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                        CUgraphNodeType type, struct work *work); /* takes over work; NULL: nothing to run */
CUresult graph_add_child(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                         CUgraph child);
CUresult graph_destroy_node(CUgraphNode node);
CUresult graph_get_nodes(CUgraph graph, CUgraphNode *out, size_t *count, bool roots_only);
CUresult graph_get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count);
CUresult graph_get_after(CUgraphNode node, CUgraphNode *out, size_t *count);
CUresult graph_node_type(CUgraphNode node, CUgraphNodeType *out);
CUresult graph_child(CUgraphNode node, CUgraph *out);
/* Its arguments stay the node's own. */
CUresult graph_kernel_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *out);
CUresult graph_add_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count);

/* Uploads to `stream` with CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD. */
CUresult graph_instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags, CUstream stream);
CUresult graph_launch(CUgraphExec exec, CUstream stream);
CUresult graph_upload(CUgraphExec exec, CUstream stream);
CUresult graph_exec_destroy(CUgraphExec exec);
CUresult graph_exec_update(CUgraphExec exec, CUgraph graph);

#endif
