/* refusal: what is said, recorded and entered into the ledger about a refused request. Card, account, ledger,
 * pools and clock are the test's own; only the options are real. */
#include "interpose/refusal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/account/drivers_pools.h"
#include "interpose/base/process.h"
#include "interpose/library.h"
#include "interpose/pool/pool_apart.h"
#include "interpose/pool/pools.h"
#include "interpose/see/events.h"
#include "interpose/see/owner.h"
#include "interpose/see/recorder.h"
#include "log_fake.h"

#define MIB (UINT64_C(1) << 20)

static struct options options;
static struct device device;
static struct pool pools[2]; /* of card 0 and of card 1 */

/* What the rest of the library says. */
static struct fake {
    uint64_t ms;
    uint64_t room, used, short_to_grow, reclaimable, drivers_idle;
    uint64_t free_on_card;
    bool shares, job_binds, records, is_copy, unlimited;
    const char *path; /* of the recording; NULL: a short one */
    enum recording_limit kind;
    uint64_t unused, others, max, kept; /* unused: leases of the others, which use less */
} fake;

static struct {
    int notes, wakes;
    struct recording_event apart[RECORDING_APART_COUNT + 1], refusal;
    bool refused_first; /* the refusal was noted before all that belongs to it */
    int entries;        /* in the ledger */
    struct ledger_refusal entry;
    uint64_t entry_apart[RECORDING_APART_COUNT];
} got;

/* ---- the test's own library ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    *now = (struct timespec){.tv_sec = (time_t)(fake.ms / 1000), .tv_nsec = (long)(fake.ms % 1000) * 1000000};
    return 0;
}

static void (*at_exit)(void); /* what the module has registered */

int __wrap_atexit(void (*handler)(void));
int __wrap_atexit(void (*handler)(void))
{
    at_exit = handler;
    return 0;
}

bool process_is_copy(void)
{
    return fake.is_copy;
}

const struct options *library_options(void)
{
    return &options;
}

bool device_job_binds(const struct device *of)
{
    (void)of;
    return fake.job_binds;
}

enum recording_limit device_limit_kind(const struct device *of)
{
    (void)of;
    return fake.kind;
}

struct device *device_listed(CUdevice ordinal)
{
    (void)ordinal;
    return device.ledger ? &device : NULL;
}

bool device_is_unlimited(const struct device *of)
{
    (void)of;
    return fake.unlimited;
}

int device_free_bytes(struct device *of, uint64_t *bytes)
{
    (void)of;
    *bytes = fake.free_on_card;
    return 0;
}

struct account_view account_glance(struct account *account)
{
    (void)account;
    return (struct account_view){.used = fake.used, .room = fake.room};
}

uint64_t account_room_beside_others(struct account *account)
{
    (void)account;
    return fake.room + fake.unused;
}

uint64_t account_known(struct account *account)
{
    (void)account;
    return fake.used;
}

uint64_t account_short_to_grow(struct account *account, uint64_t need)
{
    (void)account;
    TEST_ASSERT_EQUAL_UINT64(0, need % LIMIT_PAGE);
    return fake.short_to_grow;
}

bool ledger_shares(const struct ledger *ledger)
{
    (void)ledger;
    return fake.shares;
}

uint64_t ledger_used_by_others(const struct ledger *ledger)
{
    (void)ledger;
    return fake.others;
}

uint64_t ledger_max(const struct ledger *ledger)
{
    (void)ledger;
    return fake.max;
}

uint64_t ledger_kept(const struct ledger *ledger)
{
    (void)ledger;
    return fake.kept;
}

void ledger_note_refusal(struct ledger *ledger, const struct ledger_refusal *refusal,
                         const uint64_t apart[RECORDING_APART_COUNT])
{
    TEST_ASSERT_EQUAL_PTR(device.ledger, ledger);
    got.entries++;
    got.entry = *refusal;
    memcpy(got.entry_apart, apart, sizeof(got.entry_apart));
}

uint64_t drivers_pools_idle_on(CUdevice ordinal)
{
    TEST_ASSERT_EQUAL_INT(device.ordinal, ordinal);
    return fake.drivers_idle;
}

uint64_t pools_reclaimable(CUdevice ordinal)
{
    TEST_ASSERT_EQUAL_INT(device.ordinal, ordinal);
    return fake.reclaimable;
}

void pools_each(void (*visit)(struct pool *pool, void *argument), void *argument)
{
    visit(&pools[0], argument);
    visit(&pools[1], argument);
}

/* 10 MiB idle on card 0, 20 MiB on card 1; JOINED is what the request was. */
void pool_apart_add(struct pool_apart *apart, struct pool *pool, uint64_t request)
{
    apart->of[RECORDING_APART_IDLE] += 10 * MIB * (uint64_t)(pool->ordinal + 1);
    apart->of[RECORDING_APART_PIECES]++;
    apart->whole = request;
}

void pool_apart_end(struct pool_apart *apart)
{
    apart->of[RECORDING_APART_JOINED] = apart->whole;
}

_Thread_local uint16_t owner_current = 7;
_Thread_local uint32_t owner_stack = 8;

void events_publish(struct recording_event *event)
{
    got.notes++;
    if (event->head.type == RECORDING_APART)
        got.apart[event->limit] = *event;
    else
        got.refusal = *event;
    got.refused_first = got.refused_first || (event->head.type == RECORDING_APART && got.refusal.head.type);
}

void events_wake(void)
{
    got.wakes++;
}

bool recorder_runs(char path[RECORDING_WRITE_PATH])
{
    snprintf(path, RECORDING_WRITE_PATH, "%s", fake.path ? fake.path : "run.gpucap");
    return fake.records;
}

/* ---- tests ---- */

static void set(enum options_id id, const char *value, enum options_source source)
{
    char error[OPTIONS_ERROR_MAX];

    TEST_ASSERT_EQUAL_INT(0, options_set(&options, (int)id, value, source, error));
}

void setUp(void)
{
    static uint64_t start = 5000;

    options_init(&options);
    fake = (struct fake){.ms = start += 100000,
                         .room = 4 * MIB,
                         .used = 500 * MIB,
                         .kind = RECORDING_LIMIT_PROCESS,
                         .others = 300 * MIB,
                         .max = 1000 * MIB};
    device.ordinal = 0;
    device.total = 2048 * MIB;
    device.limit = 512 * MIB;
    device.ledger = NULL;
    pools[1].ordinal = 1;
    atomic_store(&events_on, false);
    memset(&got, 0, sizeof(got));
    log_fake_clear();
}

void tearDown(void)
{
    log_fake_clear();
    fake.ms += 10000;
    refusal_say(&device, REFUSAL_PROGRAM, MIB); /* takes the count of what was not said */
}

static void in_ledger(void)
{
    static int file;

    device.ledger = (struct ledger *)&file;
}

static void expect_said(const char *text)
{
    TEST_ASSERT_EQUAL_STRING(text, log_fake_errors);
    log_fake_clear();
}

/* The first refusal of a process also names the commands that explain it. */
static void test_one_line_a_second_with_the_number_of_those_without(void)
{
    set(OPTIONS_MAX, "512M", OPTIONS_ENVIRONMENT);
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    expect_said("out of memory on device 0: asked for 32M, 4M left of 512M (max)\n"
                "  who held the memory: `gpucap run --record=FILE`, then `gpucap why FILE`\n");
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    fake.ms += 999;
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    expect_said("");
    fake.ms += 1;
    fake.short_to_grow = 30 * MIB;
    refusal_say(&device, REFUSAL_DRIVER, 32 * MIB);
    expect_said("out of memory on device 0: the driver needs for itself 32M, 2M left of 512M (max) "
                "(and 2 refused before)\n");
    fake.ms += 1000;
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    expect_said("out of memory on device 0: asked for 32M, 4M left of 512M (max)\n");
}

static void test_each_kind_of_refusal_has_its_line(void)
{
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    log_fake_clear();
    refusal_say(&device, REFUSAL_PROGRAM, 63 * MIB); /* of the same size up to a factor of two */
    refusal_say(&device, REFUSAL_ASYNC, 32 * MIB);   /* in the same words */
    expect_said("");
    refusal_say(&device, REFUSAL_PROGRAM, 64 * MIB);
    expect_said("out of memory on device 0: asked for 64M, 4M left of 512M (max) (and 2 refused before)\n");
    refusal_say(&device, REFUSAL_GRAPH, 64 * MIB);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(log_fake_errors, "on device 0: a graph needs 64M, "),
                                 log_fake_errors);
    log_fake_clear();
    device.ordinal = 1;
    refusal_say(&device, REFUSAL_PROGRAM, 64 * MIB);
    expect_said("out of memory on device 1: asked for 64M, 4M left of 512M (max)\n");
    in_ledger();
    fake.job_binds = true;
    refusal_say(&device, REFUSAL_PROGRAM, 64 * MIB);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(log_fake_errors, "on device 1: asked for 64M, "), log_fake_errors);
}

static void test_the_number_of_refusals_without_a_line_is_said_at_the_end(void)
{
    for (int i = 0; i < 3; i++)
        refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    log_fake_clear();
    TEST_ASSERT_NOT_NULL(at_exit);
    fake.is_copy = true;
    at_exit(); /* a forked child says nothing of its parent's */
    expect_said("");
    fake.is_copy = false;
    at_exit();
    expect_said("out of memory: 2 more refused like these\n");
    at_exit();
    expect_said("");
}

static void test_names_the_setting_and_its_place(void)
{
    static const struct {
        enum options_id id;
        const char *value;
        enum options_source source;
        const char *group, *ceiling;
        bool job;
        const char *expected;
    } cases[] = {
        {OPTIONS_MAX, "512M", OPTIONS_USER, "", "", false, "(max, from ~/" OPTIONS_USER_FILE ")"},
        {OPTIONS_EACH, "512M", OPTIONS_USER, "", "", false, "(each, from ~/" OPTIONS_USER_FILE ")"},
        {OPTIONS_MAX, "600M", OPTIONS_USER, "", "512M", false, "(max, from " OPTIONS_ADMIN_FILE ")"},
        {OPTIONS_EACH, "600M", OPTIONS_USER, "a", "512M", false, "(max, from " OPTIONS_ADMIN_FILE ")"},
        {OPTIONS_EACH, "512M", OPTIONS_ENVIRONMENT, "a", "512M", false, "(each)"},
        {OPTIONS_MAX, "512M", OPTIONS_ENVIRONMENT, "", "512M", false, "(max)"},
        {OPTIONS_MAX, "1000M", OPTIONS_USER, "a", "", true, "(job's max, from ~/" OPTIONS_USER_FILE ")"},
        {OPTIONS_MAX, "900M", OPTIONS_USER, "a", "", true,
         "(job's max, from `gpucap set` or another process)"},
        {OPTIONS_MAX, "1100M", OPTIONS_USER, "a", "1000M", true, "(job's max, from " OPTIONS_ADMIN_FILE ")"},
    };
    const char *why;

    in_ledger();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        options_init(&options);
        set(cases[i].id, cases[i].value, cases[i].source);
        snprintf(options.group, sizeof(options.group), "%s", cases[i].group);
        if (*cases[i].ceiling)
            TEST_ASSERT_EQUAL_INT(0, rules_parse(cases[i].ceiling, &options.ceiling, &why));
        fake.job_binds = cases[i].job;
        fake.ms += 1000;
        log_fake_clear();
        refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(log_fake_errors, cases[i].expected), log_fake_errors);
    }
}

static void test_without_any_setting_the_whole_card_is_the_limit(void)
{
    device.limit = device.total;
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    expect_said("out of memory on device 0: asked for 32M, 4M left of 2G (the whole card)\n");
}

static void test_in_a_job_says_what_the_others_have(void)
{
    char expected[256];

    in_ledger();
    fake.shares = fake.job_binds = true;
    set(OPTIONS_MAX, "1000M", OPTIONS_ENVIRONMENT);
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    snprintf(expected, sizeof(expected),
             "out of memory on device 0: asked for 32M, 4M left of 1000M (job's max)\n"
             "  this process uses 500M, the job's others 300M; see `gpucap why %ld`\n",
             (long)getpid());
    expect_said(expected);
    TEST_ASSERT_EQUAL_UINT64(800 * MIB, got.entry.job_used);
    fake.others = 0;
    fake.ms += 1000;
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    expect_said("out of memory on device 0: asked for 32M, 4M left of 1000M (job's max)\n");
    TEST_ASSERT_EQUAL_UINT64(500 * MIB, got.entry.job_used);
}

/* They count against the job only while they refuse a request that would fit without them. */
static void test_leases_that_others_do_not_use_count_as_left(void)
{
    in_ledger();
    fake.shares = fake.job_binds = true;
    fake.unused = 54 * MIB;
    refusal_say(&device, REFUSAL_PROGRAM, 59 * MIB);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(log_fake_errors, "asked for 59M, 58M left of"), log_fake_errors);
    TEST_ASSERT_EQUAL_UINT64(58 * MIB, got.entry.fits);
    refusal_say(&device, REFUSAL_PROGRAM, 58 * MIB);
    TEST_ASSERT_EQUAL_UINT64(4 * MIB, got.entry.fits);
    fake.short_to_grow = 60 * MIB;
    refusal_say(&device, REFUSAL_DRIVER, 64 * MIB);
    TEST_ASSERT_EQUAL_UINT64(58 * MIB, got.entry.fits);
    refusal_say(&device, REFUSAL_ASYNC, 128 * MIB);
    TEST_ASSERT_EQUAL_UINT64(58 * MIB / LIMIT_STEP * LIMIT_STEP, got.entry.fits);
    fake.shares = false;
    refusal_say(&device, REFUSAL_PROGRAM, 59 * MIB);
    TEST_ASSERT_EQUAL_UINT64(4 * MIB, got.entry.fits);
}

/* The commands that a refusal names find the ledger, also where the variable is not set. */
static void test_names_a_ledger_that_only_this_process_knows(void)
{
    char expected[128];

    in_ledger();
    fake.shares = fake.job_binds = true;
    set(OPTIONS_LEDGER, "/run/a b", OPTIONS_ENVIRONMENT);
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    snprintf(expected, sizeof(expected), "see `gpucap why %ld --ledger='/run/a b'`\n", (long)getpid());
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(log_fake_errors, expected), log_fake_errors);
    refusal_say(&device, REFUSAL_PROGRAM, 4 * MIB);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(log_fake_errors, "`gpucap ps --ledger='/run/a b'`"), log_fake_errors);
    log_fake_clear();
    fake.ms += 1000;
    set(OPTIONS_LEDGER, "/run/gpucap", OPTIONS_USER); /* the command reads that file itself */
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    snprintf(expected, sizeof(expected), "see `gpucap why %ld`\n", (long)getpid());
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(log_fake_errors, expected), log_fake_errors);
}

/* Where the process's own limit refused, too: it cannot be raised above the job's. */
static void test_a_recording_has_the_jobs_limit_and_what_its_others_have(void)
{
    in_ledger();
    fake.shares = true;
    atomic_store(&events_on, true);
    for (int job = 0; job < 2; job++) {
        fake.job_binds = job;
        fake.kind = job ? RECORDING_LIMIT_JOB : RECORDING_LIMIT_PROCESS;
        got.apart[RECORDING_APART_OTHERS].head.type = 0;
        refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
        TEST_ASSERT_EQUAL_UINT(fake.kind, got.refusal.limit);
        TEST_ASSERT_EQUAL_UINT64(1000 * MIB, got.refusal.address);
        TEST_ASSERT_EQUAL_UINT(RECORDING_APART, got.apart[RECORDING_APART_OTHERS].head.type);
        TEST_ASSERT_EQUAL_UINT64(300 * MIB, got.apart[RECORDING_APART_OTHERS].bytes);
    }
}

static void test_what_fits_counts_idle_memory_and_for_the_driver_the_reserve(void)
{
    in_ledger();
    fake.reclaimable = 10 * MIB;
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    TEST_ASSERT_EQUAL_UINT64(14 * MIB, got.entry.fits);
    fake.short_to_grow = 6 * MIB;
    refusal_say(&device, REFUSAL_GRAPH, 32 * MIB - 1);
    TEST_ASSERT_EQUAL_UINT64(36 * MIB, got.entry.fits);
    refusal_say(&device, REFUSAL_DRIVER, 32 * MIB);
    TEST_ASSERT_EQUAL_UINT64(36 * MIB, got.entry.fits);
}

static void test_the_ledger_has_what_was_asked_and_why_it_was_refused(void)
{
    in_ledger();
    fake.drivers_idle = 30 * MIB;
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    TEST_ASSERT_EQUAL_INT(1, got.entries);
    TEST_ASSERT_EQUAL_UINT64(fake.ms * 1000000, got.entry.at);
    TEST_ASSERT_EQUAL_UINT64(32 * MIB, got.entry.asked);
    TEST_ASSERT_EQUAL_UINT64(500 * MIB, got.entry.used);
    TEST_ASSERT_EQUAL_UINT64(500 * MIB, got.entry.job_used);
    TEST_ASSERT_EQUAL_UINT64(512 * MIB, got.entry.limit);
    TEST_ASSERT_EQUAL_UINT64(RECORDING_LIMIT_PROCESS, got.entry.bound);
    TEST_ASSERT_EQUAL_UINT64(1, got.entry_apart[RECORDING_APART_PIECES]);
    TEST_ASSERT_EQUAL_UINT64(10 * MIB, got.entry_apart[RECORDING_APART_IDLE]);
    TEST_ASSERT_EQUAL_UINT64(32 * MIB, got.entry_apart[RECORDING_APART_JOINED]);
    TEST_ASSERT_EQUAL_UINT64(30 * MIB, got.entry_apart[RECORDING_APART_DRIVER]);
    TEST_ASSERT_EQUAL_UINT64(20 * MIB, got.entry_apart[RECORDING_APART_CARDS]);
    fake.job_binds = true;
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB); /* no line is due, and it is entered */
    TEST_ASSERT_EQUAL_INT(2, got.entries);
    TEST_ASSERT_EQUAL_UINT64(1000 * MIB, got.entry.limit);
    TEST_ASSERT_EQUAL_UINT64(RECORDING_LIMIT_JOB, got.entry.bound);
}

static void test_a_recording_has_what_idled_and_then_the_refusal(void)
{
    atomic_store(&events_on, true);
    fake.records = true;
    set(OPTIONS_MAX, "512M", OPTIONS_ENVIRONMENT);
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    expect_said("out of memory on device 0: asked for 32M, 4M left of 512M (max)\n"
                "  `gpucap why run.gpucap` tells who held the memory\n");
    TEST_ASSERT_FALSE(got.refused_first);
    TEST_ASSERT_EQUAL_INT(4, got.notes); /* what is 0 is left out */
    TEST_ASSERT_EQUAL_UINT64(10 * MIB, got.apart[RECORDING_APART_IDLE].bytes);
    TEST_ASSERT_EQUAL_UINT64(1, got.apart[RECORDING_APART_IDLE].other);
    TEST_ASSERT_EQUAL_UINT64(20 * MIB, got.apart[RECORDING_APART_CARDS].bytes);
    TEST_ASSERT_EQUAL_UINT64(0, got.apart[RECORDING_APART_CARDS].other);
    TEST_ASSERT_EQUAL_UINT64(32 * MIB, got.refusal.bytes);
    TEST_ASSERT_EQUAL_UINT64(4 * MIB, got.refusal.other);
    TEST_ASSERT_EQUAL_UINT(RECORDING_LIMIT_PROCESS, got.refusal.limit);
    TEST_ASSERT_EQUAL_UINT(7, got.refusal.owner);
    TEST_ASSERT_EQUAL_UINT(8, got.refusal.stack);
    TEST_ASSERT_EQUAL_INT(1, got.wakes); /* it is in the file before the program aborts */
}

static void test_the_named_command_can_be_copied_into_a_shell(void)
{
    atomic_store(&events_on, true);
    fake.records = true;
    fake.path = "/data/Anna's runs/1.gpucap";
    set(OPTIONS_MAX, "512M", OPTIONS_ENVIRONMENT);
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    expect_said("out of memory on device 0: asked for 32M, 4M left of 512M (max)\n"
                "  `gpucap why '/data/Anna'\\''s runs/1.gpucap'` tells who held the memory\n");
}

static void expect_kind(enum recording_limit own, bool job, uint64_t bytes, enum recording_limit expected)
{
    fake.kind = own;
    fake.job_binds = job;
    refusal_say(&device, REFUSAL_PROGRAM, bytes);
    TEST_ASSERT_EQUAL_UINT(expected, got.refusal.limit);
    /* The limit that applies to the process alone may be less than the job's. */
    TEST_ASSERT_EQUAL_UINT64(expected == RECORDING_LIMIT_JOB ? got.entry.limit : 0, got.refusal.address);
}

static void test_a_recording_says_whose_limit_it_was(void)
{
    atomic_store(&events_on, true);
    in_ledger();
    expect_kind(RECORDING_LIMIT_PROCESS, false, 32 * MIB, RECORDING_LIMIT_PROCESS);
    expect_kind(RECORDING_LIMIT_PROCESS, true, 32 * MIB, RECORDING_LIMIT_JOB);
    expect_kind(RECORDING_LIMIT_ADMIN, true, 32 * MIB, RECORDING_LIMIT_ADMIN);
    expect_kind(RECORDING_LIMIT_PROCESS, true, 4 * MIB, RECORDING_LIMIT_CARD); /* the limit has room */
    expect_kind(RECORDING_LIMIT_PROCESS, false, 4 * MIB + 1, RECORDING_LIMIT_PROCESS);
}

static void test_a_full_card_and_memory_kept_for_others_are_told_apart(void)
{
    in_ledger();
    set(OPTIONS_MAX, "512M", OPTIONS_ENVIRONMENT);
    refusal_say(&device, REFUSAL_GRAPH, 4 * MIB);
    expect_said("out of memory on device 0: a graph needs 4M, the card has 0 bytes free (max leaves 4M)\n"
                "  who holds the card: `gpucap ps`\n");
    fake.free_on_card = 8 * MIB;
    fake.ms += 1000;
    refusal_say(&device, REFUSAL_ASYNC, 0);
    expect_said("out of memory on device 0: asked for 0 bytes; the driver refused it, or memory came free "
                "too late: max "
                "leaves 0 bytes, the card has 8M free\n");
    log_fake_clear();
    fake.kept = 64 * MIB;
    fake.ms += 1000;
    refusal_say(&device, REFUSAL_PROGRAM, 4 * MIB);
    expect_said(
        "out of memory on device 0: asked for 4M; 64M of the card are kept for other jobs (their min)\n");
    TEST_ASSERT_EQUAL_UINT64(RECORDING_LIMIT_KEPT, got.entry.bound);
    fake.free_on_card = 2 * MIB; /* less than was asked for: nothing that is kept made a difference */
    fake.ms += 1000;
    refusal_say(&device, REFUSAL_PROGRAM, 4 * MIB);
    expect_said("out of memory on device 0: asked for 4M, the card has 2M free (max leaves 4M)\n"
                "  who holds the card: `gpucap ps`\n");
    fake.kept = MIB; /* but it would not have been had */
    atomic_store(&events_on, true);
    refusal_say(&device, REFUSAL_PROGRAM, 4 * MIB);
    atomic_store(&events_on, false);
    TEST_ASSERT_EQUAL_UINT(RECORDING_LIMIT_CARD, got.refusal.limit);
    TEST_ASSERT_EQUAL_UINT64(MIB, got.refusal.other);
    fake.ms += 1000;
    refusal_say(&device, REFUSAL_PROGRAM, 32 * MIB);
    expect_said("out of memory on device 0: asked for 32M, 4M left of 512M (max) (and 1 refused before)\n");
}

static void test_what_is_kept_from_a_process_without_limit_is_said_unless_the_card_is_full(void)
{
    in_ledger();
    atomic_store(&events_on, true);
    fake.kept = 30 * MIB;
    fake.free_on_card = 32 * MIB;
    refusal_say_kept(&device, 32 * MIB + 1);
    expect_said("");
    TEST_ASSERT_EQUAL_INT(1, got.entries);
    TEST_ASSERT_EQUAL_UINT64(RECORDING_LIMIT_CARD, got.entry.bound);
    TEST_ASSERT_EQUAL_UINT64(2 * MIB, got.entry.fits); /* what is kept would not have been had */
    refusal_say_kept(&device, 32 * MIB);
    expect_said(
        "out of memory on device 0: asked for 32M; 30M of the card are kept for other jobs (their min)\n");
    refusal_say_kept(&device, 32 * MIB);
    expect_said("");
    TEST_ASSERT_EQUAL_INT(3, got.entries);
    TEST_ASSERT_EQUAL_UINT64(32 * MIB, got.entry.asked);
    TEST_ASSERT_EQUAL_UINT64(LEDGER_UNLIMITED, got.entry.limit);
    TEST_ASSERT_EQUAL_UINT64(RECORDING_LIMIT_KEPT, got.entry.bound);
    TEST_ASSERT_EQUAL_UINT64(2 * MIB, got.entry.fits);
    TEST_ASSERT_EQUAL_UINT64(20 * MIB, got.entry_apart[RECORDING_APART_CARDS]);
    TEST_ASSERT_EQUAL_UINT(RECORDING_LIMIT_KEPT, got.refusal.limit);
    TEST_ASSERT_EQUAL_UINT64(32 * MIB, got.refusal.bytes);
}

static void test_a_full_card_is_noted_for_why(void)
{
    in_ledger();
    fake.free_on_card = 8 * MIB;
    refusal_note_full(0, 32 * MIB); /* a limited process, whose refusals are noted with its limit */
    TEST_ASSERT_EQUAL_INT(0, got.entries);
    fake.unlimited = true;
    refusal_note_full(0, 32 * MIB);
    expect_said("");
    TEST_ASSERT_EQUAL_INT(1, got.entries);
    TEST_ASSERT_EQUAL_UINT64(32 * MIB, got.entry.asked);
    TEST_ASSERT_EQUAL_UINT64(8 * MIB, got.entry.fits);
    TEST_ASSERT_EQUAL_UINT64(LEDGER_UNLIMITED, got.entry.limit);
    TEST_ASSERT_EQUAL_UINT64(RECORDING_LIMIT_CARD, got.entry.bound);
}

static void test_a_full_card_without_a_ledger_is_only_recorded(void)
{
    refusal_note_full(0, 32 * MIB);
    TEST_ASSERT_EQUAL_INT(0, got.notes);
    atomic_store(&events_on, true);
    refusal_note_full(0, 32 * MIB);
    expect_said("");
    TEST_ASSERT_EQUAL_UINT(RECORDING_REFUSAL, got.refusal.head.type);
    TEST_ASSERT_EQUAL_UINT(RECORDING_LIMIT_CARD, got.refusal.limit);
    TEST_ASSERT_EQUAL_UINT64(32 * MIB, got.refusal.bytes);
    TEST_ASSERT_EQUAL_UINT64(0, got.refusal.other);
    TEST_ASSERT_EQUAL_UINT64(10 * MIB, got.apart[RECORDING_APART_IDLE].bytes);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_one_line_a_second_with_the_number_of_those_without);
    RUN_TEST(test_each_kind_of_refusal_has_its_line);
    RUN_TEST(test_the_number_of_refusals_without_a_line_is_said_at_the_end);
    RUN_TEST(test_names_the_setting_and_its_place);
    RUN_TEST(test_without_any_setting_the_whole_card_is_the_limit);
    RUN_TEST(test_in_a_job_says_what_the_others_have);
    RUN_TEST(test_leases_that_others_do_not_use_count_as_left);
    RUN_TEST(test_names_a_ledger_that_only_this_process_knows);
    RUN_TEST(test_a_recording_has_the_jobs_limit_and_what_its_others_have);
    RUN_TEST(test_what_fits_counts_idle_memory_and_for_the_driver_the_reserve);
    RUN_TEST(test_the_ledger_has_what_was_asked_and_why_it_was_refused);
    RUN_TEST(test_a_recording_has_what_idled_and_then_the_refusal);
    RUN_TEST(test_the_named_command_can_be_copied_into_a_shell);
    RUN_TEST(test_a_recording_says_whose_limit_it_was);
    RUN_TEST(test_a_full_card_and_memory_kept_for_others_are_told_apart);
    RUN_TEST(test_what_is_kept_from_a_process_without_limit_is_said_unless_the_card_is_full);
    RUN_TEST(test_a_full_card_is_noted_for_why);
    RUN_TEST(test_a_full_card_without_a_ledger_is_only_recorded);
    return UNITY_END();
}
