/* The NCCL of the simulated machine with one process per rank: sums over processes, and a process that is
 * killed makes the others hang until they abort. The parent only makes the id and never uses CUDA. */
#include <nccl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "tests/unit/simgpu/simgpu_cudart_support.h"

enum { COUNT = 100000, RANKS = 4, SUM = RANKS * (RANKS + 1) / 2 };

/* In a child: ends it, saying where. */
#define MUST(condition)                                                                                      \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

void setUp(void) {}
void tearDown(void) {}

struct rank {
    int number;
    ncclComm_t comm;
    cudaStream_t stream;
    float *data;
};

static void join(struct rank *rank, const ncclUniqueId *id)
{
    static float host[COUNT];

    for (int i = 0; i < COUNT; i++)
        host[i] = (float)(rank->number + 1);
    MUST(!cudaSetDevice(rank->number));
    MUST(!cudaStreamCreate(&rank->stream));
    MUST(!cudaMalloc((void **)&rank->data, sizeof(host)));
    MUST(!cudaMemcpy(rank->data, host, sizeof(host), cudaMemcpyHostToDevice));
    MUST(!ncclCommInitRank(&rank->comm, RANKS, *id, rank->number));
}

static void sum(struct rank *rank)
{
    MUST(!ncclAllReduce(rank->data, rank->data, COUNT, ncclFloat32, ncclSum, rank->comm, rank->stream));
}

static void add_up(struct rank *rank)
{
    float last;

    sum(rank);
    MUST(!cudaMemcpyAsync(&last, rank->data + COUNT - 1, sizeof(last), cudaMemcpyDeviceToHost, rank->stream));
    MUST(!cudaStreamSynchronize(rank->stream));
    MUST(last == (float)SUM);
    MUST(!ncclCommDestroy(rank->comm));
}

/* Rank 1 is killed between two sums. */
static void lose_one(struct rank *rank)
{
    ncclResult_t async = ncclInternalError;

    sum(rank);
    MUST(!cudaStreamSynchronize(rank->stream));
    if (rank->number == 1)
        raise(SIGKILL);
    sum(rank);
    MUST(cudaStreamQuery(rank->stream) == cudaErrorNotReady);
    MUST(!ncclCommGetAsyncError(rank->comm, &async) && async == ncclSuccess);
    MUST(!ncclCommAbort(rank->comm));
    MUST(!cudaStreamSynchronize(rank->stream));
}

static void run_ranks(void (*body)(struct rank *rank), int killed)
{
    ncclUniqueId id;
    pid_t child[RANKS];

    TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclGetUniqueId(&id));
    for (int i = 0; i < RANKS; i++) {
        child[i] = fork();
        TEST_ASSERT_TRUE(child[i] >= 0);
        if (child[i] == 0) {
            struct rank rank = {.number = i};

            join(&rank, &id);
            body(&rank);
            _exit(0);
        }
    }
    for (int i = 0; i < RANKS; i++) {
        int status = 0;

        TEST_ASSERT_EQUAL_INT(child[i], waitpid(child[i], &status, 0));
        TEST_ASSERT_EQUAL_INT(i == killed ? SIGKILL : 0, i == killed ? WTERMSIG(status) : status);
    }
}

static void test_ranks_in_processes_add_up(void)
{
    run_ranks(add_up, -1);
}

static void test_a_killed_rank_makes_the_others_hang_until_they_abort(void)
{
    run_ranks(lose_one, 1);
}

static void test_a_unique_id_of_a_full_room_is_refused(void)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    int status = 0;
    pid_t child = fork();

    TEST_ASSERT_TRUE(child >= 0);
    if (child == 0) {
        MUST(!ncclGetUniqueId(&id));
        MUST(!ncclCommInitRank(&comm, 1, id, 0));
        MUST(ncclCommInitRank(&comm, 1, id, 0) == ncclSystemError);
        _exit(0);
    }
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
}

int main(void)
{
    cudart_own_machine("4x64M");
    UNITY_BEGIN();
    RUN_TEST(test_ranks_in_processes_add_up);
    RUN_TEST(test_a_killed_rank_makes_the_others_hang_until_they_abort);
    RUN_TEST(test_a_unique_id_of_a_full_room_is_refused);
    return UNITY_END();
}
