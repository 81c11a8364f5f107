/* CIFAR-10's binary files: records of one label and 32 x 32 pixels, all red ones first, then green, then
 * blue; no header. A file is a whole number of records. */
#ifndef HARNESS_CIFAR_H
#define HARNESS_CIFAR_H

#include <stddef.h>
#include <stdint.h>

enum {
    CIFAR_SIDE = 32,
    CIFAR_CHANNELS = 3,
    CIFAR_CLASSES = 10,
    CIFAR_PIXELS = CIFAR_SIDE * CIFAR_SIDE,
    CIFAR_RECORD = 1 + CIFAR_CHANNELS * CIFAR_PIXELS,
};

/* One record: returns NULL, or what is wrong with it. image[32][32][3]. */
const char *cifar_parse(const uint8_t *record, size_t bytes, uint8_t *image, int32_t *label);

/* The number of whole records in a file of this many bytes; *reason is what is wrong with it, or NULL. */
uint64_t cifar_count(uint64_t bytes, const char **reason);

#endif
