/* The names in a recording: each is written once per file, before its first use, and a file that begins later
 * gets all that it needs. The file is the test's own, and so are owners, tags and stacks. */
#include "interpose/see/recorder_names.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/see/owner.h"
#include "interpose/see/recorder.h"
#include "interpose/see/stacks.h"
#include "interpose/see/tags.h"

#define RECORDS 64
#define BYTES   8192

static struct recording_write file;
static struct record {
    struct recording_record head;
    uint32_t id;
    char text[BYTES];
    size_t bytes;
} records[RECORDS];
static int count, fails_at; /* fails_at: the record for which there is no room, from 1 on; 0: none */

static struct fake {
    size_t modules;
    const char *path; /* of each owner and module */
} fake;

/* ---- the test's own file, owners, tags and stacks ---- */

int recording_write_reserve(struct recording_write *of, size_t bytes)
{
    TEST_ASSERT_EQUAL_PTR(&file, of);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, bytes % 8, "records are multiples of 8 bytes");
    return count + 1 == fails_at ? -28 : 0;
}

void recording_write_add(struct recording_write *of, const void *record, size_t bytes)
{
    TEST_ASSERT_EQUAL_PTR(&file, of);
    TEST_ASSERT_LESS_THAN_INT(RECORDS, count);
    TEST_ASSERT_LESS_OR_EQUAL_UINT64(BYTES, bytes);
    struct record *to = &records[count++];
    const struct recording_name *name = record; /* or a stack, whose head is laid out alike */
    to->head = name->head;
    to->id = name->id;
    memcpy(to->text, name->text, bytes - sizeof(*name));
    to->bytes = bytes;
    TEST_ASSERT_EQUAL_UINT64(bytes, to->head.size);
}

const char *owner_name(uint16_t owner)
{
    return owner == 1 ? "cuDNN" : "cuBLAS";
}

const char *owner_path(uint16_t owner)
{
    (void)owner;
    return fake.path;
}

atomic_uint owner_reads;

bool owner_module(size_t index, struct owner_map *module)
{
    *module = (struct owner_map){.start = 0x1000 * (index + 1),
                                 .end = 0x1000 * (index + 1) + 0x800,
                                 .offset = 0x10 * index,
                                 .path = fake.path};
    return index < fake.modules;
}

const char *tags_name(uint16_t tag)
{
    return tag == 1 ? "forward" : "backward";
}

size_t stacks_read(uint32_t stack, uint64_t frames[STACKS_FRAMES])
{
    const uint32_t depth = stack < 4 ? stack : 4;

    for (uint32_t i = 0; i < depth; i++)
        frames[i] = 0x1000 * stack + i;
    return depth;
}

/* ---- helpers ---- */

static uint32_t self(void)
{
    return (uint32_t)syscall(SYS_gettid);
}

/* Writes the names of an event. Returns how many records that took. */
static int names_of(const struct recording_event *event)
{
    const int before = count;

    TEST_ASSERT_EQUAL_INT(0, recorder_names_of(&file, event));
    return count - before;
}

static const struct record *last(enum recording_type type, uint32_t id)
{
    TEST_ASSERT_GREATER_THAN_INT(0, count);
    TEST_ASSERT_EQUAL_INT(type, records[count - 1].head.type);
    TEST_ASSERT_EQUAL_UINT32(id, records[count - 1].id);
    return &records[count - 1];
}

void setUp(void)
{
    owner_reads = 1;
    fake = (struct fake){.modules = 2, .path = "/lib/libx.so"};
    count = fails_at = 0;
    memset(records, 0xee, sizeof(records));
    recorder_names_clear();
    names_of(&(struct recording_event){.thread = self(), .owner = OWNER_MAX});
    count = 0;
}

void tearDown(void) {}

/* ---- promises ---- */

static void test_each_name_is_written_once_before_its_first_use(void)
{
    struct recording_event event = {.thread = self(), .owner = 1};

    TEST_ASSERT_EQUAL_INT(1, names_of(&event));
    const struct record *owner = last(RECORDING_OWNER, 1);
    TEST_ASSERT_EQUAL_STRING("cuDNN", owner->text);
    TEST_ASSERT_EQUAL_STRING("/lib/libx.so", owner->text + sizeof("cuDNN"));
    TEST_ASSERT_EQUAL_INT(0, names_of(&event));

    event.tag = 2;
    TEST_ASSERT_EQUAL_INT(1, names_of(&event));
    TEST_ASSERT_EQUAL_STRING("backward", last(RECORDING_TAG, 2)->text);
    event.tag = 1;
    TEST_ASSERT_EQUAL_INT(1, names_of(&event));
    TEST_ASSERT_EQUAL_STRING("forward", last(RECORDING_TAG, 1)->text);
    TEST_ASSERT_EQUAL_INT(0, names_of(&event));
    event.owner = 2;
    TEST_ASSERT_EQUAL_INT(1, names_of(&event));
    TEST_ASSERT_EQUAL_STRING("cuBLAS", last(RECORDING_OWNER, 2)->text);
    TEST_ASSERT_EQUAL_INT(0, names_of(&event));
}

static void test_numbers_out_of_range_have_no_name(void)
{
    const struct recording_event event = {
        .thread = self(), .owner = OWNER_MAX, .tag = TAGS_MAX, .device = 64, .stack = STACKS_MAX + 1};

    TEST_ASSERT_EQUAL_INT(0, names_of(&event));
    names_of(&(struct recording_event){.thread = self(), .owner = OWNER_MAX, .stack = STACKS_MAX});
    TEST_ASSERT_NOT_NULL_MESSAGE(last(RECORDING_STACK, STACKS_MAX), "the last that is kept");
    recorder_name_device(64, "none", "GPU-0", 1);
    recorder_name_device(-1, "none", "GPU-0", 1);
}

static void test_a_thread_has_its_name_without_a_newline(void)
{
    prctl(PR_SET_NAME, "loader");
    recorder_names_clear();
    TEST_ASSERT_EQUAL_INT(1, names_of(&(struct recording_event){.thread = self(), .owner = OWNER_MAX}));
    TEST_ASSERT_EQUAL_STRING("loader", last(RECORDING_THREAD, self())->text);
    TEST_ASSERT_EQUAL_INT(0, names_of(&(struct recording_event){.thread = self(), .owner = OWNER_MAX}));
    /* a thread that has ended has no name any more, and that is no error */
    TEST_ASSERT_EQUAL_INT(0, names_of(&(struct recording_event){.thread = 0x7ffffff0, .owner = OWNER_MAX}));
    TEST_ASSERT_EQUAL_INT(0, names_of(&(struct recording_event){.thread = self(), .owner = OWNER_MAX}));
}

static atomic_uint other_thread;
static pthread_mutex_t others_end = PTHREAD_MUTEX_INITIALIZER;

static void *run_other(void *unused)
{
    prctl(PR_SET_NAME, "other");
    atomic_store(&other_thread, self());
    pthread_mutex_lock(&others_end); /* until its name has been read */
    pthread_mutex_unlock(&others_end);
    return unused;
}

static void test_each_thread_has_its_own_name(void)
{
    pthread_t thread;

    pthread_mutex_lock(&others_end);
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, run_other, NULL));
    while (!atomic_load(&other_thread))
        sched_yield();
    const struct recording_event event = {.thread = atomic_load(&other_thread), .owner = OWNER_MAX};
    TEST_ASSERT_EQUAL_INT(1, names_of(&event));
    TEST_ASSERT_EQUAL_STRING("other", last(RECORDING_THREAD, event.thread)->text);
    TEST_ASSERT_EQUAL_INT(0, names_of(&(struct recording_event){.thread = self(), .owner = OWNER_MAX}));
    TEST_ASSERT_EQUAL_INT(0, names_of(&event));
    pthread_mutex_unlock(&others_end);
    pthread_join(thread, NULL);
}

static void test_a_new_thread_with_an_old_number_is_named_again(void)
{
    const struct recording_event event = {.thread = self(), .owner = OWNER_MAX};

    TEST_ASSERT_EQUAL_INT(0, names_of(&event));
    recorder_names_forget_thread(self() + 1);
    TEST_ASSERT_EQUAL_INT(0, names_of(&event));
    recorder_names_forget_thread(self());
    TEST_ASSERT_EQUAL_INT(1, names_of(&event));
    last(RECORDING_THREAD, self());
}

static void test_a_card_keeps_its_first_name(void)
{
    const struct recording_event event = {.thread = self(), .owner = OWNER_MAX, .device = 3};

    TEST_ASSERT_EQUAL_INT(0, names_of(&event)); /* not named yet */
    recorder_name_device(3, "H200", "GPU-1234", 1000);
    recorder_name_device(3, "another", "GPU-5678", 2000);
    TEST_ASSERT_EQUAL_INT(1, names_of(&event));
    const struct record *card = last(RECORDING_DEVICE, 3);
    TEST_ASSERT_EQUAL_STRING("H200", card->text);
    TEST_ASSERT_EQUAL_STRING("GPU-1234", card->text + 5);
    TEST_ASSERT_EQUAL_STRING("1000", card->text + 14);
    TEST_ASSERT_EQUAL_INT(0, names_of(&event));
}

static void test_a_stack_comes_with_the_mappings_that_are_new(void)
{
    struct recording_event event = {.thread = self(), .owner = OWNER_MAX, .stack = 3};

    TEST_ASSERT_EQUAL_INT(3, names_of(&event)); /* two mappings, then the stack */
    TEST_ASSERT_EQUAL_INT(RECORDING_MODULE, records[1].head.type);
    TEST_ASSERT_EQUAL_STRING("2000 2800 10 /lib/libx.so", records[1].text);
    const struct record *stack = last(RECORDING_STACK, 3);
    uint64_t frames[3];
    memcpy(frames, stack->text, sizeof(frames));
    TEST_ASSERT_EQUAL_UINT64(sizeof(struct recording_stack) + sizeof(frames), stack->bytes);
    TEST_ASSERT_EQUAL_HEX64(0x3000, frames[0]);
    TEST_ASSERT_EQUAL_HEX64(0x3002, frames[2]);
    TEST_ASSERT_EQUAL_INT(0, names_of(&event));

    event.stack = 2;
    fake.modules = 3; /* not looked at: nothing has been read since */
    TEST_ASSERT_EQUAL_INT(1, names_of(&event));
    event.stack = 1;
    owner_reads++;
    TEST_ASSERT_EQUAL_INT(2, names_of(&event)); /* the third alone */
    TEST_ASSERT_EQUAL_STRING("3000 3800 20 /lib/libx.so", records[count - 2].text);
}

static void test_the_next_file_gets_all_names_again(void)
{
    const struct recording_event event = {.thread = self(), .owner = 1, .tag = 1, .device = 5, .stack = 1};

    recorder_name_device(5, "H200", "GPU-1234", 1000);
    TEST_ASSERT_EQUAL_INT(6, names_of(&event)); /* owner, tag, card, two mappings, stack */
    TEST_ASSERT_EQUAL_INT(0, names_of(&event));
    recorder_names_clear();
    TEST_ASSERT_EQUAL_INT(7, names_of(&event)); /* and the thread */
}

static void test_long_names_are_cut(void)
{
    static char path[6000];

    memset(path, 'x', sizeof(path) - 1);
    fake.path = path;
    TEST_ASSERT_EQUAL_INT(1, names_of(&(struct recording_event){.thread = self(), .owner = 2}));
    const struct record *owner = last(RECORDING_OWNER, 2);
    TEST_ASSERT_LESS_OR_EQUAL_UINT64(4096 + 16, owner->bytes);
    TEST_ASSERT_EQUAL_CHAR('\0', ((const char *)owner)[owner->bytes - 1]);
    TEST_ASSERT_EQUAL_UINT64(4095, strlen(owner->text + sizeof("cuBLAS")) + sizeof("cuBLAS"));
    TEST_ASSERT_EQUAL_INT(
        3, names_of(&(struct recording_event){.thread = self(), .owner = OWNER_MAX, .stack = 1}));
    TEST_ASSERT_EQUAL_UINT64(4095, strlen(records[count - 2].text));
}

static void test_a_full_disk_is_told(void)
{
    const struct recording_event event = {.thread = self(), .owner = 1, .tag = 1, .stack = 2};

    for (fails_at = 1; fails_at <= 5; fails_at++) { /* owner, tag, two mappings, stack */
        recorder_names_clear();
        names_of(&(struct recording_event){.thread = 0, .owner = OWNER_MAX});
        count = 0;
        recorder_names_of(&file, &(struct recording_event){.thread = 0, .owner = OWNER_MAX});
        const struct recording_event without_thread = {.owner = 1, .tag = 1, .stack = 2};
        TEST_ASSERT_EQUAL_INT(-28, recorder_names_of(&file, &without_thread));
        TEST_ASSERT_EQUAL_INT_MESSAGE(fails_at - 1, count, "nothing follows what could not be written");
    }
    fails_at = 1;
    recorder_names_clear();
    count = 0;
    TEST_ASSERT_EQUAL_INT(-28, recorder_names_of(&file, &event)); /* the thread */
    TEST_ASSERT_EQUAL_INT(-28, recorder_names_program(&file, ""));
}

static void test_the_program_is_named_by_host_job_and_command_line(void)
{
    char host[256] = "";

    gethostname(host, sizeof(host) - 1);
    TEST_ASSERT_EQUAL_INT(0, recorder_names_program(&file, "nightly"));
    const char *text = last(RECORDING_PROGRAM, 0)->text;
    TEST_ASSERT_EQUAL_STRING(host, text);
    text += strlen(text) + 1;
    TEST_ASSERT_EQUAL_STRING("nightly", text);
    text += strlen(text) + 1;
    const char *space = strchr(text, ' ');
    TEST_ASSERT_NOT_NULL_MESSAGE(space, "arguments are separated by spaces");
    TEST_ASSERT_EQUAL_STRING_LEN("interpose_names", space - strlen("interpose_names"),
                                 strlen("interpose_names"));
    TEST_ASSERT_EQUAL_STRING("an argument", space + 1);
}

int main(int argc, char **argv)
{
    if (argc == 1) { /* with arguments, for the command line */
        execl("/proc/self/exe", argv[0], "an argument", (char *)NULL);
        return 1;
    }
    UNITY_BEGIN();
    RUN_TEST(test_each_name_is_written_once_before_its_first_use);
    RUN_TEST(test_numbers_out_of_range_have_no_name);
    RUN_TEST(test_a_thread_has_its_name_without_a_newline);
    RUN_TEST(test_each_thread_has_its_own_name);
    RUN_TEST(test_a_new_thread_with_an_old_number_is_named_again);
    RUN_TEST(test_a_card_keeps_its_first_name);
    RUN_TEST(test_a_stack_comes_with_the_mappings_that_are_new);
    RUN_TEST(test_the_next_file_gets_all_names_again);
    RUN_TEST(test_long_names_are_cut);
    RUN_TEST(test_a_full_disk_is_told);
    RUN_TEST(test_the_program_is_named_by_host_job_and_command_line);
    return UNITY_END();
}
