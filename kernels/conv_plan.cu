/* Plans for a convolution by cuDNN; see conv_plan.h. Descriptors are made, finalized and destroyed here;
 * those that a plan was made from are not needed after it. A step that fails makes the plan missing, never an
 * error: conv.cu has a kernel of its own to fall back on. */
#include "kernels/conv_plan.h"

#ifdef GPUCAP_HAS_CUDNN

enum { UID_X = 1, UID_W, UID_Y, MOST_CONFIGS = 24, ALIGNMENT = 16 };

/* A descriptor that destroys itself. */
struct descriptor {
    cudnnBackendDescriptor_t d = nullptr;

    explicit descriptor(cudnnBackendDescriptorType_t type) { cudnnBackendCreateDescriptor(type, &d); }
    ~descriptor()
    {
        if (d)
            cudnnBackendDestroyDescriptor(d);
    }
    descriptor(const descriptor &) = delete;
    descriptor &operator=(const descriptor &) = delete;

    bool set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
             const void *values) const
    {
        return d && cudnnBackendSetAttribute(d, name, type, count, values) == CUDNN_STATUS_SUCCESS;
    }
    bool finalize() const { return d && cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS; }
};

static cudnnDataType_t data_type(enum ops_type type)
{
    return type == OPS_F32 ? CUDNN_DATA_FLOAT : type == OPS_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

/* [n][h][w][c] in memory, which cuDNN names in the order n, c, h, w. */
static bool set_tensor(const descriptor &t, int64_t uid, enum ops_type type, int64_t n, int64_t h, int64_t w,
                       int64_t c)
{
    int64_t sizes[4] = {n, c, h, w};
    int64_t steps[4] = {h * w * c, 1, w * c, c};
    int64_t alignment = ALIGNMENT;
    cudnnDataType_t element = data_type(type);

    return t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &element) &&
           t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes) &&
           t.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, steps) &&
           t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid) &&
           t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment) && t.finalize();
}

static bool set_convolution(const descriptor &conv, const struct ops_conv *s)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t dimensions = 2, dilation[2] = {1, 1}, stride[2] = {s->stride, s->stride},
            pad[2] = {s->pad, s->pad};

    return conv.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute) &&
           conv.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode) &&
           conv.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions) &&
           conv.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation) &&
           conv.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride) &&
           conv.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad) &&
           conv.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad) && conv.finalize();
}

/* The names of one direction's descriptor and attributes. */
struct operation_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, conv, alpha, beta;
};

static const struct operation_names names_of[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

/* Whether engine config's results repeat to the bit and are as exact as the request wants. */
static bool acceptable(cudnnBackendDescriptor_t config, const struct conv_plan_request *request)
{
    descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t found = 0;
    bool exact = request->shape.type == OPS_F32 && !request->shape.tf32;

    if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &found, &engine.d) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(engine.d, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &found, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < found && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++) {
        bool rounds = notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE ||
                      notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
                      notes[i] == CUDNN_NUMERICAL_NOTE_FFT || notes[i] == CUDNN_NUMERICAL_NOTE_WINOGRAD;

        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
            notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION || (exact && rounds))
            return false;
    }
    return true;
}

/* A plan from an engine config, if it needs no more workspace than there is. */
static bool make_plan(cudnnHandle_t handle, cudnnBackendDescriptor_t config,
                      const struct conv_plan_request *request, struct conv_plan *out)
{
    descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t bytes = 0, found = 0;

    if (!acceptable(config, request) ||
        !plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle) ||
        !plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config) ||
        !plan.finalize() ||
        cudnnBackendGetAttribute(plan.d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                 &found, &bytes) != CUDNN_STATUS_SUCCESS ||
        (size_t)bytes > request->workspace_bytes)
        return false;
    out->plan = plan.d;
    out->workspace_bytes = (size_t)bytes;
    plan.d = nullptr;
    return true;
}

/* Asks the heuristics in one mode and makes a plan of the first answer that serves. */
static bool plan_by_mode(cudnnHandle_t handle, const struct conv_plan_request *request,
                         const descriptor &graph, cudnnBackendHeurMode_t mode, struct conv_plan *plan)
{
    descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    cudnnBackendDescriptor_t configs[MOST_CONFIGS] = {};
    int64_t found = 0;
    int made = 0;
    bool planned = false;

    if (!heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph.d) ||
        !heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) || !heuristics.finalize())
        return false;
    while (made < MOST_CONFIGS && cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                                               &configs[made]) == CUDNN_STATUS_SUCCESS)
        made++;
    if (cudnnBackendGetAttribute(heuristics.d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 made, &found, configs) != CUDNN_STATUS_SUCCESS)
        found = 0;
    for (int i = 0; i < made && i < found && !planned; i++)
        planned = make_plan(handle, configs[i], request, plan);
    for (int i = 0; i < made; i++)
        cudnnBackendDestroyDescriptor(configs[i]);
    return planned;
}

bool conv_plan_find(cudnnHandle_t handle, const struct conv_plan_request *request, struct conv_plan *plan)
{
    const struct ops_conv *s = &request->shape;
    const struct operation_names *names = &names_of[request->direction];
    descriptor x(CUDNN_BACKEND_TENSOR_DESCRIPTOR), w(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    descriptor y(CUDNN_BACKEND_TENSOR_DESCRIPTOR), conv(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    descriptor operation(names->type), graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    enum ops_type types[3] = {s->type, s->type, s->type};
    int oh = (s->h + 2 * s->pad - s->r) / s->stride + 1, ow = (s->w + 2 * s->pad - s->s) / s->stride + 1;
    float alpha = 1.0f, beta = request->accumulate ? 1.0f : 0.0f;

    types[request->direction == CONV_FORWARD ? 2
          : request->direction == CONV_DATA  ? 0
                                             : 1] = request->result_type;
    if (!set_tensor(x, UID_X, types[0], s->n, s->h, s->w, s->c) ||
        !set_tensor(w, UID_W, types[1], s->k, s->r, s->s, s->c) ||
        !set_tensor(y, UID_Y, types[2], s->n, oh, ow, s->k) || !set_convolution(conv, s) ||
        !operation.set(names->x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x.d) ||
        !operation.set(names->w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w.d) ||
        !operation.set(names->y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y.d) ||
        !operation.set(names->conv, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv.d) ||
        !operation.set(names->alpha, CUDNN_TYPE_FLOAT, 1, &alpha) ||
        !operation.set(names->beta, CUDNN_TYPE_FLOAT, 1, &beta) || !operation.finalize() ||
        !graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle) ||
        !graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operation.d) ||
        !graph.finalize())
        return false;
    return plan_by_mode(handle, request, graph, CUDNN_HEUR_MODE_A, plan) ||
           plan_by_mode(handle, request, graph, CUDNN_HEUR_MODE_FALLBACK, plan);
}

cudnnStatus_t conv_plan_run(cudnnHandle_t handle, const struct conv_plan *plan, const void *x, const void *w,
                            const void *y, void *workspace)
{
    descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    int64_t uids[3] = {UID_X, UID_W, UID_Y};
    const void *pointers[3] = {x, w, y};

    if (!pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, uids) ||
        !pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers) ||
        !pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace) || !pack.finalize())
        return CUDNN_STATUS_INTERNAL_ERROR;
    return cudnnBackendExecute(handle, plan->plan, pack.d);
}

void conv_plan_destroy(struct conv_plan *plan)
{
    if (plan->plan)
        cudnnBackendDestroyDescriptor(plan->plan);
    plan->plan = nullptr;
}

#endif
