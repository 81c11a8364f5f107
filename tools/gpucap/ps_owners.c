/* ps_owners: gpucap ps --owners: who within a process holds its memory. Owns no lock. */
#include "ask.h"
#include "cli.h"
#include "ps.h"
#include "words.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX       2048
#define NAME_MAX_BYTES 64

struct row {
    int device;
    uint64_t bytes, blocks;
    char kind[16], owner[NAME_MAX_BYTES], tag[32];
};

static int by_bytes(const void *a, const void *b)
{
    const struct row *x = a, *y = b;

    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* Copies a field that ends at a tab or at the end of the line. Returns what is behind it. */
static const char *field(const char *from, char *to, size_t size)
{
    const size_t length = strcspn(from, "\t\n");

    snprintf(to, size, "%.*s", (int)length, from);
    words_clean(to);
    return from + length + (from[length] == '\t');
}

/* Reads a line "DEVICE BYTES BLOCKS PEAK KIND OWNER TAG", with tabs between. */
static bool parse(const char *line, struct row *row)
{
    int end = 0;

    if (sscanf(line, "%d\t%" SCNu64 "\t%" SCNu64 "\t%*u\t%n", &row->device, &row->bytes, &row->blocks,
               &end) != 3 ||
        !end)
        return false;
    line = field(line + end, row->kind, sizeof(row->kind));
    line = field(line, row->owner, sizeof(row->owner));
    field(line, row->tag, sizeof(row->tag));
    return true;
}

static void print(const struct row *rows, size_t count)
{
    char bytes[WORDS_TEXT], blocks[24];

    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];

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
    static struct row rows[ROWS_MAX];
    size_t count = 0;
    const int status = ask_process(ledgers, "ps", word, "owners", answer);

    if (status)
        return status;
    for (const char *line = answer; *line && count < ROWS_MAX;) {
        count += parse(line, &rows[count]);
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    qsort(rows, count, sizeof(*rows), by_bytes);
    print(rows, count);
    return 0;
}
