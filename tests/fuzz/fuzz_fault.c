/* Fault scripts: read or refused with a reason, and a rule that was read fits some call. */
#include "fuzz.h"
#include "tools/simgpu/engine/sim_fault.h"

static int lookup(const char *name, size_t length)
{
    static const char *const known[] = {"cuInit", "cuMemAlloc_v2", "cuMemFree_v2"};
    for (int i = 0; i < 3; i++) {
        if (strlen(known[i]) == length && !memcmp(known[i], name, length))
            return i;
    }
    return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char why[128] = "";
    struct sim_fault_script script = {0};
    char *text = fuzz_text(bytes, count);
    if (sim_fault_parse(&script, text, lookup, why, sizeof(why)) != 0) {
        FUZZ_PROMISE(*why && strnlen(why, sizeof(why)) < sizeof(why));
        FUZZ_PROMISE(script.count == 0);
    } else {
        FUZZ_PROMISE(script.count <= FAULT_MAX_RULES);
        if (script.count) {
            const struct sim_fault_rule *first = &script.rules[0];
            uint64_t nth = first->nth ? first->nth : 1;
            int entry = first->entry == FAULT_ANY ? 0 : first->entry;
            FUZZ_PROMISE(sim_fault_match(&script, entry, nth, nth) == first);
        }
    }
    free(text);
    return 0;
}
