/* known_kernels: a kernel is known after it was added, until all are forgotten; no other ever is. */
#include "interpose/account/known_kernels.h"

#include <stdint.h>
#include <string.h>
#include <unity.h>

#include "apart.h"

#define FEW  200
#define MANY 100000
#define ROOM 32768

static struct {
    int cards, major, minor; /* of the second card; the first has 9.0 */
    CUresult result, attribute;
} fake;

static CUresult CUDAAPI count_cards(int *count)
{
    *count = fake.cards;
    return fake.result;
}

static CUresult CUDAAPI attribute_of(int *value, CUdevice_attribute attribute, CUdevice ordinal)
{
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        *value = ordinal ? fake.major : 9;
    else if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        *value = ordinal ? fake.minor : 0;
    return fake.attribute;
}

void setUp(void)
{
    driver_entries.cuDeviceGetCount = count_cards;
    driver_entries.cuDeviceGetAttribute = attribute_of;
    memset(&fake, 0, sizeof(fake));
    fake.cards = 1;
    fake.major = 9;
}

void tearDown(void)
{
    known_kernels_forget();
}

/* Handles as a driver gives them: objects of one size in a few heaps. */
static CUfunction handle(unsigned i)
{
    static const uintptr_t heaps[] = {0x10, 0x555555560000, 0x7f0000000020, 0xaaaab0000000};

    return (CUfunction)(heaps[i % 4] + i / 4 * 0x1d0);
}

static unsigned known(unsigned first, unsigned end)
{
    unsigned count = 0;

    for (unsigned i = first; i < end; i++)
        count += known_kernels_has(handle(i));
    return count;
}

static void add(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        known_kernels_add(handle(i));
}

static void test_what_was_added_is_known_and_nothing_else(void)
{
    TEST_ASSERT_EQUAL_UINT(0, known(0, FEW));
    add(FEW);
    TEST_ASSERT_EQUAL_UINT(FEW, known(0, FEW));
    TEST_ASSERT_EQUAL_UINT(0, known(FEW, MANY));
    known_kernels_forget();
    TEST_ASSERT_EQUAL_UINT(0, known(0, MANY));
}

/* Of 10,000 kernels nearly all are known at once. */
static void test_many_are_known_and_the_newest_stay(void)
{
    add(10000);
    TEST_ASSERT_GREATER_THAN_UINT(9990, known(0, 10000));
    TEST_ASSERT_EQUAL_UINT(0, known(10000, MANY));
    add(MANY);
    TEST_ASSERT_EQUAL_UINT(FEW, known(MANY - FEW, MANY));
    TEST_ASSERT_LESS_OR_EQUAL_UINT(ROOM, known(0, MANY));
}

static void test_handles_that_cannot_be_told_apart_are_never_known(void)
{
    const uintptr_t handles[] = {0, 0x1008, 0x1000 + (1ULL << 48), UINTPTR_MAX & ~15ULL};

    known_kernels_add((CUfunction)0x1000);
    for (size_t i = 0; i < sizeof(handles) / sizeof(*handles); i++) {
        known_kernels_add((CUfunction)handles[i]);
        TEST_ASSERT_FALSE(known_kernels_has((CUfunction)handles[i]));
    }
    TEST_ASSERT_TRUE(known_kernels_has((CUfunction)0x1000));
}

static void expect_none_from_now_on(void)
{
    TEST_ASSERT_EQUAL_UINT(0, known(0, FEW + 1));
    setUp();
    add(FEW);
    TEST_ASSERT_EQUAL_UINT(0, known(0, FEW));
}

static void test_kernels_are_known_with_several_cards_of_one_kind(void)
{
    fake.cards = 2;
    add(FEW);
    TEST_ASSERT_EQUAL_UINT(FEW, known(0, FEW));
}

static void add_with_two_cards(void)
{
    add(FEW);
    fake.cards = 2;
    known_kernels_add(handle(FEW));
    expect_none_from_now_on();
}

static void use_a_newer_card(void)
{
    fake.major = 10;
    add_with_two_cards();
}

static void use_a_card_of_another_form(void)
{
    fake.minor = 1;
    add_with_two_cards();
}

static void fail_to_look_at_cards(void)
{
    fake.attribute = CUDA_ERROR_UNKNOWN;
    add_with_two_cards();
}

static void fail_to_count_cards(void)
{
    add(FEW);
    fake.result = CUDA_ERROR_UNKNOWN;
    known_kernels_add(handle(FEW));
    expect_none_from_now_on();
}

static void stop(void)
{
    add(FEW);
    known_kernels_stop();
    expect_none_from_now_on();
}

static void test_none_is_known_with_cards_of_several_kinds_or_after_a_stop(void)
{
    apart(use_a_newer_card);
    apart(use_a_card_of_another_form);
    apart(fail_to_look_at_cards);
    apart(fail_to_count_cards);
    apart(stop);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_what_was_added_is_known_and_nothing_else);
    RUN_TEST(test_many_are_known_and_the_newest_stay);
    RUN_TEST(test_handles_that_cannot_be_told_apart_are_never_known);
    RUN_TEST(test_kernels_are_known_with_several_cards_of_one_kind);
    RUN_TEST(test_none_is_known_with_cards_of_several_kinds_or_after_a_stop);
    return UNITY_END();
}
