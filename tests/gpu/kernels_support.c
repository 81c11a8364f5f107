/* kernels_support: buffers on the host and the device, and comparisons of them. See kernels_support.h. */
#include "kernels_support.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SKIPPED = 77, MOST_BUFFERS = 256, GUARD = 256, GUARD_BYTE = 0xa5 };

struct ops *kernels_ops;
cudaStream_t kernels_stream;
int kernels_shift;

static struct {
    char *host, *device;
    size_t skip, bytes;
} buffers[MOST_BUFFERS];
static int buffer_count;
static uint64_t random_state = 1;

void setUp(void)
{
    random_state = 1;
    kernels_shift = 0;
}

void tearDown(void)
{
    kernels_free_all();
}

int kernels_quick(void)
{
    return getenv("KERNELS_QUICK") != NULL;
}

float kernels_uniform(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(random_state >> 32) / (float)(1u << 31);
}

/* Host memory of zeros with the guard behind it, registered; the device's comes with upload(). */
static struct buffer new_buffer(size_t bytes, size_t skip)
{
    char *host = calloc(1, skip + bytes + GUARD);

    TEST_ASSERT_NOT_NULL(host);
    TEST_ASSERT_TRUE(buffer_count < MOST_BUFFERS);
    memset(host + skip + bytes, GUARD_BYTE, GUARD);
    buffers[buffer_count].host = host;
    buffers[buffer_count].device = NULL;
    buffers[buffer_count].skip = skip;
    buffers[buffer_count++].bytes = bytes;
    return (struct buffer){.at = {host + skip, NULL}, .bytes = bytes};
}

int kernels_upload(void *to, const void *from, size_t bytes)
{
    const cudaError_t status = cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice);

    return (int)(status ? status : cudaDeviceSynchronize());
}

static struct buffer upload(struct buffer buffer)
{
    int index = buffer_count - 1;
    size_t skip = buffers[index].skip, all = skip + buffer.bytes + GUARD;
    void *device = NULL;

    TEST_ASSERT_EQUAL_INT(0, cudaMalloc(&device, all));
    TEST_ASSERT_EQUAL_INT(0, kernels_upload(device, buffers[index].host, all));
    buffers[index].device = device;
    buffer.at[ON_DEVICE] = (char *)device + skip;
    return buffer;
}

struct buffer kernels_random(enum ops_type type, size_t count, float scale)
{
    size_t size = ops_type_bytes(type);
    struct buffer buffer = new_buffer(count * size, (size_t)kernels_shift * size);

    for (size_t i = 0; i < count; i++)
        types_store(buffer.at[ON_HOST], type, i, kernels_uniform() * scale);
    return upload(buffer);
}

struct buffer kernels_positive(size_t count, float least, float most)
{
    struct buffer buffer = new_buffer(count * sizeof(float), (size_t)kernels_shift * sizeof(float));

    for (size_t i = 0; i < count; i++)
        ((float *)buffer.at[ON_HOST])[i] = least + (most - least) * 0.5f * (kernels_uniform() + 1.0f);
    return upload(buffer);
}

struct buffer kernels_tokens(size_t count, int32_t least, int32_t most)
{
    struct buffer buffer = new_buffer(count * sizeof(int32_t), 0);
    uint32_t width = (uint32_t)(most - least) + 1;

    for (size_t i = 0; i < count; i++)
        ((int32_t *)buffer.at[ON_HOST])[i] =
            least + (int32_t)((uint32_t)((double)(kernels_uniform() + 1.0f) * 1e9) % width);
    return upload(buffer);
}

struct buffer kernels_bytes(const void *from, size_t bytes)
{
    struct buffer buffer = new_buffer(bytes, 0);

    if (from)
        memcpy(buffer.at[ON_HOST], from, bytes);
    return upload(buffer);
}

struct buffer kernels_workspace(void)
{
    return kernels_bytes(NULL, kernels_ops->workspace_bytes);
}

void kernels_free_all(void)
{
    char guard[GUARD], seen[GUARD];

    memset(guard, GUARD_BYTE, sizeof(guard));
    TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize(kernels_stream));
    while (buffer_count > 0) {
        int i = --buffer_count;
        size_t end = buffers[i].skip + buffers[i].bytes;

        TEST_ASSERT_EQUAL_MEMORY(guard, buffers[i].host + end, GUARD);
        TEST_ASSERT_EQUAL_INT(0, cudaMemcpy(seen, buffers[i].device + end, GUARD, cudaMemcpyDeviceToHost));
        TEST_ASSERT_EQUAL_MEMORY(guard, seen, GUARD);
        free(buffers[i].host);
        TEST_ASSERT_EQUAL_INT(0, cudaFree(buffers[i].device));
    }
}

double kernels_limit(enum ops_type type)
{
    return type == OPS_F32 ? 2e-5 : type == OPS_BF16 ? 1.6e-2 : 2e-3;
}

static void *download(const struct buffer *buffer)
{
    void *copy = malloc(buffer->bytes + 1);

    TEST_ASSERT_NOT_NULL(copy);
    TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize(kernels_stream));
    TEST_ASSERT_EQUAL_INT(0, cudaMemcpy(copy, buffer->at[ON_DEVICE], buffer->bytes, cudaMemcpyDeviceToHost));
    return copy;
}

static double root_mean_square(const void *values, enum ops_type type, size_t from, size_t count)
{
    double squares = 0.0;

    for (size_t i = from; i < from + count; i++) {
        double v = (double)types_load(values, type, i);

        squares += v * v;
    }
    return count ? sqrt(squares / (double)count) : 0.0;
}

void kernels_expect_rows_close(const struct buffer *buffer, enum ops_type type, size_t count, size_t row,
                               double limit, const char *what)
{
    const void *host = buffer->at[ON_HOST];
    void *got = download(buffer);
    double all = root_mean_square(host, type, 0, count), rms = all;
    char message[256] = "";

    for (size_t i = 0; i < count && !*message; i++) {
        double e = (double)types_load(host, type, i), g = (double)types_load(got, type, i);

        if (i % row == 0)
            rms = fmax(all, root_mean_square(host, type, i, row < count - i ? row : count - i));
        if (!(fabs(e - g) <= limit * (fabs(e) + rms) + 1e-30) && !(isnan(e) && isnan(g)))
            snprintf(message, sizeof(message),
                     "%s: element %zu of %zu: host %.9g, device %.9g (rms %.3g, limit %.1e)", what, i, count,
                     e, g, rms, limit);
    }
    free(got);
    if (*message)
        TEST_FAIL_MESSAGE(message);
}

void kernels_expect_close(const struct buffer *buffer, enum ops_type type, size_t count, double limit,
                          const char *what)
{
    kernels_expect_rows_close(buffer, type, count, count, limit, what);
}

void kernels_expect_same(const struct buffer *buffer, const char *what)
{
    void *got = download(buffer);
    int different = memcmp(got, buffer->at[ON_HOST], buffer->bytes);

    free(got);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, different, what);
}

static int open_table(void)
{
    const char *build = getenv("GPUCAP_BUILD");
    char path[4096];
    void *library;
    ops_cuda_open_fn open_ops;

    snprintf(path, sizeof(path), "%s/libtrain_cuda.so", build ? build : ".");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    open_ops = library ? (ops_cuda_open_fn)dlsym(library, OPS_CUDA_OPEN_NAME) : NULL;
    if (!open_ops) {
        fprintf(stderr, "%s\n", dlerror());
        return -1;
    }
    if (open_ops(sizeof(struct ops) + 1, &kernels_ops) == OPS_OK) {
        fprintf(stderr, "a table of another size was not refused\n");
        return -1;
    }
    return open_ops(sizeof(struct ops), &kernels_ops);
}

int kernels_open(void)
{
    struct cudaDeviceProp properties;
    int devices = 0;

    if (cudaGetDeviceCount(&devices) || devices == 0 || cudaGetDeviceProperties(&properties, 0) ||
        strcmp(properties.name, "simgpu") == 0) {
        printf("no GPU: skipped\n");
        return SKIPPED;
    }
    if (open_table() || cudaStreamCreateWithFlags(&kernels_stream, cudaStreamNonBlocking))
        return EXIT_FAILURE;
    return 0;
}

int kernels_close(int status)
{
    cudaStreamDestroy(kernels_stream);
    kernels_ops->close(kernels_ops);
    return status;
}
