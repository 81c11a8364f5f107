/* Convolutions on the device. What to do for a shape is found once and kept in the table: a plan of cuDNN's,
 * on the tensors as they are or on channels padded to a multiple of 8 (images of 3 channels, which tensor
 * cores do not take), its result written in place or through the workspace; or the kernels of conv_direct.cu,
 * where nothing else works. Plans are only those that repeat to the bit. The CPU reference is conv.c. */
#include "conv_direct.h"
#include "conv_recipe.h"

#include <stdlib.h>
#include <string.h>

#include "types.cuh"

#ifdef GPUCAP_HAS_CUDNN

/* Plans tried for each way; repetitions that are timed; and how much faster a later
 * candidate must be, so that noise does not decide. */
enum { PLANS = 4, REPEATS = 3 };
static const float worthwhile = 0.97f;

/* Zeroed before it is filled: compared as bytes. */
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
    struct cuda_ops *ops;
    cudnnHandle_t handle;
    bool broken; /* cuDNN does not start here */
    bool tune;
    struct entry *entries;
    int count, room;
};

/* Milliseconds of the recipe, or a negative number if it does not run. Leaves the request's result computed,
 * or untouched where the recipe would add to it. */
static float time_recipe(struct cuda_conv *conv, ops_stream stream, const struct conv_request *q,
                         const struct conv_recipe *r, void *result, cudaEvent_t begin, cudaEvent_t end)
{
    struct conv_request once = *q;
    float best = -1.0f;

    /* What is added to the result through the workspace would be added again and again. */
    if (r->via && q->accumulate)
        once.result = result;
    for (int i = 0; i <= REPEATS; i++) {
        float ms = 0.0f;

        cudaEventRecord(begin, stream);
        if (conv_recipe_run(conv->handle, stream, &once, r, result))
            return -1.0f;
        cudaEventRecord(end, stream);
        if (cudaEventSynchronize(end) || cudaEventElapsedTime(&ms, begin, end))
            return -1.0f;
        if (i > 0 && (best < 0.0f || ms < best))
            best = ms;
    }
    return best;
}

/* The ways worth trying for a request, without their plans. */
static int ways_of(const struct conv_request *q, struct conv_recipe *ways)
{
    const struct ops_conv *s = &q->shape;
    int padded = s->type != OPS_F32 && s->c < CONV_PAD_CHANNELS && q->direction != CONV_DATA;
    int count = 0;

    if (q->direction == CONV_FILTER) {
        ways[count++] = {{}, s->c, OPS_F32, 0, q->accumulate};
        if (padded)
            ways[count++] = {{}, CONV_PAD_CHANNELS, OPS_F32, 1, 0};
        if (q->accumulate)
            ways[count++] = {{}, s->c, OPS_F32, 1, 0};
        if (s->type != OPS_F32)
            ways[count++] = {{}, s->c, s->type, 1, 0};
        if (padded)
            ways[count++] = {{}, CONV_PAD_CHANNELS, s->type, 1, 0};
    } else {
        ways[count++] = {{}, s->c, s->type, 0, q->accumulate};
        if (q->accumulate)
            ways[count++] = {{}, s->c, s->type, 1, 0};
        if (padded)
            ways[count++] = {{}, CONV_PAD_CHANNELS, s->type, 0, 0};
    }
    return count;
}

/* The plans for one way, of which the first fits the workspace. */
static int plans_of(struct cuda_conv *conv, const struct conv_request *q, const struct conv_recipe *way,
                    int most, struct conv_plan *plans)
{
    size_t beside = conv_recipe_bytes(q, way);
    struct conv_plan_request request = {q->direction, q->shape, way->result_type, way->beta, 0};

    if (beside > q->workspace_bytes)
        return 0;
    request.shape.c = way->channels;
    request.workspace_bytes =
        (q->workspace_bytes - beside) / CONV_WORKSPACE_ALIGNMENT * CONV_WORKSPACE_ALIGNMENT;
    return conv_plan_find(conv->handle, &request, most, plans);
}

/* Bytes of the result as the request wants it. */
static size_t result_bytes(const struct conv_request *q)
{
    const struct ops_conv *s = &q->shape;

    return q->direction == CONV_DATA ? (size_t)s->n * s->h * s->w * s->c * ops_type_bytes(s->type)
                                     : (size_t)s->k * s->r * s->s * s->c * sizeof(float);
}

/* Tries the plans of one way; keeps the best so far in *best and *best_ms. */
static void try_way(struct cuda_conv *conv, ops_stream stream, const struct conv_request *q,
                    const struct conv_recipe *way, struct conv_recipe *best, float *best_ms,
                    cudaEvent_t begin, cudaEvent_t end)
{
    struct conv_plan plans[PLANS];
    int count = plans_of(conv, q, way, PLANS, plans);

    for (int i = 0; i < count; i++) {
        struct conv_recipe candidate = *way;
        void *result = NULL;
        size_t used;
        float ms;

        candidate.plan = plans[i];
        used = conv_recipe_bytes(q, &candidate);
        if (q->accumulate) /* what is there must stay: the trial writes behind the workspace that it uses */
            result = q->workspace_bytes - used >= result_bytes(q) ? q->workspace + used : NULL;
        ms = q->accumulate && !result ? -1.0f : time_recipe(conv, stream, q, &candidate, result, begin, end);
        if (!best->plan.plan || (ms >= 0.0f && (*best_ms < 0.0f || ms < *best_ms * worthwhile))) {
            conv_plan_destroy(&best->plan);
            *best = candidate;
            *best_ms = ms;
        } else {
            conv_plan_destroy(&candidate.plan);
        }
    }
}

static void choose(struct cuda_conv *conv, ops_stream stream, const struct conv_request *q,
                   struct conv_recipe *best)
{
    struct conv_recipe ways[6];
    int count = ways_of(q, ways);
    cudaEvent_t begin = NULL, end = NULL;
    float best_ms = -1.0f;

    memset(best, 0, sizeof(*best));
    best->channels = q->shape.c;
    if (conv->tune && !cuda_capturing(stream) && cudaEventCreate(&begin) == cudaSuccess &&
        cudaEventCreate(&end) == cudaSuccess) {
        for (int i = 0; i < count; i++)
            try_way(conv, stream, q, &ways[i], best, &best_ms, begin, end);
        cudaGetLastError(); /* a trial that failed is no error */
    } else {
        for (int i = 0; i < count && !best->plan.plan; i++) {
            struct conv_plan plan;

            if (plans_of(conv, q, &ways[i], 1, &plan) == 1) {
                *best = ways[i];
                best->plan = plan;
            }
        }
    }
    if (begin)
        cudaEventDestroy(begin);
    if (end)
        cudaEventDestroy(end);
}

/* cuDNN's handle, made at the first convolution. It allocates, which a capture in this thread must not see.
 */
static bool ready(struct cuda_conv *conv)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

    if (conv->handle || conv->broken)
        return !conv->broken;
    cudaThreadExchangeStreamCaptureMode(&mode);
    conv->broken = cudnnCreate(&conv->handle) != CUDNN_STATUS_SUCCESS;
    cudaThreadExchangeStreamCaptureMode(&mode);
    return !conv->broken;
}

/* The recipe of a request, found now or before; NULL without memory to keep it. */
static const struct conv_recipe *recipe_of(struct cuda_conv *conv, ops_stream stream,
                                           const struct conv_request *q)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
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
    cudaThreadExchangeStreamCaptureMode(&mode);
    choose(conv, stream, q, &conv->entries[conv->count].recipe);
    cudaThreadExchangeStreamCaptureMode(&mode);
    return &conv->entries[conv->count++].recipe;
}

static int run(struct cuda_ops *ops, ops_stream stream, struct conv_request *q)
{
    uintptr_t unaligned = (uintptr_t)q->x | (uintptr_t)q->w | (uintptr_t)q->y | (uintptr_t)q->result;
    size_t skip = (CONV_WORKSPACE_ALIGNMENT - (uintptr_t)q->workspace % CONV_WORKSPACE_ALIGNMENT) %
                  CONV_WORKSPACE_ALIGNMENT;
    const struct conv_recipe *recipe = NULL;

    if (q->workspace && q->workspace_bytes > skip) {
        q->workspace += skip;
        q->workspace_bytes -= skip;
    } else {
        q->workspace_bytes = 0;
    }
    if (unaligned % CUDA_PACK_BYTES == 0 && ops->conv && ready(ops->conv))
        recipe = recipe_of(ops->conv, stream, q);
    /* A plan that cuDNN made and then does not run has written nothing. */
    if (!recipe || !recipe->plan.plan || conv_recipe_run(ops->conv->handle, stream, q, recipe, NULL) != 0)
        return conv_direct(stream, q->direction, &q->shape, q->x, q->w, q->y, q->result, q->accumulate);
    return OPS_OK;
}

int cuda_conv_open(struct cuda_ops *ops, struct cuda_conv **out)
{
    struct cuda_conv *conv = (struct cuda_conv *)calloc(1, sizeof(*conv));
    const char *tune = getenv("TRAIN_CONV_TUNE");

    if (!conv)
        return OPS_OUT_OF_MEMORY;
    conv->ops = ops;
    conv->tune = !tune || strcmp(tune, "0") != 0;
    *out = conv;
    return OPS_OK;
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
    struct conv_request q = {CONV_FILTER,
                             args->shape,
                             args->x,
                             args->dw,
                             args->dy,
                             args->dw,
                             args->accumulate,
                             (char *)args->workspace,
                             args->workspace_bytes};

    if (args->shape.n > 0)
        return run(ops, stream, &q);
    /* No image, no gradient. */
    if (args->accumulate)
        return OPS_OK;
    return cudaMemsetAsync(
        args->dw, 0, (size_t)args->shape.k * args->shape.r * args->shape.s * args->shape.c * sizeof(float),
        stream);
}
