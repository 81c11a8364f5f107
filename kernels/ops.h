/* The table of operations that a model is written against, so that the same training code runs on a GPU and
 * on simgpu. Each operation is one structure of arguments, one CPU reference and one CUDA implementation, in
 * files of the same name (NAME.c, NAME.cu). To add one, add a line to OPS_LIST, a structure here and the two
 * functions; both tables and the job queue are generated from the list.
 *
 * Contract of every operation: it is queued on the stream and runs in stream order; pointers are device
 * pointers; matrices are dense and row-major, images are [n][h][w][c]; the arguments are copied before the
 * call returns. `type` is the type of activations and weight copies (void pointers); sums are computed in
 * float for every type, and what is declared float is always float: statistics, losses, gradients of
 * parameters, master weights. With `accumulate` the result is added to what the output holds; without, it
 * replaces that. Results do not depend on scheduling: the same inputs give the same bits on the same device.
 *
 * Returns 0 or the CUDA runtime's error number. Operations never allocate device memory, and unless
 * ops->tune is set they never wait for the device or choose an algorithm by a measurement. An operation with
 * a `workspace` gives the right result for any size of it, even 0; with ops->workspace_bytes it is fastest.
 */
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The same type as cudaStream_t and CUstream, without their headers. */
typedef struct CUstream_st *ops_stream;

/* Error numbers that the tables themselves return; they equal cudaErrorInvalidValue and
 * cudaErrorMemoryAllocation. */
enum ops_status { OPS_OK = 0, OPS_INVALID = 1, OPS_OUT_OF_MEMORY = 2 };

enum ops_type { OPS_F32, OPS_BF16, OPS_F16 };
enum ops_act { OPS_ACT_NONE, OPS_ACT_RELU, OPS_ACT_GELU /* the tanh form */ };

static inline size_t ops_type_bytes(enum ops_type type)
{
    return type == OPS_F32 ? 4 : 2;
}

/* X(name): every operation, once. */
#define OPS_LIST(X)                                                                                          \
    X(fill)                                                                                                  \
    X(cast)                                                                                                  \
    X(add)                                                                                                   \
    X(gemm)                                                                                                  \
    X(bias_act_forward)                                                                                      \
    X(bias_act_backward)                                                                                     \
    X(dropout)                                                                                               \
    X(layernorm_forward)                                                                                     \
    X(layernorm_backward)                                                                                    \
    X(embedding_forward)                                                                                     \
    X(embedding_backward)                                                                                    \
    X(attention_forward)                                                                                     \
    X(attention_backward)                                                                                    \
    X(softmax_xent_forward)                                                                                  \
    X(softmax_xent_backward)                                                                                 \
    X(mse_forward)                                                                                           \
    X(mse_backward)                                                                                          \
    X(evaluate)                                                                                              \
    X(conv_forward)                                                                                          \
    X(conv_backward_data)                                                                                    \
    X(conv_backward_filter)                                                                                  \
    X(batchnorm_forward)                                                                                     \
    X(batchnorm_backward)                                                                                    \
    X(maxpool_forward)                                                                                       \
    X(maxpool_backward)                                                                                      \
    X(avgpool_forward)                                                                                       \
    X(avgpool_backward)                                                                                      \
    X(upsample_forward)                                                                                      \
    X(upsample_backward)                                                                                     \
    X(channels_copy)                                                                                         \
    X(image_fit)                                                                                             \
    X(image_prepare)                                                                                         \
    X(grad_check)                                                                                            \
    X(step_begin)                                                                                            \
    X(sgd)                                                                                                   \
    X(adamw)                                                                                                 \
    X(average)                                                                                               \
    X(prune)                                                                                                 \
    X(quantize)                                                                                              \
    X(dequantize)

/* ---- elements ---- */

/* out[i] = value for i < count. */
struct op_fill {
    void *out;
    enum ops_type type;
    size_t count;
    float value;
};

/* out[i] = x[i], from one type to another. */
struct op_cast {
    const void *x;
    void *out;
    enum ops_type x_type, out_type;
    size_t count;
};

/* out[i] = a[i] + b[i]. out may be a or b. */
struct op_add {
    const void *a;
    const void *b;
    void *out;
    enum ops_type type;
    size_t count;
};

/* y[i] = x[i] / (1 - rate) with probability 1 - rate, else 0. The choice depends on seed, *step and i only,
 * so that the same call with dy as x is the backward pass. step may be NULL (0). y may be x. */
struct op_dropout {
    const void *x;
    void *y;
    enum ops_type type;
    size_t count;
    float rate;
    uint64_t seed;
    const uint64_t *step;
};

/* ---- matrix products and dense layers ---- */

/* c[m][n] = act(alpha * op(a) op(b) + beta * c + bias), where op(a) is m x k and op(b) is k x n. A transposed
 * operand is stored as its transpose: a is [k][m] if trans_a, b is [n][k] if trans_b. With beta 0, c is not
 * read. a, b and bias[n] (or NULL) are of `type`, c of `c_type` (the same, or OPS_F32). `aux` (or NULL, of
 * c_type) receives the argument of act. There are `batch` products, whose operands are stride_a, stride_b and
 * stride_c elements apart; bias is the same for all. tf32 allows OPS_F32 operands to be rounded to 10 bits of
 * mantissa. */
struct op_gemm {
    const void *a;
    const void *b;
    void *c;
    const void *bias;
    void *aux;
    enum ops_type type, c_type;
    enum ops_act act;
    int m, n, k;
    int trans_a, trans_b;
    float alpha, beta;
    int batch; /* 0 counts as 1 */
    size_t stride_a, stride_b, stride_c;
    int tf32;
    void *workspace;
    size_t workspace_bytes;
};

/* y[rows][cols] = act(x[rows][cols] + bias[cols]); bias is of `type`, or NULL. y may be x unless act is gelu.
 */
struct op_bias_act_forward {
    const void *x;
    const void *bias;
    void *y;
    enum ops_type type;
    enum ops_act act;
    int rows, cols;
};

/* dx = dy * act'; dbias[cols] = the column sums of dx (dbias may be NULL). `saved` is the forward result for
 * relu, x + bias for gelu, and is not read without an activation. dx may be dy. */
struct op_bias_act_backward {
    const void *dy;
    const void *saved;
    void *dx;
    float *dbias;
    enum ops_type type;
    enum ops_act act;
    int rows, cols;
    int accumulate;
    void *workspace;
    size_t workspace_bytes;
};

/* ---- transformers ---- */

/* sum = x + residual; y = (sum - mean) * rstd * gamma + beta, over each row. If residual and sum are NULL, x
 * itself is the sum. */
struct op_layernorm_forward {
    const void *x;
    const void *residual;
    void *sum;
    void *y;
    const float *gamma;
    const float *beta;
    float *mean; /* [rows] */
    float *rstd; /* [rows] */
    enum ops_type type;
    int rows, cols;
    float epsilon;
};

/* dx = the gradient of the norm, plus dsum (or NULL), the gradient that reaches the sum through the residual
 * branch. x is the sum of the forward pass. dx may be dy or dsum. */
struct op_layernorm_backward {
    const void *dy;
    const void *dsum;
    const void *x;
    void *dx;
    const float *gamma;
    const float *mean;
    const float *rstd;
    float *dgamma;
    float *dbeta;
    enum ops_type type;
    int rows, cols;
    int accumulate; /* of dgamma and dbeta */
    void *workspace;
    size_t workspace_bytes;
};

/* out[row][cols] = tokens_table[tokens[row]][cols] + positions_table[row % length][cols] (positions_table may
 * be NULL). Tokens are in [0, vocabulary). */
struct op_embedding_forward {
    const int32_t *tokens;
    const void *tokens_table;
    const void *positions_table;
    void *out;
    enum ops_type type;
    int rows, cols, length, vocabulary;
};

struct op_embedding_backward {
    const int32_t *tokens;
    const void *dout;
    float *dtokens_table;    /* [vocabulary][cols] */
    float *dpositions_table; /* [length][cols], or NULL */
    enum ops_type type;
    int rows, cols, length, vocabulary;
    int accumulate;
    void *workspace;
    size_t workspace_bytes;
};

/* out[b][t][h][d] = softmax(q k' / sqrt(dim)) v of each head; qkv is [batch][length][3][heads][dim]. With
 * causal, a query sees only its own position and those before it. lse[batch][heads][length] is for the
 * backward pass. dim is at most 128. */
struct op_attention_forward {
    const void *qkv;
    void *out;
    float *lse;
    enum ops_type type;
    int batch, length, heads, dim;
    int causal;
};

struct op_attention_backward {
    const void *qkv;
    const void *out;
    const void *dout;
    const float *lse;
    void *dqkv;
    float *delta; /* scratch, [batch][heads][length] */
    enum ops_type type;
    int batch, length, heads, dim;
    int causal;
};

/* ---- losses ---- */

/* losses[row] = -log softmax(logits[row])[labels[row]], lse[row] = log of the sum of the exponentials. Labels
 * are in [0, cols); for a negative label, loss and gradient are 0. */
struct op_softmax_xent_forward {
    const void *logits;
    const int32_t *labels;
    float *losses;
    float *lse;
    enum ops_type type;
    int rows, cols;
};

/* dlogits = scale * *scale_by * (softmax(logits) - onehot(labels)); scale is 1 / rows for the mean loss;
 * scale_by (or NULL: 1) is the loss scale in device memory. dlogits may be logits. */
struct op_softmax_xent_backward {
    const void *logits;
    const int32_t *labels;
    const float *lse;
    void *dlogits;
    enum ops_type type;
    int rows, cols;
    float scale;
    const float *scale_by;
};

/* losses[row] = the mean of the squared differences over cols. */
struct op_mse_forward {
    const void *x;
    const void *target;
    float *losses;
    enum ops_type type;
    int rows, cols;
};

/* dx = scale * *scale_by * 2 / cols * (x - target). dx may be x. */
struct op_mse_backward {
    const void *x;
    const void *target;
    void *dx;
    enum ops_type type;
    int rows, cols;
    float scale;
    const float *scale_by;
};

/* total[0] += the sum of losses; if logits is given, total[1] += the rows whose largest logit (the first of
 * several) is the label's; total[2] += rows. Rows with a negative label do not count. labels may be NULL. */
struct op_evaluate {
    const float *losses;
    const void *logits;
    const int32_t *labels;
    float *total;
    enum ops_type type;
    int rows, cols;
};

/* ---- images ---- */

/* y[n][oh][ow][k] = sum over r, s, c of x[n][h][w][c] * w[k][r][s][c]; oh = (h + 2 pad - r) / stride + 1. */
struct ops_conv {
    int n, h, w, c; /* input */
    int k, r, s;    /* filters */
    int stride, pad;
    enum ops_type type;
    int tf32;
};

struct op_conv_forward {
    struct ops_conv shape;
    const void *x;
    const void *w;
    void *y;
    void *workspace;
    size_t workspace_bytes;
};

struct op_conv_backward_data {
    struct ops_conv shape;
    const void *dy;
    const void *w;
    void *dx;
    int accumulate; /* dx += */
    void *workspace;
    size_t workspace_bytes;
};

struct op_conv_backward_filter {
    struct ops_conv shape;
    const void *x;
    const void *dy;
    float *dw;
    int accumulate;
    void *workspace;
    size_t workspace_bytes;
};

/* y = act(gamma * (x - mean) * rstd + beta + residual); residual may be NULL, act is none or relu. In
 * training, mean and variance are computed over the rows (n * h * w) of each column (channel) and stored in
 * mean and rstd, and running = (1 - momentum) * running + momentum * the batch's, with the unbiased variance.
 * Otherwise the running statistics are used and only y is written.
 * mask (or NULL) receives a bit for each element of y, in order, lowest bit first: 1 if it is above 0. It
 * needs a 16-bit type, cols that are a multiple of 8, and addresses that are multiples of 16. */
struct op_batchnorm_forward {
    const void *x;
    const void *residual;
    void *y;
    const float *gamma;
    const float *beta;
    float *running_mean;
    float *running_variance;
    float *mean; /* [cols] */
    float *rstd; /* [cols] */
    enum ops_type type;
    enum ops_act act;
    int rows, cols;
    float epsilon, momentum;
    int training;
    void *workspace;
    size_t workspace_bytes;
    uint8_t *mask;
};

/* y is the forward result (read for relu only). dresidual (or NULL) receives dy * act'. dx may be dy. beta
 * (or NULL) may be given if the forward pass had no residual: the mask of relu is then computed from x, and y
 * is not read. mask (or NULL) is the one of the forward pass, and may be read in place of y. */
struct op_batchnorm_backward {
    const void *dy;
    const void *x;
    const void *y;
    void *dx;
    void *dresidual;
    const float *gamma;
    const float *beta;
    const float *mean;
    const float *rstd;
    float *dgamma;
    float *dbeta;
    enum ops_type type;
    enum ops_act act;
    int rows, cols;
    int accumulate; /* of dgamma and dbeta */
    void *workspace;
    size_t workspace_bytes;
    const uint8_t *mask;
};

/* y[n][oh][ow][c] = the largest value of a window; where[...] = its index in the window, for the backward
 * pass. Padding is never chosen. size * size is at most 255. */
struct op_maxpool_forward {
    const void *x;
    void *y;
    uint8_t *where;
    enum ops_type type;
    int n, h, w, c;
    int size, stride, pad;
};

struct op_maxpool_backward {
    const void *dy;
    const uint8_t *where;
    void *dx;
    enum ops_type type;
    int n, h, w, c;
    int size, stride, pad;
};

/* y[n][c] = the mean over h and w; backward: dx = dy / (h * w). */
struct op_avgpool_forward {
    const void *x;
    void *y;
    enum ops_type type;
    int n, h, w, c;
};

struct op_avgpool_backward {
    const void *dy;
    void *dx;
    enum ops_type type;
    int n, h, w, c;
};

/* y[n][2h][2w][c] = each pixel of x four times; backward: dx = the sum of the four. n, h, w, c are the shape
 * of x. */
struct op_upsample_forward {
    const void *x;
    void *y;
    enum ops_type type;
    int n, h, w, c;
};

struct op_upsample_backward {
    const void *dy;
    void *dx;
    enum ops_type type;
    int n, h, w, c;
};

/* out[row][out_from + i] = x[row][x_from + i] for i < cols: concatenates the channels of two images, or
 * splits them. */
struct op_channels_copy {
    const void *x;
    void *out;
    enum ops_type type;
    size_t rows;
    int cols;
    int x_cols, x_from;
    int out_cols, out_from;
    int accumulate;
};

/* A decoded picture of h x w pixels in device memory, without gaps between rows, and the size to shrink it
 * to, which is at most its own. x is NULL if there is no picture. */
struct ops_picture {
    const uint8_t *x;
    int32_t h, w, fit_h, fit_w;
};

/* Shrinks pictures [h][w][c] of any size into out[n][h][w][c], each into the top left of out[i]: a pixel is
 * the rounded mean of the area that it covers, in integer arithmetic. The rest of out[i] repeats the nearest
 * pixel. Without a picture, out[i] is not written. */
struct op_image_fit {
    const struct ops_picture *pictures;
    uint8_t *out;
    int n, h, w, c;
};

/* Converts bytes [n][h][w][c] to normalized images [n][oh][ow][c] of `type`. Image i is cropped to the
 * rectangle crops[i] (NULL: not cropped) and scaled to oh x ow (bilinear, pixel centres aligned, edges
 * repeated), mirrored if `mirror`, and normalized to (byte / 255 - mean[channel]) / deviation[channel]. c is
 * at most 4. */
struct ops_crop {
    float top, left, height, width;
    int32_t mirror;
};

struct op_image_prepare {
    const uint8_t *x;
    const struct ops_crop *crops;
    void *out;
    enum ops_type type;
    int n, h, w, c, oh, ow;
    float mean[4], deviation[4];
};

/* ---- the update ---- */

/* One parameter (a tensor of weights). They are in an array in device memory, so that one call updates all.
 */
struct ops_param {
    float *weight;
    float *first;  /* momentum, or Adam's first moment */
    float *second; /* Adam's second moment, or NULL */
    float *grad;
    void *copy; /* the weight in copy_type, which the model reads; or NULL */
    uint64_t count;
    float decay;        /* factor of the weight decay: 1, or 0 for biases and norms */
    int32_t keep_zeros; /* not 0: a weight that is 0 stays 0, as after pruning */
};

/* State that changes from step to step, in device memory, so that a captured step can be replayed. The host
 * writes rate, and sets scale to the initial loss scale (1 without one); operations write the rest. */
struct ops_scalars {
    uint64_t step;                  /* updates done */
    float rate;                     /* learning rate of this step */
    float scale;                    /* loss scale: a factor in all gradients */
    float norm;                     /* of all gradients, without the scale; set by grad_check */
    float multiplier;               /* factor for gradients in this update; set by step_begin */
    float found_bad;                /* 1: a gradient is not finite, so this update is skipped */
    float good_steps;               /* steps since scale last changed */
    float skipped;                  /* updates skipped so far */
    float correction1, correction2; /* 1 - beta^step */
    float reserved;
    /* step + skipped of the first update whose loss or gradients were not finite; 0: none */
    uint64_t bad_step;
};

/* Sets scalars->norm to the norm of all gradients / scale, and scalars->found_bad. */
struct op_grad_check {
    const struct ops_param *params;
    struct ops_scalars *scalars;
    int count;
    uint64_t largest; /* the largest count of one parameter */
    void *workspace;
    size_t workspace_bytes;
};

/* Decides whether this update is done, and with which multiplier: 1 / scale, or less if the norm is above
 * clip (0: no clipping). An update with a bad gradient is skipped; with dynamic, the loss scale is then
 * halved, and doubled after `growth` good steps. Also advances step and sets the corrections. `loss` (or
 * NULL) is the sum of the losses. Sets bad_step if the loss is not finite, or if a gradient is bad and a
 * smaller loss scale would not help. With skip_loss, a loss that is not finite also skips the update. */
struct op_step_begin {
    struct ops_scalars *scalars;
    float clip;
    int dynamic;
    int growth;
    float beta1, beta2;
    const float *loss;
    int skip_loss;
};

/* g = grad * multiplier + decay * weight; first = momentum * first + g; weight -= rate * first; copy =
 * weight. Sets scalars->bad_step if a gradient is not finite. */
struct op_sgd {
    const struct ops_param *params;
    struct ops_scalars *scalars;
    int count;
    uint64_t largest;
    enum ops_type copy_type;
    float momentum, decay;
};

/* AdamW: g = grad * multiplier; updates both moments; weight -= rate * (corrected first / (sqrt(corrected
 * second) + epsilon) + decay * weight); copy = weight. With decoupled 0 it is Adam: decay * weight is added
 * to g instead. Sets bad_step as sgd does. */
struct op_adamw {
    const struct ops_param *params;
    struct ops_scalars *scalars;
    int count;
    uint64_t largest;
    enum ops_type copy_type;
    float beta1, beta2, epsilon, decay;
    int decoupled;
};

/* For replicas on one card: sets every parts[p][i] to the mean over p, summed in a fixed order. The array
 * parts is in host memory; count is at most OPS_PARTS. */
#define OPS_PARTS 16
struct op_average {
    float *parts[OPS_PARTS];
    int count;
    size_t elements;
};

/* ---- smaller models ---- */

/* Sets to 0 every |x[i]| < threshold. */
struct op_prune {
    float *x;
    size_t count;
    float threshold;
};

/* Stores rows of weights as bytes: scale[row] = max |x| / 127, q = x / scale, rounded to nearest, halves to
 * even. dequantize converts them back, to `type`. */
struct op_quantize {
    const float *x;
    int8_t *q;
    float *scale;
    int rows, cols;
};

struct op_dequantize {
    const int8_t *q;
    const float *scale;
    void *x;
    enum ops_type type;
    int rows, cols;
};

struct ops;

#define OPS_DECLARE_TYPE(name)                                                                               \
    typedef int (*ops_##name##_fn)(struct ops * ops, ops_stream stream, const struct op_##name *args);
OPS_LIST(OPS_DECLARE_TYPE)
#undef OPS_DECLARE_TYPE

struct ops {
    const char *name;
    size_t workspace_bytes;
    void (*close)(struct ops *ops);
#define OPS_DECLARE_ENTRY(name) ops_##name##_fn name;
    OPS_LIST(OPS_DECLARE_ENTRY)
#undef OPS_DECLARE_ENTRY
    /* Set by the user, at first 0. Otherwise the CUDA table measures which algorithm computes a product
     * fastest, the first time that a shape is computed with beta 0 and outside of a capture. Two tables may
     * choose differently, and give results that differ in the last bits. */
    int tune;
};

/* The CUDA table is in a shared object of its own (libtrain_cuda.so), loaded only where there is a GPU. This
 * is the only name that it exports. table_size is sizeof(struct ops) of the caller: an object built for
 * another table is refused. A table belongs to the device that is current at open; each thread that submits
 * work needs its own. */
#define OPS_CUDA_OPEN_NAME "ops_cuda_open"
typedef int (*ops_cuda_open_fn)(size_t table_size, struct ops **out);

#ifdef __cplusplus
}
#endif
#endif
