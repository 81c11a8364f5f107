/* Dividing a text: whatever its size and the window's, every window with the byte behind it lies in its own
 * part. */
#include "fuzz.h"
#include "harness/data/text.h"

enum { NUMBERS = 4, THOUSAND = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    uint64_t number[NUMBERS] = {0};
    struct text_layout layout;

    memcpy(number, bytes, count < sizeof(number) ? count : sizeof(number));
    number[1] = number[1] % UINT32_MAX + 1; /* a length is at least 1, and an int */
    layout = text_divide(number[0], number[1], (double)(number[2] % THOUSAND) / THOUSAND);
    FUZZ_PROMISE(layout.end[DATA_TRAIN] == layout.begin[DATA_VALIDATION]);
    FUZZ_PROMISE(layout.end[DATA_VALIDATION] == number[0]);
    for (int split = 0; split < DATA_SPLITS; split++) {
        struct rng rng = rng_derive(number[2], number[3]);
        uint64_t at, length = layout.length;

        if (layout.count[split] == 0)
            continue;
        at = text_window(&layout, (enum data_split)split, number[3] % layout.count[split], &rng);
        FUZZ_PROMISE(at >= layout.begin[split]);
        FUZZ_PROMISE(at < layout.end[split] && layout.end[split] - at > length);
    }
    return 0;
}
