/* ledger_slots: what every part of a ledger does with slots: find them, see whether their processes live,
 * sleep and wake, put questions to them. Takes no lock; the parts above (ledger.c, ledger_card.c,
 * ledger_ask.c, ledger_read.c) call it, and it calls none of them. */
#include "interpose/account/ledger_file.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "interpose/base/clock.h"
#include "interpose/base/sums.h"

/* ---- the kernel's part ---- */

void ledger_sleep(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ms)
{
    const struct timespec span = {(time_t)(timeout_ms / 1000), (long)(timeout_ms % 1000) * 1000000L};

    syscall(SYS_futex, word, FUTEX_WAIT, value, &span, NULL, 0);
}

void ledger_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t ledger_rouse(_Atomic uint32_t *word)
{
    const uint32_t value = atomic_fetch_add(word, 1) + 1;

    ledger_wake_all(word);
    return value;
}

void ledger_tell_freed(struct ledger *ledger)
{
    _Atomic uint32_t *word = &ledger->file->freed;
    uint32_t before = atomic_load(word);

    while (!atomic_compare_exchange_weak(word, &before, (before | 1) + 1))
        ;
    if (before & 1)
        ledger_wake_all(word);
}

void ledger_await_freed(struct ledger *ledger, uint32_t value, uint64_t timeout_ms)
{
    _Atomic uint32_t *word = &ledger->file->freed;
    const uint32_t sleeping = value | 1;

    if (atomic_compare_exchange_strong(word, &value, sleeping) || value == sleeping)
        ledger_sleep(word, sleeping, timeout_ms);
}

bool ledger_is_file(const struct ledger *ledger, int fd)
{
    struct stat status;

    return fstat(fd, &status) == 0 && status.st_dev == ledger->device && status.st_ino == ledger->inode;
}

bool ledger_is_open(const struct ledger *ledger)
{
    return ledger_is_file(ledger, ledger->fd);
}

bool ledger_is_removed(const struct ledger *ledger)
{
    struct stat status;

    return fstat(ledger->fd, &status) == 0 && status.st_dev == ledger->device &&
           status.st_ino == ledger->inode && status.st_nlink == 0;
}

struct flock ledger_slot_lock(int first, int count)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LEDGER_SLOT_BYTE + first, .l_len = count};
}

bool ledger_alive(const struct ledger *ledger, int slot)
{
    struct flock lock = ledger_slot_lock(slot, 1);

    if (slot == ledger->slot)
        return true;
    /* If the descriptor is the ledger's after the query, it was so during the query. */
    return fcntl(ledger->fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK || !ledger_is_open(ledger);
}

/* ---- slots ---- */

int ledger_slots(const struct ledger *ledger)
{
    const uint32_t taken = atomic_load(&ledger->file->taken);

    return taken < LEDGER_SLOTS ? (int)taken : LEDGER_SLOTS;
}

struct ledger_slot *ledger_own_slot(const struct ledger *ledger)
{
    return ledger->slot < 0 ? NULL : &ledger->file->slots[ledger->slot];
}

bool ledger_is_member(const struct ledger *ledger, int slot)
{
    return atomic_load(&ledger->file->slots[slot].state) == LEDGER_MEMBER;
}

bool ledger_is_other(const struct ledger *ledger, int slot)
{
    return slot != ledger->slot && ledger_is_member(ledger, slot);
}

struct ledger_job *ledger_job_of(const struct ledger *ledger, const struct ledger_slot *slot)
{
    const uint32_t number = atomic_load(&slot->job);

    return number == 0 || number > LEDGER_JOBS ? NULL : &ledger->file->jobs[number - 1];
}

bool ledger_is_ours(const struct ledger *ledger, int slot)
{
    return ledger_is_member(ledger, slot) && ledger_job_of(ledger, &ledger->file->slots[slot]) == ledger->job;
}

bool ledger_is_listed(const struct ledger *ledger, int slot)
{
    return slot != ledger->slot && ledger_is_ours(ledger, slot);
}

/* ---- queues ---- */

/* The deadline of the lock is a time of day. If that is set forward, the wait goes on. */
bool ledger_take_queue(struct ledger *ledger, uint64_t until)
{
    int rc;

    do {
        const struct timespec last = clock_after(sums_minus(until, clock_ms()) * 1000000U);

        rc = pthread_mutex_timedlock(&ledger->queue, &last);
    } while (rc == ETIMEDOUT && clock_ms() < until);
    return rc == 0;
}

/* Returns true if a process outside the queue cannot free memory: it has none or waits for its job's. */
static bool cannot_free(const struct ledger_slot *slot, bool card)
{
    return card ? atomic_load(&slot->ticket) || !atomic_load(&slot->used) : !atomic_load(&slot->lease);
}

struct ledger_queue ledger_look_at_queue(const struct ledger *ledger, const struct ledger_turn *turn,
                                         bool card)
{
    const struct ledger_slot *own = ledger_own_slot(ledger);
    const uint64_t ticket = turn->ticket;
    struct ledger_queue queue = {
        true, true, true, ticket, atomic_load(card ? &own->card_waits_for : &own->waits_for), ledger->slot};

    for (int i = 0; i < ledger_slots(ledger); i++) {
        const struct ledger_slot *slot = &ledger->file->slots[i];
        const uint64_t theirs = atomic_load(card ? &slot->card_ticket : &slot->ticket);

        if (!(card ? ledger_is_other(ledger, i) : ledger_is_listed(ledger, i)))
            continue;
        if (theirs == 0) {
            queue.all_wait = queue.all_wait && cannot_free(slot, card);
            continue;
        }
        queue.all_wait = queue.all_wait && (card || !atomic_load(&slot->brief));
        queue.first = queue.first && (theirs > ticket || theirs <= turn->passed);
        queue.last = queue.last && theirs < ticket;
        if (theirs < queue.head && theirs > turn->passed) {
            queue.head = theirs;
            queue.head_slot = i;
            queue.next = atomic_load(card ? &slot->card_waits_for : &slot->waits_for);
        }
    }
    return queue;
}

void ledger_watch_head(const struct ledger *ledger, struct ledger_turn *turn, uint64_t head, bool fits)
{
    const uint64_t now = clock_ms();

    if (!fits || head == turn->ticket || head != turn->head) {
        turn->head = fits && head != turn->ticket ? head : 0;
        turn->since = now;
    } else if (now >= turn->since + ledger->slow_ms) {
        turn->passed = head;
    }
}

/* ---- questions ---- */

/* Puts a question and returns its number. The bytes are written first: the owner reads them after the number.
 * Of several askers the one that wants most is named. */
uint32_t ledger_put(const struct ledger *ledger, struct ledger_slot *slot, uint64_t bytes)
{
    const uint64_t most = bytes < LEDGER_WANTED_ALL ? bytes : LEDGER_WANTED_ALL;
    const uint64_t word = most | (uint64_t)(ledger->slot + 1) << LEDGER_ASKER_SHIFT;
    uint64_t before = atomic_load(&slot->wanted_bytes);

    while (most > (before & LEDGER_WANTED_ALL) &&
           !atomic_compare_exchange_weak(&slot->wanted_bytes, &before, word))
        ;
    return ledger_rouse(&slot->wanted);
}

void ledger_put_to(const struct ledger *ledger, bool (*whom)(const struct ledger *ledger, int slot),
                   uint64_t bytes)
{
    for (int i = 0; i < ledger_slots(ledger); i++) {
        if (whom(ledger, i))
            ledger_put(ledger, &ledger->file->slots[i], bytes);
    }
}

bool ledger_is_needed(const struct ledger *ledger)
{
    return (atomic_load_explicit(&ledger->file->card_waiting, memory_order_relaxed) |
            atomic_load_explicit(ledger->waiting, memory_order_relaxed) |
            atomic_load_explicit(ledger->high, memory_order_relaxed)) != 0;
}

uint64_t ledger_above_high(const struct ledger *ledger)
{
    const struct ledger_job *job = ledger->job;
    const struct ledger_slot *slot = ledger_own_slot(ledger);

    if (!slot)
        return 0;
    const uint64_t high = atomic_load_explicit(job ? &job->high : &slot->high, memory_order_relaxed);
    if (__builtin_expect(high == 0, 1))
        return 0;
    return sums_minus(atomic_load_explicit(job ? &job->sum : &slot->used, memory_order_relaxed), high);
}

void ledger_ask_above_high(struct ledger *ledger, uint64_t before)
{
    const uint64_t above = ledger_above_high(ledger);

    if (__builtin_expect(above == 0, 1) || !ledger->job || before > atomic_load(&ledger->job->high))
        return;
    ledger_put_to(ledger, ledger_is_ours, above);
}
