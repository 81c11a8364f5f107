/* Reading recordings: complete, cut off, damaged and malicious ones. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/recording_make.h"
#include "tools/gpucap/recording_read.h"
#include "tools/gpucap/recording_unpack.h"
#include "unity.h"

#define EVENTS 3000

static char path[64];
static unsigned char *bytes;
static size_t count;
static struct recording recording;
static char why[RECORDING_WHY];

static void load(void)
{
    FILE *file = fopen(path, "re");

    TEST_ASSERT_NOT_NULL(file);
    fseek(file, 0, SEEK_END);
    count = (size_t)ftell(file);
    rewind(file);
    free(bytes);
    bytes = malloc(count);
    TEST_ASSERT_EQUAL_size_t(count, fread(bytes, 1, count, file));
    fclose(file);
}

static void make_training(int codec, bool killed)
{
    recording_make_training(path,
                            &(struct recording_training){.events = EVENTS, .codec = codec, .killed = killed});
    load();
}

void setUp(void)
{
    strcpy(path, "/tmp/gpucap-recording-XXXXXX");
    close(mkstemp(path));
}

void tearDown(void)
{
    unlink(path);
    free(bytes);
    bytes = NULL;
    recording_close(&recording);
}

static struct recording_block *block_at(size_t at)
{
    return (struct recording_block *)(void *)(bytes + at);
}

static void test_a_whole_recording_has_all_events_in_order(void)
{
    make_training(RECORDING_PLAIN, false);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, recording_open(&recording, path, why), why);
    TEST_ASSERT_GREATER_THAN_size_t(EVENTS, recording.count);
    for (size_t i = 1; i < recording.count; i++)
        TEST_ASSERT_TRUE(recording.events[i - 1].time_ns <= recording.events[i].time_ns);
    TEST_ASSERT_TRUE(recording.ended);
    TEST_ASSERT_FALSE(recording_remark(&recording, why));
    TEST_ASSERT_EQUAL_STRING("cuDNN", recording_text(&recording.owners, 2, 0));
    TEST_ASSERT_EQUAL_STRING("/usr/lib/libcudnn_ops.so.9", recording_text(&recording.owners, 2, 1));
    TEST_ASSERT_EQUAL_STRING("", recording_text(&recording.owners, 2, 2));
    TEST_ASSERT_EQUAL_STRING("", recording_text(&recording.owners, 77, 0));
    TEST_ASSERT_EQUAL_STRING("train-a", recording_program(&recording, RECORDING_JOB_NAME));
    TEST_ASSERT_EQUAL_STRING("NVIDIA H200", recording_text(&recording.devices, 0, 0));
    TEST_ASSERT_EQUAL_STRING("150110011392", recording_text(&recording.devices, 0, 2));
    TEST_ASSERT_NOT_NULL(recording_stack(&recording, 6));
    TEST_ASSERT_EQUAL_UINT32(5, recording_stack(&recording, 6)->count);
    TEST_ASSERT_NULL(recording_stack(&recording, 600));
}

static void test_compressed_says_the_same_as_plain(void)
{
    struct recording plain;

    if (!recording_unpack_has_zstd())
        TEST_IGNORE_MESSAGE("built without zstd");
    make_training(RECORDING_PLAIN, false);
    TEST_ASSERT_EQUAL_INT(0, recording_open(&plain, path, why));
    make_training(RECORDING_ZSTD, false);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, recording_open(&recording, path, why), why);
    TEST_ASSERT_EQUAL_size_t(plain.count, recording.count);
    TEST_ASSERT_EQUAL_MEMORY(plain.events, recording.events, plain.count * sizeof(*plain.events));
    recording_close(&plain);
}

static void test_events_of_several_threads_are_sorted_and_equal_times_keep_their_order(void)
{
    struct recording_make make;

    recording_make_open(&make, path, (struct recording_head){0}, RECORDING_PLAIN);
    for (uint64_t i = 0; i < 1000; i++)
        recording_make_event(&make, RECORDING_ALLOC,
                             (struct recording_event){.time_ns = (i * 7919) % 100, .address = i});
    recording_make_close(&make, 100, true);
    TEST_ASSERT_EQUAL_INT(0, recording_open(&recording, path, why));
    TEST_ASSERT_EQUAL_size_t(1001, recording.count);
    for (size_t i = 1; i < 1000; i++) {
        const struct recording_event *a = &recording.events[i - 1], *b = &recording.events[i];

        TEST_ASSERT_TRUE(a->time_ns < b->time_ns || (a->time_ns == b->time_ns && a->address < b->address));
    }
}

static void test_every_cut_opens_or_is_refused_with_a_reason(void)
{
    size_t opened = 0;

    make_training(RECORDING_PLAIN, false);
    for (size_t cut = 0; cut < count; cut += cut < 256 ? 1 : 619) {
        why[0] = '\0';
        if (recording_parse(&recording, bytes, cut, why)) {
            TEST_ASSERT_TRUE(strlen(why) > 10);
            continue;
        }
        TEST_ASSERT_TRUE(recording_remark(&recording, why));
        TEST_ASSERT_NOT_NULL(strstr(why, "not closed"));
        opened++;
        recording_close(&recording);
    }
    TEST_ASSERT_GREATER_THAN_size_t(10, opened);
}

static void test_killed_program_leaves_what_was_flushed(void)
{
    make_training(RECORDING_PLAIN, true);
    TEST_ASSERT_EQUAL_INT(0, recording_parse(&recording, bytes, count - 5, why));
    TEST_ASSERT_GREATER_THAN_size_t(EVENTS / 2, recording.count);
    TEST_ASSERT_TRUE(recording_remark(&recording, why));
    TEST_ASSERT_NOT_NULL(
        strstr(why, "the program was killed or still runs, or the disk was full; the last "));
}

static void test_damaged_block_is_left_out_and_the_rest_is_read(void)
{
    make_training(RECORDING_PLAIN, false);
    TEST_ASSERT_EQUAL_INT(0, recording_parse(&recording, bytes, count, why));
    const size_t all = recording.count, blocks = (size_t)recording.blocks;
    recording_close(&recording);
    TEST_ASSERT_GREATER_THAN_size_t(1, blocks);
    bytes[sizeof(struct recording_head) + sizeof(struct recording_block) + 9] ^= 4;
    TEST_ASSERT_EQUAL_INT(0, recording_parse(&recording, bytes, count, why));
    TEST_ASSERT_EQUAL_UINT64(1, recording.damaged);
    TEST_ASSERT_LESS_THAN_size_t(all, recording.count);
    TEST_ASSERT_GREATER_THAN_size_t(0, recording.count);
    TEST_ASSERT_TRUE(recording_remark(&recording, why));
    TEST_ASSERT_NOT_NULL(strstr(why, "a damaged block was left out; up to "));
    TEST_ASSERT_NOT_NULL(strstr(why, "events are missing, and figures after them may be wrong"));
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(all - recording.count, recording.damaged_events);
}

static void test_no_flipped_bit_goes_unnoticed_or_does_harm(void)
{
    make_training(RECORDING_PLAIN, false);
    for (size_t at = sizeof(struct recording_head); at < count; at += 397) {
        bytes[at] ^= 0x40;
        if (recording_parse(&recording, bytes, count, why) == 0) {
            TEST_ASSERT_TRUE(recording_remark(&recording, why));
            recording_close(&recording);
        }
        bytes[at] ^= 0x40;
    }
}

static void expect_refused(const char *reason)
{
    TEST_ASSERT_EQUAL_INT(-1, recording_parse(&recording, bytes, count, why));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(why, reason), why);
}

static void test_what_is_no_recording_is_refused_in_words(void)
{
    TEST_ASSERT_EQUAL_INT(-1, recording_open(&recording, "/nonexistent", why));
    TEST_ASSERT_NOT_NULL(strstr(why, "No such file"));
    TEST_ASSERT_EQUAL_INT(-1, recording_open(&recording, "/dev/zero", why));
    TEST_ASSERT_EQUAL_STRING("is no recording of gpucap", why);
    make_training(RECORDING_PLAIN, false);
    struct recording_head *head = (void *)bytes;
    head->version = 9;
    expect_refused("version 9; this gpucap reads version 1");
    head->version = RECORDING_VERSION;
    head->head_bytes = 0xfffffff0;
    expect_refused("first block would begin at byte 4294967280");
    head->head_bytes = sizeof(*head);
    block_at(sizeof(*head))->magic = 0;
    expect_refused("not one of its blocks can be read");
    head->magic[0] = 'X';
    expect_refused("no recording");
}

static void seal(size_t at)
{
    struct recording_block *block = block_at(at);

    block->checksum = recording_checksum(block + 1, block->stored);
}

static void test_records_with_nonsense_are_left_out(void)
{
    const size_t first = sizeof(struct recording_head);
    struct recording_make make;

    recording_make_open(&make, path, (struct recording_head){0}, RECORDING_PLAIN);
    recording_make_event(&make, RECORDING_ALLOC, (struct recording_event){.bytes = UINT64_MAX});
    recording_make_event(&make, RECORDING_ALLOC, (struct recording_event){.time_ns = UINT64_MAX});
    recording_make_event(&make, 63, (struct recording_event){.bytes = 1}); /* of a later version */
    recording_make_event(&make, RECORDING_ALLOC, (struct recording_event){.bytes = 5});
    recording_make_event(&make, RECORDING_ALLOC, (struct recording_event){.bytes = 6});
    recording_make_close(&make, 1, true);
    load();
    TEST_ASSERT_EQUAL_INT(0, recording_parse(&recording, bytes, count, why));
    TEST_ASSERT_EQUAL_UINT64(2, recording.odd);
    TEST_ASSERT_EQUAL_size_t(3, recording.count);
    recording_close(&recording);

    struct recording_record *last =
        (void *)(bytes + first + sizeof(struct recording_block) + 4 * sizeof(struct recording_event));
    last->size = 0xfff8; /* beyond the block */
    seal(first);
    TEST_ASSERT_EQUAL_INT(0, recording_parse(&recording, bytes, count, why));
    TEST_ASSERT_EQUAL_UINT64(3, recording.odd);
    TEST_ASSERT_EQUAL_size_t(1, recording.count);
    recording_close(&recording);
    last->size = 0;
    seal(first);
    TEST_ASSERT_EQUAL_INT(0, recording_parse(&recording, bytes, count, why));
    TEST_ASSERT_EQUAL_size_t(1, recording.count);
}

static void test_texts_have_no_control_characters(void)
{
    struct recording_make make;

    recording_make_open(&make, path, (struct recording_head){0}, RECORDING_PLAIN);
    recording_make_name(&make, RECORDING_TAG, 1, "a\x1b[31m\0b\nc", 10);
    recording_make_close(&make, 1, true);
    TEST_ASSERT_EQUAL_INT(0, recording_open(&recording, path, why));
    TEST_ASSERT_EQUAL_STRING("a?[31m", recording_text(&recording.tags, 1, 0));
    TEST_ASSERT_EQUAL_STRING("b?c", recording_text(&recording.tags, 1, 1));
}

/* A frame that says one size and unpacks to another, and a block that claims more than a block may have. */
static void test_decompression_bombs_are_refused(void)
{
    const size_t first = sizeof(struct recording_head);

    if (!recording_unpack_has_zstd())
        TEST_IGNORE_MESSAGE("built without zstd");
    make_training(RECORDING_ZSTD, false);
    block_at(first)->plain -= 8;
    TEST_ASSERT_EQUAL_INT(0, recording_parse(&recording, bytes, count, why));
    TEST_ASSERT_EQUAL_UINT64(1, recording.damaged);
    recording_close(&recording);
    block_at(first)->plain = RECORDING_BLOCK_MAX + 8;
    expect_refused("not one of its blocks");
    block_at(first)->plain = 8;
    block_at(first)->codec = 7;
    TEST_ASSERT_EQUAL_INT(0, recording_parse(&recording, bytes, count, why));
    TEST_ASSERT_EQUAL_UINT64(1, recording.foreign);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_whole_recording_has_all_events_in_order);
    RUN_TEST(test_compressed_says_the_same_as_plain);
    RUN_TEST(test_events_of_several_threads_are_sorted_and_equal_times_keep_their_order);
    RUN_TEST(test_every_cut_opens_or_is_refused_with_a_reason);
    RUN_TEST(test_killed_program_leaves_what_was_flushed);
    RUN_TEST(test_damaged_block_is_left_out_and_the_rest_is_read);
    RUN_TEST(test_no_flipped_bit_goes_unnoticed_or_does_harm);
    RUN_TEST(test_what_is_no_recording_is_refused_in_words);
    RUN_TEST(test_records_with_nonsense_are_left_out);
    RUN_TEST(test_texts_have_no_control_characters);
    RUN_TEST(test_decompression_bombs_are_refused);
    return UNITY_END();
}
