/* ledger: see ledger.h. The lock word, slots, jobs and leases; files are in ledger_open.c, questions and
 * waiting in ledger_ask.c, what people read in ledger_read.c. */
#include "interpose/account/ledger_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "interpose/base/clock.h"

#define SPINS                                                                                                \
    200 /* looks at the lock word before a thread sleeps: it is held for less than a microsecond             \
         */
#define NAP_MS     1 /* between two looks at whether the owner is alive */
#define PAGE       (UINT64_C(2) << 20)
#define EXTRA_PART 16 /* of the job's room that a lease is raised by beyond what is needed */
#define EXTRA_MAX  (UINT64_C(256) << 20)

/* ---- the kernel's part ---- */

void ledger_sleep(const _Atomic uint32_t *word, uint32_t value, uint64_t timeout_ms)
{
    const struct timespec span = {(time_t)(timeout_ms / 1000), (long)(timeout_ms % 1000) * 1000000L};

    syscall(SYS_futex, word, FUTEX_WAIT, value, &span, NULL, 0);
}

void ledger_rouse(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static struct flock slot_lock(int slot)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LEDGER_SLOT_BYTE + slot, .l_len = 1};
}

bool ledger_alive(const struct ledger *ledger, int slot)
{
    struct flock lock = slot_lock(slot);

    if (slot == ledger->slot)
        return true;
    /* If the kernel cannot say, nobody's memory is given away. */
    return fcntl(ledger->fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* ---- the lock word ---- */

static bool owner_is_dead(const struct ledger *ledger, uint32_t owner)
{
    /* Our own slot's number, though no thread of ours has the lock: the slot's last owner died with it. */
    return owner == 0 || owner > LEDGER_SLOTS || (int)owner == ledger->slot + 1 ||
           !ledger_alive(ledger, (int)owner - 1);
}

static bool try_lock(struct ledger *ledger)
{
    _Atomic uint32_t *word = &ledger->file->lock;
    uint32_t none = 0;

    for (int i = 0; i < SPINS; i++, none = 0) {
        if (atomic_compare_exchange_weak(word, &none, (uint32_t)ledger->slot + 1))
            return true;
    }
    return false;
}

/* Takes the lock over from a dead owner, or sleeps a moment. */
static bool take_over_or_nap(struct ledger *ledger)
{
    _Atomic uint32_t *word = &ledger->file->lock;
    uint32_t owner = atomic_load(word);

    if (owner && owner_is_dead(ledger, owner) &&
        atomic_compare_exchange_strong(word, &owner, (uint32_t)ledger->slot + 1)) {
        ledger->dirty = true;
        return true;
    }
    if (owner) {
        atomic_fetch_add(&ledger->file->waiters, 1);
        ledger_sleep(word, owner, NAP_MS);
        atomic_fetch_sub(&ledger->file->waiters, 1);
    }
    return false;
}

/* Takes the kernel's lock on the first free slot from `first` on. */
static int take_slot(struct ledger *ledger, int first)
{
    for (int i = first; i < first + LEDGER_SLOTS; i++) {
        struct flock lock = slot_lock(i % LEDGER_SLOTS);

        if (fcntl(ledger->fd, F_OFD_SETLK, &lock) == 0) {
            ledger->slot = i % LEDGER_SLOTS;
            return 0;
        }
    }
    return -ENOSPC;
}

/* Writes down whose the slot is. */
static void enter(struct ledger *ledger)
{
    struct ledger_slot *slot = &ledger->file->slots[ledger->slot];

    slot->pid = getpid();
    slot->uid = geteuid();
    atomic_store(&slot->lease, ledger->lease);
    atomic_store(&slot->job, ledger->job ? (uint32_t)(ledger->job - ledger->file->jobs) + 1 : 0);
    atomic_store(&slot->state, ledger->state);
}

/* The program has closed our file, and the kernel has dropped our lock on the slot with it: for the others we
 * were dead. Takes a slot again, the same one if it is free. */
static int mend(struct ledger *ledger)
{
    int rc = ledger_reopen(ledger);

    if (rc == 0)
        rc = take_slot(ledger, ledger->slot);
    if (rc == 0) {
        enter(ledger);
        ledger->dirty = true;
    }
    return rc;
}

int ledger_lock(struct ledger *ledger)
{
    uint64_t until = 0;

    pthread_mutex_lock(&ledger->mutex);
    const int rc = ledger_is_open(ledger) ? 0 : mend(ledger);
    if (rc) {
        pthread_mutex_unlock(&ledger->mutex);
        return rc;
    }
    while (!try_lock(ledger) && !take_over_or_nap(ledger)) {
        if (until == 0)
            until = clock_ms() + LEDGER_PATIENCE_MS;
        if (clock_ms() > until) {
            pthread_mutex_unlock(&ledger->mutex);
            return -ETIMEDOUT;
        }
    }
    if (ledger->dirty)
        ledger_recount(ledger);
    return 0;
}

void ledger_unlock(struct ledger *ledger)
{
    _Atomic uint32_t *word = &ledger->file->lock;
    uint32_t own = (uint32_t)ledger->slot + 1;

    atomic_compare_exchange_strong(word, &own, 0);
    if (atomic_load(&ledger->file->waiters))
        syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
    pthread_mutex_unlock(&ledger->mutex);
}

/* ---- jobs ---- */

struct ledger_job *ledger_job_of(const struct ledger *ledger, const struct ledger_slot *slot)
{
    const uint32_t number = atomic_load(&slot->job);

    return number == 0 || number > LEDGER_JOBS ? NULL : &ledger->file->jobs[number - 1];
}

static bool is_used(const struct ledger *ledger, const struct ledger_job *job)
{
    for (int i = 0; i < LEDGER_SLOTS; i++) {
        const struct ledger_slot *slot = &ledger->file->slots[i];

        if (atomic_load(&slot->state) == LEDGER_MEMBER && ledger_job_of(ledger, slot) == job)
            return true;
    }
    return false;
}

static void make_job(struct ledger_job *job, const char *name, uint64_t max)
{
    atomic_store(&job->max, max);
    atomic_store(&job->sum, 0);
    atomic_store(&job->given, 0);
    atomic_store(&job->waiting, 0);
    job->tickets = 0;
    strncpy(job->name, name, LEDGER_NAME - 1);
    job->name[LEDGER_NAME - 1] = '\0';
}

struct ledger_job *ledger_find_job(struct ledger *ledger, const char *name, uint64_t max, bool make)
{
    struct ledger_job *jobs = ledger->file->jobs, *unused = NULL;

    for (int i = 0; i < LEDGER_JOBS; i++) {
        if (!strncmp(jobs[i].name, name, LEDGER_NAME - 1))
            return &jobs[i];
        if (!unused && !jobs[i].name[0])
            unused = &jobs[i];
    }
    for (int i = 0; make && !unused && i < LEDGER_JOBS; i++) {
        if (!is_used(ledger, &jobs[i]))
            unused = &jobs[i];
    }
    if (!make || !unused)
        return NULL;
    make_job(unused, name, max);
    return unused;
}

/* ---- slots ---- */

static void wipe(struct ledger_slot *slot)
{
    const uint32_t wanted = atomic_load(&slot->wanted);

    atomic_store(&slot->state, LEDGER_FREE);
    memset((void *)((char *)slot + sizeof slot->state), 0, sizeof *slot - sizeof slot->state);
    atomic_store(&slot->wanted, wanted); /* a new owner begins where the last one ended */
    atomic_store(&slot->answered, wanted);
}

void ledger_recount(struct ledger *ledger)
{
    uint64_t sums[LEDGER_JOBS] = {0}, waiting[LEDGER_JOBS] = {0};
    int others = 0;

    for (int i = 0; i < LEDGER_SLOTS; i++) {
        struct ledger_slot *slot = &ledger->file->slots[i];
        const struct ledger_job *job = ledger_job_of(ledger, slot);

        if (atomic_load(&slot->state) == LEDGER_FREE)
            continue;
        const bool alive = ledger_alive(ledger, i);
        others += alive && i != ledger->slot;
        if (!alive) {
            wipe(slot);
        } else if (job) {
            const ptrdiff_t number = job - ledger->file->jobs;

            if (__builtin_add_overflow(sums[number], atomic_load(&slot->lease), &sums[number]))
                sums[number] = UINT64_MAX;
            waiting[number] += atomic_load(&slot->ticket) != 0;
        }
    }
    for (int i = 0; i < LEDGER_JOBS; i++) {
        atomic_store(&ledger->file->jobs[i].sum, sums[i]);
        atomic_store(&ledger->file->jobs[i].waiting, waiting[i]);
    }
    if (others == 0) /* the driver or its settings may have changed since */
        atomic_store(&ledger->file->context_bytes, 0);
    ledger->dirty = false;
}

int ledger_claim(struct ledger *ledger, uint32_t state)
{
    int rc = take_slot(ledger, 0);

    if (rc)
        return rc;
    /* What a dead owner left is counted until the lock is ours, and then wiped. */
    if ((rc = ledger_lock(ledger)))
        return rc;
    wipe(&ledger->file->slots[ledger->slot]);
    ledger_recount(ledger);
    ledger->state = state;
    enter(ledger);
    ledger_unlock(ledger);
    return 0;
}

static void read_command(char command[LEDGER_COMMAND])
{
    const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? -1 : read(fd, command, LEDGER_COMMAND - 1);

    if (fd >= 0)
        close(fd);
    command[got > 0 ? got : 0] = '\0';
    for (ssize_t i = 0; i + 1 < got; i++) {
        if (command[i] == '\0')
            command[i] = ' ';
    }
}

static uint64_t boottime_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

int ledger_join(struct ledger *ledger, const char *job, uint64_t max)
{
    int rc = ledger_claim(ledger, LEDGER_MEMBER);

    if (rc || (rc = ledger_lock(ledger)))
        return rc;
    struct ledger_slot *slot = &ledger->file->slots[ledger->slot];
    slot->started = boottime_ns();
    atomic_store(&slot->limit, max);
    read_command(slot->command);
    if (job) {
        ledger->job = ledger_find_job(ledger, job, max, true);
        rc = ledger->job ? 0 : -ENOSPC;
    }
    enter(ledger);
    ledger_unlock(ledger);
    return rc;
}

/* ---- leases ---- */

static uint64_t room_of(const struct ledger_job *job)
{
    const uint64_t max = atomic_load(&job->max), sum = atomic_load(&job->sum);

    return max == LEDGER_UNLIMITED ? LEDGER_UNLIMITED : max > sum ? max - sum : 0;
}

static void set_lease(struct ledger *ledger, uint64_t lease)
{
    const uint64_t sum = atomic_load(&ledger->job->sum);
    const uint64_t others = sum > ledger->lease ? sum - ledger->lease : 0;

    atomic_store(&ledger->file->slots[ledger->slot].lease, lease);
    ledger->lease = lease;
    atomic_store(&ledger->job->sum, others > UINT64_MAX - lease ? UINT64_MAX : others + lease);
}

int ledger_raise(struct ledger *ledger, uint64_t least, uint64_t spare)
{
    const uint64_t room = room_of(ledger->job);

    if (least <= ledger->lease)
        return 0;
    const uint64_t more = least - ledger->lease;
    if (more > room || spare > room - more)
        return -ENOMEM;
    const uint64_t extra = (room - more - spare) / EXTRA_PART;
    set_lease(ledger, least + ((extra < EXTRA_MAX ? extra : EXTRA_MAX) & ~(PAGE - 1)));
    return 0;
}

int ledger_extend_beside(struct ledger *ledger, uint64_t least, uint64_t spare)
{
    if (!ledger->job)
        return 0;
    int rc = ledger_lock(ledger);
    if (rc)
        return rc;
    rc = ledger_raise(ledger, least, spare);
    if (rc) {
        ledger_recount(ledger); /* somebody may have died */
        rc = ledger_raise(ledger, least, spare);
    }
    ledger_unlock(ledger);
    return rc;
}

int ledger_extend(struct ledger *ledger, uint64_t least)
{
    return ledger_extend_beside(ledger, least, 0);
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
        ledger_rouse(&ledger->file->freed);
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
