/* The table of operations that a model is written against, so that the same training code runs on a GPU and
 * on simgpu. Each operation is one structure of arguments, one CPU reference and one CUDA implementation, in
 * files of the same name (NAME.c, NAME.cu). To add one: a line in OPS_LIST, a structure here, the two
 * functions; both tables and the job queue follow.
 *
 * Contract of every operation: it is queued on the stream and runs in stream order; pointers are device
 * pointers; matrices are dense and row-major, images are [n][h][w][c]; the arguments are copied before the
 * call returns. `type` is how activations and weight copies are stored (void pointers); sums are kept in
 * float whatever the type, and what is declared float is always float: statistics, losses, gradients of
 * parameters, master weights. Where a structure has `accumulate`, the result is added to what is there,
 * otherwise it replaces it. Results do not depend on scheduling: the same inputs give the same bits on the
 * same device.
 *
 * Returns 0 or the CUDA runtime's error number. Operations never allocate device memory, never wait for the
 * device and never choose an algorithm by a measurement. Where a structure has `workspace`, any size is
 * enough for a right result, 0 too; ops->workspace_bytes is what is worth giving. */
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The same type as cudaStream_t and CUstream, without their headers. */
typedef struct CUstream_st *ops_stream;

/* The codes of the CUDA runtime that the tables themselves return (cudaErrorInvalidValue,
 * cudaErrorMemoryAllocation). */
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

/* y[i] = x[i] / (1 - rate) with probability 1 - rate, else 0. The choice follows from seed, *step and i
 * alone, so the same call with dy in the place of x is the backward pass. step may be NULL (0). y may be x.
 */
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
 * c_type) receives what goes into act. batch products, each the given number of elements after the one
 * before; bias is common to them. tf32 allows OPS_F32 operands to be rounded to 10 bits of mantissa. */
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
 * relu, x + bias for gelu, and not read without an activation. dx may be dy. Needs no workspace, but is
 * faster with one. */
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

/* sum = x + residual (both NULL: sum is x); y = (sum - mean) * rstd * gamma + beta for each row of cols. */
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

/* dx = the gradient of the norm, plus dsum where that is given (what reaches the sum by the other way). x is
 * the forward pass's sum. dx may be dy or dsum. */
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

/* out[b][t][h][d] = softmax(q k' / sqrt(dim)) v of each head; qkv is [batch][length][3][heads][dim]. causal:
 * a row sees itself and what is before it. lse[batch][heads][length] is for the backward pass. dim is at most
 * 128. */
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
 * are in [0, cols); a negative label is left out: its loss is 0. */
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
 * training, mean and variance are those of the rows (n * h * w) of each column (channel), are stored in mean
 * and rstd, and running = (1 - momentum) * running + momentum * batch's (unbiased variance); otherwise the
 * running ones are used and nothing else is written. */
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
};

/* y is the forward result (read for relu only). dresidual (or NULL) receives dy * act'. dx may be dy. beta
 * (or NULL) may be given where the forward pass had no residual: whether relu let an element through then
 * follows from x, and y need not be read. */
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
};

/* y[n][oh][ow][c] = the largest of a window; where[...] = its place in the window, for the backward pass.
 * What is padded never wins. size * size is at most 255. */
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

/* y[n][c] = the mean over h and w; and back: dx = dy / (h * w). */
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

/* y[n][2h][2w][c]: each pixel four times; and back: dx = the sum of the four. n, h, w, c are x's. */
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

/* out[row][out_from + i] = x[row][x_from + i] for i < cols: puts two images' channels together and takes them
 * apart. accumulate adds. */
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

/* A decoded picture of h x w pixels in device memory, rows without gaps, and the size to which it is to
 * shrink: at most its own. x NULL: there is none. */
struct ops_picture {
    const uint8_t *x;
    int32_t h, w, fit_h, fit_w;
};

/* Shrinks pictures [h][w][c] of any size into out[n][h][w][c], each into the top left of its place: a pixel
 * is the mean over the area that it covers, rounded, in integers. The rest of the place repeats the nearest
 * pixel. Where there is no picture, its place is not touched. */
struct op_image_fit {
    const struct ops_picture *pictures;
    uint8_t *out;
    int n, h, w, c;
};

/* From bytes [n][h][w][c] to a normalized picture [n][oh][ow][c] of `type`: sample i is cut from the
 * rectangle crops[i] of its source (bilinear, pixel centres aligned, edges repeated), mirrored if `mirror`,
 * and becomes (byte / 255 - mean[channel]) / deviation[channel]. c is at most 4. crops NULL: the whole
 * picture. */
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

/* One parameter, in an array in device memory: all of them are updated by one call. */
struct ops_param {
    float *weight;
    float *first;  /* momentum, or Adam's first moment */
    float *second; /* Adam's second moment, or NULL */
    float *grad;
    void *copy; /* the weight as the model reads it, in copy_type; or NULL */
    uint64_t count;
    float decay;        /* factor of the weight decay: 1, or 0 for biases and norms */
    int32_t keep_zeros; /* not 0: a weight that is 0 stays 0, as after pruning */
};

/* What changes from step to step, in device memory, so that a captured step can be replayed. The host writes
 * rate; the rest belongs to the operations. scale starts at the loss scale (1 without one). */
struct ops_scalars {
    uint64_t step;                  /* updates done */
    float rate;                     /* learning rate of this step */
    float scale;                    /* loss scale: gradients come multiplied by it */
    float norm;                     /* of all gradients, without the scale, by grad_check */
    float multiplier;               /* what step_begin found: gradients are multiplied by this */
    float found_bad;                /* 1: a gradient is not finite, and the update is left out */
    float good_steps;               /* since scale last changed */
    float skipped;                  /* updates left out so far */
    float correction1, correction2; /* 1 - beta^step */
    float reserved;
    uint64_t
        bad_step; /* step + skipped of the first update whose loss or gradients were not finite; 0: none */
};

/* scalars->norm = the norm of all gradients / scale, scalars->found_bad. */
struct op_grad_check {
    const struct ops_param *params;
    struct ops_scalars *scalars;
    int count;
    uint64_t largest; /* the largest count of one parameter */
    void *workspace;
    size_t workspace_bytes;
};

/* Decides about this update: multiplier = 1 / scale, less if the norm is above clip (0: no clipping), or the
 * update is left out. dynamic: the loss scale halves when a gradient is bad and doubles after `growth` good
 * steps. Then step and the corrections. `loss` (or NULL) is the sum of the losses: if it is not finite, or a
 * gradient is bad that no smaller loss scale would mend, bad_step is set; skip_loss also leaves the update
 * out for the loss alone. */
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
 * weight. Sets scalars->bad_step if a gradient is not finite, which costs nothing here. */
struct op_sgd {
    const struct ops_param *params;
    struct ops_scalars *scalars;
    int count;
    uint64_t largest;
    enum ops_type copy_type;
    float momentum, decay;
};

/* AdamW: g = grad * multiplier; the moments; weight -= rate * (corrected first / (sqrt(corrected second) +
 * epsilon) + decay * weight); copy = weight. decoupled 0: Adam, with the decay added to g. Sets bad_step as
 * sgd does. */
struct op_adamw {
    const struct ops_param *params;
    struct ops_scalars *scalars;
    int count;
    uint64_t largest;
    enum ops_type copy_type;
    float beta1, beta2, epsilon, decay;
    int decoupled;
};

/* Replicas on one card: every parts[p][i] = the mean over p, in a fixed order. parts is host memory, at most
 * OPS_PARTS. */
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

/* Rows of weights as bytes: scale[row] = max |x| / 127, q = round(x / scale) to nearest, halves to even; and
 * back into `type`. */
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
};

/* The CUDA table lives in a shared object of its own (libtrain_cuda.so), loaded only where there is a GPU.
 * This is the one name that it exports. table_size is sizeof(struct ops) of the caller: a stale object is
 * refused. A table belongs to the device that is current at open; one table per thread that submits work. */
#define OPS_CUDA_OPEN_NAME "ops_cuda_open"
typedef int (*ops_cuda_open_fn)(size_t table_size, struct ops **out);

#ifdef __cplusplus
}
#endif
#endif
