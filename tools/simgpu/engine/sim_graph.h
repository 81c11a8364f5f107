/* sim_graph: pieces of work and what they depend on, to be run together again and again.
 *
 * An executable graph is a copy in an order that respects the dependencies; a launch puts it into a stream
 * one piece after the other. Guarded by the engine's lock.
 */
#ifndef SIMGPU_GRAPH_H
#define SIMGPU_GRAPH_H

#include "tools/simgpu/engine/sim_list.h"
#include "tools/simgpu/engine/sim_nodes.h"
#include "tools/simgpu/engine/sim_work.h"

#include <stdbool.h>
#include <stdint.h>

struct sim_graph_memory;

/* How graphs count the nodes that have a piece of memory (sim_graph_memory.h). */
struct sim_memory_count {
    void (*hold)(struct sim_graph_memory *memory);
    void (*drop)(const struct CUgraphNode_st *node); /* a node ends */
};

struct CUgraphNode_st {
    struct sim_link link; /* in graph->nodes */
    struct CUgraph_st *graph;
    CUgraphNodeType type;
    struct sim_work *work; /* NULL: nothing to run */
    struct sim_nodes after;
    struct CUgraph_st *child;             /* its own copy; NULL but for child graphs */
    struct sim_graph_memory *memory;      /* NULL but for allocations and frees */
    const struct sim_memory_count *count; /* set with .memory */
    size_t bytes;                         /* of an allocation */
    unsigned int mark;                    /* scratch of walks */
};

struct CUgraph_st {
    struct sim_link nodes;
};

/* With the lock held. */
struct CUgraph_st *sim_graph_new(void);
void sim_graph_delete(struct CUgraph_st *graph);
/* Takes over work, also when it fails (NULL: no memory). */
struct CUgraphNode_st *sim_graph_add(struct CUgraph_st *graph, CUgraphNodeType type, struct sim_work *work,
                                     const struct sim_nodes *after);
/* May a node of this graph come behind these? */
bool sim_graph_valid_after(const struct CUgraph_st *graph, const CUgraphNode *after, size_t count);
/* Are all of `wanted` among `from` and what `from` depends on? */
bool sim_graph_reaches(struct CUgraph_st *graph, const struct sim_nodes *from,
                       const struct sim_nodes *wanted);

/* The driver's calls; they take the lock. */
CUresult sim_graph_create(CUgraph *out, unsigned int flags);
CUresult sim_graph_destroy(CUgraph graph);
CUresult sim_graph_clone(CUgraph *out, CUgraph graph);
CUresult sim_graph_add_work(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                            CUgraphNodeType type,
                            struct sim_work *work); /* takes over work; NULL: nothing to run */
CUresult sim_graph_add_child(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                             CUgraph child);
CUresult sim_graph_destroy_node(CUgraphNode node);
CUresult sim_graph_get_nodes(CUgraph graph, CUgraphNode *out, size_t *count, bool roots_only);
CUresult sim_graph_get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count);
CUresult sim_graph_get_after(CUgraphNode node, CUgraphNode *out, size_t *count);
CUresult sim_graph_node_type(CUgraphNode node, CUgraphNodeType *out);
CUresult sim_graph_child(CUgraphNode node, CUgraph *out);
/* Its arguments stay the node's own. */
CUresult sim_graph_kernel_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *out);
CUresult sim_graph_add_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count);

/* Uploads to `stream` with CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD. */
CUresult sim_graph_instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags, CUstream stream);
CUresult sim_graph_launch(CUgraphExec exec, CUstream stream);
CUresult sim_graph_upload(CUgraphExec exec, CUstream stream);
CUresult sim_graph_exec_destroy(CUgraphExec exec);
CUresult sim_graph_exec_update(CUgraphExec exec, CUgraph graph);

#endif
