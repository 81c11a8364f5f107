/* simgpu_graph_nodes: nodes of every kind by cuGraphAddNode, parameters of kernel nodes, and batches of
 * writes and waits in streams and graphs, on the simulated driver. */
#include "tests/unit/simgpu/simgpu_support.h"

static CUstream stream;
static CUgraph graph;
static CUdeviceptr words; /* four of them */

/* cuda.h only renames to it. */
#undef cuGraphAddNode
CUresult cuGraphAddNode(CUgraphNode *out, CUgraph to, const CUgraphNode *after, size_t count,
                        CUgraphNodeParams *params);

void setUp(void)
{
    sim_begin();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&graph, 0));
    OK(cuMemAlloc(&words, 16));
    OK(cuMemsetD32(words, 0, 4));
    OK(cuCtxSynchronize());
}

void tearDown(void)
{
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(words));
    OK(cuStreamDestroy(stream));
    sim_end();
}

static uint32_t word(int index)
{
    uint32_t value = 0;

    OK(cuMemcpyDtoH(&value, words + (size_t)index * 4, 4));
    return value;
}

static CUgraphExec launched(void)
{
    CUgraphExec exec;

    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    return exec;
}

static CUstreamBatchMemOpParams wait_for(CUdeviceptr address, uint32_t value)
{
    return (CUstreamBatchMemOpParams){.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                                                    .address = address,
                                                    .value = value,
                                                    .flags = CU_STREAM_WAIT_VALUE_EQ}};
}

static CUstreamBatchMemOpParams write_to(CUdeviceptr address, uint32_t value)
{
    return (CUstreamBatchMemOpParams){
        .writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = address, .value = value}};
}

/* ---- batches ---- */

static void test_a_batch_in_a_stream_runs_step_by_step(void)
{
    CUstreamBatchMemOpParams steps[] = {write_to(words, 1), wait_for(words + 4, 5), write_to(words + 8, 2)};
    CUstream other;

    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBatchMemOp(stream, 3, steps, 0));
    OK(cuStreamWaitValue32(other, words, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamSynchronize(other));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    OK(cuStreamWriteValue32(other, words + 4, 5, 0));
    OK(cuStreamSynchronize(stream));
    TEST_ASSERT_EQUAL_UINT32(2, word(2));
    OK(cuStreamDestroy(other));
}

static void test_bad_batches_are_refused(void)
{
    CUstreamBatchMemOpParams good = write_to(words, 1), odd = write_to(words + 2, 1), unknown = good;

    unknown.operation = (CUstreamBatchMemOpType)99;
    IS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(stream, 1, &odd, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(stream, 1, &unknown, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(stream, 0, &good, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(stream, 257, &good, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(stream, 1, NULL, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp(stream, 1, &good, 1));
}

static void test_a_node_that_waits_for_a_flag_holds_its_graph_back(void)
{
    CUstreamBatchMemOpParams waits = wait_for(words, 1), writes = write_to(words + 4, 3);
    CUDA_BATCH_MEM_OP_NODE_PARAMS by_itself = {.count = 1, .paramArray = &waits};
    CUgraphNodeParams by_add = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    CUgraphNode first, second;
    CUgraphNodeType type;
    CUgraphExec exec;

    OK(cuCtxGetCurrent(&by_itself.ctx));
    by_add.memOp.ctx = by_itself.ctx;
    by_add.memOp.count = 1;
    by_add.memOp.paramArray = &writes;
    OK(cuGraphAddBatchMemOpNode(&first, graph, NULL, 0, &by_itself));
    OK(cuGraphAddNode_v2(&second, graph, &first, NULL, 1, &by_add));
    OK(cuGraphNodeGetType(second, &type));
    TEST_ASSERT_EQUAL_INT(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, type);
    waits = writes = write_to(words + 8, 9); /* the nodes have copies */
    exec = launched();
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    OK(cuStreamWriteValue32(NULL, words, 1, 0));
    OK(cuStreamSynchronize(stream));
    TEST_ASSERT_EQUAL_UINT32(3, word(1));
    TEST_ASSERT_EQUAL_UINT32(0, word(2));
    OK(cuGraphExecDestroy(exec));
}

/* ---- nodes of other kinds ---- */

static void add_one(void *counter)
{
    ++*(int *)counter;
}

static CUgraphNode add(CUgraphNodeParams *params, const CUgraphNode *after)
{
    CUgraphNode node = NULL;

    OK(cuGraphAddNode(&node, graph, after, after ? 1 : 0, params));
    return node;
}

static void test_nodes_of_every_kind_run_in_their_order(void)
{
    CUgraphNodeParams fill = {.type = CU_GRAPH_NODE_TYPE_MEMSET}, copy = {.type = CU_GRAPH_NODE_TYPE_MEMCPY},
                      host = {.type = CU_GRAPH_NODE_TYPE_HOST}, child = {.type = CU_GRAPH_NODE_TYPE_GRAPH},
                      empty = {.type = CU_GRAPH_NODE_TYPE_EMPTY},
                      odd = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUgraphNode last;
    CUgraphExec exec;
    int count = 0;

    fill.memset.dst = words;
    fill.memset.value = 8;
    fill.memset.elementSize = 4;
    fill.memset.width = fill.memset.height = 1;
    copy.memcpy.copyParams = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                             .srcDevice = words,
                                             .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                             .dstDevice = words + 4,
                                             .WidthInBytes = 4,
                                             .Height = 1,
                                             .Depth = 1};
    host.host.fn = add_one;
    host.host.userData = &count;
    OK(cuGraphCreate(&child.graph.graph, 0));
    last = add(&fill, NULL);
    last = add(&copy, &last);
    last = add(&host, &last);
    last = add(&child, &last);
    add(&empty, &last);
    IS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode(&last, graph, NULL, 0, &odd));
    IS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&last, graph, NULL, 0, NULL));
    exec = launched();
    OK(cuStreamSynchronize(stream));
    TEST_ASSERT_EQUAL_UINT32(8, word(1));
    TEST_ASSERT_EQUAL_INT(1, count);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(child.graph.graph));
}

static void test_allocation_nodes_by_the_common_call_take_memory_at_a_launch(void)
{
    CUgraphNodeParams take = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC},
                      give = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE};
    const size_t before = sim_free();
    CUgraphNode node;
    CUgraphExec exec;

    take.alloc.poolProps = (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    take.alloc.bytesize = 64 * MIB;
    node = add(&take, NULL);
    TEST_ASSERT_TRUE(take.alloc.dptr != 0);
    give.free.dptr = take.alloc.dptr;
    add(&give, &node);
    exec = launched();
    OK(cuStreamSynchronize(stream));
    TEST_ASSERT_EQUAL_UINT64(before - 64 * MIB, sim_free());
    OK(cuGraphExecDestroy(exec));
    OK(cuDeviceGraphMemTrim(0));
}

static void test_a_kernel_node_says_which_kernel_it_runs(void)
{
    const uint64_t count = 2;
    const uint32_t value = 6;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    CUDA_KERNEL_NODE_PARAMS seen;
    CUgraphNode by_function, by_kernel;
    CUfunction function;
    CUlibrary library;
    CUkernel kernel;
    CUgraphExec exec;
    CUmodule module;

    OK(cuModuleLoadData(&module, sim_ptx));
    OK(cuModuleGetFunction(&function, module, "fill_u32"));
    OK(cuLibraryLoadData(&library, sim_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "fill_u32"));
    params.kernel.func = function;
    params.kernel.gridDimX = 2;
    params.kernel.gridDimY = params.kernel.gridDimZ = 1;
    params.kernel.blockDimX = 32;
    params.kernel.blockDimY = params.kernel.blockDimZ = 1;
    params.kernel.kernelParams = (void *[]){&words, (void *)&value, (void *)&count};
    by_function = add(&params, NULL);
    params.kernel.func = NULL;
    params.kernel.kern = kernel;
    by_kernel = add(&params, &by_function);
    OK(cuGraphKernelNodeGetParams(by_function, &seen));
    TEST_ASSERT_EQUAL_PTR(function, seen.func);
    TEST_ASSERT_NULL(seen.kern);
    TEST_ASSERT_EQUAL_UINT(2, seen.gridDimX);
    TEST_ASSERT_EQUAL_UINT(32, seen.blockDimX);
    TEST_ASSERT_EQUAL_UINT32(6, *(uint32_t *)seen.kernelParams[1]);
    OK(cuGraphKernelNodeGetParams(by_kernel, &seen));
    TEST_ASSERT_NULL(seen.func);
    TEST_ASSERT_EQUAL_PTR(kernel, seen.kern);
    IS(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetParams(NULL, &seen));
    exec = launched();
    OK(cuStreamSynchronize(stream));
    TEST_ASSERT_EQUAL_UINT32(6, word(1));
    OK(cuGraphExecDestroy(exec));
    OK(cuLibraryUnload(library));
    OK(cuModuleUnload(module));
}

/* ---- faults ---- */

static void test_the_fault_script_knows_them(void)
{
    static const char *const names[] = {"cuStreamBatchMemOp_v2:*=999", "cuGraphAddBatchMemOpNode:*=999",
                                        "cuGraphAddNode:*=999", "cuGraphAddNode_v2:*=999",
                                        "cuGraphKernelNodeGetParams_v2:*=999"};
    CUgraphNodeParams empty = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    CUgraphNode node;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        TEST_ASSERT_EQUAL_INT(0, simgpu_set_fault(names[i]));
    TEST_ASSERT_EQUAL_INT(0, simgpu_set_fault(names[3]));
    IS(999, cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &empty));
    OK(cuGraphAddNode(&node, graph, NULL, 0, &empty));
}

int main(void)
{
    sim_machine("1x1G");
    UNITY_BEGIN();
    RUN_TEST(test_a_batch_in_a_stream_runs_step_by_step);
    RUN_TEST(test_bad_batches_are_refused);
    RUN_TEST(test_a_node_that_waits_for_a_flag_holds_its_graph_back);
    RUN_TEST(test_nodes_of_every_kind_run_in_their_order);
    RUN_TEST(test_allocation_nodes_by_the_common_call_take_memory_at_a_launch);
    RUN_TEST(test_a_kernel_node_says_which_kernel_it_runs);
    RUN_TEST(test_the_fault_script_knows_them);
    return UNITY_END();
}
