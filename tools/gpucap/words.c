/* words: see words.h. */
#include "tools/gpucap/words.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "interpose/base/quote.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)

/* From a GiB on one decimal, below it none. `space` and `rest` stand around the unit's letter. */
static const char *write_size(uint64_t bytes, const char *space, const char *rest, char text[WORDS_TEXT])
{
    if (bytes == WORDS_UNLIMITED)
        snprintf(text, WORDS_TEXT, "none");
    else if (bytes == 0)
        snprintf(text, WORDS_TEXT, "0");
    else if (bytes >= TIB)
        snprintf(text, WORDS_TEXT, "%.1f%sT%s", (double)bytes / TIB, space, rest);
    else if (bytes >= GIB)
        snprintf(text, WORDS_TEXT, "%.1f%sG%s", (double)bytes / GIB, space, rest);
    else if (bytes >= MIB)
        snprintf(text, WORDS_TEXT, "%.0f%sM%s", (double)bytes / MIB, space, rest);
    else
        snprintf(text, WORDS_TEXT, "%u%sK%s", (unsigned)((bytes + KIB - 1) / KIB), space, rest);
    return text;
}

const char *words_size(uint64_t bytes, char text[WORDS_TEXT])
{
    return write_size(bytes, " ", "iB", text);
}

const char *words_short(uint64_t bytes, char text[WORDS_TEXT])
{
    return write_size(bytes, "", "", text);
}

const char *words_span(uint64_t ms, char text[WORDS_TEXT])
{
    const uint64_t s = ms / 1000;

    if (s < 10)
        snprintf(text, WORDS_TEXT, "%.1f s", (double)ms / 1000);
    else if (s < 60)
        snprintf(text, WORDS_TEXT, "%u s", (unsigned)s);
    else if (s < 3600)
        snprintf(text, WORDS_TEXT, "%u m %02u s", (unsigned)(s / 60), (unsigned)(s % 60));
    else if (s < 86400)
        snprintf(text, WORDS_TEXT, "%llu h %02u m", (unsigned long long)(s / 3600),
                 (unsigned)(s % 3600 / 60));
    else
        snprintf(text, WORDS_TEXT, "%llu d %02u h", (unsigned long long)(s / 86400),
                 (unsigned)(s % 86400 / 3600));
    return text;
}

/* The length of the UTF-8 character at `text`, 0 if there is none. */
static size_t character_length(const unsigned char *text)
{
    const size_t length = text[0] < 0x80                      ? 1
                          : text[0] >= 0xc2 && text[0] < 0xe0 ? 2
                          : text[0] >= 0xe0 && text[0] < 0xf0 ? 3
                          : text[0] >= 0xf0 && text[0] < 0xf5 ? 4
                                                              : 0;

    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    /* longer than need be, halves of UTF-16 pairs, or beyond the last character */
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

/* U+200e, U+200f, U+202a to U+202e and U+2066 to U+2069 turn the text behind them around. */
static bool turns_text(const unsigned char *text, size_t length)
{
    const unsigned last = length == 3 && text[0] == 0xe2 ? text[1] << 8 | text[2] : 0;

    return last == 0x808e || last == 0x808f || (last >= 0x80aa && last <= 0x80ae) ||
           (last >= 0x81a6 && last <= 0x81a9);
}

void words_clean(char *text)
{
    unsigned char *c = (unsigned char *)text;

    while (*c) {
        const size_t length = character_length(c);

        /* U+0080 to U+009f are control characters too */
        if (length == 0 || quote_is_control((char)*c) || (c[0] == 0xc2 && c[1] < 0xa0) ||
            turns_text(c, length)) {
            memset(c, '?', length ? length : 1);
        }
        c += length ? length : 1;
    }
}

/* Bytes of the first `count` characters. */
static size_t bytes_of(const char *text, int count)
{
    size_t bytes = 0;

    for (; text[bytes] && count; count--) {
        const size_t length = character_length((const unsigned char *)text + bytes);

        bytes += length ? length : 1;
    }
    return bytes;
}

const char *words_cut(const char *given, int most, char text[WORDS_CUT])
{
    const size_t all = bytes_of(given, most < WORDS_CUT_MOST ? most : WORDS_CUT_MOST);
    const bool fits = !given[all];

    snprintf(text, WORDS_CUT, "%.*s%s", (int)(fits ? all : bytes_of(given, most - 3)), given,
             fits ? "" : "...");
    return text;
}
