/* Convolutions on the device. The recipe for a shape is chosen once and kept in the table: the first plan of
 * cuDNN's heuristics that fits, or else the kernels of conv_direct.cu. Timing several plans gained 1 %
 * (measured on an H200 with the shapes of ResNet-50), and the choice would depend on noise, so that two runs
 * would differ in their bits.
 *
 * The gradient of the filters is float. For 16-bit operands cuDNN's fast kernels write it in 16 bits, so that
 * it goes through the workspace; cuDNN's kernels that write float are up to 40 times slower. Images with few
 * channels are rearranged first (conv_recipe.h). The CPU reference is conv.c. */
#include "kernels/conv_direct.h"
#include "kernels/conv_recipe.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/types.cuh"

#ifdef GPUCAP_HAS_CUDNN

enum { MOST_WAYS = 4, FEW_CHANNELS = 8, FOLDED_CHANNELS = 4 };

/* Compared as bytes, so zero it before filling it. */
struct key {
    enum conv_direction direction;
    struct ops_conv shape;
    int accumulate;
    size_t workspace_bytes;
};

struct entry {
    struct key key;
    struct conv_recipe recipe;
};

struct cuda_conv {
    cudnnHandle_t handle;
    bool broken; /* cuDNN cannot be initialized */
    struct entry *entries;
    int count, room;
};

/* The shape as a view has it, with as many images (a divisor of their number) as take at most half of the
 * workspace; none if not one does. */
static struct ops_conv shape_of_view(const struct conv_request *q, enum conv_view view)
{
    struct ops_conv s = conv_recipe_shape(&q->shape, view);
    size_t each = (size_t)s.h * s.w * s.c * ops_type_bytes(s.type);

    while (view != CONV_PLAIN && s.n > 0 && (q->shape.n % s.n || s.n * each > q->workspace_bytes / 2))
        s.n--;
    return s;
}

static enum conv_view view_of(const struct conv_request *q)
{
    const struct ops_conv *s = &q->shape;

    if (s->type == OPS_F32 || q->direction == CONV_DATA || s->c >= FEW_CHANNELS)
        return CONV_PLAIN;
    return s->stride == 2 && s->c <= FOLDED_CHANNELS ? CONV_FOLDED : CONV_FILLED;
}

/* The ways for a request, the best first, without their plans. */
static int ways_of(const struct conv_request *q, struct conv_recipe *ways)
{
    bool filter = q->direction == CONV_FILTER;
    enum conv_view view = view_of(q);
    enum ops_type type = q->shape.type;
    struct ops_conv viewed = shape_of_view(q, view), plain = shape_of_view(q, CONV_PLAIN);
    int count = 0;

    if (view != CONV_PLAIN && viewed.n > 0)
        ways[count++] = {{}, view, viewed, type, filter, 0};
    if (filter && type != OPS_F32)
        ways[count++] = {{}, CONV_PLAIN, plain, type, 1, 0};
    ways[count++] = {{}, CONV_PLAIN, plain, filter ? OPS_F32 : type, 0, q->accumulate};
    if (q->accumulate)
        ways[count++] = {{}, CONV_PLAIN, plain, filter ? OPS_F32 : type, 1, 0};
    return count;
}

/* The first way that has a plan which fits the workspace; a recipe without a plan if there is none. */
static struct conv_recipe choose(struct cuda_conv *conv, const struct conv_request *q)
{
    struct conv_recipe ways[MOST_WAYS];
    int count = ways_of(q, ways);

    for (int i = 0; i < count; i++) {
        size_t beside = conv_recipe_bytes(q, &ways[i]);
        struct conv_plan_request request = {q->direction, ways[i].shape, ways[i].result_type, ways[i].beta,
                                            0};

        if (beside > q->workspace_bytes)
            continue;
        request.workspace_bytes =
            (q->workspace_bytes - beside) / CONV_WORKSPACE_ALIGNMENT * CONV_WORKSPACE_ALIGNMENT;
        if (conv_plan_find(conv->handle, &request, &ways[i].plan))
            return ways[i];
    }
    return {};
}

/* cuDNN's handle, made at the first convolution. */
static bool ready(struct cuda_conv *conv)
{
    if (!conv->handle && !conv->broken)
        conv->broken = cudnnCreate(&conv->handle) != CUDNN_STATUS_SUCCESS;
    return !conv->broken;
}

/* Returns the recipe of a request, and chooses it at first use; NULL if the host is out of memory. */
static struct conv_recipe *recipe_of(struct cuda_conv *conv, const struct conv_request *q)
{
    struct key key;

    memset(&key, 0, sizeof(key));
    key.direction = q->direction;
    key.shape = q->shape;
    key.accumulate = q->accumulate != 0;
    key.workspace_bytes = q->workspace_bytes;
    for (int i = 0; i < conv->count; i++) {
        if (memcmp(&conv->entries[i].key, &key, sizeof(key)) == 0)
            return &conv->entries[i].recipe;
    }
    if (conv->count == conv->room) {
        int room = conv->room ? 2 * conv->room : 64;
        struct entry *entries = (struct entry *)realloc(conv->entries, room * sizeof(*entries));

        if (!entries)
            return NULL;
        conv->entries = entries;
        conv->room = room;
    }
    memcpy(&conv->entries[conv->count].key, &key, sizeof(key));
    conv->entries[conv->count].recipe = ready(conv) ? choose(conv, q) : conv_recipe{};
    return &conv->entries[conv->count++].recipe;
}

static int run(struct cuda_ops *ops, ops_stream stream, struct conv_request *q)
{
    uintptr_t addresses = (uintptr_t)q->x | (uintptr_t)q->w | (uintptr_t)q->y;
    size_t skip = -(uintptr_t)q->workspace % CONV_WORKSPACE_ALIGNMENT;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    struct conv_recipe *recipe = NULL;

    q->workspace_bytes = q->workspace && q->workspace_bytes > skip ? q->workspace_bytes - skip : 0;
    q->workspace += skip;
    if (addresses % CUDA_PACK_BYTES == 0) {
        /* Making a handle or a plan may allocate, which the capture mode of this thread may forbid. */
        cudaThreadExchangeStreamCaptureMode(&mode);
        recipe = recipe_of(ops->conv, q);
        cudaThreadExchangeStreamCaptureMode(&mode);
    }
    if (recipe && recipe->plan.plan) {
        if (conv_recipe_run(ops->conv->handle, stream, q, recipe) == 0)
            return OPS_OK;
        /* A plan that fails has written nothing; do not try it again. */
        conv_plan_destroy(&recipe->plan);
        cudaGetLastError();
    }
    return conv_direct(stream, q->direction, &q->shape, q->x, q->w, q->y, q->result, q->accumulate);
}

int cuda_conv_open(struct cuda_ops *ops, struct cuda_conv **out)
{
    (void)ops;
    *out = (struct cuda_conv *)calloc(1, sizeof(**out));
    return *out ? OPS_OK : OPS_OUT_OF_MEMORY;
}

void cuda_conv_close(struct cuda_conv *conv)
{
    if (!conv)
        return;
    for (int i = 0; i < conv->count; i++)
        conv_plan_destroy(&conv->entries[i].recipe.plan);
    if (conv->handle)
        cudnnDestroy(conv->handle);
    free(conv->entries);
    free(conv);
}

#else

static int run(struct cuda_ops *ops, ops_stream stream, struct conv_request *q)
{
    (void)ops;
    return conv_direct(stream, q->direction, &q->shape, q->x, q->w, q->y, q->result, q->accumulate);
}

int cuda_conv_open(struct cuda_ops *, struct cuda_conv **out)
{
    *out = NULL;
    return OPS_OK;
}

void cuda_conv_close(struct cuda_conv *) {}

#endif

int cuda_conv_forward(struct cuda_ops *ops, ops_stream stream, const struct op_conv_forward *args)
{
    struct conv_request q = {
        CONV_FORWARD,         args->shape, args->x, args->w, args->y, args->y, 0, (char *)args->workspace,
        args->workspace_bytes};

    return args->shape.n > 0 ? run(ops, stream, &q) : OPS_OK;
}

int cuda_conv_backward_data(struct cuda_ops *ops, ops_stream stream, const struct op_conv_backward_data *args)
{
    struct conv_request q = {CONV_DATA,
                             args->shape,
                             args->dx,
                             args->w,
                             args->dy,
                             args->dx,
                             args->accumulate,
                             (char *)args->workspace,
                             args->workspace_bytes};

    return args->shape.n > 0 ? run(ops, stream, &q) : OPS_OK;
}

int cuda_conv_backward_filter(struct cuda_ops *ops, ops_stream stream,
                              const struct op_conv_backward_filter *args)
{
    const struct ops_conv *s = &args->shape;
    struct conv_request q = {CONV_FILTER,
                             args->shape,
                             args->x,
                             args->dw,
                             args->dy,
                             args->dw,
                             args->accumulate,
                             (char *)args->workspace,
                             args->workspace_bytes};

    if (s->n > 0)
        return run(ops, stream, &q);
    /* No image, no gradient. */
    if (args->accumulate)
        return OPS_OK;
    return cudaMemsetAsync(args->dw, 0, (size_t)s->k * s->r * s->s * s->c * sizeof(float), stream);
}
