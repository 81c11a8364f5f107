/* Pictures of training data: whatever the file is, decoding ends within its limits, and nothing outside the
 * picture's place is written. */
#include "fuzz.h"
#include "harness/data/image_decode.h"

enum { SIDE = 8, GUARD = 64, BYTES = SIDE * SIDE * IMAGE_CHANNELS, FILL = 0xa5 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char message[IMAGE_MESSAGE] = "";
    uint8_t out[BYTES + GUARD];
    struct image image = {.out = out, SIDE, SIDE, 0, 0};

    memset(out, FILL, sizeof(out));
    if (image_decode(&image, bytes, count, message)) {
        FUZZ_PROMISE(message[0] && strnlen(message, sizeof(message)) < sizeof(message));
    } else {
        FUZZ_PROMISE(image.h >= 1 && image.h <= SIDE);
        FUZZ_PROMISE(image.w >= 1 && image.w <= SIDE);
    }
    for (size_t i = BYTES; i < sizeof(out); i++)
        FUZZ_PROMISE(out[i] == FILL);
    return 0;
}
