/* Pictures of waves and noise: about 1 bit a pixel at quality 90, as photographs have. */
#include "bench_jpeg.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#ifndef HARNESS_HAVE_JPEG

int bench_jpeg_fill_folder(const char *folder, int classes, int files, int h, int w)
{
    (void)folder;
    (void)classes;
    (void)files;
    (void)h;
    (void)w;
    fprintf(stderr, "bench_data: built without libjpeg: no image files\n");
    return -1;
}

#else

#include <jpeglib.h>

#include "harness/base/rng.h"

enum { RGB = 3, NAME_BYTES = 400, QUALITY = 90, NOISE = 16 };

static int write_jpeg(const char *path, const unsigned char *rgb, int h, int w)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    FILE *file = fopen(path, "w");

    if (!file) {
        perror(path);
        return -1;
    }
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_stdio_dest(&info, file);
    info.image_width = (JDIMENSION)w;
    info.image_height = (JDIMENSION)h;
    info.input_components = RGB;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, QUALITY, TRUE);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
        JSAMPROW row = (JSAMPROW)(rgb + (size_t)info.next_scanline * (size_t)w * RGB);

        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    return fclose(file);
}

static void draw(unsigned char *rgb, int h, int w, struct rng *rng)
{
    float a = rng_symmetric(rng) * 0.1f, b = rng_symmetric(rng) * 0.1f;

    for (int y = 0; y < h; y++) {
        for (int x = 0; x < w; x++) {
            float wave = sinf(a * (float)x + b * (float)y) * 100.0f + 128.0f;
            uint64_t noise = rng_next(rng);

            for (int c = 0; c < RGB; c++)
                *rgb++ = (unsigned char)((int)wave + (int)(noise >> (8 * c) & (NOISE - 1)));
        }
    }
}

int bench_jpeg_fill_folder(const char *folder, int classes, int files, int h, int w)
{
    unsigned char *rgb = malloc((size_t)h * (size_t)w * RGB);
    struct rng rng = rng_derive(1, 1);
    int failed = !rgb;

    mkdir(folder, 0777); /* if it is neither there nor can be made, the first file fails */
    for (int i = 0; i < files && !failed; i++) {
        char path[NAME_BYTES];

        snprintf(path, sizeof(path), "%s/%d", folder, i % classes);
        mkdir(path, 0700);
        snprintf(path, sizeof(path), "%s/%d/%d.jpg", folder, i % classes, i);
        draw(rgb, h, w, &rng);
        failed = write_jpeg(path, rgb, h, w);
    }
    free(rgb);
    return failed ? -1 : 0;
}

#endif

int bench_jpeg_make_folder(char *folder, size_t bytes, int classes, int files, int h, int w)
{
    const char *base = getenv("TMPDIR");

    snprintf(folder, bytes, "%s/bench_data.XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder) ? bench_jpeg_fill_folder(folder, classes, files, h, w) : -1;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    return remove(path);
}

void bench_jpeg_remove_folder(const char *folder)
{
    enum { OPEN_FILES = 8 };

    nftw(folder, remove_one, OPEN_FILES, FTW_DEPTH | FTW_PHYS);
}
