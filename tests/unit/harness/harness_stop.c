/* `train` ends when it must: a loss or gradient that is not finite stops it and never reaches a checkpoint.
 */
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/train/checkpoint_format.h"
#include "harness/train/stop.h"
#include "kernels/ops.h"
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

#define DIVERGES "--hidden=32", "--rate=10", "--momentum=0.99", "--val-batches=1"

static void ends_with(int status, const char *why)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(status, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, why), train_said.err);
}

static void test_a_loss_that_is_not_finite_stops_with_a_status_of_its_own(void)
{
    TRAIN("1x256M", DIVERGES, "--steps=100000", "--quiet");
    ends_with(TRAIN_NOT_FINITE, "is not finite: the training stops");
    TEST_ASSERT_EQUAL_STRING("", train_said.out);
    TRAIN("1x256M", DIVERGES, "--steps=100000", "--quiet", "--graph", "--alloc=static", "--accumulate=2",
          "--batch=32");
    ends_with(TRAIN_NOT_FINITE, "is not finite: the training stops");
    TRAIN("1x256M", DIVERGES, "--steps=100000", "--quiet", "--precision=bf16");
    ends_with(TRAIN_NOT_FINITE, "is not finite: the training stops");
}

/* All floats of the checkpoint, which follow its header and table: 2 layers have 4 parameters. */
static bool all_finite(void)
{
    enum { BEFORE = 384 + 4 * 16 };
    FILE *file = fopen(path, "r");
    size_t count = 0;
    bool finite = true;
    float x;

    TEST_ASSERT_NOT_NULL(file);
    TEST_ASSERT_EQUAL_INT(0, fseek(file, BEFORE, SEEK_SET));
    while (fread(&x, sizeof(x), 1, file) == 1) {
        finite = finite && isfinite(x);
        count++;
    }
    fclose(file);
    TEST_ASSERT_EQUAL_size_t(2 * (784 * 32 + 32 + 32 * 10 + 10), count);
    return finite;
}

/* However steps, reports and checkpoints fall, FILE holds no number that is not finite. */
static void test_a_good_checkpoint_is_not_overwritten_after_a_bad_step(void)
{
    char line[LINE];

    TRAIN("1x256M", "--hidden=32", "--steps=5", "--quiet", save);
    train_went_well();
    snprintf(line, sizeof(line), "cp %s %s/before", path, folder);
    TEST_ASSERT_EQUAL_INT(0, system(line));
    TRAIN("1x256M", DIVERGES, "--steps=300", "--quiet", save, resume);
    ends_with(TRAIN_NOT_FINITE, "run.ckpt is as it was last saved");
    snprintf(line, sizeof(line), "cmp %s %s/before", path, folder);
    TEST_ASSERT_EQUAL_INT(0, system(line));
    TRAIN("1x256M", DIVERGES, "--steps=300", "--quiet", "--save-every=1", save, resume);
    ends_with(TRAIN_NOT_FINITE, "is not finite");
    TEST_ASSERT_TRUE(all_finite());
}

static void test_bad_updates_are_left_out_or_made_where_that_is_asked_for(void)
{
    const char *skipped;

    /* The updates before were too large: what is left at the end is no success. */
    TRAIN("1x256M", DIVERGES, "--steps=60", "--report-every=60", "--on-nan=skip");
    ends_with(TRAIN_NOT_FINITE, "the validation loss at step 60 is not finite");
    TEST_ASSERT_EQUAL_STRING("", train_said.out);
    skipped = strstr(strstr(train_said.err, "step=60/60"), " skipped=");
    TEST_ASSERT_TRUE_MESSAGE(skipped && atoi(skipped + strlen(" skipped=")) > 10, train_said.err);
    TRAIN("1x256M", DIVERGES, "--steps=60", "--quiet", "--on-nan=go");
    train_went_well();
    TEST_ASSERT_NOT_NULL(strstr(train_said.out, "loss_last=nan"));
    TEST_ASSERT_NULL(strstr(train_said.out, "skipped="));
}

static void test_a_training_that_skips_every_update_ends(void)
{
    TRAIN("1x256M", DIVERGES, "--steps=100000", "--quiet", "--on-nan=skip", save);
    ends_with(TRAIN_NOT_FINITE, "no update since step ");
}

/* Changes the header of the checkpoint, and its sum with it. */
static void patch(void (*change)(struct checkpoint_header *header))
{
    enum { MOST = 1 << 20 };
    static unsigned char bytes[MOST];
    const size_t unsummed = offsetof(struct checkpoint_header, version);
    struct checkpoint_header *header = (struct checkpoint_header *)bytes;
    struct checkpoint_sum sum;
    FILE *file = fopen(path, "r+");
    size_t count;

    TEST_ASSERT_NOT_NULL(file);
    count = fread(bytes, 1, MOST, file);
    TEST_ASSERT_TRUE(count > sizeof(*header) && count < MOST);
    change(header);
    checkpoint_sum_open(&sum);
    checkpoint_sum_add(&sum, bytes + unsummed, count - unsummed);
    header->checksum = checkpoint_sum_close(&sum);
    rewind(file);
    TEST_ASSERT_EQUAL_size_t(count, fwrite(bytes, 1, count, file));
    fclose(file);
}

/* An update before was bad, as --on-nan=skip leaves it; and a loss scale with which none is ever done. */
static void note_a_bad_step(struct checkpoint_header *header)
{
    struct ops_scalars scalars;

    memcpy(&scalars, header->scalars, sizeof(scalars));
    TEST_ASSERT_EQUAL_UINT64(5, scalars.step);
    scalars.bad_step = 3;
    scalars.scale = INFINITY;
    memcpy(header->scalars, &scalars, sizeof(scalars));
}

static void test_updates_that_were_skipped_do_not_stop_a_run_that_resumes(void)
{
    TRAIN("1x256M", "--hidden=16", "--steps=5", "--quiet", "--val-batches=1", save);
    train_went_well();
    patch(note_a_bad_step);
    TRAIN("1x256M", "--hidden=16", "--steps=7", "--quiet", "--val-batches=1", resume);
    train_went_well();
    TRAIN("1x256M", "--hidden=16", "--steps=7", "--quiet", "--val-batches=1", "--precision=fp16", resume);
    train_went_well();
    TEST_ASSERT_EQUAL_STRING("0", train_field("skipped"));
}

/* Starts a long training on these cards, sends it signals once it has begun to save, and stores its status in
 * train_said. */
static void run_and_signal(const char *signals, const char *cards, const char *options)
{
    char line[LINE];

    snprintf(line, sizeof(line),
             "(until [ -e %s ]; do kill -0 $$ || exit; sleep 0.01; done; for signal in %s; do kill -$signal "
             "$$; done) & "
             "exec \"$TRAIN\" --hidden=16 --batch=4 --steps=1000000000 --save-every=5 --quiet %s %s",
             path, signals, save, options);
    train_shell(cards, line, 0);
}

static void test_signals_save_and_end_with_a_status_of_their_own(void)
{
    static const char *const names[] = {"HUP", "INT", "TERM"}; /* the last: replicas */
    char text[64];
    unsigned long long step;

    for (int i = 0; i < 3; i++) {
        run_and_signal(names[i], i == 2 ? "2x256M" : "1x256M", i == 2 ? "--replicas=all" : "");
        snprintf(text, sizeof(text), "ended by SIG%s at step ", names[i]);
        ends_with(TRAIN_STOPPED, text);
        step = strtoull(strstr(train_said.err, text) + strlen(text), NULL, 10);
        TEST_ASSERT_EQUAL_STRING("", train_said.out);
        TRAIN("1x256M", "--hidden=16", "--steps=1", "--val-batches=1", resume);
        train_went_well();
        snprintf(text, sizeof(text), "run.ckpt is at step %llu:", step);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, text), train_said.err);
        TEST_ASSERT_EQUAL_INT(0, remove(path));
    }
}

#ifndef __SANITIZE_THREAD__
static void wrap_steps(struct checkpoint_header *header)
{
    header->step = UINT64_MAX;
}

static void steer_terminal(struct checkpoint_header *header)
{
    header->step = 5;
    header->name[0] = '\033';
}

static void test_a_header_that_cannot_be_is_refused(void)
{
    TRAIN("1x256M", "--hidden=16", "--steps=5", "--quiet", "--val-batches=1", save);
    train_went_well();
    patch(wrap_steps);
    TRAIN("1x256M", "--hidden=16", "--steps=7", "--quiet", resume);
    ends_with(TRAIN_FAILED, "its header is damaged (number of steps)");
    patch(steer_terminal);
    TRAIN("1x256M", "--hidden=16", "--steps=7", "--quiet", resume);
    ends_with(TRAIN_FAILED, "its header is damaged (the model's name)");
}

/* While it is halted, both become pending: the second is delivered before it can have saved. */
static void test_a_second_signal_ends_it_at_once(void)
{
    run_and_signal("STOP INT TERM CONT", "1x256M", "");
    TEST_ASSERT_EQUAL_INT_MESSAGE(128 + SIGTERM, train_said.status, train_said.err);
    TEST_ASSERT_EQUAL_STRING("", train_said.err);
    TRAIN("1x256M", "--hidden=16", "--steps=1", "--val-batches=1", resume);
    train_went_well();
}
#endif

/* Sends `train` SIGTERM when this is in what it prints to stderr, or in its log. */
static void end_when_it_says(const char *text, const char *options)
{
    char line[LINE];

    snprintf(line, sizeof(line),
             "F=%s; \"$TRAIN\" --hidden=16 --batch=4 --log=$F/log %s 2>$F/err & run=$!; "
             "until grep -qs '%s' $F/err $F/log; do kill -0 $run || break; sleep 0.01; done; "
             "kill -TERM $run; wait $run; code=$?; cat $F/err >&2; exit $code",
             folder, options, text);
    train_shell("1x256M", line, 0);
}

/* Status 5 would promise a checkpoint. */
static void test_a_signal_ends_the_search_for_a_batch_as_without_save(void)
{
    char options[LINE / 2];

    snprintf(options, sizeof(options), "--find-batch --batch=1048576 %s", save);
    end_when_it_says("batch 1 fits", options);
    TEST_ASSERT_EQUAL_INT_MESSAGE(128 + SIGTERM, train_said.status, train_said.err);
}

static void test_a_signal_names_no_file_that_was_not_saved(void)
{
    char options[LINE / 2];

    snprintf(options, sizeof(options),
             "--steps=0 --save-best --samples=100000000000 --val-batches=1000000000 %s", save);
    end_when_it_says("\"start\"", options);
    ends_with(TRAIN_STOPPED, "nothing was saved to ");
}

/* The validation at step 3 has a billion batches. The run that resumes does it, before its own steps. */
static void test_a_validation_that_a_signal_interrupted_is_done_after_the_resume(void)
{
    static const char *const sizes = "--validate-every=3 --samples=100000000000 --steps=5";
    char options[LINE / 2], line[LINE];

    snprintf(options, sizeof(options), "%s --report-every=1 --val-batches=1000000000 %s", sizes, save);
    end_when_it_says("step=3/5", options);
    ends_with(TRAIN_STOPPED, "ended by SIGTERM at step 3 of 5");
    snprintf(line, sizeof(line),
             "\"$TRAIN\" --hidden=16 --batch=4 %s --quiet --val-batches=1 --log=%s/log2 %s && cat %s/log2",
             sizes, folder, resume, folder);
    train_shell("1x256M", line, 0);
    train_went_well();
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.out, "\"model\":\"mlp\",\"step\":3,\"loss\""),
                                 train_said.out);
    TEST_ASSERT_NULL_MESSAGE(strstr(train_said.out, "\"event\":\"step\",\"model\":\"mlp\",\"step\":3"),
                             train_said.out);
}

static void test_a_signal_that_was_ignored_stays_so(void)
{
    char line[LINE];

    snprintf(
        line, sizeof(line),
        "trap '' INT HUP; \"$TRAIN\" --hidden=16 --batch=4 --steps=300 --save-every=5 --quiet %s & run=$!; "
        "until [ -e %s ]; do kill -0 $run || exit; sleep 0.01; done; kill -INT $run; kill -HUP $run; "
        "wait $run",
        save, path);
    train_shell("1x256M", line, 0);
    train_went_well();
}

static void test_an_ignored_signal_stays_so_after_another_asked_for_the_end(void)
{
    static const int numbers[] = {SIGINT, SIGHUP, SIGTERM};
    struct sigaction before[3], after, ignore = {.sa_handler = SIG_IGN}, plain = {.sa_handler = SIG_DFL};

    for (int i = 0; i < 3; i++)
        TEST_ASSERT_EQUAL_INT(0, sigaction(numbers[i], i == 0 ? &ignore : &plain, &before[i]));
    stop_watch();
    TEST_ASSERT_EQUAL_INT(0, raise(SIGTERM));
    TEST_ASSERT_EQUAL_INT(SIGTERM, stop_signal());
    for (int i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL_INT(0, sigaction(numbers[i], &before[i], &after));
        TEST_ASSERT_TRUE(after.sa_handler == (numbers[i] == SIGTERM ? SIG_DFL : SIG_IGN));
    }
}

/* A folder takes the place of the checkpoint. The signal comes when a save has failed for it: right after a
 * good save there would be nothing to save. */
static void test_replicas_that_cannot_save_at_the_end_have_not_failed(void)
{
    char line[LINE];

    snprintf(
        line, sizeof(line),
        "F=%s; E=%s/err; \"$TRAIN\" --hidden=16 --batch=4 --steps=1000000000 --save-every=5 --quiet "
        "--replicas=2 %s 2>$E & run=$!; check() { kill -0 $run || exit 9; sleep 0.01; }; "
        "until [ -e $F ]; do check; done; until rm -f $F; mkdir $F; do check; done 2>/dev/null; "
        "until grep -q $F $E; do check; done; kill -TERM $run; wait $run; code=$?; rmdir $F; cat $E >&2; "
        "exit $code",
        path, folder, save);
    train_shell("1x256M", line, 0);
    ends_with(TRAIN_UNSAVED, ", which could not be saved to ");
    TEST_ASSERT_NULL_MESSAGE(strstr(train_said.err, "failed: the run ends"), train_said.err);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_loss_that_is_not_finite_stops_with_a_status_of_its_own);
    RUN_TEST(test_a_good_checkpoint_is_not_overwritten_after_a_bad_step);
    RUN_TEST(test_bad_updates_are_left_out_or_made_where_that_is_asked_for);
    RUN_TEST(test_a_training_that_skips_every_update_ends);
    RUN_TEST(test_updates_that_were_skipped_do_not_stop_a_run_that_resumes);
    RUN_TEST(test_signals_save_and_end_with_a_status_of_their_own);
#ifndef __SANITIZE_THREAD__ /* which delivers signals later, both before the handler */
    RUN_TEST(test_a_second_signal_ends_it_at_once);
    RUN_TEST(test_a_header_that_cannot_be_is_refused); /* one thread reads it */
#endif
    RUN_TEST(test_a_validation_that_a_signal_interrupted_is_done_after_the_resume);
    RUN_TEST(test_a_signal_ends_the_search_for_a_batch_as_without_save);
    RUN_TEST(test_a_signal_names_no_file_that_was_not_saved);
    RUN_TEST(test_a_signal_that_was_ignored_stays_so);
    RUN_TEST(test_an_ignored_signal_stays_so_after_another_asked_for_the_end);
    RUN_TEST(test_replicas_that_cannot_save_at_the_end_have_not_failed);
    return UNITY_END();
}
