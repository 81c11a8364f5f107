/* fuzz: the entry point that every fuzz target defines, with libFuzzer's name and meaning, and the check that
 * ends a run when a promise is broken.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

#define FUZZ_PROMISE(condition)                                                                              \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #condition);                  \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

/* The bytes as a string of their own, cut at the first zero byte as any reader of text would. */
static inline char *fuzz_text(const uint8_t *bytes, size_t count)
{
    char *text = malloc(count + 1);
    if (!text)
        abort();
    memcpy(text, bytes, count);
    text[count] = 0;
    return text;
}

#endif
