/* The IDX parser on good, truncated, padded and hostile files. Buffers are allocated at their exact length,
 * so that under ASan a read beyond the end is seen. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/data/idx.h"
#include "unity.h"

/* Two images of 2 x 3 pixels. */
static const uint8_t good[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2,  0,  0,
                               0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

enum { HEADER = 16 };

void setUp(void) {}

void tearDown(void) {}

static const char *parse_exact(struct idx *idx, const uint8_t *bytes, size_t length)
{
    uint8_t *copy = malloc(length ? length : 1);
    const char *wrong;

    TEST_ASSERT_NOT_NULL(copy);
    memcpy(copy, bytes, length);
    wrong = idx_parse(idx, copy, length);
    free(copy);
    return wrong;
}

static void test_a_good_file_is_read(void)
{
    struct idx idx;

    TEST_ASSERT_NULL(idx_parse(&idx, good, sizeof(good)));
    TEST_ASSERT_EQUAL_INT(3, idx.dimensions);
    TEST_ASSERT_EQUAL_size_t(2, idx.size[0]);
    TEST_ASSERT_EQUAL_size_t(2, idx.size[1]);
    TEST_ASSERT_EQUAL_size_t(3, idx.size[2]);
    TEST_ASSERT_EQUAL_size_t(12, idx.count);
    TEST_ASSERT_EQUAL_PTR(good + HEADER, idx.data);
}

static void test_every_truncation_is_refused(void)
{
    struct idx idx;

    for (size_t length = 0; length < sizeof(good); length++)
        TEST_ASSERT_NOT_NULL(parse_exact(&idx, good, length));
}

static void test_data_behind_the_end_is_refused(void)
{
    uint8_t longer[sizeof(good) + 1] = {0};
    struct idx idx;

    memcpy(longer, good, sizeof(good));
    TEST_ASSERT_NOT_NULL(parse_exact(&idx, longer, sizeof(longer)));
}

static void test_every_wrong_header_byte_is_refused(void)
{
    struct idx idx;

    for (size_t at = 0; at < HEADER; at++) {
        for (int value = 0; value <= UINT8_MAX; value++) {
            uint8_t bytes[sizeof(good)];

            memcpy(bytes, good, sizeof(good));
            bytes[at] = (uint8_t)value;
            if (value != good[at])
                TEST_ASSERT_NOT_NULL(parse_exact(&idx, bytes, sizeof(bytes)));
        }
    }
}

static void test_dimensions_whose_product_wraps_are_refused(void)
{
    /* 2^32 - 1 to the fourth, and 2^16 to the fourth, which is 2^64 and wraps to exactly 0. */
    static const uint8_t huge[] = {0,   0,   8,   4,   255, 255, 255, 255, 255, 255,
                                   255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    static const uint8_t wraps[] = {0, 0, 8, 4, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0};
    struct idx idx;

    TEST_ASSERT_NOT_NULL(parse_exact(&idx, huge, sizeof(huge)));
    TEST_ASSERT_NOT_NULL(parse_exact(&idx, wraps, sizeof(wraps)));
}

static void test_a_compressed_file_is_named_as_such(void)
{
    static const uint8_t gzip[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0};
    struct idx idx;

    TEST_ASSERT_NOT_NULL(strstr(parse_exact(&idx, gzip, sizeof(gzip)), "gzip"));
}

static void test_random_bytes_never_crash_the_parser(void)
{
    enum { ROUNDS = 20000, MOST = 40 };
    uint64_t state = 11;
    struct idx idx;

    for (int round = 0; round < ROUNDS; round++) {
        uint8_t bytes[MOST];
        size_t length;

        for (size_t i = 0; i < MOST; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = (uint8_t)((state >> 60) < 8 ? 0 : state >> 40);
        }
        bytes[2] = 8;
        bytes[3] = (uint8_t)(1 + (state >> 33) % 4);
        length = (state >> 50) % (MOST + 1);
        if (!parse_exact(&idx, bytes, length))
            TEST_ASSERT_TRUE(idx.count > 0 && idx.count < length);
    }
}

static void make_path(char *path, size_t size, const char *folder, const char *name)
{
    snprintf(path, size, "%s/%s", folder, name);
}

static void test_loading_tells_files_from_other_things(void)
{
    char folder[] = "/tmp/harness_idx.XXXXXX";
    char path[64];
    struct idx idx;
    FILE *file;

    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, idx_load(&idx, folder));
    make_path(path, sizeof(path), folder, "missing");
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, idx_load(&idx, path));
    make_path(path, sizeof(path), folder, "pipe");
    TEST_ASSERT_EQUAL_INT(0, mkfifo(path, 0600));
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, idx_load(&idx, path));
    unlink(path);
    make_path(path, sizeof(path), folder, "empty");
    file = fopen(path, "w");
    TEST_ASSERT_NOT_NULL(file);
    fclose(file);
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, idx_load(&idx, path));
    file = fopen(path, "w");
    TEST_ASSERT_EQUAL_size_t(1, fwrite(good, sizeof(good), 1, file));
    fclose(file);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, idx_load(&idx, path));
    TEST_ASSERT_EQUAL_MEMORY(good + HEADER, idx.data, idx.count);
    idx_unload(&idx);
    TEST_ASSERT_EQUAL_INT(0, truncate(path, sizeof(good) - 1));
    TEST_ASSERT_EQUAL_INT(STATUS_FAILED, idx_load(&idx, path));
    TEST_ASSERT_NULL(idx.data);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_good_file_is_read);
    RUN_TEST(test_every_truncation_is_refused);
    RUN_TEST(test_data_behind_the_end_is_refused);
    RUN_TEST(test_every_wrong_header_byte_is_refused);
    RUN_TEST(test_dimensions_whose_product_wraps_are_refused);
    RUN_TEST(test_a_compressed_file_is_named_as_such);
    RUN_TEST(test_random_bytes_never_crash_the_parser);
    RUN_TEST(test_loading_tells_files_from_other_things);
    return UNITY_END();
}
