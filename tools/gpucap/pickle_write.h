/* pickle_write: writes values in Python's pickle format (protocol 4), with only those operations that
 * PyTorch's viewer (torch/utils/viz/MemoryViz.js) reads. Check ferror() for write errors. Owns no lock. */
#ifndef GPUCAP_PICKLE_WRITE_H
#define GPUCAP_PICKLE_WRITE_H

#include "tools/gpucap/page_bytes.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct pickle {
    FILE *out;
    struct page_bytes bytes;
    uint32_t memos; /* values that were remembered */
    struct {
        const char *text;
        uint32_t memo;
    } known[64]; /* keys and names, by address of their text */
    size_t known_count;
};

void pickle_begin(struct pickle *pickle, FILE *out);
/* Writes the rest and frees all buffers. Returns false if memory ran out on the way. */
bool pickle_end(struct pickle *pickle);

/* Numbers up to INT64_MAX; larger ones lose their highest bit. */
void pickle_number(struct pickle *pickle, uint64_t number);
void pickle_true(struct pickle *pickle);
/* UTF-8. */
void pickle_text(struct pickle *pickle, const char *text);
/* The same for texts that occur repeatedly and whose addresses stay valid. */
void pickle_key(struct pickle *pickle, const char *text);

/* In a dictionary write a key before each value. */
void pickle_begin_dict(struct pickle *pickle);
void pickle_end_dict(struct pickle *pickle);
void pickle_pair(struct pickle *pickle, const char *key, uint64_t number);
void pickle_text_pair(struct pickle *pickle, const char *key, const char *text);

void pickle_begin_list(struct pickle *pickle);
void pickle_end_list(struct pickle *pickle);
/* Call after each entry of a list that may be long, with a count that began at 0. */
void pickle_next(struct pickle *pickle, size_t *count);
/* Makes a pair of the two values written last. */
void pickle_join(struct pickle *pickle);

/* Stores the value written last under a number, and returns the number for pickle_again(). */
uint32_t pickle_remember(struct pickle *pickle);
void pickle_again(struct pickle *pickle, uint32_t memo);

#endif
