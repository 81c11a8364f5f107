/* why_apart: see why_apart.h. */
#include "tools/gpucap/why_apart.h"

#include "tools/gpucap/recording_print.h"
#include "tools/gpucap/words.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define GIB    (UINT64_C(1) << 30)
#define MIB    (UINT64_C(1) << 20)
#define LITTLE MIB
#define BACK   100000 /* events before a refusal among which its figures are looked for */

static const struct {
    const char *word, *text;
} reasons[RECORDING_APART_COUNT + 1] = {
    [RECORDING_APART_PIECES] = {"pieces", ""},
    [RECORDING_APART_IDLE] = {"idle", ""},
    [RECORDING_APART_JOINED] = {"joined", ""},
    [RECORDING_APART_WORK] = {"work", "freed, work on a stream not done"},
    [RECORDING_APART_CAPTURE] = {"capture", "freed while a capture is open"},
    [RECORDING_APART_PINNED] = {"pinned", "freed, open in another process or device"},
    [RECORDING_APART_SMALL] = {"small", "in pages of small blocks"},
    [RECORDING_APART_PARTS] = {"chunks", "in chunks with live blocks"},
    [RECORDING_APART_SIZES] = {"sizes", "in chunks too large to join"},
    [RECORDING_APART_STUCK] = {"stuck", "not released by the driver"},
    [RECORDING_APART_DRIVER] = {"driver", "in the driver's stream-ordered pools"},
    [RECORDING_APART_CARDS] = {"cards", "on other cards"},
    [RECORDING_APART_OTHERS] = {"others", ""},
};

const char *why_apart_word(unsigned reason)
{
    return reason <= RECORDING_APART_OTHERS ? reasons[reason].word : "";
}

bool why_apart_read(const struct recording *recording, const struct recording_event *refusal,
                    uint64_t apart[RECORDING_APART_COUNT], uint64_t *others)
{
    const size_t at = (size_t)(refusal - recording->events), least = at > BACK ? at - BACK : 0;

    memset(apart, 0, RECORDING_APART_COUNT * sizeof(*apart));
    *others = WHY_APART_UNKNOWN;
    for (size_t i = at; i-- > least;) {
        const struct recording_event *event = &recording->events[i];

        if (event->thread != refusal->thread || event->device != refusal->device)
            continue;
        if (event->head.type != RECORDING_APART)
            return false; /* all stand right before the refusal */
        if (event->limit == RECORDING_APART_OTHERS)
            *others = event->bytes;
        if (event->limit == RECORDING_APART_PIECES || event->limit >= RECORDING_APART_COUNT)
            continue; /* a reason of a later version */
        apart[event->limit] = event->bytes;
        if (event->limit == RECORDING_APART_IDLE) {
            apart[RECORDING_APART_PIECES] = event->other;
            return true;
        }
    }
    return false;
}

/* Lists the reasons from `first` to `last` that matter, largest first. Returns how many. */
static int list_reasons(const uint64_t *apart, unsigned first, unsigned last,
                        struct recording_holder items[RECORDING_APART_COUNT])
{
    int count = 0;

    for (unsigned i = first; i <= last; i++) {
        int at = count;

        if (apart[i] < LITTLE)
            continue;
        for (; at && items[at - 1].bytes < apart[i]; at--)
            items[at] = items[at - 1];
        items[at] = (struct recording_holder){reasons[i].text, apart[i]};
        count++;
    }
    return count;
}

static void print_reasons(const char *label, const uint64_t *apart, unsigned first, unsigned last)
{
    struct recording_holder items[RECORDING_APART_COUNT];
    const int count = list_reasons(apart, first, last, items);

    if (count)
        recording_print_holders(label, items, count);
}

const char *why_apart_sentence(const uint64_t apart[RECORDING_APART_COUNT], char text[WHY_APART_SENTENCE])
{
    struct recording_holder items[RECORDING_APART_COUNT];
    const int count = list_reasons(apart, RECORDING_APART_WORK, RECORDING_APART_STUCK, items);
    char size[RECORDING_TIME], joined[RECORDING_TIME];
    int used;

    *text = '\0';
    if (apart[RECORDING_APART_IDLE] < LITTLE)
        return text;
    used = snprintf(text, WHY_APART_SENTENCE, "%s idled in %" PRIu64 " piece%s, at most %s in one block",
                    recording_size(apart[RECORDING_APART_IDLE], size), apart[RECORDING_APART_PIECES],
                    apart[RECORDING_APART_PIECES] == 1 ? "" : "s",
                    recording_size(apart[RECORDING_APART_JOINED], joined));
    for (int i = 0; i < count && used < WHY_APART_SENTENCE; i++)
        used += snprintf(text + used, (size_t)(WHY_APART_SENTENCE - used), "%s %s %s", i ? "," : ":",
                         recording_size(items[i].bytes, size), items[i].name);
    return text;
}

void why_apart_print(const char *label, const uint64_t apart[RECORDING_APART_COUNT])
{
    char idle[RECORDING_TIME], joined[RECORDING_TIME];

    if (apart[RECORDING_APART_IDLE] < LITTLE) {
        printf("  %-13snothing in its pool\n", label);
    } else {
        printf("  %-13s%s in its pool", label, recording_size(apart[RECORDING_APART_IDLE], idle));
        if (apart[RECORDING_APART_PIECES] > 1)
            printf(", in %" PRIu64 " pieces", apart[RECORDING_APART_PIECES]);
        if (apart[RECORDING_APART_JOINED])
            printf("; at most %s in one block\n", recording_size(apart[RECORDING_APART_JOINED], joined));
        else
            puts("; none of it could be joined");
        print_reasons("kept apart", apart, RECORDING_APART_WORK, RECORDING_APART_STUCK);
    }
    print_reasons("also idle", apart, RECORDING_APART_DRIVER, RECORDING_APART_CARDS);
}

void why_try(int *count, const char *format, ...)
{
    va_list arguments;

    fputs((*count)++ ? "        " : "\n  Try:  ", stdout);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

void why_try_card(int *count, bool is_kept, const char *option)
{
    why_try(count, "gpucap ps%s   (shows %s)", option,
            is_kept ? "which jobs keep memory free" : "who holds the card");
    why_try(count, is_kept ? "gpucap run --wait=60s ...   (waits until they end or keep less)"
                           : "gpucap run --wait=60s ...   (waits until others free memory)");
}

/* Writes a limit as an option takes it, in whole GiB from 4 GiB on, and below that in steps of 128 MiB. */
static const char *limit_text(uint64_t limit, char text[WORDS_TEXT])
{
    const uint64_t step = limit >= 4 * GIB ? GIB : 128 * MIB;
    const uint64_t round = limit > UINT64_MAX - step ? limit : (limit + step - 1) / step * step;

    if (round % GIB == 0)
        snprintf(text, WORDS_TEXT, "%" PRIu64 "G", round / GIB);
    else
        snprintf(text, WORDS_TEXT, "%" PRIu64 "M", round / MIB);
    return text;
}

void why_try_limit(int *count, const char *before, uint64_t limit, const char *after)
{
    char text[WORDS_TEXT];

    why_try(count, "%s=%s%s", before, limit_text(limit, text), after);
}

void why_try_limits(int *count, uint64_t max, uint64_t each)
{
    char job[WORDS_TEXT], process[WORDS_TEXT];

    why_try(count, "gpucap run --max=%s --each=%s ...", limit_text(max, job), limit_text(each, process));
}

void why_apart_advise(int *count, const uint64_t apart[RECORDING_APART_COUNT], uint64_t missing,
                      const char *option)
{
    if (apart[RECORDING_APART_WORK] >= missing)
        why_try(count, "gpucap run --free=strict ...   (a free waits, then its memory serves at once)");
    if (apart[RECORDING_APART_PINNED] >= missing)
        why_try(count, "gpucap ps%s   (a process that opened this one's memory must close it)", option);
}

bool why_apart_is_between(const uint64_t apart[RECORDING_APART_COUNT], uint64_t missing)
{
    return apart[RECORDING_APART_PARTS] + apart[RECORDING_APART_SMALL] >= missing;
}
