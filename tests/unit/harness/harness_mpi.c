/* Replicas under MPI on the simulated GPU: they are one large batch, and when one of them fails or is killed
 * the whole run ends and says so. Nothing leaves this machine: MPI keeps to the loopback. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/harness/harness_support.h"
#include "unity.h"

/* More ranks than processors, as root, in a container. */
#define MPIRUN                                                                                               \
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 "                    \
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun --oversubscribe --bind-to none "                     \
    "--mca btl self,tcp --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo "

void setUp(void) {}

void tearDown(void)
{
    train_forget();
}

static void test_replicas_of_four_processes_are_one_large_batch(void)
{
    double loss;

    TRAIN("1x256M", "--hidden=32", "--steps=5", "--batch=32", "--quiet");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    loss = atof(train_field("loss_last"));
    train_shell("1x256M", MPIRUN "-np 4 \"$TRAIN\" --hidden=32 --steps=5 --batch=8 --replicas=mpi --quiet",
                0);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TEST_ASSERT_EQUAL_STRING("4", train_field("replicas"));
    TEST_ASSERT_TRUE_MESSAGE(fabs(atof(train_field("loss_last")) - loss) <= 1e-5 * loss, train_said.out);
}

static void test_a_replica_that_fails_ends_the_job(void)
{
    train_shell("1x256M",
                MPIRUN "-np 1 \"$TRAIN\" --hidden=32 --steps=1000000 --replicas=mpi --quiet "
                       ": -np 1 \"$TRAIN\" --hidden=32 --steps=1000000 --replicas=mpi --quiet --budget=1K",
                0);
    TEST_ASSERT_TRUE_MESSAGE(train_said.status != 0 && train_said.status != 124, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "replica 1 of 2 failed: the run ends"),
                                 train_said.err);
}

static void test_a_killed_replica_ends_the_job(void)
{
    train_shell("1x256M",
                MPIRUN "-np 1 \"$TRAIN\" --hidden=32 --steps=1000000 --replicas=mpi --quiet "
                       ": -np 1 sh -c '\"$TRAIN\" --hidden=32 --steps=1000000 --replicas=mpi --quiet & "
                       "sleep 1; kill -9 $!; wait $!'",
                0);
    TEST_ASSERT_TRUE_MESSAGE(train_said.status != 0 && train_said.status != 124, train_said.err);
    TEST_ASSERT_EQUAL_STRING("", train_said.out);
    TEST_ASSERT_TRUE_MESSAGE(strlen(train_said.err) > 0, "nothing was said");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_replicas_of_four_processes_are_one_large_batch);
    RUN_TEST(test_a_replica_that_fails_ends_the_job);
    RUN_TEST(test_a_killed_replica_ends_the_job);
    return UNITY_END();
}
