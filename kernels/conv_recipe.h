/* A way to compute a convolution with a plan of cuDNN's: on the tensors as they are, or, where an image has
 * few channels, which tensor cores do not take, on a rearranged copy; the result in place or through the
 * workspace. conv.cu chooses one and keeps it. Included by .cu files only. */
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

enum { CONV_WORKSPACE_ALIGNMENT = 256 };

/* How the plan sees x and w.
 *     CONV_FILLED: channels filled up with zeros to 8.
 *     CONV_FOLDED: for stride 2 and up to 4 channels: the four pixels of a square become one of 16 channels,
 * the padding is part of the picture, and the filter is half as high and wide with stride 1. */
enum conv_view { CONV_PLAIN, CONV_FILLED, CONV_FOLDED };

struct conv_recipe {
    struct conv_plan plan; /* none: conv_direct */
    enum conv_view view;
    struct ops_conv shape;     /* as the plan sees it; n: images of one run, as many as fit the workspace */
    enum ops_type result_type; /* as the plan writes it */
    int via;                   /* the result goes to the workspace, then is converted and added */
    int beta;                  /* the plan itself adds to what is there */
};

/* The shape as a view has it. */
struct ops_conv conv_recipe_shape(const struct ops_conv *shape, enum conv_view view);

/* Bytes of workspace that the recipe uses with its plan (or needs beside one). */
size_t conv_recipe_bytes(const struct conv_request *q, const struct conv_recipe *r);

/* Queues the recipe. */
int conv_recipe_run(cudnnHandle_t handle, ops_stream stream, const struct conv_request *q,
                    const struct conv_recipe *r);

#endif
#endif
