/* Convolutions on the device. What to do for a shape is found once and kept in the table: a plan of cuDNN's,
 * on the tensors as they are or on channels padded to a multiple of 8 (images of 3 channels, which tensor
 * cores do not take), its result written in place or through the workspace; or the kernels of conv_direct.cu,
 * where nothing else works. Plans are only those that repeat to the bit. The CPU reference is conv.c. */
#include "conv_direct.h"
#include "conv_plan.h"

#include <stdlib.h>
#include <string.h>

#include "types.cuh"

/* One convolution as it is asked for: which of x, w, y is the result follows from the direction. */
struct request {
    enum conv_direction direction;
    struct ops_conv shape;
    const void *x, *w, *y;
    void *result;
    int accumulate;
    char *workspace;
    size_t workspace_bytes;
};

#ifdef GPUCAP_HAS_CUDNN

/* Padded channels; plans tried for each way; repetitions that are timed; and how much faster a later
 * candidate must be, so that noise does not decide. */
enum { PAD_CHANNELS = 8, PLANS = 4, REPEATS = 3, WORKSPACE_ALIGNMENT = 256 };
static const float worthwhile = 0.97f;

/* A way to compute a convolution. */
struct recipe {
    struct conv_plan plan;     /* none: conv_direct */
    int channels;              /* of x, w and dw as the plan sees them */
    enum ops_type result_type; /* as the plan writes it */
    int via;                   /* the result goes to the workspace, then is converted and added */
    int beta;                  /* the plan itself adds to what is there */
};

/* Zeroed before it is filled: compared as bytes. */
struct key {
    enum conv_direction direction;
    struct ops_conv shape;
    int accumulate;
    size_t workspace_bytes;
};

struct entry {
    struct key key;
    struct recipe recipe;
};

struct cuda_conv {
    struct cuda_ops *ops;
    cudnnHandle_t handle;
    bool broken; /* cuDNN does not start here */
    bool tune;
    struct entry *entries;
    int count, room;
};

/* out[row][j] = x[row][j] for j < cols, zero from there to PAD_CHANNELS. */
template <class T> static __global__ void pad_kernel(const T *x, T *out, size_t rows, int cols)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t row = (size_t)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += step) {
        T values[PAD_CHANNELS];

        for (int j = 0; j < PAD_CHANNELS; j++)
            values[j] = j < cols ? x[row * cols + j] : from_float<T>(0.0f);
        for (int j = 0; j < PAD_CHANNELS; j += pack<T>::size)
            store_pack(out + row * PAD_CHANNELS + j, *(const pack<T> *)(values + j));
    }
}

/* out[row][j] = or += from[row][j] for j < cols, where a row of from has from_cols. */
template <class F, class T>
static __global__ void take_kernel(const F *from, T *out, size_t rows, int cols, int from_cols,
                                   int accumulate)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * cols; i += step) {
        size_t at = from_cols == cols ? i : i / cols * from_cols + i % cols;

        out[i] = from_float<T>(to_float(from[at]) + (accumulate ? to_float(out[i]) : 0.0f));
    }
}

static size_t aligned(size_t bytes)
{
    return (bytes + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
}

/* Where the parts of a recipe's workspace begin. */
struct layout {
    size_t x, w, result, total;
};

static struct layout layout_of(const struct request *q, const struct recipe *r)
{
    const struct ops_conv *s = &q->shape;
    bool padded = r->channels != s->c;
    size_t type = ops_type_bytes(s->type), result = ops_type_bytes(r->result_type);
    size_t image = (size_t)s->n * s->h * s->w, filter = (size_t)s->k * s->r * s->s;
    struct layout l;

    l.x = aligned(r->plan.workspace_bytes);
    l.w = l.x + (padded ? aligned(image * r->channels * type) : 0);
    l.result = l.w + (padded && q->direction == CONV_FORWARD ? aligned(filter * r->channels * type) : 0);
    l.total = l.result;
    if (r->via)
        l.total += aligned((q->direction == CONV_DATA ? image : filter) * r->channels * result);
    return l;
}

template <class T> static void pad(ops_stream stream, const void *x, void *out, size_t rows, int cols)
{
    pad_kernel<T><<<cuda_grid(rows), CUDA_BLOCK, 0, stream>>>((const T *)x, (T *)out, rows, cols);
}

/* The result from the workspace into place. */
static void take_result(ops_stream stream, const struct request *q, const struct recipe *r, const void *from)
{
    const struct ops_conv *s = &q->shape;
    bool data = q->direction == CONV_DATA;
    size_t rows = data ? (size_t)s->n * s->h * s->w : (size_t)s->k * s->r * s->s;
    unsigned grid = cuda_grid(rows * s->c);

    if (data)
        CUDA_BY_TYPE(s->type, T,
                     (take_kernel<T, T><<<grid, CUDA_BLOCK, 0, stream>>>(
                         (const T *)from, (T *)q->result, rows, s->c, r->channels, q->accumulate)));
    else
        CUDA_BY_TYPE(r->result_type, T,
                     (take_kernel<T, float><<<grid, CUDA_BLOCK, 0, stream>>>(
                         (const T *)from, (float *)q->result, rows, s->c, r->channels, q->accumulate)));
}

/* Queues the recipe; result NULL means the request's own. */
static int run_recipe(struct cuda_conv *conv, ops_stream stream, const struct request *q,
                      const struct recipe *r, void *result)
{
    const struct ops_conv *s = &q->shape;
    struct layout l = layout_of(q, r);
    const void *tensors[3] = {q->x, q->w, q->y};
    int out = q->direction == CONV_FORWARD ? 2 : q->direction == CONV_DATA ? 0 : 1;

    if (r->channels != s->c) {
        CUDA_BY_TYPE(s->type, T, pad<T>(stream, q->x, q->workspace + l.x, (size_t)s->n * s->h * s->w, s->c));
        tensors[0] = q->workspace + l.x;
        if (q->direction == CONV_FORWARD) {
            CUDA_BY_TYPE(s->type, T,
                         pad<T>(stream, q->w, q->workspace + l.w, (size_t)s->k * s->r * s->s, s->c));
            tensors[1] = q->workspace + l.w;
        }
    }
    tensors[out] = r->via ? q->workspace + l.result : result ? result : q->result;
    if (cudnnSetStream(conv->handle, stream) != CUDNN_STATUS_SUCCESS ||
        conv_plan_run(conv->handle, &r->plan, tensors[0], tensors[1], tensors[2], q->workspace) !=
            CUDNN_STATUS_SUCCESS) {
        int error = cudaGetLastError();

        return error ? error : cudaErrorUnknown;
    }
    if (r->via)
        take_result(stream, q, r, tensors[out]);
    return cudaGetLastError();
}

/* Milliseconds of the recipe, or a negative number if it does not run. Leaves the request's result computed,
 * or untouched where the recipe would add to it. */
static float time_recipe(struct cuda_conv *conv, ops_stream stream, const struct request *q,
                         const struct recipe *r, void *result, cudaEvent_t begin, cudaEvent_t end)
{
    struct request once = *q;
    float best = -1.0f;

    /* What is added to the result through the workspace would be added again and again. */
    if (r->via && q->accumulate)
        once.result = result;
    for (int i = 0; i <= REPEATS; i++) {
        float ms = 0.0f;

        cudaEventRecord(begin, stream);
        if (run_recipe(conv, stream, &once, r, result))
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
static int ways_of(const struct request *q, struct recipe *ways)
{
    const struct ops_conv *s = &q->shape;
    int padded = s->type != OPS_F32 && s->c < PAD_CHANNELS && q->direction != CONV_DATA;
    int count = 0;

    if (q->direction == CONV_FILTER) {
        ways[count++] = {{}, s->c, OPS_F32, 0, q->accumulate};
        if (padded)
            ways[count++] = {{}, PAD_CHANNELS, OPS_F32, 1, 0};
        if (q->accumulate)
            ways[count++] = {{}, s->c, OPS_F32, 1, 0};
        if (s->type != OPS_F32)
            ways[count++] = {{}, s->c, s->type, 1, 0};
        if (padded)
            ways[count++] = {{}, PAD_CHANNELS, s->type, 1, 0};
    } else {
        ways[count++] = {{}, s->c, s->type, 0, q->accumulate};
        if (q->accumulate)
            ways[count++] = {{}, s->c, s->type, 1, 0};
        if (padded)
            ways[count++] = {{}, PAD_CHANNELS, s->type, 0, 0};
    }
    return count;
}

/* The plans for one way, of which the first fits the workspace. */
static int plans_of(struct cuda_conv *conv, const struct request *q, const struct recipe *way, int most,
                    struct conv_plan *plans)
{
    struct layout l = layout_of(q, way);
    struct conv_plan_request request = {q->direction, q->shape, way->result_type, way->beta, 0};

    if (l.total > q->workspace_bytes)
        return 0;
    request.shape.c = way->channels;
    request.workspace_bytes = (q->workspace_bytes - l.total) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
    return conv_plan_find(conv->handle, &request, most, plans);
}

/* Bytes of the result as the request wants it. */
static size_t result_bytes(const struct request *q)
{
    const struct ops_conv *s = &q->shape;

    return q->direction == CONV_DATA ? (size_t)s->n * s->h * s->w * s->c * ops_type_bytes(s->type)
                                     : (size_t)s->k * s->r * s->s * s->c * sizeof(float);
}

/* Tries the plans of one way; keeps the best so far in *best and *best_ms. */
static void try_way(struct cuda_conv *conv, ops_stream stream, const struct request *q,
                    const struct recipe *way, struct recipe *best, float *best_ms, cudaEvent_t begin,
                    cudaEvent_t end)
{
    struct conv_plan plans[PLANS];
    int count = plans_of(conv, q, way, PLANS, plans);

    for (int i = 0; i < count; i++) {
        struct recipe candidate = *way;
        void *result = NULL;
        size_t used;
        float ms;

        candidate.plan = plans[i];
        used = layout_of(q, &candidate).total;
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

static void choose(struct cuda_conv *conv, ops_stream stream, const struct request *q, struct recipe *best)
{
    struct recipe ways[6];
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
static const struct recipe *recipe_of(struct cuda_conv *conv, ops_stream stream, const struct request *q)
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

static int run(struct cuda_ops *ops, ops_stream stream, struct request *q)
{
    uintptr_t unaligned = (uintptr_t)q->x | (uintptr_t)q->w | (uintptr_t)q->y | (uintptr_t)q->result;
    size_t skip = (WORKSPACE_ALIGNMENT - (uintptr_t)q->workspace % WORKSPACE_ALIGNMENT) % WORKSPACE_ALIGNMENT;
    const struct recipe *recipe = NULL;

    if (q->workspace && q->workspace_bytes > skip) {
        q->workspace += skip;
        q->workspace_bytes -= skip;
    } else {
        q->workspace_bytes = 0;
    }
    if (unaligned % CUDA_PACK_BYTES == 0 && ops->conv && ready(ops->conv))
        recipe = recipe_of(ops->conv, stream, q);
    /* A plan that cuDNN made and then does not run has written nothing. */
    if (!recipe || !recipe->plan.plan || run_recipe(ops->conv, stream, q, recipe, NULL) != 0)
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

static int run(struct cuda_ops *ops, ops_stream stream, struct request *q)
{
    (void)ops;
    return conv_direct(stream, q->direction, &q->shape, q->x, q->w, q->y, q->result, q->accumulate);
}

#endif

int cuda_conv_forward(struct cuda_ops *ops, ops_stream stream, const struct op_conv_forward *args)
{
    struct request q = {
        CONV_FORWARD,         args->shape, args->x, args->w, args->y, args->y, 0, (char *)args->workspace,
        args->workspace_bytes};

    return args->shape.n > 0 ? run(ops, stream, &q) : OPS_OK;
}

int cuda_conv_backward_data(struct cuda_ops *ops, ops_stream stream, const struct op_conv_backward_data *args)
{
    struct request q = {CONV_DATA,
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
    struct request q = {CONV_FILTER,
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
