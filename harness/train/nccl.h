/* NCCL, loaded on first use: averages gradients over cards. Without the library, functions fail with a
 * message; `train` itself starts without it. A communicator has a lock of its own, so that any thread may
 * abort it. */
#ifndef HARNESS_NCCL_H
#define HARNESS_NCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <cuda_runtime_api.h>

#include "harness/base/status.h"

enum { NCCL_ID_BYTES = 128 };

struct nccl_id {
    char bytes[NCCL_ID_BYTES];
};

struct nccl_comm;

struct nccl_part {
    float *values;
    size_t count;
};

/* Returns true if the library can be loaded. Prints nothing. */
bool nccl_is_there(void);

enum status nccl_new_id(struct nccl_id *id);

/* Joins a communicator and waits for all ranks. The current device is this rank's. */
enum status nccl_open(struct nccl_comm **out, const struct nccl_id *id, int rank, int size);

/* Waits for queued operations, unless the communicator was aborted. Accepts NULL. */
void nccl_close(struct nccl_comm *comm);

/* Queues the replacement of each value by its mean over the ranks, all parts together. Fails without a
 * message after an abort. */
enum status nccl_average(struct nccl_comm *comm, const struct nccl_part *parts, int count,
                         cudaStream_t stream);

/* Returns true if NCCL has met an error since: the streams may hang until an abort. Any thread. */
bool nccl_has_failed(struct nccl_comm *comm);

/* Ends queued operations, with undefined results, so that no stream waits for a rank that has ended. Any
 * thread; only the first call does something. */
void nccl_abort(struct nccl_comm *comm);

#endif
