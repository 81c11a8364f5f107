/* quote: a path as a word for a shell, for messages that name a command to be copied. Pure: no state, no
 * locks, no allocation.
 */
#ifndef GPUCAP_QUOTE_H
#define GPUCAP_QUOTE_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* True if a shell reads the word as it stands. */
static inline int quote_is_plain(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./%+=:,@-";

    for (const char *c = word; *c; c++) {
        if ((unsigned char)*c < 0x80 && !strchr(plain, *c))
            return 0;
    }
    return *word != '\0';
}

/* Writes the word to `text`, between single quotes if a shell needs them; a word that is too long for `size`
 * bytes stays as it is, cut off. Returns text. */
static inline const char *quote_word(const char *word, char *text, size_t size)
{
    size_t used = 0;

    snprintf(text, size, "%s", word);
    if (quote_is_plain(word))
        return text;
    size_t needed = sizeof("''");
    for (const char *c = word; *c; c++)
        needed += *c == '\'' ? 4 : 1;
    if (needed > size)
        return text;
    text[used++] = '\'';
    for (const char *c = word; *c; c++) {
        if (*c == '\'') {
            memcpy(text + used, "'\\''", 4);
            used += 4;
        } else {
            text[used++] = *c;
        }
    }
    memcpy(text + used, "'", 2);
    return text;
}

#endif
