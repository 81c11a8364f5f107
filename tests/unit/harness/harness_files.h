/* Data files for tests, made in a temporary folder. What cannot be made ends the test. */
#ifndef TESTS_HARNESS_FILES_H
#define TESTS_HARNESS_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FILES_PATH = 256 };

/* A new folder, and the removal of it with all that is in it. */
void files_make_folder(char folder[FILES_PATH]);
void files_remove_folder(const char *folder);

/* "%s/%s" of the two; name may be in a folder that is made if it is not there. Returns path. */
const char *files_path(char path[FILES_PATH], const char *folder, const char *name);
void files_write(const char *folder, const char *name, const void *bytes, size_t count);

/* How a JPEG file is coded: colour with halved chroma; in several scans; grey; chroma of full size; with
 * restart marks; as RGB, marked by Adobe's segment. */
enum files_form { FILES_PLAIN, FILES_PROGRESSIVE, FILES_GREY, FILES_FULL_CHROMA, FILES_RESTARTS, FILES_RGB };

/* Pictures as files in memory, to be freed: rgb[h][w][3]. */
uint8_t *files_jpeg(const uint8_t *rgb, int h, int w, enum files_form form, size_t *bytes);
/* All of one colour, in inks; Adobe's programs store them inverted, and mark that. */
uint8_t *files_jpeg_cmyk(const uint8_t inks[4], int h, int w, bool adobe, size_t *bytes);
uint8_t *files_png(const uint8_t *rgb, int h, int w, int interlaced, size_t *bytes);

/* A picture of one colour as a file in the folder. */
void files_write_picture(const char *folder, const char *name, int h, int w, uint8_t red, uint8_t green,
                         uint8_t blue);

/* MNIST's four files: image s has s in every pixel, label s % 10. */
void files_write_idx(const char *folder, int side, int train, int validation);

/* CIFAR-10's files with `records` in each: record r of file f has label r % 10 and f, r, 255 as its colour.
 */
void files_write_cifar(const char *folder, int records);

#endif
