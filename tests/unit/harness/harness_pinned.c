/* The arena of pinned memory on the simulated GPU: the runtime knows its blocks as pinned, the limit holds,
 * memory is used again and goes back, and the program's malloc stays its own. Runs with a MALLOC_CONF that
 * would abort any jemalloc that reads it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/simgpu/simgpu_cudart_support.h"
#include "harness/memory/pinned.h"

enum { BLOCKS = 8, THREADS = 4, ROUNDS = 300 };

static struct pinned *pinned;

#ifdef ODD_ALIGNMENT
/* As a real driver does with small blocks: aligned to 512 bytes only. Linked with --wrap. */
enum { ODD = 512 };

cudaError_t __real_cudaHostAlloc(void **out, size_t bytes, unsigned flags);
cudaError_t __wrap_cudaHostAlloc(void **out, size_t bytes, unsigned flags);
cudaError_t __real_cudaFreeHost(void *block);
cudaError_t __wrap_cudaFreeHost(void *block);

cudaError_t __wrap_cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    cudaError_t error = __real_cudaHostAlloc(out, bytes + ODD, flags);

    *out = (char *)*out + (error ? 0 : ODD);
    return error;
}

cudaError_t __wrap_cudaFreeHost(void *block)
{
    return __real_cudaFreeHost((char *)block - ODD);
}
#endif

void setUp(void)
{
    TEST_ASSERT_EQUAL_INT(STATUS_OK, pinned_open(&pinned, 64 * MIB));
}

void tearDown(void)
{
    pinned_close(pinned);
}

static void test_blocks_are_pinned_for_the_runtime_and_can_be_copied_from(void)
{
    struct cudaPointerAttributes attributes;
    char *block = pinned_alloc(pinned, 3 * MIB), *device, *back = pinned_alloc(pinned, 3 * MIB);

    TEST_ASSERT_TRUE(block && back);
    for (size_t at = 0; at < 3 * MIB; at += MIB - 1) {
        OK(cudaPointerGetAttributes(&attributes, block + at));
        TEST_ASSERT_EQUAL_INT(cudaMemoryTypeHost, attributes.type);
    }
    memset(block, 0x5a, 3 * MIB);
    OK(cudaMalloc((void **)&device, 3 * MIB));
    OK(cudaMemcpy(device, block, 3 * MIB, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(back, device, 3 * MIB, cudaMemcpyDeviceToHost));
    TEST_ASSERT_EQUAL_MEMORY(block, back, 3 * MIB);
    OK(cudaFree(device));
}

static void test_the_limit_holds_and_is_no_end(void)
{
    void *block[BLOCKS];
    int got = 0;

    for (int i = 0; i < BLOCKS; i++) {
        block[i] = pinned_alloc(pinned, 12 * MIB + 100);
        got += block[i] != NULL;
        TEST_ASSERT_LESS_OR_EQUAL_size_t(64 * MIB, pinned_held(pinned));
    }
    TEST_ASSERT_TRUE(got >= 4 && got <= 5);
    TEST_ASSERT_NULL(pinned_alloc(pinned, SIZE_MAX / 2));
    pinned_free(pinned, block[0]);
    TEST_ASSERT_NOT_NULL(pinned_alloc(pinned, 12 * MIB));
}

static void test_blocks_of_every_size_are_whole(void)
{
    for (size_t bytes = 1; bytes < 8 * MIB; bytes = bytes * 5 / 3 + 1) {
        uint8_t *block = pinned_alloc(pinned, bytes);

        TEST_ASSERT_NOT_NULL(block);
        memset(block, 0x33, bytes);
        pinned_free(pinned, block);
    }
}

static void test_freed_memory_is_used_again_and_goes_back_when_asked(void)
{
    size_t held = 0;

    for (int i = 0; i < 50; i++) {
        char *one = pinned_alloc(pinned, 5 * MIB), *small = pinned_alloc(pinned, 100);

        TEST_ASSERT_TRUE(one && small);
        one[5 * MIB - 1] = 1;
        memset(small, i, 100);
        held = i ? held : pinned_held(pinned);
        TEST_ASSERT_EQUAL_size_t(held, pinned_held(pinned));
        pinned_free(pinned, one);
        pinned_free(pinned, small);
    }
    pinned_trim(pinned);
    TEST_ASSERT_EQUAL_size_t(0, pinned_held(pinned));
}

static void test_closing_returns_blocks_that_are_in_use(void)
{
    struct cudaPointerAttributes attributes;
    char *block = pinned_alloc(pinned, MIB);

    TEST_ASSERT_NOT_NULL(block);
    pinned_close(pinned);
    pinned = NULL;
    if (cudaPointerGetAttributes(&attributes, block) == cudaSuccess)
        TEST_ASSERT_EQUAL_INT(cudaMemoryTypeUnregistered, attributes.type);
}

static void *churn(void *argument)
{
    uintptr_t me = (uintptr_t)argument;
    size_t bytes[BLOCKS] = {0};
    uint8_t *block[BLOCKS] = {0};
    uint64_t state = me;

    for (int i = 0; i < ROUNDS; i++) {
        int at = i % BLOCKS;

        state = state * 6364136223846793005u + 1442695040888963407u;
        for (size_t b = 0; block[at] && b < bytes[at]; b += 509) {
            if (block[at][b] != (uint8_t)(me * BLOCKS + (unsigned)at))
                return (void *)1;
        }
        pinned_free(pinned, block[at]);
        bytes[at] = (state >> 33) % (256 << 10);
        block[at] = pinned_alloc(pinned, bytes[at]);
        if (!block[at])
            return (void *)2;
        memset(block[at], (int)(me * BLOCKS + (unsigned)at), bytes[at]);
    }
    for (int at = 0; at < BLOCKS; at++)
        pinned_free(pinned, block[at]);
    return NULL;
}

static void test_threads_never_share_a_block(void)
{
    pthread_t thread[THREADS];

    for (uintptr_t i = 0; i < THREADS; i++)
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread[i], NULL, churn, (void *)(i + 1)));
    for (int i = 0; i < THREADS; i++) {
        void *result;

        pthread_join(thread[i], &result);
        TEST_ASSERT_NULL(result);
    }
}

static void test_the_programs_malloc_is_not_jemallocs(void)
{
    Dl_info of_malloc, of_program;

    TEST_ASSERT_NOT_EQUAL_INT(0, dladdr(dlsym(RTLD_DEFAULT, "malloc"), &of_malloc));
    TEST_ASSERT_NOT_EQUAL_INT(0, dladdr((void *)(uintptr_t)setUp, &of_program));
    TEST_ASSERT_TRUE(of_malloc.dli_fbase != of_program.dli_fbase);
    TEST_ASSERT_NULL(dlsym(RTLD_DEFAULT, "mallocx"));
    TEST_ASSERT_NULL(dlsym(RTLD_DEFAULT, "mallctl"));
}

int main(void)
{
#ifdef TEST_ON_GPU
    int devices = 0;

    if (cudaGetDeviceCount(&devices) || devices == 0)
        return 77;
#else
    cudart_own_machine("1x1GiB");
#endif
    UNITY_BEGIN();
    RUN_TEST(test_blocks_are_pinned_for_the_runtime_and_can_be_copied_from);
    RUN_TEST(test_the_limit_holds_and_is_no_end);
    RUN_TEST(test_blocks_of_every_size_are_whole);
    RUN_TEST(test_freed_memory_is_used_again_and_goes_back_when_asked);
    RUN_TEST(test_closing_returns_blocks_that_are_in_use);
    RUN_TEST(test_threads_never_share_a_block);
    RUN_TEST(test_the_programs_malloc_is_not_jemallocs);
    return UNITY_END();
}
