/* Plans for a convolution by cuDNN's graph interface: one operation, images with their channels innermost,
 * sums in float. A plan is for one shape, direction and pair of types; conv.cu keeps them and decides which
 * to use. Nothing here touches a buffer except conv_plan_run. Included by .cu files only; empty without
 * cuDNN. */
#ifndef KERNELS_CONV_PLAN_H
#define KERNELS_CONV_PLAN_H

#include "kernels/ops_cuda.h"

enum conv_direction { CONV_FORWARD, CONV_DATA, CONV_FILTER };

#ifdef GPUCAP_HAS_CUDNN
#include <cudnn.h>

struct conv_plan_request {
    enum conv_direction direction;
    struct ops_conv shape;
    enum ops_type result_type; /* of y, dx or dw */
    int accumulate;            /* result += */
    size_t workspace_bytes;    /* what the plan may use */
};

struct conv_plan {
    cudnnBackendDescriptor_t plan;
    size_t workspace_bytes;
};

/* Finds the first plan of cuDNN's heuristics that fits the workspace, is deterministic, keeps sums in float
 * and, without tf32, computes in float. Returns false if there is none. Destroy it with conv_plan_destroy().
 */
bool conv_plan_find(cudnnHandle_t handle, const struct conv_plan_request *request, struct conv_plan *plan);

/* Queues the plan on the handle's stream. x, w, y are the tensors of the shape; one of them is the result. */
cudnnStatus_t conv_plan_run(cudnnHandle_t handle, const struct conv_plan *plan, const void *x, const void *w,
                            const void *y, void *workspace);

void conv_plan_destroy(struct conv_plan *plan);
#endif
#endif
