/* ps_owners_read: what a process answers to `gpucap ps --owners`. See ps.h. */
#include "tools/gpucap/ps.h"
#include "tools/gpucap/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_bytes(const void *a, const void *b)
{
    const struct ps_owner *x = a, *y = b;

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
static bool parse(const char *line, struct ps_owner *row)
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

size_t ps_owners_read(const char *answer, struct ps_owner *rows, size_t room)
{
    size_t count = 0;

    for (const char *line = answer; *line && count < room;) {
        count += parse(line, &rows[count]);
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    qsort(rows, count, sizeof(*rows), by_bytes);
    return count;
}
