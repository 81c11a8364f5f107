/* The CUDA table against the CPU reference on random inputs. Both are given the same bits; results may differ
 * by rounding only, which is measured against the size of the terms that were summed. Exit status 77 without
 * a GPU. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops_cpu.h"
#include "unity.h"

enum { SKIPPED = 77, MAX_BUFFERS = 8 };

/* Both sides round; sums of n terms differ by far less than n roundings of the largest partial sum. */
static const double sum_limit = 128 * FLT_EPSILON;
/* expf and logf of the two sides differ by a few units in the last place. */
static const double exp_limit = 64 * FLT_EPSILON;

static struct ops *ops;
static cudaStream_t stream;
static uint64_t random_state;

/* The device buffers of the running test, freed in tearDown. */
static void *device_buffers[MAX_BUFFERS];
static void *host_buffers[4 * MAX_BUFFERS];
static int device_count, host_count;

void setUp(void)
{
    random_state = 1;
}

static void release_all(void)
{
    TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize(stream));
    while (device_count > 0)
        TEST_ASSERT_EQUAL_INT(0, cudaFree(device_buffers[--device_count]));
    while (host_count > 0)
        free(host_buffers[--host_count]);
}

void tearDown(void)
{
    release_all();
}

static void *host_bytes(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);

    TEST_ASSERT_NOT_NULL(p);
    TEST_ASSERT_TRUE(host_count < (int)(sizeof(host_buffers) / sizeof(host_buffers[0])));
    return host_buffers[host_count++] = p;
}

static float *random_floats(size_t count)
{
    float *values = host_bytes(count * sizeof(float));

    for (size_t i = 0; i < count; i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        values[i] = (float)(int32_t)(random_state >> 32) / (float)(1u << 31);
    }
    return values;
}

static float *copy_floats(const float *from, size_t count)
{
    float *values = host_bytes(count * sizeof(float));

    memcpy(values, from, count * sizeof(float));
    return values;
}

static int32_t *some_labels(int rows, int classes)
{
    int32_t *labels = host_bytes((size_t)rows * sizeof(*labels));

    for (int r = 0; r < rows; r++)
        labels[r] = (int32_t)(((uint32_t)r * 2654435761u) % (uint32_t)classes);
    return labels;
}

static void *upload(const void *host, size_t bytes)
{
    void *p = NULL;

    TEST_ASSERT_TRUE(device_count < MAX_BUFFERS);
    TEST_ASSERT_EQUAL_INT(0, cudaMalloc(&p, bytes));
    device_buffers[device_count++] = p;
    TEST_ASSERT_EQUAL_INT(0, cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice));
    return p;
}

static float *upload_floats(const float *host, size_t count)
{
    return upload(host, count * sizeof(float));
}

static float *download(const float *device, size_t count)
{
    float *host = host_bytes(count * sizeof(float));

    TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize(stream));
    TEST_ASSERT_EQUAL_INT(0, cudaMemcpy(host, device, count * sizeof(float), cudaMemcpyDeviceToHost));
    return host;
}

/* scale[i], or 1 without scale, is the size of what was summed into element i. */
static void expect_close(const float *expected, const float *device, const float *scale, size_t count,
                         double limit)
{
    const float *got = download(device, count);

    for (size_t i = 0; i < count; i++) {
        double allowed = limit * (scale ? (double)scale[i] : 1.0) + FLT_MIN;

        if (!(fabs((double)expected[i] - (double)got[i]) <= allowed)) {
            char message[160];

            snprintf(message, sizeof(message), "element %zu: expected %.9g, got %.9g, allowed %.3g", i,
                     (double)expected[i], (double)got[i], allowed);
            TEST_FAIL_MESSAGE(message);
        }
    }
}

static float *absolute(const float *from, size_t count)
{
    float *values = copy_floats(from, count);

    for (size_t i = 0; i < count; i++)
        values[i] = fabsf(values[i]);
    return values;
}

static void check_gemm(int m, int n, int k, int transposes, float alpha, float beta)
{
    size_t a_count = (size_t)m * k, b_count = (size_t)k * n, c_count = (size_t)m * n;
    float *a = random_floats(a_count), *b = random_floats(b_count), *c = random_floats(c_count);
    struct op_gemm host = {a,     b,   copy_floats(c, c_count), m, n, k, transposes & 1, transposes >> 1,
                           alpha, beta};
    struct op_gemm scale = host, device = host;

    scale.a = absolute(a, a_count);
    scale.b = absolute(b, b_count);
    scale.c = absolute(c, c_count);
    scale.alpha = fabsf(alpha);
    scale.beta = fabsf(beta);
    device.a = upload_floats(a, a_count);
    device.b = upload_floats(b, b_count);
    device.c = upload_floats(c, c_count);
    cpu_gemm(&host);
    cpu_gemm(&scale);
    TEST_ASSERT_EQUAL_INT(0, ops->gemm(ops, stream, &device));
    expect_close(host.c, device.c, scale.c, c_count, sum_limit);
    release_all();
}

static void test_gemm_agrees_for_all_transposes_and_odd_shapes(void)
{
    static const int shape[][3] = {{1, 1, 1},      {1, 10, 7},     {64, 64, 16},    {65, 63, 17},
                                   {64, 256, 784}, {784, 256, 64}, {257, 129, 513}, {1000, 3, 100}};

    for (size_t s = 0; s < sizeof(shape) / sizeof(shape[0]); s++) {
        for (int transposes = 0; transposes < 4; transposes++) {
            check_gemm(shape[s][0], shape[s][1], shape[s][2], transposes, 1.0f, 0.0f);
            check_gemm(shape[s][0], shape[s][1], shape[s][2], transposes, -0.5f, 0.75f);
        }
    }
}

static void test_gemm_with_beta_zero_does_not_read_the_result(void)
{
    float a = 2.0f, b = 3.0f, c = NAN, expected = 6.0f;
    struct op_gemm g = {
        upload_floats(&a, 1), upload_floats(&b, 1), upload_floats(&c, 1), 1, 1, 1, 0, 0, 1.0f, 0.0f};

    TEST_ASSERT_EQUAL_INT(0, ops->gemm(ops, stream, &g));
    expect_close(&expected, g.c, NULL, 1, 0.0);
}

static void check_bias_relu(int rows, int cols, int relu)
{
    size_t count = (size_t)rows * cols;
    float *x = random_floats(count), *bias = random_floats(cols), *dy = random_floats(count);
    struct op_bias_relu_forward host = {x, bias, random_floats(count), rows, cols, relu};
    struct op_bias_relu_forward device = host;
    struct op_bias_relu_backward host_back = {dy,   host.y, random_floats(count), random_floats(cols), rows,
                                              cols, relu};
    struct op_bias_relu_backward device_back = host_back, scale = host_back;

    device.x = upload_floats(x, count);
    device.bias = upload_floats(bias, cols);
    device.y = upload_floats(host.y, count);
    cpu_bias_relu_forward(&host);
    TEST_ASSERT_EQUAL_INT(0, ops->bias_relu_forward(ops, stream, &device));
    /* One addition each: the same bits. Backward is given them in place of its result. */
    expect_close(host.y, device.y, NULL, count, 0.0);
    device_back.y = device.y;
    device_back.dy = device_back.dx = upload_floats(dy, count);
    device_back.dbias = upload_floats(host_back.dbias, cols);
    scale.dy = absolute(dy, count);
    scale.dx = random_floats(count);
    scale.dbias = random_floats(cols);
    cpu_bias_relu_backward(&host_back);
    cpu_bias_relu_backward(&scale);
    TEST_ASSERT_EQUAL_INT(0, ops->bias_relu_backward(ops, stream, &device_back));
    expect_close(host_back.dx, device_back.dx, NULL, count, 0.0);
    expect_close(host_back.dbias, device_back.dbias, scale.dbias, cols, sum_limit);
    release_all();
}

static void test_bias_relu_agrees_in_both_directions(void)
{
    check_bias_relu(1, 1, 1);
    check_bias_relu(64, 10, 0);
    check_bias_relu(333, 257, 1);
    check_bias_relu(4096, 1024, 1);
}

static void check_softmax(int rows, int cols, float spread)
{
    size_t count = (size_t)rows * cols;
    float *logits = random_floats(count);
    int32_t *labels = some_labels(rows, cols);
    struct op_softmax_xent_forward host = {logits, labels, random_floats(count), random_floats(rows),
                                           rows,   cols};
    struct op_softmax_xent_forward device = host;
    struct op_softmax_xent_backward back = {host.probs, labels, random_floats(count), rows, cols, 0.125f};
    struct op_softmax_xent_backward device_back = back;
    float *loss_scale = random_floats(rows);

    for (size_t i = 0; i < count; i++)
        logits[i] *= spread;
    for (int r = 0; r < rows; r++)
        loss_scale[r] = 1.0f + 2.0f * spread;
    device.logits = device.probs = upload_floats(logits, count);
    device.labels = upload(labels, (size_t)rows * sizeof(*labels));
    device.losses = upload_floats(host.losses, rows);
    cpu_softmax_xent_forward(&host);
    cpu_softmax_xent_backward(&back);
    TEST_ASSERT_EQUAL_INT(0, ops->softmax_xent_forward(ops, stream, &device));
    expect_close(host.probs, device.probs, NULL, count, exp_limit);
    expect_close(host.losses, device.losses, loss_scale, rows, exp_limit);
    device_back.probs = device_back.dlogits = device.probs;
    device_back.labels = device.labels;
    TEST_ASSERT_EQUAL_INT(0, ops->softmax_xent_backward(ops, stream, &device_back));
    expect_close(back.dlogits, device_back.dlogits, NULL, count, exp_limit);
    release_all();
}

static void test_softmax_cross_entropy_agrees_in_both_directions(void)
{
    check_softmax(1, 1, 1.0f);
    check_softmax(64, 10, 4.0f);
    check_softmax(13, 1000, 20.0f);
    check_softmax(5000, 33, 300.0f);
}

static void test_sgd_and_fill_agree(void)
{
    enum { COUNT = 100003 };
    float *weight = random_floats(COUNT), *velocity = random_floats(COUNT), *grad = random_floats(COUNT);
    struct op_sgd device = {upload_floats(weight, COUNT),
                            upload_floats(velocity, COUNT),
                            upload_floats(grad, COUNT),
                            COUNT,
                            0.1f,
                            0.9f};
    struct op_sgd host = {weight, velocity, grad, COUNT, 0.1f, 0.9f};
    struct op_fill fill = {device.velocity + 1, COUNT - 2, 0.5f};

    cpu_sgd(&host);
    TEST_ASSERT_EQUAL_INT(0, ops->sgd(ops, stream, &device));
    expect_close(weight, device.weight, NULL, COUNT, 4 * FLT_EPSILON);
    expect_close(velocity, device.velocity, NULL, COUNT, 4 * FLT_EPSILON);
    TEST_ASSERT_EQUAL_INT(0, ops->fill(ops, stream, &fill));
    for (int i = 1; i < COUNT - 1; i++)
        velocity[i] = 0.5f;
    expect_close(velocity, device.velocity, NULL, COUNT, 4 * FLT_EPSILON);
}

static void test_empty_operands_are_no_error(void)
{
    TEST_ASSERT_EQUAL_INT(0, ops->fill(ops, stream, &(struct op_fill){NULL, 0, 1.0f}));
    TEST_ASSERT_EQUAL_INT(0, ops->sgd(ops, stream, &(struct op_sgd){NULL, NULL, NULL, 0, 1.0f, 1.0f}));
    TEST_ASSERT_EQUAL_INT(0, ops->gemm(ops, stream, &(struct op_gemm){.m = 0, .n = 4, .k = 4}));
    TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize(stream));
}

static void test_a_run_repeats_to_the_bit(void)
{
    enum { M = 200, N = 150, K = 700 };
    float *a = random_floats((size_t)M * K), *b = random_floats((size_t)K * N),
          *c = random_floats((size_t)M * N);
    struct op_gemm g = {upload_floats(a, (size_t)M * K),
                        upload_floats(b, (size_t)K * N),
                        upload_floats(c, (size_t)M * N),
                        M,
                        N,
                        K,
                        0,
                        0,
                        1.0f,
                        0.0f};
    float *first;

    TEST_ASSERT_EQUAL_INT(0, ops->gemm(ops, stream, &g));
    first = download(g.c, (size_t)M * N);
    TEST_ASSERT_EQUAL_INT(0, ops->gemm(ops, stream, &g));
    TEST_ASSERT_EQUAL_MEMORY(first, download(g.c, (size_t)M * N), (size_t)M * N * sizeof(float));
}

static int open_cuda_table(void)
{
    const char *build = getenv("GPUCAP_BUILD");
    char path[4096];
    void *library;
    ops_cuda_open_fn open_table;

    snprintf(path, sizeof(path), "%s/libtrain_cuda.so", build ? build : ".");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    open_table = library ? (ops_cuda_open_fn)dlsym(library, OPS_CUDA_OPEN_NAME) : NULL;
    if (!open_table) {
        fprintf(stderr, "%s\n", dlerror());
        return -1;
    }
    if (open_table(sizeof(struct ops) + 1, &ops) == OPS_OK) {
        fprintf(stderr, "a table of another size was not refused\n");
        return -1;
    }
    return open_table(sizeof(struct ops), &ops);
}

int main(void)
{
    struct cudaDeviceProp properties;
    int devices = 0;

    if (cudaGetDeviceCount(&devices) || devices == 0 || cudaGetDeviceProperties(&properties, 0) ||
        strcmp(properties.name, "simgpu") == 0) {
        printf("no GPU: skipped\n");
        return SKIPPED;
    }
    if (open_cuda_table() || cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking))
        return EXIT_FAILURE;
    UNITY_BEGIN();
    RUN_TEST(test_gemm_agrees_for_all_transposes_and_odd_shapes);
    RUN_TEST(test_gemm_with_beta_zero_does_not_read_the_result);
    RUN_TEST(test_bias_relu_agrees_in_both_directions);
    RUN_TEST(test_softmax_cross_entropy_agrees_in_both_directions);
    RUN_TEST(test_sgd_and_fill_agree);
    RUN_TEST(test_empty_operands_are_no_error);
    RUN_TEST(test_a_run_repeats_to_the_bit);
    cudaStreamDestroy(stream);
    return UNITY_END();
}
