/* Libraries read by gpucap doctor: any bytes at all. */
#include "fuzz.h"
#include "tools/gpucap/elfscan.h"

static bool look_at_name(const char *name, void *arg)
{
    *(size_t *)arg += strlen(name);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct elfscan scan;
    char text[32];
    size_t letters = 0;
    if (elfscan_parse(&scan, bytes, count) != 0)
        return 0;
    elfscan_defined(&scan, look_at_name, &letters);
    if (elfscan_read_string(&scan, "gpucap_version_text", text, sizeof(text)))
        FUZZ_PROMISE(strnlen(text, sizeof(text)) < sizeof(text));
    return 0;
}
