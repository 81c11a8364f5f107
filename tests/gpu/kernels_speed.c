/* How fast the operations of one training step are: GPT-2-small in bf16, batch 8 x 1024. Prints a line for
 * each: time in microseconds, TFLOP/s or GB/s, how often a step has it, and the sum. No test: it asserts
 * nothing. Each operation runs alone and repeatedly, so small ones find their operands in the cache. */
#include "kernels_support.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    BATCH = 8,
    LENGTH = 1024,
    HEADS = 12,
    DIM = 64,
    WIDTH = 768,
    LAYERS = 12,
    VOCABULARY = 50304,
    REPEATS = 20
};
enum { ROWS = BATCH * LENGTH };

static void *workspace;
static double step_us;

static void *device(size_t bytes)
{
    void *p = NULL;

    if (cudaMalloc(&p, bytes) || cudaMemset(p, 0, bytes))
        exit(EXIT_FAILURE);
    return p;
}

static void *random_halves(size_t count, float scale)
{
    uint16_t *host = malloc(count * 2);
    void *p = device(count * 2);

    if (!host)
        exit(EXIT_FAILURE);
    for (size_t i = 0; i < count; i++)
        host[i] = types_to_bf16(kernels_uniform() * scale);
    kernels_upload(p, host, count * 2);
    free(host);
    return p;
}

static void *random_floats(size_t count, float scale)
{
    float *host = malloc(count * sizeof(*host));
    void *p = device(count * sizeof(*host));

    if (!host)
        exit(EXIT_FAILURE);
    for (size_t i = 0; i < count; i++)
        host[i] = kernels_uniform() * scale;
    cudaMemcpy(p, host, count * sizeof(*host), cudaMemcpyHostToDevice);
    free(host);
    return p;
}

static cudaEvent_t begin, end;

#define TIME(label, times, flop, bytes, name, ...)                                                           \
    do {                                                                                                     \
        struct op_##name args_ = {__VA_ARGS__};                                                              \
        float ms_ = 0.0f;                                                                                    \
        for (int i_ = 0; i_ < 3 + REPEATS; i_++) {                                                           \
            if (i_ == 3)                                                                                     \
                cudaEventRecord(begin, kernels_stream);                                                      \
            if (kernels_ops->name(kernels_ops, kernels_stream, &args_))                                      \
                printf("%s failed\n", label);                                                                \
        }                                                                                                    \
        cudaEventRecord(end, kernels_stream);                                                                \
        if (cudaEventSynchronize(end))                                                                       \
            printf("%s failed\n", label);                                                                    \
        cudaEventElapsedTime(&ms_, begin, end);                                                              \
        report(label, times, flop, bytes, (double)ms_ * 1e3 / REPEATS);                                      \
    } while (0)

static void report(const char *label, int times, double flop, double bytes, double us)
{
    printf("%-34s %9.1f us", label, us);
    if (flop > 0.0)
        printf(" %7.1f TFLOP/s", flop / us * 1e-6);
    else
        printf(" %7.0f GB/s   ", bytes / us * 1e-3);
    printf(" x%d\n", times);
    step_us += times * us;
}

#define GEMM(label, times, M, N, K, ...)                                                                     \
    TIME(label, times, 2.0 * (M) * (N) * (K), 0, gemm, .m = (M), .n = (N), .k = (K), .type = OPS_BF16,       \
         .alpha = 1.0f, .workspace = workspace, .workspace_bytes = kernels_ops->workspace_bytes,             \
         __VA_ARGS__)

static void products(void)
{
    void *x = random_halves((size_t)ROWS * 4 * WIDTH, 1.0f),
         *y = random_halves((size_t)ROWS * 4 * WIDTH, 1.0f);
    void *aux = random_halves((size_t)ROWS * 4 * WIDTH, 1.0f),
         *w = random_halves((size_t)4 * WIDTH * WIDTH, 0.05f);
    void *bias = random_halves(4 * WIDTH, 1.0f);
    float *dw = device((size_t)4 * WIDTH * WIDTH * 4);

    GEMM("qkv forward", LAYERS, ROWS, 3 * WIDTH, WIDTH, .a = x, .b = w, .c = y, .bias = bias,
         .c_type = OPS_BF16, .trans_b = 1);
    GEMM("projection forward", LAYERS, ROWS, WIDTH, WIDTH, .a = x, .b = w, .c = y, .bias = bias,
         .c_type = OPS_BF16, .trans_b = 1);
    GEMM("mlp up forward, gelu, aux", LAYERS, ROWS, 4 * WIDTH, WIDTH, .a = x, .b = w, .c = y, .bias = bias,
         .aux = aux, .act = OPS_ACT_GELU, .c_type = OPS_BF16, .trans_b = 1);
    GEMM("(mlp up forward, plain)", 0, ROWS, 4 * WIDTH, WIDTH, .a = x, .b = w, .c = y, .c_type = OPS_BF16,
         .trans_b = 1);
    GEMM("mlp down forward", LAYERS, ROWS, WIDTH, 4 * WIDTH, .a = x, .b = w, .c = y, .bias = bias,
         .c_type = OPS_BF16, .trans_b = 1);
    GEMM("(mlp down forward, w as [k][n])", 0, ROWS, WIDTH, 4 * WIDTH, .a = x, .b = w, .c = y, .bias = bias,
         .c_type = OPS_BF16);
    GEMM("qkv dx", LAYERS, ROWS, WIDTH, 3 * WIDTH, .a = x, .b = w, .c = y, .c_type = OPS_BF16);
    GEMM("projection dx", LAYERS, ROWS, WIDTH, WIDTH, .a = x, .b = w, .c = y, .c_type = OPS_BF16);
    GEMM("mlp up dx", LAYERS, ROWS, WIDTH, 4 * WIDTH, .a = x, .b = w, .c = y, .c_type = OPS_BF16);
    GEMM("mlp down dx", LAYERS, ROWS, 4 * WIDTH, WIDTH, .a = x, .b = w, .c = y, .c_type = OPS_BF16);
    GEMM("qkv dw (f32, beta 1)", LAYERS, 3 * WIDTH, WIDTH, ROWS, .a = x, .b = y, .c = dw, .c_type = OPS_F32,
         .trans_a = 1, .beta = 1.0f);
    GEMM("projection dw (f32, beta 1)", LAYERS, WIDTH, WIDTH, ROWS, .a = x, .b = y, .c = dw,
         .c_type = OPS_F32, .trans_a = 1, .beta = 1.0f);
    GEMM("mlp dw (f32, beta 1)", 2 * LAYERS, 4 * WIDTH, WIDTH, ROWS, .a = x, .b = y, .c = dw,
         .c_type = OPS_F32, .trans_a = 1, .beta = 1.0f);
    GEMM("(mlp dw, f32, beta 0)", 0, 4 * WIDTH, WIDTH, ROWS, .a = x, .b = y, .c = dw, .c_type = OPS_F32,
         .trans_a = 1);
    cudaFree(x), cudaFree(y), cudaFree(aux), cudaFree(w), cudaFree(bias), cudaFree(dw);
}

static void head(void)
{
    size_t count = (size_t)ROWS * VOCABULARY;
    void *x = random_halves((size_t)ROWS * WIDTH, 1.0f),
         *w = random_halves((size_t)VOCABULARY * WIDTH, 0.05f);
    void *logits = device(count * 2);
    float *dw = device((size_t)VOCABULARY * WIDTH * 4), *losses = device(ROWS * 4), *lse = device(ROWS * 4);
    struct buffer labels = kernels_tokens(ROWS, 0, VOCABULARY - 1);

    GEMM("logits forward", 1, ROWS, VOCABULARY, WIDTH, .a = x, .b = w, .c = logits, .c_type = OPS_BF16,
         .trans_b = 1);
    TIME("cross-entropy forward", 1, 0, (double)count * 2, softmax_xent_forward, logits, labels.at[1], losses,
         lse, OPS_BF16, ROWS, VOCABULARY);
    TIME("cross-entropy backward", 1, 0, (double)count * 4, softmax_xent_backward, logits, labels.at[1], lse,
         logits, OPS_BF16, ROWS, VOCABULARY, 1.0f / ROWS, NULL);
    GEMM("logits dx", 1, ROWS, WIDTH, VOCABULARY, .a = logits, .b = w, .c = x, .c_type = OPS_BF16);
    GEMM("logits dw (f32)", 1, VOCABULARY, WIDTH, ROWS, .a = logits, .b = x, .c = dw, .c_type = OPS_F32,
         .trans_a = 1);
    TIME("embedding forward", 1, 0, (double)ROWS * WIDTH * 6, embedding_forward, labels.at[1], w, x, x,
         OPS_BF16, ROWS, WIDTH, LENGTH, VOCABULARY);
    TIME("embedding backward", 1, 0, (double)ROWS * WIDTH * 10, embedding_backward, .tokens = labels.at[1],
         .dout = x, .dtokens_table = dw, .dpositions_table = losses ? (float *)workspace + (4 << 20) : NULL,
         .type = OPS_BF16, .rows = ROWS, .cols = WIDTH, .length = LENGTH, .vocabulary = VOCABULARY,
         .accumulate = 1, .workspace = workspace, .workspace_bytes = (size_t)16 << 20);
    cudaFree(x), cudaFree(w), cudaFree(logits), cudaFree(dw), cudaFree(losses), cudaFree(lse);
}

static void attention_and_norms(void)
{
    size_t count = (size_t)ROWS * WIDTH;
    void *qkv = random_halves(3 * count, 1.0f), *dqkv = device(6 * count), *out = device(2 * count),
         *dout = random_halves(count, 1.0f);
    void *sum = device(2 * count), *wide = random_halves(4 * count, 1.0f),
         *dwide = random_halves(4 * count, 1.0f);
    float *lse = device((size_t)ROWS * HEADS * 4), *delta = device((size_t)ROWS * HEADS * 4);
    float *mean = device(ROWS * 4), *rstd = device(ROWS * 4), *gamma = device(4 * WIDTH * 4),
          *dgamma = device(4 * WIDTH * 4), *dbeta = device(WIDTH * 4);
    double flop = 4.0 * BATCH * HEADS * LENGTH * LENGTH * DIM / 2;

    TIME("attention forward", LAYERS, flop, 0, attention_forward, qkv, out, lse, OPS_BF16, BATCH, LENGTH,
         HEADS, DIM, 1);
    TIME("attention backward (flop x 2.5)", LAYERS, 2.5 * flop, 0, attention_backward, qkv, out, dout, lse,
         dqkv, delta, OPS_BF16, BATCH, LENGTH, HEADS, DIM, 1);
    TIME("(attention forward, all keys)", 0, 2 * flop, 0, attention_forward, qkv, out, lse, OPS_BF16, BATCH,
         LENGTH, HEADS, DIM, 0);
    TIME("layernorm forward with residual", 2 * LAYERS, 0, (double)count * 8, layernorm_forward, qkv, dout,
         sum, out, gamma, gamma, mean, rstd, OPS_BF16, ROWS, WIDTH, 1e-5f);
    TIME("layernorm backward", 2 * LAYERS, 0, (double)count * 8, layernorm_backward, .dy = qkv, .dsum = dout,
         .x = sum, .dx = out, .gamma = gamma, .mean = mean, .rstd = rstd, .dgamma = dgamma, .dbeta = dbeta,
         .type = OPS_BF16, .rows = ROWS, .cols = WIDTH, .accumulate = 1, .workspace = workspace,
         .workspace_bytes = kernels_ops->workspace_bytes);
    TIME("gelu backward and bias", LAYERS, 0, (double)count * 24, bias_act_backward, .dy = wide,
         .saved = dwide, .dx = wide, .dbias = dgamma, .type = OPS_BF16, .act = OPS_ACT_GELU, .rows = ROWS,
         .cols = 4 * WIDTH, .accumulate = 1, .workspace = workspace,
         .workspace_bytes = kernels_ops->workspace_bytes);
    TIME("bias backward (sums only), 768", 2 * LAYERS, 0, (double)count * 2, bias_act_backward, .dy = qkv,
         .dx = qkv, .dbias = dgamma, .type = OPS_BF16, .rows = ROWS, .cols = WIDTH, .accumulate = 1,
         .workspace = workspace, .workspace_bytes = kernels_ops->workspace_bytes);
    TIME("bias backward (sums only), 2304", LAYERS, 0, (double)count * 6, bias_act_backward, .dy = qkv,
         .dx = qkv, .dbias = dgamma, .type = OPS_BF16, .rows = ROWS, .cols = 3 * WIDTH, .accumulate = 1,
         .workspace = workspace, .workspace_bytes = kernels_ops->workspace_bytes);
    TIME("(add)", 0, 0, (double)count * 6, add, out, dout, sum, OPS_BF16, count);
    cudaFree(qkv), cudaFree(dqkv), cudaFree(out), cudaFree(dout), cudaFree(sum), cudaFree(wide),
        cudaFree(dwide);
}

/* No part of the step in bf16: what training in fp32 and tf32 has in the place of the above. */
static void attention_of_floats(void)
{
    size_t count = (size_t)ROWS * WIDTH;
    void *qkv = random_floats(3 * count, 1.0f), *dqkv = device(12 * count), *out = device(4 * count),
         *dout = random_floats(count, 1.0f);
    float *lse = device((size_t)ROWS * HEADS * 4), *delta = device((size_t)ROWS * HEADS * 4);
    double flop = 4.0 * BATCH * HEADS * LENGTH * LENGTH * DIM / 2;

    TIME("(attention forward, fp32)", 0, flop, 0, attention_forward, qkv, out, lse, OPS_F32, BATCH, LENGTH,
         HEADS, DIM, 1);
    TIME("(attention backward, fp32)", 0, 2.5 * flop, 0, attention_backward, qkv, out, dout, lse, dqkv, delta,
         OPS_F32, BATCH, LENGTH, HEADS, DIM, 1);
    TIME("(attention forward, fp32, all keys)", 0, 2 * flop, 0, attention_forward, qkv, out, lse, OPS_F32,
         BATCH, LENGTH, HEADS, DIM, 0);
    cudaFree(qkv), cudaFree(dqkv), cudaFree(out), cudaFree(dout), cudaFree(lse), cudaFree(delta);
}

/* 124 million parameters in the shapes that the model has. */
static void update(void)
{
    static struct ops_param params[12 * LAYERS + 4];
    struct ops_scalars scalars = {
        .rate = 1e-4f, .scale = 1.0f, .multiplier = 1.0f, .correction1 = 0.1f, .correction2 = 0.1f};
    size_t layer[12] = {WIDTH, WIDTH, 3 * WIDTH * WIDTH, 3 * WIDTH, WIDTH * WIDTH,     WIDTH,
                        WIDTH, WIDTH, 4 * WIDTH * WIDTH, 4 * WIDTH, 4 * WIDTH * WIDTH, WIDTH};
    size_t ends[4] = {(size_t)VOCABULARY * WIDTH, LENGTH * WIDTH, WIDTH, WIDTH};
    int count = 12 * LAYERS + 4;
    double total = 0.0;
    void *table, *device_scalars = device(sizeof(scalars));

    for (int p = 0; p < count; p++) {
        size_t elements = p < 4 ? ends[p] : layer[(p - 4) % 12];

        params[p] = (struct ops_param){device(elements * 4),
                                       device(elements * 4),
                                       device(elements * 4),
                                       device(elements * 4),
                                       device(elements * 2),
                                       elements,
                                       1.0f,
                                       0};
        total += (double)elements;
    }
    table = device(sizeof(params));
    kernels_upload(table, params, sizeof(params));
    kernels_upload(device_scalars, &scalars, sizeof(scalars));
    TIME("grad_check", 1, 0, total * 4, grad_check, table, device_scalars, count, ends[0], workspace,
         kernels_ops->workspace_bytes);
    TIME("step_begin", 1, 0, 0, step_begin, device_scalars, 1.0f, 0, 0, 0.9f, 0.95f, NULL, 0);
    TIME("adamw", 1, 0, total * 30, adamw, table, device_scalars, count, ends[0], OPS_BF16, 0.9f, 0.95f,
         1e-8f, 0.1f, 1);
    TIME("fill of all gradients", 0, 0, (double)ends[0] * 4, fill, params[0].grad, OPS_F32, ends[0], 0.0f);
    for (int p = 0; p < count; p++)
        cudaFree(params[p].weight), cudaFree(params[p].first), cudaFree(params[p].second),
            cudaFree(params[p].grad), cudaFree(params[p].copy);
}

int main(void)
{
    int status = kernels_open();

    if (status)
        return status;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    workspace = device(kernels_ops->workspace_bytes);
    products();
    attention_and_norms();
    attention_of_floats();
    head();
    update();
    printf("sum of a step: %.2f ms, %.0f tokens/s\n", step_us * 1e-3, ROWS / step_us * 1e6);
    return kernels_close(0);
}
