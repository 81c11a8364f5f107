/* CIFAR-10's binary files: records of one label byte and 32 x 32 pixels, first all red values, then green,
 * then blue. There is no header; a file is a whole number of records. */
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

/* Reads one record into image[32][32][3] and *label. Returns NULL, or what is wrong with the record. */
const char *cifar_parse(const uint8_t *record, size_t bytes, uint8_t *image, int32_t *label);

/* Returns the number of records in a file of `bytes` bytes. Sets *reason to what is wrong with that size,
 * or to NULL. */
uint64_t cifar_count(uint64_t bytes, const char **reason);

#endif
