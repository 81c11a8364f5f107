/* NCCL, loaded on first use: averages gradients over cards. Without the library, functions fail with a
 * message; `train` itself starts without it. */
#ifndef HARNESS_NCCL_H
#define HARNESS_NCCL_H

#include <stddef.h>
#include <cuda_runtime_api.h>

#include "harness/base/status.h"

enum { NCCL_ID_BYTES = 128 };

struct nccl_id {
    char bytes[NCCL_ID_BYTES];
};

struct nccl_comm; /* NCCL's own */

enum status nccl_new_id(struct nccl_id *id);

/* Joins a communicator and waits for all ranks. The current device is this rank's. */
enum status nccl_open(struct nccl_comm **out, const struct nccl_id *id, int rank, int size);
void nccl_close(struct nccl_comm *comm);

/* Queues the replacement of each value by its mean over the ranks. */
enum status nccl_average(struct nccl_comm *comm, float *values, size_t count, cudaStream_t stream);

/* Operations between these two are submitted together. */
enum status nccl_group_start(void);
enum status nccl_group_end(void);

#endif
