/* JPEG and PNG files, good and bad: a picture comes out or a reason, never a crash, and nothing is written
 * beyond the picture's place. Buffers have their exact size, so that a sanitizer sees a step beyond. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/unit/harness/harness_files.h"
#include "harness/data/image_decode.h"
#include "harness/data/image_header.h"
#include "harness/data/image_shrink.h"
#include "unity.h"

enum { H = 24, W = 40, RGB = 3, CLOSE = 12 };

static uint8_t rgb[H * W * RGB];
static uint8_t out[H * W * RGB];
static char message[IMAGE_MESSAGE];

/* A smooth picture, which JPEG keeps well. */
void setUp(void)
{
    for (int y = 0; y < H; y++) {
        for (int x = 0; x < W; x++) {
            uint8_t *pixel = rgb + (y * W + x) * RGB;

            pixel[0] = (uint8_t)(y * 10);
            pixel[1] = (uint8_t)(x * 6);
            pixel[2] = (uint8_t)(255 - y * 5 - x * 3);
        }
    }
    memset(out, 0, sizeof(out));
    message[0] = 0;
}

void tearDown(void) {}

static int decode(const uint8_t *file, size_t bytes, int max_h, int max_w, struct image *image)
{
    uint8_t *exact = malloc(bytes ? bytes : 1);
    int result;

    TEST_ASSERT_NOT_NULL(exact);
    memcpy(exact, file, bytes);
    *image = (struct image){.out = out, (uint32_t)max_h, (uint32_t)max_w, 0, 0};
    result = image_decode(image, exact, bytes, message);
    free(exact);
    return result;
}

static void assert_same_picture(int tolerance)
{
    for (int i = 0; i < H * W * RGB; i++)
        TEST_ASSERT_INT_WITHIN(tolerance, rgb[i], out[i]);
}

static void test_a_png_comes_back_exactly_also_interlaced(void)
{
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        struct image image;
        size_t bytes;
        uint8_t *file = files_png(rgb, H, W, interlaced, &bytes);

        memset(out, 0, sizeof(out));
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, decode(file, bytes, H, W, &image), message);
        TEST_ASSERT_EQUAL_UINT32(H, image.h);
        TEST_ASSERT_EQUAL_UINT32(W, image.w);
        assert_same_picture(0);
        free(file);
    }
}

static void test_a_jpeg_comes_back_closely_also_progressive(void)
{
    for (int progressive = 0; progressive < 2; progressive++) {
        struct image image;
        size_t bytes;
        uint8_t *file = files_jpeg(rgb, H, W, progressive, &bytes);

        memset(out, 0, sizeof(out));
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, decode(file, bytes, H, W, &image), message);
        TEST_ASSERT_EQUAL_UINT32(H, image.h);
        TEST_ASSERT_EQUAL_UINT32(W, image.w);
        assert_same_picture(CLOSE);
        free(file);
    }
}

static void test_a_larger_picture_is_shrunk_with_its_proportions(void)
{
    enum { BIG_H = 300, BIG_W = 600 };
    uint8_t *big = malloc((size_t)BIG_H * BIG_W * RGB);

    TEST_ASSERT_NOT_NULL(big);
    for (size_t i = 0; i < (size_t)BIG_H * BIG_W * RGB; i++)
        big[i] = (uint8_t)(100 + i % RGB);
    for (int png = 0; png < 2; png++) {
        struct image image;
        size_t bytes;
        uint8_t *file =
            png ? files_png(big, BIG_H, BIG_W, 0, &bytes) : files_jpeg(big, BIG_H, BIG_W, 0, &bytes);

        memset(out, 0, sizeof(out));
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, decode(file, bytes, H, W, &image), message);
        TEST_ASSERT_EQUAL_UINT32(20, image.h);
        TEST_ASSERT_EQUAL_UINT32(W, image.w);
        TEST_ASSERT_INT_WITHIN(2, 100, out[0]);
        TEST_ASSERT_INT_WITHIN(2, 102, out[(19 * W + W - 1) * RGB + 2]);
        TEST_ASSERT_EACH_EQUAL_UINT8(0, out + 20 * W * RGB, 4 * W * RGB);
        free(file);
    }
    free(big);
}

static void test_inks_become_colours_whether_or_not_they_are_stored_inverted(void)
{
    static const uint8_t inks[] = {51, 102, 204, 51}, colours[] = {204 * 4 / 5, 153 * 4 / 5, 51 * 4 / 5};

    for (int adobe = 0; adobe < 2; adobe++) {
        struct image image;
        size_t bytes;
        uint8_t *file = files_jpeg_cmyk(inks, H, W, adobe, &bytes);

        TEST_ASSERT_EQUAL_INT(IMAGE_OK, decode(file, bytes, H, W, &image));
        for (int i = 0; i < H * W * 3; i++)
            TEST_ASSERT_UINT8_WITHIN(3, colours[i % 3], image.out[i]);
        free(file);
    }
}

static void test_every_truncation_is_refused(void)
{
    for (int kind = 0; kind < 4; kind++) {
        struct image image;
        size_t bytes;
        uint8_t *file =
            kind & 1 ? files_png(rgb, H, W, kind >> 1, &bytes) : files_jpeg(rgb, H, W, kind >> 1, &bytes);

        /* Without its end mark alone (2 bytes) a JPEG is whole but for that, and libjpeg takes it. */
        for (size_t length = 0; length + 2 < bytes; length += length < 700 ? 1 : 7) {
            message[0] = 0;
            TEST_ASSERT_EQUAL_INT(IMAGE_CORRUPT, decode(file, length, H, W, &image));
            TEST_ASSERT_NOT_EQUAL_CHAR(0, message[0]);
        }
        free(file);
    }
}

static void test_bytes_changed_at_random_never_crash(void)
{
    enum { ROUNDS = 3000 };
    uint64_t state = 7;

    for (int kind = 0; kind < 4; kind++) {
        size_t bytes;
        uint8_t *file =
            kind & 1 ? files_png(rgb, H, W, kind >> 1, &bytes) : files_jpeg(rgb, H, W, kind >> 1, &bytes);
        uint8_t *copy = malloc(bytes);

        for (int round = 0; round < ROUNDS / 4; round++) {
            struct image image;

            memcpy(copy, file, bytes);
            for (int i = 0; i < 3; i++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                copy[(state >> 20) % bytes] = (uint8_t)(state >> 56);
            }
            if (!decode(copy, bytes, H, W, &image)) {
                TEST_ASSERT_TRUE(image.h >= 1 && image.h <= H);
                TEST_ASSERT_TRUE(image.w >= 1 && image.w <= W);
            }
        }
        free(copy);
        free(file);
    }
}

static uint32_t crc_of(const uint8_t *bytes, size_t count)
{
    uint32_t crc = 0xffffffffu;

    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void put_be32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* A PNG that says it is huge, with a right checksum. */
static void test_a_png_of_huge_dimensions_is_refused_by_its_header(void)
{
    static const uint32_t sizes[][2] = {{60000, 60000}, {0x7fffffff, 1}, {1, 0x7fffffff}, {70000, 10}};
    size_t bytes;
    uint8_t *file = files_png(rgb, H, W, 0, &bytes);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct image image;

        put_be32(file + 16, sizes[i][0]);
        put_be32(file + 20, sizes[i][1]);
        put_be32(file + 29, crc_of(file + 12, 17));
        TEST_ASSERT_EQUAL_INT(IMAGE_CORRUPT, decode(file, bytes, H, W, &image));
    }
    free(file);
}

static void test_bytes_behind_the_end_of_a_picture_are_ignored(void)
{
    static const char tail[] = "as a telephone may add them";
    struct image image;

    for (int png = 0; png < 2; png++) {
        size_t bytes;
        uint8_t *file = png ? files_png(rgb, H, W, 0, &bytes) : files_jpeg(rgb, H, W, 0, &bytes);

        file = realloc(file, bytes + sizeof(tail));
        TEST_ASSERT_NOT_NULL(file);
        memcpy(file + bytes, tail, sizeof(tail));
        TEST_ASSERT_EQUAL_INT_MESSAGE(IMAGE_OK, decode(file, bytes + sizeof(tail), H, W, &image), message);
        assert_same_picture(CLOSE);
        free(file);
    }
}

/* libpng would take the length of a chunk at its word and make room for it. */
static void test_a_png_chunk_longer_than_the_file_takes_no_memory(void)
{
    struct rusage before, after;
    struct image image;
    size_t bytes;
    uint8_t *file = files_png(rgb, H, W, 0, &bytes);

    memmove(file + 33, "\x60\0\0\0zTXt", 8); /* behind IHDR: 1.6 GB of text */
    getrusage(RUSAGE_SELF, &before);
    TEST_ASSERT_EQUAL_INT(IMAGE_CORRUPT, decode(file, bytes, H, W, &image));
    getrusage(RUSAGE_SELF, &after);
    TEST_ASSERT_LESS_THAN_INT(100000, after.ru_maxrss - before.ru_maxrss); /* KiB */
    free(file);
}

static uint8_t *find_frame_header(uint8_t *file, size_t bytes)
{
    for (size_t i = 0; i + 1 < bytes; i++) {
        if (file[i] == 0xff && (file[i + 1] == 0xc0 || file[i + 1] == 0xc2))
            return file + i;
    }
    return NULL;
}

static void test_a_jpeg_of_huge_dimensions_is_refused_or_runs_into_its_end(void)
{
    for (int progressive = 0; progressive < 2; progressive++) {
        struct image image;
        size_t bytes;
        uint8_t *file = files_jpeg(rgb, H, W, progressive, &bytes), *frame = find_frame_header(file, bytes);

        TEST_ASSERT_NOT_NULL(frame);
        memcpy(frame + 5, "\x80\0\x80\0", 4);
        TEST_ASSERT_EQUAL_INT(IMAGE_CORRUPT, decode(file, bytes, H, W, &image));
        TEST_ASSERT_NOT_NULL(strstr(message, "32768x32768"));
        memcpy(frame + 5, "\x1f\xff\x1f\xff",
               4); /* 8191 x 8191: allowed, but progressive is too much to hold */
        TEST_ASSERT_EQUAL_INT(IMAGE_CORRUPT, decode(file, bytes, H, W, &image));
        if (progressive)
            TEST_ASSERT_NOT_NULL(strstr(message, "too large"));
        free(file);
    }
}

static void test_other_files_are_named_as_such(void)
{
    struct image image;

    TEST_ASSERT_EQUAL_INT(IMAGE_CORRUPT, decode((const uint8_t *)"", 0, H, W, &image));
    TEST_ASSERT_NOT_NULL(strstr(message, "empty"));
    TEST_ASSERT_EQUAL_INT(IMAGE_CORRUPT, decode((const uint8_t *)"GIF89a..", 8, H, W, &image));
    TEST_ASSERT_NOT_NULL(strstr(message, "neither"));
}

/* What one colour of a pixel of the output should be: whole weights, and one division. */
static uint8_t mean_of(const uint8_t *in, int colour, int in_h, int in_w, int out_h, int out_w, int oy,
                       int ox)
{
    uint64_t sum = 0, area = (uint64_t)in_h * (uint64_t)in_w;

    for (int y = 0; y < in_h; y++) {
        int top = y * out_h > oy * in_h ? y * out_h : oy * in_h;
        int bottom = (y + 1) * out_h < (oy + 1) * in_h ? (y + 1) * out_h : (oy + 1) * in_h;

        for (int x = 0; x < in_w && top < bottom; x++) {
            int left = x * out_w > ox * in_w ? x * out_w : ox * in_w;
            int right = (x + 1) * out_w < (ox + 1) * in_w ? (x + 1) * out_w : (ox + 1) * in_w;

            if (left < right)
                sum += (uint64_t)(bottom - top) * (uint64_t)(right - left) *
                       in[(y * in_w + x) * IMAGE_CHANNELS + colour];
        }
    }
    return (uint8_t)((sum + area / 2) / area);
}

static void test_shrinking_is_the_mean_over_the_area(void)
{
    static const int sizes[][4] = {{7, 11, 3, 4},    {7, 11, 7, 10},  {12, 8, 6, 4},    {9, 30, 9, 7},
                                   {30, 9, 4, 9},    {2, 2, 1, 1},    {33, 64, 32, 33}, {5, 40, 1, 1},
                                   {40, 41, 39, 40}, {24, 50, 12, 26}};
    uint8_t in[50 * 50 * IMAGE_CHANNELS], result[sizeof(in)];
    uint64_t state = 5;

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        int in_h = sizes[s][0], in_w = sizes[s][1], out_h = sizes[s][2], out_w = sizes[s][3];
        struct image_shrink shrink;

        TEST_ASSERT_TRUE(in_h * in_w * IMAGE_CHANNELS <= (int)sizeof(in));
        for (int i = 0; i < in_h * in_w * IMAGE_CHANNELS; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            in[i] = (uint8_t)(state >> 56);
        }
        TEST_ASSERT_EQUAL_INT(0, image_shrink_begin(&shrink, (uint32_t)in_h, (uint32_t)in_w, (uint32_t)out_h,
                                                    (uint32_t)out_w, result, (size_t)out_w * IMAGE_CHANNELS));
        for (int y = 0; y < in_h; y++)
            image_shrink_row(&shrink, in + y * in_w * IMAGE_CHANNELS);
        image_shrink_end(&shrink);
        for (int oy = 0; oy < out_h; oy++) {
            for (int i = 0; i < out_w * IMAGE_CHANNELS; i++)
                TEST_ASSERT_EQUAL_UINT8(
                    mean_of(in, i % IMAGE_CHANNELS, in_h, in_w, out_h, out_w, oy, i / IMAGE_CHANNELS),
                    result[oy * out_w * IMAGE_CHANNELS + i]);
        }
    }
}

static void test_a_fitted_size_is_never_empty_and_never_larger(void)
{
    uint32_t h, w;

    image_shrink_fit(65535, 1, 64, 64, &h, &w);
    TEST_ASSERT_EQUAL_UINT32(64, h);
    TEST_ASSERT_EQUAL_UINT32(1, w);
    image_shrink_fit(3, 65535, 64, 64, &h, &w);
    TEST_ASSERT_EQUAL_UINT32(1, h);
    TEST_ASSERT_EQUAL_UINT32(64, w);
    image_shrink_fit(10, 20, 64, 64, &h, &w);
    TEST_ASSERT_EQUAL_UINT32(10, h);
    TEST_ASSERT_EQUAL_UINT32(20, w);
}

/* In a buffer of its exact size, so that a sanitizer sees a step beyond. */
static bool header_of(const uint8_t *file, size_t bytes, struct image_header *header)
{
    uint8_t *exact = malloc(bytes ? bytes : 1);
    bool result;

    TEST_ASSERT_NOT_NULL(exact);
    memcpy(exact, file, bytes);
    result = image_header_read(exact, bytes, header);
    free(exact);
    return result;
}

static void test_a_header_tells_which_files_a_jpeg_engine_decodes(void)
{
    static const bool can[] = {[FILES_PLAIN] = true,       [FILES_PROGRESSIVE] = false, [FILES_GREY] = true,
                               [FILES_FULL_CHROMA] = true, [FILES_RESTARTS] = true,     [FILES_RGB] = false};
    struct image_header header;
    uint8_t *file;
    size_t bytes;

    for (int form = FILES_PLAIN; form <= FILES_RGB; form++) {
        file = files_jpeg(rgb, H, W, (enum files_form)form, &bytes);
        TEST_ASSERT_EQUAL_INT(can[form], header_of(file, bytes, &header));
        if (can[form]) {
            TEST_ASSERT_EQUAL_UINT32(H, header.h);
            TEST_ASSERT_EQUAL_UINT32(W, header.w);
        }
        free(file);
    }
    file = files_png(rgb, H, W, 0, &bytes);
    TEST_ASSERT_FALSE(header_of(file, bytes, &header));
    free(file);
}

/* A cut anywhere, and restarts out of their order, are for the host to judge. */
static void test_an_incomplete_file_is_not_for_an_engine(void)
{
    struct image_header header;
    size_t bytes, restart = 0;
    uint8_t *file = files_jpeg(rgb, H, W, FILES_RESTARTS, &bytes);

    for (size_t cut = 0; cut < bytes; cut++)
        TEST_ASSERT_FALSE(header_of(file, cut, &header));
    TEST_ASSERT_TRUE(header_of(file, bytes, &header));
    for (size_t i = bytes - 2; i > 0 && !restart; i--)
        restart = file[i] == 0xff && file[i + 1] >= 0xd0 && file[i + 1] <= 0xd7 ? i + 1 : 0;
    TEST_ASSERT_TRUE(restart > 0);
    file[restart] ^= 1;
    TEST_ASSERT_FALSE(header_of(file, bytes, &header));
    free(file);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_png_comes_back_exactly_also_interlaced);
    RUN_TEST(test_a_jpeg_comes_back_closely_also_progressive);
    RUN_TEST(test_a_larger_picture_is_shrunk_with_its_proportions);
    RUN_TEST(test_inks_become_colours_whether_or_not_they_are_stored_inverted);
    RUN_TEST(test_every_truncation_is_refused);
    RUN_TEST(test_bytes_changed_at_random_never_crash);
    RUN_TEST(test_a_png_of_huge_dimensions_is_refused_by_its_header);
    RUN_TEST(test_bytes_behind_the_end_of_a_picture_are_ignored);
    RUN_TEST(test_a_png_chunk_longer_than_the_file_takes_no_memory);
    RUN_TEST(test_a_jpeg_of_huge_dimensions_is_refused_or_runs_into_its_end);
    RUN_TEST(test_other_files_are_named_as_such);
    RUN_TEST(test_shrinking_is_the_mean_over_the_area);
    RUN_TEST(test_a_fitted_size_is_never_empty_and_never_larger);
    RUN_TEST(test_a_header_tells_which_files_a_jpeg_engine_decodes);
    RUN_TEST(test_an_incomplete_file_is_not_for_an_engine);
    return UNITY_END();
}
