/* Hooks on NVML's memory queries: a program that asks NVML instead of CUDA sees the same limit, and idle
 * memory of our pools is not reported as used.
 *
 * NVML's list of processes is not hooked: it reports what this process holds, idle memory included, as
 * nvidia-smi does from outside.
 */
#include "interpose/driver/nvml.h"
#include "interpose/hook/hooks.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "interpose/account/device.h"
#include "interpose/base/sums.h"
#include "interpose/library.h"
#include "interpose/pool/pools.h"

EXPORT nvml_return nvmlDeviceGetMemoryInfo(nvml_device card, struct nvml_memory *memory);
EXPORT nvml_return nvmlDeviceGetMemoryInfo_v2(nvml_device card, struct nvml_memory_v2 *memory);

static const struct {
    const char *name;
    void *hook;
} rows[] = {
    {"nvmlDeviceGetMemoryInfo", (void *)nvmlDeviceGetMemoryInfo},
    {"nvmlDeviceGetMemoryInfo_v2", (void *)nvmlDeviceGetMemoryInfo_v2},
};

void *hooks_find_nvml(const char *name)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (!strcmp(rows[i].name, name))
            return rows[i].hook;
    }
    return NULL;
}

void *hooks_for_nvml(const char *name, void *address)
{
    void *hook = nvml_open() ? hooks_find_nvml(name) : NULL;

    void *const real = hook == (void *)nvmlDeviceGetMemoryInfo ? (void *)nvml.memory : (void *)nvml.memory_v2;

    /* Only for the library that we have loaded ourselves. */
    return hook && address == real ? hook : address;
}

/* Returns true if the entry of CUDA_VISIBLE_DEVICES names the card. */
static bool names_card(const char *entry, size_t length, unsigned index, const char *uuid)
{
    char *end;

    if (length >= 4 && (!strncasecmp(entry, "GPU-", 4) || !strncasecmp(entry, "MIG-", 4)))
        return rules_names(entry, length, uuid);
    unsigned long number = strtoul(entry, &end, 10);
    return end == entry + length && number == index;
}

/* Returns the number that CUDA will give the card in this process. For use before CUDA has started. */
static int expected_ordinal(nvml_device card, const char *uuid)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    unsigned index;

    if (!nvml.index || nvml.index(card, &index) != NVML_OK)
        return RULES_NO_ORDINAL;
    if (!visible)
        return (int)index;
    for (int ordinal = 0; *visible; ordinal++) {
        size_t length = strcspn(visible, ",");

        if (length && names_card(visible, length, index, uuid))
            return ordinal;
        visible += length + (visible[length] == ',');
    }
    return RULES_NO_ORDINAL;
}

/* What a program is shown of a card. */
struct view {
    uint64_t limit;   /* RULES_UNLIMITED: none */
    uint64_t used;    /* by this process; only where there is a limit */
    uint64_t others;  /* by the other processes of its job */
    uint64_t reserve; /* for the driver's own growth; likewise */
    uint64_t room;    /* what could be allocated beside them and the reserve; only where there is a limit */
    uint64_t idle;    /* idle in our pools: usable at once, so reported as free */
};

/* Writes the limit of a process that has not looked at the card yet, what it uses, and what its job does. */
static void look_at_unknown(nvml_device card, const char *uuid, uint64_t total, struct view *view)
{
    const struct options *options = library_options();
    const int ordinal = expected_ordinal(card, uuid);
    struct measure_card self = {.uuid = uuid};
    char folder[OPTIONS_PATH_MAX];
    uint64_t max;

    if (options->group[0] && strcmp(options->ledger, "off") != 0 &&
        ledger_folder(options->ledger, folder, sizeof(folder)) == 0 &&
        ledger_look_at_job(folder, uuid, options->group, &max, &view->others))
        view->limit = sums_smaller(options_own_limit(options, ordinal, uuid, total), max);
    else
        view->limit = options_limit(options, ordinal, uuid, total);
    if (view->limit != RULES_UNLIMITED && measure_used(&self, &view->used))
        view->used = 0;
    view->reserve = size_resolve(&options->reserve, view->limit);
    const struct limit_state state = {
        .limit = view->limit, .reserve = view->reserve, .measured = view->others};
    view->room = limit_room(&state);
}

/* Returns false if the program gets the card's own figures. */
static bool view_of(nvml_device card, uint64_t card_total, struct view *view)
{
    char uuid[NVML_UUID_TEXT];

    if (library_mode() != LIBRARY_ON || nvml.uuid(card, uuid, sizeof(uuid)) != NVML_OK)
        return false;
    view->used = 0;
    view->others = 0;
    const int ordinal = device_ordinal_of(uuid);
    if (ordinal == RULES_NO_ORDINAL) {
        look_at_unknown(card, uuid, card_total, view);
        view->idle = 0; /* a card with a pool would be known */
    } else {            /* the program may have changed the limit */
        struct device *device = device_get(ordinal);

        view->limit = device ? atomic_load(&device->limit) : RULES_UNLIMITED;
        view->reserve = device ? device->account.state.reserve : 0; /* constant since account_init */
        view->room = 0;
        if (device) {
            const struct account_view seen = account_view(&device->account);

            view->room = seen.room;
            view->used = seen.used;
        }
        view->idle = pools_reclaimable(ordinal);
        if (device && device->ledger)
            view->others = ledger_used_by_others(device->ledger);
    }
    return true;
}

/* Writes the figures that the program gets; `free` as cuMemGetInfo has it. They were read one after the other
 * while others allocate, so none may go below zero or above the total. */
static void tell(const struct view *view, unsigned long long *total, unsigned long long *free_bytes,
                 unsigned long long *used)
{
    if (view->limit == RULES_UNLIMITED) {
        const uint64_t idle = sums_smaller(view->idle, *used);

        *used -= idle;
        *free_bytes += idle;
        return;
    }
    *total = view->limit;
    *used = sums_smaller(sums_add(sums_minus(view->used, view->idle), view->others), view->limit);
    *free_bytes = sums_smaller(sums_smaller(*free_bytes, view->room) + view->idle, view->limit - *used);
}

/* NVML may call its own queries by name and reach our hook again: that call gets the card's figures. */
static _Thread_local bool asking;

nvml_return nvmlDeviceGetMemoryInfo(nvml_device card, struct nvml_memory *memory)
{
    const bool nested = asking;
    struct view view;

    if (!nvml_open())
        return NVML_UNINITIALIZED;
    asking = true;
    nvml_return result = nvml.memory(card, memory);
    asking = nested;
    if (result == NVML_OK && !nested && view_of(card, memory->total, &view))
        tell(&view, &memory->total, &memory->free, &memory->used);
    return result;
}

nvml_return nvmlDeviceGetMemoryInfo_v2(nvml_device card, struct nvml_memory_v2 *memory)
{
    const bool nested = asking;
    struct view view;

    if (!nvml_open() || !nvml.memory_v2)
        return NVML_UNINITIALIZED;
    asking = true;
    nvml_return result = nvml.memory_v2(card, memory);
    asking = nested;
    if (result == NVML_OK && !nested && view_of(card, memory->total, &view)) {
        tell(&view, &memory->total, &memory->free, &memory->used);
        if (view.limit != RULES_UNLIMITED) /* the sum is the total here, as NVML has it */
            memory->reserved = sums_smaller(view.reserve, view.limit - memory->used - memory->free);
    }
    return result;
}
