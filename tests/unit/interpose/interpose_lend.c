/* lend: idle memory for other processes of the job and of the card, with the real account and a real ledger.
 * The neighbour is a second entry of the ledger in this process; pools and driver are the test's own. */
#include "interpose/lend.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/account/drivers_pools.h"
#include "interpose/base/clock.h"
#include "interpose/base/thread.h"
#include "interpose/library.h"
#include "interpose/nudge.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "interpose/recorded.h"
#include "interpose/see/events.h"
#include "interpose/see/owner.h"
#include "ledger_support.h"
#include "log_fake.h"

#define PAGE    LIMIT_PAGE
#define LIMIT   (100 * PAGE)
#define TOTAL   (200 * PAGE)
#define CONTEXT (10 * PAGE)
#define HERE    ((CUcontext)0x100)

static struct device card; /* a new number in each test, as each has a thread of its own */
static struct ledger *neighbour;
static struct pool the_pool;
static struct options options;
static atomic_uint_fast64_t truth, idle, drivers_idle;
static atomic_uint_fast64_t stuck, drivers_stuck; /* idle, too, but cannot go back */
static atomic_int pushed, followed;
static int cards;
static pthread_t thread;
static bool is_listening;

/* ---- the rest of the library ---- */

_Thread_local uint16_t owner_current;

const struct options *library_options(void)
{
    return &options;
}

static struct recording_event noted[4];
static atomic_int noted_count;

void events_publish(struct recording_event *slot)
{
    const int place = atomic_load(&noted_count); /* one thread at a time notes events */

    TEST_ASSERT_LESS_THAN_INT(4, place);
    noted[place] = *slot;
    atomic_store(&noted_count, place + 1);
}

void recorded_serve(const char *folder)
{
    (void)folder;
}

static atomic_int nudges;
static _Atomic uint64_t nudged; /* bytes asked of Python */
static uint64_t nudge_frees;    /* what it then leaves idle */

bool nudge_python(int ordinal, uint64_t bytes)
{
    TEST_ASSERT_EQUAL_INT(card.ordinal, ordinal);
    nudges++;
    nudged += bytes;
    atomic_fetch_add(&idle, nudge_frees);
    return nudge_frees;
}

static bool captures, cancellable; /* when it was last asked */

static bool is_cancellable(void)
{
    int state, disabled;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_setcancelstate(state, &disabled);
    return state == PTHREAD_CANCEL_ENABLE;
}

bool capture_any(void)
{
    cancellable = is_cancellable();
    return captures;
}

static bool no_threads;

bool thread_start(void *(*run)(void *argument), void *argument)
{
    is_listening = !no_threads && pthread_create(&thread, NULL, run, argument) == 0;
    return is_listening;
}

bool device_is_unlimited(const struct device *device)
{
    (void)device;
    return false;
}

void device_follow_job(struct device *device)
{
    (void)device;
    atomic_fetch_add(&followed, 1);
}

struct device *device_listed(CUdevice ordinal)
{
    return ordinal == card.ordinal ? &card : NULL;
}

void device_each_listed(void (*visit)(struct device *device))
{
    (void)visit;
}

static unsigned answer_us; /* how long the driver takes to say what is free */

int device_free_bytes(struct device *device, uint64_t *bytes)
{
    (void)device;
    usleep(answer_us);
    *bytes = TOTAL - atomic_load(&truth);
    return 0;
}

int measure_used(struct measure_card *measured, uint64_t *bytes)
{
    (void)measured;
    *bytes = atomic_load(&truth);
    return 0;
}

int measure_all(struct measure_card *measured, uint64_t *bytes)
{
    return measure_used(measured, bytes);
}

uint64_t pools_sum(CUdevice ordinal, uint64_t wanted, uint64_t (*of)(struct pool *pool, uint64_t missing))
{
    TEST_ASSERT_EQUAL_INT(card.ordinal, ordinal);
    return of(&the_pool, wanted);
}

uint64_t pools_idle_on(CUdevice ordinal)
{
    return ordinal == card.ordinal ? atomic_load(&idle) + atomic_load(&stuck) + atomic_load(&drivers_idle)
                                   : 0;
}

uint64_t pools_reclaimable(CUdevice ordinal)
{
    return ordinal == card.ordinal ? atomic_load(&idle) : 0;
}

uint64_t drivers_pools_idle_on(CUdevice ordinal)
{
    return ordinal == card.ordinal ? atomic_load(&drivers_idle) + atomic_load(&drivers_stuck) : 0;
}

static bool swept;

void pool_sweep(struct pool *pool)
{
    TEST_ASSERT_EQUAL_PTR(&the_pool, pool);
    TEST_ASSERT_EQUAL_INT(1, atomic_load(&pushed));
    swept = true;
}

static uint64_t give(atomic_uint_fast64_t *from, uint64_t bytes)
{
    const uint64_t held = atomic_load(from), given = bytes < held ? bytes : held;

    atomic_fetch_sub(from, given);
    atomic_fetch_sub(&truth, given);
    account_give(&card.account, given, false);
    return given;
}

uint64_t pool_trim(struct pool *trimmed, uint64_t bytes)
{
    TEST_ASSERT_EQUAL_PTR(&the_pool, trimmed);
    TEST_ASSERT_EQUAL_INT(1, atomic_load(&pushed)); /* its context is current */
    TEST_ASSERT_TRUE(swept);                        /* what moved chunks left behind goes first */
    swept = false;
    return give(&idle, bytes);
}

uint64_t drivers_pools_give(CUdevice ordinal)
{
    TEST_ASSERT_EQUAL_INT(card.ordinal, ordinal);
    return give(&drivers_idle, UINT64_MAX);
}

bool drivers_pools_trim(CUdevice ordinal)
{
    return drivers_pools_give(ordinal) != 0;
}

uint64_t drivers_pools_held(CUdevice ordinal)
{
    (void)ordinal;
    return atomic_load(&drivers_idle);
}

static CUresult push(CUcontext context)
{
    TEST_ASSERT_EQUAL_PTR(HERE, context);
    atomic_fetch_add(&pushed, 1);
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *context)
{
    *context = HERE;
    atomic_fetch_sub(&pushed, 1);
    return CUDA_SUCCESS;
}

static int measure(void *context, uint64_t *bytes)
{
    (void)context;
    *bytes = atomic_load(&truth);
    return 0;
}

void setUp(void)
{
    test_begin();
    memset(&card, 0, sizeof(card));
    card.ordinal = cards++;
    card.total = TOTAL;
    card.limit = LIMIT;
    card.ledger = test_join(JOB, LIMIT);
    neighbour = test_join(JOB, LIMIT);
    account_init(&card.account, LIMIT, 0, measure, &card);
    card.account.ledger = card.ledger;
    options = (struct options){.wait = 0};
    atomic_store(&truth, CONTEXT);
    atomic_store(&idle, 0);
    atomic_store(&drivers_idle, 0);
    atomic_store(&stuck, 0);
    atomic_store(&drivers_stuck, 0);
    atomic_store(&events_on, false);
    atomic_store(&noted_count, 0);
    swept = captures = no_threads = false;
    nudged = nudge_frees = 0;
    nudges = 0;
    answer_us = 0;
    log_fake_clear();
    the_pool = (struct pool){.ordinal = card.ordinal, .context = HERE};
    driver.cuCtxPushCurrent_v2 = push;
    driver.cuCtxPopCurrent_v2 = pop;
}

void tearDown(void)
{
    if (is_listening) {
        ledger_wake(card.ledger);
        pthread_join(thread, NULL);
    }
    is_listening = false;
    TEST_ASSERT_EQUAL_INT(0, atomic_load(&pushed));
    TEST_ASSERT_TRUE(is_cancellable());
    test_end();
}

/* Takes memory, of which so much is idle in our pool and in the driver's. */
static void hold(uint64_t bytes, uint64_t ours, uint64_t drivers)
{
    TEST_ASSERT_TRUE(account_take(&card.account, bytes));
    atomic_fetch_add(&truth, bytes);
    account_settle(&card.account, bytes, true, false);
    atomic_store(&idle, ours);
    atomic_store(&drivers_idle, drivers);
    TEST_ASSERT_EQUAL_UINT64(CONTEXT + bytes, account_settle_lease(&card.account));
}

static uint32_t questions(const struct ledger *ledger)
{
    return atomic_load(&ledger->file->slots[ledger->slot].wanted);
}

static uint64_t lent(void)
{
    struct ledger_entry entry;

    TEST_ASSERT_TRUE(ledger_read(neighbour, card.ledger->slot, &entry));
    return entry.lent;
}

/* ---- the lender ---- */

static void test_a_neighbour_gets_what_it_asks_for_and_no_more(void)
{
    const struct ledger_slot *slot = &neighbour->file->slots[card.ledger->slot];

    hold(LIMIT - CONTEXT, 20 * PAGE, 8 * PAGE);
    atomic_store(&stuck, 3 * PAGE);
    atomic_store(&card.own, 77 * PAGE);
    lend_start(&card);
    TEST_ASSERT_EQUAL_INT(-ENOMEM, ledger_extend_beside(neighbour, PAGE, 0));
    const int before = atomic_load(&followed);
    TEST_ASSERT_TRUE(ledger_ask(neighbour, 4 * PAGE, 60000));
    TEST_ASSERT_GREATER_THAN_INT(before, atomic_load(&followed)); /* the job's max may be another now */
    TEST_ASSERT_EQUAL_UINT64(16 * PAGE, atomic_load(&idle));
    TEST_ASSERT_EQUAL_UINT64(8 * PAGE, atomic_load(&drivers_idle));
    TEST_ASSERT_EQUAL_UINT64(LIMIT - 4 * PAGE, ledger_lease(card.ledger));
    TEST_ASSERT_EQUAL_UINT64(4 * PAGE, lent());
    TEST_ASSERT_EQUAL_UINT64((16 + 3 + 8) * PAGE, atomic_load(&slot->cached));
    TEST_ASSERT_EQUAL_UINT64((16 + 8) * PAGE, atomic_load(&slot->lendable));
    TEST_ASSERT_EQUAL_UINT64(8 * PAGE, atomic_load(&slot->unsure));
    TEST_ASSERT_EQUAL_UINT64(77 * PAGE, atomic_load(&slot->limit));
    TEST_ASSERT_EQUAL_INT(0, nudges);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend_beside(neighbour, 4 * PAGE, 0));
    TEST_ASSERT_TRUE(ledger_ask(neighbour, 30 * PAGE, 60000)); /* more than there is */
    TEST_ASSERT_EQUAL_UINT64((30 - 16 - 8) * PAGE, nudged);
    TEST_ASSERT_EQUAL_UINT64(0, atomic_load(&idle) + atomic_load(&drivers_idle));
    TEST_ASSERT_EQUAL_UINT64(28 * PAGE, lent());
    TEST_ASSERT_FALSE(ledger_ask(neighbour, PAGE, 60000)); /* it has answered: nothing */
}

/* Python empties PyTorch's cache, of which no more is lent than was missing. */
static void test_what_python_frees_is_lent(void)
{
    hold(LIMIT - CONTEXT, 4 * PAGE, 0);
    nudge_frees = 20 * PAGE;
    lend_start(&card);
    TEST_ASSERT_TRUE(ledger_ask(neighbour, 10 * PAGE, 60000));
    TEST_ASSERT_EQUAL_UINT64(10 * PAGE, lent());
    TEST_ASSERT_EQUAL_UINT64(14 * PAGE, atomic_load(&idle));
}

/* Before its first context a process answers, and calls no driver. */
static void test_without_a_context_nothing_is_lent(void)
{
    hold(PAGE, PAGE, 0);
    lend_listen(&card);
    TEST_ASSERT_FALSE(ledger_ask(neighbour, PAGE, 60000));
    TEST_ASSERT_EQUAL_UINT64(PAGE, atomic_load(&idle));
}

/* What it has leased beyond that goes back. */
static void test_without_a_context_a_question_lowers_the_lease(void)
{
    TEST_ASSERT_TRUE(account_take(&card.account, 3 * PAGE));
    account_settle(&card.account, 3 * PAGE, true, false);
    const uint64_t used = account_known(&card.account);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(card.ledger, used + 5 * PAGE));
    lend_listen(&card);
    ledger_ask(neighbour, PAGE, 60000);
    TEST_ASSERT_EQUAL_UINT64(used, ledger_lease(card.ledger));
}

/* Such a process may hold handles. Its thread does not lend, so a free lowers the lease at once. */
static void test_without_a_context_a_free_lowers_the_lease(void)
{
    hold(30 * PAGE, 0, 0);
    account_give(&card.account, 20 * PAGE, false);
    atomic_fetch_sub(&truth, 20 * PAGE);
    TEST_ASSERT_EQUAL_UINT64(CONTEXT + 30 * PAGE, ledger_lease(card.ledger));
    lend_freed(&card);
    TEST_ASSERT_EQUAL_UINT64(CONTEXT + 10 * PAGE, ledger_lease(card.ledger));
}

/* A free is lent at once while a process of the job waits, and costs nothing while none does. */
static void test_a_free_is_told_only_if_another_waits(void)
{
    hold(30 * PAGE, 10 * PAGE, 0);
    lend_start(&card);
    const uint32_t before = questions(card.ledger);

    lend_freed(&card);
    lend_freed(NULL);
    TEST_ASSERT_EQUAL_UINT32(before, questions(card.ledger));
    atomic_store(&card.ledger->job->waiting, 1);
    lend_freed(&card);
    TEST_ASSERT_NOT_EQUAL(before, questions(card.ledger));
    while (atomic_load(&idle)) /* until the thread has lent all of it */
        usleep(1000);
}

static void test_a_free_of_a_job_above_its_high_gives_back_what_is_above(void)
{
    hold(30 * PAGE, 10 * PAGE, 0);
    lend_start(&card);
    const uint32_t before = questions(card.ledger);
    atomic_store(&card.ledger->job->high, CONTEXT + 25 * PAGE);
    lend_freed(&card);
    TEST_ASSERT_NOT_EQUAL(before, questions(card.ledger));
    while (atomic_load(&idle) != 5 * PAGE) /* until the thread has given that back */
        usleep(1000);
}

/* A stream executes a free after the call, soon or much later, and no process waits and reminds this one. */
static void test_what_a_stream_frees_late_goes_back_while_the_job_is_above_its_high(void)
{
    hold(30 * PAGE, 0, 0);
    lend_start(&card);
    atomic_store(&card.ledger->job->high, CONTEXT + 25 * PAGE);
    const uint32_t before = questions(card.ledger);
    lend_freed_somewhere();
    TEST_ASSERT_NOT_EQUAL(before, questions(card.ledger));
    for (int i = 0; i < 2; i++) {
        usleep(i ? 300000 : 5000);
        atomic_store(&drivers_idle, (2 + 6 * (unsigned)i) * PAGE);
        while (atomic_load(&drivers_idle)) /* until the thread has given that back */
            usleep(1000);
    }
}

static void test_a_process_without_the_thread_says_what_that_means(void)
{
    no_threads = true;
    lend_start(&card);
    TEST_ASSERT_EQUAL_STRING("no thread can be started: this process lends no memory to others, and answers "
                             "no command of gpucap\n",
                             log_fake_errors);
}

/* ---- the borrower ---- */

static struct loan loan_of(uint64_t need)
{
    return (struct loan){.device = &card, .need = need, .missing = account_short_to_take};
}

/* If our own live memory leaves too little of the limit, no loan helps, and no process is asked for one. */
static void test_what_can_never_fit_is_asked_of_nobody(void)
{
    static const uint64_t needs[] = {LIMIT - CONTEXT - 9 * PAGE, LIMIT + PAGE, UINT64_MAX,
                                     UINT64_MAX - CONTEXT};
    const uint32_t before = questions(neighbour);

    hold(20 * PAGE, 10 * PAGE, 0);
    atomic_store(&stuck, 5 * PAGE);
    for (int i = 0; i < 4; i++) {
        struct loan loan = loan_of(needs[i]);

        TEST_ASSERT_FALSE(lend_more(&loan));
        lend_end(&loan);
    }
    TEST_ASSERT_EQUAL_UINT32(before, questions(neighbour));
    TEST_ASSERT_EQUAL_UINT64(0, card.account.awaited);
    struct loan loan = loan_of(LIMIT - CONTEXT - 10 * PAGE); /* fits once our idle memory is given back */
    atomic_store(&events_on, true);
    TEST_ASSERT_FALSE(lend_more(&loan)); /* and as long as it is not, there is nothing to wait for */
    TEST_ASSERT_EQUAL_INT(0, atomic_load(&noted_count));
    lend_end(&loan);
    TEST_ASSERT_NOT_EQUAL(before, questions(neighbour));
}

static uint64_t asked_for;

static void *lend_all(void *unused)
{
    uint64_t bytes;

    (void)unused;
    if (ledger_listen(neighbour, &bytes)) {
        asked_for = bytes;
        ledger_settle(neighbour, 0);
        ledger_note_lent(neighbour, bytes);
        ledger_answer(neighbour);
    }
    return NULL;
}

static void *give_nothing(void *unused)
{
    uint64_t bytes;

    (void)unused;
    while (ledger_listen(neighbour, &bytes))
        ledger_answer(neighbour);
    return NULL;
}

static void test_what_is_missing_is_asked_of_the_neighbour(void)
{
    struct loan loan = loan_of(LIMIT - CONTEXT); /* just fits */
    pthread_t lender;

    account_view(&card.account);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend_beside(neighbour, 40 * PAGE, 0));
    ledger_settle(neighbour, 40 * PAGE);
    TEST_ASSERT_FALSE(account_take(&card.account, loan.need));
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&lender, NULL, lend_all, NULL));
    TEST_ASSERT_TRUE(lend_more(&loan));
    pthread_join(lender, NULL);
    TEST_ASSERT_EQUAL_UINT64(40 * PAGE, asked_for); /* and no more */
    TEST_ASSERT_TRUE(account_take(&card.account, loan.need));
    account_settle(&card.account, loan.need, false, false);
    lend_end(&loan);
}

/* All processes of this test are this one; gives one of them another number. */
static void set_pid(const struct ledger *ledger, pid_t pid)
{
    ledger->file->slots[ledger->slot].pid = pid;
}

static void test_a_recording_says_who_lent_how_much_for_a_request(void)
{
    struct loan loan = loan_of(LIMIT - CONTEXT);
    pthread_t lender;

    account_view(&card.account);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend_beside(neighbour, 40 * PAGE, 0));
    ledger_settle(neighbour, 40 * PAGE);
    ledger_note_lent(neighbour, 7 * PAGE); /* for an earlier request */
    set_pid(neighbour, getpid() + 1);
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&lender, NULL, lend_all, NULL));
    atomic_store(&events_on, true);
    TEST_ASSERT_TRUE(lend_more(&loan));
    pthread_join(lender, NULL);
    lend_end(&loan);
    TEST_ASSERT_EQUAL_INT(1, atomic_load(&noted_count));
    TEST_ASSERT_EQUAL_UINT16(RECORDING_BORROW, noted[0].head.type);
    TEST_ASSERT_EQUAL_UINT16(card.ordinal, noted[0].device);
    TEST_ASSERT_EQUAL_UINT64(40 * PAGE, noted[0].bytes);
    TEST_ASSERT_EQUAL_UINT64(getpid() + 1, noted[0].other);
}

static void test_a_recording_says_what_was_lent_to_whom(void)
{
    hold(LIMIT - CONTEXT, 20 * PAGE, 0);
    set_pid(neighbour, getpid() + 1);
    lend_start(&card);
    atomic_store(&events_on, true);
    TEST_ASSERT_TRUE(ledger_ask(neighbour, 4 * PAGE, 60000));
    TEST_ASSERT_EQUAL_INT(1, atomic_load(&noted_count));
    TEST_ASSERT_EQUAL_UINT16(RECORDING_LEND, noted[0].head.type);
    TEST_ASSERT_EQUAL_UINT64(4 * PAGE, noted[0].bytes);
    TEST_ASSERT_EQUAL_UINT64(getpid() + 1, noted[0].other);
}

/* Not itself, and no process of another job. */
static void test_who_waits_for_long_is_told_which_process_of_the_job_holds_most(void)
{
    struct ledger *little = test_join(JOB, LIMIT), *other = test_join("other", LIMIT);

    ledger_publish_used(card.ledger, 80 * PAGE);
    ledger_publish_used(neighbour, 40 * PAGE);
    ledger_publish_used(little, PAGE);
    ledger_publish_used(other, 90 * PAGE);
    set_pid(neighbour, getpid() + 1);
    lend_listen(&card);
    card.ledger->notice(card.ledger->notice_argument, 5 * PAGE);
    char expected[128];
    snprintf(expected, sizeof(expected),
             "waiting for 10M on device %d; process %ld of the same job holds 80M\n", card.ordinal,
             (long)getpid() + 1);
    TEST_ASSERT_EQUAL_STRING(expected, log_fake_errors);
}

static void test_a_wait_in_vain_leaves_nothing_awaited(void)
{
    struct loan loan = loan_of(LIMIT - CONTEXT);

    options.wait = 0.002; /* the clock of the wait counts whole milliseconds */
    atomic_store(&events_on, true);
    account_view(&card.account);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend_beside(neighbour, 40 * PAGE, 0));
    TEST_ASSERT_FALSE(lend_more(&loan));
    lend_end(&loan);
    TEST_ASSERT_EQUAL_UINT64(0, card.account.awaited);
    TEST_ASSERT_EQUAL_INT(1, atomic_load(&noted_count));
    TEST_ASSERT_EQUAL_UINT16(RECORDING_WAIT, noted[0].head.type);
    TEST_ASSERT_EQUAL_UINT64(loan.need, noted[0].bytes);
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(1000000, noted[0].other); /* nanoseconds */
}

/* Returns how often a request for what the neighbour has idle is worth another try, without `wait`. */
static int tries_for(const struct ledger_figures *figures)
{
    struct loan loan = loan_of(LIMIT - CONTEXT);
    int tries = 0;

    ledger_publish(neighbour, figures);
    while (lend_more(&loan))
        tries++;
    lend_end(&loan);
    return tries;
}

static void test_what_the_others_cannot_give_back_is_not_waited_for(void)
{
    const uint64_t held = 40 * PAGE;
    pthread_t other;

    account_view(&card.account);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend_beside(neighbour, held, 0));
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&other, NULL, give_nothing, NULL));
    const int known = tries_for(&(struct ledger_figures){.used = held, .cached = held});
    /* Of the driver's pools a process does not know it. A moment is enough there. */
    const int unknown = tries_for(&(struct ledger_figures){.used = held, .lendable = held, .unsure = held});
    const uint64_t began = clock_ms();
    tries_for(&(struct ledger_figures){.used = held, .lendable = held});
    const uint64_t behind_work = clock_ms() - began;
    const int above = tries_for(&(struct ledger_figures){.used = 2 * LIMIT});
    ledger_wake(neighbour);
    pthread_join(other, NULL);
    TEST_ASSERT_EQUAL_INT(0, known);
    TEST_ASSERT_EQUAL_INT(2, unknown);
    TEST_ASSERT_EQUAL_INT(0, above);
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(2000, behind_work);
}

static void test_what_this_process_has_in_the_drivers_pools_is_not_waited_for_either(void)
{
    struct loan loan = loan_of(LIMIT / 2 - CONTEXT);
    int tries = 0;
    pthread_t other;

    hold(LIMIT / 2 - CONTEXT, 0, 0); /* with the neighbour's the request lacks that much */
    atomic_store(&drivers_stuck, LIMIT / 2 - CONTEXT);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend_beside(neighbour, LIMIT / 4, 0));
    ledger_publish(neighbour, &(struct ledger_figures){.used = LIMIT / 4});
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&other, NULL, give_nothing, NULL));
    while (lend_more(&loan))
        tries++;
    lend_end(&loan);
    ledger_wake(neighbour);
    pthread_join(other, NULL);
    TEST_ASSERT_EQUAL_INT(2, tries);
}

static void test_beside_a_capture_no_request_waits(void)
{
    struct loan loan = loan_of(LIMIT - CONTEXT);
    struct lend_wait wait = {.until = 0};

    options.wait = 600;
    captures = true;
    account_view(&card.account);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend_beside(neighbour, 40 * PAGE, 0));
    TEST_ASSERT_FALSE(lend_more(&loan));
    TEST_ASSERT_FALSE(cancellable); /* a thread that waits would stay in the queue */
    lend_end(&loan);
    TEST_ASSERT_FALSE(lend_wait_on_card(&wait, card.ordinal, PAGE));
}

static void *free_when_waited_for(void *unused)
{
    uint64_t bytes;

    (void)unused;
    if (ledger_listen(neighbour, &bytes))
        ledger_answer(neighbour);
    while (!ledger_is_waited_for(neighbour))
        usleep(1000);
    ledger_settle(neighbour, 0);
    return NULL;
}

/* A thread that was cancelled meanwhile would leave it kept, and the lease would never be lowered again. */
static void test_what_was_waited_for_is_kept_for_a_thread_that_is_not_cancelled(void)
{
    struct loan loan = loan_of(LIMIT - CONTEXT);
    pthread_t other;

    options.wait = 600;
    account_view(&card.account);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend_beside(neighbour, 40 * PAGE, 0));
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&other, NULL, free_when_waited_for, NULL));
    TEST_ASSERT_TRUE(lend_more(&loan));
    pthread_join(other, NULL);
    TEST_ASSERT_EQUAL_UINT64(loan.need, card.account.awaited);
    TEST_ASSERT_FALSE(is_cancellable());
    lend_end(&loan);
    TEST_ASSERT_EQUAL_UINT64(0, card.account.awaited);
    TEST_ASSERT_TRUE(is_cancellable());
}

/* What was kept for it after a wait is so for one try. */
static void test_each_try_ends_the_wait_before_it(void)
{
    struct loan loan = loan_of(PAGE);

    account_view(&card.account);
    TEST_ASSERT_EQUAL_INT(0, account_wait_for_budget(&card.account, PAGE, 1));
    loan.waited = true;
    lock_disable_cancel(); /* as after a wait */
    TEST_ASSERT_TRUE(lend_more(&loan));
    TEST_ASSERT_EQUAL_UINT64(0, card.account.awaited);
    lend_end(&loan);
    TEST_ASSERT_EQUAL_UINT64(0, card.account.awaited);
}

/* There is room, and still the request fails: the budget is not what is short. */
static void test_a_request_that_was_not_denied_is_not_tried_for_ever(void)
{
    struct loan loan = loan_of(PAGE);

    account_view(&card.account);
    TEST_ASSERT_FALSE(account_take(&card.account, 2 * LIMIT)); /* another one was denied before */
    TEST_ASSERT_TRUE(lend_more(&loan));
    TEST_ASSERT_FALSE(lend_more(&loan));
    lend_end(&loan);
}

/* On a busy machine others are faster again and again, and there is room each time that it is looked for. */
static void test_a_request_that_may_wait_does_so_when_others_were_faster_for_long(void)
{
    struct loan loan = loan_of(PAGE);

    options.wait = 600;
    account_view(&card.account);
    TEST_ASSERT_TRUE(lend_more(&loan));
    TEST_ASSERT_FALSE(loan.waited);
    loan.until = clock_ms();
    TEST_ASSERT_FALSE(account_take(&card.account, 2 * LIMIT)); /* denied */
    TEST_ASSERT_TRUE(lend_more(&loan));
    TEST_ASSERT_TRUE(loan.waited);
    lend_end(&loan);
}

static void test_the_wait_for_a_full_card_has_one_end_for_all_tries(void)
{
    struct lend_wait wait = {.until = 1};

    options.wait = 60;
    TEST_ASSERT_FALSE(lend_wait_on_card(&wait, card.ordinal, PAGE));
    TEST_ASSERT_EQUAL_UINT64(1, wait.until);
}

/* The card has room each time, and the driver refuses all the same. The driver may be slow to answer. */
static void test_the_wait_for_a_full_card_ends_when_it_is_over_at_once_again_and_again(void)
{
    struct lend_wait wait = {.until = 0};
    int tries = 0;

    options.wait = 600;
    answer_us = 2000;
    while (lend_wait_on_card(&wait, card.ordinal, PAGE) && tries < 100)
        tries++;
    TEST_ASSERT_GREATER_THAN_INT(1, tries);
    TEST_ASSERT_LESS_THAN_INT(100, tries);
}

/* The card is full. Programs outside the ledger may free enough. */
static void test_idle_memory_of_the_drivers_pools_that_does_not_go_back_is_no_room_on_a_card(void)
{
    struct lend_wait wait = {.until = 0};

    options.wait = 0.01;
    hold(20 * PAGE, 0, 0);
    atomic_store(&truth, TOTAL);
    atomic_store(&drivers_stuck, 20 * PAGE);
    TEST_ASSERT_FALSE(lend_wait_on_card(&wait, card.ordinal, 10 * PAGE));
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(5, atomic_load(&ledger_own_slot(card.ledger)->waited_ms));
    wait = (struct lend_wait){.until = 0};
    options.wait = 600;
    atomic_store(&drivers_idle, 10 * PAGE);
    TEST_ASSERT_TRUE(lend_wait_on_card(&wait, card.ordinal, 10 * PAGE));
    TEST_ASSERT_EQUAL_UINT64(0, atomic_load(&drivers_idle));
}

/* How much a context takes is not known, so that any idle memory may help. */
static void test_for_a_context_others_are_asked_for_what_they_have(void)
{
    const uint32_t before = questions(neighbour);

    card.total = 4 * ACCOUNT_CONTEXT_GUESS;
    ledger_publish(neighbour, &(struct ledger_figures){.used = PAGE, .lendable = PAGE, .limit = LIMIT});
    lend_on_card(card.ordinal, 0);
    TEST_ASSERT_EQUAL_UINT32(before + 2, questions(neighbour)); /* what it has, and for that */
}

static void test_a_context_that_may_be_larger_than_the_card_is_not_waited_for(void)
{
    struct lend_wait wait = {.until = 0};

    options.wait = 600;
    card.total = ACCOUNT_CONTEXT_GUESS - PAGE;
    TEST_ASSERT_FALSE(lend_wait_on_card(&wait, card.ordinal, 0));
    card.total = 2 * ACCOUNT_CONTEXT_GUESS;
}

static void test_our_own_idle_memory_is_not_asked_of_others(void)
{
    uint64_t bytes;

    hold(20 * PAGE, 5 * PAGE, 0);
    atomic_store(&stuck, 2 * PAGE);
    ledger_publish(neighbour, &(struct ledger_figures){.used = TOTAL, .lendable = TOTAL, .limit = LIMIT});
    lend_on_card(card.ordinal, TOTAL - CONTEXT - 10 * PAGE);
    TEST_ASSERT_TRUE(ledger_listen(neighbour, &bytes));
    TEST_ASSERT_EQUAL_UINT64(5 * PAGE, bytes); /* 10 are missing on the card */
}

/* The whole card may be asked for, and not a page more. */
static void test_a_full_card_is_asked_for_no_more_than_it_has(void)
{
    const uint32_t before = questions(neighbour);
    pthread_t lender;

    TEST_ASSERT_FALSE(lend_on_card(card.ordinal, TOTAL + 1));
    TEST_ASSERT_FALSE(lend_on_card(card.ordinal + 1, PAGE));
    TEST_ASSERT_EQUAL_UINT32(before, questions(neighbour));
    ledger_publish(neighbour, &(struct ledger_figures){.used = TOTAL, .lendable = TOTAL, .limit = LIMIT});
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&lender, NULL, lend_all, NULL));
    lend_on_card(card.ordinal, TOTAL);
    TEST_ASSERT_NOT_EQUAL(before, questions(neighbour));
    pthread_join(lender, NULL);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_neighbour_gets_what_it_asks_for_and_no_more);
    RUN_TEST(test_what_python_frees_is_lent);
    RUN_TEST(test_without_a_context_nothing_is_lent);
    RUN_TEST(test_without_a_context_a_question_lowers_the_lease);
    RUN_TEST(test_without_a_context_a_free_lowers_the_lease);
    RUN_TEST(test_a_free_is_told_only_if_another_waits);
    RUN_TEST(test_a_free_of_a_job_above_its_high_gives_back_what_is_above);
    RUN_TEST(test_what_a_stream_frees_late_goes_back_while_the_job_is_above_its_high);
    RUN_TEST(test_a_process_without_the_thread_says_what_that_means);
    RUN_TEST(test_what_can_never_fit_is_asked_of_nobody);
    RUN_TEST(test_what_is_missing_is_asked_of_the_neighbour);
    RUN_TEST(test_a_recording_says_who_lent_how_much_for_a_request);
    RUN_TEST(test_a_recording_says_what_was_lent_to_whom);
    RUN_TEST(test_who_waits_for_long_is_told_which_process_of_the_job_holds_most);
    RUN_TEST(test_a_wait_in_vain_leaves_nothing_awaited);
    RUN_TEST(test_what_the_others_cannot_give_back_is_not_waited_for);
    RUN_TEST(test_what_this_process_has_in_the_drivers_pools_is_not_waited_for_either);
    RUN_TEST(test_beside_a_capture_no_request_waits);
    RUN_TEST(test_what_was_waited_for_is_kept_for_a_thread_that_is_not_cancelled);
    RUN_TEST(test_each_try_ends_the_wait_before_it);
    RUN_TEST(test_a_request_that_was_not_denied_is_not_tried_for_ever);
    RUN_TEST(test_a_request_that_may_wait_does_so_when_others_were_faster_for_long);
    RUN_TEST(test_the_wait_for_a_full_card_has_one_end_for_all_tries);
    RUN_TEST(test_the_wait_for_a_full_card_ends_when_it_is_over_at_once_again_and_again);
    RUN_TEST(test_idle_memory_of_the_drivers_pools_that_does_not_go_back_is_no_room_on_a_card);
    RUN_TEST(test_for_a_context_others_are_asked_for_what_they_have);
    RUN_TEST(test_a_context_that_may_be_larger_than_the_card_is_not_waited_for);
    RUN_TEST(test_our_own_idle_memory_is_not_asked_of_others);
    RUN_TEST(test_a_full_card_is_asked_for_no_more_than_it_has);
    return UNITY_END();
}
