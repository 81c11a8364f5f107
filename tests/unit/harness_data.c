/* The data sources: same seed, same samples; MNIST files that do not fit each other are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data.h"
#include "unity.h"

enum { SAMPLES = 5, SIDE = 2, PIXELS = SIDE * SIDE };

static char folder[32];

static void write_file(const char *name, const uint8_t *header, size_t header_bytes, const uint8_t *data,
                       size_t bytes)
{
    char path[96];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "w");
    TEST_ASSERT_NOT_NULL(file);
    TEST_ASSERT_EQUAL_size_t(header_bytes, fwrite(header, 1, header_bytes, file));
    TEST_ASSERT_EQUAL_size_t(bytes, fwrite(data, 1, bytes, file));
    fclose(file);
}

/* Image s has s in its first pixel and 255 in its last; its label is s. */
static void write_mnist(uint8_t images, uint8_t labels)
{
    uint8_t image_header[] = {0, 0, 8, 3, 0, 0, 0, images, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    uint8_t label_header[] = {0, 0, 8, 1, 0, 0, 0, labels};
    uint8_t pixels[256 * PIXELS] = {0};
    uint8_t label[256];

    for (int s = 0; s < 256; s++) {
        pixels[s * PIXELS] = (uint8_t)s;
        pixels[s * PIXELS + PIXELS - 1] = UINT8_MAX;
        label[s] = (uint8_t)s;
    }
    write_file("train-images-idx3-ubyte", image_header, sizeof(image_header), pixels,
               (size_t)images * PIXELS);
    write_file("train-labels-idx1-ubyte", label_header, sizeof(label_header), label, labels);
}

void setUp(void)
{
    strcpy(folder, "/tmp/harness_data.XXXXXX");
    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
}

void tearDown(void)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/train-images-idx3-ubyte", folder);
    unlink(path);
    snprintf(path, sizeof(path), "%s/train-labels-idx1-ubyte", folder);
    unlink(path);
    rmdir(folder);
}

static void test_every_sample_comes_once_per_epoch_with_its_own_label(void)
{
    float x[2 * SAMPLES * PIXELS];
    int32_t labels[2 * SAMPLES];
    int seen[SAMPLES] = {0};
    struct data *data;

    write_mnist(SAMPLES, SAMPLES);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, data_open_mnist(&data, folder, 1));
    TEST_ASSERT_EQUAL_INT(PIXELS, data->features);
    TEST_ASSERT_EQUAL_INT(10, data->classes);
    data->next(data, 3, x, labels);
    data->next(data, 2 * SAMPLES - 3, x + 3 * PIXELS, labels + 3);
    for (int i = 0; i < 2 * SAMPLES; i++) {
        seen[labels[i]] += i < SAMPLES ? 1 : 0;
        TEST_ASSERT_EQUAL_FLOAT((float)labels[i] / 255.0f, x[i * PIXELS]);
        TEST_ASSERT_EQUAL_FLOAT(1.0f, x[i * PIXELS + PIXELS - 1]);
    }
    for (int s = 0; s < SAMPLES; s++)
        TEST_ASSERT_EQUAL_INT(1, seen[s]);
    data->close(data);
}

static void test_files_that_do_not_fit_each_other_are_refused(void)
{
    struct data *data;

    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, data_open_mnist(&data, folder, 1));
    write_mnist(SAMPLES, SAMPLES - 1);
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, data_open_mnist(&data, folder, 1));
}

static void test_labels_beyond_the_classes_are_refused(void)
{
    struct data *data;

    write_mnist(11, 11);
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, data_open_mnist(&data, folder, 1));
}

static void test_labels_in_place_of_images_are_refused(void)
{
    uint8_t header[] = {0, 0, 8, 1, 0, 0, 0, 1};
    uint8_t label = 0;
    struct data *data;

    write_mnist(1, 1);
    write_file("train-images-idx3-ubyte", header, sizeof(header), &label, 1);
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, data_open_mnist(&data, folder, 1));
}

static void test_synthetic_samples_follow_from_the_seed_alone(void)
{
    enum { COUNT = 6 };
    struct data *one, *two, *other;
    float *x[3];
    int32_t labels[3][COUNT];

    TEST_ASSERT_EQUAL_INT(STATUS_OK, data_open_synthetic(&one, 5));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, data_open_synthetic(&two, 5));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, data_open_synthetic(&other, 6));
    for (int i = 0; i < 3; i++)
        TEST_ASSERT_NOT_NULL(x[i] = calloc((size_t)COUNT * one->features, sizeof(float)));
    one->next(one, COUNT, x[0], labels[0]);
    for (int i = 0; i < COUNT; i++)
        two->next(two, 1, x[1] + i * two->features, labels[1] + i);
    other->next(other, COUNT, x[2], labels[2]);
    TEST_ASSERT_EQUAL_MEMORY(x[0], x[1], COUNT * one->features * sizeof(float));
    TEST_ASSERT_EQUAL_MEMORY(labels[0], labels[1], sizeof(labels[0]));
    TEST_ASSERT_NOT_EQUAL_INT(0, memcmp(x[0], x[2], COUNT * one->features * sizeof(float)));
    for (int i = 0; i < 3; i++)
        free(x[i]);
    one->close(one);
    two->close(two);
    other->close(other);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_every_sample_comes_once_per_epoch_with_its_own_label);
    RUN_TEST(test_files_that_do_not_fit_each_other_are_refused);
    RUN_TEST(test_labels_beyond_the_classes_are_refused);
    RUN_TEST(test_labels_in_place_of_images_are_refused);
    RUN_TEST(test_synthetic_samples_follow_from_the_seed_alone);
    return UNITY_END();
}
