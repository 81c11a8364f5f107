/* unmanaged: see unmanaged.h. */
#include "tools/gpucap/unmanaged.h"

#include "interpose/settings/rules.h"
#include "tools/gpucap/who.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOM 1024 /* processes of a card */

static const struct cards_process *find(const struct cards_process *list, int count, pid_t pid)
{
    for (int i = 0; i < count; i++) {
        if (list[i].pid == pid)
            return &list[i];
    }
    return NULL;
}

static bool is_managed(const struct ledgers *ledgers, pid_t pid)
{
    for (int i = 0; i < ledgers->count; i++) {
        for (int j = 0; j < ledgers->cards[i].count; j++) {
            if (ledgers->cards[i].processes[j].entry.pid == pid)
                return true;
        }
    }
    return false;
}

/* Returns true if NVML lists every process of the ledger that has memory, so that both use the same ids. */
static bool is_of_our_numbers(const struct ledgers_card *card, const struct cards_process *list, int count)
{
    for (int i = 0; i < card->count; i++) {
        const struct ledger_entry *entry = &card->processes[i].entry;

        if (entry->used && !find(list, count, entry->pid))
            return false;
    }
    return true;
}

/* Returns true if the process has ended, or its id is of another PID namespace. */
static bool is_gone(pid_t pid)
{
    return kill(pid, 0) && errno == ESRCH;
}

static int by_used(const void *a, const void *b)
{
    const struct ledgers_unmanaged *x = a, *y = b;

    return x->used != y->used ? (x->used < y->used) - (x->used > y->used)
                              : (x->pid > y->pid) - (x->pid < y->pid);
}

/* Returns false if NVML uses the process ids of another PID namespace. */
static bool fill(const struct ledgers *ledgers, struct ledgers_card *card)
{
    static struct cards_process list[ROOM];
    const int count = cards_processes(ledgers->nvml, card->uuid, list, ROOM);

    if (count <= 0)
        return true;
    if (!is_of_our_numbers(card, list, count))
        return false;
    card->unmanaged = calloc((size_t)count, sizeof(*card->unmanaged));
    for (int i = 0; card->unmanaged && i < count; i++) {
        struct ledgers_unmanaged *process = &card->unmanaged[card->unmanaged_count];

        if (is_managed(ledgers, list[i].pid) || find(list, i, list[i].pid) || is_gone(list[i].pid))
            continue;
        process->pid = list[i].pid;
        process->used = list[i].used;
        who_process(process->pid, process->user, sizeof(process->user), process->command,
                    sizeof(process->command));
        card->unmanaged_count++;
    }
    if (card->unmanaged)
        qsort(card->unmanaged, (size_t)card->unmanaged_count, sizeof(*card->unmanaged), by_used);
    return true;
}

/* Adds a card that NVML lists and that has no ledger; again without it if no process is on it. */
static void add_card(const char *uuid, void *argument)
{
    struct ledgers *ledgers = argument;

    for (int i = 0; i < ledgers->count; i++) {
        if (rules_names(uuid, strlen(uuid), ledgers->cards[i].uuid)) /* also a slice */
            return;
    }
    struct ledgers_card *card = ledgers_add_card(ledgers, uuid);
    if (!card)
        return;
    card->bare = true;
    fill(ledgers, card);
    if (!card->unmanaged_count)
        ledgers_drop_card(ledgers);
}

void unmanaged_find(struct ledgers *ledgers)
{
    if (!ledgers->nvml)
        return;
    bool ours = true;

    for (int i = 0; i < ledgers->count; i++) {
        if (ledgers->cards[i].ledger) /* else it is not known who is managed */
            ours &= fill(ledgers, &ledgers->cards[i]);
    }
    if (ours)
        cards_each(ledgers->nvml, add_card, ledgers);
    ledgers_read_facts(ledgers);
}
