/* A way to compute a convolution with a plan of cuDNN's: on the tensors as they are or on padded channels,
 * the result in place or through the workspace. conv.cu chooses one and keeps it. Included by .cu files only.
 */
#ifndef KERNELS_CONV_RECIPE_H
#define KERNELS_CONV_RECIPE_H

#include "conv_plan.h"

/* One convolution as it is asked for: which of x, w, y is the result follows from the direction. */
struct conv_request {
    enum conv_direction direction;
    struct ops_conv shape;
    const void *x, *w, *y;
    void *result;
    int accumulate;
    char *workspace;
    size_t workspace_bytes;
};

#ifdef GPUCAP_HAS_CUDNN

/* What channels are padded to: 16 bytes of halves, which tensor cores take. */
enum { CONV_PAD_CHANNELS = 8, CONV_WORKSPACE_ALIGNMENT = 256 };

/* A way to compute a convolution. */
struct conv_recipe {
    struct conv_plan plan;     /* none: conv_direct */
    int channels;              /* of x, w and dw as the plan sees them */
    enum ops_type result_type; /* as the plan writes it */
    int via;                   /* the result goes to the workspace, then is converted and added */
    int beta;                  /* the plan itself adds to what is there */
};

/* Bytes of workspace that the recipe uses with its plan (or needs beside one). */
size_t conv_recipe_bytes(const struct conv_request *q, const struct conv_recipe *r);

/* Queues the recipe; result NULL means the request's own. */
int conv_recipe_run(cudnnHandle_t handle, ops_stream stream, const struct conv_request *q,
                    const struct conv_recipe *r, void *result);

#endif
#endif
