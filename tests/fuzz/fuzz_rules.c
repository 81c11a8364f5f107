/* Rules: whatever was read limits a card to its own size at most, or not at all; refusals say why. */
#include "fuzz.h"
#include "interpose/settings/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const uint64_t total = (uint64_t)16 << 30;
    const char *why = NULL;
    struct rules rules;
    char *text = fuzz_text(bytes, count);
    if (rules_parse(text, &rules, &why) != 0) {
        FUZZ_PROMISE(why && *why);
    } else {
        FUZZ_PROMISE(rules.count > 0 && rules.count <= RULES_MAX_RULES);
        for (int ordinal = RULES_NO_ORDINAL; ordinal < 3; ordinal++) {
            uint64_t bytes_allowed =
                rules_for(&rules, ordinal, "GPU-09e4f000-9ce7-42ee-4029-20a51f94f29d", total);
            FUZZ_PROMISE(bytes_allowed <= total || bytes_allowed == RULES_UNLIMITED);
        }
    }
    free(text);
    return 0;
}
