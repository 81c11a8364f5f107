/* page_bytes: bytes that grow, numbers of variable length in them, and text that is safe inside HTML and
 * JSON. Owns no lock.
 */
#ifndef GPUCAP_PAGE_BYTES_H
#define GPUCAP_PAGE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct page_bytes {
    unsigned char *bytes;
    size_t count, room;
    bool failed; /* without memory: what was added since is lost */
};

void page_bytes_add(struct page_bytes *bytes, const void *from, size_t count);
/* Seven bits a byte, lowest first; the highest bit says that more follow. */
void page_bytes_number(struct page_bytes *bytes, uint64_t number);
/* The same for differences: 0, -1, 1, -2, ... */
void page_bytes_signed(struct page_bytes *bytes, int64_t number);
void page_bytes_free(struct page_bytes *bytes);

void page_base64(FILE *out, const unsigned char *bytes, size_t count);

/* A string of JSON with its quotes. No character in it means anything to HTML. */
void page_string(FILE *out, const char *text);

/* Text between tags of HTML. */
void page_text(FILE *out, const char *text);

#endif
