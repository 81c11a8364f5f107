/* Attention, CPU reference. Shapes: qkv and dqkv [batch][length][3][heads][dim], out and dout
 * [batch][length][heads][dim], lse and delta [batch][heads][length].
 *     forward:  s = q k' / sqrt(dim); p = softmax(s) over the keys that the query sees; out = p v;
 *               lse = log of the sum of exp(s)
 *     backward: p is computed again from lse; delta = sum of dout * out; dv = p' dout;
 *               ds = p (dout v' - delta) / sqrt(dim); dq = ds k; dk = ds' q
 * Threads share rows: of queries for forward and dq, of keys for dk and dv, so that each sum belongs to one
 * thread. The kernels beside it are attention.cu. */
#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "kernels/types.h"

#include <math.h>

enum { MOST_DIM = 128, ROWS_OF_A_PIECE = 16, KEYS = 64, LANES = 4 };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

/* One row of one head, and where its vectors are. */
struct place {
    const void *qkv;
    enum ops_type type;
    size_t length, heads, dim;
    size_t batch, head, row;
    float scale;
};

enum part { PART_Q, PART_K, PART_V };

static size_t qkv_at(const struct place *p, size_t row, enum part part)
{
    return (((p->batch * p->length + row) * 3 + (size_t)part) * p->heads + p->head) * p->dim;
}

static size_t out_at(const struct place *p, size_t row)
{
    return ((p->batch * p->length + row) * p->heads + p->head) * p->dim;
}

static size_t statistic_at(const struct place *p, size_t row)
{
    return (p->batch * p->heads + p->head) * p->length + row;
}

static void go_to(struct place *p, size_t index)
{
    p->row = index % p->length;
    p->head = index / p->length % p->heads;
    p->batch = index / p->length / p->heads;
}

static float dot(const float *a, const float *b, size_t dim)
{
    lanes sum[2] = {{0}};
    size_t i = 0;
    float rest = 0.0f;

    for (; i + 2 * LANES <= dim; i += 2 * LANES) {
        sum[0] += *(const lanes *)(a + i) * *(const lanes *)(b + i);
        sum[1] += *(const lanes *)(a + i + LANES) * *(const lanes *)(b + i + LANES);
    }
    for (; i < dim; i++)
        rest += a[i] * b[i];
    sum[0] += sum[1];
    return (sum[0][0] + sum[0][1]) + (sum[0][2] + sum[0][3]) + rest;
}

static void add_scaled(float *to, const float *from, float factor, size_t dim)
{
    for (size_t d = 0; d < dim; d++)
        to[d] += factor * from[d];
}

static const float *vector(const struct place *p, size_t row, enum part part, float *scratch)
{
    return types_read(p->qkv, p->type, qkv_at(p, row, part), p->dim, scratch);
}

/* One step of the online softmax: adds keys [from, to) to acc, sum and max. */
static void forward_keys(const struct place *p, const float *q, size_t from, size_t to, float *acc,
                         float *max, float *sum)
{
    float s[KEYS], scratch[MOST_DIM];
    float before = *max, shrink;

    for (size_t j = from; j < to; j++) {
        s[j - from] = dot(q, vector(p, j, PART_K, scratch), p->dim) * p->scale;
        *max = fmaxf(*max, s[j - from]);
    }
    shrink = expf(before - *max);
    *sum *= shrink;
    for (size_t d = 0; d < p->dim; d++)
        acc[d] *= shrink;
    for (size_t j = from; j < to; j++) {
        float e = expf(s[j - from] - *max);

        *sum += e;
        add_scaled(acc, vector(p, j, PART_V, scratch), e, p->dim);
    }
}

static void forward_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_attention_forward *args = arg;
    struct place p = {.qkv = args->qkv,
                      .type = args->type,
                      .length = (size_t)args->length,
                      .heads = (size_t)args->heads,
                      .dim = (size_t)args->dim,
                      .scale = 1.0f / sqrtf((float)args->dim)};

    for (size_t index = begin; index < end; index++) {
        float acc[MOST_DIM] = {0}, scratch[MOST_DIM];
        float max = -INFINITY, sum = 0.0f;
        const float *q;
        size_t keys;

        go_to(&p, index);
        keys = args->causal ? p.row + 1 : p.length;
        q = vector(&p, p.row, PART_Q, scratch);
        for (size_t j = 0; j < keys; j += KEYS)
            forward_keys(&p, q, j, types_smaller(j + KEYS, keys), acc, &max, &sum);
        for (size_t d = 0; d < p.dim; d++)
            acc[d] /= sum;
        types_write(args->out, args->type, out_at(&p, p.row), p.dim, acc);
        args->lse[statistic_at(&p, p.row)] = max + logf(sum);
    }
}

void cpu_attention_forward(const struct op_attention_forward *args)
{
    if (args->dim >= 1 && args->dim <= MOST_DIM)
        cpu_threads_for((size_t)args->batch * (size_t)args->heads * (size_t)args->length, ROWS_OF_A_PIECE,
                        forward_rows, args);
}

static struct place backward_place(const struct op_attention_backward *args)
{
    return (struct place){.qkv = args->qkv,
                          .type = args->type,
                          .length = (size_t)args->length,
                          .heads = (size_t)args->heads,
                          .dim = (size_t)args->dim,
                          .scale = 1.0f / sqrtf((float)args->dim)};
}

/* Computes delta and dq for a range of queries. */
static void query_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_attention_backward *args = arg;
    struct place p = backward_place(args);

    for (size_t index = begin; index < end; index++) {
        float dq[MOST_DIM] = {0}, q_scratch[MOST_DIM], d_scratch[MOST_DIM], scratch[MOST_DIM];
        const float *q, *dout;
        float delta, lse;

        go_to(&p, index);
        q = vector(&p, p.row, PART_Q, q_scratch);
        dout = types_read(args->dout, p.type, out_at(&p, p.row), p.dim, d_scratch);
        delta = dot(dout, types_read(args->out, p.type, out_at(&p, p.row), p.dim, scratch), p.dim);
        args->delta[statistic_at(&p, p.row)] = delta;
        lse = args->lse[statistic_at(&p, p.row)];
        for (size_t j = 0; j < (args->causal ? p.row + 1 : p.length); j++) {
            float dp = dot(dout, vector(&p, j, PART_V, scratch), p.dim);
            const float *k = vector(&p, j, PART_K, scratch);
            float probability = expf(dot(q, k, p.dim) * p.scale - lse);

            add_scaled(dq, k, probability * (dp - delta) * p.scale, p.dim);
        }
        types_write(args->dqkv, p.type, qkv_at(&p, p.row, PART_Q), p.dim, dq);
    }
}

/* Computes dk and dv for a range of keys. */
static void key_rows(const void *arg, size_t begin, size_t end)
{
    const struct op_attention_backward *args = arg;
    struct place p = backward_place(args);

    for (size_t index = begin; index < end; index++) {
        float dk[MOST_DIM] = {0}, dv[MOST_DIM] = {0};
        float k_scratch[MOST_DIM], v_scratch[MOST_DIM], scratch[MOST_DIM];
        const float *k, *v;

        go_to(&p, index);
        k = vector(&p, p.row, PART_K, k_scratch);
        v = vector(&p, p.row, PART_V, v_scratch);
        for (size_t i = args->causal ? p.row : 0; i < p.length; i++) {
            const float *dout = types_read(args->dout, p.type, out_at(&p, i), p.dim, scratch);
            float q_scratch[MOST_DIM];
            const float *q = vector(&p, i, PART_Q, q_scratch);
            float probability = expf(dot(q, k, p.dim) * p.scale - args->lse[statistic_at(&p, i)]);
            float ds = probability * (dot(dout, v, p.dim) - args->delta[statistic_at(&p, i)]);

            add_scaled(dv, dout, probability, p.dim);
            add_scaled(dk, q, ds * p.scale, p.dim);
        }
        types_write(args->dqkv, p.type, qkv_at(&p, p.row, PART_K), p.dim, dk);
        types_write(args->dqkv, p.type, qkv_at(&p, p.row, PART_V), p.dim, dv);
    }
}

void cpu_attention_backward(const struct op_attention_backward *args)
{
    size_t rows = (size_t)args->batch * (size_t)args->heads * (size_t)args->length;

    if (args->dim < 1 || args->dim > MOST_DIM)
        return;
    cpu_threads_for(rows, ROWS_OF_A_PIECE, query_rows, args);
    cpu_threads_for(rows, ROWS_OF_A_PIECE, key_rows, args);
}
