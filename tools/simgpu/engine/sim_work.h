/* sim_work: a piece of work of a stream: a copy, a fill, a host function, a kernel, a wait.
 *
 * It owns all it needs, such as a staged copy of pageable memory or a kernel's arguments, so that it can run
 * later, or be kept in a graph and run many times. Runs without any lock.
 */
#ifndef SIMGPU_WORK_H
#define SIMGPU_WORK_H

#include "tools/simgpu/simgpu.h"
#include "tools/simgpu/engine/sim_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sim_work_kind {
    WORK_NOTHING,
    WORK_COPY,
    WORK_FILL,
    WORK_HOST,
    WORK_CALLBACK,
    WORK_KERNEL,
    WORK_WRITE,
    WORK_RAISE,
    WORK_AWAIT,
    WORK_BATCH
};

struct sim_work_copy {
    const char *from;
    char *to;
    size_t width, height, depth;
    size_t from_pitch, from_slice, to_pitch, to_slice;
};

struct sim_work_fill {
    char *to;
    uint32_t value;
    unsigned int element; /* bytes: 1, 2, 4 */
    size_t width, height; /* width in elements */
    size_t pitch;
};

/* Of cuStreamWriteValue and cuStreamWaitValue. WORK_RAISE writes the value only if it is larger than the one
 * in memory. */
struct sim_work_value {
    CUdeviceptr address;
    uint64_t value;
    unsigned int flags;
    bool wide;
};

/* One operation of a batch: WORK_WRITE, WORK_AWAIT or WORK_NOTHING. */
struct sim_work_step {
    enum sim_work_kind kind;
    struct sim_work_value value;
};

struct sim_work_kernel {
    simgpu_kernel *function;
    CUfunction handle;  /* that the program launched; only for queries of graph nodes */
    bool early;         /* may begin as soon as the previous kernel in its stream has begun */
    unsigned int count; /* arguments; they and the pointers to them are in .owned */
    uint32_t local;     /* bytes of local memory per thread */
    struct simgpu_dim grid, block;
};

struct sim_work {
    enum sim_work_kind kind;
    union {
        struct sim_work_copy copy;
        struct sim_work_fill fill;
        struct {
            CUhostFn function;
            void *data;
        } host;
        struct {
            CUstreamCallback function;
            CUstream stream;
            void *data;
        } callback;
        struct sim_work_kernel kernel;
        struct sim_work_value value;
        unsigned int steps; /* of a batch; they are in .owned */
    };
    void *owned;
    size_t owned_size;
};

/* The next two return NULL if the host is out of memory. */
struct sim_work *sim_work_new(enum sim_work_kind kind);
struct sim_work *sim_work_clone(const struct sim_work *work);
/* Copies the source of work->copy now, so that the program may change it. Returns false if the host is out of
 * memory. */
bool sim_work_stage(struct sim_work *work);
void sim_work_delete(struct sim_work *work);
void sim_work_run(const struct sim_work *work);

#endif
