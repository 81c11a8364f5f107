/* recorded: what a recording is told of cards, contexts and blocks, and what the command is answered. The
 * recorder, the pools and the driver are the test's own. */
#include "interpose/recorded.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "interpose/account/blocks.h"
#include "interpose/account/device.h"
#include "interpose/account/drivers_pools.h"
#include "interpose/account/inquiry.h"
#include "interpose/base/process.h"
#include "interpose/library.h"
#include "interpose/pool/pools.h"
#include "interpose/see/events.h"
#include "interpose/see/live.h"
#include "interpose/see/owner.h"
#include "interpose/see/recorder.h"
#include "interpose/see/tags.h"

#define EVENTS 32
#define IDLE   700

static struct options options = {.group = "nightly"};
static struct device device = {.ordinal = 1};

static struct fake {
    struct recorder_settings settings; /* of the recording that runs */
    bool runs, is_copy, lock_fails, no_uuid, no_figure;
    int start_rc, starts, syncs, stops, named, uuids_asked;
    char named_uuid[RULES_UUID_TEXT];
    uint64_t named_total;
    struct live_row rows[5];
    size_t row_count;
    const char *question;
    char answer[INQUIRY_ANSWER], long_name[INQUIRY_ANSWER];
    struct recording_event noted, listed[EVENTS];
    int noted_count, listed_count;
} fake;

static void (*at_exit)(void);
static char order[32]; /* of the calls at the end: s sync, S stop */

/* ---- the test's own library ---- */

int __wrap_atexit(void (*function)(void));
int __wrap_atexit(void (*function)(void))
{
    TEST_ASSERT_NULL_MESSAGE(at_exit, "registered once");
    at_exit = function;
    return 0;
}

const struct options *library_options(void)
{
    return &options;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice ordinal)
{
    fake.uuids_asked++;
    memset(uuid, (int)ordinal, sizeof(*uuid));
    return fake.no_uuid ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

static CUresult get_total(size_t *bytes, CUdevice ordinal)
{
    *bytes = 1000 + (size_t)ordinal;
    return CUDA_SUCCESS;
}

static CUresult get_name(char *name, int length, CUdevice ordinal)
{
    snprintf(name, (size_t)length, "card %d", ordinal);
    return CUDA_SUCCESS;
}

void device_format_uuid(const CUuuid *uuid, char text[RULES_UUID_TEXT])
{
    snprintf(text, RULES_UUID_TEXT, "GPU-%d", uuid->bytes[0]);
}

void device_each(void (*visit)(struct device *device))
{
    visit(&device);
}

enum recording_limit device_limit_kind(const struct device *of)
{
    (void)of;
    return RECORDING_LIMIT_JOB;
}

int measure_used(struct measure_card *card, uint64_t *bytes)
{
    TEST_ASSERT_TRUE(atomic_load(&card->present));
    *bytes = 5000 + (uint64_t)atoi(card->uuid + 4);
    return fake.no_figure ? -ENODATA : 0;
}

uint64_t drivers_pools_idle_on(CUdevice ordinal)
{
    return IDLE + (uint64_t)ordinal;
}

void pools_each(void (*visit)(struct pool *pool, void *argument), void *argument)
{
    static struct pool pools[] = {{.ordinal = 0}, {.ordinal = 1}};

    visit(&pools[0], argument);
    visit(&pools[1], argument);
}

void pool_each_live(struct pool *pool,
                    void (*visit)(uint64_t address, const struct mark *mark, void *argument), void *argument)
{
    const struct mark mark = {.asked = 100 + (uint64_t)pool->ordinal, .tag = 7};

    visit(0x1000 + (uint64_t)pool->ordinal, &mark, argument);
}

uint64_t pool_held_on(CUdevice ordinal)
{
    return ordinal < 2 ? 2000 + (uint64_t)ordinal : 0;
}

void blocks_each(void (*visit)(const struct block *block, void *argument), void *argument)
{
    for (int kind = BLOCKS_LINEAR; kind <= BLOCKS_MIPMAP; kind++) {
        const struct block block = {
            .key = 0x9000 + (uint64_t)kind, .kind = (enum blocks_kind)kind, .bytes = 10, .device = 1};

        visit(&block, argument);
    }
}

void events_publish(struct recording_event *slot)
{
    fake.noted_count++;
    fake.noted = *slot;
}

bool live_row(size_t index, struct live_row *row)
{
    if (index < fake.row_count)
        *row = fake.rows[index];
    return index < fake.row_count;
}

const char *owner_name(uint16_t owner)
{
    return owner == 1 ? "cuDNN" : owner == 2 ? fake.long_name : "program";
}

const char *tags_name(uint16_t tag)
{
    return tag ? "forward" : "";
}

bool process_is_copy(void)
{
    return fake.is_copy;
}

bool process_lock_at_exit(pthread_mutex_t *lock)
{
    return !fake.lock_fails && pthread_mutex_lock(lock) == 0;
}

/* ---- the test's own recorder ---- */

int recorder_start(const struct recorder_settings *settings)
{
    fake.starts++;
    if (fake.start_rc)
        return fake.start_rc;
    fake.settings = *settings;
    fake.runs = true;
    return 0;
}

void recorder_stop(void)
{
    strcat(order, "S");
    fake.stops++;
    fake.runs = false;
}

bool recorder_sync(void)
{
    strcat(order, "s");
    fake.syncs++;
    return fake.runs;
}

bool recorder_runs(char path[RECORDING_WRITE_PATH])
{
    strcpy(path, "/tmp/r.gpucap");
    return fake.runs;
}

const char *recorder_why(void)
{
    return "the disk is full";
}

uint64_t recorder_context_bytes(int card)
{
    return card == 1 ? 300 : 0;
}

uint64_t recorder_driver_idle(int card)
{
    return card == 1 ? 200 : 0;
}

void recorder_name_device(int card, const char *name, const char *uuid, uint64_t total)
{
    (void)card;
    fake.named++;
    snprintf(fake.named_uuid, sizeof(fake.named_uuid), "%s", uuid);
    fake.named_total = total;
    TEST_ASSERT_EQUAL_STRING_LEN("card ", name, 5);
}

/* ---- the test's own request ---- */

bool inquiry_take(const char *folder, char text[INQUIRY_QUESTION])
{
    TEST_ASSERT_EQUAL_STRING("folder", folder);
    if (fake.question)
        strcpy(text, fake.question);
    return fake.question != NULL;
}

int inquiry_answer(const char *folder, const char *text)
{
    TEST_ASSERT_EQUAL_STRING("folder", folder);
    strcpy(fake.answer, text);
    return 0;
}

static const char *ask(const char *question)
{
    fake.question = question;
    strcpy(fake.answer, "(none)");
    recorded_serve("folder");
    return fake.answer;
}

/* ---- helpers ---- */

static CUcontext context(int number)
{
    static char places[8];

    return (CUcontext)&places[number];
}

static void list_event(struct recording_event *event)
{
    TEST_ASSERT_LESS_THAN_INT(EVENTS, fake.listed_count);
    fake.listed[fake.listed_count++] = *event;
}

/* Returns the only event of a type, a card and an address that was listed. */
static const struct recording_event *listed(int type, int card, uint64_t address)
{
    const struct recording_event *found = NULL;

    for (int i = 0; i < fake.listed_count; i++) {
        const struct recording_event *event = &fake.listed[i];

        if (event->head.type != type || event->device != card || event->address != address)
            continue;
        TEST_ASSERT_NULL_MESSAGE(found, "each is listed once");
        found = event;
    }
    TEST_ASSERT_NOT_NULL(found);
    return found;
}

static struct used {
    int count;
    uint64_t bytes[DEVICE_MAX], idle[DEVICE_MAX];
} used;

static void note_used(int card, uint64_t bytes, uint64_t idle)
{
    used.count++;
    used.bytes[card] = bytes;
    used.idle[card] = idle;
}

static void sample(void)
{
    used = (struct used){0};
    fake.settings.sample(note_used);
}

void setUp(void)
{
    driver_entries.cuDeviceGetUuid_v2 = get_uuid;
    driver_entries.cuDeviceTotalMem_v2 = get_total;
    driver_entries.cuDeviceGetName = get_name;
    fake = (struct fake){0};
    order[0] = '\0';
    atomic_store(&device.limit, 4096);
    atomic_store(&events_on, false);
}

void tearDown(void) {}

/* ---- promises, in this order: cards keep their names ---- */

static void test_nothing_is_recorded_unless_the_options_ask_for_it(void)
{
    struct options none = {.record = ""}, some = {.record = "f", .stacks = true};

    recorded_begin(&none);
    TEST_ASSERT_EQUAL_INT(0, fake.starts);
    recorded_begin(&some);
    TEST_ASSERT_EQUAL_INT(1, fake.starts);
    TEST_ASSERT_EQUAL_STRING("f", fake.settings.file);
    TEST_ASSERT_EQUAL_STRING("nightly", fake.settings.job);
    TEST_ASSERT_TRUE(fake.settings.stacks);
    TEST_ASSERT_NULL_MESSAGE(fake.settings.list_live, "there is nothing yet");
}

static void test_a_card_is_named_when_it_has_a_context_and_a_recording(void)
{
    recorded_context_made(2, context(2));
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, fake.uuids_asked, "without a recording nothing is asked");
    ask("start off f");
    TEST_ASSERT_EQUAL_INT(1, fake.named);
    TEST_ASSERT_EQUAL_STRING("GPU-2", fake.named_uuid);
    TEST_ASSERT_EQUAL_UINT64(1002, fake.named_total);
    atomic_store(&events_on, true);
    fake.no_uuid = true; /* then it is named at the next context */
    recorded_context_made(1, context(1));
    TEST_ASSERT_EQUAL_INT(1, fake.named);
    fake.no_uuid = false;
    recorded_context_made(1, context(1));
    TEST_ASSERT_EQUAL_STRING("GPU-1", fake.named_uuid);
    recorded_context_made(1, context(3));
    TEST_ASSERT_EQUAL_INT_MESSAGE(2, fake.named, "once is enough");
    recorded_context_made(-1, context(4));
    recorded_context_made(DEVICE_MAX, context(4));
    TEST_ASSERT_EQUAL_INT(2, fake.named);
}

static void test_figures_are_those_of_cards_with_a_context(void)
{
    ask("start off f");
    sample();
    TEST_ASSERT_EQUAL_INT(2, used.count);
    TEST_ASSERT_EQUAL_UINT64(5001, used.bytes[1]);
    TEST_ASSERT_EQUAL_UINT64(IDLE + 1, used.idle[1]);
    TEST_ASSERT_EQUAL_UINT64(5002, used.bytes[2]);
    fake.no_figure = true;
    sample();
    TEST_ASSERT_EQUAL_INT(0, used.count);
}

static void test_a_context_ends_on_its_own_card(void)
{
    atomic_store(&events_on, true);
    ask("start off f");
    recorded_context_ended(NULL);
    recorded_context_ended(context(1)); /* not the latest of its card */
    TEST_ASSERT_EQUAL_INT(0, fake.noted_count);
    recorded_context_ended(context(2));
    TEST_ASSERT_EQUAL_INT(1, fake.noted_count);
    TEST_ASSERT_EQUAL_INT(RECORDING_CONTEXT, fake.noted.head.type);
    TEST_ASSERT_EQUAL_INT(2, fake.noted.device);
    TEST_ASSERT_EQUAL_UINT64(0, fake.noted.bytes);
    TEST_ASSERT_EQUAL_UINT64(3, fake.noted.other);
    sample();
    TEST_ASSERT_EQUAL_INT(1, used.count);
    TEST_ASSERT_EQUAL_UINT64(5001, used.bytes[1]);
    recorded_context_ended(context(2));
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, fake.noted_count, "it ends once");
}

static void test_a_late_recording_begins_with_what_is_there(void)
{
    static const uint8_t kinds[] = {[BLOCKS_LINEAR] = RECORDING_MALLOC, [BLOCKS_MANAGED] = RECORDING_MANAGED,
                                    [BLOCKS_ASYNC] = RECORDING_ASYNC,   [BLOCKS_HANDLE] = RECORDING_VMM,
                                    [BLOCKS_ARRAY] = RECORDING_ARRAY,   [BLOCKS_MIPMAP] = RECORDING_ARRAY};

    ask("start on f");
    TEST_ASSERT_TRUE(fake.settings.stacks);
    fake.settings.list_live(list_event);
    TEST_ASSERT_EQUAL_INT(5 + 6, fake.listed_count);
    for (int card = 0; card < 2; card++) {
        const struct recording_event *block = listed(0, card, 0x1000 + (uint64_t)card);

        TEST_ASSERT_EQUAL_UINT64(100 + (uint64_t)card, block->bytes);
        TEST_ASSERT_EQUAL_INT(RECORDING_MALLOC, block->kind);
        TEST_ASSERT_EQUAL_INT(7, block->tag);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(2000 + (uint64_t)card, listed(RECORDING_GROW, card, 0)->other,
                                         "what the pools hold");
    }
    for (int kind = BLOCKS_LINEAR; kind <= BLOCKS_MIPMAP; kind++) {
        TEST_ASSERT_EQUAL_INT(kinds[kind], listed(0, 1, 0x9000 + (uint64_t)kind)->kind);
        TEST_ASSERT_EQUAL_UINT64(10, listed(0, 1, 0x9000 + (uint64_t)kind)->bytes);
    }
    const struct recording_event *limit = listed(RECORDING_LIMIT, 1, 0);
    TEST_ASSERT_EQUAL_UINT64(4096, limit->bytes);
    TEST_ASSERT_EQUAL_UINT64(RECORDING_LIMIT_JOB, limit->other);
}

static void test_a_recording_is_started_and_stopped_by_request(void)
{
    TEST_ASSERT_EQUAL_STRING("error: it does not record\n", ask("stop"));
    TEST_ASSERT_EQUAL_STRING("recording to /tmp/r.gpucap\n", ask("start off a b"));
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, fake.syncs, "what is live is listed before the answer");
    TEST_ASSERT_EQUAL_STRING("a b", fake.settings.file);
    TEST_ASSERT_FALSE(fake.settings.stacks);
    fake.start_rc = -EALREADY;
    TEST_ASSERT_EQUAL_STRING("error: it records to /tmp/r.gpucap already\n", ask("start off f"));
    order[0] = '\0';
    TEST_ASSERT_EQUAL_STRING("recorded to /tmp/r.gpucap\n", ask("stop"));
    TEST_ASSERT_EQUAL_STRING_MESSAGE("sS", order, "one last figure, then the end");
    fake.start_rc = -ENOSPC;
    TEST_ASSERT_EQUAL_STRING("error: the disk is full\n", ask("start off f"));
    fake.starts = 0;
    ask("start off");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, fake.starts, "without a file there is nothing to start");
    TEST_ASSERT_EQUAL_STRING("error: it does not know this request\n", ask("restart"));
    TEST_ASSERT_EQUAL_STRING("(none)", ask(NULL));
}

static void test_owners_are_told_with_what_is_idle(void)
{
    TEST_ASSERT_NOT_NULL(strstr(ask("owners"), "error: it does not record; `gpucap record start "));
    ask("start off f");
    fake.rows[0] = (struct live_row){
        .device = 1, .owner = 1, .tag = 1, .kind = RECORDING_MALLOC, .bytes = 500, .blocks = 2, .peak = 900};
    fake.rows[1] =
        (struct live_row){.device = 1, .kind = RECORDING_ASYNC, .bytes = 50, .blocks = 1, .peak = 60};
    fake.rows[2] = (struct live_row){.device = 0, .kind = RECORDING_VMM, .peak = 70}; /* all freed */
    fake.rows[3] = (struct live_row){.device = 0, .kind = 99, .blocks = 1};
    fake.rows[4] =
        (struct live_row){.device = 1, .kind = RECORDING_MALLOC, .bytes = 100, .blocks = 1, .peak = 100};
    fake.row_count = 5;
    TEST_ASSERT_EQUAL_STRING("1\t500\t2\t900\tmalloc\tcuDNN\tforward\n"
                             "1\t50\t1\t60\tasync\tprogram\t\n"
                             "0\t0\t1\t0\tother\tprogram\t\n"
                             "1\t100\t1\t100\tmalloc\tprogram\t\n"
                             "0\t2000\t0\t0\tidle\tgpucap\t\n"
                             "1\t1401\t0\t0\tidle\tgpucap\t\n"
                             "1\t200\t0\t0\tidle\tdriver\t\n"
                             "1\t300\t0\t0\tcontext\tdriver\t\n",
                             ask("owners"));
}

/* An answer of INQUIRY_ANSWER bytes has its end in it. */
static void test_an_owner_for_whom_there_is_no_room_is_left_out(void)
{
    static const char around[] = "0\t1\t1\t1\tmalloc\t\t\n", idle[] = "0\t1999\t0\t0\tidle\tgpucap\t\n";

    ask("start off f");
    fake.rows[0] = (struct live_row){
        .device = 0, .owner = 2, .kind = RECORDING_MALLOC, .bytes = 1, .blocks = 1, .peak = 1};
    fake.row_count = 1;
    memset(fake.long_name, 'a', INQUIRY_ANSWER - sizeof(around));
    TEST_ASSERT_EQUAL_size_t(INQUIRY_ANSWER - 1, strlen(ask("owners")));
    TEST_ASSERT_EQUAL_STRING("\t\n", fake.answer + INQUIRY_ANSWER - 3);
    fake.long_name[INQUIRY_ANSWER - sizeof(around)] = 'a';
    TEST_ASSERT_EQUAL_STRING_LEN(idle, ask("owners"), strlen(idle));
}

/* Runs last: from here on the driver must not be asked any more. */
static void test_at_exit_there_is_one_last_figure_and_then_no_driver(void)
{
    ask("start off f");
    TEST_ASSERT_NOT_NULL(at_exit);
    order[0] = '\0';
    fake.is_copy = true;
    at_exit();
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", order, "the recording is not the child's");
    fake.is_copy = false;
    fake.lock_fails = true; /* the recorder asks the driver now, and waits */
    at_exit();
    TEST_ASSERT_EQUAL_STRING("s", order);
    sample();
    TEST_ASSERT_EQUAL_UINT64(IDLE + 1, used.idle[1]);
    fake.lock_fails = false;
    at_exit();
    sample();
    TEST_ASSERT_EQUAL_INT(1, used.count);
    TEST_ASSERT_EQUAL_UINT64(RECORDER_UNKNOWN, used.idle[1]);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_nothing_is_recorded_unless_the_options_ask_for_it);
    RUN_TEST(test_a_card_is_named_when_it_has_a_context_and_a_recording);
    RUN_TEST(test_figures_are_those_of_cards_with_a_context);
    RUN_TEST(test_a_context_ends_on_its_own_card);
    RUN_TEST(test_a_late_recording_begins_with_what_is_there);
    RUN_TEST(test_a_recording_is_started_and_stopped_by_request);
    RUN_TEST(test_owners_are_told_with_what_is_idle);
    RUN_TEST(test_an_owner_for_whom_there_is_no_room_is_left_out);
    RUN_TEST(test_at_exit_there_is_one_last_figure_and_then_no_driver);
    return UNITY_END();
}
