/* What the files of attention share: the two ways of computing it. attention_flash*.cu use the tensor cores
 * and need 16-bit types, dim 32, 64 or 128 and addresses that are multiples of 16 bytes; attention_plain.cu
 * does the rest, one warp per row. */
#ifndef KERNELS_ATTENTION_CUH
#define KERNELS_ATTENTION_CUH

#include "types.cuh"

enum { ATTENTION_MOST_DIM = 128 };

int attention_plain_forward(ops_stream stream, const struct op_attention_forward *args);
int attention_plain_backward(ops_stream stream, const struct op_attention_backward *args);
int attention_flash_forward(ops_stream stream, const struct op_attention_forward *args);
int attention_flash_backward(ops_stream stream, const struct op_attention_backward *args);

#endif
