/* Checkpoints of `train` on the simulated GPU: a run that was stopped goes on with the same bits, the file is
 * the last good one whatever happens to the process or the disk, and a bad one is refused with a reason. */
#include <dirent.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/train/checkpoint_place.h"
#include "tests/unit/harness/harness_support.h"
#include "unity.h"

enum { LINE = 2048 };

static const char *folder;
static char path[TRAIN_PATH], save[TRAIN_OPTION], resume[TRAIN_OPTION];

void setUp(void)
{
    folder = train_make_folder();
    train_name_checkpoint(folder, path, save, resume);
}

void tearDown(void)
{
    train_forget();
    train_remove_folder(folder);
}

/* Six steps at once, and three and three: the same loss and validation to the last digit. */
static void check_resume(const char *const *model)
{
    const char *whole[24], *first[24], *second[24];
    char loss[32], val[32];
    int n = 0;

    for (; model[n]; n++)
        whole[n] = first[n] = second[n] = model[n];
    whole[n] = second[n] = "--steps=6";
    first[n] = "--steps=3";
    whole[n + 1] = NULL;
    first[n + 1] = save;
    second[n + 1] = resume;
    first[n + 2] = second[n + 2] = NULL;
    train_run_on("1x256M", whole);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    strcpy(loss, train_field("loss_last"));
    strcpy(val, train_field("val_loss"));
    train_run_on("1x256M", first);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TEST_ASSERT_TRUE(strcmp(loss, train_field("loss_last")) != 0);
    train_run_on("1x256M", second);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TEST_ASSERT_EQUAL_STRING(loss, train_field("loss_last"));
    TEST_ASSERT_EQUAL_STRING(val, train_field("val_loss"));
}

#define RESUME(...)                                                                                          \
    check_resume((const char *const[]){__VA_ARGS__, "--batch=6", "--val-batches=1", "--quiet", NULL})

static void test_a_stopped_run_goes_on_with_the_same_bits(void)
{
    RESUME("--hidden=24", "--optimizer=adam", "--accumulate=2", "--schedule=constant");
    RESUME("--model=gpt", "--layers=2", "--width=24", "--heads=2", "--length=16", "--dropout=0.2",
           "--precision=fp16", "--clip=1", "--schedule=constant", "--alloc=cache");
    RESUME("--model=resnet18", "--width=4", "--image=32", "--precision=bf16", "--vary");
}

/* Copies the checkpoint to a file of that name in the folder. */
static void copy_file(const char *name)
{
    char line[LINE];

    snprintf(line, sizeof(line), "cp %s %s/%s", path, folder, name);
    TEST_ASSERT_EQUAL_INT(0, system(line));
}

/* Compares the checkpoint with that ending to a copy. */
static bool same_file(const char *ending, const char *copy)
{
    char line[LINE];

    snprintf(line, sizeof(line), "cmp -s %s%s %s/%s", path, ending, folder, copy);
    return system(line) == 0;
}

#define TWICE(...)                                                                                           \
    do {                                                                                                     \
        TRAIN("1x256M", __VA_ARGS__, "--steps=4", "--quiet", save);                                          \
        train_went_well();                                                                                   \
        strcpy(loss, train_field("loss_last"));                                                              \
        copy_file("first");                                                                                  \
        TRAIN("1x256M", __VA_ARGS__, "--steps=4", "--quiet", save);                                          \
        train_went_well();                                                                                   \
        TEST_ASSERT_EQUAL_STRING(loss, train_field("loss_last"));                                            \
        TEST_ASSERT_TRUE(same_file("", "first"));                                                            \
    } while (0)

/* Always, without an option for it: with threads for data and for operations, pictures cropped at random. */
static void test_two_runs_give_the_same_losses_and_weights_to_the_bit(void)
{
    char loss[32];

    TWICE("--model=cnn", "--width=4", "--image=16", "--batch=33", "--augment=cpu", "--workers=3",
          "--val-batches=1");
    TWICE("--model=gpt", "--layers=2", "--width=24", "--heads=2", "--length=32", "--dropout=0.2", "--batch=9",
          "--precision=bf16", "--alloc=cache", "--vary", "--val-batches=1");
    TWICE("--model=unet", "--width=4", "--image=16", "--batch=5", "--accumulate=2", "--workers=2",
          "--val-batches=1");
    TWICE("--hidden=32", "--replicas=3", "--batch=8", "--val-batches=1");
}

#define PRECISE(precision, ...)                                                                              \
    do {                                                                                                     \
        TRAIN("1x256M", "--hidden=24", "--rate=0.1", "--quiet", "--precision=" precision, __VA_ARGS__);      \
        train_went_well();                                                                                   \
    } while (0)

/* The loss scale is fp16's: the gradients of another precision must not be divided by it, and fp16 must not
 * start without one. */
static void test_a_run_goes_on_in_another_precision(void)
{
    double loss;

    PRECISE("fp32", "--steps=12");
    loss = atof(train_field("val_loss"));
    PRECISE("fp16", "--steps=2", save);
    PRECISE("fp32", "--steps=12", resume);
    TEST_ASSERT_TRUE_MESSAGE(fabs(atof(train_field("val_loss")) - loss) < 0.01 * loss, train_said.out);
    PRECISE("bf16", "--steps=2", save);
    PRECISE("fp16", "--steps=3", "--loss-scale=1e9", resume);
    TEST_ASSERT_EQUAL_STRING("1", train_field("skipped"));
}

static void flip_byte(long offset)
{
    FILE *file = fopen(path, "r+");
    int byte;

    TEST_ASSERT_NOT_NULL(file);
    TEST_ASSERT_EQUAL_INT(0, fseek(file, offset, SEEK_SET));
    byte = fgetc(file);
    TEST_ASSERT_EQUAL_INT(0, fseek(file, offset, SEEK_SET));
    fputc(byte ^ 1, file);
    fclose(file);
}

static void refuses(const char *why)
{
    TRAIN("1x256M", "--hidden=16", "--steps=4", "--quiet", resume);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_FAILED, train_said.status, train_said.err);
    TEST_ASSERT_EQUAL_STRING("", train_said.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, why), train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, path), train_said.err);
}

static void test_a_bad_file_is_refused_with_a_reason(void)
{
    struct stat info;
    char line[LINE];

    refuses("No such file");
    TRAIN("1x256M", "--hidden=16", "--steps=2", "--quiet", save);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TEST_ASSERT_EQUAL_INT(0, stat(path, &info));
    flip_byte((long)info.st_size / 2);
    refuses("checksum");
    flip_byte((long)info.st_size / 2);
    flip_byte(60);
    refuses("checksum");
    flip_byte(60);
    snprintf(line, sizeof(line), "truncate -s -1 %s", path);
    TEST_ASSERT_EQUAL_INT(0, system(line));
    refuses("truncated");
    snprintf(line, sizeof(line), "truncate -s 40 %s", path);
    TEST_ASSERT_EQUAL_INT(0, system(line));
    refuses("too short");
    snprintf(line, sizeof(line), "seq 1 1000 > %s", path);
    TEST_ASSERT_EQUAL_INT(0, system(line));
    refuses("not a checkpoint");
    snprintf(line, sizeof(line), "rm %s && mkfifo %s", path, path);
    TEST_ASSERT_EQUAL_INT(0, system(line));
    refuses("not a file");
}

static void test_another_models_checkpoint_is_refused(void)
{
    TRAIN("1x256M", "--hidden=24", "--steps=2", "--quiet", save);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    refuses("another model: parameter 0 is 24 x 784, but here 16 x 784");
    TRAIN("1x256M", "--hidden=16,16", "--steps=2", "--quiet", save);
    refuses("another model: 6 parameters, but this one has 4");
    TRAIN("1x256M", "--hidden=16", "--steps=2", "--quiet", save);
    TRAIN("1x256M", "--hidden=16", "--steps=4", "--quiet", "--optimizer=adam", resume);
    TEST_ASSERT_EQUAL_INT(TRAIN_FAILED, train_said.status);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "another model"), train_said.err);
}

static void test_a_finished_run_says_that_nothing_is_left(void)
{
    TRAIN("1x256M", "--hidden=16", "--steps=4", "--quiet", save);
    train_went_well();
    TRAIN("1x256M", "--hidden=16", "--steps=2", resume);
    train_went_well();
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "is at step 4: nothing is left"), train_said.err);
    TEST_ASSERT_EQUAL_STRING("4", train_field("steps"));
}

static int count_files(void)
{
    DIR *stream = opendir(folder);
    const struct dirent *entry;
    int count = 0;

    TEST_ASSERT_NOT_NULL(stream);
    while ((entry = readdir(stream)))
        count += entry->d_name[0] != '.';
    closedir(stream);
    return count;
}

/* Runs these shell commands beside a long training whose process id is $run and whose messages are in $err.
 * They begin when the first checkpoint is there. "full" makes the disk look full: a write fails in the midst
 * of a new file, at a limit of file sizes (which cannot be set earlier: simgpu's memory is files too). The
 * messages come through a pipe, for which the limit does not hold: each step adds some, however long this
 * shell takes. */
static void run_beside(const char *commands)
{
    char line[2 * LINE];

    snprintf(line, sizeof(line),
             "F=%s; err=%s/err; mkfifo $err.pipe; cat $err.pipe >>$err & copier=$!; "
             "\"$TRAIN\" --hidden=256 --batch=4 --alloc=static --steps=1000000000 "
             "--save-every=1 --val-batches=1 --quiet %s 2>$err.pipe & run=$!; "
             "full() { prlimit --pid $run --fsize=100000:; until grep -q 'goes on' $err; do check; done; }; "
             "check() { kill -0 $run || exit 9; sleep 0.01; }; "
             "until [ -e $F ]; do check; done; %s; kill -TERM $run; wait $run; code=$?; wait $copier; "
             "cat $err >&2; rm $err $err.pipe; exit $code",
             path, folder, save, commands);
    train_shell("1x256M", line, 0);
}

static void check_resumes(void)
{
    TRAIN("1x256M", "--hidden=256", "--steps=0", "--quiet", "--val-batches=1", resume);
    train_went_well();
}

static void test_a_full_disk_costs_a_checkpoint_and_not_the_training(void)
{
    run_beside("full; cp $F $F.copy; : >$err; until grep -q 'cannot be written' $err; do check; done; "
               "cmp $F $F.copy && prlimit --pid $run --fsize=unlimited:; "
               "while cmp -s $F $F.copy; do check; done; rm $F.copy");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_STOPPED, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "cannot be written: File too large"), train_said.err);
    TEST_ASSERT_EQUAL_INT(1, count_files());
    check_resumes();
}

static void test_a_run_whose_end_cannot_be_saved_has_a_status_of_its_own(void)
{
    char name[TRAIN_PATH + 8];

    run_beside("full");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_UNSAVED, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, ", which could not be saved to "), train_said.err);
    TEST_ASSERT_EQUAL_INT(1, count_files());
    check_resumes();
    /* A folder takes the place: the result is told all the same. */
    snprintf(name, sizeof(name), "%s.best", path);
    TEST_ASSERT_EQUAL_INT(0, mkdir(name, 0700));
    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=3", "--val-batches=1", "--save-best", save);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_UNSAVED, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(
        strstr(train_said.err, "run.ckpt.best is not the checkpoint with the lowest"), train_said.err);
    TEST_ASSERT_EQUAL_STRING("3", train_field("steps"));
    TEST_ASSERT_EQUAL_INT(0, rmdir(name));
    /* What was not kept does not count: the next validation is the best. */
    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=4", "--val-batches=1", "--save-best", "--rate=3", save,
          resume);
    train_went_well();
    copy_file("last");
    TEST_ASSERT_TRUE(same_file(".best", "last"));
}

/* Root may do anything in /proc, but nothing can be created there. */
static void test_a_place_where_nothing_can_be_created_is_reported_before_the_training(void)
{
    TRAIN("1x256M", "--hidden=16", "--steps=1", "--save=/proc/run.ckpt");
    TEST_ASSERT_EQUAL_INT(TRAIN_FAILED, train_said.status);
    TEST_ASSERT_NULL_MESSAGE(strstr(train_said.err, "step=1"), train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "/proc/run.ckpt"), train_said.err);
}

static void test_a_missing_folder_is_reported_before_the_training(void)
{
    TRAIN("1x256M", "--hidden=16", "--steps=1", "--save=/nonexistent/folder/run.ckpt");
    TEST_ASSERT_EQUAL_INT(TRAIN_FAILED, train_said.status);
    TEST_ASSERT_NULL_MESSAGE(strstr(train_said.err, "step=1"), train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "/nonexistent/folder/run.ckpt"), train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "No such file"), train_said.err);
}

static void test_what_is_not_a_file_is_not_replaced(void)
{
    struct stat info;

    TEST_ASSERT_EQUAL_INT(0, mkfifo(path, 0600));
    TRAIN("1x256M", "--hidden=16", "--steps=1", "--quiet", save);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_FAILED, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, path), train_said.err);
    TEST_ASSERT_EQUAL_INT(0, lstat(path, &info));
    TEST_ASSERT_TRUE(S_ISFIFO(info.st_mode));
    TEST_ASSERT_EQUAL_INT(0, remove(path));
    train_write_file(folder, "run.ckpt", "a text", 6);
    TRAIN("1x256M", "--hidden=16", "--steps=1", "--quiet", save);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_FAILED, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "it exists and is not a checkpoint"), train_said.err);
}

static void test_death_while_saving_leaves_the_last_good_checkpoint(void)
{
    static const double moments[] = {0.4, 0.55, 0.7};
    char line[LINE];

    TRAIN("1x256M", "--hidden=512", "--steps=1", "--quiet", save);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    for (size_t i = 0; i < sizeof(moments) / sizeof(moments[0]); i++) {
        snprintf(line, sizeof(line),
                 "exec \"$TRAIN\" --hidden=512 --batch=1 --steps=1000000 --save-every=1 --quiet %s %s", save,
                 resume);
        train_shell("1x256M", line, moments[i]);
        TEST_ASSERT_TRUE_MESSAGE(train_said.timed_out, train_said.err);
        TRAIN("1x256M", "--hidden=512", "--batch=1", "--steps=0", "--quiet", "--val-batches=1", resume);
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    }
    /* The next run that saves removes the files of killed runs. */
    TRAIN("1x256M", "--hidden=512", "--steps=1", "--quiet", save);
    train_went_well();
    TEST_ASSERT_EQUAL_INT(1, count_files());
}

static void test_the_newest_checkpoints_are_kept_and_rotate(void)
{
    static const char *const steps[] = {"2", "4", "6"};
    char name[32];

    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "--steps=%s", steps[i]);
        TRAIN("1x256M", "--hidden=16", "--quiet", "--keep=3", save, name, i ? resume : "--seed=1");
        train_went_well();
        snprintf(name, sizeof(name), "copy%d", i);
        copy_file(name);
    }
    TEST_ASSERT_TRUE(same_file("", "copy2") && same_file(".1", "copy1") && same_file(".2", "copy0"));
    TRAIN("1x256M", "--hidden=16", "--quiet", "--keep=3", save, resume, "--steps=12", "--save-every=1");
    train_went_well();
    copy_file("copy3");
    TEST_ASSERT_EQUAL_INT(3 + 4, count_files());
    TRAIN("1x256M", "--hidden=16", "--quiet", "--keep=1", save, resume, "--steps=13");
    train_went_well();
    TEST_ASSERT_FALSE(same_file("", "copy3"));
    TEST_ASSERT_EQUAL_INT(3 + 4, count_files());
}

/* The validation loss of the checkpoint with that ending. */
static double loss_of(const char *ending)
{
    char option[800];

    snprintf(option, sizeof(option), "%s%s", resume, ending);
    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=0", option);
    train_went_well();
    return atof(train_field("val_loss"));
}

static void test_the_best_validation_is_kept_also_over_a_resume(void)
{
    double best, said;

    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=40", "--validate-every=5", "--save-best", save);
    train_went_well();
    said = atof(train_field("val_best"));
    best = loss_of(".best");
    TEST_ASSERT_DOUBLE_WITHIN(1e-4, said, best);
    /* What comes now is worse: it must not take its place. */
    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=50", "--validate-every=5", "--save-best", "--rate=3",
          save, resume);
    train_went_well();
    TEST_ASSERT_TRUE_MESSAGE(atof(train_field("val_loss")) > said, train_said.out);
    TEST_ASSERT_EQUAL_DOUBLE(best, loss_of(".best"));
    TEST_ASSERT_TRUE(loss_of("") > best);
    TRAIN("1x256M", "--save-best");
    TEST_ASSERT_EQUAL_INT(TRAIN_USAGE, train_said.status);
}

/* It may lead to another disk. */
static void test_a_link_stays_and_its_file_is_replaced(void)
{
    char link[TRAIN_PATH + 8], option[TRAIN_OPTION + 16];
    struct stat info;

    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=1", "--val-batches=1", save);
    train_went_well();
    copy_file("before");
    snprintf(link, sizeof(link), "%s.link", path);
    TEST_ASSERT_EQUAL_INT(0, symlink(path, link));
    snprintf(option, sizeof(option), "--save=%s", link);
    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=2", "--val-batches=1", option, resume);
    train_went_well();
    TEST_ASSERT_EQUAL_INT(0, lstat(link, &info));
    TEST_ASSERT_TRUE(S_ISLNK(info.st_mode));
    TEST_ASSERT_FALSE(same_file("", "before"));
}

/* The second link leads to the first, and that one to a file that the training creates. */
static void test_a_link_to_a_file_that_is_not_there_yet_stays(void)
{
    char link[TRAIN_PATH + 8], option[TRAIN_OPTION + 16];
    struct stat info;

    snprintf(link, sizeof(link), "%s.link", path);
    TEST_ASSERT_EQUAL_INT(0, symlink("run.ckpt", link));
    snprintf(link, sizeof(link), "%s.next", path);
    snprintf(option, sizeof(option), "%s.link", path);
    TEST_ASSERT_EQUAL_INT(0, symlink(option, link));
    snprintf(option, sizeof(option), "--save=%s", link);
    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=1", "--val-batches=1", "--save-best", option);
    train_went_well();
    TEST_ASSERT_EQUAL_INT(0, lstat(link, &info));
    TEST_ASSERT_TRUE(S_ISLNK(info.st_mode));
    TEST_ASSERT_EQUAL_INT(0, lstat(path, &info));
    TEST_ASSERT_TRUE(S_ISREG(info.st_mode));
    TEST_ASSERT_EQUAL_INT(4, count_files()); /* with run.ckpt.best */
    TEST_ASSERT_EQUAL_INT(0, remove(link));
    TEST_ASSERT_EQUAL_INT(0, symlink("no-such-folder/run.ckpt", link));
    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=1", "--val-batches=1", option);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_FAILED, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "no-such-folder/run.ckpt: "), train_said.err);
}

/* The file with that ending has this text. */
static void holds(const char *ending, const char *text)
{
    char name[TRAIN_PATH + 8], found[16] = "";
    FILE *file;

    snprintf(name, sizeof(name), "%s%s", path, ending);
    file = fopen(name, "r");
    TEST_ASSERT_NOT_NULL_MESSAGE(file, name);
    TEST_ASSERT_TRUE(fread(found, 1, sizeof(found) - 1, file) > 0);
    fclose(file);
    TEST_ASSERT_EQUAL_STRING_MESSAGE(text, found, name);
}

static void test_older_checkpoints_stay_where_they_are_if_the_newest_cannot_be_put_in_its_place(void)
{
    char temporary[TRAIN_PATH + 8];

    snprintf(temporary, sizeof(temporary), "%s.new", path);
    train_write_file(folder, "run.ckpt", "zero", 4);
    train_write_file(folder, "run.ckpt.1", "one", 3);
    train_write_file(folder, "run.ckpt.2", "two", 3);
    TEST_ASSERT_EQUAL_INT(-1, checkpoint_place_commit(temporary, path, 3)); /* it is not there */
    holds("", "zero");
    holds(".1", "one");
    holds(".2", "two");
    TEST_ASSERT_EQUAL_INT(3, count_files());
    train_write_file(folder, "run.ckpt.new", "new", 3);
    TEST_ASSERT_EQUAL_INT(0, checkpoint_place_commit(temporary, path, 3));
    holds("", "new");
    holds(".1", "zero");
    holds(".2", "one");
    TEST_ASSERT_EQUAL_INT(3, count_files());
    /* A folder in its place is not taken for a checkpoint. */
    train_write_file(folder, "run.ckpt.new", "newer", 5);
    TEST_ASSERT_EQUAL_INT(0, remove(path));
    TEST_ASSERT_EQUAL_INT(0, mkdir(path, 0700));
    TEST_ASSERT_EQUAL_INT(-1, checkpoint_place_commit(temporary, path, 3));
    TEST_ASSERT_EQUAL_INT(0, rmdir(path));
    holds(".1", "zero");
    holds(".2", "one");
}

/* The lock of the folder holds the run up while FILE.best gets its name: meanwhile a folder takes the place
 * of FILE. */
static void test_a_loss_that_cannot_be_added_to_a_complete_checkpoint_is_told_as_that(void)
{
    char line[2 * LINE];

    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=3", "--val-batches=1", save);
    train_went_well();
    snprintf(
        line, sizeof(line),
        "F=%s; exec 9<%s; flock 9; \"$TRAIN\" --hidden=16 --quiet --steps=3 --val-batches=1 --save-best %s "
        "%s 9<&- & run=$!; until ls $F.best.tmp-*; do kill -0 $run || exit 9; sleep 0.01; done "
        ">/dev/null 2>&1; rm $F; mkdir $F; flock -u 9; wait $run; code=$?; rmdir $F; exit $code",
        path, folder, save, resume);
    train_shell("1x256M", line, 0);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_UNSAVED, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "which has all steps"), train_said.err);
    TEST_ASSERT_NULL_MESSAGE(strstr(train_said.err, "is an older one"), train_said.err);
    TEST_ASSERT_EQUAL_STRING("3", train_field("steps"));
}

/* The last validation comes after the last checkpoint, which must know of it all the same. */
static void test_the_last_validation_counts_after_a_resume(void)
{
    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=20", "--save-best", "--keep=2", save);
    train_went_well();
    TEST_ASSERT_EQUAL_INT(2, count_files()); /* FILE was written twice, without rotating */
    copy_file("best");
    TEST_ASSERT_TRUE(same_file(".best", "best"));
    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=22", "--save-best", "--rate=3", save, resume);
    train_went_well();
    TEST_ASSERT_TRUE_MESSAGE(atof(train_field("val_loss")) > atof(train_field("val_best")), train_said.out);
    TEST_ASSERT_TRUE(same_file(".best", "best"));
}

/* A run that only validates knows of it too: a signal may have interrupted the last validation. */
static void test_a_validation_after_a_resume_counts_after_the_next(void)
{
    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=20", save);
    train_went_well();
    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=20", "--save-best", save, resume);
    train_went_well();
    copy_file("best");
    TEST_ASSERT_TRUE(same_file(".best", "best"));
    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=22", "--save-best", "--rate=3", save, resume);
    train_went_well();
    TEST_ASSERT_TRUE(same_file(".best", "best"));
}

static void test_a_finished_run_is_copied_to_another_file(void)
{
    char other[TRAIN_OPTION + 8];

    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=3", save);
    train_went_well();
    copy_file("before");
    snprintf(other, sizeof(other), "%s.copy", save);
    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=3", "--val-batches=1", other, resume);
    train_went_well();
    TEST_ASSERT_TRUE(same_file(".copy", "before"));
    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=0", other, resume);
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_USAGE, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "--steps=0 only validates"), train_said.err);
}

/* The seed chooses what is validated with: another one would validate with what was trained on. */
static void test_another_seed_is_refused(void)
{
    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=2", "--seed=5", save);
    train_went_well();
    refuses("it was trained with --seed=5, and now it is --seed=1");
}

/* A capture that fails shows when the first one is: after a batch for each set of buffers, as in a run that
 * begins, so that all memory has been taken. */
static void test_a_resumed_run_captures_its_graph_as_late_as_a_new_one(void)
{
    char line[LINE];

    TRAIN("1x256M", "--hidden=16", "--quiet", "--steps=6", "--alloc=cache", save);
    train_went_well();
    for (int more = 2; more <= 3; more++) {
        snprintf(line, sizeof(line),
                 "GPUCAP_SIM_FAULT=cuStreamBeginCapture_v2:1=2 \"$TRAIN\" --hidden=16 --quiet --steps=%d "
                 "--alloc=cache --graph --val-batches=1 %s",
                 6 + more, resume);
        train_shell("1x256M", line, 0);
        TEST_ASSERT_EQUAL_INT_MESSAGE(more == 2, train_said.status == 0, train_said.err);
    }
}

/* Both write all the time; every file that a reader finds is whole, and nothing else is left. */
static void test_two_runs_that_save_to_one_path_do_not_break_each_other(void)
{
    char line[LINE];

    snprintf(line, sizeof(line),
             "run() { \"$TRAIN\" --hidden=256 --batch=1 --steps=15 --save-every=1 --keep=2 --quiet %s "
             "--seed=$1 || exit 9; }; run 1 & first=$!; run 2 & second=$!; wait $first && wait $second",
             save);
    train_shell("1x256M", line, 0);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TEST_ASSERT_EQUAL_INT(2, count_files());
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof(line), "%s%s", resume, i ? ".1" : "");
        TRAIN("1x256M", "--hidden=256", "--steps=0", "--quiet", "--val-batches=1", line);
        train_went_well();
    }
}

/* The other tests read and write files in one thread, and train as harness_train does. */
#ifdef __SANITIZE_THREAD__
#define ONLY_THREADS true
#else
#define ONLY_THREADS false
#endif

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_two_runs_give_the_same_losses_and_weights_to_the_bit);
    if (ONLY_THREADS)
        return UNITY_END();
    RUN_TEST(test_a_stopped_run_goes_on_with_the_same_bits);
    RUN_TEST(test_a_run_goes_on_in_another_precision);
    RUN_TEST(test_a_bad_file_is_refused_with_a_reason);
    RUN_TEST(test_another_models_checkpoint_is_refused);
    RUN_TEST(test_a_finished_run_says_that_nothing_is_left);
    RUN_TEST(test_a_full_disk_costs_a_checkpoint_and_not_the_training);
    RUN_TEST(test_a_run_whose_end_cannot_be_saved_has_a_status_of_its_own);
    RUN_TEST(test_the_newest_checkpoints_are_kept_and_rotate);
    RUN_TEST(test_the_best_validation_is_kept_also_over_a_resume);
    RUN_TEST(test_a_link_stays_and_its_file_is_replaced);
    RUN_TEST(test_a_link_to_a_file_that_is_not_there_yet_stays);
    RUN_TEST(test_older_checkpoints_stay_where_they_are_if_the_newest_cannot_be_put_in_its_place);
    RUN_TEST(test_a_loss_that_cannot_be_added_to_a_complete_checkpoint_is_told_as_that);
    RUN_TEST(test_the_last_validation_counts_after_a_resume);
    RUN_TEST(test_a_validation_after_a_resume_counts_after_the_next);
    RUN_TEST(test_a_finished_run_is_copied_to_another_file);
    RUN_TEST(test_another_seed_is_refused);
    RUN_TEST(test_a_resumed_run_captures_its_graph_as_late_as_a_new_one);
    RUN_TEST(test_a_place_where_nothing_can_be_created_is_reported_before_the_training);
    RUN_TEST(test_two_runs_that_save_to_one_path_do_not_break_each_other);
    RUN_TEST(test_a_missing_folder_is_reported_before_the_training);
    RUN_TEST(test_what_is_not_a_file_is_not_replaced);
    RUN_TEST(test_death_while_saving_leaves_the_last_good_checkpoint);
    return UNITY_END();
}
