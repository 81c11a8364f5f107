/* sim_graph_memory: the memory of allocation nodes.
 *
 * A node gets its addresses when it is made. If it depends on a free of the same graph, it may get the freed
 * addresses. A launch or upload of an executable graph maps memory there, which stays mapped until a trim, so
 * that the next launch allocates nothing. Memory of deleted nodes stays reserved for other graphs of the
 * card. Guarded by the engine's lock.
 *
 * Not simulated: the driver shares memory between graphs that cannot run at the same time; here every address
 * has its own memory.
 */
#ifndef SIMGPU_GRAPH_MEMORY_H
#define SIMGPU_GRAPH_MEMORY_H

#include "tools/simgpu/engine/sim_block.h"
#include "tools/simgpu/engine/sim_graph.h"
#include "tools/simgpu/engine/sim_stream.h"

struct sim_graph_memory {
    struct sim_link link;           /* in the list of all */
    unsigned int refs;              /* nodes that allocate or free it */
    const struct CUgraph_st *owner; /* NULL: deleted */
    struct sim_block *block;
    struct sim_phys *phys; /* NULL: nothing is mapped yet */
    const struct CUgraphNode_st
        *freed_by;       /* a node of the owner; NULL once a later node allocates it again */
    bool live;           /* allocated by a launch and not freed since */
    struct sim_ops busy; /* work that may still use it */
};

/* Lock held, up to the driver's calls. */

/* Adds a node that allocates `size` bytes and depends on `after`. */
CUresult sim_graph_memory_add(struct CUgraph_st *graph, const struct sim_nodes *after,
                              struct CUctx_st *context, CUdevice device, size_t size,
                              struct CUgraphNode_st **out);
/* Adds a node that frees the memory of an allocation node, given by its address. */
CUresult sim_graph_memory_add_free(struct CUgraph_st *graph, const struct sim_nodes *after,
                                   CUdeviceptr address, struct CUgraphNode_st **out);
/* Maps memory at the addresses of all allocation nodes. On failure nothing is mapped. */
CUresult sim_graph_memory_back(const struct sim_nodes *order, bool auto_free);
/* Notes that the nodes have been submitted to the stream. */
void sim_graph_memory_launched(const struct sim_nodes *order, struct CUstream_st *stream);
/* The program frees memory that a graph allocated and did not free, in the order of a stream; NULL: all work
 * is done. */
void sim_graph_memory_free(struct sim_graph_memory *memory, struct CUstream_st *stream);
void sim_graph_memory_settle(void); /* call at a synchronization: drops finished work from .busy */
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
