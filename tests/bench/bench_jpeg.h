/* Folders of JPEG files that decode as photographs do, for bench_data. */
#ifndef BENCH_JPEG_H
#define BENCH_JPEG_H

#include <stddef.h>

/* FOLDER/CLASS/NUMBER.jpg in a folder that is there, or in a new temporary one; 0, or -1 with a message where
 * files cannot be written or there is no libjpeg. */
int bench_jpeg_fill_folder(const char *folder, int classes, int files, int h, int w);
int bench_jpeg_make_folder(char *folder, size_t bytes, int classes, int files, int h, int w);
void bench_jpeg_remove_folder(const char *folder);

#endif
