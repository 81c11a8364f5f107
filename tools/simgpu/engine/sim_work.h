/* sim_work: one thing that a stream does: a copy, a fill, a host function, a kernel, a wait.
 *
 * A piece of work owns all it needs (also a staged copy of pageable memory and a kernel's arguments), so that
 * it can be run later, or be kept in a graph and run many times. Runs without any lock.
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

struct sim_work_value { /* cuStreamWriteValue, cuStreamWaitValue; RAISE writes what is larger than what is
                         * there
                         */
    CUdeviceptr address;
    uint64_t value;
    unsigned int flags;
    bool wide;
};

struct sim_work_step { /* one of a batch: WORK_WRITE, WORK_AWAIT or WORK_NOTHING */
    enum sim_work_kind kind;
    struct sim_work_value value;
};

struct sim_work_kernel {
    simgpu_kernel *function;
    CUfunction handle;  /* that the program launched: only to say it again */
    bool early;         /* may begin when the kernel before it in its stream has begun */
    unsigned int count; /* arguments; they and the pointers to them are in .owned */
    uint32_t local;     /* bytes of local memory a thread */
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

struct sim_work *sim_work_new(enum sim_work_kind kind); /* NULL: no memory; so for the next two */
struct sim_work *sim_work_clone(const struct sim_work *work);
/* Copies what work->copy reads now, so that the caller may change it. False: no memory. */
bool sim_work_stage(struct sim_work *work);
void sim_work_delete(struct sim_work *work);
void sim_work_run(const struct sim_work *work);

#endif
