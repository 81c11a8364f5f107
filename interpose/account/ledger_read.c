/* ledger_read: what tools read from a ledger, and what they change. See ledger.h. */
#include "interpose/account/ledger_file.h"

#include <errno.h>
#include <string.h>

#include "interpose/base/clock.h"
#include "interpose/base/sums.h"

#define SIZING_MS     3000                /* limit for another process to make its first context */
#define SIZING_ALL_MS 30000               /* the same for all that try one after the other */
#define SIZING_NAP_MS 20                  /* between two checks whether that process is alive */
#define CONTEXT_LEAST (UINT64_C(1) << 20) /* figures outside are ignored */
#define CONTEXT_MOST  (UINT64_C(8) << 30)

/* Returns what the processes of our job use. `living`: asks the kernel who has died. */
static uint64_t add_used(const struct ledger *ledger, bool living)
{
    uint64_t sum = 0;

    for (int i = 0; i < ledger_slots(ledger); i++) {
        if (ledger_is_ours(ledger, i) && (!living || ledger_alive(ledger, i)))
            sum = sums_add(sum, atomic_load(&ledger->file->slots[i].used));
    }
    return sum;
}

/* Raises the job's peak. Leases are raised before memory is used: if their sum is no new peak, nothing is. */
static void note_peak(const struct ledger *ledger)
{
    uint64_t before = atomic_load(&ledger->job->peak), leased = atomic_load(&ledger->job->sum);

    if (leased <= before || add_used(ledger, false) <= before)
        return;
    const uint64_t now = sums_smaller(add_used(ledger, true), leased);
    while (before < now && !atomic_compare_exchange_weak(&ledger->job->peak, &before, now))
        ;
}

void ledger_publish_used(struct ledger *ledger, uint64_t used)
{
    struct ledger_slot *slot = ledger_own_slot(ledger);

    if (!slot)
        return;
    const bool was_low = ledger_above_high(ledger) == 0;
    if (used > atomic_load_explicit(&slot->used, memory_order_relaxed) && ledger->job) {
        atomic_store(&slot->used, used); /* of two that grow at once one must see the other */
        note_peak(ledger);
    } else {
        atomic_store_explicit(&slot->used, used, memory_order_relaxed);
    }
    if (used > atomic_load_explicit(&slot->peak, memory_order_relaxed))
        atomic_store_explicit(&slot->peak, used, memory_order_relaxed);
    if (!ledger->job && __builtin_expect(was_low && ledger_above_high(ledger), 0))
        ledger_put(ledger, slot, ledger_above_high(ledger));
}

void ledger_publish_limit(struct ledger *ledger, uint64_t limit)
{
    struct ledger_slot *slot = ledger_own_slot(ledger);

    if (slot)
        atomic_store_explicit(&slot->limit, limit, memory_order_relaxed);
}

void ledger_publish(struct ledger *ledger, const struct ledger_figures *figures)
{
    struct ledger_slot *slot = ledger_own_slot(ledger);

    if (!slot)
        return;
    ledger_publish_used(ledger, figures->used);
    atomic_store_explicit(&slot->cached, figures->cached, memory_order_relaxed);
    atomic_store_explicit(&slot->lendable, figures->lendable, memory_order_relaxed);
    atomic_store_explicit(&slot->unsure, figures->unsure, memory_order_relaxed);
    ledger_publish_limit(ledger, figures->limit);
}

/* If the process that measures takes too long, one that waits does it, and the others wait for that one. */
uint64_t ledger_context_bytes(struct ledger *ledger)
{
    const uint64_t last = clock_ms() + SIZING_ALL_MS;
    const uint32_t own = (uint32_t)ledger->slot + 1;
    uint64_t until = 0;
    uint32_t seen = 0;

    for (;;) {
        /* Read first: the process that finds the size stores context_bytes, then clears this. */
        uint32_t other = atomic_load(&ledger->file->sizing);
        const uint64_t known = atomic_load(&ledger->file->context_bytes), now = clock_ms();

        if (known >= CONTEXT_LEAST && known <= CONTEXT_MOST)
            return known;
        if (other != seen)
            until = now + SIZING_MS;
        seen = other;
        if (other == 0 || other == own || other > LEDGER_SLOTS || !ledger_alive(ledger, (int)other - 1) ||
            now > until || now > last) {
            if (atomic_compare_exchange_strong(&ledger->file->sizing, &other, own))
                return 0;
            continue;
        }
        ledger_sleep(&ledger->file->sizing, other, SIZING_NAP_MS);
    }
}

void ledger_set_context_bytes(struct ledger *ledger, uint64_t bytes)
{
    uint32_t own = (uint32_t)ledger->slot + 1;

    if (bytes > atomic_load(&ledger->file->context_bytes))
        atomic_store(&ledger->file->context_bytes, bytes);
    if (atomic_compare_exchange_strong(&ledger->file->sizing, &own, 0))
        ledger_wake_all(&ledger->file->sizing);
}

void ledger_note_refusal(struct ledger *ledger, const struct ledger_refusal *refusal,
                         const uint64_t apart[RECORDING_APART_COUNT])
{
    struct ledger_slot *slot = ledger_own_slot(ledger);

    if (!slot)
        return;
    pthread_mutex_lock(&ledger->mutex);
    slot->refusals[atomic_load(&slot->refused) % LEDGER_REFUSALS] = *refusal;
    for (int i = 0; i < RECORDING_APART_COUNT; i++)
        atomic_store_explicit(&slot->apart[i], apart[i], memory_order_relaxed);
    atomic_fetch_add(&slot->refused, 1); /* the count is written second: this process may die in between */
    pthread_mutex_unlock(&ledger->mutex);
    if (ledger->job)
        atomic_fetch_add(&ledger->job->refused, 1);
}

bool ledger_read(const struct ledger *ledger, int number, struct ledger_entry *entry)
{
    if (number < 0 || number >= LEDGER_SLOTS)
        return false;
    const struct ledger_slot *slot = &ledger->file->slots[number];
    if (!ledger_is_member(ledger, number) || !ledger_alive(ledger, number))
        return false;
    memset(entry, 0, sizeof(*entry));
    entry->pid = slot->pid;
    entry->uid = slot->uid;
    entry->used = atomic_load(&slot->used);
    entry->cached = atomic_load(&slot->cached);
    entry->peak = atomic_load(&slot->peak);
    entry->limit = atomic_load(&slot->limit);
    entry->waiting = atomic_load(&slot->ticket) || atomic_load(&slot->card_ticket);
    entry->asked = atomic_load(&slot->asked);
    entry->waited_ms = atomic_load(&slot->waited_ms);
    entry->refused = atomic_load(&slot->refused);
    entry->lent = atomic_load(&slot->lent);
    entry->borrowed = atomic_load(&slot->borrowed);
    entry->started = slot->started;
    ledger_copy_text(entry->command, slot->command, sizeof(entry->command));
    const struct ledger_job *job = ledger_job_of(ledger, slot);
    entry->job_max = LEDGER_UNLIMITED;
    entry->min = atomic_load(job ? &job->min : &slot->min);
    entry->high = atomic_load(job ? &job->high : &slot->high);
    if (job) {
        ledger_copy_text(entry->job, job->name, sizeof(entry->job));
        entry->job_max = atomic_load(&job->max);
        entry->job_used = atomic_load(&job->sum);
    }
    return true;
}

void ledger_read_apart(const struct ledger *ledger, int number, uint64_t apart[RECORDING_APART_COUNT])
{
    for (int i = 0; i < RECORDING_APART_COUNT; i++)
        apart[i] =
            number >= 0 && number < LEDGER_SLOTS ? atomic_load(&ledger->file->slots[number].apart[i]) : 0;
}

int ledger_read_refusals(const struct ledger *ledger, int number,
                         struct ledger_refusal refusals[LEDGER_REFUSALS])
{
    if (number < 0 || number >= LEDGER_SLOTS)
        return 0;
    const struct ledger_slot *slot = &ledger->file->slots[number];
    const uint64_t refused = atomic_load(&slot->refused);
    int count = 0;

    for (uint64_t i = refused; i > 0 && count < LEDGER_REFUSALS; i--)
        refusals[count++] = slot->refusals[(i - 1) % LEDGER_REFUSALS];
    return count;
}

bool ledger_read_job(const struct ledger *ledger, const char *name, struct ledger_totals *totals)
{
    for (int i = 0; *name && i < LEDGER_JOBS; i++) {
        const struct ledger_job *job = &ledger->file->jobs[i];

        if (strncmp(job->name, name, LEDGER_NAME) != 0)
            continue;
        *totals = (struct ledger_totals){.max = atomic_load(&job->max),
                                         .peak = atomic_load(&job->peak),
                                         .refused = atomic_load(&job->refused),
                                         .lent = atomic_load(&job->lent),
                                         .borrowed = atomic_load(&job->borrowed),
                                         .waited_ms = atomic_load(&job->waited_ms)};
        return true;
    }
    return false;
}

bool ledger_look_at_job(const char *folder, const char *uuid, const char *job, uint64_t *max, uint64_t *used)
{
    char why[LEDGER_WHY];
    struct ledger *ledger;
    struct ledger_entry entry;

    if (ledger_open_existing(&ledger, folder, uuid, why))
        return false;
    const struct ledger_job *record = ledger_find_job(ledger, job, NULL, LEDGER_LOOK);
    *max = record ? atomic_load(&record->max) : LEDGER_UNLIMITED;
    /* The first process sets the max if only a min or a high was set before it came. */
    const bool found = record && !(record->preset && *max == LEDGER_UNLIMITED);
    *used = 0;
    for (int i = 0; found && i < LEDGER_SLOTS; i++) {
        if (ledger_read(ledger, i, &entry) && !strcmp(entry.job, job))
            *used = sums_add(*used, entry.used);
    }
    ledger_close(ledger);
    return found;
}

/* Takes the lock, as a visitor if this process has no slot. */
static int lock_for_a_tool(struct ledger *ledger)
{
    const int rc = ledger->slot < 0 ? ledger_claim(ledger, LEDGER_VISITOR) : 0;

    return rc ? rc : ledger_lock(ledger);
}

void ledger_forget_job(struct ledger *ledger, const char *name)
{
    if (!ledger_is_job_name(name) || lock_for_a_tool(ledger))
        return;
    ledger_recount(ledger);
    struct ledger_job *job = ledger_find_job(ledger, name, NULL, LEDGER_LOOK);
    if (job && !job->preset && !ledger_job_is_used(ledger, job))
        job->name[0] = '\0';
    ledger_unlock(ledger);
}

int ledger_set_limit(struct ledger *ledger, const char *name, enum ledger_limit limit, uint64_t bytes)
{
    const struct ledger_limits limits = {.max = limit == LEDGER_MAX ? bytes : LEDGER_UNLIMITED,
                                         .min = limit == LEDGER_MIN ? bytes : 0,
                                         .high = limit == LEDGER_HIGH ? bytes : 0};
    const int rc = ledger_is_job_name(name) ? lock_for_a_tool(ledger) : -EINVAL;

    if (rc)
        return rc;
    struct ledger_job *job = ledger_find_job(ledger, name, &limits, LEDGER_SET);
    if (job) {
        const bool used = ledger_job_is_used(ledger, job);
        atomic_store(limit == LEDGER_MAX ? &job->max : limit == LEDGER_MIN ? &job->min : &job->high, bytes);
        job->preset = !used && (atomic_load(&job->max) != LEDGER_UNLIMITED || atomic_load(&job->min) ||
                                atomic_load(&job->high));
        if (!used && !job->preset)
            job->name[0] = '\0';
        if (limit == LEDGER_MIN)
            ledger_recount(ledger);
    }
    ledger_unlock(ledger);
    if (!job)
        return -ENOSPC;
    ledger_tell_freed(ledger);
    const uint64_t above = limit == LEDGER_HIGH && bytes ? sums_minus(atomic_load(&job->sum), bytes) : 0;
    for (int i = 0; i < ledger_slots(ledger); i++) {
        if (ledger_job_of(ledger, &ledger->file->slots[i]) == job)
            ledger_poke(ledger, i, above, 0);
    }
    return 0;
}
