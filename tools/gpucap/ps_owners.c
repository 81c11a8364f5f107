/* ps_owners: gpucap ps --owners: who within a process holds its memory. Owns no lock. */
#include "tools/gpucap/ask.h"
#include "tools/gpucap/cli.h"
#include "tools/gpucap/ps.h"
#include "tools/gpucap/words.h"

#include <inttypes.h>
#include <stdio.h>

#define ROWS_MAX 2048

static void print(const struct ps_owner *rows, size_t count)
{
    char bytes[WORDS_TEXT], blocks[24];

    for (size_t i = 0; i < count; i++) {
        const struct ps_owner *row = &rows[i];

        if (i == 0 || row->device != rows[i - 1].device)
            printf("%sdevice %d\n%10s %8s  %-8s  %s\n", i ? "\n" : "", row->device, "BYTES", "BLOCKS", "KIND",
                   "OWNER");
        snprintf(blocks, sizeof(blocks), row->blocks ? "%" PRIu64 : "", row->blocks);
        printf("%10s %8s  %-8s  %s%s%s\n", words_size(row->bytes, bytes), blocks, row->kind, row->owner,
               *row->tag ? ", " : "", row->tag);
    }
}

int ps_owners(struct ledgers *ledgers, const char *word)
{
    static char answer[INQUIRY_ANSWER];
    static struct ps_owner rows[ROWS_MAX];
    const int status = ask_process(ledgers, "ps", word, "owners", answer);

    if (status)
        return status;
    print(rows, ps_owners_read(answer, rows, ROWS_MAX));
    return 0;
}
