/* The CIFAR-10 parser: a label, and planes turned into pixels. */
#include "harness/data/cifar.h"

const char *cifar_parse(const uint8_t *record, size_t bytes, uint8_t *image, int32_t *label)
{
    if (bytes < CIFAR_RECORD)
        return "the record is cut off";
    if (record[0] >= CIFAR_CLASSES)
        return "its label is not from 0 to 9";
    *label = record[0];
    for (int p = 0; p < CIFAR_PIXELS; p++) {
        for (int c = 0; c < CIFAR_CHANNELS; c++)
            image[p * CIFAR_CHANNELS + c] = record[1 + c * CIFAR_PIXELS + p];
    }
    return NULL;
}

uint64_t cifar_count(uint64_t bytes, const char **reason)
{
    *reason = NULL;
    if (bytes < CIFAR_RECORD)
        *reason = "it is too short for one record of a label and 3,072 pixels";
    else if (bytes % CIFAR_RECORD)
        *reason = "it is truncated: it ends within a record";
    return bytes / CIFAR_RECORD;
}
