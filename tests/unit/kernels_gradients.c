/* Gradients against finite differences: a small two-layer network is built from the operations of the CPU
 * table, its mean loss is L, and for every parameter and every input the gradient that the backward
 * operations give must agree with (L(p + h) - L(p - h)) / 2h. The loss is evaluated in double precision,
 * apart from the table, so that the differences are not drowned by rounding; the forward operations are
 * compared with it too. */
#include <math.h>
#include <stdio.h>

#include "ops_cpu.h"
#include "unity.h"

enum { BATCH = 5, IN = 7, HIDDEN = 9, CLASSES = 4 };

/* The loss is smooth but for the kinks of the rectifier; with double sums this step gives about six digits.
 */
static const double difference_step = 1e-5;
static const double gradient_limit = 2e-5;

struct net {
    float x[BATCH * IN];
    float w1[IN * HIDDEN], b1[HIDDEN];
    float w2[HIDDEN * CLASSES], b2[CLASSES];
};

static struct net net;
static struct net grad;
static int32_t labels[BATCH];
static struct ops *ops;

static int run_now(ops_stream stream, void (*fn)(void *arg), void *arg)
{
    (void)stream;
    fn(arg);
    return 0;
}

static float next_random(void)
{
    static uint64_t state = 7;

    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(state >> 32) / (float)(1u << 31);
}

void setUp(void)
{
    TEST_ASSERT_EQUAL_INT(OPS_OK, ops_cpu_open(run_now, &ops));
    for (size_t i = 0; i < sizeof(net) / sizeof(float); i++)
        ((float *)&net)[i] = next_random();
    for (int r = 0; r < BATCH; r++)
        labels[r] = r % CLASSES;
}

void tearDown(void)
{
    ops->close(ops);
}

static void expect_within(double limit, double expected, double got)
{
    char message[128];

    if (fabs(expected - got) <= limit)
        return;
    snprintf(message, sizeof(message), "expected %.9g, got %.9g", expected, got);
    TEST_FAIL_MESSAGE(message);
}

/* The mean loss, with p as the value of the parameter number index instead of the one in net. */
static double reference_loss(size_t index, double p)
{
    double v[sizeof(net) / sizeof(float)];
    const double *x = v, *w1 = x + BATCH * IN, *b1 = w1 + IN * HIDDEN, *w2 = b1 + HIDDEN;
    const double *b2 = w2 + HIDDEN * CLASSES;
    double total = 0.0;

    for (size_t i = 0; i < sizeof(net) / sizeof(float); i++)
        v[i] = i == index ? p : ((float *)&net)[i];
    for (int r = 0; r < BATCH; r++) {
        double hidden[HIDDEN], sum = 0.0, at_label = 0.0;

        for (int h = 0; h < HIDDEN; h++) {
            hidden[h] = b1[h];
            for (int i = 0; i < IN; i++)
                hidden[h] += x[r * IN + i] * w1[i * HIDDEN + h];
            hidden[h] = fmax(hidden[h], 0.0);
        }
        for (int c = 0; c < CLASSES; c++) {
            double logit = b2[c];

            for (int h = 0; h < HIDDEN; h++)
                logit += hidden[h] * w2[h * CLASSES + c];
            sum += exp(logit);
            at_label = c == labels[r] ? logit : at_label;
        }
        total += log(sum) - at_label;
    }
    return total / BATCH;
}

/* The network through the table: the mean loss, and all gradients into grad. */
static double table_loss_and_gradients(void)
{
    float hidden[BATCH * HIDDEN], probs[BATCH * CLASSES], losses[BATCH];
    float dhidden[BATCH * HIDDEN], dlogits[BATCH * CLASSES];
    double total = 0.0;

    ops->gemm(ops, NULL, &(struct op_gemm){net.x, net.w1, hidden, BATCH, HIDDEN, IN, 0, 0, 1.0f, 0.0f});
    ops->bias_relu_forward(ops, NULL,
                           &(struct op_bias_relu_forward){hidden, net.b1, hidden, BATCH, HIDDEN, 1});
    ops->gemm(ops, NULL, &(struct op_gemm){hidden, net.w2, probs, BATCH, CLASSES, HIDDEN, 0, 0, 1.0f, 0.0f});
    ops->bias_relu_forward(ops, NULL,
                           &(struct op_bias_relu_forward){probs, net.b2, probs, BATCH, CLASSES, 0});
    ops->softmax_xent_forward(
        ops, NULL, &(struct op_softmax_xent_forward){probs, labels, probs, losses, BATCH, CLASSES});
    ops->softmax_xent_backward(
        ops, NULL, &(struct op_softmax_xent_backward){probs, labels, dlogits, BATCH, CLASSES, 1.0f / BATCH});
    ops->bias_relu_backward(
        ops, NULL, &(struct op_bias_relu_backward){dlogits, NULL, dlogits, grad.b2, BATCH, CLASSES, 0});
    ops->gemm(ops, NULL,
              &(struct op_gemm){hidden, dlogits, grad.w2, HIDDEN, CLASSES, BATCH, 1, 0, 1.0f, 0.0f});
    ops->gemm(ops, NULL,
              &(struct op_gemm){dlogits, net.w2, dhidden, BATCH, HIDDEN, CLASSES, 0, 1, 1.0f, 0.0f});
    ops->bias_relu_backward(
        ops, NULL, &(struct op_bias_relu_backward){dhidden, hidden, dhidden, grad.b1, BATCH, HIDDEN, 1});
    ops->gemm(ops, NULL, &(struct op_gemm){net.x, dhidden, grad.w1, IN, HIDDEN, BATCH, 1, 0, 1.0f, 0.0f});
    ops->gemm(ops, NULL, &(struct op_gemm){dhidden, net.w1, grad.x, BATCH, IN, HIDDEN, 0, 1, 1.0f, 0.0f});
    for (int r = 0; r < BATCH; r++)
        total += losses[r];
    return total / BATCH;
}

static void test_forward_operations_compose_to_the_loss(void)
{
    expect_within(1e-6, reference_loss(0, (double)net.x[0]), table_loss_and_gradients());
}

static void test_every_gradient_agrees_with_finite_differences(void)
{
    const float *parameter = (const float *)&net;
    const float *gradient = (const float *)&grad;
    double largest = 0.0;

    table_loss_and_gradients();
    for (size_t i = 0; i < sizeof(net) / sizeof(float); i++) {
        double above = reference_loss(i, (double)parameter[i] + difference_step);
        double below = reference_loss(i, (double)parameter[i] - difference_step);
        double difference = (above - below) / (2.0 * difference_step);

        expect_within(gradient_limit, difference, (double)gradient[i]);
        largest = fmax(largest, fabs(difference));
    }
    /* The limit above must mean something: the gradients are not all close to 0. */
    TEST_ASSERT_TRUE(largest > 1000 * gradient_limit);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_forward_operations_compose_to_the_loss);
    RUN_TEST(test_every_gradient_agrees_with_finite_differences);
    return UNITY_END();
}
