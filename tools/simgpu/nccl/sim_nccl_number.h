/* sim_nccl_number: sizes of NCCL's types, and sums over ranks. Pure, no lock. */
#ifndef SIMGPU_NCCL_NUMBER_H
#define SIMGPU_NCCL_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/simgpu/nccl/sim_nccl_abi.h"

size_t sim_nccl_number_bytes(ncclDataType_t type); /* 0: unknown type */

/* Does sim_nccl_number_reduce() support this? It does sums and means of 16 and 32 bit floating point. */
bool sim_nccl_number_can_reduce(ncclDataType_t type, ncclRedOp_t op);

/* Writes the sum or mean over `ranks` arrays. Adds in 32 bits and in the order of the ranks, so that every
 * rank gets the same bits. For a mean each value is multiplied by 1 / ranks first, as in NCCL. `out` may be
 * one of the arrays. */
void sim_nccl_number_reduce(void *out, const void *const *from, int ranks, size_t count, ncclDataType_t type,
                            ncclRedOp_t op);

#endif
