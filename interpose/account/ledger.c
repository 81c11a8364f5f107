/* ledger: see ledger.h. The lock word, jobs and leases. Slots are in ledger_slots.c and files in
 * ledger_open.c, below this one; what concerns the card in ledger_card.c, questions and waiting in
 * ledger_ask.c, what tools read in ledger_read.c, above it. */
#include "interpose/account/ledger_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interpose/base/clock.h"
#include "interpose/base/files.h"
#include "interpose/base/quote.h"
#include "interpose/base/sums.h"

#define SPINS      200   /* tries before a thread sleeps; the lock is held for less than 1 us */
#define NAP_MS     1     /* between two checks whether the owner is alive, at first */
#define NAP_MAX_MS 16    /* later: with 1 ms, 400 processes that wait left the owner no time (two cores) */
#define LOCK_MS    30000 /* for the lock at most, even if it changes hands all the time */
#define STUCK_MS   20    /* for an owner that was waited for in vain: it may have been stopped */
#define PAGE       (UINT64_C(2) << 20)
#define EXTRA_PART 16 /* a lease is raised by 1/16 of the job's room beyond the need */
#define EXTRA_MAX  (UINT64_C(256) << 20)

/* ---- the lock word ---- */

static bool owner_is_dead(const struct ledger *ledger, uint32_t owner)
{
    /* The word names our slot, but no thread of ours has the lock: the slot's previous owner died with it. */
    return owner > LEDGER_SLOTS || (int)owner == ledger->slot + 1 || !ledger_alive(ledger, (int)owner - 1);
}

/* Replaces `word`, as read from the file, by one that names us. */
static bool swap_word(struct ledger *ledger, uint32_t word)
{
    const uint32_t own = ((word | LEDGER_OWNER_MASK) + 1) | ((uint32_t)ledger->slot + 1);

    if (!atomic_compare_exchange_strong(&ledger->file->lock, &word, own))
        return false;
    ledger->word = own;
    return true;
}

static bool try_lock(struct ledger *ledger)
{
    for (int i = 0; i < SPINS; i++) {
        const uint32_t word = atomic_load_explicit(&ledger->file->lock, memory_order_relaxed);

        if (!(word & LEDGER_OWNER_MASK) && swap_word(ledger, word))
            return true;
    }
    return false;
}

/* Takes the lock over from a dead owner, or sleeps until it is free or nap_ms have passed. */
static bool take_over_or_nap(struct ledger *ledger, uint64_t nap_ms)
{
    const uint32_t word = atomic_load(&ledger->file->lock), owner = word & LEDGER_OWNER_MASK;

    if (!owner)
        return false;
    ledger_reopen(ledger);
    if (owner_is_dead(ledger, owner)) {
        if (!swap_word(ledger, word))
            return false;
        ledger->dirty = true;
        return true;
    }
    atomic_store(&ledger->file->waiters, 1);
    ledger_sleep(&ledger->file->lock, word, nap_ms);
    return false;
}

static void note_taken(struct ledger *ledger, uint32_t taken)
{
    uint32_t before = atomic_load(&ledger->file->taken);

    while (before < taken && !atomic_compare_exchange_weak(&ledger->file->taken, &before, taken))
        ;
}

/* Takes or releases (F_WRLCK, F_UNLCK) one of the kernel's locks. */
static int set_lock(const struct ledger *ledger, int64_t byte, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    return fcntl(ledger->fd, F_OFD_SETLK, &lock) == 0 ? 0 : -errno;
}

/* Takes a slot whose process has ended. Clears it first: its lease would count as a living process's. */
static int take_over_slot(struct ledger *ledger, int slot)
{
    int rc = set_lock(ledger, LEDGER_CLAIM_BYTE + slot, F_WRLCK);

    if (rc)
        return rc;
    if (ledger_alive(ledger, slot)) {
        rc = -EAGAIN;
    } else {
        atomic_store(&ledger->file->slots[slot].state, LEDGER_FREE);
        rc = set_lock(ledger, LEDGER_SLOT_BYTE + slot, F_WRLCK);
    }
    set_lock(ledger, LEDGER_CLAIM_BYTE + slot, F_UNLCK);
    return rc;
}

/* Takes the first free slot. */
static int take_slot(struct ledger *ledger)
{
    for (int i = 0; i < LEDGER_SLOTS; i++) {
        const int rc = take_over_slot(ledger, i);

        if (rc == 0) {
            ledger->slot = i;
            note_taken(ledger, (uint32_t)i + 1);
            return 0;
        }
        if (rc != -EAGAIN && rc != -EACCES)
            return rc;
    }
    return -ENOSPC;
}

/* Enters this process into its slot. */
static void enter(struct ledger *ledger)
{
    struct ledger_slot *slot = &ledger->file->slots[ledger->slot];

    slot->pid = getpid();
    slot->uid = geteuid();
    atomic_store(&slot->lease, ledger->lease);
    atomic_store(&slot->job, ledger->job ? (uint32_t)(ledger->job - ledger->file->jobs) + 1 : 0);
    atomic_store(&slot->state, ledger->state);
}

int ledger_lock(struct ledger *ledger)
{
    uint64_t until = 0, last = 0, nap_ms = NAP_MS;
    uint32_t seen = 0;

    pthread_mutex_lock(&ledger->mutex);
    while (!try_lock(ledger) && !take_over_or_nap(ledger, nap_ms)) {
        const uint32_t word = atomic_load(&ledger->file->lock);
        const uint64_t now = clock_ms();

        nap_ms = sums_smaller(2 * nap_ms, NAP_MAX_MS);
        if (last == 0)
            last = now + LOCK_MS;
        if (until == 0 || word != seen)
            until = now + (word == ledger->stuck ? STUCK_MS : ledger->patience_ms);
        seen = word;
        if (now > until || now > last) {
            ledger->stuck = word;
            pthread_mutex_unlock(&ledger->mutex);
            return -ETIMEDOUT;
        }
    }
    if (until) /* other processes may still sleep on the lock */
        atomic_store(&ledger->file->waiters, 1);
    if (ledger->dirty)
        ledger_recount(ledger);
    return 0;
}

void ledger_unlock(struct ledger *ledger)
{
    _Atomic uint32_t *word = &ledger->file->lock;
    uint32_t own = ledger->word;

    if (!atomic_compare_exchange_strong(word, &own, own & ~LEDGER_OWNER_MASK))
        ledger->dirty = true; /* another process has written there */
    if (atomic_load(&ledger->file->waiters) && atomic_exchange(&ledger->file->waiters, 0))
        syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
    pthread_mutex_unlock(&ledger->mutex);
}

/* ---- jobs ---- */

bool ledger_job_is_used(const struct ledger *ledger, const struct ledger_job *job)
{
    for (int i = 0; i < ledger_slots(ledger); i++) {
        if (ledger_is_member(ledger, i) && ledger_job_of(ledger, &ledger->file->slots[i]) == job)
            return true;
    }
    return false;
}

void ledger_copy_text(char *to, const char *from, size_t size)
{
    memcpy(to, from, size - 1);
    to[size - 1] = '\0';
    quote_flatten(to); /* no control sequences on a reader's terminal */
}

bool ledger_is_job_name(const char *name)
{
    return *name && strnlen(name, LEDGER_NAME) < LEDGER_NAME;
}

/* Word by word: other threads may be reading the record without the lock. */
static void zero(void *record, size_t from, size_t to)
{
    for (size_t at = from; at < to; at += sizeof(uint32_t))
        atomic_store_explicit((_Atomic uint32_t *)((char *)record + at), 0, memory_order_relaxed);
}

/* Writes a job record. It has no name meanwhile: a process that dies here leaves it unused. */
static void make_job(struct ledger_job *job, const char *name, const struct ledger_limits *limits)
{
    job->name[0] = '\0';
    atomic_thread_fence(memory_order_seq_cst);
    zero(job, offsetof(struct ledger_job, max), sizeof(*job));
    atomic_store(&job->max, limits->max);
    atomic_store(&job->min, limits->min);
    atomic_store(&job->high, limits->high);
    strncpy(job->name + 1, name + 1, LEDGER_NAME - 1);
    atomic_thread_fence(memory_order_seq_cst);
    job->name[0] = name[0];
}

struct ledger_job *ledger_find_job(struct ledger *ledger, const char *name,
                                   const struct ledger_limits *limits, enum ledger_purpose purpose)
{
    struct ledger_job *jobs = ledger->file->jobs, *unused = NULL;

    for (int i = 0; i < LEDGER_JOBS; i++) {
        if (!strncmp(jobs[i].name, name, LEDGER_NAME))
            return &jobs[i];
        if (!unused && !jobs[i].name[0])
            unused = &jobs[i];
    }
    if (purpose == LEDGER_LOOK)
        return NULL;
    if (!unused)
        ledger_recount(ledger); /* frees the jobs of dead processes */
    for (int i = 0; !unused && i < LEDGER_JOBS; i++) {
        if (!jobs[i].preset && !ledger_job_is_used(ledger, &jobs[i]))
            unused = &jobs[i];
    }
    for (int i = 0; purpose == LEDGER_JOIN && !unused && i < LEDGER_JOBS; i++) {
        if (!ledger_job_is_used(ledger, &jobs[i])) {
            unused = &jobs[i];
            ledger_copy_text(ledger->dropped, unused->name, LEDGER_NAME);
        }
    }
    if (!unused)
        return NULL;
    make_job(unused, name, limits);
    return unused;
}

/* ---- slots ---- */

/* Clears a slot except `wanted`: a new owner continues the previous owner's count. */
static void wipe(struct ledger_slot *slot)
{
    atomic_store(&slot->state, LEDGER_FREE);
    zero(slot, offsetof(struct ledger_slot, job), offsetof(struct ledger_slot, wanted));
    atomic_store(&slot->answered, atomic_load(&slot->wanted));
    zero(slot, offsetof(struct ledger_slot, wanted_bytes), sizeof(*slot));
}

/* Repairs the number of slots to look at, if a process holds one above it. */
static void check_taken(struct ledger *ledger)
{
    const int from = ledger_slots(ledger);
    struct flock rest = ledger_slot_lock(from, LEDGER_SLOTS - from);

    if (ledger->slot >= from || (from < LEDGER_SLOTS && fcntl(ledger->fd, F_OFD_GETLK, &rest) == 0 &&
                                 rest.l_type != F_UNLCK && ledger_is_open(ledger)))
        note_taken(ledger, LEDGER_SLOTS);
}

void ledger_recount(struct ledger *ledger)
{
    struct ledger_file *file = ledger->file;
    uint64_t sums[LEDGER_JOBS] = {0}, waiting[LEDGER_JOBS] = {0}, on_card = 0;
    bool has_process[LEDGER_JOBS] = {false};
    uint32_t guards = 0;
    int others = 0;

    ledger_reopen(ledger);
    check_taken(ledger);
    for (int i = 0; i < ledger_slots(ledger); i++) {
        struct ledger_slot *slot = &file->slots[i];
        const struct ledger_job *job = ledger_job_of(ledger, slot);

        if (atomic_load(&slot->state) == LEDGER_FREE)
            continue;
        if (i == ledger->slot)
            atomic_store(&slot->lease, ledger->lease);
        const bool alive = ledger_alive(ledger, i);
        others += alive && i != ledger->slot;
        if (!alive) {
            wipe(slot);
            continue;
        }
        on_card += atomic_load(&slot->card_ticket) != 0;
        if (!job) {
            guards += atomic_load(&slot->min) != 0;
        } else {
            const ptrdiff_t number = job - file->jobs;

            has_process[number] = true;
            sums[number] = sums_add(sums[number], atomic_load(&slot->lease));
            waiting[number] += atomic_load(&slot->ticket) != 0;
        }
    }
    for (int i = 0; i < LEDGER_JOBS; i++) {
        atomic_store(&file->jobs[i].sum, sums[i]);
        atomic_store(&file->jobs[i].waiting, waiting[i]);
        guards += has_process[i] && atomic_load(&file->jobs[i].min) != 0;
    }
    atomic_store(&file->guards, guards);
    atomic_store(&file->card_waiting, on_card);
    if (others == 0) /* the driver or its settings may change before the next process */
        atomic_store(&file->context_bytes, 0);
    ledger->dirty = false;
}

void ledger_recount_in_queue(struct ledger *ledger, struct ledger_turn *turn, bool card,
                             struct ledger_queue *queue)
{
    const uint64_t now = clock_ms();

    /* Those behind the first one recount now and then: it may have been stopped. */
    if (!queue->first && !(queue->all_wait && queue->last) && turn->recounted &&
        now < turn->recounted + ledger->slow_ms && ledger_alive(ledger, queue->head_slot))
        return;
    ledger_recount(ledger);
    turn->recounted = now;
    *queue = ledger_look_at_queue(ledger, turn, card);
}

int ledger_claim(struct ledger *ledger, uint32_t state)
{
    int rc = !ledger_is_open(ledger) ? -EBADF : ledger->slot < 0 ? take_slot(ledger) : 0;

    if (rc || (rc = ledger_lock(ledger)))
        return rc;
    wipe(&ledger->file->slots[ledger->slot]);
    ledger_recount(ledger);
    ledger->state = state;
    ledger->job = NULL;
    ledger->lease = 0;
    enter(ledger);
    ledger_unlock(ledger);
    return 0;
}

/* Reads the command line, with the program's name instead of its path: only the beginning is shown. */
static void read_command(char command[LEDGER_COMMAND])
{
    char line[PATH_MAX + LEDGER_COMMAND];
    const ssize_t got = files_read("/proc/self/cmdline", line, sizeof(line) - 1);

    line[got > 0 ? got : 0] = '\0';
    const char *slash = strrchr(line, '/'), *name = slash ? slash + 1 : line; /* in the first word */
    const ssize_t length = got - (name - line) < LEDGER_COMMAND ? got - (name - line) : LEDGER_COMMAND;
    memset(command, 0, LEDGER_COMMAND);
    for (ssize_t i = 0; i + 1 < length; i++)
        command[i] = name[i] ? name[i] : ' ';
}

/* The first process of a job whose limits were set before it came adds those that were not. */
static void complete(struct ledger_job *job, const struct ledger_limits *limits)
{
    if (job->preset && atomic_load(&job->max) == LEDGER_UNLIMITED)
        atomic_store(&job->max, limits->max);
    if (job->preset && !atomic_load(&job->min))
        atomic_store(&job->min, limits->min);
    if (job->preset && !atomic_load(&job->high))
        atomic_store(&job->high, limits->high);
    job->preset = 0;
}

int ledger_join_within(struct ledger *ledger, const char *job, const struct ledger_limits *limits)
{
    int rc = job && !ledger_is_job_name(job) ? -EINVAL : ledger_claim(ledger, LEDGER_MEMBER);

    if (rc || (rc = ledger_lock(ledger)))
        return rc;
    struct ledger_slot *slot = &ledger->file->slots[ledger->slot];
    slot->started = clock_boot_ns();
    atomic_store(&slot->limit, limits->max);
    read_command(slot->command);
    if (job) {
        ledger->job = ledger_find_job(ledger, job, limits, LEDGER_JOIN);
        rc = ledger->job ? 0 : -ENOSPC;
    }
    if (ledger->job)
        complete(ledger->job, limits);
    atomic_store(&slot->min, job ? 0 : limits->min);
    atomic_store(&slot->high, job ? 0 : limits->high);
    ledger->waiting = ledger->job ? &ledger->job->waiting : &ledger->file->card_waiting;
    ledger->high = ledger->job ? &ledger->job->high : &slot->high;
    enter(ledger);
    if (limits->min)
        ledger_recount(ledger);
    ledger_unlock(ledger);
    return rc;
}

const char *ledger_dropped(const struct ledger *ledger)
{
    return ledger->dropped;
}

/* ---- leases ---- */

static uint64_t room_of(const struct ledger_job *job)
{
    const uint64_t max = atomic_load(&job->max), sum = atomic_load(&job->sum);

    return max == LEDGER_UNLIMITED ? LEDGER_UNLIMITED : sums_minus(max, sum);
}

static void set_lease(struct ledger *ledger, uint64_t lease)
{
    const uint64_t others = sums_minus(atomic_load(&ledger->job->sum), ledger->lease);

    atomic_store(&ledger->file->slots[ledger->slot].lease, lease);
    ledger->lease = lease;
    atomic_store(&ledger->job->sum, sums_add(others, lease));
}

int ledger_raise(struct ledger *ledger, uint64_t least, uint64_t spare)
{
    const uint64_t room = room_of(ledger->job);

    if (least <= ledger->lease)
        return 0;
    const uint64_t more = least - ledger->lease;
    if (more > room || spare > room - more)
        return -ENOMEM;
    uint64_t extra = (room - more - spare) / EXTRA_PART;
    extra = (extra < EXTRA_MAX ? extra : EXTRA_MAX) & ~(PAGE - 1);
    if (atomic_load(&ledger->job->high)) /* unused leases must not count against it */
        extra = 0;
    set_lease(ledger, extra > UINT64_MAX - least ? least : least + extra);
    return 0;
}

int ledger_extend_beside(struct ledger *ledger, uint64_t least, uint64_t spare)
{
    if (!ledger->job)
        return 0;
    int rc = ledger_lock(ledger);
    if (rc)
        return rc;
    const uint64_t before = atomic_load(&ledger->job->sum);
    rc = ledger_raise(ledger, least, spare);
    if (rc) {
        ledger_recount(ledger); /* a process may have died */
        rc = ledger_raise(ledger, least, spare);
    }
    ledger_unlock(ledger);
    ledger_ask_above_high(ledger, before);
    return rc;
}

void ledger_settle(struct ledger *ledger, uint64_t used)
{
    if (!ledger->job || used == ledger_lease(ledger) || ledger_lock(ledger))
        return;
    const uint64_t before = ledger->lease;
    set_lease(ledger, used);
    if (used < before)
        atomic_fetch_add(&ledger->job->given, before - used);
    ledger_unlock(ledger);
    if (used < before)
        ledger_tell_freed(ledger);
}

bool ledger_shares(const struct ledger *ledger)
{
    return ledger->job != NULL;
}

uint64_t ledger_lease(const struct ledger *ledger)
{
    return ledger->job ? atomic_load(&ledger->file->slots[ledger->slot].lease) : LEDGER_UNLIMITED;
}

uint64_t ledger_room(const struct ledger *ledger)
{
    return ledger->job ? room_of(ledger->job) : LEDGER_UNLIMITED;
}

uint64_t ledger_max(const struct ledger *ledger)
{
    return ledger->job ? atomic_load(&ledger->job->max) : LEDGER_UNLIMITED;
}

bool ledger_is_over(const struct ledger *ledger)
{
    return ledger->job && atomic_load(&ledger->job->sum) > atomic_load(&ledger->job->max);
}

uint64_t ledger_used(const struct ledger *ledger)
{
    return ledger->job ? atomic_load(&ledger->job->sum) : 0;
}

void ledger_close(struct ledger *ledger)
{
    if (!ledger)
        return;
    if (ledger->slot >= 0) {
        ledger_settle(ledger, 0);
        atomic_store(&ledger->file->slots[ledger->slot].state, LEDGER_FREE);
    }
    if (ledger_is_open(ledger))
        close(ledger->fd);
    munmap(ledger->file, sizeof(*ledger->file)); /* this releases the lock on the slot */
    pthread_mutex_destroy(&ledger->mutex);
    pthread_mutex_destroy(&ledger->queue);
    free(ledger);
}
