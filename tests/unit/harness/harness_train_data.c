/* `train` on every kind of data file on the simulated GPU: it learns from them, it does not matter where
 * pictures are prepared or how many workers there are, a resumed run goes on with the next batch, and bad
 * files end in a message with their name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/harness/harness_files.h"
#include "tests/unit/harness/harness_support.h"
#include "unity.h"

static char folder[FILES_PATH], data[FILES_PATH + 16];

void setUp(void)
{
    files_make_folder(folder);
    snprintf(data, sizeof(data), "--data=%s", folder);
}

void tearDown(void)
{
    train_forget();
    files_remove_folder(folder);
}

static void make_pictures(int files)
{
    for (int i = 0; i < files; i++) {
        char name[32];

        snprintf(name, sizeof(name), "dark/%d.jpg", i);
        files_write_picture(folder, name, 20 + i, 24, (uint8_t)(40 + i), 30, 60);
        snprintf(name, sizeof(name), "light/%d.png", i);
        files_write_picture(folder, name, 24, 20 + i, (uint8_t)(200 + i), 220, 190);
    }
}

static void assert_learned(void)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TEST_ASSERT_TRUE_MESSAGE(atof(train_field("loss_last")) < atof(train_field("loss_first")),
                             train_said.out);
}

static void assert_refused(const char *named)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_FAILED, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, named), train_said.err);
    TEST_ASSERT_EQUAL_STRING("", train_said.out);
}

static void test_it_learns_from_idx_files(void)
{
    files_write_idx(folder, 8, 50, 20);
    TRAIN("1x256M", data, "--model=mlp", "--hidden=16", "--steps=30", "--batch=10", "--quiet");
    assert_learned();
    TEST_ASSERT_TRUE(atof(train_field("val_loss")) > 0.0);
}

static void test_it_learns_from_cifar_files(void)
{
    files_write_cifar(folder, 10);
    TRAIN("1x256M", data, "--model=mlp", "--hidden=16", "--steps=30", "--batch=10", "--augment=gpu",
          "--quiet");
    assert_learned();
}

static void test_it_learns_from_a_folder_of_pictures(void)
{
    make_pictures(6);
    TRAIN("1x256M", data, "--model=mlp", "--hidden=8", "--image=16", "--steps=20", "--batch=6",
          "--augment=cpu", "--quiet");
    assert_learned();
    TRAIN("1x256M", data, "--model=unet", "--width=4", "--layers=1", "--image=16", "--steps=6", "--batch=4",
          "--quiet");
    assert_learned();
}

static void test_it_learns_from_text(void)
{
    char text[4000], path[FILES_PATH + 16];

    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = "to be or not to be, "[i % 20];
    files_write(folder, "text", text, sizeof(text));
    snprintf(path, sizeof(path), "--data=%s/text", folder);
    TRAIN("1x256M", path, "--model=gpt", "--length=16", "--width=16", "--layers=1", "--heads=2", "--steps=20",
          "--batch=4", "--quiet");
    assert_learned();
    TEST_ASSERT_TRUE(atof(train_field("val_loss")) < 5.5);
    TRAIN("1x256M", path, "--model=gpt", "--length=16", "--width=16", "--layers=1", "--heads=2",
          "--vocabulary=50", "--quiet");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_USAGE, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "--vocabulary=50: the tokens of "), train_said.err);
}

static void test_where_pictures_are_prepared_and_by_how_many_does_not_matter(void)
{
    static const char *const ways[][4] = {{"--augment=gpu", "--val-preprocess=gpu", "--workers=1"},
                                          {"--augment=cpu", "--val-preprocess=cpu", "--workers=1"},
                                          {"--augment=cpu", "--val-preprocess=gpu", "--workers=5"}};
    double loss[3], validation[3];

    make_pictures(5);
    for (int i = 0; i < 3; i++) {
        TRAIN("1x256M", data, "--model=mlp", "--hidden=8", "--image=12", "--steps=8", "--batch=4", "--quiet",
              ways[i][0], ways[i][1], ways[i][2]);
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
        loss[i] = atof(train_field("loss_last"));
        validation[i] = atof(train_field("val_loss"));
    }
    for (int i = 1; i < 3; i++) {
        TEST_ASSERT_DOUBLE_WITHIN(1e-3 * fabs(loss[0]) + 1e-5, loss[0], loss[i]);
        TEST_ASSERT_DOUBLE_WITHIN(1e-3 * fabs(validation[0]) + 1e-5, validation[0], validation[i]);
    }
}

/* Files come class by class. All pictures are alike, and so are the answers: the accuracy is the share of one
 * class. */
static void test_a_part_of_the_validation_has_samples_of_all_classes(void)
{
    static const char *const files[] = {"train/a", "train/b", "val/a", "val/b"};
    char name[32];

    for (int i = 0; i < 32; i++) {
        snprintf(name, sizeof(name), "%s/%d.png", files[i % 4], i);
        files_write_picture(folder, name, 8, 8, 90, 90, 90);
    }
    TRAIN("1x256M", data, "--model=mlp", "--hidden=4", "--image=8", "--steps=1", "--quiet", "--val-batch=8",
          "--val-batches=1");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TEST_ASSERT_TRUE_MESSAGE(atof(train_field("accuracy")) > 0.0, train_said.out);
    TEST_ASSERT_TRUE_MESSAGE(atof(train_field("accuracy")) < 1.0, train_said.out);
}

static void test_a_resumed_run_goes_on_with_the_batch_that_was_next(void)
{
    char save[FILES_PATH + 32], resume[FILES_PATH + 32], whole[64];

    make_pictures(5);
    snprintf(save, sizeof(save), "--save=%s/run", folder);
    snprintf(resume, sizeof(resume), "--resume=%s/run", folder);
    TRAIN("1x256M", data, "--model=mlp", "--hidden=8", "--image=12", "--steps=9", "--batch=4",
          "--augment=gpu", "--quiet");
    strcpy(whole, train_field("loss_last"));
    TRAIN("1x256M", data, "--model=mlp", "--hidden=8", "--image=12", "--steps=5", "--batch=4",
          "--augment=gpu", "--quiet", save);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TRAIN("1x256M", data, "--model=mlp", "--hidden=8", "--image=12", "--steps=9", "--batch=4",
          "--augment=gpu", "--quiet", "--workers=3", resume);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TEST_ASSERT_EQUAL_STRING(whole, train_field("loss_last"));
    TEST_ASSERT_EQUAL_STRING("5", train_field("from"));
}

static void test_a_resumed_run_does_not_validate_with_what_it_was_trained_on(void)
{
    char save[FILES_PATH + 32], resume[FILES_PATH + 32];

    make_pictures(10);
    snprintf(save, sizeof(save), "--save=%s/run", folder);
    snprintf(resume, sizeof(resume), "--resume=%s/run", folder);
    TRAIN("1x256M", data, "--model=mlp", "--hidden=8", "--image=12", "--steps=2", "--batch=4", "--quiet",
          "--validation=0.2", save);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TRAIN("1x256M", data, "--model=mlp", "--hidden=8", "--image=12", "--steps=2", "--quiet",
          "--validation=0.25", resume);
    assert_refused("4 samples left for validation, and now these are 5");
    TRAIN("1x256M", data, "--model=mlp", "--hidden=8", "--image=12", "--steps=2", "--quiet", resume);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TRAIN("1x256M", data, "--model=mlp", "--hidden=8", "--image=12", "--steps=3", resume);
    TEST_ASSERT_NULL_MESSAGE(strstr(train_said.err, "note: "), train_said.err);
    /* Other data it may be, but if it is more of the same, that is worth a note. */
    files_write_picture(folder, "dark/new.png", 8, 8, 1, 2, 3);
    TRAIN("1x256M", data, "--model=mlp", "--hidden=8", "--image=12", "--steps=3", "--validation=0.25",
          resume);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, " has 21 files and had 20: others"), train_said.err);
}

static void test_a_broken_picture_ends_the_run_or_is_skipped(void)
{
    make_pictures(4);
    files_write(folder, "dark/broken.jpg", "\xff\xd8\xff\xe0 nothing", 12);
    TRAIN("1x256M", data, "--model=mlp", "--hidden=8", "--image=12", "--steps=10", "--batch=6", "--quiet");
    assert_refused("dark/broken.jpg");
    TRAIN("1x256M", data, "--model=mlp", "--hidden=8", "--image=12", "--steps=10", "--batch=6", "--quiet",
          "--corrupt=skip");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "dark/broken.jpg"), train_said.err);
    TEST_ASSERT_EQUAL_STRING("1", train_field("corrupt"));
}

static void test_bad_data_is_named_before_anything_runs(void)
{
    char path[FILES_PATH], missing[FILES_PATH + 32];

    snprintf(missing, sizeof(missing), "--data=%s/missing", folder);
    TRAIN("1x256M", missing, "--steps=1");
    assert_refused("missing: No such file or directory");
    TRAIN("1x256M", data, "--steps=1");
    assert_refused("no image files");
    files_write_picture(folder, "some/0.png", 8, 8, 1, 2, 3);
    files_write(folder, "none/notes.txt", "x", 1);
    TRAIN("1x256M", data, "--model=cnn", "--image=16", "--steps=1");
    assert_refused("at least two folders with images in each");
    files_write_cifar(folder, 2);
    TEST_ASSERT_EQUAL_INT(0, truncate(files_path(path, folder, "data_batch_4.bin"), 5000));
    TRAIN("1x256M", data, "--steps=1");
    assert_refused("data_batch_4.bin: it is truncated");
    files_write_idx(folder, 8, 5, 0);
    TEST_ASSERT_EQUAL_INT(0, unlink(files_path(path, folder, "data_batch_1.bin")));
    TEST_ASSERT_EQUAL_INT(0, truncate(files_path(path, folder, "train-images-idx3-ubyte"), 100));
    TRAIN("1x256M", data, "--steps=1");
    assert_refused("train-images-idx3-ubyte: it is truncated");
}

static void test_a_batch_beyond_the_budget_is_refused(void)
{
    TRAIN("1x256M", "--model=mlp", "--image=64", "--batch=100", "--data-budget=100K", "--steps=1");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_NO_MEMORY, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "--data-budget"), train_said.err);
    /* Also that of a validation, before the training. */
    TRAIN("1x256M", "--model=mlp", "--image=64", "--batch=2", "--val-batch=100", "--data-budget=100K",
          "--steps=1");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_NO_MEMORY, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "a smaller --val-batch"), train_said.err);
    TEST_ASSERT_NULL_MESSAGE(strstr(train_said.err, "step=1"), train_said.err);
}

static void test_no_share_for_validation_means_no_validation(void)
{
    char text[500], path[FILES_PATH + 16];

    make_pictures(8);
    TRAIN("1x256M", data, "--model=cnn", "--width=4", "--image=16", "--steps=2", "--batch=4",
          "--validate-every=1", "--prune=0.5", "--quantize=int8", "--validation=0");
    train_went_well();
    TEST_ASSERT_NULL_MESSAGE(strstr(train_said.out, "val_loss"), train_said.out);
    TEST_ASSERT_NULL_MESSAGE(strstr(train_said.err, "validation loss"), train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "note: --validate-every=1 has no effect"),
                                 train_said.err);
    memset(text, 'a', sizeof(text));
    files_write(folder, "text", text, sizeof(text));
    snprintf(path, sizeof(path), "--data=%s/text", folder);
    TRAIN("1x256M", path, "--model=gpt", "--layers=1", "--width=8", "--heads=1", "--length=16", "--steps=1",
          "--batch=4", "--quiet", "--validation=0");
    train_went_well();
    TEST_ASSERT_NULL_MESSAGE(strstr(train_said.out, "val_loss"), train_said.out);
    snprintf(path, sizeof(path), "--save=%s/saved", folder);
    TRAIN("1x256M", data, "--model=mlp", "--hidden=8", "--image=12", "--steps=2", "--validation=0", path,
          "--save-best");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_USAGE, train_said.status, train_said.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "--save-best compares validations"), train_said.err);
}

static void test_a_share_for_validation_that_the_data_does_not_need_is_named(void)
{
    files_write_idx(folder, 8, 50, 20);
    TRAIN("1x256M", data, "--model=mlp", "--hidden=8", "--steps=1", "--batch=10", "--validation=0");
    train_went_well();
    TEST_ASSERT_TRUE(atof(train_field("val_loss")) > 0.0);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "note: --validation=0 has no effect here: it needs "
                                                        "data without a part for validation\n"),
                                 train_said.err);
}

#define DECODED(...)                                                                                         \
    TRAIN("1x256M", data, "--model=cnn", "--width=2", "--image=16", "--batch=6", "--steps=8",                \
          "--augment=gpu", "--quiet", __VA_ARGS__)

static void test_the_device_decodes_in_every_allocation_mode_with_the_same_losses(void)
{
    static const char *const modes[][2] = {{"--alloc=naive", "--workers=1"},
                                           {"--alloc=cache", "--graph"},
                                           {"--alloc=async", "--workers=4"},
                                           {"--alloc=static", "--graph"},
                                           {"--alloc=arena", "--prefetch=5"}};
    char loss[32] = "", val[32];

    make_pictures(10);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        DECODED("--decode=gpu", modes[i][0], modes[i][1]);
        assert_learned();
        TEST_ASSERT_EQUAL_STRING("gpu", train_field("decode"));
        TEST_ASSERT_TRUE_MESSAGE(atoi(train_field("decoded_on_gpu")) > 8, train_said.out);
        if (i > 0) {
            TEST_ASSERT_EQUAL_STRING(loss, train_field("loss_last"));
            TEST_ASSERT_EQUAL_STRING(val, train_field("val_loss"));
        }
        strcpy(loss, train_field("loss_last"));
        strcpy(val, train_field("val_loss"));
    }
}

static void shell_decode(const char *before, const char *option)
{
    char line[1024];

    snprintf(line, sizeof(line),
             "%s $TRAIN %s --model=cnn --width=2 --image=16 --batch=6 --steps=2 --quiet %s", before, data,
             option);
    train_shell("1x256M", line, 0.0);
}

static void test_auto_decodes_on_the_device_where_it_has_jpeg_engines_and_the_host_few_workers(void)
{
    make_pictures(10);
    shell_decode("", "");
    train_went_well();
    TEST_ASSERT_EQUAL_STRING("cpu", train_field("decode"));
    shell_decode("GPUCAP_SIM_NVJPEG=hardware", "--workers=15");
    train_went_well();
    TEST_ASSERT_EQUAL_STRING("gpu", train_field("decode"));
    shell_decode("GPUCAP_SIM_NVJPEG=hardware", "--workers=16");
    train_went_well();
    TEST_ASSERT_EQUAL_STRING("cpu", train_field("decode"));
    /* Decoded pictures that are kept on the host are worth more. */
    shell_decode("GPUCAP_SIM_NVJPEG=hardware", "--data-cache=1M");
    train_went_well();
    TEST_ASSERT_EQUAL_STRING("cpu", train_field("decode"));
}

static void test_decoding_that_cannot_be_had_is_said(void)
{
    make_pictures(4);
    shell_decode("LD_LIBRARY_PATH=$GPUCAP_BUILD/sim-without-nvml", "--decode=gpu");
    assert_refused("--decode=gpu: ");
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "use --decode=cpu"), train_said.err);
    shell_decode("LD_LIBRARY_PATH=$GPUCAP_BUILD/sim-without-nvml", "--decode=auto");
    train_went_well();
    DECODED("--decode=gpu", "--augment=cpu");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_USAGE, train_said.status, train_said.err);
    DECODED("--decode=gpu", "--data-cache=1M");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_USAGE, train_said.status, train_said.err);
    TRAIN("1x256M", "--decode=gpu", "--steps=1");
    TEST_ASSERT_EQUAL_INT_MESSAGE(TRAIN_USAGE, train_said.status, train_said.err);
}

static void test_a_damaged_file_is_named_wherever_it_is_decoded(void)
{
    static const char *const places[] = {"--decode=cpu", "--decode=gpu"};
    uint8_t rgb[48 * 48 * 3], *file;
    size_t bytes;

    make_pictures(4);
    for (size_t i = 0; i < sizeof(rgb); i++)
        rgb[i] = (uint8_t)(i * 37 % 251);
    file = files_jpeg(rgb, 48, 48, FILES_PLAIN, &bytes);
    memcpy(file + bytes / 2, file + bytes - 2, 2); /* half of it is missing, and no marker shows that */
    files_write(folder, "dark/lame.jpg", file, bytes / 2 + 2);
    free(file);
    for (int i = 0; i < 2; i++) {
        DECODED(places[i], "--validation=0");
        assert_refused("dark/lame.jpg: ");
        DECODED(places[i], "--validation=0", "--corrupt=skip");
        train_went_well();
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(train_said.err, "dark/lame.jpg: "), train_said.err);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_it_learns_from_idx_files);
    RUN_TEST(test_it_learns_from_cifar_files);
    RUN_TEST(test_it_learns_from_a_folder_of_pictures);
    RUN_TEST(test_it_learns_from_text);
    RUN_TEST(test_no_share_for_validation_means_no_validation);
    RUN_TEST(test_a_share_for_validation_that_the_data_does_not_need_is_named);
    RUN_TEST(test_where_pictures_are_prepared_and_by_how_many_does_not_matter);
    RUN_TEST(test_a_part_of_the_validation_has_samples_of_all_classes);
    RUN_TEST(test_a_resumed_run_goes_on_with_the_batch_that_was_next);
    RUN_TEST(test_a_resumed_run_does_not_validate_with_what_it_was_trained_on);
    RUN_TEST(test_a_broken_picture_ends_the_run_or_is_skipped);
    RUN_TEST(test_bad_data_is_named_before_anything_runs);
    RUN_TEST(test_a_batch_beyond_the_budget_is_refused);
    RUN_TEST(test_the_device_decodes_in_every_allocation_mode_with_the_same_losses);
    RUN_TEST(test_auto_decodes_on_the_device_where_it_has_jpeg_engines_and_the_host_few_workers);
    RUN_TEST(test_decoding_that_cannot_be_had_is_said);
    RUN_TEST(test_a_damaged_file_is_named_wherever_it_is_decoded);
    return UNITY_END();
}
