/* ledger_card: what concerns the whole card: guarantees of jobs, and the queue of processes that wait
 * for a full card. See ledger.h. */
#include "interpose/account/ledger_file.h"

#include <errno.h>
#include <stddef.h>

#include "interpose/base/clock.h"
#include "interpose/base/sums.h"

/* ---- guarantees ---- */

#define ADMISSIONS 64 /* attempts to read the card's free memory while no other process takes any */

/* Returns a job's min, which counts up to its max. */
static uint64_t min_of(const struct ledger_job *job)
{
    return sums_smaller(atomic_load(&job->min), atomic_load(&job->max));
}

/* What the processes of each job use together, with claims. */
struct uses {
    uint64_t of[LEDGER_JOBS];
    bool has_process[LEDGER_JOBS];
};

static void add_uses(const struct ledger *ledger, struct uses *uses)
{
    *uses = (struct uses){0};
    for (int i = 0; i < ledger_slots(ledger); i++) {
        const struct ledger_slot *slot = &ledger->file->slots[i];
        const struct ledger_job *job = ledger_job_of(ledger, slot);

        if (!ledger_is_member(ledger, i) || !job)
            continue;
        const ptrdiff_t number = job - ledger->file->jobs;
        uses->has_process[number] = true;
        uses->of[number] =
            sums_add(uses->of[number], sums_add(atomic_load(&slot->used), atomic_load(&slot->claim)));
    }
}

bool ledger_has_min(const struct ledger *ledger)
{
    const struct ledger_slot *slot = ledger_own_slot(ledger);

    return slot && (ledger->job ? min_of(ledger->job) : atomic_load(&slot->min)) != 0;
}

bool ledger_is_guarded(const struct ledger *ledger)
{
    const uint32_t guards = atomic_load_explicit(&ledger->file->guards, memory_order_relaxed);

    if (__builtin_expect(guards == 0, 1) || !ledger_own_slot(ledger))
        return false;
    return guards > ledger_has_min(ledger);
}

uint64_t ledger_kept(const struct ledger *ledger)
{
    struct uses uses;
    uint64_t kept = 0;

    if (!ledger_is_guarded(ledger))
        return 0;
    add_uses(ledger, &uses);
    for (int i = 0; i < LEDGER_JOBS; i++) {
        const struct ledger_job *job = &ledger->file->jobs[i];

        if (job != ledger->job && uses.has_process[i])
            kept = sums_add(kept, sums_minus(min_of(job), uses.of[i]));
    }
    for (int i = 0; i < ledger_slots(ledger); i++) {
        const struct ledger_slot *slot = &ledger->file->slots[i];

        if (ledger_is_other(ledger, i) && !ledger_job_of(ledger, slot))
            kept = sums_add(kept, sums_minus(atomic_load(&slot->min),
                                             sums_add(atomic_load(&slot->used), atomic_load(&slot->claim))));
    }
    return kept;
}

uint64_t ledger_above_min(const struct ledger *ledger, int number)
{
    const struct ledger_slot *slot = &ledger->file->slots[number];
    const struct ledger_job *job = ledger_job_of(ledger, slot);
    const uint64_t min = job ? min_of(job) : atomic_load(&slot->min);
    struct uses uses;

    if (min == 0)
        return LEDGER_UNLIMITED;
    if (!job)
        return sums_minus(atomic_load(&slot->used), min);
    add_uses(ledger, &uses);
    return sums_minus(uses.of[job - ledger->file->jobs], min);
}

uint32_t ledger_admitted(const struct ledger *ledger)
{
    return atomic_load(&ledger->file->admitted);
}

static bool leaves_guarantees(const struct ledger *ledger, uint64_t need, uint64_t free_bytes)
{
    uint64_t claimed = 0;

    for (int i = 0; i < ledger_slots(ledger); i++) {
        if (ledger_is_member(ledger, i))
            claimed = sums_add(claimed, atomic_load(&ledger->file->slots[i].claim));
    }
    return sums_add(sums_add(need, claimed), ledger_kept(ledger)) <= free_bytes;
}

int ledger_admit(struct ledger *ledger, uint64_t need, uint64_t free_bytes, uint32_t seen)
{
    struct ledger_slot *slot = ledger_own_slot(ledger);
    int rc = slot ? ledger_lock(ledger) : 0;

    if (rc || !slot)
        return rc;
    if (atomic_load(&ledger->file->admitted) != seen) {
        rc = -EAGAIN; /* the claim that ended may be missing in free_bytes */
    } else if (!leaves_guarantees(ledger, need, free_bytes)) {
        ledger_recount(ledger); /* a process may have died */
        rc = leaves_guarantees(ledger, need, free_bytes) ? 0 : -ENOMEM;
    }
    if (rc == 0)
        atomic_fetch_add(&slot->claim, need);
    ledger_unlock(ledger);
    return rc;
}

int ledger_admit_beside(struct ledger *ledger, uint64_t need,
                        int (*free_on_card)(void *context, uint64_t *bytes), void *context)
{
    uint64_t free_bytes;
    int rc = -EAGAIN;

    for (int i = 0; i < ADMISSIONS && rc == -EAGAIN; i++) {
        const uint32_t seen = ledger_admitted(ledger);

        if (free_on_card(context, &free_bytes))
            return -ENODATA;
        rc = ledger_admit(ledger, need, free_bytes, seen);
    }
    return rc ? -ENOMEM : 0;
}

void ledger_end_claim(struct ledger *ledger, uint64_t need)
{
    struct ledger_slot *slot = ledger_own_slot(ledger);
    uint64_t before = slot ? atomic_load_explicit(&slot->claim, memory_order_relaxed) : 0;

    if (__builtin_expect(before == 0, 1))
        return;
    while (!atomic_compare_exchange_weak(&slot->claim, &before, sums_minus(before, need)))
        ;
    atomic_fetch_add(&ledger->file->admitted, 1);
}

/* ---- waiting for a full card ---- */

#define CARD_POLL_MS      100 /* programs outside the ledger wake no process */
#define CARD_REMIND_POLLS 2   /* polls between reminders to give idle memory back */

bool ledger_is_card_waited_for(const struct ledger *ledger)
{
    return atomic_load_explicit(&ledger->file->card_waiting, memory_order_relaxed) != 0;
}

uint64_t ledger_managed(const struct ledger *ledger)
{
    uint64_t sum = 0;

    for (int i = 0; i < ledger_slots(ledger); i++) {
        if (ledger_is_member(ledger, i))
            sum = sums_add(sum, atomic_load(&ledger->file->slots[i].used));
    }
    return sum;
}

/* Looks at the queue under the lock; enters it first if `ticket` is 0. */
static int take_turn(struct ledger *ledger, uint64_t bytes, struct ledger_turn *turn,
                     struct ledger_queue *queue)
{
    struct ledger_slot *slot = ledger_own_slot(ledger);
    const int rc = ledger_lock(ledger);

    if (rc)
        return rc;
    if (!turn->ticket)
        turn->ticket = atomic_fetch_add(&ledger->file->card_tickets, 1) + 1;
    atomic_store(&slot->card_waits_for, bytes);
    atomic_store(&slot->asked, bytes);
    atomic_store(&slot->card_ticket, turn->ticket);
    *queue = ledger_look_at_queue(ledger, turn, true);
    ledger_recount_in_queue(ledger, turn, true, queue);
    ledger_unlock(ledger);
    return 0;
}

static void leave_card_queue(struct ledger *ledger)
{
    struct ledger_slot *slot = ledger_own_slot(ledger);

    atomic_store(&slot->card_ticket, 0);
    atomic_store(&slot->card_waits_for, 0);
    atomic_store(&slot->asked, 0);
    if (ledger_lock(ledger) == 0) {
        ledger_recount(ledger);
        ledger_unlock(ledger);
    }
    ledger_tell_freed(ledger); /* another process may be first now */
}

/* Waits until it is our turn and look() says that the request fits. */
static int stand_in_card_queue(struct ledger *ledger, uint64_t bytes, struct ledger_turn *turn,
                               uint64_t until, int (*look)(void *argument, uint64_t bytes), void *argument)
{
    for (unsigned polls = 0;; polls++) {
        const uint32_t freed = atomic_load(&ledger->file->freed);
        const uint64_t now = clock_ms();
        struct ledger_queue queue;
        int rc = take_turn(ledger, bytes, turn, &queue);

        if (rc || (rc = look(argument, bytes)) == -ENOMEM || (rc == 0 && queue.first))
            return rc;
        ledger_watch_head(ledger, turn, queue.head, rc == 0 && look(argument, queue.next) == 0);
        if (rc == -EBUSY && queue.all_wait && queue.last)
            return -EDEADLK;
        if (now >= until)
            return -ETIMEDOUT;
        if (polls % CARD_REMIND_POLLS == 0)
            ledger_put_to(ledger, ledger_is_other, bytes);
        ledger_await_freed(ledger, freed, until - now < CARD_POLL_MS ? until - now : CARD_POLL_MS);
    }
}

int ledger_wait_card(struct ledger *ledger, uint64_t bytes, uint64_t *ticket, uint64_t until,
                     int (*look)(void *argument, uint64_t bytes), void *argument)
{
    struct ledger_turn turn = {.ticket = *ticket};
    const uint64_t start = clock_ms();
    struct ledger_slot *slot = ledger_own_slot(ledger);
    int rc = -ETIMEDOUT;

    if (!slot)
        return -ENOMEM;
    if (ledger_take_queue(ledger, until)) {
        rc = stand_in_card_queue(ledger, bytes, &turn, until, look, argument);
        *ticket = turn.ticket;
        leave_card_queue(ledger);
        pthread_mutex_unlock(&ledger->queue);
    }
    atomic_fetch_add(&slot->waited_ms, clock_ms() - start);
    if (ledger->job)
        atomic_fetch_add(&ledger->job->waited_ms, clock_ms() - start);
    return rc;
}
