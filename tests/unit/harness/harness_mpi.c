/* Replicas under MPI on the simulated GPU, with a card each (by NCCL) or one for all (through host memory):
 * they are one large batch, and when one of them fails or is killed the whole run ends and says so. Nothing
 * leaves this machine: MPI keeps to the loopback. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/harness/harness_support.h"
#include "unity.h"

/* More ranks than processors, as root, in a container. */
#define MPIRUN                                                                                               \
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 "                    \
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 200 mpirun --oversubscribe --bind-to none "                    \
    "--mca btl self,tcp --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo "

void setUp(void) {}

void tearDown(void)
{
    train_forget();
}

/* The same training by one process, and by four on these cards. */
static void four_are_one_large_batch(const char *cards, const char *options)
{
    char line[1024];
    double loss;

    TRAIN("1x256M", "--hidden=32", "--steps=5", "--batch=32", "--quiet");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    loss = atof(train_field("loss_last"));
    snprintf(line, sizeof(line),
             MPIRUN "-np 4 \"$TRAIN\" --hidden=32 --steps=5 --batch=8 --replicas=mpi --quiet %s", options);
    train_shell(cards, line, 0);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TEST_ASSERT_EQUAL_STRING("4", train_field("replicas"));
    TEST_ASSERT_TRUE_MESSAGE(fabs(atof(train_field("loss_last")) - loss) <= 1e-5 * loss, train_said.out);
}

/* The log has the lines of one of them. */
static void test_replicas_of_four_processes_are_one_large_batch(void)
{
    const char *folder = train_make_folder();
    char option[700], line[1024];

    snprintf(option, sizeof(option), "--log=%s/log", folder);
    four_are_one_large_batch("1x256M", option);
    snprintf(line, sizeof(line), "[ $(grep -c '\"end\"' %s/log) = 1 ]", folder);
    train_shell("1x256M", line, 0);
    train_remove_folder(folder);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, "the end is in the log once");
}

static void test_replicas_with_a_card_each_are_one_large_batch(void)
{
    four_are_one_large_batch("4x256M", "--bucket=1K --alloc=cache --graph");
}

#define SHORT "\"$TRAIN\" --hidden=32 --steps=3 --batch=8 --val-batches=1 --replicas=mpi"

/* NCCL needs a card for each rank. Whether they have one does not depend on what each of them can see. */
static void test_nccl_averages_where_each_rank_has_a_card(void)
{
    static const char *const lines[] = {
        MPIRUN "-np 2 " SHORT,
        MPIRUN "-np 1 env CUDA_VISIBLE_DEVICES=0 " SHORT " : -np 1 env CUDA_VISIBLE_DEVICES=1 " SHORT,
        MPIRUN "-np 1 env CUDA_VISIBLE_DEVICES=0 " SHORT " : -np 1 " SHORT,
        MPIRUN "-np 1 " SHORT " : -np 1 env CUDA_VISIBLE_DEVICES=0 " SHORT,
    };

    for (int i = 0; i < 4; i++) {
        train_shell("2x256M", lines[i], 0);
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
        TEST_ASSERT_EQUAL_INT_MESSAGE(i == 3, strstr(train_said.err, "replicas share cards") != NULL,
                                      train_said.err);
    }
}

/* Otherwise they would average gradients of different things, or wait for each other. */
static void test_a_rank_with_other_options_is_named(void)
{
    train_shell("2x256M", MPIRUN "-np 1 " SHORT " : -np 1 " SHORT " --hidden=24,8 --quiet", 0);
    TEST_ASSERT_TRUE_MESSAGE(train_said.status != 0 && train_said.status != 124, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(
        strstr(train_said.err, "replica 1 of 2 has --hidden=24,8, but replica 0 has --hidden=32: start all"),
        train_said.err);
    TEST_ASSERT_EQUAL_STRING("", train_said.out);
}

/* As on machines that have a file of that name each. */
static void test_a_rank_with_another_file_is_named(void)
{
    const char *folder = train_make_folder();
    char line[2048];

    snprintf(line, sizeof(line),
             "for steps in 1 2; do \"$TRAIN\" --hidden=32 --batch=8 --quiet --steps=$steps "
             "--save=%s/$steps || exit 9; done; " MPIRUN "-np 1 " SHORT " --resume=%s/1 : -np 1 " SHORT
             " --resume=%s/2",
             folder, folder, folder);
    train_shell("2x256M", line, 0);
    train_remove_folder(folder);
    TEST_ASSERT_TRUE_MESSAGE(train_said.status != 0 && train_said.status != 124, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "replica 1 of 2 starts at step 2 from other weights "
                                                        "than replica 0, which is at step 1"),
                                 train_said.err);
}

/* A folder takes the place of FILE.best. */
static void test_a_result_that_cannot_be_saved_is_told_and_the_log_ends(void)
{
    const char *folder = train_make_folder();
    char line[2048], best[700];

    snprintf(best, sizeof(best), "%s/saved.best", folder);
    TEST_ASSERT_EQUAL_INT(0, mkdir(best, 0700));
    snprintf(line, sizeof(line),
             MPIRUN "-np 2 " SHORT " --quiet --save-best --save=%s/saved --log=%s/log; code=$?; "
                    "grep '\"end\"' %s/log; exit $code",
             folder, folder, folder);
    train_shell("2x256M", line, 0);
    TEST_ASSERT_EQUAL_INT(0, rmdir(best));
    train_remove_folder(folder);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_UNSAVED, train_said.status, train_said.err);
    TEST_ASSERT_EQUAL_STRING("3", train_field("steps"));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.out, "\"status\":6"), train_said.out);
    TEST_ASSERT_NULL_MESSAGE(strstr(train_said.err, "failed: the run ends"), train_said.err);
}

#define ENDLESS "\"$TRAIN\" --hidden=32 --steps=1000000 --replicas=mpi --quiet"

static void failing_ends_the_job(const char *cards)
{
    train_shell(cards, MPIRUN "-np 1 " ENDLESS " : -np 1 " ENDLESS " --budget=1K", 0);
    TEST_ASSERT_TRUE_MESSAGE(train_said.status != 0 && train_said.status != 124, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "replica 1 of 2 failed: the run ends"),
                                 train_said.err);
}

static void test_a_replica_that_fails_ends_the_job(void)
{
    failing_ends_the_job("1x256M");
    failing_ends_the_job("2x256M");
}

/* The call that fails is one in the middle of a training: the other ranks wait for it on their streams. */
static void test_a_replica_that_fails_on_the_way_ends_the_job(void)
{
    train_shell("2x256M",
                MPIRUN "-np 1 " ENDLESS " : -np 1 env GPUCAP_SIM_FAULT=cuLaunchHostFunc:500=2 " ENDLESS, 0);
    TEST_ASSERT_TRUE_MESSAGE(train_said.status != 0 && train_said.status != 124, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "replica 1 of 2 failed: the run ends"),
                                 train_said.err);
}

/* Rank 0 gets a signal when it has saved a step. */
static void test_a_signal_saves_and_the_log_ends(void)
{
    const char *folder = train_make_folder();
    char line[2048];

    snprintf(line, sizeof(line),
             "F=%s; export F; " MPIRUN
             "-np 1 sh -c '(until [ -e $F/saved ]; do kill -0 $$ || exit; sleep 0.01; done; kill -TERM $$) & "
             "exec " ENDLESS " --save=$F/saved --save-every=1 --log=$F/log' : -np 1 " ENDLESS "; code=$?; "
             "grep '\"end\"' $F/log; exit $code",
             folder);
    train_shell("2x256M", line, 0);
    train_remove_folder(folder);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_STOPPED, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "; go on with --resume="), train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.out, "\"status\":5"), train_said.out);
}

/* Rank 1 is killed when rank 0 has saved a step, behind a shell that MPI sees live on: that the job ends is
 * the other ranks' doing. */
static void test_a_killed_replica_ends_the_job(void)
{
    const char *folder = train_make_folder();
    char line[2048];

    snprintf(line, sizeof(line),
             MPIRUN "-np 1 " ENDLESS " --save=%s/saved --save-every=1 : "
                    "-np 1 sh -c '" ENDLESS " & while [ ! -e %s/saved ]; do sleep 0.1; done; kill -9 $!; "
                    "sleep 60' : -np 2 " ENDLESS,
             folder, folder);
    train_shell("4x256M", line, 0);
    train_remove_folder(folder);
    TEST_ASSERT_TRUE_MESSAGE(train_said.status != 0 && train_said.status != 124, train_said.err);
    TEST_ASSERT_EQUAL_STRING("", train_said.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "train: replica 1 of 4 "), train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "has ended: the run ends too"), train_said.err);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_replicas_of_four_processes_are_one_large_batch);
    RUN_TEST(test_replicas_with_a_card_each_are_one_large_batch);
    RUN_TEST(test_nccl_averages_where_each_rank_has_a_card);
    RUN_TEST(test_a_rank_with_other_options_is_named);
    RUN_TEST(test_a_rank_with_another_file_is_named);
    RUN_TEST(test_a_result_that_cannot_be_saved_is_told_and_the_log_ends);
    RUN_TEST(test_a_replica_that_fails_ends_the_job);
    RUN_TEST(test_a_replica_that_fails_on_the_way_ends_the_job);
    RUN_TEST(test_a_signal_saves_and_the_log_ends);
    RUN_TEST(test_a_killed_replica_ends_the_job);
    return UNITY_END();
}
