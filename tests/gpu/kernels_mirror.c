/* kernels_mirror: tensors that exist on the host and on the device. See kernels_mirror.h. */
#include "kernels_mirror.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

struct ops *mirror_cuda, *mirror_cpu;
ops_stream mirror_stream;

/* Memory beside kernels_support's: of the device only, and copies of it. */
static void *host_copies[MOST], *device_buffers[MOST];
static int host_count, device_count;
static void *workspace;
static size_t workspace_size;

static int run_now(ops_stream stream, void (*fn)(void *arg), void *arg)
{
    (void)stream;
    fn(arg);
    return 0;
}

int mirror_open(void)
{
    int status = kernels_open();

    if (status)
        return status;
    mirror_cuda = kernels_ops;
    mirror_stream = (ops_stream)kernels_stream;
    return ops_cpu_open(run_now, NULL, &mirror_cpu);
}

void *mirror_workspace(size_t bytes)
{
    if (bytes > workspace_size) {
        cudaFree(workspace);
        TEST_ASSERT_EQUAL_INT(0, cudaMalloc(&workspace, bytes));
        workspace_size = bytes;
    }
    return workspace;
}

struct mirror mirror_values(enum ops_type type, size_t count)
{
    struct buffer b = kernels_random(type, count, 1.0f);

    return (struct mirror){type, count, b.at[ON_HOST], b.at[ON_DEVICE]};
}

uint8_t *mirror_bytes(size_t count, uint8_t **device)
{
    uint8_t *bytes = malloc(count + 1);
    struct buffer b;

    TEST_ASSERT_NOT_NULL(bytes);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(127.5f + 127.5f * kernels_uniform());
    b = kernels_bytes(bytes, count);
    free(bytes);
    *device = b.at[ON_DEVICE];
    return b.at[ON_HOST];
}

/* A block of a few MiB of random values, repeated. */
void *mirror_device(enum ops_type type, size_t count)
{
    enum { PIECE = 1 << 20 };
    size_t size = ops_type_bytes(type);
    char *host = malloc(PIECE * size);
    void *device = NULL;

    TEST_ASSERT_NOT_NULL(host);
    TEST_ASSERT_TRUE(device_count < MOST);
    TEST_ASSERT_EQUAL_INT(0, cudaMalloc(&device, count * size + 1));
    device_buffers[device_count++] = device;
    for (size_t i = 0; i < PIECE; i++)
        types_store(host, type, i, kernels_uniform());
    for (size_t at = 0; at < count; at += PIECE)
        TEST_ASSERT_EQUAL_INT(0, kernels_upload((char *)device + at * size, host,
                                                (count - at < PIECE ? count - at : PIECE) * size));
    free(host);
    return device;
}

void *mirror_download(const struct mirror *m)
{
    size_t bytes = m->count * ops_type_bytes(m->type);
    void *host = malloc(bytes + 1);

    TEST_ASSERT_NOT_NULL(host);
    TEST_ASSERT_TRUE(host_count < MOST);
    host_copies[host_count++] = host;
    TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize(kernels_stream));
    TEST_ASSERT_EQUAL_INT(0, cudaMemcpy(host, m->device, bytes, cudaMemcpyDeviceToHost));
    return host;
}

static double rounding_of(enum ops_type type)
{
    return type == OPS_F32 ? FLT_EPSILON : type == OPS_BF16 ? 0x1p-8 : 0x1p-11;
}

void mirror_compare_as(const char *what, const struct mirror *m, double terms, enum ops_type rounding)
{
    const void *got = mirror_download(m);

    for (size_t i = 0; i < m->count; i++) {
        double expected = (double)types_load(m->host, m->type, i),
               value = (double)types_load(got, m->type, i);
        double allowed = 2.0 * rounding_of(rounding) * fabs(expected) + terms * FLT_EPSILON + 0x1p-24;

        if (!(fabs(expected - value) <= allowed)) {
            char message[200];

            snprintf(message, sizeof(message),
                     "%s, type %d, element %zu of %zu: expected %.9g, got %.9g, allowed %.3g", what, m->type,
                     i, m->count, expected, value, allowed);
            TEST_FAIL_MESSAGE(message);
        }
    }
}

void mirror_compare(const char *what, const struct mirror *m, double terms)
{
    mirror_compare_as(what, m, terms, m->type);
}

void mirror_release(void)
{
    kernels_free_all();
    while (device_count > 0)
        cudaFree(device_buffers[--device_count]);
    while (host_count > 0)
        free(host_copies[--host_count]);
}
