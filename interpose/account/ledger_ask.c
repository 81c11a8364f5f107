/* ledger_ask: questions between processes, and the queue of processes that wait. See ledger.h. */
#include "interpose/account/ledger_file.h"

#include <errno.h>

#include "interpose/base/clock.h"
#include "interpose/base/sums.h"

#define POLL_MS      50         /* the death of a process wakes no other */
#define ANSWER_MS    10         /* the same while answers are awaited, which take a millisecond */
#define LONG_POLLS   40         /* two seconds: then `notice` is called */
#define REMIND_POLLS 4          /* polls between reminders to other processes: not every free wakes us */
#define NOT_ENOUGH   UINT64_MAX /* waits for all answers, however much room there is */
#define LONGEST_MS   (UINT64_C(1000) * 3600 * 24 * 365)

/* ---- asking ---- */

bool ledger_is_neighbour(const struct ledger *ledger, int slot)
{
    return ledger_is_listed(ledger, slot) && ledger_alive(ledger, slot);
}

static bool has_answered(const struct ledger_slot *slot, uint32_t question)
{
    return (int32_t)(atomic_load(&slot->answered) - question) >= 0;
}

struct asked {
    int count;
    struct {
        int slot;
        uint32_t question;
    } of[LEDGER_SLOTS];
};

static bool has_room(const struct ledger *ledger, uint64_t enough)
{
    return enough != NOT_ENOUGH && ledger_room(ledger) >= enough;
}

/* Waits until all have answered or died (returns true) or the job has `enough` room, timeout_ms at most. */
static bool await_answers(struct ledger *ledger, const struct asked *asked, uint64_t enough,
                          unsigned timeout_ms)
{
    const uint64_t until = clock_ms() + timeout_ms;

    for (;;) {
        const uint32_t answers = atomic_load(&ledger->file->answers);
        const uint64_t now = clock_ms();
        int missing = 0;

        for (int i = 0; i < asked->count; i++)
            missing += !has_answered(&ledger->file->slots[asked->of[i].slot], asked->of[i].question) &&
                       ledger_alive(ledger, asked->of[i].slot);
        if (!missing || now >= until || has_room(ledger, enough))
            return !missing;
        ledger_sleep(&ledger->file->answers, answers, until - now < ANSWER_MS ? until - now : ANSWER_MS);
    }
}

static uint64_t in_vain_at(const struct ledger_slot *slot)
{
    return UINT64_C(1) << 32 | atomic_load(&slot->answered);
}

static bool owes_answer(const struct ledger *ledger, int slot)
{
    return atomic_load(&ledger->in_vain[slot]) == in_vain_at(&ledger->file->slots[slot]);
}

static void note_no_answer(struct ledger *ledger, int slot)
{
    if (owes_answer(ledger, slot))
        return;
    atomic_store(&ledger->silent_since[slot], clock_ms());
    atomic_store(&ledger->in_vain[slot], in_vain_at(&ledger->file->slots[slot]));
}

/* Returns true if the process of a slot has owed an answer for so long that it may have been stopped. */
static bool owes_for_long(const struct ledger *ledger, int slot)
{
    return owes_answer(ledger, slot) &&
           clock_ms() >= atomic_load(&ledger->silent_since[slot]) + LEDGER_SLOW_MS;
}

/* Asks the other processes that `may_ask` chooses. Those that still owe an answer are not waited for. */
static void ask_others(struct ledger *ledger, bool (*may_ask)(const struct ledger *ledger, int slot),
                       uint64_t bytes, struct asked *asked)
{
    for (int i = 0; i < ledger_slots(ledger); i++) {
        struct ledger_slot *slot = &ledger->file->slots[i];

        if (!may_ask(ledger, i) || !ledger_alive(ledger, i))
            continue;
        const bool answers = !owes_answer(ledger, i);
        const uint32_t question = ledger_put(ledger, slot, bytes);
        if (answers) {
            asked->of[asked->count].slot = i;
            asked->of[asked->count++].question = question;
        }
    }
}

/* Waits for the answers, or until the job has `enough` room, and notes who has not answered in time. Returns
 * true if all have answered or died. */
static bool hear_answers(struct ledger *ledger, const struct asked *asked, uint64_t enough,
                         unsigned timeout_ms)
{
    const bool all = await_answers(ledger, asked, enough, timeout_ms);

    if (!all && has_room(ledger, enough))
        return false; /* those that are missing had less time */
    for (int i = 0; i < asked->count; i++) {
        const int slot = asked->of[i].slot;

        if (has_answered(&ledger->file->slots[slot], asked->of[i].question))
            atomic_store(&ledger->in_vain[slot], 0);
        else
            note_no_answer(ledger, slot);
    }
    return all;
}

/* Returns what the process of a slot said it can give back, and may: it keeps its job's min. */
static uint64_t lendable(const struct ledger *ledger, int slot)
{
    return sums_smaller(atomic_load(&ledger->file->slots[slot].lendable), ledger_above_min(ledger, slot));
}

/* Asks one process after the other, from number *next on, for what it may lend, until `bytes` are asked for.
 * Those that have none are not asked. */
static struct asked share_out(struct ledger *ledger, uint64_t bytes, const struct asked *others, int *next)
{
    struct asked givers = {0};

    for (; *next < others->count && bytes; ++*next) {
        const int slot = others->of[*next].slot;
        const uint64_t part = sums_smaller(lendable(ledger, slot), bytes);

        if (!part)
            continue;
        givers.of[givers.count].slot = slot;
        givers.of[givers.count++].question = ledger_put(ledger, &ledger->file->slots[slot], part);
        bytes -= part;
    }
    return givers;
}

/* Returns what the asked processes may lend. */
static uint64_t add_idle(const struct ledger *ledger, const struct asked *asked)
{
    uint64_t sum = 0;

    for (int i = 0; i < asked->count; i++)
        sum += lendable(ledger, asked->of[i].slot);
    return sum;
}

bool ledger_ask_card(struct ledger *ledger, uint64_t bytes, uint64_t least, unsigned timeout_ms)
{
    struct asked asked = {0};
    bool heard = true;

    ask_others(ledger, ledger_is_other, 0, &asked); /* they publish what they have idle */
    hear_answers(ledger, &asked, NOT_ENOUGH, timeout_ms);
    const uint64_t before = add_idle(ledger, &asked);
    if (before < least || before == 0)
        return false;
    /* The driver may not take back what a process has idle in its pools: then the next ones are asked. */
    uint64_t idle = before;
    for (int next = 0; heard && bytes && next < asked.count;) {
        const struct asked givers = share_out(ledger, bytes, &asked, &next);

        heard = hear_answers(ledger, &givers, NOT_ENOUGH, timeout_ms);
        const uint64_t left = add_idle(ledger, &asked);
        bytes = sums_minus(bytes, sums_minus(idle, left));
        idle = left;
    }
    return idle < before;
}

bool ledger_ask(struct ledger *ledger, uint64_t bytes, unsigned timeout_ms)
{
    struct asked asked = {0};

    if (!ledger->job)
        return false;
    const uint64_t before = atomic_load(&ledger->job->given), room = ledger_room(ledger);
    const uint64_t lent_before = atomic_load(&ledger->job->lent);
    ask_others(ledger, ledger_is_listed, bytes, &asked);
    hear_answers(ledger, &asked, bytes < UINT64_MAX - room ? room + bytes : NOT_ENOUGH, timeout_ms);
    if (ledger_lock(ledger) == 0) { /* a neighbour may have died instead of answering */
        ledger_recount(ledger);
        ledger_unlock(ledger);
    }
    const uint64_t lent = atomic_load(&ledger->job->lent) - lent_before;
    if (lent) {
        atomic_fetch_add(&ledger_own_slot(ledger)->borrowed, lent < bytes ? lent : bytes);
        atomic_fetch_add(&ledger->job->borrowed, lent < bytes ? lent : bytes);
    }
    return atomic_load(&ledger->job->given) != before ||
           ledger_room(ledger) > room; /* a process that died also gives room */
}

bool ledger_is_owed(const struct ledger *ledger)
{
    for (int i = 0; i < ledger_slots(ledger); i++) {
        if (ledger_is_neighbour(ledger, i) && owes_answer(ledger, i) && !owes_for_long(ledger, i))
            return true;
    }
    return false;
}

uint64_t ledger_live_of_others(const struct ledger *ledger, bool surely)
{
    uint64_t sum = 0;

    for (int i = 0; i < ledger_slots(ledger); i++) {
        const struct ledger_slot *slot = &ledger->file->slots[i];

        if (!ledger_is_neighbour(ledger, i))
            continue;
        const uint64_t unsure = surely ? atomic_load(&slot->unsure) : 0;
        uint64_t live =
            sums_minus(atomic_load(&slot->used), sums_minus(atomic_load(&slot->lendable), unsure));

        if (owes_answer(ledger, i)) /* its figures are old */
            live = owes_for_long(ledger, i) ? atomic_load(&slot->lease) : 0;
        sum = sums_add(sum, live);
    }
    return sum;
}

uint64_t ledger_used_by_others(const struct ledger *ledger)
{
    uint64_t sum = 0;

    for (int i = 0; ledger->job && i < ledger_slots(ledger); i++) {
        const uint64_t used = atomic_load(&ledger->file->slots[i].used);

        if (used && ledger_is_neighbour(ledger, i))
            sum = sums_add(sum, used);
    }
    return sum;
}

bool ledger_ask_slot(struct ledger *ledger, int slot, uint64_t bytes, uint32_t *question)
{
    if (slot < 0 || slot >= LEDGER_SLOTS || !ledger_is_member(ledger, slot) || !ledger_alive(ledger, slot))
        return false;
    *question = ledger_put(ledger, &ledger->file->slots[slot], bytes);
    return true;
}

bool ledger_await_slot(struct ledger *ledger, int slot, uint32_t question, unsigned timeout_ms)
{
    const struct asked asked = {.count = 1, .of = {{slot, question}}};

    return await_answers(ledger, &asked, NOT_ENOUGH, timeout_ms);
}

bool ledger_poke(struct ledger *ledger, int slot, uint64_t bytes, unsigned timeout_ms)
{
    uint32_t question;

    return ledger_ask_slot(ledger, slot, bytes, &question) &&
           ledger_await_slot(ledger, slot, question, timeout_ms);
}

/* Returns true if there is a question to this process, or none can come any more. */
static bool is_asked(const struct ledger *ledger, uint32_t wanted)
{
    const struct ledger_slot *slot = ledger_own_slot(ledger);

    return !slot || atomic_load(&ledger->stopped) || atomic_load(&slot->answered) != wanted;
}

bool ledger_nap(struct ledger *ledger, unsigned timeout_ms)
{
    const struct ledger_slot *slot = ledger_own_slot(ledger);
    const uint32_t wanted = slot ? atomic_load(&slot->wanted) : 0;

    if (!is_asked(ledger, wanted))
        ledger_sleep(&slot->wanted, wanted, timeout_ms);
    return is_asked(ledger, slot ? atomic_load(&slot->wanted) : 0);
}

bool ledger_listen(struct ledger *ledger, uint64_t *bytes)
{
    struct ledger_slot *slot = ledger_own_slot(ledger);

    while (!ledger_nap(ledger, 1000))
        ;
    if (!slot || atomic_load(&ledger->stopped))
        return false;
    ledger->hearing = atomic_load(&slot->wanted);
    const uint64_t word = atomic_exchange(&slot->wanted_bytes, 0), most = word & LEDGER_WANTED_ALL;
    *bytes = most == LEDGER_WANTED_ALL ? UINT64_MAX : most;
    ledger->asker = (int)(word >> LEDGER_ASKER_SHIFT) - 1;
    return true;
}

/* Returns the slot that has waited longest for memory of our job, or with `card` of the card; -1: none. */
static int first_in_queue(const struct ledger *ledger, bool card)
{
    uint64_t lowest = UINT64_MAX;
    int first = -1;

    for (int i = 0; i < ledger_slots(ledger); i++) {
        const struct ledger_slot *slot = &ledger->file->slots[i];
        const uint64_t ticket = atomic_load(card ? &slot->card_ticket : &slot->ticket);

        if (ticket && ticket < lowest && (card ? ledger_is_other(ledger, i) : ledger_is_listed(ledger, i))) {
            lowest = ticket;
            first = i;
        }
    }
    return first;
}

pid_t ledger_asker(const struct ledger *ledger)
{
    int slot = ledger->asker;

    if (slot == ledger->slot)
        slot = ledger->job ? first_in_queue(ledger, false) : -1;
    if (slot < 0 && ledger->asker == ledger->slot)
        slot = first_in_queue(ledger, true);
    return slot >= 0 && slot < LEDGER_SLOTS && ledger_is_other(ledger, slot) ? ledger->file->slots[slot].pid
                                                                             : 0;
}

void ledger_note_lent(struct ledger *ledger, uint64_t bytes)
{
    struct ledger_slot *slot = ledger_own_slot(ledger);

    if (slot)
        atomic_fetch_add(&slot->lent, bytes);
    if (slot && ledger->job)
        atomic_fetch_add(&ledger->job->lent, bytes);
}

void ledger_answer(struct ledger *ledger)
{
    struct ledger_slot *slot = ledger_own_slot(ledger);

    if (!slot)
        return;
    atomic_store(&slot->answered, ledger->hearing);
    ledger_rouse(&ledger->file->answers);
    if (ledger_is_card_waited_for(ledger))
        ledger_tell_freed(ledger);
}

void ledger_ask_self(struct ledger *ledger, uint64_t bytes)
{
    ledger_put(ledger, &ledger->file->slots[ledger->slot], bytes);
}

void ledger_wake(struct ledger *ledger)
{
    atomic_store(&ledger->stopped, true);
    if (ledger_own_slot(ledger))
        ledger_rouse(&ledger_own_slot(ledger)->wanted);
}

/* ---- waiting ---- */

/* Tries to end a wait, with the lock. Returns 0 with the lease raised, -EDEADLK, -ENOMEM, or -EAGAIN. */
static int try_wait(struct ledger *ledger, uint64_t least, struct ledger_turn *turn)
{
    struct ledger_queue queue = ledger_look_at_queue(ledger, turn, false);

    if (least <= ledger->lease) /* another thread has raised it */
        return 0;
    if (least > atomic_load(&ledger->job->max))
        return -ENOMEM;
    if (queue.first && ledger_raise(ledger, least, 0) == 0)
        return 0;
    ledger_recount_in_queue(ledger, turn, false, &queue);
    if (queue.first && ledger_raise(ledger, least, 0) == 0)
        return 0;
    ledger_watch_head(ledger, turn, queue.head, queue.next <= ledger_room(ledger));
    /* If there is enough room for the first process, it just has not woken up yet. */
    return queue.all_wait && queue.last && queue.next > ledger_room(ledger) ? -EDEADLK : -EAGAIN;
}

bool ledger_is_waited_for(const struct ledger *ledger)
{
    return ledger_is_card_waited_for(ledger) ||
           (ledger->job && atomic_load_explicit(&ledger->job->waiting, memory_order_relaxed) != 0);
}

void ledger_on_long_wait(struct ledger *ledger, void (*notice)(void *argument, uint64_t bytes),
                         void *argument)
{
    ledger->notice = notice;
    ledger->notice_argument = argument;
}

/* Takes the lock, and tries again until `until` while another process keeps it. */
static int lock_until(struct ledger *ledger, uint64_t until)
{
    int rc;

    do
        rc = ledger_lock(ledger);
    while (rc == -ETIMEDOUT && clock_ms() < until);
    return rc;
}

/* Waits at the end of the queue, and leaves it with or without the memory. */
static int stand_in_queue(struct ledger *ledger, uint64_t asked, uint64_t least, uint64_t until, bool brief)
{
    struct ledger_slot *slot = ledger_own_slot(ledger);
    int rc, locked = lock_until(ledger, until);

    if (locked)
        return locked;
    struct ledger_turn turn = {.ticket = ++ledger->job->tickets};
    const uint64_t more = sums_minus(least, ledger->lease);
    atomic_store(&slot->waits_for, more);
    atomic_store(&slot->asked, asked ? asked : more);
    atomic_store(&slot->brief, brief);
    atomic_store(&slot->ticket, turn.ticket);
    atomic_fetch_add(&ledger->job->waiting, 1);
    for (unsigned polls = 0; (rc = try_wait(ledger, least, &turn)) == -EAGAIN; polls++) {
        const uint32_t freed = atomic_load(&ledger->file->freed);
        const uint64_t now = clock_ms();

        if (now >= until) {
            rc = -ETIMEDOUT;
            break;
        }
        ledger_unlock(ledger);
        if (polls == 0 || (polls % REMIND_POLLS == 0 && ledger_look_at_queue(ledger, &turn, false).first))
            ledger_put_to(ledger, ledger_is_neighbour, atomic_load(&slot->waits_for));
        if (polls == LONG_POLLS && ledger->notice)
            ledger->notice(ledger->notice_argument, atomic_load(&slot->asked));
        ledger_await_freed(ledger, freed, until - now < POLL_MS ? until - now : POLL_MS);
        if ((locked = lock_until(ledger, until))) {
            rc = locked;
            break;
        }
    }
    atomic_store(&slot->ticket, 0);
    atomic_store(&slot->waits_for, 0);
    atomic_store(&slot->asked, 0);
    atomic_fetch_sub(&ledger->job->waiting, 1);
    if (!locked)
        ledger_unlock(ledger);
    return rc;
}

int ledger_wait_for(struct ledger *ledger, uint64_t asked, uint64_t least, uint64_t timeout_ms)
{
    const uint64_t start = clock_ms(), span = timeout_ms < LONGEST_MS ? timeout_ms : LONGEST_MS;
    int rc = -ETIMEDOUT;

    if (!ledger->job)
        return -ENOMEM;
    if (ledger_take_queue(ledger, start + span)) {
        rc = stand_in_queue(ledger, asked, least, start + span, span <= LEDGER_BRIEF_MS);
        pthread_mutex_unlock(&ledger->queue);
        ledger_tell_freed(ledger); /* another process may be first now */
    }
    atomic_fetch_add(&ledger_own_slot(ledger)->waited_ms, clock_ms() - start);
    atomic_fetch_add(&ledger->job->waited_ms, clock_ms() - start);
    return rc;
}
