/* quote: text from elsewhere in our messages: a path as a word for a shell, in a command to be copied, and
 * text without control characters. Pure: no state, no locks, no allocation.
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

/* True for a byte that acts on a terminal or begins another line. */
static inline int quote_is_control(char c)
{
    return (unsigned char)c < ' ' || c == 127;
}

/* Replaces control characters, for a text that must stay one line. */
static inline void quote_flatten(char *text)
{
    for (; *text; text++) {
        if (quote_is_control(*text))
            *text = '?';
    }
}

/* Writes the word to `text`, between single quotes if a shell needs them, and as $'...' with control
 * characters in octal; a word that is too long for `size` bytes stays as it is, cut off and flattened.
 * Returns text. */
static inline const char *quote_word(const char *word, char *text, size_t size)
{
    size_t used = 0, needed = sizeof("$''");
    int odd = 0;

    snprintf(text, size, "%s", word);
    if (quote_is_plain(word))
        return text;
    for (const char *c = word; *c; c++) {
        needed += quote_is_control(*c) || strchr("'\\", *c) ? 4 : 1;
        odd = odd || quote_is_control(*c);
    }
    if (needed > size) {
        quote_flatten(text);
        return text;
    }
    used += (size_t)snprintf(text, size, odd ? "$'" : "'");
    for (const char *c = word; *c; c++) {
        if (odd && (quote_is_control(*c) || strchr("'\\", *c)))
            used += (size_t)snprintf(text + used, size - used, "\\%03o", (unsigned char)*c);
        else
            used += (size_t)snprintf(text + used, size - used, *c == '\'' ? "'\\''" : "%c", *c);
    }
    snprintf(text + used, size - used, "'");
    return text;
}

#endif
