/* CIFAR-10 files: the number of records fits the bytes, and every record that is accepted is a whole one. */
#include "fuzz.h"
#include "harness/data/cifar.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    uint8_t image[CIFAR_CHANNELS * CIFAR_PIXELS];
    const char *reason;
    uint64_t records = cifar_count(count, &reason);
    int32_t label = -1;

    FUZZ_PROMISE(records * CIFAR_RECORD <= count);
    FUZZ_PROMISE(reason || records * CIFAR_RECORD == count);
    for (size_t at = 0; at < count; at += CIFAR_RECORD) {
        if (cifar_parse(bytes + at, count - at, image, &label))
            continue;
        FUZZ_PROMISE(count - at >= CIFAR_RECORD);
        FUZZ_PROMISE(label >= 0 && label < CIFAR_CLASSES);
        FUZZ_PROMISE(image[1] == bytes[at + 1 + CIFAR_PIXELS]);
    }
    return 0;
}
