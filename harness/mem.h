/* Device memory of a model, in the ways that real programs take it (enum alloc_mode). Model code says when it
 * needs a tensor and when it is done with it for this step; the mode decides what that means: naive
 * cudaMalloc and cudaFree each time arena   the same from one large block taken at start static  the first
 * time only; the tensor stays Every block has a kind, so that an out-of-memory message can say who holds
 * what. No lock: one training loop. */
#ifndef HARNESS_MEM_H
#define HARNESS_MEM_H

#include <stddef.h>

#include "arena.h"
#include "options.h"
#include "status.h"

/* X(KIND, name) */
#define MEM_KINDS(X)                                                                                         \
    X(PARAMETERS, "parameters")                                                                              \
    X(OPTIMIZER, "optimizer")                                                                                \
    X(GRADIENTS, "gradients")                                                                                \
    X(ACTIVATIONS, "activations")                                                                            \
    X(INPUT, "input")

#define MEM_KIND_ENUM(kind, name) MEM_##kind,
enum mem_kind { MEM_KINDS(MEM_KIND_ENUM) MEM_KIND_COUNT };
#undef MEM_KIND_ENUM

struct tensor {
    void *data; /* NULL while it has no memory */
    size_t bytes;
    enum mem_kind kind;
};

struct mem {
    enum alloc_mode mode;
    char *base; /* the arena's block, else NULL */
    struct arena arena;
    size_t live[MEM_KIND_COUNT];
    size_t held; /* bytes taken from the device now */
    size_t peak;
};

/* In arena mode takes the given fraction of what cudaMemGetInfo reports free. */
enum status mem_open(struct mem *mem, enum alloc_mode mode, double fraction);

/* Every tensor must have been dropped. */
enum status mem_close(struct mem *mem);

/* After this, tensor->data has room for bytes; the contents are undefined unless the tensor already had them.
 */
enum status mem_need(struct mem *mem, struct tensor *tensor, size_t bytes, enum mem_kind kind);

/* The contents are not needed any more; work already queued on the stream may still use them. */
enum status mem_done(struct mem *mem, struct tensor *tensor);

/* Gives the memory back in every mode. A tensor without memory is allowed. */
enum status mem_drop(struct mem *mem, struct tensor *tensor);

#endif
