/* The table of operations that a model is written against, so that the same training code runs on a GPU and
 * on simgpu. Each operation is one structure of arguments, one CPU reference (NAME.c) and one CUDA kernel
 * (NAME.cu). To add one: a line in OPS_LIST, a structure here, the two functions; both tables and the job
 * queue follow.
 *
 * Contract of every operation: it is queued on the stream and runs in stream order; pointers are device
 * pointers; matrices are dense and row-major; the arguments are copied before the call returns. Returns 0 or
 * the CUDA runtime's error number. Operations must never allocate device memory and never wait for the
 * device. */
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

/* X(name): every operation, once. */
#define OPS_LIST(X)                                                                                          \
    X(fill)                                                                                                  \
    X(gemm)                                                                                                  \
    X(bias_relu_forward)                                                                                     \
    X(bias_relu_backward)                                                                                    \
    X(softmax_xent_forward)                                                                                  \
    X(softmax_xent_backward)                                                                                 \
    X(sgd)

/* out[i] = value for i < count. */
struct op_fill {
    float *out;
    size_t count;
    float value;
};

/* c[m][n] = alpha * op(a) op(b) + beta * c, where op(a) is m x k and op(b) is k x n. A transposed operand is
 * stored as its transpose: a is [k][m] if trans_a, b is [n][k] if trans_b. With beta 0, c is not read. */
struct op_gemm {
    const float *a;
    const float *b;
    float *c;
    int m, n, k;
    int trans_a, trans_b;
    float alpha, beta;
};

/* y[rows][cols] = act(x[rows][cols] + bias[cols]); act is max(0, .) if relu, else the identity. y may be x.
 */
struct op_bias_relu_forward {
    const float *x;
    const float *bias;
    float *y;
    int rows, cols;
    int relu;
};

/* dx = dy where y > 0 or without relu, else 0; dbias[cols] = the column sums of dx. y is the forward result
 * and is not read without relu. dx may be dy. */
struct op_bias_relu_backward {
    const float *dy;
    const float *y;
    float *dx;
    float *dbias;
    int rows, cols;
    int relu;
};

/* probs[rows][cols] = softmax of each row of logits; losses[rows] = -log probs[row][labels[row]].
 * Every label is in [0, cols). probs may be logits. */
struct op_softmax_xent_forward {
    const float *logits;
    const int32_t *labels;
    float *probs;
    float *losses;
    int rows, cols;
};

/* dlogits[rows][cols] = scale * (probs - onehot(labels)); scale is 1 / rows for the mean loss. dlogits may be
 * probs. */
struct op_softmax_xent_backward {
    const float *probs;
    const int32_t *labels;
    float *dlogits;
    int rows, cols;
    float scale;
};

/* velocity = momentum * velocity + grad; weight -= rate * velocity. */
struct op_sgd {
    float *weight;
    float *velocity;
    const float *grad;
    size_t count;
    float rate, momentum;
};

struct ops;

#define OPS_DECLARE_TYPE(name)                                                                               \
    typedef int (*ops_##name##_fn)(struct ops * ops, ops_stream stream, const struct op_##name *args);
OPS_LIST(OPS_DECLARE_TYPE)
#undef OPS_DECLARE_TYPE

struct ops {
    const char *name;
    void (*close)(struct ops *ops);
#define OPS_DECLARE_ENTRY(name) ops_##name##_fn name;
    OPS_LIST(OPS_DECLARE_ENTRY)
#undef OPS_DECLARE_ENTRY
};

/* The CUDA table lives in a shared object of its own (libtrain_cuda.so), loaded only where there is a GPU.
 * This is the one name that it exports. table_size is sizeof(struct ops) of the caller: a stale object is
 * refused. */
#define OPS_CUDA_OPEN_NAME "ops_cuda_open"
typedef int (*ops_cuda_open_fn)(size_t table_size, struct ops **out);

#ifdef __cplusplus
}
#endif
#endif
