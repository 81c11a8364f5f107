/* Names of functions in ELF files: any bytes have some or none, and no name leaves the bytes. */
#include "fuzz.h"
#include "tools/gpucap/functions.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct functions functions;
    char name[FUNCTIONS_NAME];
    uint8_t *copy = malloc(count + 1); /* as large as the input, so that a sanitizer sees what is beyond */

    if (!copy)
        return 0;
    memcpy(copy, bytes, count);
    if (functions_parse(&functions, copy, count)) {
        FUZZ_PROMISE(functions.count > 0);
        for (uint64_t offset = 0; offset < count + 64; offset += 7) {
            if (functions_find(&functions, offset, name))
                FUZZ_PROMISE(*name && strlen(name) < FUNCTIONS_NAME);
        }
    }
    functions_close(&functions);
    free(copy);
    return 0;
}
