/* harness_files: data files for tests. See harness_files.h. */
#include "tests/unit/harness/harness_files.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>
#include <png.h>

#include "unity.h"

enum { RGB = 3, CIFAR_PIXELS = 1024, CIFAR_RECORD = 1 + RGB * CIFAR_PIXELS, CIFAR_FILES = 6, OPEN_FILES = 8 };

void files_make_folder(char folder[FILES_PATH])
{
    const char *base = getenv("TMPDIR");

    snprintf(folder, FILES_PATH, "%s/harness.XXXXXX", base ? base : "/tmp");
    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    return remove(path);
}

void files_remove_folder(const char *folder)
{
    nftw(folder, remove_one, OPEN_FILES, FTW_DEPTH | FTW_PHYS);
}

const char *files_path(char path[FILES_PATH], const char *folder, const char *name)
{
    TEST_ASSERT_LESS_THAN_INT(FILES_PATH, snprintf(path, FILES_PATH, "%s/%s", folder, name));
    return path;
}

void files_write(const char *folder, const char *name, const void *bytes, size_t count)
{
    char path[FILES_PATH];
    FILE *file;

    files_path(path, folder, name);
    for (char *at = path + strlen(folder) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(path, 0700);
        *at = '/';
    }
    file = fopen(path, "w");
    TEST_ASSERT_NOT_NULL_MESSAGE(file, path);
    TEST_ASSERT_EQUAL_size_t(count, fwrite(bytes, 1, count, file));
    TEST_ASSERT_EQUAL_INT(0, fclose(file));
}

uint8_t *files_jpeg(const uint8_t *rgb, int h, int w, enum files_form form, size_t *bytes)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    unsigned char *out = NULL;
    unsigned long size = 0;

    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &out, &size);
    info.image_width = (JDIMENSION)w;
    info.image_height = (JDIMENSION)h;
    info.input_components = RGB;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 95, TRUE);
    if (form == FILES_PROGRESSIVE)
        jpeg_simple_progression(&info);
    if (form == FILES_GREY)
        jpeg_set_colorspace(&info, JCS_GRAYSCALE);
    if (form == FILES_RGB)
        jpeg_set_colorspace(&info, JCS_RGB);
    if (form == FILES_RGB)
        info.write_Adobe_marker = TRUE;
    if (form == FILES_FULL_CHROMA)
        info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = 1;
    if (form == FILES_RESTARTS)
        info.restart_interval = 2;
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
        JSAMPROW row = (JSAMPROW)(rgb + (size_t)info.next_scanline * (size_t)w * RGB);

        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    *bytes = size;
    return out;
}

uint8_t *files_jpeg_cmyk(const uint8_t inks[4], int h, int w, bool adobe, size_t *bytes)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    unsigned char *out = NULL, *row = malloc((size_t)w * 4);
    unsigned long size = 0;

    for (size_t i = 0; i < (size_t)w * 4; i++)
        row[i] = adobe ? (uint8_t)(255 - inks[i % 4]) : inks[i % 4];
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &out, &size);
    info.image_width = (JDIMENSION)w;
    info.image_height = (JDIMENSION)h;
    info.input_components = 4;
    info.in_color_space = JCS_CMYK;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 95, TRUE);
    info.write_Adobe_marker = adobe;
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height)
        jpeg_write_scanlines(&info, &row, 1);
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    free(row);
    *bytes = size;
    return out;
}

struct memory_file {
    uint8_t *data;
    size_t count;
};

static void png_append(png_structp png, png_bytep bytes, size_t count)
{
    struct memory_file *file = png_get_io_ptr(png);

    file->data = realloc(file->data, file->count + count);
    TEST_ASSERT_NOT_NULL(file->data);
    memcpy(file->data + file->count, bytes, count);
    file->count += count;
}

static void png_no_flush(png_structp png)
{
    (void)png;
}

uint8_t *files_png(const uint8_t *rgb, int h, int w, int interlaced, size_t *bytes)
{
    struct memory_file file = {0};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    int passes;

    png_set_write_fn(png, &file, png_append, png_no_flush);
    png_set_IHDR(png, info, (png_uint_32)w, (png_uint_32)h, 8, PNG_COLOR_TYPE_RGB,
                 interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    passes = png_set_interlace_handling(png);
    for (int pass = 0; pass < passes; pass++) {
        for (int y = 0; y < h; y++)
            png_write_row(png, rgb + (size_t)y * (size_t)w * RGB);
    }
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    *bytes = file.count;
    return file.data;
}

void files_write_picture(const char *folder, const char *name, int h, int w, uint8_t red, uint8_t green,
                         uint8_t blue)
{
    size_t pixels = (size_t)h * (size_t)w, bytes;
    uint8_t *rgb = malloc(pixels * RGB), *file;

    TEST_ASSERT_NOT_NULL(rgb);
    for (size_t i = 0; i < pixels; i++) {
        rgb[i * RGB] = red;
        rgb[i * RGB + 1] = green;
        rgb[i * RGB + 2] = blue;
    }
    file = strstr(name, ".png") ? files_png(rgb, h, w, 0, &bytes) : files_jpeg(rgb, h, w, 0, &bytes);
    files_write(folder, name, file, bytes);
    free(file);
    free(rgb);
}

static void write_idx_pair(const char *folder, const char *images_name, const char *labels_name, int side,
                           int count)
{
    uint8_t image_header[] = {0,
                              0,
                              8,
                              3,
                              0,
                              0,
                              (uint8_t)(count >> 8),
                              (uint8_t)count,
                              0,
                              0,
                              0,
                              (uint8_t)side,
                              0,
                              0,
                              0,
                              (uint8_t)side};
    uint8_t label_header[] = {0, 0, 8, 1, 0, 0, (uint8_t)(count >> 8), (uint8_t)count};
    size_t pixels = (size_t)side * (size_t)side, bytes = sizeof(image_header) + (size_t)count * pixels;
    uint8_t *images = malloc(bytes), *labels = malloc(sizeof(label_header) + (size_t)count);

    TEST_ASSERT_TRUE(images && labels);
    memcpy(images, image_header, sizeof(image_header));
    memcpy(labels, label_header, sizeof(label_header));
    for (int s = 0; s < count; s++) {
        memset(images + sizeof(image_header) + (size_t)s * pixels, s, pixels);
        labels[sizeof(label_header) + (size_t)s] = (uint8_t)(s % 10);
    }
    files_write(folder, images_name, images, bytes);
    files_write(folder, labels_name, labels, sizeof(label_header) + (size_t)count);
    free(images);
    free(labels);
}

void files_write_idx(const char *folder, int side, int train, int validation)
{
    write_idx_pair(folder, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", side, train);
    if (validation)
        write_idx_pair(folder, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", side, validation);
}

void files_write_cifar(const char *folder, int records)
{
    uint8_t *bytes = malloc((size_t)records * CIFAR_RECORD);

    TEST_ASSERT_NOT_NULL(bytes);
    for (int f = 0; f < CIFAR_FILES; f++) {
        char name[32];

        for (int r = 0; r < records; r++) {
            uint8_t *record = bytes + (size_t)r * CIFAR_RECORD;

            record[0] = (uint8_t)(r % 10);
            memset(record + 1, f, CIFAR_PIXELS);
            memset(record + 1 + CIFAR_PIXELS, r, CIFAR_PIXELS);
            memset(record + 1 + 2 * CIFAR_PIXELS, UINT8_MAX, CIFAR_PIXELS);
        }
        if (f < CIFAR_FILES - 1)
            snprintf(name, sizeof(name), "data_batch_%d.bin", f + 1);
        else
            snprintf(name, sizeof(name), "test_batch.bin");
        files_write(folder, name, bytes, (size_t)records * CIFAR_RECORD);
    }
    free(bytes);
}
