/* simgpu_kernel: modules, libraries and launches of host functions on the simulated driver. */
#include "tests/unit/simgpu/simgpu_support.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

static CUmodule module;

void simgpu_kernel_own_sum(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block);

void setUp(void)
{
    sim_begin();
    OK(cuModuleLoadData(&module, sim_ptx));
}

void tearDown(void)
{
    OK(cuModuleUnload(module));
    sim_end();
}

struct pair {
    uint64_t a, b;
};

/* The program's own kernel: *where = pair.a + pair.b + small, and the number of threads behind it. */
void simgpu_kernel_own_sum(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block)
{
    uint64_t *where = *(uint64_t **)args[0];
    struct pair pair;

    memcpy(&pair, args[1], sizeof(pair));
    where[0] = pair.a + pair.b + *(unsigned char *)args[2];
    where[1] = (uint64_t)grid->x * block->x;
}

static CUfunction function_of(const char *name)
{
    CUfunction function = NULL;

    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

static void test_kernels_run_in_stream_order(void)
{
    enum { COUNT = 1000 };
    CUfunction fill = function_of("fill_u32"), copy = function_of("copy_u32"),
               check = function_of("check_u32");
    CUdeviceptr a, b, wrong;
    unsigned int value = 42, other = 43, seen = 1;
    uint64_t count = COUNT;

    OK(cuMemAlloc(&a, COUNT * 4));
    OK(cuMemAlloc(&b, COUNT * 4));
    OK(cuMemAlloc(&wrong, 4));
    OK(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&a, &value, &count}, NULL));
    OK(cuLaunchKernel(copy, 4, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&b, &a, &count}, NULL));
    OK(cuLaunchKernel(check, 4, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&b, &value, &count, &wrong}, NULL));
    OK(cuMemcpyDtoH(&seen, wrong, 4));
    TEST_ASSERT_EQUAL_UINT32(0, seen);
    OK(cuLaunchKernel(check, 4, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&b, &other, &count, &wrong}, NULL));
    OK(cuMemcpyDtoH(&seen, wrong, 4));
    TEST_ASSERT_EQUAL_UINT32(COUNT, seen);
    OK(cuMemFree(a));
    OK(cuMemFree(b));
    OK(cuMemFree(wrong));
}

static void test_the_programs_own_function_gets_its_arguments(void)
{
    CUfunction own = function_of("own_sum");
    struct pair pair = {1000, 200};
    unsigned char small = 30;
    uint64_t seen[2] = {0, 0};
    struct {
        CUdeviceptr where;
        struct pair pair;
        unsigned char small;
    } buffer;
    size_t size = sizeof(buffer), offset, width;
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 16));
    OK(cuLaunchKernel(own, 3, 1, 1, 7, 1, 1, 0, NULL, (void *[]){&p, &pair, &small}, NULL));
    pair.a = 0; /* arguments are copied at the launch */
    OK(cuMemcpyDtoH(seen, p, 16));
    TEST_ASSERT_EQUAL_UINT64(1230, seen[0]);
    TEST_ASSERT_EQUAL_UINT64(21, seen[1]);
    OK(cuFuncGetParamInfo(own, 1, &offset, &width));
    TEST_ASSERT_EQUAL_UINT64(8, offset);
    TEST_ASSERT_EQUAL_UINT64(16, width);
    IS(1, cuFuncGetParamInfo(own, 3, &offset, &width));
    memset(&buffer, 0, sizeof(buffer));
    buffer.where = p;
    buffer.pair = (struct pair){1, 2};
    buffer.small = 3;
    OK(cuLaunchKernel(own, 1, 1, 1, 1, 1, 1, 0, NULL, NULL,
                      (void *[]){CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                                 CU_LAUNCH_PARAM_END}));
    OK(cuMemcpyDtoH(seen, p, 16));
    TEST_ASSERT_EQUAL_UINT64(6, seen[0]);
    OK(cuMemFree(p));
}

static void test_unknown_names_are_not_found(void)
{
    CUfunction function;
    CUdeviceptr p;
    size_t size;
    unsigned int count;
    CUmodule other;

    IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "spin_ns"));
    IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "hidden"));
    IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "nobody_knows"));
    IS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&p, &size, module, "fill_u32"));
    OK(cuModuleGetFunctionCount(&count, module));
    TEST_ASSERT_EQUAL_UINT(5, count);
    IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&other, "\177ELF"));
    IS(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&function, (CUmodule)&count, "fill_u32"));
}

static void test_bad_launches_are_refused(void)
{
    CUfunction fill = function_of("fill_u32");

    IS(1, cuLaunchKernel(fill, 0, 1, 1, 1, 1, 1, 0, NULL, (void *[]){NULL, NULL, NULL}, NULL));
    IS(1, cuLaunchKernel(fill, 1, 1, 1, 1025, 1, 1, 0, NULL, (void *[]){NULL, NULL, NULL}, NULL));
    IS(1, cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    IS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel((CUfunction)&fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

static void test_a_modules_variable_has_an_address(void)
{
    CUdeviceptr p, again;
    size_t size;

    OK(cuModuleGetGlobal(&p, &size, module, "table"));
    TEST_ASSERT_EQUAL_UINT64(64, size);
    OK(cuMemsetD8(p, 1, 64));
    IS(1, cuMemFree(p));
    OK(cuModuleGetGlobal(&again, NULL, module, "table"));
    TEST_ASSERT_EQUAL_UINT64(p, again);
}

static void test_a_librarys_kernel_can_be_launched_and_captured(void)
{
    CUlaunchConfig config = {
        .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1};
    unsigned int value = 8, seen = 0;
    uint64_t count = 4;
    CUlibrary library;
    CUfunction function;
    CUgraphExec exec;
    CUkernel kernel;
    CUstream stream;
    CUgraph graph;
    CUdeviceptr p;

    OK(cuMemAlloc(&p, 16));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuLibraryLoadData(&library, sim_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "fill_u32"));
    OK(cuKernelGetFunction(&function, kernel));
    OK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 32, 1, 1, 0, stream, (void *[]){&p, &value, &count},
                      NULL));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    config.hStream = stream;
    value = 9;
    OK(cuLaunchKernelEx(&config, function, (void *[]){&p, &value, &count}, NULL));
    value = 10;
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuMemcpyDtoH(&seen, p, 4));
    TEST_ASSERT_EQUAL_UINT32(8, seen);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&seen, p + 12, 4));
    TEST_ASSERT_EQUAL_UINT32(9, seen);
    OK(cuGraphExecDestroy(exec));
    OK(cuLibraryUnload(library));
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(p));
}

static void test_spinning_kernels_end(void)
{
    static const char spin[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n"
        ".entry spin_ns(.param .u64 ns) { ret; }\n.entry spin_flag(.param .u64 flag) { ret; }\n";
    CUfunction ns, flag;
    CUmodule other;
    uint64_t short_time = 1000;
    CUstream stream;
    CUdeviceptr p;

    OK(cuModuleLoadData(&other, spin));
    OK(cuModuleGetFunction(&ns, other, "spin_ns"));
    OK(cuModuleGetFunction(&flag, other, "spin_flag"));
    OK(cuMemAlloc(&p, 4));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchKernel(ns, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&short_time}, NULL));
    OK(cuLaunchKernel(flag, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&p}, NULL));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    OK(cuStreamWriteValue32(NULL, p, 1, 0));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy(stream));
    OK(cuMemFree(p));
    OK(cuModuleUnload(other));
}

static void test_odd_ptx_does_no_harm(void)
{
    static const char *const texts[] = {
        ".version 7.0 .entry",
        ".version 7.0 .entry (",
        ".version 7.0 .entry f(",
        ".version 7.0 .entry f(.param",
        ".version 7.0 .entry f(.param .u64 a[99999999999999999999])",
        ".version 7.0 .entry f(.param .align 3 .b8 a[4])",
        ".version 7.0 .entry f(.param .b8 a[70000])",
        ".version 7.0 /* never closed",
        ".version 7.0 { { { .entry f()",
        ".version 7.0 .global .align 8",
        ".version 7.0 .const .u32 x[",
    };
    CUfunction function;
    CUdeviceptr p;
    CUmodule other;
    size_t i;

    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        OK(cuModuleLoadData(&other, texts[i]));
        IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, other, "f"));
        IS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&p, NULL, other, "x"));
        OK(cuModuleUnload(other));
    }
}

static void test_functions_are_listed_before_they_are_loaded(void)
{
    CUfunctionLoadingState state;
    CUfunction listed[9] = {NULL};
    const char *name;
    unsigned int count;
    uint64_t none = 0;
    CUdeviceptr p = 0;
    int i;

    OK(cuModuleGetFunctionCount(&count, module));
    OK(cuModuleEnumerateFunctions(listed, 9, module));
    for (i = 0; i < (int)count; i++) {
        OK(cuFuncIsLoaded(&state, listed[i]));
        TEST_ASSERT_EQUAL_INT(CU_FUNCTION_LOADING_STATE_UNLOADED, state);
    }
    TEST_ASSERT_NULL(listed[count]);
    OK(cuFuncGetName(&name, listed[1]));
    TEST_ASSERT_EQUAL_STRING("copy_u32", name);
    TEST_ASSERT_EQUAL_PTR(listed[1], function_of("copy_u32"));
    OK(cuFuncIsLoaded(&state, listed[1]));
    TEST_ASSERT_EQUAL_INT(CU_FUNCTION_LOADING_STATE_LOADED, state);
    OK(cuFuncLoad(listed[2]));
    OK(cuFuncIsLoaded(&state, listed[2]));
    TEST_ASSERT_EQUAL_INT(CU_FUNCTION_LOADING_STATE_LOADED, state);
    OK(cuLaunchKernel(listed[0], 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&p, &i, &none}, NULL));
    OK(cuFuncIsLoaded(&state, listed[0]));
    TEST_ASSERT_EQUAL_INT(CU_FUNCTION_LOADING_STATE_LOADED, state);
    IS(CUDA_ERROR_NOT_FOUND, cuLaunchKernel(listed[4], 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&p}, NULL));
    IS(CUDA_ERROR_INVALID_HANDLE, cuFuncIsLoaded(&state, (CUfunction)&state));
    IS(CUDA_ERROR_INVALID_HANDLE, cuModuleEnumerateFunctions(listed, 9, (CUmodule)&state));
    OK(cuCtxSynchronize());
}

static void test_a_librarys_kernels_are_listed(void)
{
    CUkernel listed[2], kernel;
    CUlibrary library;

    OK(cuLibraryLoadData(&library, sim_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryEnumerateKernels(listed, 2, library));
    OK(cuLibraryGetKernel(&kernel, library, "copy_u32"));
    TEST_ASSERT_EQUAL_PTR(kernel, listed[1]);
    OK(cuLibraryUnload(library));
}

/* ---- programmatic dependent launches ---- */

static const char pair_ptx[] = ".version 7.0\n.target sm_90\n.address_size 64\n"
                               ".visible .entry await_flag(.param .u64 flag) { ret; }\n"
                               ".visible .entry set_flag(.param .u64 flag) { ret; }\n";

void simgpu_kernel_await_flag(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block);
void simgpu_kernel_set_flag(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block);

void simgpu_kernel_await_flag(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block)
{
    (void)grid, (void)block;
    while (!atomic_load(*(_Atomic uint32_t **)args[0]))
        sched_yield();
}

void simgpu_kernel_set_flag(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block)
{
    (void)grid, (void)block;
    atomic_store(*(_Atomic uint32_t **)args[0], 1);
}

/* Launches a kernel with programmatic stream serialization, or without. */
static void launch_behind(CUfunction function, CUdeviceptr flag, CUstream stream, int allowed)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &attribute,
                             .numAttrs = 1};

    attribute.value.programmaticStreamSerializationAllowed = allowed;
    OK(cuLaunchKernelEx(&config, function, (void *[]){&flag}, NULL));
}

struct two_kernels {
    CUmodule module;
    CUfunction awaits, sets;
    CUstream stream;
    CUdeviceptr flag;
};

static void begin_two(struct two_kernels *two)
{
    OK(cuModuleLoadData(&two->module, pair_ptx));
    OK(cuModuleGetFunction(&two->awaits, two->module, "await_flag"));
    OK(cuModuleGetFunction(&two->sets, two->module, "set_flag"));
    OK(cuStreamCreate(&two->stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&two->flag, 8));
    OK(cuMemsetD32(two->flag, 0, 2));
    OK(cuCtxSynchronize());
}

static void end_two(const struct two_kernels *two)
{
    OK(cuMemFree(two->flag));
    OK(cuStreamDestroy(two->stream));
    OK(cuModuleUnload(two->module));
}

static void test_a_dependent_launch_begins_before_the_kernel_in_front_has_ended(void)
{
    struct two_kernels two;
    struct gate gate;

    gate_init(&gate);
    begin_two(&two);
    gate_put(&gate, two.stream);
    launch_behind(two.awaits, two.flag, two.stream, 0);
    launch_behind(two.sets, two.flag, two.stream, 1); /* without it the first would wait for ever */
    OK(cuMemsetD32Async(two.flag, 7, 1, two.stream)); /* behind both */
    TEST_ASSERT_EQUAL_UINT32(0, *(volatile uint32_t *)(uintptr_t)two.flag);
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(two.stream));
    gate_open(&gate);
    OK(cuStreamSynchronize(two.stream));
    TEST_ASSERT_EQUAL_UINT32(7, *(volatile uint32_t *)(uintptr_t)two.flag);
    gate_end(&gate);
    end_two(&two);
}

static void test_other_launches_wait_for_the_kernel_in_front(void)
{
    struct two_kernels two;

    begin_two(&two);
    launch_behind(two.awaits, two.flag, two.stream, 1); /* nothing is in front of it */
    launch_behind(two.sets, two.flag + 4, two.stream, 0);
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(two.stream));
    TEST_ASSERT_EQUAL_UINT32(0, *(volatile uint32_t *)(uintptr_t)(two.flag + 4));
    OK(cuStreamDestroy(two.stream)); /* what it has ends all the same */
    OK(cuStreamCreate(&two.stream, CU_STREAM_NON_BLOCKING));
    launch_behind(two.sets, two.flag, two.stream, 1);
    OK(cuCtxSynchronize());
    end_two(&two);
}

#define THREADS (UINT64_C(132) * 2048) /* that an H200 runs at once */

static const char local_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry fill_u32(.param .u64 a, .param .u32 v, .param .u64 n)\n.maxntid 128, 1, 1\n"
    "{ .reg .b32 %r<2>; .local .align 16 .b8 __local_depot0[2044]; { .local .u32 x; } ret; }\n"
    ".visible .entry copy_u32(.param .u64 to, .param .u64 from, .param .u64 n)\n"
    "{ .local .align 8 .b8 __local_depot1[262144]; ret; }\n"
    ".visible .entry check_u32(.param .u64 a, .param .u32 v, .param .u64 n, .param .u64 w) { ret; }\n";

static void expect_local(CUfunction function, int bytes)
{
    int seen = -1;

    OK(cuFuncGetAttribute(&seen, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function));
    TEST_ASSERT_EQUAL_INT(bytes, seen);
}

static void test_a_context_grows_by_the_local_memory_of_a_kernel(void)
{
    CUfunction fill, copy, check, function;
    int local = -1;
    CUdeviceptr p = 0;
    uint64_t none = 0;
    unsigned int value = 0;
    size_t before, grown;
    CUmodule other;
    CUlibrary library;
    CUkernel kernel;

    OK(cuModuleLoadData(&other, local_ptx));
    OK(cuModuleGetFunction(&fill, other, "fill_u32"));
    OK(cuModuleGetFunction(&copy, other, "copy_u32"));
    OK(cuModuleGetFunction(&check, other, "check_u32"));
    expect_local(fill, 2048);
    expect_local(copy, 262144);
    expect_local(check, 0);
    OK(cuLibraryLoadData(&library, local_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "fill_u32"));
    OK(cuKernelGetAttribute(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel, 0));
    TEST_ASSERT_EQUAL_INT(2048, local);
    OK(cuKernelGetFunction(&function, kernel));
    expect_local(function, 2048);
    before = sim_free();
    OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&p, &value, &none}, NULL));
    grown = before - sim_free();
    TEST_ASSERT_EQUAL_UINT64((1024 * THREADS + 2 * MIB - 1) / (2 * MIB) * (2 * MIB), grown);
    OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&p, &value, &none}, NULL));
    IS(CUDA_ERROR_OUT_OF_MEMORY,
       cuLaunchKernel(copy, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&p, &p, &none}, NULL));
    OK(cuCtxSynchronize());
    TEST_ASSERT_EQUAL_UINT64(grown, before - sim_free());
    OK(cuLibraryUnload(library));
    OK(cuModuleUnload(other));
}

static void test_a_larger_stack_takes_memory_at_once(void)
{
    size_t before = sim_free();

    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024 + 16));
    TEST_ASSERT_TRUE(before - sim_free() >= 16 * THREADS);
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 512 << 10));
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024)); /* what it has grown by stays */
    TEST_ASSERT_TRUE(before - sim_free() >= 16 * THREADS);
}

int main(void)
{
    sim_machine("1x1G");
    UNITY_BEGIN();
    RUN_TEST(test_kernels_run_in_stream_order);
    RUN_TEST(test_the_programs_own_function_gets_its_arguments);
    RUN_TEST(test_unknown_names_are_not_found);
    RUN_TEST(test_bad_launches_are_refused);
    RUN_TEST(test_a_modules_variable_has_an_address);
    RUN_TEST(test_a_librarys_kernel_can_be_launched_and_captured);
    RUN_TEST(test_spinning_kernels_end);
    RUN_TEST(test_odd_ptx_does_no_harm);
    RUN_TEST(test_functions_are_listed_before_they_are_loaded);
    RUN_TEST(test_a_librarys_kernels_are_listed);
    RUN_TEST(test_a_dependent_launch_begins_before_the_kernel_in_front_has_ended);
    RUN_TEST(test_other_launches_wait_for_the_kernel_in_front);
    RUN_TEST(test_a_context_grows_by_the_local_memory_of_a_kernel);
    RUN_TEST(test_a_larger_stack_takes_memory_at_once);
    return UNITY_END();
}
