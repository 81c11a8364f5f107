/* stacks: which words of a made-up stack are taken for frames, and how stacks are kept. */
#include "interpose/see/stacks.h"

#include <string.h>
#include <unity.h>

#define WORDS 128

static uint64_t words[WORDS];
static uint64_t next_call = 0x10000; /* each test uses calls of its own: where a frame begins is remembered */

void setUp(void)
{
    memset(words, 0, sizeof(words));
    next_call += 0x1000;
}

void tearDown(void) {}

static bool is_return(uint64_t word)
{
    return word >= 0x100 && word < 0x200;
}

/* Saves in word `index` a pointer to the frame at word `frame`, with the return address behind it. */
static void link_frame(size_t index, size_t frame, uint64_t return_address)
{
    words[index] = (uint64_t)(uintptr_t)&words[frame];
    words[frame + 1] = return_address;
}

static uint32_t take(uint64_t call, uint64_t caller)
{
    const struct stack stack = {words, WORDS};

    return stacks_take(stack, call, caller, is_return);
}

static void expect_frames(uint32_t stack, size_t count, const uint64_t *expected)
{
    uint64_t frames[STACKS_FRAMES];

    TEST_ASSERT_NOT_EQUAL_UINT32(0, stack);
    TEST_ASSERT_EQUAL_size_t(count, stacks_read(stack, frames));
    TEST_ASSERT_EQUAL_HEX64_ARRAY(expected, frames, count);
}

static void test_frames_are_followed_upwards(void)
{
    link_frame(3, 10, 0x101);
    link_frame(10, 20, 0x102);
    link_frame(20, 30, 0x103);
    expect_frames(take(next_call, 0), 4, (uint64_t[]){next_call, 0x101, 0x102, 0x103});
    link_frame(20, 10, 0x101); /* back down: such a pointer is none, or the walk would go round */
    expect_frames(take(next_call, 0), 3, (uint64_t[]){next_call, 0x101, 0x102});
    link_frame(20, 20, 0x102); /* nor one to itself */
    expect_frames(take(next_call, 0), 3, (uint64_t[]){next_call, 0x101, 0x102});
}

static void test_a_frame_is_a_whole_word_of_the_stack_with_a_return_address(void)
{
    link_frame(3, 10, 0x101);
    words[3]++; /* not a word's address */
    expect_frames(take(next_call, 0), 1, (uint64_t[]){next_call});
    link_frame(3, 10, 0x99); /* not a return address */
    expect_frames(take(next_call + 1, 0), 1, (uint64_t[]){next_call + 1});
    words[3] = (uint64_t)(uintptr_t)(words + WORDS); /* behind the stack */
    expect_frames(take(next_call + 2, 0), 1, (uint64_t[]){next_call + 2});
    words[3] = (uint64_t)(uintptr_t)(words + WORDS - 2);
    words[WORDS - 1] = 0x101; /* the last two words are a frame */
    expect_frames(take(next_call + 3, 0), 2, (uint64_t[]){next_call + 3, 0x101});
}

static void test_where_the_first_frame_is_saved_is_remembered_for_a_call(void)
{
    link_frame(40, 50, 0x101);
    expect_frames(take(next_call, 0), 2, (uint64_t[]){next_call, 0x101});
    link_frame(5, 60, 0x105); /* left over from another function */
    expect_frames(take(next_call, 0), 2, (uint64_t[]){next_call, 0x101});
    words[40] = 0; /* another way through the library: found again */
    expect_frames(take(next_call, 0), 2, (uint64_t[]){next_call, 0x105});
    words[5] = 0;
    link_frame(97, 100, 0x106); /* too far up to be the first */
    expect_frames(take(next_call, 0), 1, (uint64_t[]){next_call});
}

/* As in stacks.c: two calls that share a place in the table. */
static uint64_t place_of(uint64_t call)
{
    return call * UINT64_C(0x9e3779b97f4a7c15) >> 32 & 1023;
}

static void test_what_is_remembered_of_one_call_says_nothing_of_another(void)
{
    uint64_t other = next_call + 1;

    while (place_of(other) != place_of(next_call))
        other++;
    expect_frames(take(next_call, 0), 1, (uint64_t[]){next_call}); /* no frame: remembered as well */
    link_frame(3, 10, 0x101);
    expect_frames(take(next_call, 0), 1, (uint64_t[]){next_call}); /* not searched for again */
    expect_frames(take(other, 0), 2, (uint64_t[]){other, 0x101});
}

static void test_each_stack_is_kept_once(void)
{
    link_frame(3, 10, 0x101);
    link_frame(10, 20, 0x102);
    const uint32_t first = take(next_call, 0);
    TEST_ASSERT_EQUAL_UINT32(first, take(next_call, 0));
    words[21] = 0x103; /* differs in the last frame only */
    const uint32_t second = take(next_call, 0);
    TEST_ASSERT_NOT_EQUAL_UINT32(first, second);
    expect_frames(first, 3, (uint64_t[]){next_call, 0x101, 0x102});
    expect_frames(second, 3, (uint64_t[]){next_call, 0x101, 0x103});
    TEST_ASSERT_EQUAL_UINT32(first + 1, second);
}

static void test_the_caller_of_a_library_comes_second_and_once(void)
{
    link_frame(3, 10, 0x101); /* the library keeps frame pointers: its frames are walked through again */
    link_frame(10, 20, 0x102);
    link_frame(20, 30, 0x103);
    expect_frames(take(0x101, 0x102), 3, (uint64_t[]){0x101, 0x102, 0x103});
    link_frame(30, 40, 0x101); /* a recursion further up stays */
    expect_frames(take(0x101, 0x102), 4, (uint64_t[]){0x101, 0x102, 0x103, 0x101});
}

static void test_behind_its_end_a_stack_has_nothing(void)
{
    const struct stack stack = {words, 2};

    words[1] = 7;
    words[2] = 9; /* of another thread */
    TEST_ASSERT_EQUAL_UINT64(7, stack_word(stack, 1));
    TEST_ASSERT_EQUAL_UINT64(0, stack_word(stack, 2));
}

static void test_a_deep_stack_is_cut(void)
{
    uint64_t frames[STACKS_FRAMES];

    for (size_t i = 0; i < 45; i++)
        link_frame(2 * i, 2 * i + 2, 0x101 + i);
    TEST_ASSERT_EQUAL_size_t(STACKS_FRAMES, stacks_read(take(next_call, 0), frames));
    TEST_ASSERT_EQUAL_HEX64(0x101 + STACKS_FRAMES - 2, frames[STACKS_FRAMES - 1]);
}

/* Runs last: from here on no stack is new. */
static void test_later_stacks_are_not_kept(void)
{
    uint32_t kept = 0, last = 0;
    uint64_t frames[STACKS_FRAMES];

    for (uint64_t call = 0x100000; (kept = take(call, 0)); call++) {
        TEST_ASSERT_LESS_OR_EQUAL_UINT32(STACKS_MAX, kept);
        last = kept;
    }
    TEST_ASSERT_EQUAL_UINT32(STACKS_MAX, last);
    TEST_ASSERT_EQUAL_size_t(1, stacks_read(STACKS_MAX, frames));
    TEST_ASSERT_EQUAL_size_t(0, stacks_read(STACKS_MAX + 1, frames));
    TEST_ASSERT_NOT_EQUAL_UINT32(0, take(0x100000, 0));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_frames_are_followed_upwards);
    RUN_TEST(test_a_frame_is_a_whole_word_of_the_stack_with_a_return_address);
    RUN_TEST(test_where_the_first_frame_is_saved_is_remembered_for_a_call);
    RUN_TEST(test_what_is_remembered_of_one_call_says_nothing_of_another);
    RUN_TEST(test_each_stack_is_kept_once);
    RUN_TEST(test_the_caller_of_a_library_comes_second_and_once);
    RUN_TEST(test_behind_its_end_a_stack_has_nothing);
    RUN_TEST(test_a_deep_stack_is_cut);
    RUN_TEST(test_later_stacks_are_not_kept);
    return UNITY_END();
}
