/* The NCCL of the simulated machine: sums over cards, on streams, in groups and in graphs; wrong arguments
 * are refused; a rank that does not join a call makes the others hang until they abort. */
#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tests/unit/simgpu/simgpu_cudart_support.h"

#define NCCL(call)             TEST_ASSERT_EQUAL_INT_MESSAGE(ncclSuccess, (call), #call)
#define NCCL_FAILS(code, call) TEST_ASSERT_EQUAL_INT_MESSAGE((code), (call), #call)
#define SET(device)            OK(cudaSetDevice(device))

enum { CARDS = 4, LARGE = 300001 }; /* more than a slot's worth of floats, and odd */

static ncclComm_t comm[CARDS];
static cudaStream_t stream[CARDS];
static void *data[CARDS], *result[CARDS];

void setUp(void)
{
    memset(comm, 0, sizeof(comm));
    for (int i = 0; i < CARDS; i++) {
        SET(i);
        OK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
        OK(cudaMalloc(&data[i], LARGE * sizeof(float)));
        OK(cudaMalloc(&result[i], LARGE * sizeof(float)));
    }
}

void tearDown(void)
{
    for (int i = 0; i < CARDS; i++) {
        SET(i);
        OK(cudaStreamSynchronize(stream[i]));
        if (comm[i])
            NCCL(ncclCommDestroy(comm[i]));
        OK(cudaStreamDestroy(stream[i]));
        OK(cudaFree(data[i]));
        OK(cudaFree(result[i]));
    }
}

static void wait_for_all(int ranks)
{
    for (int i = 0; i < ranks; i++)
        OK(cudaStreamSynchronize(stream[i]));
}

/* Every rank in one group of this thread. */
static void all_reduce(int ranks, size_t count, ncclDataType_t type, ncclRedOp_t op)
{
    NCCL(ncclGroupStart());
    for (int i = 0; i < ranks; i++)
        NCCL(ncclAllReduce(data[i], result[i], count, type, op, comm[i], stream[i]));
    NCCL(ncclGroupEnd());
    wait_for_all(ranks);
}

static void fill(int card, size_t count, float base)
{
    static float host[LARGE];

    for (size_t i = 0; i < count; i++)
        host[i] = base + (float)(i % 1000);
    OK(cudaMemcpy(data[card], host, count * sizeof(float), cudaMemcpyHostToDevice));
}

static float value_at(const void *device, size_t i)
{
    float value;

    OK(cudaMemcpy(&value, (const float *)device + i, sizeof(value), cudaMemcpyDeviceToHost));
    return value;
}

static void test_sums_and_means_are_the_same_on_all_cards(void)
{
    static const int sizes[] = {1, 2, 4};

    for (int s = 0; s < 3; s++) {
        int ranks = sizes[s];

        NCCL(ncclCommInitAll(comm, ranks, NULL));
        for (int i = 0; i < ranks; i++)
            fill(i, LARGE, (float)(1 << i));
        all_reduce(ranks, LARGE, ncclFloat32, ncclSum);
        for (int i = 0; i < ranks; i++) {
            TEST_ASSERT_EQUAL_FLOAT((float)((1 << ranks) - 1), value_at(result[i], 0));
            TEST_ASSERT_EQUAL_FLOAT((float)((1 << ranks) - 1 + ranks * ((LARGE - 1) % 1000)),
                                    value_at(result[i], LARGE - 1));
        }
        all_reduce(ranks, 7, ncclFloat32, ncclAvg);
        TEST_ASSERT_EQUAL_FLOAT((float)((1 << ranks) - 1) / (float)ranks + 6.0f, value_at(result[0], 6));
        for (int i = 0; i < ranks; i++)
            NCCL(ncclCommDestroy(comm[i]));
        memset(comm, 0, sizeof(comm));
    }
}

/* Adds a and b of a 16 bit type on two cards. */
static uint16_t add16(ncclDataType_t type, uint16_t a, uint16_t b)
{
    uint16_t sum;

    OK(cudaMemcpy(data[0], &a, sizeof(a), cudaMemcpyHostToDevice));
    OK(cudaMemcpy(data[1], &b, sizeof(b), cudaMemcpyHostToDevice));
    all_reduce(2, 1, type, ncclSum);
    OK(cudaMemcpy(&sum, result[1], sizeof(sum), cudaMemcpyDeviceToHost));
    return sum;
}

static void test_16_bit_sums_round_to_nearest_even(void)
{
    NCCL(ncclCommInitAll(comm, 2, NULL));
    TEST_ASSERT_EQUAL_HEX16(0x4040, add16(ncclBfloat16, 0x3f80, 0x4000)); /* 1 + 2 */
    TEST_ASSERT_EQUAL_HEX16(0x4380, add16(ncclBfloat16, 0x4380, 0x3f80)); /* 256 + 1: a tie, to even */
    TEST_ASSERT_EQUAL_HEX16(0x4382, add16(ncclBfloat16, 0x4380, 0x4040)); /* 256 + 3: a tie, to even */
    TEST_ASSERT_EQUAL_HEX16(0x4200, add16(ncclFloat16, 0x3c00, 0x4000));  /* 1 + 2 = 3 */
    TEST_ASSERT_EQUAL_HEX16(0x6800, add16(ncclFloat16, 0x6800, 0x3c00));  /* 2048 + 1: a tie, to even */
    TEST_ASSERT_EQUAL_HEX16(0x7c00, add16(ncclFloat16, 0x7bff, 0x7bff));  /* too large */
    TEST_ASSERT_EQUAL_HEX16(0x0003, add16(ncclFloat16, 0x0001, 0x0002));  /* subnormal */
    TEST_ASSERT_EQUAL_HEX16(0x0400, add16(ncclFloat16, 0x03ff, 0x0001));  /* the smallest normal one */
    TEST_ASSERT_EQUAL_HEX16(0x7e00, add16(ncclFloat16, 0x7c00, 0xfc00) & 0x7fff); /* not a number */
}

static void test_a_broadcast_copies_the_roots_data(void)
{
    NCCL(ncclCommInitAll(comm, CARDS, NULL));
    for (int i = 0; i < CARDS; i++)
        fill(i, LARGE, (float)i);
    NCCL(ncclGroupStart());
    for (int i = 0; i < CARDS; i++)
        NCCL(ncclBroadcast(i == 2 ? data[2] : NULL, result[i], LARGE, ncclFloat32, 2, comm[i], stream[i]));
    NCCL(ncclGroupEnd());
    wait_for_all(CARDS);
    for (int i = 0; i < CARDS; i++)
        TEST_ASSERT_EQUAL_FLOAT(2.0f + (float)((LARGE - 1) % 1000), value_at(result[i], LARGE - 1));
}

static void test_questions_are_answered(void)
{
    ncclResult_t async = ncclInternalError;
    int answer = -1;

    NCCL(ncclGetVersion(&answer));
    TEST_ASSERT_EQUAL_INT(NCCL_VERSION_CODE, answer);
    NCCL(ncclCommInitAll(comm, 2, (const int[]){3, 1}));
    NCCL(ncclCommCount(comm[0], &answer));
    TEST_ASSERT_EQUAL_INT(2, answer);
    NCCL(ncclCommUserRank(comm[1], &answer));
    TEST_ASSERT_EQUAL_INT(1, answer);
    NCCL(ncclCommCuDevice(comm[0], &answer));
    TEST_ASSERT_EQUAL_INT(3, answer);
    NCCL(ncclCommGetAsyncError(comm[0], &async));
    TEST_ASSERT_EQUAL_INT(ncclSuccess, async);
    TEST_ASSERT_EQUAL_STRING("invalid argument (run with NCCL_DEBUG=WARN for details)",
                             ncclGetErrorString(ncclInvalidArgument));
}

static void test_wrong_arguments_are_refused(void)
{
    float host = 0.0f;
    ncclUniqueId id = {"no such room"};
    ncclComm_t gone;

    NCCL_FAILS(ncclInvalidArgument, ncclGetUniqueId(NULL));
    NCCL_FAILS(ncclInvalidArgument, ncclCommInitRank(&gone, 1, id, 0));
    NCCL(ncclGetUniqueId(&id));
    NCCL_FAILS(ncclInvalidArgument, ncclCommInitRank(&gone, 0, id, 0));
    NCCL_FAILS(ncclInvalidArgument, ncclCommInitRank(&gone, 2, id, 2));
    NCCL_FAILS(ncclInvalidArgument, ncclCommInitRank(NULL, 1, id, 0));
    NCCL_FAILS(ncclInvalidArgument, ncclCommInitAll(comm, CARDS + 1, NULL));
    NCCL_FAILS(ncclInvalidUsage, ncclCommInitAll(comm, 2, (const int[]){1, 1}));
    NCCL(ncclCommInitAll(comm, 2, NULL));
#define REDUCE(from, to, type, op, c)                                                                        \
    ncclAllReduce(from, to, 1, (ncclDataType_t)(type), (ncclRedOp_t)(op), c, stream[0])
    NCCL_FAILS(ncclInvalidArgument, REDUCE(data[0], data[0], ncclFloat32, ncclSum, NULL));
    NCCL_FAILS(ncclInvalidArgument, REDUCE(data[0], data[0], ncclNumTypes, ncclSum, comm[0]));
    NCCL_FAILS(ncclInvalidArgument, REDUCE(data[0], data[0], ncclFloat32, ncclNumOps, comm[0]));
    NCCL_FAILS(ncclInvalidArgument, REDUCE(NULL, data[0], ncclFloat32, ncclSum, comm[0]));
    NCCL_FAILS(ncclInvalidArgument, REDUCE(&host, data[0], ncclFloat32, ncclSum, comm[0]));
    NCCL_FAILS(ncclInvalidArgument, REDUCE(data[1], data[0], ncclFloat32, ncclSum, comm[0]));
    NCCL_FAILS(ncclInvalidArgument, ncclBroadcast(data[0], data[0], 1, ncclFloat32, 2, comm[0], stream[0]));
    TEST_ASSERT_TRUE(strlen(ncclGetLastError(comm[0])) > 0);
    NCCL_FAILS(ncclInvalidUsage, ncclGroupEnd());
    NCCL(ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, comm[0], stream[0]));
    gone = comm[1];
    NCCL(ncclCommFinalize(gone));
    NCCL_FAILS(ncclInvalidArgument, ncclCommFinalize(gone));
    NCCL_FAILS(ncclInvalidUsage, ncclAllReduce(data[1], data[1], 1, ncclFloat32, ncclSum, gone, stream[1]));
    NCCL(ncclCommDestroy(gone));
    comm[1] = NULL;
    NCCL_FAILS(ncclInvalidArgument, ncclCommDestroy(gone));
    NCCL_FAILS(ncclInvalidArgument, ncclCommAbort(gone));
    NCCL_FAILS(ncclInvalidArgument, ncclCommCount(gone, &(int){0}));
}

static void test_ranks_on_one_card_are_refused(void)
{
    ncclUniqueId id;
    ncclComm_t both[2];

    NCCL(ncclGetUniqueId(&id));
    SET(1);
    NCCL(ncclGroupStart());
    NCCL(ncclCommInitRank(&both[0], 2, id, 0));
    NCCL(ncclCommInitRank(&both[1], 2, id, 1));
    NCCL_FAILS(ncclInvalidUsage, ncclGroupEnd());
    NCCL_FAILS(ncclInvalidArgument, ncclCommDestroy(both[0]));
    NCCL_FAILS(ncclInvalidArgument, ncclCommDestroy(both[1]));
}

static void test_a_group_with_a_wrong_call_starts_nothing(void)
{
    NCCL(ncclCommInitAll(comm, 2, NULL));
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(data[0], result[0], 1, ncclFloat32, ncclSum, comm[0], stream[0]));
    NCCL_FAILS(ncclInvalidArgument,
               ncclAllReduce(NULL, result[1], 1, ncclFloat32, ncclSum, comm[1], stream[1]));
    NCCL_FAILS(ncclInvalidArgument, ncclGroupEnd());
    OK(cudaStreamSynchronize(stream[0])); /* rank 0 does not wait for anything */
}

static void test_calls_that_differ_are_an_asynchronous_error(void)
{
    ncclResult_t async;

    NCCL(ncclCommInitAll(comm, 2, NULL));
    NCCL(ncclAllReduce(data[0], result[0], 1, ncclFloat32, ncclSum, comm[0], stream[0]));
    NCCL(ncclAllReduce(data[1], result[1], 2, ncclFloat32, ncclSum, comm[1], stream[1]));
    wait_for_all(2);
    for (int i = 0; i < 2; i++) {
        NCCL(ncclCommGetAsyncError(comm[i], &async));
        TEST_ASSERT_EQUAL_INT(ncclInvalidUsage, async);
    }
}

static void test_a_missing_rank_makes_the_others_hang_until_they_abort(void)
{
    NCCL(ncclCommInitAll(comm, 3, NULL));
    for (int i = 0; i < 2; i++) {
        SET(i);
        NCCL(ncclAllReduce(data[i], result[i], LARGE, ncclFloat32, ncclSum, comm[i], stream[i]));
        NCCL(ncclAllReduce(data[i], result[i], LARGE, ncclFloat32, ncclSum, comm[i], stream[i]));
        FAILS(cudaErrorNotReady, cudaStreamQuery(stream[i]));
    }
    NCCL(ncclCommAbort(comm[0]));
    comm[0] = NULL;
    OK(cudaStreamSynchronize(stream[0]));
    FAILS(cudaErrorNotReady, cudaStreamQuery(stream[1])); /* an abort is this rank's own */
    NCCL(ncclCommAbort(comm[1]));
    comm[1] = NULL;
    OK(cudaStreamSynchronize(stream[1]));
}

/* ---- order ---- */

static void set_to_five(void *value)
{
    *(float *)value = 5.0f;
}

static void test_a_call_waits_for_its_stream_and_is_waited_for(void)
{
    float *after; /* pinned: a copy to other memory would wait */

    OK(cudaMallocHost((void **)&after, 2 * sizeof(float)));
    NCCL(ncclCommInitAll(comm, 2, NULL));
    fill(0, 1, 1.0f);
    fill(1, 1, 2.0f);
    NCCL(ncclAllReduce(data[0], result[0], 1, ncclFloat32, ncclSum, comm[0], stream[0]));
    OK(cudaMemcpyAsync(&after[0], result[0], sizeof(float), cudaMemcpyDeviceToHost, stream[0]));
    /* simgpu's device memory is host memory. */
    OK(cudaLaunchHostFunc(stream[1], set_to_five, data[1]));
    NCCL(ncclAllReduce(data[1], data[1], 1, ncclFloat32, ncclSum, comm[1], stream[1]));
    OK(cudaMemcpyAsync(&after[1], data[1], sizeof(float), cudaMemcpyDeviceToHost, stream[1]));
    wait_for_all(2);
    TEST_ASSERT_EQUAL_FLOAT(6.0f, after[0]);
    TEST_ASSERT_EQUAL_FLOAT(6.0f, after[1]);
    OK(cudaFreeHost(after));
}

static void test_calls_on_two_streams_keep_the_order_in_which_they_were_made(void)
{
    cudaStream_t second;

    NCCL(ncclCommInitAll(comm, 2, NULL));
    fill(0, 2, 1.0f);
    fill(1, 2, 2.0f);
    SET(0);
    OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    NCCL(ncclAllReduce(data[0], result[0], 1, ncclFloat32, ncclSum, comm[0], second));
    NCCL(ncclBroadcast(data[0], data[0], 2, ncclFloat32, 1, comm[0], stream[0]));
    NCCL(ncclAllReduce(data[1], result[1], 1, ncclFloat32, ncclSum, comm[1], stream[1]));
    NCCL(ncclBroadcast(data[1], data[1], 2, ncclFloat32, 1, comm[1], stream[1]));
    wait_for_all(2);
    OK(cudaStreamSynchronize(second));
    OK(cudaStreamDestroy(second));
    TEST_ASSERT_EQUAL_FLOAT(3.0f, value_at(result[0], 0));
    TEST_ASSERT_EQUAL_FLOAT(3.0f, value_at(data[0], 1));
}

static void test_a_graph_runs_a_call_each_time(void)
{
    cudaGraphExec_t exec[2];

    NCCL(ncclCommInitAll(comm, 2, NULL));
    for (int i = 0; i < 2; i++) {
        cudaGraph_t graph;

        SET(i);
        fill(i, 1, 1.0f);
        OK(cudaStreamBeginCapture(stream[i], cudaStreamCaptureModeRelaxed));
        NCCL(ncclAllReduce(data[i], data[i], 1, ncclFloat32, ncclSum, comm[i], stream[i]));
        OK(cudaStreamEndCapture(stream[i], &graph));
        OK(cudaGraphInstantiate(&exec[i], graph, 0));
        OK(cudaGraphDestroy(graph));
    }
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 2; i++)
            OK(cudaGraphLaunch(exec[i], stream[i]));
    wait_for_all(2);
    for (int i = 0; i < 2; i++) {
        TEST_ASSERT_EQUAL_FLOAT(8.0f, value_at(data[i], 0));
        OK(cudaGraphExecDestroy(exec[i]));
    }
}

int main(void)
{
    cudart_own_machine("4x64M");
    UNITY_BEGIN();
    RUN_TEST(test_sums_and_means_are_the_same_on_all_cards);
    RUN_TEST(test_16_bit_sums_round_to_nearest_even);
    RUN_TEST(test_a_broadcast_copies_the_roots_data);
    RUN_TEST(test_questions_are_answered);
    RUN_TEST(test_wrong_arguments_are_refused);
    RUN_TEST(test_ranks_on_one_card_are_refused);
    RUN_TEST(test_a_group_with_a_wrong_call_starts_nothing);
    RUN_TEST(test_calls_that_differ_are_an_asynchronous_error);
    RUN_TEST(test_a_missing_rank_makes_the_others_hang_until_they_abort);
    RUN_TEST(test_a_call_waits_for_its_stream_and_is_waited_for);
    RUN_TEST(test_calls_on_two_streams_keep_the_order_in_which_they_were_made);
    RUN_TEST(test_a_graph_runs_a_call_each_time);
    return UNITY_END();
}
