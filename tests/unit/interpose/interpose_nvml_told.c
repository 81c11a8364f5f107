/* What a program is told of a card's memory by NVML: NVML, card, account and pools are the test's own, the
 * options are real. */
#include "interpose/hook/hooks.h"

#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "interpose/account/device.h"
#include "interpose/driver/nvml.h"
#include "interpose/library.h"
#include "interpose/pool/pools.h"

#define MIB   (UINT64_C(1) << 20)
#define TOTAL (4096 * MIB)
#define UUID  "GPU-00000000-0000-0000-0000-000000000001"
#define CARD  ((nvml_device)0x10)

nvml_return nvmlDeviceGetMemoryInfo(nvml_device card, struct nvml_memory *memory);
nvml_return nvmlDeviceGetMemoryInfo_v2(nvml_device card, struct nvml_memory_v2 *memory);

struct nvml_table nvml;
static struct options options;
static atomic_int mode;
_Atomic(atomic_int *) library_state = &mode;
static struct device device;

static struct fake {
    bool missing, nested, known, measured;
    nvml_return uuid, memory;
    unsigned index;
    uint64_t used_on_card; /* by all */
    uint64_t used, room, idle, others;
    uint64_t job_max; /* in the ledger; 0: the job is not there */
} fake;

/* ---- the test's own library ---- */

enum library_mode library_begin(void)
{
    return LIBRARY_ON;
}

const struct options *library_options(void)
{
    return &options;
}

bool nvml_open(void)
{
    return !fake.missing;
}

int device_ordinal_of(const char *uuid)
{
    TEST_ASSERT_EQUAL_STRING(UUID, uuid);
    return fake.known ? 3 : RULES_NO_ORDINAL;
}

struct device *device_get(CUdevice ordinal)
{
    TEST_ASSERT_EQUAL_INT(3, ordinal);
    return device.total ? &device : NULL;
}

struct account_view account_view(struct account *account)
{
    TEST_ASSERT_EQUAL_PTR(&device.account, account);
    return (struct account_view){.room = fake.room, .used = fake.used};
}

uint64_t pools_reclaimable(CUdevice ordinal)
{
    TEST_ASSERT_EQUAL_INT(3, ordinal);
    return fake.idle;
}

uint64_t ledger_used_by_others(const struct ledger *ledger)
{
    TEST_ASSERT_NOT_NULL(ledger);
    return fake.others;
}

int ledger_folder(const char *asked, char *path, size_t size)
{
    TEST_ASSERT_LESS_THAN_size_t(size, strlen(asked));
    strcpy(path, asked);
    return 0;
}

bool ledger_look_at_job(const char *folder, const char *uuid, const char *job, uint64_t *max, uint64_t *used)
{
    TEST_ASSERT_FALSE(fake.known);
    TEST_ASSERT_EQUAL_STRING("/ledgers", folder);
    TEST_ASSERT_EQUAL_STRING(UUID, uuid);
    TEST_ASSERT_EQUAL_STRING("night", job);
    *max = fake.job_max;
    *used = fake.job_max ? fake.others : 0;
    return fake.job_max;
}

int measure_used(struct measure_card *card, uint64_t *bytes)
{
    TEST_ASSERT_EQUAL_STRING(UUID, card->uuid);
    TEST_ASSERT_FALSE(fake.known); /* the account of a known card has measured */
    *bytes = fake.used;
    return fake.measured ? 0 : -1;
}

static nvml_return get_uuid(nvml_device card, char *text, unsigned size)
{
    TEST_ASSERT_EQUAL_PTR(CARD, card);
    strncpy(text, UUID, size);
    return fake.uuid;
}

static nvml_return get_index(nvml_device card, unsigned *index)
{
    (void)card;
    *index = fake.index;
    return NVML_OK;
}

static nvml_return get_memory_v2(nvml_device card, struct nvml_memory_v2 *memory)
{
    (void)card;
    memory->total = TOTAL;
    memory->reserved = 100 * MIB;
    memory->used = fake.used_on_card;
    memory->free = TOTAL - 100 * MIB - fake.used_on_card;
    return fake.memory;
}

/* NVML may call its own query by name, and reaches our hook. */
static nvml_return get_memory(nvml_device card, struct nvml_memory *memory)
{
    (void)card;
    if (fake.nested) {
        fake.nested = false;
        return nvmlDeviceGetMemoryInfo(card, memory);
    }
    memory->total = TOTAL;
    memory->used = fake.used_on_card;
    memory->free = TOTAL - fake.used_on_card;
    return fake.memory;
}

/* ---- tests ---- */

static void set_max(const char *value)
{
    char error[OPTIONS_ERROR_MAX];

    TEST_ASSERT_EQUAL_INT(0, options_set(&options, OPTIONS_MAX, value, OPTIONS_ENVIRONMENT, error));
}

void setUp(void)
{
    static int ledger;

    nvml = (struct nvml_table){
        .uuid = get_uuid, .index = get_index, .memory = get_memory, .memory_v2 = get_memory_v2};
    fake = (struct fake){.known = true, .measured = true, .used_on_card = 1000 * MIB};
    mode = LIBRARY_ON;
    options_init(&options);
    device.total = TOTAL;
    device.limit = 512 * MIB;
    device.account.state.reserve = 32 * MIB;
    device.ledger = (struct ledger *)&ledger;
    unsetenv("CUDA_VISIBLE_DEVICES");
}

void tearDown(void) {}

static void expect(uint64_t total, uint64_t used, uint64_t free_bytes)
{
    struct nvml_memory memory;

    TEST_ASSERT_EQUAL_INT(NVML_OK, nvmlDeviceGetMemoryInfo(CARD, &memory));
    TEST_ASSERT_EQUAL_UINT64(total, memory.total);
    TEST_ASSERT_EQUAL_UINT64(used, memory.used);
    TEST_ASSERT_EQUAL_UINT64(free_bytes, memory.free);
}

static void test_a_limited_program_is_told_its_limit_and_what_it_uses_beside_idle_memory(void)
{
    fake.used = 300 * MIB;
    fake.idle = 100 * MIB;
    fake.room = 150 * MIB;
    expect(512 * MIB, 200 * MIB, 250 * MIB);
    fake.others = 50 * MIB; /* of the job */
    expect(512 * MIB, 250 * MIB, 250 * MIB);
    fake.room = 400 * MIB; /* figures read one after the other */
    expect(512 * MIB, 250 * MIB, 262 * MIB);
    fake.idle = 400 * MIB;
    fake.others = 600 * MIB;
    expect(512 * MIB, 512 * MIB, 0);
    fake.others = fake.idle = 0;
    fake.room = 200 * MIB;
    fake.used_on_card = TOTAL - 10 * MIB; /* of other programs */
    expect(512 * MIB, 300 * MIB, 10 * MIB);
}

static void test_the_second_version_tells_the_reserve_too(void)
{
    struct nvml_memory_v2 memory;

    fake.used = 300 * MIB;
    fake.room = 150 * MIB;
    TEST_ASSERT_EQUAL_INT(NVML_OK, nvmlDeviceGetMemoryInfo_v2(CARD, &memory));
    TEST_ASSERT_EQUAL_UINT64(512 * MIB, memory.total);
    TEST_ASSERT_EQUAL_UINT64(300 * MIB, memory.used);
    TEST_ASSERT_EQUAL_UINT64(150 * MIB, memory.free);
    TEST_ASSERT_EQUAL_UINT64(32 * MIB, memory.reserved);
    fake.room = 200 * MIB;
    nvmlDeviceGetMemoryInfo_v2(CARD, &memory);
    TEST_ASSERT_EQUAL_UINT64(12 * MIB, memory.reserved); /* what is left of the total */
    device.limit = RULES_UNLIMITED;
    nvmlDeviceGetMemoryInfo_v2(CARD, &memory);
    TEST_ASSERT_EQUAL_UINT64(TOTAL, memory.total);
    TEST_ASSERT_EQUAL_UINT64(100 * MIB, memory.reserved); /* NVML's own */
}

static void test_without_a_limit_only_idle_memory_is_told_as_free(void)
{
    device.total = 0;
    fake.idle = 100 * MIB;
    expect(TOTAL, 900 * MIB, TOTAL - 900 * MIB);
    fake.nested = true; /* NVML calls itself: idle memory is told once */
    expect(TOTAL, 900 * MIB, TOTAL - 900 * MIB);
    fake.idle = 2000 * MIB;
    expect(TOTAL, 0, TOTAL);
}

static void test_the_cards_own_figures_are_left_where_we_have_nothing_to_say(void)
{
    struct nvml_memory memory;

    fake.nested = true;
    fake.room = 150 * MIB;
    expect(512 * MIB, 0, 150 * MIB); /* once, whatever NVML calls inside */
    mode = LIBRARY_PASS;
    expect(TOTAL, 1000 * MIB, TOTAL - 1000 * MIB);
    mode = LIBRARY_ON;
    fake.uuid = NVML_NOT_SUPPORTED;
    expect(TOTAL, 1000 * MIB, TOTAL - 1000 * MIB);
    fake.uuid = NVML_OK;
    fake.memory = NVML_NOT_SUPPORTED;
    TEST_ASSERT_EQUAL_INT(NVML_NOT_SUPPORTED, nvmlDeviceGetMemoryInfo(CARD, &memory));
    TEST_ASSERT_EQUAL_UINT64(TOTAL, memory.total);
    fake.missing = true;
    TEST_ASSERT_EQUAL_INT(NVML_UNINITIALIZED, nvmlDeviceGetMemoryInfo(CARD, &memory));
    fake.missing = false;
    nvml.memory_v2 = NULL;
    TEST_ASSERT_EQUAL_INT(NVML_UNINITIALIZED, nvmlDeviceGetMemoryInfo_v2(CARD, NULL));
}

/* Checks the limit that is told before CUDA has started, with this CUDA_VISIBLE_DEVICES. */
static void expect_limit(const char *visible, uint64_t limit)
{
    struct nvml_memory memory;

    if (visible)
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    TEST_ASSERT_EQUAL_INT(NVML_OK, nvmlDeviceGetMemoryInfo(CARD, &memory));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(limit, memory.total, visible);
}

static void test_before_cuda_starts_a_card_has_the_number_that_it_will_get(void)
{
    fake.known = false;
    fake.index = 2;
    fake.idle = 100 * MIB; /* of no pool: none is known */
    set_max("0=256M,1=512M,2=768M");
    expect_limit(NULL, 768 * MIB);
    expect_limit("2,0", 256 * MIB);
    expect_limit("0,2", 512 * MIB);
    expect_limit("20,2x,2", 768 * MIB); /* other cards, or nonsense */
    expect_limit("1," UUID, 512 * MIB);
    expect_limit("gpu-00000000-0000", 256 * MIB);
    expect_limit("1,0", TOTAL); /* hidden: CUDA will not use it */
    expect_limit("", TOTAL);
    expect_limit(",2", 512 * MIB);
    fake.index = 0;
    expect_limit(",0", 512 * MIB);
    fake.index = 2;
    set_max("512M");
    unsetenv("CUDA_VISIBLE_DEVICES");
    options.reserve = (struct size_value){.bytes = 32 * MIB};
    expect(512 * MIB, 0, 480 * MIB);
    fake.used = 100 * MIB; /* a process that has not looked at the card yet */
    expect(512 * MIB, 100 * MIB, 412 * MIB);
    fake.measured = false;
    expect(512 * MIB, 0, 480 * MIB);
}

/* For example nvidia-smi in the job, or a program that asks NVML first. */
static void test_before_cuda_starts_a_process_is_told_what_its_job_uses(void)
{
    fake.known = false;
    strcpy(options.group, "night");
    strcpy(options.ledger, "/ledgers");
    options.reserve = (struct size_value){.bytes = 32 * MIB};
    set_max("512M");
    fake.others = 200 * MIB;
    expect(512 * MIB, 0, 480 * MIB); /* the job is not there */
    fake.job_max = 768 * MIB;        /* it was raised since */
    expect(768 * MIB, 200 * MIB, 536 * MIB);
    options.each = options.max;
    expect(512 * MIB, 200 * MIB, 280 * MIB);
    strcpy(options.ledger, "off");
    expect(512 * MIB, 0, 480 * MIB);
}

static void test_only_the_library_that_we_know_is_hooked(void)
{
    void *own = hooks_find_nvml("nvmlDeviceGetMemoryInfo");
    void *own_v2 = hooks_find_nvml("nvmlDeviceGetMemoryInfo_v2");

    TEST_ASSERT_EQUAL_PTR((void *)nvmlDeviceGetMemoryInfo, own);
    TEST_ASSERT_EQUAL_PTR((void *)nvmlDeviceGetMemoryInfo_v2, own_v2);
    TEST_ASSERT_NULL(hooks_find_nvml("nvmlInit_v2"));
    TEST_ASSERT_EQUAL_PTR(own, hooks_for_nvml("nvmlDeviceGetMemoryInfo", (void *)get_memory));
    TEST_ASSERT_EQUAL_PTR(own_v2, hooks_for_nvml("nvmlDeviceGetMemoryInfo_v2", (void *)get_memory_v2));
    TEST_ASSERT_EQUAL_PTR((void *)get_uuid, hooks_for_nvml("nvmlDeviceGetMemoryInfo", (void *)get_uuid));
    TEST_ASSERT_EQUAL_PTR((void *)get_uuid, hooks_for_nvml("nvmlDeviceGetMemoryInfo_v2", (void *)get_uuid));
    TEST_ASSERT_EQUAL_PTR((void *)get_uuid, hooks_for_nvml("nvmlInit_v2", (void *)get_uuid));
    fake.missing = true;
    TEST_ASSERT_EQUAL_PTR((void *)get_memory, hooks_for_nvml("nvmlDeviceGetMemoryInfo", (void *)get_memory));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_limited_program_is_told_its_limit_and_what_it_uses_beside_idle_memory);
    RUN_TEST(test_the_second_version_tells_the_reserve_too);
    RUN_TEST(test_without_a_limit_only_idle_memory_is_told_as_free);
    RUN_TEST(test_the_cards_own_figures_are_left_where_we_have_nothing_to_say);
    RUN_TEST(test_before_cuda_starts_a_card_has_the_number_that_it_will_get);
    RUN_TEST(test_before_cuda_starts_a_process_is_told_what_its_job_uses);
    RUN_TEST(test_only_the_library_that_we_know_is_hooked);
    return UNITY_END();
}
