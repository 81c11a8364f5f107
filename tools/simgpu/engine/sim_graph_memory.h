/* sim_graph_memory: the memory of allocation nodes.
 *
 * A node gets its addresses when it is made; one that comes behind a free of the same graph may get the
 * addresses that were freed. Memory is put there when an executable graph is launched or uploaded, and stays
 * with the addresses until a trim, so that the next launch needs no more; what nodes that are gone had stays
 * reserved for other graphs of the card. Guarded by the engine's lock.
 *
 * Left out: the driver lets graphs that cannot run at once share memory; here each address has its own.
 */
#ifndef SIMGPU_GRAPH_MEMORY_H
#define SIMGPU_GRAPH_MEMORY_H

#include "tools/simgpu/engine/sim_block.h"
#include "tools/simgpu/engine/sim_graph.h"
#include "tools/simgpu/engine/sim_stream.h"

struct sim_graph_memory {
    struct sim_link link;           /* all of them */
    unsigned int refs;              /* nodes that allocate or free it */
    const struct CUgraph_st *owner; /* NULL: it is gone */
    struct sim_block *block;
    struct sim_phys *phys;                 /* NULL: only addresses yet */
    const struct CUgraphNode_st *freed_by; /* the owner's node, until a later one allocates it again */
    bool live;                             /* a launch has allocated it, and it was not freed since */
    struct sim_ops busy;                   /* what may still touch it */
};

/* With the lock held. */
/* Adds a node that allocates `size` bytes, behind `after`. */
CUresult sim_graph_memory_add(struct CUgraph_st *graph, const struct sim_nodes *after,
                              struct CUctx_st *context, CUdevice device, size_t size,
                              struct CUgraphNode_st **out);
/* Adds a node that frees what is allocated at an address of a graph. */
CUresult sim_graph_memory_add_free(struct CUgraph_st *graph, const struct sim_nodes *after,
                                   CUdeviceptr address, struct CUgraphNode_st **out);
/* Memory at all addresses that the nodes allocate; all of it or nothing. */
CUresult sim_graph_memory_back(const struct sim_nodes *order, bool auto_free);
/* The nodes have been put into the stream. */
void sim_graph_memory_launched(const struct sim_nodes *order, struct CUstream_st *stream);
/* The program frees what a graph has left; ordered by the stream, NULL: all work is done. */
void sim_graph_memory_free(struct sim_graph_memory *memory, struct CUstream_st *stream);
void sim_graph_memory_settle(void); /* at a synchronization */
void sim_graph_memory_end_context(const struct CUctx_st *context);

/* The driver's calls; they take the lock. */
CUresult sim_graph_memory_alloc_node(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                     CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult sim_graph_memory_free_node(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                    CUdeviceptr address);
CUresult sim_graph_memory_alloc_params(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult sim_graph_memory_free_params(CUgraphNode node, CUdeviceptr *address);
CUresult sim_graph_memory_attribute(CUdevice device, CUgraphMem_attribute attribute, void *value);
CUresult sim_graph_memory_set_attribute(CUdevice device, CUgraphMem_attribute attribute, void *value);
CUresult sim_graph_memory_trim(CUdevice device);

#endif
