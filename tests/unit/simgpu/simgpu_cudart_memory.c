/* The simulated runtime: allocation, devices, the last error, threads, reset and fork. */
#include "tests/unit/simgpu/simgpu_cudart_support.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

void setUp(void)
{
    OK(cudaSetDevice(0));
}

void tearDown(void)
{
    FAILS(cudaSuccess, cudaGetLastError());
}

static void test_a_size_of_zero_and_a_null_pointer_are_no_errors(void)
{
    void *p = (void *)1;
    OK(cudaMalloc(&p, 0));
    TEST_ASSERT_NULL(p);
    OK(cudaFree(NULL));
    OK(cudaFreeHost(NULL));
}

static void test_the_last_error_is_kept_once_and_not_for_other_calls(void)
{
    void *p;
    FAILS(cudaErrorMemoryAllocation, cudaMalloc(&p, (size_t)1 << 50));
    OK(cudaMalloc(&p, 4096));
    FAILS(cudaErrorMemoryAllocation, cudaPeekAtLastError());
    FAILS(cudaErrorMemoryAllocation, cudaGetLastError());
    FAILS(cudaSuccess, cudaGetLastError());
    OK(cudaFree(p));
    FAILS(cudaErrorInvalidValue, cudaFree(p));
    FAILS(cudaErrorInvalidValue, cudaGetLastError());
}

static void *fail_in_thread(void *arg)
{
    void *p;
    (void)arg;
    if (cudaMalloc(&p, (size_t)1 << 50) != cudaErrorMemoryAllocation ||
        cudaPeekAtLastError() != cudaErrorMemoryAllocation)
        return (void *)(uintptr_t) "the thread's own error is missing";
    return NULL;
}

static void test_the_last_error_belongs_to_its_thread(void)
{
    pthread_t thread;
    void *complaint;
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, fail_in_thread, NULL));
    TEST_ASSERT_EQUAL_INT(0, pthread_join(thread, &complaint));
    TEST_ASSERT_NULL_MESSAGE(complaint, complaint);
    FAILS(cudaSuccess, cudaPeekAtLastError());
}

static void test_devices_are_chosen_by_thread_and_described(void)
{
    int count = 0, device = -1;
    char bus[32];
    struct cudaDeviceProp prop;
    size_t free_bytes, total;
    OK(cudaGetDeviceCount(&count));
    TEST_ASSERT_EQUAL_INT(2, count);
    FAILS(cudaErrorInvalidDevice, cudaSetDevice(2));
    FAILS(cudaErrorInvalidDevice, cudaGetLastError());
    OK(cudaSetDevice(1));
    OK(cudaGetDevice(&device));
    TEST_ASSERT_EQUAL_INT(1, device);
    OK(cudaGetDeviceProperties(&prop, 1));
    TEST_ASSERT_EQUAL_STRING("simgpu", prop.name);
    OK(cudaMemGetInfo(&free_bytes, &total));
    TEST_ASSERT_EQUAL_UINT64(128 * MIB, total);
    TEST_ASSERT_EQUAL_UINT64(total, prop.totalGlobalMem);
    TEST_ASSERT_EQUAL_INT(9, prop.major);
    TEST_ASSERT_EQUAL_INT(32, prop.warpSize);
    OK(cudaDeviceGetPCIBusId(bus, sizeof(bus), 1));
    OK(cudaDeviceGetByPCIBusId(&device, bus));
    TEST_ASSERT_EQUAL_INT(1, device);
    OK(cudaDeviceGetAttribute(&count, cudaDevAttrMemoryPoolsSupported, 0));
    TEST_ASSERT_EQUAL_INT(1, count);
}

static void test_memory_is_counted_and_given_back(void)
{
    size_t before, during, after, total;
    void *p;
    OK(cudaMemGetInfo(&before, &total));
    OK(cudaMalloc(&p, 16 * MIB));
    OK(cudaMemGetInfo(&during, &total));
    OK(cudaFree(p));
    OK(cudaMemGetInfo(&after, &total));
    TEST_ASSERT_EQUAL_UINT64(16 * MIB, before - during);
    TEST_ASSERT_EQUAL_UINT64(before, after);
}

static void test_every_kind_of_memory_says_what_it_is(void)
{
    void *device, *host, *managed, *mapped, *own = malloc(16);
    struct cudaPointerAttributes a;
    OK(cudaMalloc(&device, 4096));
    OK(cudaHostAlloc(&host, 4096, cudaHostAllocMapped));
    OK(cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal));
    OK(cudaPointerGetAttributes(&a, device));
    TEST_ASSERT_EQUAL_INT(cudaMemoryTypeDevice, a.type);
    TEST_ASSERT_EQUAL_PTR(device, a.devicePointer);
    OK(cudaPointerGetAttributes(&a, host));
    TEST_ASSERT_EQUAL_INT(cudaMemoryTypeHost, a.type);
    OK(cudaPointerGetAttributes(&a, managed));
    TEST_ASSERT_EQUAL_INT(cudaMemoryTypeManaged, a.type);
    OK(cudaPointerGetAttributes(&a, own));
    TEST_ASSERT_EQUAL_INT(cudaMemoryTypeUnregistered, a.type);
    OK(cudaHostGetDevicePointer(&mapped, host, 0));
    TEST_ASSERT_NOT_NULL(mapped);
    OK(cudaFree(device));
    OK(cudaFreeHost(host));
    OK(cudaFree(managed));
    free(own);
}

static void test_registered_memory_is_pinned_until_it_is_unregistered(void)
{
    static char page[1 << 16] __attribute__((aligned(4096)));
    struct cudaPointerAttributes a;
    OK(cudaHostRegister(page, sizeof(page), cudaHostRegisterDefault));
    OK(cudaPointerGetAttributes(&a, page));
    TEST_ASSERT_EQUAL_INT(cudaMemoryTypeHost, a.type);
    FAILS(cudaErrorHostMemoryAlreadyRegistered,
          cudaHostRegister(page, sizeof(page), cudaHostRegisterDefault));
    OK(cudaHostUnregister(page));
    FAILS(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(page));
    FAILS(cudaErrorHostMemoryNotRegistered, cudaGetLastError());
}

static void test_a_reset_frees_everything_and_the_device_works_again(void)
{
    size_t before, after, total;
    void *p;
    OK(cudaFree(NULL));
    OK(cudaMemGetInfo(&before, &total));
    OK(cudaMalloc(&p, 16 * MIB));
    OK(cudaDeviceReset());
    OK(cudaMemGetInfo(&after, &total));
    TEST_ASSERT_EQUAL_UINT64(before, after);
    FAILS(cudaErrorInvalidValue, cudaFree(p));
    FAILS(cudaErrorInvalidValue, cudaGetLastError());
    OK(cudaMalloc(&p, 4096));
    OK(cudaFree(p));
}

static void test_a_child_of_fork_gets_an_initialization_error(void)
{
    int status;
    OK(cudaFree(NULL));
    pid_t pid = fork();
    TEST_ASSERT_TRUE(pid >= 0);
    if (!pid) {
        void *p;
        _exit(cudaMalloc(&p, 4096) == cudaErrorInitializationError ? 0 : 1);
    }
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_codes_have_the_real_names_and_texts(void)
{
    TEST_ASSERT_EQUAL_STRING("cudaErrorMemoryAllocation", cudaGetErrorName(cudaErrorMemoryAllocation));
    TEST_ASSERT_EQUAL_STRING("out of memory", cudaGetErrorString(cudaErrorMemoryAllocation));
    TEST_ASSERT_EQUAL_STRING("unrecognized error code", cudaGetErrorString((cudaError_t)12345));
}

static void test_driver_entry_points_come_from_the_driver(void)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult status;
    OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 13000, cudaEnableDefault, &status));
    TEST_ASSERT_EQUAL_INT(cudaDriverEntryPointSuccess, status);
    TEST_ASSERT_NOT_NULL(function);
    OK(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &function, 13000, cudaEnableDefault, &status));
    TEST_ASSERT_EQUAL_INT(cudaDriverEntryPointSymbolNotFound, status);
    TEST_ASSERT_NULL(function);
}

int main(void)
{
    cudart_own_machine("2x128M;ctx=4M");
    UNITY_BEGIN();
    RUN_TEST(test_a_size_of_zero_and_a_null_pointer_are_no_errors);
    RUN_TEST(test_the_last_error_is_kept_once_and_not_for_other_calls);
    RUN_TEST(test_the_last_error_belongs_to_its_thread);
    RUN_TEST(test_devices_are_chosen_by_thread_and_described);
    RUN_TEST(test_memory_is_counted_and_given_back);
    RUN_TEST(test_every_kind_of_memory_says_what_it_is);
    RUN_TEST(test_registered_memory_is_pinned_until_it_is_unregistered);
    RUN_TEST(test_a_reset_frees_everything_and_the_device_works_again);
    RUN_TEST(test_a_child_of_fork_gets_an_initialization_error);
    RUN_TEST(test_codes_have_the_real_names_and_texts);
    RUN_TEST(test_driver_entry_points_come_from_the_driver);
    return UNITY_END();
}
