/* What a process answers to `gpucap ps --owners`: whatever it says, rows are clean texts in order of size. */
#include "fuzz.h"
#include "tools/gpucap/ps.h"

enum { ROWS = 16 };

static bool is_clean(const char *text, size_t size)
{
    const char *end = memchr(text, 0, size);

    for (; end && text < end; text++) {
        if ((unsigned char)*text < ' ')
            return false;
    }
    return end != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct ps_owner rows[ROWS];
    char *text = fuzz_text(bytes, count);
    const size_t found = ps_owners_read(text, rows, ROWS);

    FUZZ_PROMISE(found <= ROWS);
    for (size_t i = 0; i < found; i++) {
        FUZZ_PROMISE(is_clean(rows[i].owner, sizeof(rows[i].owner)));
        FUZZ_PROMISE(is_clean(rows[i].kind, sizeof(rows[i].kind)));
        FUZZ_PROMISE(is_clean(rows[i].tag, sizeof(rows[i].tag)));
        FUZZ_PROMISE(i == 0 || rows[i].device > rows[i - 1].device ||
                     (rows[i].device == rows[i - 1].device && rows[i].bytes <= rows[i - 1].bytes));
    }
    free(text);
    return 0;
}
