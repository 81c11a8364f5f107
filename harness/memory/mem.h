/* Device memory of a model, in the ways that real programs take it (enum alloc_mode). Model code says when it
 * needs a tensor and when it is done with it for this step; the mode decides what that means: with static the
 * memory stays, with every other mode it goes back to the supply (supply.h), which frees it or keeps it.
 * Every block has a kind, so that a message, a result line and gpucap's tags can say who holds what. A mem
 * belongs to one thread and one stream; several may share a supply. */
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
    void *block; /* the supply's record */
    int holders; /* who still reads it in this step */
    enum mem_kind kind;
};

struct mem {
    struct supply *supply;
    cudaStream_t stream;
    bool keep; /* static: done tensors stay */
    size_t live[MEM_KIND_COUNT];
    size_t peak[MEM_KIND_COUNT];
};

void mem_open(struct mem *mem, struct supply *supply, cudaStream_t stream);

const char *mem_kind_name(enum mem_kind kind);

/* After this, tensor->data has room for bytes and the tensor one holder; the contents are undefined unless
 * the tensor already had them. */
enum status mem_need(struct mem *mem, struct tensor *tensor, size_t bytes, enum mem_kind kind);

/* One holder more. */
void mem_share(struct tensor *tensor);

/* One holder less; after the last one the contents are gone. Work already queued on the stream may still use
 * them. A tensor without memory is allowed. */
enum status mem_done(struct mem *mem, struct tensor *tensor);

/* Gives the memory back in every mode, whoever holds it. A tensor without memory is allowed. */
enum status mem_drop(struct mem *mem, struct tensor *tensor);

#endif
