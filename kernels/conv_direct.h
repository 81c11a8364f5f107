/* Convolutions without a library: right for every shape, type and alignment, without workspace, but slow.
 * conv.cu uses them if cuDNN is not installed or has no plan. Included by .cu files only. */
#ifndef KERNELS_CONV_DIRECT_H
#define KERNELS_CONV_DIRECT_H

#include "kernels/conv_plan.h"

/* x, w, y are the tensors of the shape; the direction decides which of them `result` replaces (dw is float).
 */
int conv_direct(ops_stream stream, enum conv_direction direction, const struct ops_conv *shape, const void *x,
                const void *w, const void *y, void *result, int accumulate);

#endif
