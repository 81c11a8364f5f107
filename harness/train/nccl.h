/* NCCL, loaded when it is needed: averages of gradients between cards. Without the library the answer is a
 * status with a message, never a failure to start. */
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

/* Waits for all ranks. The device that is current belongs to this rank. */
enum status nccl_open(struct nccl_comm **out, const struct nccl_id *id, int rank, int size);
void nccl_close(struct nccl_comm *comm);

/* Queues values = their mean over the ranks. */
enum status nccl_average(struct nccl_comm *comm, float *values, size_t count, cudaStream_t stream);

/* Operations between these two go out together. */
enum status nccl_group_start(void);
enum status nccl_group_end(void);

#endif
