/* Sizes: any text is a size or refused, a percentage never exceeds the whole, and what is printed can be
 * read. */
#include "fuzz.h"
#include "interpose/settings/size.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const uint64_t total = (uint64_t)141 << 30;
    struct size_value value;
    struct size_value again;
    char text[SIZE_TEXT];
    if (size_parse((const char *)bytes, count, &value) != 0)
        return 0;
    uint64_t meant = size_resolve(&value, total);
    FUZZ_PROMISE(!value.is_percent || meant <= total);
    FUZZ_PROMISE(value.is_percent || meant == value.bytes);
    size_format(meant, text);
    FUZZ_PROMISE(strlen(text) < SIZE_TEXT);
    if (meant >= 1024) /* below, the word "bytes" is spelled out */
        FUZZ_PROMISE(size_parse(text, strlen(text), &again) == 0 && !again.is_percent);
    return 0;
}
