/* sim_graph: CUDA graphs: nodes of work with dependencies.
 *
 * An executable graph is a copy, sorted so that each node follows those it depends on; a launch submits the
 * nodes to a stream in that order. Guarded by the engine's lock.
 */
#ifndef SIMGPU_GRAPH_H
#define SIMGPU_GRAPH_H

#include "tools/simgpu/engine/sim_list.h"
#include "tools/simgpu/engine/sim_nodes.h"
#include "tools/simgpu/engine/sim_work.h"

#include <stdbool.h>
#include <stdint.h>

struct sim_graph_memory;

/* Reference counting for the memory of allocation and free nodes; implemented in sim_graph_memory.c, which
 * this file must not include. */
struct sim_memory_count {
    void (*hold)(struct sim_graph_memory *memory);
    void (*drop)(const struct CUgraphNode_st *node); /* called when the node is deleted */
};

struct CUgraphNode_st {
    struct sim_link link; /* in graph->nodes */
    struct CUgraph_st *graph;
    CUgraphNodeType type;
    struct sim_work *work; /* NULL: nothing to run */
    struct sim_nodes after;
    struct CUgraph_st *child;             /* of a child graph node: its copy of the graph; else NULL */
    struct sim_graph_memory *memory;      /* of an allocation or free node; else NULL */
    const struct sim_memory_count *count; /* set with .memory */
    size_t bytes;                         /* of an allocation node */
    unsigned int mark;                    /* scratch for searches */
};

struct CUgraph_st {
    struct sim_link nodes;
};

/* Lock held. */
struct CUgraph_st *sim_graph_new(void); /* NULL: the host is out of memory */
void sim_graph_delete(struct CUgraph_st *graph);
/* Adds a node that depends on `after`. Takes ownership of work, even when it fails. Returns NULL if the host
 * is out of memory. */
struct CUgraphNode_st *sim_graph_add(struct CUgraph_st *graph, CUgraphNodeType type, struct sim_work *work,
                                     const struct sim_nodes *after);
/* May a node of this graph depend on these? True if all of them are nodes of the graph. */
bool sim_graph_valid_after(const struct CUgraph_st *graph, const CUgraphNode *after, size_t count);
/* Is every node of `wanted` in `from` or something that `from` depends on? */
bool sim_graph_reaches(struct CUgraph_st *graph, const struct sim_nodes *from,
                       const struct sim_nodes *wanted);

/* The driver's calls; they take the lock. */
CUresult sim_graph_create(CUgraph *out, unsigned int flags);
CUresult sim_graph_destroy(CUgraph graph);
CUresult sim_graph_clone(CUgraph *out, CUgraph graph);
/* Takes ownership of work; NULL makes an empty node. */
CUresult sim_graph_add_work(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                            CUgraphNodeType type, struct sim_work *work);
CUresult sim_graph_add_child(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                             CUgraph child);
CUresult sim_graph_destroy_node(CUgraphNode node);
CUresult sim_graph_get_nodes(CUgraph graph, CUgraphNode *out, size_t *count, bool roots_only);
CUresult sim_graph_get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count);
CUresult sim_graph_get_after(CUgraphNode node, CUgraphNode *out, size_t *count);
CUresult sim_graph_node_type(CUgraphNode node, CUgraphNodeType *out);
CUresult sim_graph_child(CUgraphNode node, CUgraph *out);
/* The arguments that *out points at belong to the node. */
CUresult sim_graph_kernel_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *out);
CUresult sim_graph_add_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count);

/* `stream` is used only with CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD. */
CUresult sim_graph_instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags, CUstream stream);
CUresult sim_graph_launch(CUgraphExec exec, CUstream stream);
CUresult sim_graph_upload(CUgraphExec exec, CUstream stream);
CUresult sim_graph_exec_destroy(CUgraphExec exec);
CUresult sim_graph_exec_update(CUgraphExec exec, CUgraph graph);

#endif
