/* recording_words: see recording_words.h. */
#include "tools/gpucap/recording_words.h"

#include "tools/gpucap/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define US               UINT64_C(1000)
#define MS               UINT64_C(1000000)
#define S                UINT64_C(1000000000)
#define IN_SENTENCE      3  /* holders that the sentence names */
#define NAME_IN_SENTENCE 40 /* characters */
#define SPECIAL          4  /* context, idle twice, not named */

static int largest_holder(const void *a, const void *b)
{
    const struct recording_holder *x = a, *y = b;

    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

int recording_holders(const struct timeline *timeline, size_t steps,
                      struct recording_holder holders[RECORDING_NAMED + 1])
{
    const struct timeline_state state = timeline_state_after(timeline, steps);
    const struct recording_holder special[SPECIAL] = {{"CUDA context", state.context},
                                                      {"idle in the pool", timeline_idle(&state)},
                                                      {"idle in the driver's pools", state.driver},
                                                      {"not named", state.unnamed}};
    const enum timeline_by by = timeline_best_by(timeline, steps);
    struct timeline_share *shares;
    const size_t found = timeline_shares(timeline, steps, by, &shares);
    uint64_t rest = 0;
    int count = 0;

    for (int i = 0; i < SPECIAL; i++) {
        if (special[i].bytes)
            holders[count++] = special[i];
    }
    for (size_t i = 0; i < found; i++) {
        if (count < RECORDING_NAMED)
            holders[count++] = (struct recording_holder){timeline_name(timeline->recording, by, shares[i].id),
                                                         shares[i].bytes};
        else
            rest += shares[i].bytes;
    }
    free(shares);
    qsort(holders, (size_t)count, sizeof(*holders), largest_holder);
    if (rest)
        holders[count++] = (struct recording_holder){"others", rest};
    return count;
}

const char *recording_of(uint64_t bytes, uint64_t limit, char text[2 * RECORDING_TIME])
{
    char a[RECORDING_TIME], b[RECORDING_TIME];
    char *unit;

    recording_size(bytes, a);
    if (limit == TIMELINE_NO) {
        snprintf(text, 2 * RECORDING_TIME, "%s", a);
        return text;
    }
    recording_size(limit, b);
    unit = strchr(a, ' ');
    if (unit && strchr(b, ' ') && !strcmp(unit, strchr(b, ' ')))
        *unit = '\0';
    snprintf(text, 2 * RECORDING_TIME, "%.20s of %.20s", a, b);
    return text;
}

const char *recording_sentence(const struct timeline *timeline, char text[RECORDING_SENTENCE])
{
    const struct timeline_state state = timeline_state_after(timeline, timeline->peak);
    struct recording_holder holders[RECORDING_NAMED + 1];
    char used[RECORDING_TIME], at[RECORDING_TIME], used_of[2 * RECORDING_TIME], name[WORDS_CUT];
    int length;

    if (!timeline->peak) {
        snprintf(text, RECORDING_SENTENCE, "Nothing was allocated");
        return text;
    }
    recording_of(timeline_used(&state), state.limit, used_of);
    length = snprintf(text, RECORDING_SENTENCE, "Peak %s at %s", used_of,
                      recording_time(timeline->steps[timeline->peak - 1].time_ns, at));
    const int count = recording_holders(timeline, timeline->peak, holders);
    for (int i = 0; i < count && i < IN_SENTENCE && length < RECORDING_SENTENCE - 1; i++)
        length += snprintf(text + length, RECORDING_SENTENCE - (size_t)length, "%s%s %s", i ? ", " : ": ",
                           words_cut(holders[i].name, NAME_IN_SENTENCE, name),
                           recording_size(holders[i].bytes, used));
    return text;
}

const char *recording_time(uint64_t ns, char text[RECORDING_TIME])
{
    if (ns < US)
        snprintf(text, RECORDING_TIME, "%llu ns", (unsigned long long)ns);
    else if (ns < MS)
        snprintf(text, RECORDING_TIME, "%llu us", (unsigned long long)(ns / US));
    else if (ns < S)
        snprintf(text, RECORDING_TIME, "%.*f ms", ns < 10 * MS ? 2 : ns < 100 * MS ? 1 : 0, (double)ns / 1e6);
    else if (ns < 60 * S)
        snprintf(text, RECORDING_TIME, "%.2f s", (double)ns / 1e9);
    else
        return words_span(ns / MS, text);
    return text;
}

/* Rounded half up, as the page's script does. */
const char *recording_size(uint64_t bytes, char text[RECORDING_TIME])
{
    static const struct {
        const char *name;
        unsigned shift, digits;
    } units[] = {{"TiB", 40, 2}, {"GiB", 30, 2}, {"MiB", 20, 0}, {"KiB", 10, 0}};

    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        const uint64_t unit = UINT64_C(1) << units[i].shift;
        const unsigned digits = units[i].digits ? 2 : bytes < 10 * unit && bytes % unit ? 1 : 0;
        const unsigned parts = digits == 2 ? 100 : digits ? 10 : 1;

        if (bytes < unit)
            continue;
        const uint64_t rounded = bytes / unit * parts + (bytes % unit * parts + unit / 2) / unit;
        if (digits)
            snprintf(text, RECORDING_TIME, "%llu.%0*llu %s", (unsigned long long)(rounded / parts),
                     (int)digits, (unsigned long long)(rounded % parts), units[i].name);
        else
            snprintf(text, RECORDING_TIME, "%llu %s", (unsigned long long)rounded, units[i].name);
        return text;
    }
    snprintf(text, RECORDING_TIME, bytes ? "%u B" : "0", (unsigned)bytes);
    return text;
}

uint64_t recording_step(uint64_t most, unsigned count)
{
    static const uint64_t steps[] = {1, 2, 5, 10, 20, 50, 100, 200, 500};

    for (int shift = 0; shift <= 40; shift += 10) {
        for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
            const uint64_t step = steps[i] << shift;

            if (step < most / count)
                continue;
            if (most >> shift < 1024)
                return step;
            /* Labels go on in the next unit, which words_size() shows with a decimal from GiB on. */
            return (shift < 20 ? UINT64_C(1024) : UINT64_C(512)) << shift;
        }
    }
    return most ? most : 1;
}

const char *recording_limit_name(uint8_t limit)
{
    switch (limit) {
    case RECORDING_LIMIT_PROCESS:
        return "limit of the process";
    case RECORDING_LIMIT_JOB:
        return "limit of the job";
    case RECORDING_LIMIT_ADMIN:
        return "administrator's limit";
    case RECORDING_LIMIT_CARD:
        return "size of the card";
    case RECORDING_LIMIT_KEPT:
        return "min of other jobs";
    default:
        return "limit";
    }
}
