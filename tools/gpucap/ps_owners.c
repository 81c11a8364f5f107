/* ps_owners: gpucap ps --owners: who within a process holds its memory. Owns no lock. */
#include "tools/gpucap/ask.h"
#include "tools/gpucap/ps.h"
#include "tools/gpucap/words.h"

#include <inttypes.h>
#include <stdio.h>

#define ROWS_MAX 2048

static void print(const struct ps_owner *rows, size_t count, bool exact)
{
    char size[WORDS_TEXT], blocks[24];
    const int width = exact ? 15 : 10;

    for (size_t i = 0; i < count; i++) {
        const struct ps_owner *row = &rows[i];

        if (i == 0 || row->device != rows[i - 1].device)
            printf("%sdevice %d\n%*s %8s  %-8s  %s\n", i ? "\n" : "", row->device, width, "BYTES", "BLOCKS",
                   "KIND", "OWNER");
        if (exact)
            snprintf(size, sizeof(size), "%" PRIu64, row->bytes);
        else
            words_size(row->bytes, size);
        snprintf(blocks, sizeof(blocks), row->blocks ? "%" PRIu64 : "", row->blocks);
        printf("%*s %8s  %-8s  %s%s%s\n", width, size, blocks, row->kind, row->owner, *row->tag ? ", " : "",
               row->tag);
    }
}

int ps_owners(struct ledgers *ledgers, const char *word, bool exact)
{
    static char answer[INQUIRY_ANSWER];
    static struct ps_owner rows[ROWS_MAX];
    const int status = ask_process(ledgers, "ps --owners", word, "owners", answer);

    if (status)
        return status;
    print(rows, ps_owners_read(answer, rows, ROWS_MAX), exact);
    return 0;
}
