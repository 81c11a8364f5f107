/* A recipe: how to compute a convolution with a plan of cuDNN. It runs on the tensors as they are or, for
 * images with too few channels for tensor cores, on a rearranged copy; the result is written in place or
 * through the workspace. conv.cu chooses a recipe and keeps it. Included by .cu files only. */
#ifndef KERNELS_CONV_RECIPE_H
#define KERNELS_CONV_RECIPE_H

#include "kernels/conv_plan.h"

/* The arguments of one convolution. The direction decides which of x, w, y is the result. */
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

/* The arrangement of x and w for the plan.
 *     CONV_FILLED: with zeros added, up to 8 channels.
 *     CONV_FOLDED: for stride 2 and up to 4 channels. The four pixels of a square become one pixel of 16
 *                  channels, padding becomes part of the image, the filter half as high and wide, stride 1.
 */
enum conv_view { CONV_PLAIN, CONV_FILLED, CONV_FOLDED };

struct conv_recipe {
    struct conv_plan plan; /* if empty, conv_direct is used */
    enum conv_view view;
    struct ops_conv shape;     /* of the plan; n: images in one run, as many as fit the workspace */
    enum ops_type result_type; /* of the plan */
    int via;  /* the plan writes to the workspace, from where the result is converted and added */
    int beta; /* the plan itself adds to the result */
};

/* Returns the shape of a convolution in a view. */
struct ops_conv conv_recipe_shape(const struct ops_conv *shape, enum conv_view view);

/* Returns the bytes of workspace that the recipe needs, its plan included if it has one. */
size_t conv_recipe_bytes(const struct conv_request *q, const struct conv_recipe *r);

/* Queues the recipe. */
int conv_recipe_run(cudnnHandle_t handle, ops_stream stream, const struct conv_request *q,
                    const struct conv_recipe *r);

#endif
#endif
