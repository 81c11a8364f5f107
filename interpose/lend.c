/* lend: see lend.h. */
#include "interpose/lend.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "interpose/account/drivers_pools.h"
#include "interpose/base/clock.h"
#include "interpose/base/lock.h"
#include "interpose/base/process.h"
#include "interpose/base/sums.h"
#include "interpose/base/thread.h"
#include "interpose/library.h"
#include "interpose/nudge.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "interpose/recorded.h"
#include "interpose/see/owner.h"
#include "interpose/settings/log.h"

#define EXIT_PATIENCE_MS 1000 /* how long an exit waits for an answer in progress */
#define ASK_MS           200  /* for other processes' answers; giving back takes them about 10 ms/GiB more */
#define ASK_MS_PER_GIB   10
#define TRIES            4    /* others may take what was given: then the queue is the fair way */
#define RACE_MS          2000 /* for a request that the budget can hold while others take what is given */
#define VAIN_TURNS       2    /* turns of it in vain, for what only the driver's pools may give */
#define LONG_WAIT_MS     2000
#define CHECK_MS         1000 /* between two looks at whether the ledger is still there */
#define SOON_MS          64   /* the longest pause between two looks at memory that a stream frees */
#define TELL_MS          20   /* the shortest time between two frees of such memory that are reported */

static _Atomic(struct device *) listens[DEVICE_MAX]; /* NULL: there is no thread for the card */
static atomic_bool may_lend[DEVICE_MAX];             /* and it may call the driver */
static atomic_int listens_end;                       /* one more than the highest such card */
static atomic_int working;                           /* threads that may be in the driver */
static atomic_bool stopping;                         /* for good */

/* Gives idle memory of a pool back, at least `missing` bytes if it has that much. Returns how much. */
static uint64_t give_back(struct pool *pool, uint64_t missing)
{
    CUcontext before;

    if (driver.cuCtxPushCurrent_v2(pool->context) != CUDA_SUCCESS)
        return 0;
    pool_sweep(pool);
    const uint64_t given = pool_trim(pool, missing);
    driver.cuCtxPopCurrent_v2(&before);
    return given;
}

/* Returns what this process could give back on the card, if need be after a wait for work. Idle memory beside
 * a live block in the same chunk is not in it. */
static uint64_t lendable(const struct device *device)
{
    return pools_reclaimable(device->ordinal) + drivers_pools_idle_on(device->ordinal);
}

/* Measures what this process uses on the card, and lowers its lease to that. */
static uint64_t used_now(struct device *device)
{
    uint64_t used = 0;

    if (!device_is_unlimited(device))
        return account_settle_lease(&device->account);
    return measure_used(&device->card, &used) == 0 ? used : pools_idle_on(device->ordinal);
}

/* Gives idle memory back to the driver until `bytes` are given. Returns how much was given. */
static uint64_t give_idle(struct device *device, uint64_t bytes)
{
    uint64_t given = pools_sum(device->ordinal, bytes, give_back);

    if (given < bytes)
        given += drivers_pools_give(device->ordinal);
    if (given < bytes && nudge_python(device->ordinal, bytes - given))
        given += pools_sum(device->ordinal, bytes - given, give_back);
    return given;
}

/* Notes what was given back, follows the limit and publishes figures. */
static void conclude(struct device *device, uint64_t given)
{
    if (given) { /* before the lease goes down: others see then who has lent */
        ledger_note_lent(device->ledger, given);
        events_note_bytes(RECORDING_LEND, device->ordinal, given, (uint64_t)ledger_asker(device->ledger));
    }
    if (!device_is_unlimited(device))
        device_follow_job(device);
    const struct ledger_figures figures = {.used = used_now(device),
                                           .cached = pools_idle_on(device->ordinal),
                                           .limit = atomic_load(&device->own),
                                           .lendable = lendable(device),
                                           .unsure = drivers_pools_idle_on(device->ordinal)};
    ledger_publish(device->ledger, &figures);
}

/* Gives `bytes` of idle memory back, if there is that much, follows the limit and publishes figures. */
static void answer(struct device *device, uint64_t bytes)
{
    if (atomic_load(&may_lend[device->ordinal])) {
        conclude(device, bytes ? give_idle(device, bytes) : 0);
    } else if (!device_is_unlimited(device)) { /* no context, or its first is being made: asks no driver */
        device_follow_job(device);
        account_lower_lease(&device->account);
    }
}

/* Trims the driver's own pools, and publishes figures if they or graphs hold less than *held; updates it. */
static void give_drivers_own(struct device *device, uint64_t *held)
{
    const uint64_t given = capture_any() ? 0 : drivers_pools_give(device->ordinal);
    const uint64_t now = drivers_pools_held(device->ordinal);

    if (given || now < *held)
        conclude(device, given);
    *held = now;
}

/* Returns true if another process waits for memory, or the job is above its `high`. */
static bool is_wanted(const struct device *device)
{
    return ledger_is_waited_for(device->ledger) || ledger_above_high(device->ledger);
}

/* While memory is wanted, looks again after growing pauses, until a question comes or the pause exceeds
 * SOON_MS: a stream may execute a free long after the call, and lend_freed_somewhere does not report every
 * free. */
static void give_what_is_freed_soon(struct device *device)
{
    uint64_t held = UINT64_MAX; /* the first look publishes: the answer may have been too early */
    bool more = true;

    for (unsigned ms = 1; more && ms <= SOON_MS; ms *= 2) {
        more = !ledger_nap(device->ledger, ms) && is_wanted(device);
        atomic_fetch_add(&working, 1);
        more = more && !atomic_load(&stopping) && atomic_load(&may_lend[device->ordinal]);
        if (more)
            give_drivers_own(device, &held);
        atomic_fetch_sub(&working, 1);
    }
}

/* Says once that new processes no longer find this one. Those that share its budget go on doing so. */
static void check_ledger(const struct device *device)
{
    if (ledger_is_removed(device->ledger))
        LOG_ERROR_ONCE("the ledger of device %d was removed: programs that start now %s", device->ordinal,
                       ledger_shares(device->ledger) ? "get the job's whole max again; restart the job"
                                                     : "do not share it with this one");
}

/* Sleeps until there is a question. Returns false at the end of the process. Processes that wait remind this
 * one of what a stream frees late. No process reminds it of the job's `high`, so it looks by itself. */
static bool hear(struct device *device, uint64_t *bytes)
{
    while (!ledger_nap(device->ledger, CHECK_MS)) {
        check_ledger(device);
        if (ledger_above_high(device->ledger))
            give_what_is_freed_soon(device);
    }
    return ledger_listen(device->ledger, bytes);
}

/* stop() sets `stopping` and then reads `working`; here it is reversed, so that one sees the other. */
static void *serve(void *argument)
{
    struct device *device = argument;
    char folder[OPTIONS_PATH_MAX] = "";
    uint64_t bytes;

    ledger_folder(library_options()->ledger, folder, sizeof(folder));
    while (hear(device, &bytes)) {
        atomic_fetch_add(&working, 1);
        if (!atomic_load(&stopping))
            answer(device, bytes);
        if (bytes == 0 && !atomic_load(&stopping))
            recorded_serve(folder);
        atomic_fetch_sub(&working, 1);
        ledger_answer(device->ledger);
        if (__builtin_expect(is_wanted(device), 0))
            give_what_is_freed_soon(device);
    }
    return NULL;
}

static void wake(struct device *device)
{
    if (device->ledger)
        ledger_wake(device->ledger);
}

static void stop(void)
{
    if (process_is_copy())
        return;
    atomic_store(&stopping, true);
    device_each_listed(wake);
    for (int ms = 0; ms < EXIT_PATIENCE_MS && atomic_load(&working); ms++)
        clock_sleep(1000000);
}

/* Returns the other process of the job that uses most. */
static pid_t holder_of_most(const struct ledger *ledger, uint64_t *bytes)
{
    struct ledger_entry entry;
    pid_t pid = 0;

    *bytes = 0;
    for (int i = 0; i < LEDGER_SLOTS; i++) {
        if (ledger_read(ledger, i, &entry) && ledger_is_neighbour(ledger, i) && entry.used > *bytes) {
            *bytes = entry.used;
            pid = entry.pid;
        }
    }
    return pid;
}

static void say_long_wait(void *argument, uint64_t bytes)
{
    const struct device *device = argument;
    char wanted[SIZE_TEXT], held[SIZE_TEXT];
    uint64_t most;
    const pid_t pid = holder_of_most(device->ledger, &most);

    log_error("waiting for %s on device %d; process %ld of the same job holds %s", size_format(bytes, wanted),
              device->ordinal, (long)pid, size_format(most, held));
}

void lend_listen(struct device *device)
{
    if (!device->ledger || atomic_load(&listens[device->ordinal]) ||
        atomic_exchange(&listens[device->ordinal], device))
        return;
    int end = atomic_load(&listens_end);
    while (device->ordinal >= end && !atomic_compare_exchange_weak(&listens_end, &end, device->ordinal + 1))
        ;
    ledger_on_long_wait(device->ledger, say_long_wait, device);
    /* The others wait only a limited time for its answers. */
    if (!thread_start(serve, device))
        LOG_ERROR_ONCE("no thread can be started: this process lends no memory to others, and answers no "
                       "command of gpucap");
}

void lend_start(struct device *device)
{
    static atomic_flag registered = ATOMIC_FLAG_INIT;

    if (!device->ledger || atomic_load(&may_lend[device->ordinal]))
        return;
    if (!atomic_flag_test_and_set(&registered) && atexit(stop))
        return;
    atomic_store(&may_lend[device->ordinal], true);
    lend_listen(device);
}

/* Has the card's thread give back what another process or the job's `high` needs. */
static void lend_now(struct ledger *ledger)
{
    const uint64_t above = ledger_above_high(ledger);

    if (ledger_is_waited_for(ledger))
        ledger_ask_self(ledger, UINT64_MAX);
    else if (above)
        ledger_ask_self(ledger, above);
}

void lend_freed(struct device *device)
{
    if (!device || !device->ledger)
        return;
    /* Handles need no context, and without one the thread does not lend: this one does. */
    if (__builtin_expect(!atomic_load_explicit(&may_lend[device->ordinal], memory_order_relaxed), 0)) {
        if (ledger_shares(device->ledger))
            conclude(device, 0);
    } else if (__builtin_expect(ledger_is_needed(device->ledger), 0)) {
        lend_now(device->ledger);
    }
}

/* The same, at most once in TELL_MS, because each time the driver's pools are trimmed and the program must
 * fill them again. give_what_is_freed_soon finds what is freed in between. */
__attribute__((noinline)) static void lend_seldom(struct device *device)
{
    static _Atomic uint64_t told[DEVICE_MAX]; /* clock_ms */
    const uint64_t now = clock_ms();
    uint64_t last = atomic_load(&told[device->ordinal]);

    if (now - last >= TELL_MS && atomic_compare_exchange_strong(&told[device->ordinal], &last, now))
        lend_now(device->ledger);
}

void lend_freed_somewhere(void)
{
    const int end = atomic_load_explicit(&listens_end, memory_order_relaxed);

    for (int i = 0; i < end; i++) {
        struct device *device = atomic_load_explicit(&listens[i], memory_order_acquire);

        if (device && device->ledger && __builtin_expect(ledger_is_needed(device->ledger), 0))
            lend_seldom(device);
    }
}

static unsigned patience_ms(uint64_t bytes)
{
    return ASK_MS + (unsigned)(sums_smaller(bytes, UINT64_C(1) << 40) >> 30) * ASK_MS_PER_GIB;
}

/* Returns what this process uses on the card, minus what it could give back; `surely`: minus only what it
 * certainly can. What it has freed since the last measurement does not count, or a request that fits would be
 * refused. */
static uint64_t live_bytes(struct device *device, bool surely)
{
    const uint64_t idle = surely ? pools_reclaimable(device->ordinal) : lendable(device);
    const uint64_t used = device_is_unlimited(device) ? used_now(device) : account_known(&device->account);

    return sums_minus(used, idle);
}

/* Returns true if the job's budget could hold `need` if all its processes gave back what they have idle;
 * after some turns in vain, if they gave back what they certainly can. Call right after they were asked,
 * while their figures are fresh. */
static bool job_can_hold(const struct loan *loan)
{
    struct device *device = loan->device;
    const bool surely = loan->vain > VAIN_TURNS;
    const uint64_t own = live_bytes(device, surely);
    const uint64_t others = ledger_live_of_others(device->ledger, surely);
    const uint64_t max = ledger_max(device->ledger), reserve = device->account.state.reserve;

    return own <= max && others <= max - own && reserve <= max - own - others &&
           loan->need <= max - own - others - reserve;
}

/* Waits in the job's queue, in which requests are served in order: as long as the option `wait` says; without
 * it for a moment, while the budget can hold the request. Returns true if it is worth trying again. */
static bool stand_in_queue(struct loan *loan)
{
    const double wait = library_options()->wait;
    const uint64_t ms = wait > 0 ? (uint64_t)(wait * 1000) : LEDGER_BRIEF_MS;
    const uint64_t began = clock_ns();

    if (capture_any() || (wait <= 0 && (clock_ms() >= loan->until || !job_can_hold(loan))))
        return false;
    const int rc = account_wait_for_budget(&loan->device->account, loan->need, ms);
    loan->waited = rc == 0;
    /* What this process itself keeps is in the way. It has tried to give that back; others cannot help. */
    if (rc == -ENOMEM)
        return false;
    owner_note_bytes(RECORDING_WAIT, loan->device->ordinal, loan->need, clock_ns() - began);
    return loan->waited || wait <= 0;
}

/* What other processes have lent so far, by slot; for recordings. */
struct lenders {
    bool known;
    uint64_t lent[LEDGER_SLOTS];
};

static void read_lenders(const struct device *device, struct lenders *lenders)
{
    struct ledger_entry entry;

    lenders->known = events_are_on();
    for (int i = 0; lenders->known && i < LEDGER_SLOTS; i++)
        lenders->lent[i] = ledger_read(device->ledger, i, &entry) ? entry.lent : 0;
}

/* Notes for a recording which processes have given memory back since, and how much. */
static void note_lenders(const struct device *device, const struct lenders *before)
{
    struct ledger_entry entry;

    for (int i = 0; before->known && i < LEDGER_SLOTS; i++) {
        if (ledger_read(device->ledger, i, &entry) && entry.lent > before->lent[i] && entry.pid != getpid())
            owner_note_bytes(RECORDING_BORROW, device->ordinal, entry.lent - before->lent[i],
                             (uint64_t)entry.pid);
    }
}

static bool ask_neighbours(struct device *device, uint64_t missing)
{
    struct lenders before;

    read_lenders(device, &before);
    const bool given = ledger_ask(device->ledger, missing, patience_ms(missing));
    note_lenders(device, &before);
    return given;
}

/* Returns true if it is worth trying again although the limit leaves room: another thread or process may have
 * taken it meanwhile, or other jobs' guarantees may be in the way. If the account has denied nothing since
 * the last try, the budget is not what is short. */
static bool try_with_room(struct loan *loan)
{
    struct device *device = loan->device;
    const unsigned long denials = account_denials(&device->account);
    const bool again = !loan->had_room || denials != loan->denials;

    loan->had_room = true;
    loan->denials = denials;
    if (!again || !ledger_is_guarded(device->ledger))
        return again && (clock_ms() < loan->until || stand_in_queue(loan));
    return (loan->tries <= TRIES && lend_on_card(device->ordinal, loan->need)) ||
           lend_wait_on_card(&loan->wait, device->ordinal, loan->need);
}

static bool borrow(struct loan *loan)
{
    struct device *device = loan->device;
    const uint64_t missing = loan->missing(&device->account, loan->need);

    if (missing == 0)
        return try_with_room(loan);
    loan->had_room = false;
    if (!ledger_shares(device->ledger))
        return false;
    /* With `wait`, a wait in vain ends the tries. */
    if (loan->tries > TRIES && library_options()->wait > 0)
        return stand_in_queue(loan);
    const bool given = ask_neighbours(device, missing);
    loan->vain = given || ledger_is_owed(device->ledger) ? 0 : loan->vain + 1;
    return (given && loan->tries <= TRIES) || stand_in_queue(loan);
}

/* Returns true if the limit can hold `need` beside what this process has live: else no loan helps. */
static bool can_fit(struct device *device, uint64_t need)
{
    const uint64_t limit = atomic_load(&device->limit);

    return need <= limit && live_bytes(device, false) <= limit - need;
}

bool lend_more(struct loan *loan)
{
    struct device *device = loan->device;

    lend_end(loan);
    loan->waited = false;
    if (!device || !device->ledger || !(ledger_shares(device->ledger) || ledger_is_guarded(device->ledger)) ||
        !can_fit(device, loan->need))
        return false;
    if (loan->tries++ == 0)
        loan->until = clock_ms() + RACE_MS;
    lock_disable_cancel(); /* a cancelled thread would stay in the queue */
    const bool again = borrow(loan);
    if (!loan->waited) /* else at its end: what was kept for it would stay so */
        lock_restore_cancel();
    return again;
}

void lend_end(const struct loan *loan)
{
    if (!loan->waited)
        return;
    account_end_wait(&loan->device->account, loan->need);
    lock_restore_cancel();
}

/* Returns what the card lacks for `need` bytes beside what we could give back; `need` if not known. */
static uint64_t missing_on_card(struct device *device, uint64_t need)
{
    const uint64_t idle = lendable(device), kept = ledger_kept(device->ledger);
    uint64_t free_bytes;

    if (device_free_bytes(device, &free_bytes) || free_bytes >= need + kept)
        return need; /* free memory may be in pieces that do not serve */
    need += kept;    /* for other jobs, which will not lend it */
    return need - free_bytes > idle ? need - free_bytes - idle : need - free_bytes;
}

bool lend_on_card(CUdevice ordinal, uint64_t bytes)
{
    struct device *device = device_listed(ordinal);
    const uint64_t need = bytes ? limit_round(bytes) : ACCOUNT_CONTEXT_GUESS;

    if (!device || !device->ledger || need > device->total)
        return false;
    const uint64_t missing = missing_on_card(device, need);
    struct lenders before;
    read_lenders(device, &before);
    const bool given = ledger_ask_card(device->ledger, missing, bytes ? missing : 1, patience_ms(missing));
    note_lenders(device, &before);
    return given;
}

/* ---- waiting for a full card ---- */

/* A request that waits. */
struct need {
    struct device *device;
    uint64_t bytes;
    uint64_t say_at; /* clock_ms; 0: said */
    uint64_t looks;
};

/* Returns what programs outside the ledger hold on the card, as far as NVML names their processes. */
static uint64_t held_outside(struct device *device)
{
    uint64_t all;
    const uint64_t managed = ledger_managed(device->ledger);

    return measure_all(&device->card, &all) == 0 ? sums_minus(all, managed) : 0;
}

static void say_card_wait(struct need *need)
{
    char wanted[SIZE_TEXT], managed[SIZE_TEXT], outside[SIZE_TEXT];

    need->say_at = 0;
    log_error("waiting for %s on device %d: the card is full; programs under gpucap hold %s of it, others %s",
              size_format(need->bytes, wanted), need->device->ordinal,
              size_format(ledger_managed(need->device->ledger), managed),
              size_format(held_outside(need->device), outside));
}

/* See ledger_wait_card. What is idle in the driver's pools and does not go back now is no room: it may lie
 * beside live blocks. */
static int look_at_card(void *argument, uint64_t bytes)
{
    struct need *need = argument;
    struct device *device = need->device;

    if (!capture_any())
        drivers_pools_trim(device->ordinal);
    const uint64_t idle = pools_reclaimable(device->ordinal), live = live_bytes(device, false);
    const uint64_t kept = ledger_kept(device->ledger);
    uint64_t free_bytes;

    need->looks++;
    if (need->say_at && clock_ms() >= need->say_at)
        say_card_wait(need);
    if (device_free_bytes(device, &free_bytes) || bytes > device->total || live > device->total - bytes)
        return -ENOMEM;
    const uint64_t missing = sums_minus(bytes + kept, free_bytes + idle);
    if (missing == 0)
        return 0;
    return missing <= held_outside(device) ? -EAGAIN : -EBUSY;
}

bool lend_wait_on_card(struct lend_wait *wait, CUdevice ordinal, uint64_t bytes)
{
    struct device *device = device_listed(ordinal);
    const double seconds = library_options()->wait;
    struct need need = {.device = device, .bytes = bytes ? limit_round(bytes) : ACCOUNT_CONTEXT_GUESS};

    if (seconds <= 0 || !device || !device->ledger || capture_any())
        return false;
    const uint64_t now = clock_ms();
    if (!wait->until)
        wait->until = now + (uint64_t)(seconds * 1000);
    if (wait->until <= now || wait->vain > 2 * TRIES)
        return false;
    need.say_at = now + LONG_WAIT_MS;
    lock_disable_cancel(); /* a cancelled thread would stay in the queue */
    const int rc =
        ledger_wait_card(device->ledger, need.bytes, &wait->ticket, wait->until, look_at_card, &need);
    lock_restore_cancel();
    wait->vain = need.looks > 1 ? 0 : wait->vain + 1; /* one look that finds room ends the wait at once */
    return rc == 0;
}
