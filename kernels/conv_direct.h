/* The convolutions without a library: right for every shape, type, alignment and without workspace, and slow.
 * conv.cu uses them where cuDNN has no plan or is not there. Included by .cu files only. */
#ifndef KERNELS_CONV_DIRECT_H
#define KERNELS_CONV_DIRECT_H

#include "conv_plan.h"

/* x, w, y are the tensors of the shape; the direction says which of them is written (dw is float). */
int conv_direct(ops_stream stream, enum conv_direction direction, const struct ops_conv *shape, const void *x,
                const void *w, const void *y, void *result, int accumulate);

#endif
