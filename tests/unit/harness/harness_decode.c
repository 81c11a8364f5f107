/* JPEG files decoded on the device, on simgpu's nvJPEG and, where this is built for a GPU, on the real one:
 * the batches are those of the host within the rounding of another decoder, files that the device cannot
 * decode come from the host, and damaged ones are refused as always. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/train/trainer.h"
#include "tests/unit/harness/harness_files.h"
#include "unity.h"

enum {
    FILES = 12,
    BATCH = 8,
    IMAGE = 32,
    RAW = 48,
    RGB = 3,
    PICTURE = RAW * RAW * RGB,
    ARGUMENTS = 12,
    CLOSE = 12
};

static char folder[FILES_PATH];
static struct budget budget;
static struct supply supply;
static struct cuda_device device;
static struct trainer trainer;

/* A batch as the model will read it. */
struct seen {
    uint8_t raw[BATCH * PICTURE];
    int32_t labels[BATCH];
    struct ops_crop crops[BATCH];
};

/* Smooth, so that decoders differ by little. */
static uint8_t *draw(int h, int w, int number)
{
    uint8_t *rgb = malloc((size_t)h * (size_t)w * RGB);

    TEST_ASSERT_NOT_NULL(rgb);
    for (int y = 0; y < h; y++) {
        for (int x = 0; x < w; x++) {
            uint8_t *pixel = rgb + (y * w + x) * RGB;

            pixel[0] = (uint8_t)(8 * number + 60 * y / h);
            pixel[1] = (uint8_t)(255 - 80 * x / w);
            pixel[2] = (uint8_t)(60 + 60 * y / h + 60 * x / w);
        }
    }
    return rgb;
}

static void write_file(int number, const char *ending, const void *bytes, size_t count)
{
    char name[32];

    snprintf(name, sizeof(name), "%s/%02d.%s", number % 2 ? "light" : "dark", number, ending);
    files_write(folder, name, bytes, count);
}

static void write_jpeg(int number, int h, int w, enum files_form form)
{
    uint8_t *rgb = draw(h, w, number), *file;
    size_t bytes;

    file = files_jpeg(rgb, h, w, form, &bytes);
    write_file(number, "jpg", file, bytes);
    free(file);
    free(rgb);
}

static void write_png(int number, int h, int w)
{
    uint8_t *rgb = draw(h, w, number), *file;
    size_t bytes;

    file = files_png(rgb, h, w, 0, &bytes);
    write_file(number, "png", file, bytes);
    free(file);
    free(rgb);
}

/* Every size and form; the device decodes those of the first ten files. */
static void write_all(void)
{
    static const enum files_form forms[] = {FILES_PLAIN, FILES_FULL_CHROMA, FILES_GREY, FILES_RESTARTS,
                                            FILES_PLAIN};

    for (int i = 0; i < FILES - 2; i++)
        write_jpeg(i, i % 3 ? 40 + 13 * i : 20 + i, i % 4 ? 50 + 11 * i : 17, forms[i % 5]);
    write_jpeg(FILES - 2, 70, 60, FILES_PROGRESSIVE);
    write_png(FILES - 1, 60, 70);
}

void setUp(void)
{
    files_make_folder(folder);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, cuda_device_open(&device, 0));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, supply_open(&supply, ALLOC_NAIVE, 0.5, &budget));
}

void tearDown(void)
{
    trainer_close(&trainer);
    supply_close(&supply);
    cuda_device_close(&device);
    files_remove_folder(folder);
    TEST_ASSERT_EQUAL_size_t(0, budget.used);
}

static enum status open_trainer(const char *decode, const char *more)
{
    static char text[ARGUMENTS][FILES_PATH + 16];
    const char *const wanted[ARGUMENTS] = {"train",       "--model=cnn",   "--width=2",      "--image=32",
                                           "--raw=48",    "--batch=8",     "--validation=0", "--quiet",
                                           "--workers=3", "--augment=gpu", decode,           more};
    char *arguments[ARGUMENTS + 1];
    struct train_options options;

    for (int i = 0; i < ARGUMENTS; i++) {
        snprintf(text[i], sizeof(text[i]), "%s", wanted[i]);
        arguments[i] = text[i];
    }
    TEST_ASSERT_EQUAL_INT(STATUS_OK, train_options_parse(&options, ARGUMENTS, arguments));
    options.data = folder;
    return trainer_open(&trainer, &options, &device, &supply, 0, 0);
}

static void read_back(void *to, const struct tensor *from, size_t bytes)
{
    TEST_ASSERT_EQUAL_INT(
        cudaSuccess, cudaMemcpyAsync(to, from->data, bytes, cudaMemcpyDeviceToHost, trainer.device->stream));
    TEST_ASSERT_EQUAL_INT(cudaSuccess, cudaStreamSynchronize(trainer.device->stream));
}

static enum status see_batch(struct seen *seen)
{
    struct input_set *set;
    enum status status = input_prefetch(&trainer.input, &(struct input_part){0});

    if (status)
        return status;
    TEST_ASSERT_EQUAL_INT(STATUS_OK, input_take(&trainer.input, &set));
    TEST_ASSERT_EQUAL_size_t(BATCH, set->count);
    read_back(seen->raw, &set->raw, sizeof(seen->raw));
    read_back(seen->labels, &set->labels, sizeof(seen->labels));
    read_back(seen->crops, &set->crops, sizeof(seen->crops));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, input_done(&trainer.input, set));
    return STATUS_OK;
}

/* Pixels may differ by what chroma that is repeated or interpolated makes of slopes, and by little on
 * average. */
static void expect_same(const struct seen *host, const struct seen *gpu)
{
    long sum = 0;

    for (size_t i = 0; i < sizeof(host->raw); i++) {
        TEST_ASSERT_INT_WITHIN_MESSAGE(CLOSE, host->raw[i], gpu->raw[i], "a pixel");
        sum += labs((long)host->raw[i] - gpu->raw[i]);
    }
    TEST_ASSERT_TRUE_MESSAGE(sum < 2 * (long)sizeof(host->raw), "pixels differ on average");
    TEST_ASSERT_EQUAL_MEMORY(host->labels, gpu->labels, sizeof(host->labels));
    TEST_ASSERT_EQUAL_MEMORY(host->crops, gpu->crops, sizeof(host->crops));
}

static void check_batches(void)
{
    enum { BATCHES = 6 };
    static struct seen host[BATCHES], gpu;

    write_all();
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_trainer("--decode=cpu", "--seed=3"));
    TEST_ASSERT_NULL(trainer.input.decoder);
    for (int i = 0; i < BATCHES; i++)
        TEST_ASSERT_EQUAL_INT(STATUS_OK, see_batch(&host[i]));
    trainer_close(&trainer);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_trainer("--decode=gpu", "--seed=3"));
    for (int i = 0; i < BATCHES; i++) {
        TEST_ASSERT_EQUAL_INT(STATUS_OK, see_batch(&gpu));
        expect_same(&host[i], &gpu);
    }
    /* Four epochs of ten files; the progressive one and the PNG came from the host. */
    TEST_ASSERT_EQUAL_UINT64(BATCHES * BATCH / FILES * (FILES - 2), trainer.input.decoded);
}

static void test_decoded_batches_are_those_of_the_host_within_rounding(void)
{
    check_batches();
}

/* simgpu's engines refuse the small ones among these pictures. */
static void test_what_the_engines_refuse_the_other_units_decode(void)
{
    setenv("GPUCAP_SIM_NVJPEG", "hardware", 1);
    check_batches();
    unsetenv("GPUCAP_SIM_NVJPEG");
}

static void test_a_file_that_is_too_large_comes_from_the_host(void)
{
    static struct seen host, gpu;

    for (int i = 0; i < 2 * BATCH; i++)
        write_jpeg(i, 30, 40, FILES_PLAIN);
    write_jpeg(2 * BATCH, 2100, 2000, FILES_PLAIN); /* over four megapixels, and over the room for a file */
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_trainer("--decode=cpu", "--shuffle=0"));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, see_batch(&host));
    trainer_close(&trainer);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_trainer("--decode=gpu", "--shuffle=0"));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, see_batch(&gpu));
    expect_same(&host, &gpu);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, see_batch(&gpu));
    TEST_ASSERT_EQUAL_INT(STATUS_OK, see_batch(&gpu));
    TEST_ASSERT_EQUAL_UINT64(3 * BATCH - 1, trainer.input.decoded);
}

#ifndef TEST_ON_GPU
/* Writes a file that lacks its second half, with the end mark, or but for it: then no marker shows that. */
static void damage(int number, bool cut)
{
    uint8_t *rgb = draw(64, 64, number), *file;
    size_t bytes;

    for (int i = 0; i < 64 * 64 * RGB; i++)
        rgb[i] ^= (uint8_t)(i * 31 % 64); /* much to decode */
    file = files_jpeg(rgb, 64, 64, FILES_PLAIN, &bytes);
    memcpy(file + bytes / 2, file + bytes - 2, 2);
    write_file(number, "jpg", file, bytes / 2 + (cut ? 0 : 2));
    free(file);
    free(rgb);
}

static void test_a_damaged_file_is_refused_and_named(void)
{
    for (int cut = 0; cut < 2; cut++) {
        static struct seen seen;
        enum status status = STATUS_OK;

        write_all();
        damage(4, cut);
        TEST_ASSERT_EQUAL_INT(STATUS_OK, open_trainer("--decode=gpu", "--corrupt=refuse"));
        for (int i = 0; i < 4 && !status; i++)
            status = see_batch(&seen);
        TEST_ASSERT_EQUAL_INT(STATUS_FAILED, status); /* its name: harness_train_data */
        trainer_close(&trainer);
    }
}

/* The same sample takes its place as on the host. */
static void test_a_damaged_file_is_skipped_as_on_the_host(void)
{
    enum { BATCHES = 4 };
    static struct seen host[BATCHES], gpu;
    struct pipeline_stats stats;

    write_all();
    damage(2, false);
    damage(5, true);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_trainer("--decode=cpu", "--corrupt=skip"));
    for (int i = 0; i < BATCHES; i++)
        TEST_ASSERT_EQUAL_INT(STATUS_OK, see_batch(&host[i]));
    trainer_close(&trainer);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, open_trainer("--decode=gpu", "--corrupt=skip"));
    for (int i = 0; i < BATCHES; i++) {
        TEST_ASSERT_EQUAL_INT(STATUS_OK, see_batch(&gpu));
        expect_same(&host[i], &gpu);
    }
    pipeline_get_stats(feed_pipeline(trainer.input.feed), &stats);
    TEST_ASSERT_EQUAL_UINT64(2, stats.corrupt);
}
#endif

int main(void)
{
    int devices = 0;

    if (!nvjpeg_is_there() || cudaGetDeviceCount(&devices) || !devices) {
        puts("no nvJPEG or no device here");
        return 77;
    }
    UNITY_BEGIN();
    RUN_TEST(test_decoded_batches_are_those_of_the_host_within_rounding);
    RUN_TEST(test_what_the_engines_refuse_the_other_units_decode);
    RUN_TEST(test_a_file_that_is_too_large_comes_from_the_host);
#ifndef TEST_ON_GPU /* the real nvJPEG need not notice damage to coded data */
    RUN_TEST(test_a_damaged_file_is_refused_and_named);
    RUN_TEST(test_a_damaged_file_is_skipped_as_on_the_host);
#endif
    return UNITY_END();
}
