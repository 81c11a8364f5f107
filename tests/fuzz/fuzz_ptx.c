/* PTX texts: the reader always ends, moves forward, and stays inside the text and its own arrays. */
#include "fuzz.h"
#include "tools/simgpu/engine/sim_ptx.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct sim_ptx_entry entry;
    static struct sim_ptx_variable variable;
    char *text = fuzz_text(bytes, count);
    const char *end = text + strlen(text);
    const char *at = text;
    sim_ptx_is_text(text);
    for (const char *before = at; sim_ptx_next_entry(&at, &entry); before = at) {
        FUZZ_PROMISE(at > before && at <= end);
        FUZZ_PROMISE(entry.local <= (512u << 10));
        FUZZ_PROMISE(entry.count <= PTX_MAX_PARAMS && strnlen(entry.name, PTX_MAX_NAME) < PTX_MAX_NAME);
    }
    at = text;
    for (const char *before = at; sim_ptx_next_variable(&at, &variable); before = at)
        FUZZ_PROMISE(at > before && at <= end && strnlen(variable.name, PTX_MAX_NAME) < PTX_MAX_NAME);
    free(text);
    return 0;
}
