/* kernels_check: buffers, comparisons and gradients for tests of the CPU table. See kernels_check.h. */
#include "kernels_check.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/types.h"
#include "unity.h"

enum { MOST_BUFFERS = 512 };

/* Sums of up to some thousand terms, added in float: far less than one rounding of the whole per term. */
static const double sum_limit = 32 * FLT_EPSILON;
static const double untouched = 12345.0;
/* With the losses in double this step leaves about seven digits of a smooth loss. */
static const double difference_step = 1e-6;
static const double gradient_limit = 2e-5;

const enum ops_type check_types[3] = {OPS_F32, OPS_BF16, OPS_F16};

static struct ops *ops;
static void *buffers[MOST_BUFFERS];
static int buffer_count;
static uint64_t random_state = 1;

static int run_now(ops_stream stream, void (*fn)(void *arg), void *arg)
{
    (void)stream;
    fn(arg);
    return 0;
}

struct ops *check_open(void)
{
    random_state = 1;
    TEST_ASSERT_EQUAL_INT(OPS_OK, ops_cpu_open(run_now, NULL, &ops));
    return ops;
}

void check_release(void)
{
    while (buffer_count > 0)
        free(buffers[--buffer_count]);
    if (ops)
        ops->close(ops);
    ops = NULL;
}

void *check_bytes(size_t bytes)
{
    void *p = calloc(bytes ? bytes : 1, 1);

    TEST_ASSERT_NOT_NULL(p);
    TEST_ASSERT_TRUE(buffer_count < MOST_BUFFERS);
    return buffers[buffer_count++] = p;
}

double *check_doubles(size_t count)
{
    return check_bytes(count * sizeof(double));
}

double check_random(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int32_t)(random_state >> 32) / (double)(1u << 31);
}

static struct check_buffer new_buffer(enum ops_type type, size_t count)
{
    struct check_buffer b = {type, count, check_bytes(count * ops_type_bytes(type)), check_doubles(count)};

    return b;
}

void check_refresh(struct check_buffer *buffer)
{
    for (size_t i = 0; i < buffer->count; i++)
        buffer->exact[i] = (double)types_load(buffer->data, buffer->type, i);
}

struct check_buffer check_values(enum ops_type type, size_t count)
{
    struct check_buffer b = new_buffer(type, count);

    for (size_t i = 0; i < count; i++)
        types_store(b.data, type, i, (float)check_random());
    check_refresh(&b);
    return b;
}

struct check_buffer check_results(enum ops_type type, size_t count)
{
    struct check_buffer b = new_buffer(type, count);

    for (size_t i = 0; i < count; i++)
        types_store(b.data, type, i, (float)untouched);
    check_refresh(&b);
    return b;
}

static double type_limit(enum ops_type type)
{
    return type == OPS_F32 ? FLT_EPSILON : type == OPS_BF16 ? 0x1p-8 : 0x1p-11;
}

void check_close(const char *what, const struct check_buffer *got, const double *expected, const double *size)
{
    for (size_t i = 0; i < got->count; i++) {
        double value = (double)types_load(got->data, got->type, i);
        double allowed = sum_limit * (size ? size[i] : fabs(expected[i])) +
                         type_limit(got->type) * fabs(expected[i]) + 0x1p-24;

        if (!(fabs(value - expected[i]) <= allowed)) {
            char message[200];

            snprintf(message, sizeof(message),
                     "%s, type %d, element %zu: expected %.9g, got %.9g, allowed %.3g", what, got->type, i,
                     expected[i], value, allowed);
            TEST_FAIL_MESSAGE(message);
        }
    }
}

void check_gradient(const char *what, check_loss_fn loss, const void *context, double *values, size_t count,
                    const float *gradient)
{
    double largest = 0.0;

    for (size_t i = 0; i < count; i++) {
        double value = values[i], above, below, difference;
        char message[200];

        values[i] = value + difference_step;
        above = loss(context, values);
        values[i] = value - difference_step;
        below = loss(context, values);
        values[i] = value;
        difference = (above - below) / (2.0 * difference_step);
        largest = fmax(largest, fabs(difference));
        snprintf(message, sizeof(message), "%s, element %zu: difference %.9g, gradient %.9g", what, i,
                 difference, (double)gradient[i]);
        TEST_ASSERT_TRUE_MESSAGE(
            fabs(difference - (double)gradient[i]) <= gradient_limit * (1.0 + fabs(difference)), message);
    }
    /* Otherwise all gradients would be close to 0 and the limit would prove nothing. */
    TEST_ASSERT_TRUE(largest > 100 * gradient_limit);
}
