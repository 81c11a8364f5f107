/* Tests of device.c: which limit holds for which card, and what happens when the driver or the ledger fails.
 * Driver, NVML, ledger and account are fakes; the options are real. device.c keeps what it has learnt of a
 * card, so each test uses other cards. */
#include "interpose/account/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "interpose/account/drivers_pools.h"
#include "interpose/see/events.h"
#include "log_fake.h"

#define MIB   (UINT64_C(1) << 20)
#define TOTAL (4096 * MIB)

static struct options options;

static struct fake {
    int cards;
    int fail_uuid, fail_total, fail_count, fail_current, fail_attribute; /* so many calls fail */
    CUresult failure;
    CUdevice current; /* -1: the thread has no context */
    size_t free;
    int join, open;                   /* what joining and opening a ledger return */
    uint64_t max, used, lease, other; /* of the job */
    bool shares, guarded;
    int admission;
    const char *dropped; /* the job whose record the process took */
} fake;

static struct ledger {
    int opened, closed, forked;
    struct ledger_limits limits;
    const char *job;
    uint64_t own; /* limit of the process */
} ledgers[DEVICE_MAX];
static int ledgers_made;
static struct recording_event noted;
static uint64_t limit_set, claim_ended;

/* ---- the test's own library ---- */

static bool fails(int *left)
{
    return *left > 0 && (*left)--;
}

static CUresult CUDAAPI get_uuid(CUuuid *uuid, CUdevice ordinal)
{
    if (fails(&fake.fail_uuid) || ordinal >= fake.cards)
        return CUDA_ERROR_UNKNOWN;
    memset(uuid, 0, sizeof(*uuid));
    uuid->bytes[0] = (char)(0xa0 + ordinal);
    uuid->bytes[15] = 0x0f;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_total(size_t *total, CUdevice ordinal)
{
    *total = TOTAL;
    return fails(&fake.fail_total) || ordinal >= fake.cards ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult CUDAAPI get_count(int *count)
{
    *count = fake.cards;
    return fails(&fake.fail_count) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult CUDAAPI get_attribute(int *value, CUdevice_attribute attribute, CUdevice ordinal)
{
    *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 10 : 2048;
    return fails(&fake.fail_attribute) || ordinal >= fake.cards ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

static CUresult CUDAAPI get_device(CUdevice *ordinal)
{
    if (fails(&fake.fail_current) || fake.current < 0)
        return fake.failure;
    *ordinal = fake.current;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_context(CUcontext *context)
{
    *context = fake.current < 0 ? NULL : (CUcontext)&fake;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_info(size_t *free_bytes, size_t *total)
{
    *free_bytes = fake.free;
    *total = TOTAL;
    return CUDA_SUCCESS;
}

int measure_used(struct measure_card *card, uint64_t *bytes)
{
    TEST_ASSERT_NOT_NULL(card->uuid);
    *bytes = 300 * MIB;
    return 0;
}

int measure_free(struct measure_card *card, uint64_t *bytes)
{
    TEST_ASSERT_NOT_NULL(card->uuid);
    *bytes = 77 * MIB;
    return 0;
}

bool measure_is_over(void)
{
    return false;
}

uint64_t drivers_pools_held(CUdevice ordinal)
{
    return (uint64_t)ordinal * MIB;
}

void drivers_pools_look_again(CUdevice ordinal)
{
    noted.address = (uint64_t)ordinal;
}

void account_init(struct account *account, uint64_t limit, uint64_t reserve,
                  int (*measure)(void *context, uint64_t *bytes), void *context)
{
    account->state = (struct limit_state){.limit = limit, .reserve = reserve};
    account->measure = measure;
    account->context = context;
}

void account_set_limit(struct account *account, uint64_t limit)
{
    (void)account;
    limit_set = limit;
}

int ledger_folder(const char *asked, char *path, size_t size)
{
    snprintf(path, size, "%s", asked);
    return strlen(asked) > 100 ? -ENAMETOOLONG : 0;
}

int ledger_open(struct ledger **ledger, const char *folder, const char *uuid, char why[LEDGER_WHY])
{
    TEST_ASSERT_EQUAL_STRING("folder", folder);
    TEST_ASSERT_EQUAL_INT(0, strncmp(uuid, "GPU-", 4));
    snprintf(why, LEDGER_WHY, "another user's");
    if (fake.open)
        return fake.open;
    *ledger = &ledgers[ledgers_made++];
    (*ledger)->opened++;
    return 0;
}

int ledger_join_within(struct ledger *ledger, const char *job, const struct ledger_limits *limits)
{
    ledger->limits = *limits;
    ledger->job = job;
    return fake.join;
}

void ledger_publish_limit(struct ledger *ledger, uint64_t limit)
{
    ledger->own = limit;
}

void ledger_close(struct ledger *ledger)
{
    ledger->closed++;
}

void ledger_after_fork(struct ledger *ledger)
{
    ledger->forked++;
}

bool ledger_shares(const struct ledger *ledger)
{
    return ledger->job && fake.shares;
}

uint64_t ledger_max(const struct ledger *ledger)
{
    return ledger->job ? fake.max : LEDGER_UNLIMITED;
}

const char *ledger_dropped(const struct ledger *ledger)
{
    (void)ledger;
    return fake.dropped;
}

uint64_t ledger_used(const struct ledger *ledger)
{
    (void)ledger;
    return fake.used;
}

uint64_t ledger_lease(const struct ledger *ledger)
{
    (void)ledger;
    return fake.lease;
}

bool ledger_is_guarded(const struct ledger *ledger)
{
    (void)ledger;
    return fake.guarded;
}

int ledger_admit_beside(struct ledger *ledger, uint64_t need,
                        int (*free_on_card)(void *context, uint64_t *bytes), void *context)
{
    uint64_t bytes;

    TEST_ASSERT_EQUAL_PTR(ledger, ((struct device *)context)->ledger);
    TEST_ASSERT_EQUAL_INT(0, free_on_card(context, &bytes));
    TEST_ASSERT_EQUAL_UINT64(64 * MIB, need);
    return fake.admission;
}

void ledger_end_claim(struct ledger *ledger, uint64_t need)
{
    (void)ledger;
    claim_ended += need;
}

void events_publish(struct recording_event *event)
{
    noted = *event;
}

/* ---- tests ---- */

static int next_card;

static void set(enum options_id id, const char *value)
{
    char error[OPTIONS_ERROR_MAX];

    TEST_ASSERT_EQUAL_INT(0, options_set(&options, (int)id, value, OPTIONS_ENVIRONMENT, error));
}

static void set_ceiling(const char *value)
{
    const char *why;

    TEST_ASSERT_EQUAL_INT(0, rules_parse(value, &options.ceiling, &why));
}

void setUp(void)
{
    driver_entries = (struct driver_table){.cuDeviceGetUuid_v2 = get_uuid,
                                           .cuDeviceTotalMem_v2 = get_total,
                                           .cuDeviceGetCount = get_count,
                                           .cuDeviceGetAttribute = get_attribute,
                                           .cuCtxGetDevice = get_device,
                                           .cuCtxGetCurrent = get_context,
                                           .cuMemGetInfo_v2 = get_info};
    fake = (struct fake){.cards = DEVICE_MAX,
                         .current = -1,
                         .failure = CUDA_ERROR_INVALID_CONTEXT,
                         .max = 1024 * MIB,
                         .dropped = ""};
    options_init(&options);
    snprintf(options.ledger, sizeof(options.ledger), "folder");
    device_setup(&options);
    atomic_store(&events_on, true);
    noted = (struct recording_event){.bytes = 0};
    limit_set = claim_ended = 0;
    log_fake_clear();
    unsetenv("CUDA_VISIBLE_DEVICES");
}

void tearDown(void) {}

/* Returns a card that was never looked at, limited as the options say now. */
static struct device *limited(void)
{
    struct device *device;

    TEST_ASSERT_EQUAL_INT(0, device_find(next_card++, &device));
    TEST_ASSERT_NOT_NULL(device);
    return device;
}

static void expect_unlimited(void)
{
    struct device *device = (struct device *)&fake;

    TEST_ASSERT_EQUAL_INT(0, device_find(next_card++, &device));
    TEST_ASSERT_NULL(device);
}

static void test_whether_there_is_a_single_card_is_asked_until_the_driver_answers(void)
{
    CUdevice ordinal = 5;

    fake.fail_count = 1;
    TEST_ASSERT_FALSE(device_only(&ordinal));
    fake.cards = 2;
    TEST_ASSERT_FALSE(device_only(&ordinal));
    TEST_ASSERT_EQUAL_INT(0, ordinal);
}

static void test_a_limit_is_of_the_process_or_of_its_job(void)
{
    struct device *device;

    expect_unlimited();
    set(OPTIONS_MAX, "512M");
    set(OPTIONS_RESERVE, "32M");
    device = limited();
    TEST_ASSERT_EQUAL_UINT64(512 * MIB, device->limit);
    TEST_ASSERT_EQUAL_UINT64(512 * MIB, device->account.state.limit);
    TEST_ASSERT_EQUAL_UINT64(32 * MIB, device->account.state.reserve);
    TEST_ASSERT_EQUAL_UINT64(TOTAL, device->total);
    TEST_ASSERT_EQUAL_UINT64(20480, device->threads);
    TEST_ASSERT_NULL(device->ledger->job);
    TEST_ASSERT_EQUAL_PTR(device->ledger, device->account.ledger);
    TEST_ASSERT_EQUAL_INT(RECORDING_LIMIT, noted.head.type);
    TEST_ASSERT_EQUAL_UINT64(512 * MIB, noted.bytes);
    TEST_ASSERT_EQUAL_UINT64(RECORDING_LIMIT_PROCESS, noted.other);
    fake.shares = true;
    set(OPTIONS_GROUP, "job");
    set(OPTIONS_HIGH, "400M");
    set(OPTIONS_MIN, "100M");
    device = limited();
    TEST_ASSERT_EQUAL_STRING("job", device->ledger->job);
    TEST_ASSERT_EQUAL_UINT64(512 * MIB, device->ledger->limits.max);
    TEST_ASSERT_EQUAL_UINT64(400 * MIB, device->ledger->limits.high);
    TEST_ASSERT_EQUAL_UINT64(100 * MIB, device->ledger->limits.min);
    TEST_ASSERT_EQUAL_UINT64(TOTAL, device->ledger->own);
    TEST_ASSERT_EQUAL_UINT64(1024 * MIB, device->limit); /* of a job that others have made with more */
    TEST_ASSERT_EQUAL_INT(RECORDING_LIMIT_JOB, device_limit_kind(device));
    set(OPTIONS_EACH, "256M");
    device = limited();
    TEST_ASSERT_EQUAL_UINT64(256 * MIB, device->limit);
    TEST_ASSERT_EQUAL_UINT64(256 * MIB, device->ledger->own); /* not the job's, which the others have */
    TEST_ASSERT_EQUAL_INT(RECORDING_LIMIT_PROCESS, device_limit_kind(device));
    set_ceiling("256M");
    TEST_ASSERT_EQUAL_INT(RECORDING_LIMIT_ADMIN, device_limit_kind(device));
    set_ceiling("257M");
    TEST_ASSERT_EQUAL_INT(RECORDING_LIMIT_PROCESS, device_limit_kind(device));
}

static void test_a_process_with_a_min_or_a_high_is_counted_up_to_the_whole_card(void)
{
    set(OPTIONS_MIN, "100M");
    TEST_ASSERT_EQUAL_UINT64(TOTAL, limited()->limit);
    options_init(&options);
    snprintf(options.ledger, sizeof(options.ledger), "folder");
    set(OPTIONS_HIGH, "100M");
    TEST_ASSERT_EQUAL_UINT64(TOTAL, limited()->limit);
}

static void test_a_job_without_a_ledger_has_its_max_for_each_process(void)
{
    static const struct {
        const char *folder;
        int open, join;
        const char *why;
    } cases[] = {
        {"off", 0, 0, "(ledger=off)"},
        {"folder", -EPERM, 0, "(another user's)"},
        {"folder", 0, -ENOSPC, "(it has no place for more jobs or processes)"},
        {"folder", 0, -EACCES, "(Permission denied)"},
    };

    set(OPTIONS_MAX, "512M");
    set(OPTIONS_GROUP, "job");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const int made = ledgers_made;

        snprintf(options.ledger, sizeof(options.ledger), "%s", cases[i].folder);
        fake.open = cases[i].open;
        fake.join = cases[i].join;
        struct device *device = limited();
        TEST_ASSERT_NULL(device->ledger);
        TEST_ASSERT_NULL(device->account.ledger);
        TEST_ASSERT_EQUAL_UINT64(512 * MIB, device->limit);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(log_fake_errors, cases[i].why), log_fake_errors);
        TEST_ASSERT_FALSE(device_job_binds(device));
        if (ledgers_made > made)
            TEST_ASSERT_EQUAL_INT(1, ledgers[made].closed);
    }
    log_fake_clear();
    options.group[0] = '\0';
    limited();
    TEST_ASSERT_EQUAL_STRING("", log_fake_errors); /* without a job there is nothing to share */
}

static void test_limits_that_this_process_has_dropped_for_a_job_to_come_are_named(void)
{
    set(OPTIONS_MAX, "512M");
    set(OPTIONS_GROUP, "job");
    fake.dropped = "nightly";
    TEST_ASSERT_NOT_NULL(limited()->ledger);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(log_fake_errors, "for the job 'nightly', which has no process yet"),
                                 log_fake_errors);
}

static void test_the_job_binds_if_it_leaves_less_than_the_process_may_have(void)
{
    static const struct {
        uint64_t used, lease;
        bool binds;
    } cases[] = {
        {300, 200, false}, {712, 200, true}, {711, 200, false}, {1500, 200, true}, {100, 200, false},
    };

    set(OPTIONS_EACH, "512M");
    set(OPTIONS_GROUP, "job");
    struct device *device = limited();
    TEST_ASSERT_FALSE(device_job_binds(device));
    fake.shares = true;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        fake.used = cases[i].used * MIB;
        fake.lease = cases[i].lease * MIB;
        TEST_ASSERT_EQUAL_INT(cases[i].binds, device_job_binds(device));
    }
}

static void test_a_card_that_cannot_be_named_is_asked_again_and_then_refused(void)
{
    struct device *device;

    fake.fail_uuid = 1;
    expect_unlimited(); /* no limit was asked for */
    set(OPTIONS_MAX, "512M");
    fake.fail_uuid = 1;
    TEST_ASSERT_EQUAL_UINT64(512 * MIB, limited()->limit);
    fake.fail_total = 2;
    TEST_ASSERT_EQUAL_INT(-ENODEV, device_find(next_card, &device));
    TEST_ASSERT_NULL(device_get(-1));
    TEST_ASSERT_EQUAL_UINT64(512 * MIB, limited()->limit); /* the failure has passed */
    TEST_ASSERT_EQUAL_INT(-ENXIO, device_find(-1, &device));
    fake.cards = next_card;
    TEST_ASSERT_EQUAL_INT(-ENXIO, device_find(next_card, &device));
}

static void test_the_current_card_is_asked_for_twice(void)
{
    struct device *device;
    CUdevice ordinal;

    TEST_ASSERT_EQUAL_INT(-ENXIO, driver_current_card(&ordinal)); /* no context */
    TEST_ASSERT_EQUAL_INT(-ENXIO, device_find_current(&device));
    fake.current = next_card;
    fake.fail_current = 1;
    TEST_ASSERT_EQUAL_INT(0, driver_current_card(&ordinal));
    TEST_ASSERT_EQUAL_INT(next_card, ordinal);
    fake.fail_current = 2;
    TEST_ASSERT_EQUAL_INT(-ENODEV, driver_current_card(&ordinal));
    fake.failure = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    fake.fail_current = 1;
    TEST_ASSERT_EQUAL_INT(-ENXIO, driver_current_card(&ordinal));
    fake.failure = CUDA_ERROR_INVALID_CONTEXT;
    fake.fail_current = 2;
    TEST_ASSERT_EQUAL_INT(0, device_find_current(&device)); /* without a limit nothing is refused */
    TEST_ASSERT_NULL(device);
    set(OPTIONS_MAX, "512M");
    fake.fail_current = 2;
    TEST_ASSERT_EQUAL_INT(-ENODEV, device_find_current(&device));
    TEST_ASSERT_EQUAL_INT(0, device_find_current(&device));
    TEST_ASSERT_EQUAL_PTR(limited(), device);
}

static void test_figures_of_the_driver_count_only_for_the_current_card(void)
{
    uint64_t bytes;

    set(OPTIONS_MAX, "512M");
    struct device *device = limited();
    TEST_ASSERT_EQUAL_INT(-ENODATA, device->account.estimate(device, &bytes));
    fake.current = device->ordinal;
    fake.free = TOTAL - 200 * MIB;
    TEST_ASSERT_EQUAL_INT(0, device->account.estimate(device, &bytes));
    TEST_ASSERT_EQUAL_UINT64(200 * MIB, bytes);
    TEST_ASSERT_EQUAL_INT(0, device_free_bytes(device, &bytes));
    TEST_ASSERT_EQUAL_UINT64(TOTAL - 200 * MIB, bytes);
    TEST_ASSERT_NOT_NULL(device->account.free_on_card); /* or the min of other jobs would not hold */
    TEST_ASSERT_EQUAL_INT(0, device->account.free_on_card(device, &bytes));
    TEST_ASSERT_EQUAL_UINT64(TOTAL - 200 * MIB, bytes);
    fake.free = TOTAL + 1;
    TEST_ASSERT_EQUAL_INT(-ENODATA, device->account.estimate(device, &bytes));
    fake.free = TOTAL;
    fake.current = device->ordinal + 1; /* another card's figures */
    TEST_ASSERT_EQUAL_INT(-ENODATA, device->account.estimate(device, &bytes));
    TEST_ASSERT_EQUAL_INT(0, device_free_bytes(device, &bytes));
    TEST_ASSERT_EQUAL_UINT64(77 * MIB, bytes);
    TEST_ASSERT_EQUAL_INT(0, device->account.measure(device, &bytes));
    TEST_ASSERT_EQUAL_UINT64(300 * MIB, bytes);
    TEST_ASSERT_EQUAL_INT(RECORDING_USED, noted.head.type);
    TEST_ASSERT_EQUAL_UINT64(300 * MIB, noted.bytes);
    TEST_ASSERT_EQUAL_UINT64((uint64_t)device->ordinal * MIB, device->account.held(device));
    device->account.look_again(device);
    TEST_ASSERT_EQUAL_UINT64((uint64_t)device->ordinal, noted.address);
    TEST_ASSERT_EQUAL_PTR(&device->card.present, device->account.present);
}

static int listed_cards;

static void count_listed(struct device *device)
{
    TEST_ASSERT_NOT_NULL(device);
    listed_cards++;
}

static void test_a_process_without_a_limit_is_listed_once_and_leaves_on_fork(void)
{
    const CUdevice card = next_card++;

    TEST_ASSERT_NULL(device_listed(card));
    struct device *device = device_list(card);
    TEST_ASSERT_NOT_NULL(device);
    TEST_ASSERT_EQUAL_UINT64(LEDGER_UNLIMITED, device->ledger->limits.max);
    TEST_ASSERT_TRUE(device_is_unlimited(device));
    TEST_ASSERT_EQUAL_PTR(device, device_list(card));
    TEST_ASSERT_EQUAL_PTR(device, device_listed(card));
    TEST_ASSERT_EQUAL_INT(1, device->ledger->opened);
    fake.open = -EACCES;
    TEST_ASSERT_NULL(device_list(next_card));
    fake.open = 0;
    TEST_ASSERT_NULL(device_list(next_card)); /* it was tried */
    TEST_ASSERT_NULL(device_listed(next_card));
    listed_cards = 0;
    device_each_listed(count_listed);
    const int before = listed_cards;
    next_card++;
    set(OPTIONS_MAX, "512M");
    TEST_ASSERT_FALSE(device_is_unlimited(limited()));
    listed_cards = 0;
    device_each_listed(count_listed);
    TEST_ASSERT_EQUAL_INT(before + 1, listed_cards);
    device_after_fork();
    TEST_ASSERT_EQUAL_INT(1, device->ledger->forked);
}

static void test_a_request_without_a_limit_is_admitted_beside_the_min_of_other_jobs(void)
{
    const CUdevice card = next_card++;

    TEST_ASSERT_NULL(device_guarded(card));
    struct device *device = device_list(card);
    TEST_ASSERT_FALSE(device_any_guarded());
    TEST_ASSERT_NULL(device_guarded(card));
    fake.guarded = true;
    TEST_ASSERT_TRUE(device_any_guarded());
    TEST_ASSERT_EQUAL_PTR(device, device_guarded(card));
    TEST_ASSERT_NULL(device_guarded(card + 1));
    TEST_ASSERT_NULL(device_guarded(-1));
    TEST_ASSERT_NULL(device_guarded_current());
    fake.current = card;
    TEST_ASSERT_EQUAL_PTR(device, device_guarded_current());
    TEST_ASSERT_TRUE(device_admit(device, 64 * MIB));
    device_end_admission(device, 64 * MIB);
    TEST_ASSERT_EQUAL_UINT64(64 * MIB, claim_ended);
    fake.admission = -ENOMEM;
    TEST_ASSERT_FALSE(device_admit(device, 64 * MIB));
    fake.admission = -ENODATA;
    TEST_ASSERT_TRUE(device_admit(device, 64 * MIB)); /* nothing can be kept then */
}

/* Checks whether CUDA may start with this rule for `id` on two cards. */
static void expect_check(enum options_id id, const char *rule, bool expected, const char *said)
{
    options_init(&options);
    set(id, rule);
    fake.cards = 2;
    log_fake_clear();
    TEST_ASSERT_EQUAL_INT_MESSAGE(expected, device_check_rules(), rule);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(log_fake_errors, said), log_fake_errors);
}

static void test_a_rule_for_a_card_that_is_not_there_keeps_cuda_from_starting(void)
{
    static const enum options_id ids[] = {OPTIONS_MAX, OPTIONS_EACH, OPTIONS_MIN, OPTIONS_HIGH};
    char said[64];

    for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
        expect_check(ids[i], "1G", true, "");
        expect_check(ids[i], "0=1G,1=2G", true, "");
        snprintf(said, sizeof(said), "%s names device 2, which does not exist", options_table[ids[i]].name);
        expect_check(ids[i], "0=1G,2=2G", false, said);
    }
    TEST_ASSERT_NOT_NULL(strstr(log_fake_errors, "  device 1: GPU-a1000000-0000-0000-0000-00000000000f, 4G"));
    expect_check(OPTIONS_MAX, "GPU-a1=1G", true, "");
    expect_check(OPTIONS_MAX, "GPU-ff=1G", false,
                 "max names the card GPU-ff, which this machine does not have");
    expect_check(OPTIONS_MAX, "GPU-ff=1G,2=1G", false,
                 "max names device 2"); /* even where cards are hidden */
    setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
    expect_check(OPTIONS_MAX, "GPU-ff=1G", true, "");
    expect_check(OPTIONS_MAX, "GPU-ff=1G,2=1G", false, "max names device 2");
    options.source[OPTIONS_MAX] = OPTIONS_ADMIN; /* one file for many machines */
    TEST_ASSERT_TRUE(device_check_rules());
    expect_check(OPTIONS_MAX, "0=1G", true, "");
    set(OPTIONS_MAX, "5=1G");
    fake.fail_count = 1;
    TEST_ASSERT_TRUE(device_check_rules()); /* requests are refused one by one */
    fake.fail_uuid = 1;
    TEST_ASSERT_TRUE(device_check_rules());
}

static void test_a_beginning_of_several_uuids_limits_them_all_and_says_so(void)
{
    static const enum options_id ids[] = {OPTIONS_MAX, OPTIONS_EACH, OPTIONS_MIN, OPTIONS_HIGH};
    char said[128];

    for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
        snprintf(said, sizeof(said),
                 "%s: the UUIDs of 2 cards begin with GPU-a; it applies to each of them (devices 0, 1)\n",
                 options_table[ids[i]].name);
        expect_check(ids[i], "GPU-a=1G", true, said);
        expect_check(ids[i], "GPU-a=1G,GPU-a1=2G,1=3G", true, ""); /* a more exact rule */
        TEST_ASSERT_EQUAL_STRING("", log_fake_errors);
    }
    options_init(&options);
    set_ceiling("GPU-a=1G");
    TEST_ASSERT_TRUE(device_check_rules());
    TEST_ASSERT_NOT_NULL(strstr(log_fake_errors, "max of " OPTIONS_ADMIN_FILE ": the UUIDs of 2 cards"));
}

static void test_a_changed_limit_stays_within_the_administrators_the_card_and_the_job(void)
{
    set(OPTIONS_MAX, "1024M");
    set(OPTIONS_GROUP, "job");
    set_ceiling("900M");
    struct device *device = limited();
    TEST_ASSERT_FALSE(device_set_limit(device, 900 * MIB + 1));
    TEST_ASSERT_TRUE(device_set_limit(device, 900 * MIB));
    TEST_ASSERT_TRUE(device_set_limit(device, 600 * MIB));
    TEST_ASSERT_EQUAL_UINT64(600 * MIB, device->limit);
    TEST_ASSERT_EQUAL_UINT64(600 * MIB, limit_set);
    TEST_ASSERT_EQUAL_UINT64(600 * MIB, noted.bytes);
    TEST_ASSERT_EQUAL_UINT64(600 * MIB, device->ledger->own);
    limit_set = 0;
    device_follow_job(device);
    TEST_ASSERT_EQUAL_UINT64(0, limit_set); /* nothing has changed */
    fake.max = 500 * MIB;
    device_follow_job(device);
    TEST_ASSERT_EQUAL_UINT64(500 * MIB, device->limit);
    TEST_ASSERT_EQUAL_UINT64(500 * MIB, limit_set);
    fake.max = 800 * MIB;
    device_follow_job(device);
    TEST_ASSERT_EQUAL_UINT64(600 * MIB, device->limit);
    options.ceiling.count = 0;
    TEST_ASSERT_FALSE(device_set_limit(device, TOTAL + 1));
    TEST_ASSERT_TRUE(device_set_limit(device, TOTAL));
}

static void test_a_card_is_found_by_its_uuid_once_it_was_looked_at(void)
{
    static const char known[] = "GPU-a0000000-0000-0000-0000-00000000000f";
    CUuuid uuid;
    char text[RULES_UUID_TEXT];

    TEST_ASSERT_EQUAL_INT(0, device_ordinal_of(known));
    TEST_ASSERT_EQUAL_INT(0, device_ordinal_of("MIG-a0000000-0000-0000-0000-00000000000f"));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, get_uuid(&uuid, next_card));
    device_format_uuid(&uuid, text);
    TEST_ASSERT_EQUAL_INT(RULES_NO_ORDINAL, device_ordinal_of(text));
    set(OPTIONS_MAX, "512M");
    const struct device *device = limited();
    TEST_ASSERT_EQUAL_INT(device->ordinal, device_ordinal_of(text));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_whether_there_is_a_single_card_is_asked_until_the_driver_answers);
    RUN_TEST(test_a_limit_is_of_the_process_or_of_its_job);
    RUN_TEST(test_a_process_with_a_min_or_a_high_is_counted_up_to_the_whole_card);
    RUN_TEST(test_a_job_without_a_ledger_has_its_max_for_each_process);
    RUN_TEST(test_limits_that_this_process_has_dropped_for_a_job_to_come_are_named);
    RUN_TEST(test_the_job_binds_if_it_leaves_less_than_the_process_may_have);
    RUN_TEST(test_a_card_that_cannot_be_named_is_asked_again_and_then_refused);
    RUN_TEST(test_the_current_card_is_asked_for_twice);
    RUN_TEST(test_figures_of_the_driver_count_only_for_the_current_card);
    RUN_TEST(test_a_process_without_a_limit_is_listed_once_and_leaves_on_fork);
    RUN_TEST(test_a_request_without_a_limit_is_admitted_beside_the_min_of_other_jobs);
    RUN_TEST(test_a_rule_for_a_card_that_is_not_there_keeps_cuda_from_starting);
    RUN_TEST(test_a_beginning_of_several_uuids_limits_them_all_and_says_so);
    RUN_TEST(test_a_changed_limit_stays_within_the_administrators_the_card_and_the_job);
    RUN_TEST(test_a_card_is_found_by_its_uuid_once_it_was_looked_at);
    return UNITY_END();
}
