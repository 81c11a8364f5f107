/* hooks: see hooks.h. A few hundred rows, looked up at start: a linear search is enough. */
#include "interpose/hook/hooks.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const struct row {
    const char *name;
    void *hook;
    size_t real; /* offset of the driver's own address in struct driver_table */
} rows[] = {
#define HOOK(symbol, type) {#symbol, (void *)symbol, offsetof(struct driver_table, symbol)},
#define CALL(symbol, type)
#include "interpose/driver/hooks.def"
};

#define ROWS (sizeof(rows) / sizeof(*rows))

void *hooks_find(const char *name)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (!strcmp(rows[i].name, name))
            return rows[i].hook;
    }
    return NULL;
}

void *hooks_for(void *address)
{
    const char *table = (const char *)driver_get();

    for (size_t i = 0; i < ROWS; i++) {
        void *real;

        memcpy(&real, table + rows[i].real, sizeof(real));
        if (real == address)
            return rows[i].hook;
    }
    return address;
}

bool hooks_own(const void *address)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].hook == address)
            return true;
    }
    return false;
}

/* Sorted, as quiet.def is. */
static const char *const quiet[] = {
#define QUIET(symbol) #symbol,
#include "interpose/hook/quiet.def"
#undef QUIET
};

static int compare(const void *name, const void *entry)
{
    return strcmp(name, *(const char *const *)entry);
}

bool hooks_quiet(const char *name)
{
    return bsearch(name, quiet, sizeof(quiet) / sizeof(*quiet), sizeof(*quiet), compare) != NULL;
}
