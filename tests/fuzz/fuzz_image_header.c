/* Headers of JPEG files: whatever the file is, reading it stays within its bytes, and a file that is accepted
 * has a size and its end mark. */
#include "fuzz.h"
#include "harness/data/image_header.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct image_header header = {0};
    uint8_t *exact = malloc(count ? count : 1); /* of its exact size, for a sanitizer */
    bool ended = false;

    if (!exact)
        abort();
    memcpy(exact, bytes, count);
    if (image_header_read(exact, count, &header)) {
        FUZZ_PROMISE(header.h >= 1 && header.h <= 65535 && header.w >= 1 && header.w <= 65535);
        for (size_t i = 1; i < count; i++)
            ended |= exact[i - 1] == 0xff && exact[i] == 0xd9;
        FUZZ_PROMISE(ended);
    }
    free(exact);
    return 0;
}
