/* See kernels_mirror.h. */
#include "kernels_mirror.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops_cpu.h"
#include "types.h"
#include "unity.h"

enum { MOST = 256 };

struct ops *mirror_cuda, *mirror_cpu;
ops_stream mirror_stream;

static void *host_buffers[MOST], *device_buffers[MOST];
static int host_count, device_count;
static uint64_t random_state = 1;

static int run_now(ops_stream stream, void (*fn)(void *arg), void *arg)
{
    (void)stream;
    fn(arg);
    return 0;
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
    return open_table(sizeof(struct ops), &mirror_cuda);
}

int mirror_open(void)
{
    struct cudaDeviceProp properties;
    int devices = 0;

    if (cudaGetDeviceCount(&devices) || devices == 0 || cudaGetDeviceProperties(&properties, 0) ||
        strcmp(properties.name, "simgpu") == 0) {
        printf("no GPU: skipped\n");
        return MIRROR_SKIPPED;
    }
    if (open_cuda_table() || ops_cpu_open(run_now, NULL, &mirror_cpu) ||
        cudaStreamCreateWithFlags((cudaStream_t *)&mirror_stream, cudaStreamNonBlocking)) {
        fprintf(stderr, "the tables or a stream could not be opened\n");
        return EXIT_FAILURE;
    }
    return 0;
}

static void *new_host(size_t bytes)
{
    void *p = calloc(bytes ? bytes : 1, 1);

    TEST_ASSERT_NOT_NULL(p);
    TEST_ASSERT_TRUE(host_count < MOST);
    return host_buffers[host_count++] = p;
}

static void *new_device(size_t bytes)
{
    void *p = NULL;

    TEST_ASSERT_TRUE(device_count < MOST);
    TEST_ASSERT_EQUAL_INT(0, cudaMalloc(&p, bytes ? bytes : 1));
    return device_buffers[device_count++] = p;
}

void *mirror_workspace(size_t bytes)
{
    return new_device(bytes);
}

static uint32_t next_random(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static void upload(void *device, const void *host, size_t bytes)
{
    TEST_ASSERT_EQUAL_INT(0, cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
}

struct mirror mirror_values(enum ops_type type, size_t count)
{
    size_t bytes = count * ops_type_bytes(type);
    struct mirror m = {type, count, new_host(bytes), new_device(bytes)};

    for (size_t i = 0; i < count; i++)
        types_store(m.host, type, i, (float)(int32_t)next_random() / (float)(1u << 31));
    upload(m.device, m.host, bytes);
    return m;
}

uint8_t *mirror_bytes(size_t count, uint8_t **device)
{
    uint8_t *host = new_host(count);

    for (size_t i = 0; i < count; i++)
        host[i] = (uint8_t)(next_random() >> 24);
    *device = new_device(count);
    upload(*device, host, count);
    return host;
}

/* A block of a few MiB of random values, repeated. */
void *mirror_device(enum ops_type type, size_t count)
{
    enum { PIECE = 1 << 20 };
    size_t size = ops_type_bytes(type);
    char *device = new_device(count * size);
    void *host = malloc(PIECE * size);

    TEST_ASSERT_NOT_NULL(host);
    for (size_t i = 0; i < PIECE; i++)
        types_store(host, type, i, (float)(int32_t)next_random() / (float)(1u << 31));
    for (size_t at = 0; at < count; at += PIECE)
        upload(device + at * size, host, (count - at < PIECE ? count - at : PIECE) * size);
    free(host);
    return device;
}

void *mirror_download(const struct mirror *m)
{
    void *host = new_host(m->count * ops_type_bytes(m->type));

    TEST_ASSERT_EQUAL_INT(0, cudaStreamSynchronize((cudaStream_t)mirror_stream));
    TEST_ASSERT_EQUAL_INT(
        0, cudaMemcpy(host, m->device, m->count * ops_type_bytes(m->type), cudaMemcpyDeviceToHost));
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
    cudaStreamSynchronize((cudaStream_t)mirror_stream);
    while (device_count > 0)
        cudaFree(device_buffers[--device_count]);
    while (host_count > 0)
        free(host_buffers[--host_count]);
}
