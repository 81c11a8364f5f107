/* Every format: what is read is what was written; what is missing, truncated or wrong is refused with a
 * message, or left out where that was asked for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/harness/harness_files.h"
#include "harness/data/dataset_source.h"
#include "unity.h"

enum { RGB = 3, SIDE = 32 };

static char folder[FILES_PATH];
static struct dataset *dataset;
static struct scratch scratch;
static char message[SOURCE_MESSAGE_BYTES];
static uint8_t bytes[SIDE * SIDE * 4 * RGB];
static int32_t labels[256], tokens[256];

void setUp(void)
{
    files_make_folder(folder);
    dataset = NULL;
}

void tearDown(void)
{
    dataset_close(dataset);
    free(scratch.data);
    memset(&scratch, 0, sizeof(scratch));
    files_remove_folder(folder);
}

static enum status open_at(const char *name, enum data_kind kind, enum data_corrupt corrupt)
{
    char path[FILES_PATH];
    struct data_config config = {.path = name ? files_path(path, folder, name) : folder,
                                 .kind = kind,
                                 .image = kind == DATA_TOKENS ? 0 : SIDE,
                                 .length = 16,
                                 .corrupt = corrupt};

    dataset_close(dataset);
    dataset = NULL;
    return dataset_open(&dataset, &config);
}

static enum source_result read_one(enum data_split split, uint64_t index, struct sample *sample)
{
    struct rng rng = rng_derive(1, index);

    *sample = (struct sample){.bytes = bytes, .labels = labels, .tokens = tokens};
    return dataset->read(dataset, split, index, &rng, sample, &scratch, message);
}

static void test_idx_images_come_with_their_labels_from_both_splits(void)
{
    struct sample sample;

    files_write_idx(folder, SIDE, 12, 5);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_at(NULL, DATA_IMAGES, CORRUPT_REFUSE));
    TEST_ASSERT_EQUAL_STRING("idx", dataset_format_name(dataset));
    TEST_ASSERT_EQUAL_UINT64(12, dataset_spec(dataset)->count[DATA_TRAIN]);
    TEST_ASSERT_EQUAL_UINT64(5, dataset_spec(dataset)->count[DATA_VALIDATION]);
    TEST_ASSERT_EQUAL_INT(1, dataset_spec(dataset)->c);
    TEST_ASSERT_EQUAL_INT(SIDE, dataset_spec(dataset)->raw_h);
    TEST_ASSERT_EQUAL_INT(SOURCE_OK, read_one(DATA_TRAIN, 11, &sample));
    TEST_ASSERT_EACH_EQUAL_UINT8(11, bytes, SIDE * SIDE);
    TEST_ASSERT_EQUAL_INT(1, labels[0]);
    TEST_ASSERT_EQUAL_INT(SOURCE_OK, read_one(DATA_VALIDATION, 3, &sample));
    TEST_ASSERT_EACH_EQUAL_UINT8(3, bytes, SIDE * SIDE);
    TEST_ASSERT_EQUAL_INT(SIDE, sample.h);
}

static void test_idx_without_validation_files_has_no_validation_samples(void)
{
    files_write_idx(folder, SIDE, 4, 0);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_at(NULL, DATA_IMAGES, CORRUPT_REFUSE));
    TEST_ASSERT_EQUAL_UINT64(0, dataset_spec(dataset)->count[DATA_VALIDATION]);
}

static void test_idx_files_that_do_not_fit_each_other_are_refused(void)
{
    uint8_t one_label[] = {0, 0, 8, 1, 0, 0, 0, 1, 0};
    uint8_t high_label[] = {0, 0, 8, 1, 0, 0, 0, 2, 0, 10};

    files_write_idx(folder, SIDE, 2, 0);
    files_write(folder, "train-labels-idx1-ubyte", one_label, sizeof(one_label));
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, open_at(NULL, DATA_IMAGES, CORRUPT_REFUSE));
    files_write(folder, "train-labels-idx1-ubyte", high_label, sizeof(high_label));
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, open_at(NULL, DATA_IMAGES, CORRUPT_REFUSE));
    files_write(folder, "train-images-idx3-ubyte", one_label, sizeof(one_label));
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, open_at(NULL, DATA_IMAGES, CORRUPT_REFUSE));
}

static void test_cifar_planes_become_pixels(void)
{
    struct sample sample;

    files_write_cifar(folder, 4);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_at(NULL, DATA_IMAGES, CORRUPT_REFUSE));
    TEST_ASSERT_EQUAL_STRING("cifar", dataset_format_name(dataset));
    TEST_ASSERT_EQUAL_UINT64(20, dataset_spec(dataset)->count[DATA_TRAIN]);
    TEST_ASSERT_EQUAL_UINT64(4, dataset_spec(dataset)->count[DATA_VALIDATION]);
    TEST_ASSERT_EQUAL_INT(SOURCE_OK, read_one(DATA_TRAIN, 4 * 2 + 3, &sample));
    for (int i = 0; i < SIDE * SIDE; i++) {
        TEST_ASSERT_EQUAL_UINT8(2, bytes[i * RGB]);
        TEST_ASSERT_EQUAL_UINT8(3, bytes[i * RGB + 1]);
        TEST_ASSERT_EQUAL_UINT8(255, bytes[i * RGB + 2]);
    }
    TEST_ASSERT_EQUAL_INT(3, labels[0]);
    TEST_ASSERT_EQUAL_INT(SOURCE_OK, read_one(DATA_VALIDATION, 1, &sample));
    TEST_ASSERT_EQUAL_UINT8(5, bytes[0]);
}

static void test_a_cut_cifar_file_is_refused_or_used_as_far_as_it_goes(void)
{
    char path[FILES_PATH];

    files_write_cifar(folder, 4);
    files_path(path, folder, "data_batch_3.bin");
    TEST_ASSERT_EQUAL_INT(0, truncate(path, 3073 * 2 + 100));
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, open_at(NULL, DATA_IMAGES, CORRUPT_REFUSE));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_at(NULL, DATA_IMAGES, CORRUPT_SKIP));
    TEST_ASSERT_EQUAL_UINT64(18, dataset_spec(dataset)->count[DATA_TRAIN]);
    TEST_ASSERT_EQUAL_INT(0, unlink(path));
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, open_at(NULL, DATA_IMAGES, CORRUPT_REFUSE));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_at(NULL, DATA_IMAGES, CORRUPT_SKIP));
    TEST_ASSERT_EQUAL_UINT64(16, dataset_spec(dataset)->count[DATA_TRAIN]);
}

static void test_a_cifar_file_that_shrinks_while_open_is_named(void)
{
    struct sample sample;
    char path[FILES_PATH];

    files_write_cifar(folder, 4);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_at(NULL, DATA_IMAGES, CORRUPT_REFUSE));
    TEST_ASSERT_EQUAL_INT(0, truncate(files_path(path, folder, "data_batch_2.bin"), 3073));
    TEST_ASSERT_EQUAL_INT(SOURCE_CORRUPT, read_one(DATA_TRAIN, 6, &sample));
    TEST_ASSERT_NOT_NULL(strstr(message, "data_batch_2.bin"));
    TEST_ASSERT_NOT_NULL(strstr(message, "record 2"));
}

static void test_a_folder_gives_classes_by_name_and_puts_files_aside(void)
{
    struct sample sample;
    int seen[2] = {0}, total = 0;

    for (int i = 0; i < 10; i++) {
        char name[32];

        snprintf(name, sizeof(name), "blue/%d.png", i);
        files_write_picture(folder, name, 20, 20, 0, 0, 200);
        snprintf(name, sizeof(name), "apple/%d.jpg", i);
        files_write_picture(folder, name, 20, 20, 200, 0, 0);
    }
    files_write(folder, "blue/notes.txt", "x", 1);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_at(NULL, DATA_IMAGES, CORRUPT_REFUSE));
    TEST_ASSERT_EQUAL_STRING("folder", dataset_format_name(dataset));
    TEST_ASSERT_EQUAL_INT(2, dataset_spec(dataset)->classes);
    TEST_ASSERT_EQUAL_UINT64(18, dataset_spec(dataset)->count[DATA_TRAIN]);
    TEST_ASSERT_EQUAL_UINT64(2, dataset_spec(dataset)->count[DATA_VALIDATION]);
    for (int split = 0; split < DATA_SPLITS; split++) {
        for (uint64_t i = 0; i < dataset_spec(dataset)->count[split]; i++, total++) {
            TEST_ASSERT_EQUAL_INT(SOURCE_OK, read_one((enum data_split)split, i, &sample));
            TEST_ASSERT_EQUAL_INT(20, sample.h);
            TEST_ASSERT_INT_WITHIN(3, labels[0] == 0 ? 200 : 0, bytes[0]);
            TEST_ASSERT_INT_WITHIN(3, labels[0] == 1 ? 200 : 0, bytes[2]);
            seen[labels[0]]++;
        }
    }
    TEST_ASSERT_EQUAL_INT(20, total);
    TEST_ASSERT_EQUAL_INT(10, seen[0]);
}

static void test_a_divided_folder_uses_its_own_validation_files(void)
{
    struct sample sample;

    files_write_picture(folder, "train/a/1.png", 8, 8, 10, 0, 0);
    files_write_picture(folder, "train/b/1.png", 8, 8, 20, 0, 0);
    files_write_picture(folder, "val/b/1.png", 8, 8, 30, 0, 0);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_at(NULL, DATA_IMAGES, CORRUPT_REFUSE));
    TEST_ASSERT_EQUAL_UINT64(2, dataset_spec(dataset)->count[DATA_TRAIN]);
    TEST_ASSERT_EQUAL_UINT64(1, dataset_spec(dataset)->count[DATA_VALIDATION]);
    TEST_ASSERT_EQUAL_INT(SOURCE_OK, read_one(DATA_VALIDATION, 0, &sample));
    TEST_ASSERT_EQUAL_INT(1, labels[0]);
    TEST_ASSERT_EQUAL_UINT8(30, bytes[0]);
    files_write_picture(folder, "val/c/1.png", 8, 8, 30, 0, 0);
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, open_at(NULL, DATA_IMAGES, CORRUPT_REFUSE));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_at(NULL, DATA_PAIRS, CORRUPT_REFUSE));
}

/* As ImageNet's validation files come: they must not all be taken for the first class. */
static void test_validation_files_without_a_class_are_refused(void)
{
    files_write_picture(folder, "train/a/1.png", 8, 8, 10, 0, 0);
    files_write_picture(folder, "train/b/1.png", 8, 8, 20, 0, 0);
    files_write_picture(folder, "val/1.png", 8, 8, 30, 0, 0);
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, open_at(NULL, DATA_IMAGES, CORRUPT_REFUSE));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_at(NULL, DATA_PAIRS, CORRUPT_REFUSE));
}

static void test_a_flat_folder_serves_pairs_but_no_classes(void)
{
    files_write_picture(folder, "1.png", 8, 8, 10, 0, 0);
    files_write_picture(folder, "2.JPEG", 8, 8, 20, 0, 0);
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, open_at(NULL, DATA_IMAGES, CORRUPT_REFUSE));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_at(NULL, DATA_PAIRS, CORRUPT_REFUSE));
    TEST_ASSERT_EQUAL_UINT64(2, dataset_spec(dataset)->count[DATA_TRAIN]);
}

static void test_broken_image_files_are_named(void)
{
    struct sample sample;
    char path[FILES_PATH];

    files_write(folder, "a/1.png", "not a picture", 13);
    files_write(folder, "a/2.png", "", 0);
    files_write_picture(folder, "b/1.jpg", 30, 30, 1, 2, 3);
    TEST_ASSERT_EQUAL_INT(0, mkfifo(files_path(path, folder, "b/2.png"), 0600));
    TEST_ASSERT_EQUAL_INT(0, symlink("nowhere", files_path(path, folder, "b/3.png")));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_at(NULL, DATA_IMAGES, CORRUPT_REFUSE));
    TEST_ASSERT_EQUAL_UINT64(5, dataset_spec(dataset)->count[DATA_TRAIN]);
    TEST_ASSERT_EQUAL_INT(SOURCE_CORRUPT, read_one(DATA_TRAIN, 0, &sample));
    TEST_ASSERT_NOT_NULL(strstr(message, "a/1.png: it is neither"));
    TEST_ASSERT_EQUAL_INT(SOURCE_CORRUPT, read_one(DATA_TRAIN, 1, &sample));
    TEST_ASSERT_NOT_NULL(strstr(message, "a/2.png: it is empty"));
    TEST_ASSERT_EQUAL_INT(0, truncate(files_path(path, folder, "b/1.jpg"), 300));
    TEST_ASSERT_EQUAL_INT(SOURCE_CORRUPT, read_one(DATA_TRAIN, 2, &sample));
    TEST_ASSERT_NOT_NULL(strstr(message, "b/1.jpg"));
    TEST_ASSERT_EQUAL_INT(SOURCE_CORRUPT, read_one(DATA_TRAIN, 3, &sample));
    TEST_ASSERT_NOT_NULL(strstr(message, "not a regular file"));
    TEST_ASSERT_EQUAL_INT(SOURCE_CORRUPT, read_one(DATA_TRAIN, 4, &sample));
    TEST_ASSERT_NOT_NULL(strstr(message, "No such file"));
}

static void test_places_without_data_are_refused(void)
{
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, open_at("missing", DATA_IMAGES, CORRUPT_SKIP));
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, open_at(NULL, DATA_IMAGES, CORRUPT_SKIP));
    files_write(folder, "text", "some text", 9);
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, open_at("text", DATA_IMAGES, CORRUPT_SKIP));
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, open_at("text", DATA_TOKENS, CORRUPT_SKIP)); /* too short */
    files_write(folder, "text", "\x1f\x8b 0123456789012345678901234567890123456789", 43);
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, open_at("text", DATA_TOKENS, CORRUPT_SKIP));
}

static void test_text_windows_lie_in_their_own_part_and_labels_follow(void)
{
    enum { LENGTH = 16, TEXT = 400, TRAIN = 360 };
    uint8_t text[TEXT];
    struct sample sample;

    for (int i = 0; i < TEXT; i++)
        text[i] = (uint8_t)(i < TRAIN ? i % 100 : 200 + i % 40);
    files_write(folder, "text", text, sizeof(text));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_at("text", DATA_TOKENS, CORRUPT_REFUSE));
    TEST_ASSERT_EQUAL_INT(256, dataset_spec(dataset)->vocabulary);
    TEST_ASSERT_EQUAL_INT(LENGTH, dataset_spec(dataset)->length);
    TEST_ASSERT_EQUAL_UINT64((TRAIN - 1) / LENGTH, dataset_spec(dataset)->count[DATA_TRAIN]);
    TEST_ASSERT_EQUAL_UINT64(2, dataset_spec(dataset)->count[DATA_VALIDATION]);
    for (uint64_t i = 0; i < 300; i++) {
        TEST_ASSERT_EQUAL_INT(SOURCE_OK, read_one(DATA_TRAIN, i % 22, &sample));
        for (int t = 0; t < LENGTH; t++) {
            TEST_ASSERT_LESS_THAN_INT(100, labels[t]);
            TEST_ASSERT_EQUAL_INT((tokens[t] + 1) % 100, labels[t]);
        }
    }
    TEST_ASSERT_EQUAL_INT(SOURCE_OK, read_one(DATA_VALIDATION, 1, &sample));
    TEST_ASSERT_EQUAL_INT(text[TRAIN + LENGTH], tokens[0]);
    TEST_ASSERT_EQUAL_INT(text[TRAIN + 2 * LENGTH], labels[LENGTH - 1]);
}

/* The nearest class pattern, by the samples alone: what a model could learn. */
static void test_synthetic_pictures_can_be_told_apart(void)
{
    enum { SMALL = 12, PIXELS = SMALL * SMALL * RGB, CLASSES = 4, LEARN = 400, CHECK = 100 };
    struct data_config config = {.kind = DATA_IMAGES, .image = SMALL, .classes = CLASSES, .seed = 3};
    static double mean[CLASSES][PIXELS];
    int seen[CLASSES] = {0}, right = 0;
    struct sample sample;

    memset(mean, 0, sizeof(mean));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, dataset_open(&dataset, &config));
    TEST_ASSERT_EQUAL_STRING("synthetic", dataset_format_name(dataset));
    for (uint64_t i = 0; i < LEARN; i++) {
        read_one(DATA_TRAIN, i, &sample);
        seen[labels[0]]++;
        for (int p = 0; p < PIXELS; p++)
            mean[labels[0]][p] += bytes[p];
    }
    for (uint64_t i = 0; i < CHECK; i++) {
        double least = 1e300;
        int best = -1;

        read_one(DATA_VALIDATION, i, &sample);
        for (int c = 0; c < CLASSES; c++) {
            double distance = 0.0;

            for (int p = 0; p < PIXELS; p++) {
                double difference = mean[c][p] / seen[c] - bytes[p];

                distance += difference * difference;
            }
            best = distance < least ? c : best;
            least = distance < least ? distance : least;
        }
        right += best == labels[0];
    }
    TEST_ASSERT_GREATER_THAN_INT(80, right);
}

static void test_most_synthetic_tokens_follow_from_the_one_before(void)
{
    enum { VOCABULARY = 50, LENGTH = 64, SAMPLES = 100 };
    struct data_config config = {.kind = DATA_TOKENS, .length = LENGTH, .classes = VOCABULARY, .seed = 3};
    static int seen[VOCABULARY][VOCABULARY];
    int same = 0;
    struct sample sample;

    memset(seen, 0, sizeof(seen));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, dataset_open(&dataset, &config));
    for (uint64_t i = 0; i < SAMPLES; i++) {
        read_one(DATA_TRAIN, i, &sample);
        for (int t = 0; t < LENGTH; t++) {
            TEST_ASSERT_TRUE(tokens[t] >= 0 && tokens[t] < VOCABULARY);
            TEST_ASSERT_TRUE(t + 1 == LENGTH || tokens[t + 1] == labels[t]);
            seen[tokens[t]][labels[t]]++;
        }
    }
    for (uint64_t i = 0; i < SAMPLES; i++) {
        read_one(DATA_VALIDATION, i, &sample);
        for (int t = 0; t < LENGTH; t++) {
            int best = 0;

            for (int v = 1; v < VOCABULARY; v++)
                best = seen[tokens[t]][v] > seen[tokens[t]][best] ? v : best;
            same += best == labels[t];
        }
    }
    TEST_ASSERT_GREATER_THAN_INT(SAMPLES * LENGTH / 2, same);
}

static void test_synthetic_samples_follow_from_the_seed_alone(void)
{
    struct data_config config = {.kind = DATA_FLOATS, .seed = 5};
    struct dataset *other;
    float one[784], two[784], third[784];
    struct sample sample = {.floats = one, .labels = labels};
    struct rng rng = rng_derive(0, 0);

    TEST_ASSERT_EQUAL_INT(STATUS_OK, dataset_open(&dataset, &config));
    TEST_ASSERT_EQUAL_INT(784, dataset_spec(dataset)->c);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, dataset_open(&other, &config));
    dataset->read(dataset, DATA_TRAIN, 9, &rng, &sample, &scratch, message);
    sample.floats = two;
    other->read(other, DATA_TRAIN, 9, &rng, &sample, &scratch, message);
    sample.floats = third;
    other->read(other, DATA_VALIDATION, 9, &rng, &sample, &scratch, message);
    TEST_ASSERT_EQUAL_MEMORY(one, two, sizeof(one));
    TEST_ASSERT_TRUE(one[0] != third[0] || one[1] != third[1]);
    dataset_close(other);
}

static void test_impossible_wishes_are_refused(void)
{
    struct data_config too_large = {.kind = DATA_IMAGES, .image = DATA_MAX_SIDE + 1};
    struct data_config no_path = {.kind = DATA_IMAGES, .format = DATA_CIFAR};
    struct data_config small_raw = {.path = folder, .kind = DATA_IMAGES, .raw = 16};

    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, dataset_open(&dataset, &too_large));
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, dataset_open(&dataset, &no_path));
    files_write_cifar(folder, 1);
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, dataset_open(&dataset, &small_raw));
    TEST_ASSERT_NULL(dataset);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_idx_images_come_with_their_labels_from_both_splits);
    RUN_TEST(test_idx_without_validation_files_has_no_validation_samples);
    RUN_TEST(test_idx_files_that_do_not_fit_each_other_are_refused);
    RUN_TEST(test_cifar_planes_become_pixels);
    RUN_TEST(test_a_cut_cifar_file_is_refused_or_used_as_far_as_it_goes);
    RUN_TEST(test_a_cifar_file_that_shrinks_while_open_is_named);
    RUN_TEST(test_a_folder_gives_classes_by_name_and_puts_files_aside);
    RUN_TEST(test_a_divided_folder_uses_its_own_validation_files);
    RUN_TEST(test_validation_files_without_a_class_are_refused);
    RUN_TEST(test_a_flat_folder_serves_pairs_but_no_classes);
    RUN_TEST(test_broken_image_files_are_named);
    RUN_TEST(test_places_without_data_are_refused);
    RUN_TEST(test_text_windows_lie_in_their_own_part_and_labels_follow);
    RUN_TEST(test_synthetic_pictures_can_be_told_apart);
    RUN_TEST(test_most_synthetic_tokens_follow_from_the_one_before);
    RUN_TEST(test_synthetic_samples_follow_from_the_seed_alone);
    RUN_TEST(test_impossible_wishes_are_refused);
    return UNITY_END();
}
