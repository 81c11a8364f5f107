/* Kernels of a program compiled by nvcc, as its constructors and stubs call the runtime. */
#include "tests/unit/simgpu/simgpu_cudart_support.h"
#include "tools/simgpu/simgpu.h"

#include <stddef.h>
#include <string.h>
#include <vector_types.h>

void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *name,
                            int thread_limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host_function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                               cudaStream_t stream);

/* What simgpu runs for the kernel "add": found by name in the program. */
simgpu_kernel simgpu_kernel_add;
extern const unsigned simgpu_params_add[];
const unsigned simgpu_params_add[] = {sizeof(float *), sizeof(float), sizeof(int), 0};

void simgpu_kernel_add(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block)
{
    float *data = *(float **)args[0], value = *(float *)args[1];
    int count = *(int *)args[2], threads = (int)(grid->x * block->x);
    for (int i = 0; i < count && i < threads; i++)
        data[i] += value;
}

/* In place of the stubs that nvcc generates; only their addresses matter. */
static char add_stub, unknown_stub;
static void **binary;

void setUp(void)
{
    static char image[16];
    binary = __cudaRegisterFatBinary(image);
    __cudaRegisterFunction(binary, &add_stub, &add_stub, "add", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFunction(binary, &unknown_stub, &unknown_stub, "unknown", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(binary);
}

void tearDown(void)
{
    __cudaUnregisterFatBinary(binary);
    FAILS(cudaSuccess, cudaGetLastError());
}

static void test_a_kernel_with_a_host_function_runs_in_stream_order(void)
{
    enum { COUNT = 100 };
    float *data, back[COUNT], value = 2.5f;
    int count = COUNT;
    dim3 grid = {4, 1, 1}, block = {32, 1, 1};
    cudaStream_t s;
    OK(cudaStreamCreate(&s));
    OK(cudaMalloc((void **)&data, sizeof(back)));
    OK(cudaMemsetAsync(data, 0, sizeof(back), s));
    void *args[] = {&data, &value, &count};
    OK(cudaLaunchKernel(&add_stub, grid, block, args, 0, s));
    value = 0.5f; /* the first launch has its own copy */
    OK(cudaLaunchKernel(&add_stub, grid, block, args, 0, s));
    OK(cudaMemcpyAsync(back, data, sizeof(back), cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    for (int i = 0; i < COUNT; i++)
        TEST_ASSERT_EQUAL_FLOAT(3.0f, back[i]);
    OK(cudaFree(data));
    OK(cudaStreamDestroy(s));
}

static void test_a_launch_by_stub_takes_its_configuration(void)
{
    float *data, back = 0, value = 1.5f;
    int count = 1;
    dim3 grid = {1, 1, 1}, block = {1, 1, 1}, got_grid, got_block;
    size_t shared_bytes = 7;
    cudaStream_t s = (cudaStream_t)1;
    cudaKernel_t kernel;
    OK(cudaMalloc((void **)&data, sizeof(back)));
    OK(cudaMemset(data, 0, sizeof(back)));
    void *args[] = {&data, &value, &count};
    TEST_ASSERT_EQUAL_UINT(0, __cudaPushCallConfiguration(grid, block, 0, NULL));
    OK(__cudaGetKernel(&kernel, &add_stub));
    OK(__cudaPopCallConfiguration(&got_grid, &got_block, &shared_bytes, &s));
    TEST_ASSERT_NULL(s);
    OK(__cudaLaunchKernel(kernel, got_grid, got_block, args, shared_bytes, s));
    OK(cudaMemcpy(&back, data, sizeof(back), cudaMemcpyDeviceToHost));
    TEST_ASSERT_EQUAL_FLOAT(1.5f, back);
    FAILS(cudaErrorMissingConfiguration,
          __cudaPopCallConfiguration(&got_grid, &got_block, &shared_bytes, &s));
    FAILS(cudaErrorMissingConfiguration, cudaGetLastError());
    OK(cudaFree(data));
}

static void test_a_kernel_without_a_host_function_is_an_invalid_device_function(void)
{
    dim3 one = {1, 1, 1}, none = {0, 1, 1};
    void *args[] = {NULL};
    int unregistered;
    struct cudaFuncAttributes attributes;
    FAILS(cudaErrorInvalidDeviceFunction, cudaLaunchKernel(&unknown_stub, one, one, args, 0, NULL));
    FAILS(cudaErrorInvalidDeviceFunction, cudaLaunchKernel(&unregistered, one, one, args, 0, NULL));
    FAILS(cudaErrorInvalidDeviceFunction, cudaFuncGetAttributes(&attributes, &unknown_stub));
    FAILS(cudaErrorInvalidConfiguration, cudaLaunchKernel(&add_stub, none, one, args, 0, NULL));
    FAILS(cudaErrorInvalidConfiguration, cudaGetLastError());
    OK(cudaFuncGetAttributes(&attributes, &add_stub));
    TEST_ASSERT_EQUAL_INT(1024, attributes.maxThreadsPerBlock);
}

int main(void)
{
    cudart_own_machine("1x128M;ctx=4M");
    UNITY_BEGIN();
    RUN_TEST(test_a_kernel_with_a_host_function_runs_in_stream_order);
    RUN_TEST(test_a_launch_by_stub_takes_its_configuration);
    RUN_TEST(test_a_kernel_without_a_host_function_is_an_invalid_device_function);
    return UNITY_END();
}
