/* ps_json: `gpucap ps --json`: sizes in bytes, null for a limit that there is not, and no member for what is
 * not known. Built by cJSON. */
#include "tools/gpucap/cli.h"
#include "tools/gpucap/parts.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static void add_bytes(cJSON *object, const char *name, uint64_t bytes)
{
    if (bytes == LEDGER_UNLIMITED)
        cJSON_AddNullToObject(object, name);
    else
        cJSON_AddNumberToObject(object, name, (double)bytes);
}

static cJSON *process_object(const struct ledgers_process *process)
{
    const struct ledger_entry *entry = &process->entry;
    cJSON *object = cJSON_CreateObject();

    cJSON_AddNumberToObject(object, "pid", entry->pid);
    cJSON_AddStringToObject(object, "user", process->user);
    if (*entry->job) {
        cJSON_AddStringToObject(object, "job", entry->job);
        add_bytes(object, "job_limit", entry->job_max);
        add_bytes(object, "job_lease", entry->job_used);
    }
    if (entry->min)
        add_bytes(object, "min", entry->min);
    if (entry->high)
        add_bytes(object, "high", entry->high);
    add_bytes(object, "used", entry->used);
    add_bytes(object, "idle", entry->cached);
    add_bytes(object, "peak", entry->peak);
    add_bytes(object, "limit", ledgers_limit(process));
    cJSON_AddStringToObject(object, "state", entry->waiting ? "waiting" : "running");
    if (entry->waiting)
        add_bytes(object, "waiting_for", entry->asked);
    cJSON_AddNumberToObject(object, "waited_ms", (double)entry->waited_ms);
    cJSON_AddNumberToObject(object, "refused", (double)entry->refused);
    add_bytes(object, "lent", entry->lent);
    add_bytes(object, "borrowed", entry->borrowed);
    cJSON_AddStringToObject(object, "command", process->command);
    return object;
}

static void add_unmanaged(cJSON *card_object, const struct ledgers_card *card)
{
    cJSON *list = cJSON_AddArrayToObject(card_object, "unmanaged");

    for (int i = 0; i < card->unmanaged_count; i++) {
        const struct ledgers_unmanaged *process = &card->unmanaged[i];
        cJSON *object = cJSON_CreateObject();

        cJSON_AddNumberToObject(object, "pid", process->pid);
        cJSON_AddStringToObject(object, "user", process->user);
        add_bytes(object, "used", process->used);
        cJSON_AddStringToObject(object, "command", process->command);
        cJSON_AddItemToArray(list, object);
    }
}

static cJSON *card_object(const struct ledgers_card *card)
{
    cJSON *object = cJSON_CreateObject();
    uint64_t other;

    if (card->facts.number >= 0)
        cJSON_AddNumberToObject(object, "gpu", card->facts.number);
    cJSON_AddStringToObject(object, "uuid", card->uuid);
    if (card->facts.known) {
        cJSON_AddStringToObject(object, "name", card->facts.name);
        add_bytes(object, "total", card->facts.total);
        add_bytes(object, "free", card->facts.free);
    }
    if (ledgers_other(card, &other))
        add_bytes(object, "other", other);
    if (card->unmanaged_count)
        add_unmanaged(object, card);
    if (!card->ledger && !card->bare) {
        cJSON_AddStringToObject(object, "error", card->why);
        return object;
    }
    add_bytes(object, "managed", card->managed);
    add_bytes(object, "idle", card->idle);
    cJSON *processes = cJSON_AddArrayToObject(object, "processes");
    for (int i = 0; i < card->count; i++)
        cJSON_AddItemToArray(processes, process_object(&card->processes[i]));
    return object;
}

int part_show(struct ledgers *ledgers)
{
    char host[HOST_NAME_MAX + 1] = "";
    cJSON *root = cJSON_CreateObject();

    gethostname(host, sizeof(host) - 1);
    cJSON_AddStringToObject(root, "hostname", host);
    cJSON_AddStringToObject(root, "ledger", ledgers->folder);
    cJSON *gpus = cJSON_AddArrayToObject(root, "gpus");
    for (int i = 0; i < ledgers->count; i++)
        cJSON_AddItemToArray(gpus, card_object(&ledgers->cards[i]));
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    if (!text)
        return cli_fail("ps: no memory for the JSON");
    puts(text);
    cJSON_free(text);
    return 0;
}
