/* page_bytes: see page_bytes.h. */
#include "tools/gpucap/page_bytes.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 4096

void page_bytes_add(struct page_bytes *bytes, const void *from, size_t count)
{
    if (bytes->failed || !count)
        return;
    if (count > bytes->room - bytes->count) {
        size_t more = bytes->room ? bytes->room : FIRST_ROOM;

        while (more - bytes->count < count)
            more *= 2;
        unsigned char *grown = realloc(bytes->bytes, more);
        if (!grown) {
            bytes->failed = true;
            return;
        }
        bytes->bytes = grown;
        bytes->room = more;
    }
    memcpy(bytes->bytes + bytes->count, from, count);
    bytes->count += count;
}

void page_bytes_number(struct page_bytes *bytes, uint64_t number)
{
    unsigned char text[10];
    size_t count = 0;

    for (; number >= 0x80; number >>= 7)
        text[count++] = (unsigned char)(number | 0x80);
    text[count++] = (unsigned char)number;
    page_bytes_add(bytes, text, count);
}

void page_bytes_signed(struct page_bytes *bytes, int64_t number)
{
    page_bytes_number(bytes, ((uint64_t)number << 1) ^ (uint64_t)(number >> 63));
}

void page_bytes_free(struct page_bytes *bytes)
{
    free(bytes->bytes);
    memset(bytes, 0, sizeof(*bytes));
}

void page_base64(FILE *out, const unsigned char *bytes, size_t count)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0; i < count; i += 3) {
        const size_t left = count - i;
        const uint32_t three = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                               (left > 2 ? bytes[i + 2] : 0U);
        const char four[4] = {letters[three >> 18], letters[three >> 12 & 63],
                              left > 1 ? letters[three >> 6 & 63] : '=',
                              left > 2 ? letters[three & 63] : '='};

        fwrite(four, 1, sizeof(four), out);
    }
}

void page_string(FILE *out, const char *text)
{
    putc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c < ' ' || *c == 127 || strchr("\"\\<>&'", *c))
            fprintf(out, "\\u%04x", *c);
        else
            putc(*c, out);
    }
    putc('"', out);
}

void page_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("<>&\"'", *text))
            fprintf(out, "&#%d;", *text);
        else
            putc(*text, out);
    }
}
