/* device: see device.h. */
#include "interpose/account/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/account/drivers_pools.h"
#include "interpose/base/lock.h"
#include "interpose/base/sums.h"
#include "interpose/see/events.h"
#include "interpose/settings/log.h"

/* A card without a limit is LISTED once it is in its ledger, UNLISTED if there is none. */
enum { UNSEEN, LIMITED, UNLIMITED, LISTED, UNLISTED };

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct device devices[DEVICE_MAX]; /* filled under table_lock, read once `seen` is set */
static atomic_int seen[DEVICE_MAX];
static atomic_int listed_end; /* no card with this number or above is LISTED */
static const struct options *rules;

void device_setup(const struct options *options)
{
    rules = options;
}

void device_format_uuid(const CUuuid *uuid, char text[RULES_UUID_TEXT])
{
    const unsigned char *b = (const unsigned char *)uuid->bytes;

    snprintf(text, RULES_UUID_TEXT,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
             b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* Measures for the account: this process on this card. */
static int measure_device(void *context, uint64_t *bytes)
{
    struct device *device = context;
    int rc = measure_used(&device->card, bytes);

    if (rc == 0)
        events_note_bytes(RECORDING_USED, device->ordinal, *bytes, 0);
    if (rc && atomic_load(&device->card.present) && atomic_load(&device->context_bytes) &&
        !measure_is_over()) {
        char text[SIZE_TEXT];

        LOG_ERROR_ONCE("NVML does not report this process's memory (%s); the CUDA context counts as %s",
                       rc == -ESRCH ? "the process is not in its list" : "it is missing or has no figure",
                       size_format(ACCOUNT_CONTEXT_GUESS, text));
    }
    return rc;
}

/* Estimates for the account: what all processes use on the card, which is not less than ours. Quick, and
 * needs no NVML, whose start takes 15 ms. Works only if the calling thread has a context on the card. */
static int estimate_device(void *context, uint64_t *bytes)
{
    struct device *device = context;
    size_t free_bytes, total;
    CUdevice ordinal;

    if (driver.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS || ordinal != device->ordinal ||
        driver.cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS || free_bytes > total)
        return -ENODATA;
    *bytes = total - free_bytes;
    return 0;
}

/* Writes what is free on the card, by NVML if the calling thread has no context there. */
static int free_on_device(void *context, uint64_t *bytes)
{
    struct device *device = context;
    uint64_t used;

    if (estimate_device(context, &used))
        return measure_free(&device->card, bytes);
    *bytes = sums_minus(device->total, used);
    return 0;
}

/* Returns what the driver holds for this process in its own pools. */
static uint64_t held_by_driver(void *context)
{
    const struct device *device = context;

    return drivers_pools_held(device->ordinal);
}

static void look_again_at_pools(void *context)
{
    const struct device *device = context;

    drivers_pools_look_again(device->ordinal);
}

/* Returns true if the driver has a card of that number: else it refuses every request for it by itself. */
static bool exists(CUdevice ordinal)
{
    int value;

    return ordinal >= 0 && driver.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                                       ordinal) == CUDA_SUCCESS;
}

static uint64_t limit_of(const struct device *device)
{
    const uint64_t own = atomic_load(&device->own);

    return device->ledger ? sums_smaller(own, ledger_max(device->ledger)) : own;
}

bool device_job_binds(const struct device *device)
{
    if (!device_shares(device))
        return false;
    const uint64_t max = ledger_max(device->ledger), all = ledger_used(device->ledger);
    const uint64_t others = sums_minus(all, ledger_lease(device->ledger));

    return others >= max || atomic_load(&device->own) >= max - others;
}

enum recording_limit device_limit_kind(const struct device *device)
{
    const uint64_t own = atomic_load(&device->own), limit = atomic_load(&device->limit);

    if (device_rule(device, &rules->ceiling) <= limit)
        return RECORDING_LIMIT_ADMIN;
    return device_shares(device) && own >= ledger_max(device->ledger) ? RECORDING_LIMIT_JOB
                                                                      : RECORDING_LIMIT_PROCESS;
}

/* Sets the limit of this process alone, and publishes it: until there is a context nothing else does. */
static void set_own(struct device *device, uint64_t bytes)
{
    atomic_store(&device->own, bytes);
    if (device->ledger)
        ledger_publish_limit(device->ledger, bytes);
}

static void note_limit(const struct device *device)
{
    events_note_bytes(RECORDING_LIMIT, device->ordinal, atomic_load(&device->limit),
                      device_limit_kind(device));
}

/* Returns a min or high in bytes; 0: none. */
static uint64_t bound_for(const struct rules *bounds, const struct device *device)
{
    const uint64_t bytes = device_rule(device, bounds);

    return bytes == RULES_UNLIMITED ? 0 : bytes;
}

/* Opens and joins the card's ledger and the job (NULL: none). Returns 0, or -errno and says `why`. */
static int enter_ledger(struct device *device, const char *job, const struct ledger_limits *limits,
                        char why[LEDGER_WHY])
{
    char folder[OPTIONS_PATH_MAX];
    int rc = strcmp(rules->ledger, "off") ? ledger_folder(rules->ledger, folder, sizeof(folder)) : -ENODATA;

    device->ledger = NULL;
    if (rc) {
        snprintf(why, LEDGER_WHY, "%s", rc == -ENODATA ? "ledger=off" : "its path is too long");
        return rc;
    }
    rc = ledger_open(&device->ledger, folder, device->uuid, why);
    if (rc)
        return rc;
    rc = ledger_join_within(device->ledger, job, limits);
    if (rc) {
        snprintf(why, LEDGER_WHY, "%s",
                 rc == -ENOSPC ? "it has no place for more jobs or processes" : strerror(-rc));
        ledger_close(device->ledger);
        device->ledger = NULL;
    } else if (*ledger_dropped(device->ledger)) {
        log_error(
            "device %d: its ledger is full: the limits that `gpucap set` has set for the job '%s', which "
            "has no process yet, are dropped",
            device->ordinal, ledger_dropped(device->ledger));
    }
    return rc;
}

/* Joins the card's ledger, and the job if there is one. Returns -errno if that job cannot be joined. */
static int join_ledger(struct device *device)
{
    const char *job = rules->group[0] ? rules->group : NULL;
    const struct ledger_limits limits = {
        .max = options_job_limit(rules, device->ordinal, device->uuid, device->total),
        .min = bound_for(&rules->min, device),
        .high = bound_for(&rules->high, device)};
    char why[LEDGER_WHY];

    if (enter_ledger(device, job, &limits, why) == 0 || !job)
        return 0;
    log_error("no ledger for the job '%s' (%s): max holds for each process alone", job, why);
    return -ENODATA;
}

/* Fills in a card from the driver. Returns UNSEEN if the driver does not answer. */
static int inspect(struct device *device, CUdevice ordinal)
{
    CUuuid uuid;
    size_t total;
    int processors = 0, threads = 0;

    if (driver.cuDeviceGetUuid_v2(&uuid, ordinal) != CUDA_SUCCESS ||
        driver.cuDeviceTotalMem_v2(&total, ordinal) != CUDA_SUCCESS)
        return UNSEEN;
    device->ordinal = ordinal;
    device->total = total;
    device_format_uuid(&uuid, device->uuid);
    uint64_t bytes = options_own_limit(rules, ordinal, device->uuid, total);
    if (bytes == RULES_UNLIMITED && (bound_for(&rules->min, device) || bound_for(&rules->high, device)))
        bytes = total; /* what has a min or a high is counted */
    if (bytes == RULES_UNLIMITED) {
        atomic_store(&device->own, bytes);
        atomic_store(&device->limit, bytes);
        return UNLIMITED;
    }
    if (join_ledger(device)) /* then the job's max applies to each process */
        bytes = options_limit(rules, ordinal, device->uuid, total);
    set_own(device, bytes);
    atomic_store(&device->limit, limit_of(device));
    device->card.uuid = device->uuid;
    uint64_t reserve = size_resolve(&rules->reserve, device->limit);
    account_init(&device->account, device->limit, reserve, measure_device, device);
    device->account.estimate = estimate_device;
    device->account.free_on_card = free_on_device;
    device->account.held = held_by_driver;
    device->account.look_again = look_again_at_pools;
    device->account.present = &device->card.present;
    device->account.ledger = device->ledger;
    driver.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal);
    driver.cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, ordinal);
    device->threads = (uint64_t)processors * (uint64_t)threads;
    char limit[SIZE_TEXT], whole[SIZE_TEXT];
    note_limit(device);
    log_info("device %d (%s): limit %s of %s", ordinal, device->uuid, size_format(device->limit, limit),
             size_format(total, whole));
    return LIMITED;
}

/* Joins the ledger of a card that has no limit. The caller holds table_lock. */
static void enter_unlimited(struct device *device)
{
    const struct ledger_limits none = {.max = LEDGER_UNLIMITED};
    char why[LEDGER_WHY];

    device->card.uuid = device->uuid;
    const bool is_in = enter_ledger(device, NULL, &none, why) == 0;
    atomic_store(&seen[device->ordinal], is_in ? LISTED : UNLISTED);
    if (is_in && device->ordinal >= atomic_load(&listed_end))
        atomic_store(&listed_end, device->ordinal + 1);
}

__attribute__((noinline)) static int look_at(CUdevice ordinal)
{
    lock_mutex_take(&table_lock);
    int state = atomic_load_explicit(&seen[ordinal], memory_order_relaxed);
    if (state == UNSEEN) {
        state = inspect(&devices[ordinal], ordinal);
        atomic_store_explicit(&seen[ordinal], state, memory_order_release);
    }
    lock_mutex_release(&table_lock);
    return state;
}

/* Returns the state of a card; asks the driver the first time. */
static int state_of(CUdevice ordinal)
{
    if (ordinal < 0 || ordinal >= DEVICE_MAX)
        return UNSEEN;
    const int state = atomic_load_explicit(&seen[ordinal], memory_order_acquire);
    return __builtin_expect(state != UNSEEN, 1) ? state : look_at(ordinal);
}

int device_find(CUdevice ordinal, struct device **device)
{
    int state = state_of(ordinal);

    *device = NULL;
    if (state == UNSEEN && options_any_limit(rules)) {
        if (!exists(ordinal))
            return -ENXIO;
        state = state_of(ordinal); /* again: a failure may pass */
        if (state == UNSEEN)
            return -ENODEV;
    }
    if (state == LIMITED)
        *device = &devices[ordinal];
    return 0;
}

bool device_only(CUdevice *ordinal)
{
    static atomic_int cards; /* 0: not asked yet */
    int count = atomic_load_explicit(&cards, memory_order_relaxed);

    if (__builtin_expect(count == 0, 0)) {
        if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS)
            return false;
        atomic_store_explicit(&cards, count, memory_order_relaxed);
    }
    *ordinal = 0;
    return count == 1;
}

int device_find_current(struct device **device)
{
    CUdevice ordinal;
    const int rc = driver_current_card(&ordinal);

    *device = NULL;
    if (rc == 0)
        return device_find(ordinal, device);
    return rc == -ENODEV && !options_any_limit(rules) ? 0 : rc;
}

struct device *device_get(CUdevice ordinal)
{
    struct device *device;

    return device_find(ordinal, &device) == 0 ? device : NULL;
}

struct device *device_list(CUdevice ordinal)
{
    if (state_of(ordinal) == UNLIMITED) {
        lock_mutex_take(&table_lock);
        if (atomic_load(&seen[ordinal]) == UNLIMITED)
            enter_unlimited(&devices[ordinal]);
        lock_mutex_release(&table_lock);
    }
    return device_listed(ordinal);
}

static bool has_ledger(int state)
{
    return state == LIMITED || state == LISTED;
}

struct device *device_listed(CUdevice ordinal)
{
    return has_ledger(state_of(ordinal)) ? &devices[ordinal] : NULL;
}

bool device_is_unlimited(const struct device *device)
{
    return atomic_load(&seen[device->ordinal]) >= UNLIMITED;
}

int device_free_bytes(struct device *device, uint64_t *bytes)
{
    return free_on_device(device, bytes);
}

/* ---- beside the guarantees of other jobs, without a limit ---- */

struct device *device_guarded(CUdevice ordinal)
{
    if (ordinal < 0 || ordinal >= atomic_load_explicit(&listed_end, memory_order_relaxed) ||
        atomic_load(&seen[ordinal]) != LISTED || !ledger_is_guarded(devices[ordinal].ledger))
        return NULL;
    return &devices[ordinal];
}

bool device_any_guarded(void)
{
    const int end = atomic_load_explicit(&listed_end, memory_order_relaxed);

    for (int i = 0; i < end; i++) {
        if (device_guarded(i))
            return true;
    }
    return false;
}

struct device *device_guarded_current(void)
{
    CUdevice ordinal;

    if (__builtin_expect(atomic_load_explicit(&listed_end, memory_order_relaxed) == 0, 0) ||
        driver_current_card(&ordinal))
        return NULL;
    return device_guarded(ordinal);
}

bool device_admit(struct device *device, uint64_t bytes)
{
    return ledger_admit_beside(device->ledger, bytes, free_on_device, device) != -ENOMEM;
}

void device_end_admission(struct device *device, uint64_t bytes)
{
    ledger_end_claim(device->ledger, bytes);
}

/* ---- rules that name cards ---- */

struct card {
    char uuid[RULES_UUID_TEXT];
    size_t total;
};

static int list_cards(struct card cards[DEVICE_MAX])
{
    int count = 0;
    CUuuid uuid;

    if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return -ENODEV;
    count = count < DEVICE_MAX ? count : DEVICE_MAX;
    for (int i = 0; i < count; i++) {
        if (driver.cuDeviceGetUuid_v2(&uuid, i) != CUDA_SUCCESS ||
            driver.cuDeviceTotalMem_v2(&cards[i].total, i) != CUDA_SUCCESS)
            return -ENODEV;
        device_format_uuid(&uuid, cards[i].uuid);
    }
    return count;
}

static bool names_a_card(const struct rules_rule *rule, const struct card *cards, int count)
{
    bool found = rule->scope == RULES_EVERY || (rule->scope == RULES_ORDINAL && rule->ordinal < count);

    for (int i = 0; rule->scope == RULES_UUID && i < count; i++)
        found = found || rules_names(rule->uuid, strlen(rule->uuid), cards[i].uuid);
    return found;
}

/* Returns false if a rule names a card that does not exist. An unknown UUID may be a card that
 * CUDA_VISIBLE_DEVICES hides. */
static bool check_rules(const struct rules *limits, const char *name, const struct card *cards, int count)
{
    const struct rules_rule *missing = NULL;

    for (int i = 0; i < limits->count; i++) {
        if (!names_a_card(&limits->rules[i], cards, count) &&
            (!missing || limits->rules[i].scope == RULES_ORDINAL))
            missing = &limits->rules[i];
    }
    if (!missing || (missing->scope == RULES_UUID && getenv("CUDA_VISIBLE_DEVICES")))
        return true;
    if (missing->scope == RULES_ORDINAL)
        log_error("%s names device %d, which does not exist; CUDA is refused", name, missing->ordinal);
    else
        log_error("%s names the card %s, which this machine does not have; CUDA is refused", name,
                  missing->uuid);
    return false;
}

/* Says so if the beginning of a UUID names several cards: it was probably meant for one. */
static void say_ambiguous(const struct rules *limits, const char *name, const struct card *cards, int count)
{
    for (int i = 0; i < limits->count; i++) {
        const struct rules_rule *rule = &limits->rules[i];
        char named[DEVICE_MAX * sizeof(", 00")] = "";
        size_t length = 0, matches = 0;

        for (int j = 0; rule->scope == RULES_UUID && j < count; j++) {
            if (rules_best(limits, j, cards[j].uuid) == rule)
                length +=
                    (size_t)snprintf(named + length, sizeof(named) - length, matches++ ? ", %d" : "%d", j);
        }
        if (matches > 1)
            log_error("%s: the UUIDs of %zu cards begin with %s; it applies to each of them (devices %s)",
                      name, matches, rule->uuid, named);
    }
}

bool device_check_rules(void)
{
    struct card cards[DEVICE_MAX];

    if (!rules_name_cards(&rules->max) && !rules_name_cards(&rules->each) && !rules_name_cards(&rules->min) &&
        !rules_name_cards(&rules->high) && !rules_name_cards(&rules->ceiling))
        return true;
    const int count = list_cards(cards);
    if (count < 0)
        return true; /* requests are then refused one by one */
    if (rules->source[OPTIONS_MAX] != OPTIONS_ADMIN)
        say_ambiguous(&rules->max, "max", cards, count);
    say_ambiguous(&rules->ceiling, "max of " OPTIONS_ADMIN_FILE, cards, count);
    say_ambiguous(&rules->each, "each", cards, count);
    say_ambiguous(&rules->min, "min", cards, count);
    say_ambiguous(&rules->high, "high", cards, count);
    if ((rules->source[OPTIONS_MAX] == OPTIONS_ADMIN || check_rules(&rules->max, "max", cards, count)) &&
        check_rules(&rules->each, "each", cards, count) && check_rules(&rules->min, "min", cards, count) &&
        check_rules(&rules->high, "high", cards, count))
        return true;
    for (int i = 0; i < count; i++) {
        char total[SIZE_TEXT];

        log_error("  device %d: %s, %s (numbers as the program sees them: CUDA_VISIBLE_DEVICES applies)", i,
                  cards[i].uuid, size_format(cards[i].total, total));
    }
    return false;
}

bool device_set_limit(struct device *device, uint64_t bytes)
{
    const uint64_t ceiling = device_rule(device, &rules->ceiling);

    if (bytes > ceiling || bytes > device->total)
        return false;
    set_own(device, bytes);
    device_follow_job(device);
    return true;
}

void device_follow_job(struct device *device)
{
    const uint64_t limit = limit_of(device);

    if (atomic_exchange(&device->limit, limit) != limit) {
        account_set_limit(&device->account, limit);
        note_limit(device);
    }
}

static void leave_ledger(struct device *device)
{
    if (device->ledger)
        ledger_after_fork(device->ledger);
}

void device_after_fork(void)
{
    device_each_listed(leave_ledger);
}

void device_each_listed(void (*visit)(struct device *device))
{
    for (int i = 0; i < DEVICE_MAX; i++) {
        if (has_ledger(atomic_load_explicit(&seen[i], memory_order_acquire)))
            visit(&devices[i]);
    }
}

void device_each(void (*visit)(struct device *device))
{
    for (int i = 0; i < DEVICE_MAX; i++) {
        if (atomic_load_explicit(&seen[i], memory_order_acquire) == LIMITED)
            visit(&devices[i]);
    }
}

int device_ordinal_of(const char *uuid)
{
    for (int i = 0; i < DEVICE_MAX; i++) {
        if (atomic_load_explicit(&seen[i], memory_order_acquire) != UNSEEN &&
            rules_names(uuid, strlen(uuid), devices[i].uuid))
            return i;
    }
    return RULES_NO_ORDINAL;
}
