/* ledgers: see ledgers.h. */
#include "tools/gpucap/ledgers.h"

#include "tools/gpucap/cli.h"
#include "interpose/base/clock.h"
#include "interpose/base/sums.h"
#include "tools/gpucap/who.h"
#include "tools/gpucap/words.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UUID_BEGINNING 12 /* "GPU-3f1c0a52": enough to tell the cards of a machine apart */

/* ---- opening ---- */

static struct ledgers_card *find_card(struct ledgers *ledgers, const char *uuid)
{
    for (int i = 0; i < ledgers->count; i++) {
        if (!strcmp(ledgers->cards[i].uuid, uuid))
            return &ledgers->cards[i];
    }
    return NULL;
}

struct ledgers_card *ledgers_add_card(struct ledgers *ledgers, const char *uuid)
{
    if (ledgers->count == LEDGERS_CARDS)
        return NULL;
    struct ledgers_card *card = &ledgers->cards[ledgers->count];
    card->processes = calloc(LEDGER_SLOTS, sizeof(*card->processes));
    if (!card->processes)
        return NULL;
    ledgers->count++;
    snprintf(card->uuid, sizeof(card->uuid), "%s", uuid);
    return card;
}

void ledgers_drop_card(struct ledgers *ledgers)
{
    struct ledgers_card *card = &ledgers->cards[--ledgers->count];

    free(card->processes);
    free(card->unmanaged);
    *card = (struct ledgers_card){0};
}

static void open_card(const char *uuid, void *argument)
{
    struct ledgers *ledgers = argument;
    struct ledgers_card *card = find_card(ledgers, uuid);

    if (card && card->ledger)
        return;
    struct ledger *ledger = NULL;
    char why[LEDGER_WHY] = "";
    const int rc = ledger_open_existing(&ledger, ledgers->folder, uuid, why);
    if (rc == -ENODATA) /* left by another version: as if it were not there */
        return;
    if (!card && !(card = ledgers_add_card(ledgers, uuid))) {
        ledgers->left_out = true;
        ledger_close(ledger);
        return;
    }
    card->ledger = ledger;
    snprintf(card->why, sizeof(card->why), "%s", why);
}

/* Returns true if libgpucap.so is preloaded into this process: then NVML reports the limit as the card's
 * size. */
static bool is_wrapped(void)
{
    return dlsym(RTLD_DEFAULT, "gpucap_version_text") != NULL;
}

int ledgers_open(struct ledgers *ledgers, const char *command, const char *folder, const char *driver)
{
    *ledgers = (struct ledgers){.cards = calloc(LEDGERS_CARDS, sizeof(*ledgers->cards))};
    if (!ledgers->cards)
        return cli_fail("%s: no memory", command);
    snprintf(ledgers->folder, sizeof(ledgers->folder), "%s", folder);
    const int rc = ledger_each_card(ledgers->folder, open_card, ledgers);
    if (rc && rc != -ENOENT) {
        ledgers_close(ledgers);
        return cli_fail("%s: the folder of the ledgers, %s, cannot be read: %s", command, folder,
                        strerror(-rc));
    }
    ledgers->nvml = is_wrapped() ? NULL : cards_open(driver);
    return 0;
}

void ledgers_close(struct ledgers *ledgers)
{
    for (int i = 0; i < ledgers->count; i++) {
        ledger_close(ledgers->cards[i].ledger);
        free(ledgers->cards[i].processes);
        free(ledgers->cards[i].unmanaged);
    }
    free(ledgers->cards);
    cards_close(ledgers->nvml);
    *ledgers = (struct ledgers){0};
}

void ledgers_complain(const struct ledgers *ledgers, const char *command)
{
    for (int i = 0; i < ledgers->count; i++) {
        if (!ledgers->cards[i].ledger && !ledgers->cards[i].bare)
            cli_fail("%s: %s", command, ledgers->cards[i].why);
    }
    if (ledgers->left_out)
        cli_fail("%s: %s has more ledgers than the %d that are read", command, ledgers->folder,
                 ledgers->count);
}

/* ---- reading ---- */

static int by_number(const void *a, const void *b)
{
    const struct ledgers_card *x = a, *y = b;

    /* unknown numbers, -1, last */
    if (x->facts.number != y->facts.number)
        return (unsigned)x->facts.number < (unsigned)y->facts.number ? -1 : 1;
    return strcmp(x->uuid, y->uuid);
}

static int by_job(const void *a, const void *b)
{
    const struct ledgers_process *x = a, *y = b;
    const int order = strcmp(x->entry.job, y->entry.job);

    return order ? order : (x->entry.pid > y->entry.pid) - (x->entry.pid < y->entry.pid);
}

static void read_card(const struct ledgers *ledgers, struct ledgers_card *card)
{
    struct ledger_totals totals;

    cards_read(ledgers->nvml, card->uuid, &card->facts);
    card->count = 0;
    card->managed = card->idle = 0;
    for (int slot = 0; card->ledger && slot < LEDGER_SLOTS; slot++) {
        struct ledgers_process *process = &card->processes[card->count];

        if (!ledger_read(card->ledger, slot, &process->entry))
            continue;
        process->slot = slot;
        process->chosen = process->answered = false;
        process->job_peak = ledger_read_job(card->ledger, process->entry.job, &totals) ? totals.peak : 0;
        words_clean(process->entry.job);
        who_user(process->entry.uid, process->user, sizeof(process->user));
        who_command(process->entry.pid, process->entry.uid, process->entry.command, process->command,
                    sizeof(process->command));
        words_clean(process->entry.command); /* now that it has been compared */
        card->managed = sums_add(card->managed, process->entry.used);
        card->idle = sums_add(card->idle, process->entry.cached);
        card->count++;
    }
    qsort(card->processes, (size_t)card->count, sizeof(*card->processes), by_job);
}

void ledgers_read(struct ledgers *ledgers)
{
    for (int i = 0; i < ledgers->count; i++)
        read_card(ledgers, &ledgers->cards[i]);
    qsort(ledgers->cards, (size_t)ledgers->count, sizeof(*ledgers->cards), by_number);
}

void ledgers_read_facts(struct ledgers *ledgers)
{
    for (int i = 0; i < ledgers->count; i++) {
        if (ledgers->cards[i].bare)
            cards_read(ledgers->nvml, ledgers->cards[i].uuid, &ledgers->cards[i].facts);
    }
    qsort(ledgers->cards, (size_t)ledgers->count, sizeof(*ledgers->cards), by_number);
}

void ledgers_look(struct ledgers *ledgers)
{
    ledger_each_card(ledgers->folder, open_card, ledgers);
    ledgers_read(ledgers);
    ledgers_poke(ledgers, true, 0, LEDGERS_FRESH_MS);
    ledgers_read(ledgers);
}

/* ---- asking ---- */

static void ask(struct ledgers_card *card, bool all, uint64_t bytes)
{
    for (int i = 0; i < card->count; i++) {
        struct ledgers_process *process = &card->processes[i];

        process->answered = false;
        process->asked = (all || process->chosen) &&
                         ledger_ask_slot(card->ledger, process->slot, bytes, &process->question);
    }
}

static void await(struct ledgers_card *card, uint64_t until)
{
    for (int i = 0; i < card->count; i++) {
        struct ledgers_process *process = &card->processes[i];
        const uint64_t now = clock_ms();

        if (process->asked)
            process->answered = ledger_await_slot(card->ledger, process->slot, process->question,
                                                  now < until ? (unsigned)(until - now) : 0);
    }
}

/* Asks first and waits then, so that all processes work at the same time. */
void ledgers_poke(struct ledgers *ledgers, bool all, uint64_t bytes, unsigned timeout_ms)
{
    const uint64_t until = clock_ms() + timeout_ms;

    for (int i = 0; i < ledgers->count; i++)
        ask(&ledgers->cards[i], all, bytes);
    for (int i = 0; i < ledgers->count; i++)
        await(&ledgers->cards[i], until);
}

/* ---- choosing ---- */

static int choose(struct ledgers *ledgers, pid_t pid, const char *job)
{
    int count = 0;

    for (int i = 0; i < ledgers->count; i++) {
        for (int j = 0; j < ledgers->cards[i].count; j++) {
            struct ledgers_process *process = &ledgers->cards[i].processes[j];

            process->chosen = job ? !strcmp(process->entry.job, job) : pid < 0 || process->entry.pid == pid;
            count += process->chosen;
        }
    }
    return count;
}

int ledgers_choose(struct ledgers *ledgers, const char *word)
{
    char *end;
    int count = 0;

    if (!strcmp(word, "all"))
        return choose(ledgers, -1, NULL);
    errno = 0;
    const long pid = isdigit((unsigned char)*word) ? strtol(word, &end, 10) : 0;
    if (pid > 0 && !errno && !*end && pid == (pid_t)pid)
        count = choose(ledgers, (pid_t)pid, NULL);
    return count || !*word ? count : choose(ledgers, 0, word);
}

void ledgers_choose_job(struct ledgers *ledgers)
{
    char job[LEDGER_NAME] = "";

    for (int i = 0; i < ledgers->count && !*job; i++) {
        for (int j = 0; j < ledgers->cards[i].count && !*job; j++) {
            if (ledgers->cards[i].processes[j].chosen)
                snprintf(job, sizeof(job), "%s", ledgers->cards[i].processes[j].entry.job);
        }
    }
    if (*job)
        choose(ledgers, 0, job);
}

bool ledgers_may_change(const struct ledgers_process *process)
{
    return geteuid() == 0 || process->entry.uid == geteuid();
}

/* ---- figures ---- */

uint64_t ledgers_limit(const struct ledgers_process *process)
{
    const struct ledger_entry *entry = &process->entry;

    return sums_smaller(entry->limit, entry->job_max);
}

bool ledgers_has_own_limit(const struct ledgers_process *process)
{
    return process->entry.limit < process->entry.job_max;
}

bool ledgers_other(const struct ledgers_card *card, uint64_t *bytes)
{
    const uint64_t taken = card->facts.total - card->facts.free;

    if (!card->facts.known || card->facts.free > card->facts.total || card->managed > taken)
        return false;
    *bytes = taken - card->managed;
    return true;
}

const char *ledgers_card_name(const struct ledgers_card *card)
{
    static char names[2][WORDS_TEXT];
    static int next;
    char *name = names[next++ % 2];

    if (card->facts.number >= 0)
        snprintf(name, sizeof(names[0]), "GPU %d", card->facts.number);
    else
        snprintf(name, sizeof(names[0]), "%.*s", UUID_BEGINNING, card->uuid);
    return name;
}
