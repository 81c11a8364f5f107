/* scenario_search: finds the smallest size that works. See scenario_search.h. */
#include "harness/scenario/scenario_search.h"

#include <stdbool.h>

static uint64_t rounded(const struct search *search, uint64_t size)
{
    const uint64_t grain = search->grain ? search->grain : 1;
    uint64_t result = size / grain * grain;

    if (result < grain)
        result = grain;
    return search->limit && result > search->limit ? search->limit / grain * grain : result;
}

/* Tries a size. Returns false when the search is over. */
static bool attempt(struct search *search, uint64_t size, search_fn *try, void *arg)
{
    if (search->tries == search->most)
        return false;
    search->tries++;
    switch (try(size, arg)) {
    case SEARCH_FAILS:
        if (size > search->fails)
            search->fails = size;
        return true;
    case SEARCH_WORKS:
        if (!search->works || size < search->works)
            search->works = size;
        return true;
    case SEARCH_STOP:
        break;
    }
    return false;
}

/* Tries larger and larger sizes until one works. */
static bool find_working(struct search *search, uint64_t high, search_fn *try, void *arg)
{
    for (uint64_t size = rounded(search, high);; size = rounded(search, size + size / 2)) {
        if (!attempt(search, size, try, arg))
            return false;
        if (search->works)
            return true;
        if (search->limit && size >= rounded(search, search->limit))
            return false;
    }
}

/* Tries smaller and smaller sizes until one fails. */
static bool find_failing(struct search *search, uint64_t low, search_fn *try, void *arg)
{
    for (uint64_t size = rounded(search, low);; size = rounded(search, size / 2)) {
        if (size >= search->works)
            size = rounded(search, search->works - 1);
        if (size >= search->works)
            return true; /* even the smallest works: nothing fails */
        if (!attempt(search, size, try, arg))
            return false;
        if (search->fails)
            return true;
    }
}

void search_run(struct search *search, uint64_t low, uint64_t high, search_fn *try, void *arg)
{
    search->fails = search->works = search->tries = 0;
    if (find_working(search, high, try, arg) && (search->fails || find_failing(search, low, try, arg)))
        search_narrow(search, try, arg);
}

void search_narrow(struct search *search, search_fn *try, void *arg)
{
    while (search->fails && search->works - search->fails > (search->grain ? search->grain : 1)) {
        /* Where the gap is wide, the border is likely near the size that is known to fail. */
        const bool wide = search->works / 4 > search->fails && search->fails / 4 > search->grain;
        const uint64_t gap = wide ? search->fails : search->works - search->fails;
        const uint64_t middle = rounded(search, search->fails + gap / 2);

        if (middle <= search->fails || middle >= search->works || !attempt(search, middle, try, arg))
            break;
    }
}
