/* Tensors of a model in device memory. Model code says when it needs a tensor and when it has finished with
 * it in this step. With the allocation mode `static` the tensor then keeps its memory; in every other mode
 * (enum alloc_mode) the memory goes back to the supply (supply.h). Each tensor has a kind, which messages,
 * the result line and gpucap's tags show. A mem belongs to one thread and one stream; several may share a
 * supply. */
#ifndef HARNESS_MEM_H
#define HARNESS_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <cuda_runtime_api.h>

#include "harness/memory/supply.h"
#include "harness/base/status.h"

/* X(KIND, name) */
#define MEM_KINDS(X)                                                                                         \
    X(PARAMETERS, "parameters")                                                                              \
    X(OPTIMIZER, "optimizer")                                                                                \
    X(GRADIENTS, "gradients")                                                                                \
    X(ACTIVATIONS, "activations")                                                                            \
    X(WORKSPACE, "workspace")                                                                                \
    X(INPUT, "input")

#define MEM_KIND_ENUM(kind, name) MEM_##kind,
enum mem_kind { MEM_KINDS(MEM_KIND_ENUM) MEM_KIND_COUNT };
#undef MEM_KIND_ENUM

struct tensor {
    void *data; /* NULL while it has no memory */
    size_t bytes;
    void *block; /* record of the supply, for supply_give */
    int holders; /* mem_done calls until the contents are not needed any more */
    enum mem_kind kind;
};

struct mem {
    struct supply *supply;
    cudaStream_t stream;
    bool keep; /* static mode: tensors keep their memory after mem_done */
    size_t live[MEM_KIND_COUNT];
    size_t peak[MEM_KIND_COUNT];
};

void mem_open(struct mem *mem, struct supply *supply, cudaStream_t stream);

const char *mem_kind_name(enum mem_kind kind);

/* Gives the tensor memory for `bytes` bytes and one holder. The contents are undefined, unless the tensor
 * still had its memory from before. */
enum status mem_need(struct mem *mem, struct tensor *tensor, size_t bytes, enum mem_kind kind);

/* Adds a holder. */
void mem_share(struct tensor *tensor);

/* Removes a holder. With the last one the contents are lost, but work already queued on the stream may
 * still use them. Accepts a tensor without memory. */
enum status mem_done(struct mem *mem, struct tensor *tensor);

/* Gives the memory back in every mode and regardless of holders. Accepts a tensor without memory. */
enum status mem_drop(struct mem *mem, struct tensor *tensor);

#endif
