/* Descriptions of simulated cards: at most as many as there is room for, each of a sensible size. */
#include "fuzz.h"
#include "tools/simgpu/engine/sim_card_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char why[128] = "";
    struct sim_card_spec spec;
    char *text = fuzz_text(bytes, count);
    if (sim_card_spec_parse(text, &spec, why, sizeof(why)) != 0) {
        FUZZ_PROMISE(*why && strnlen(why, sizeof(why)) < sizeof(why));
    } else {
        FUZZ_PROMISE(spec.count >= 0 && spec.count <= CARD_MAX_DEVICES);
        for (int i = 0; i < spec.count; i++) {
            FUZZ_PROMISE(spec.card[i].capacity >= CARD_MIN_CAPACITY);
            FUZZ_PROMISE(spec.card[i].capacity <= CARD_MAX_CAPACITY);
            FUZZ_PROMISE(spec.card[i].mig == (memcmp(spec.card[i].uuid, spec.card[i].gpu_uuid, 16) != 0));
        }
    }
    free(text);
    return 0;
}
