/* page_bytes: a growing buffer of bytes, with numbers of variable length, and text escaped for HTML and JSON.
 * Owns no lock. */
#ifndef GPUCAP_PAGE_BYTES_H
#define GPUCAP_PAGE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct page_bytes {
    unsigned char *bytes;
    size_t count, room;
    bool failed; /* memory ran out: what was added since is lost */
};

void page_bytes_add(struct page_bytes *bytes, const void *from, size_t count);
/* Adds a number: seven bits a byte, lowest first; the highest bit means that more follow. */
void page_bytes_number(struct page_bytes *bytes, uint64_t number);
/* The same for signed numbers, numbered in the order 0, -1, 1, -2, ... */
void page_bytes_signed(struct page_bytes *bytes, int64_t number);
void page_bytes_free(struct page_bytes *bytes);

void page_base64(FILE *out, const unsigned char *bytes, size_t count);

/* Writes a JSON string with its quotes. It contains no character with a meaning in HTML. */
void page_string(FILE *out, const char *text);

/* Writes text between HTML tags. */
void page_text(FILE *out, const char *text);

#endif
