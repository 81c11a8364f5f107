/* rules: which limit holds for which card. Pure functions: nothing shared, no lock. */
#include "interpose/settings/rules.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unity.h>

#define G     (UINT64_C(1) << 30)
#define CARD  (UINT64_C(80) << 30)
#define UUID0 "GPU-09e4f000-9ce7-42ee-4029-20a51f94f29d"
#define UUID1 "GPU-09e4f001-9ce7-42ee-4029-20a51f94f29d"

void setUp(void) {}
void tearDown(void) {}

static struct rules rules;

static void accept(const char *text)
{
    const char *why = "";

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, rules_parse(text, &rules, &why), why);
}

static uint64_t limit(int ordinal, const char *uuid)
{
    return rules_for(&rules, ordinal, uuid, CARD);
}

static void test_one_limit_holds_for_every_card(void)
{
    accept("8G");
    TEST_ASSERT_EQUAL_UINT64(8 * G, limit(0, UUID0));
    TEST_ASSERT_EQUAL_UINT64(8 * G, limit(7, UUID1));
    TEST_ASSERT_EQUAL_UINT64(8 * G, limit(RULES_NO_ORDINAL, UUID1));
    accept("50%");
    TEST_ASSERT_EQUAL_UINT64(CARD / 2, limit(0, UUID0));
}

static void test_none_is_no_limit_in_any_case_of_letters(void)
{
    static const char *const forms[] = {"none", "NONE", "None", " none ", "0=none", UUID0 "=none"};

    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        accept(forms[i]);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(RULES_UNLIMITED, limit(0, UUID0), forms[i]);
    }
}

static void test_a_bound_of_zero_is_none(void)
{
    static const char *const forms[] = {"0", "0=0", "4G,0=0M", UUID0 "=0G"};
    const char *why = "";

    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, rules_parse_bound(forms[i], &rules, &why), why);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(RULES_UNLIMITED, limit(0, UUID0), forms[i]);
    }
    TEST_ASSERT_EQUAL_INT(0, rules_parse_bound("4G,0=0", &rules, &why));
    TEST_ASSERT_EQUAL_UINT64(4 * G, limit(1, UUID1));
    TEST_ASSERT_EQUAL_INT(-EINVAL, rules_parse_bound("0%", &rules, &why));
}

static void test_the_longest_uuid_is_a_rule_and_a_longer_one_is_not(void)
{
    char uuid[RULES_UUID_TEXT + 1] = "MIG-", text[RULES_UUID_TEXT + 8];
    const char *why = "";

    memset(uuid + 4, 'a', RULES_UUID_TEXT - 1 - 4);
    snprintf(text, sizeof(text), "%s=3G", uuid);
    accept(text);
    TEST_ASSERT_EQUAL_UINT64(3 * G, limit(0, uuid));
    uuid[RULES_UUID_TEXT - 2] = 'b';
    TEST_ASSERT_EQUAL_UINT64(RULES_UNLIMITED, limit(0, uuid));
    uuid[RULES_UUID_TEXT - 1] = 'a';
    snprintf(text, sizeof(text), "%s=3G", uuid);
    TEST_ASSERT_EQUAL_INT(-EINVAL, rules_parse(text, &rules, &why));
}

static void test_a_limit_above_the_card_is_the_card(void)
{
    accept("500G");
    TEST_ASSERT_EQUAL_UINT64(CARD, limit(0, UUID0));
    accept("18446744073709551615");
    TEST_ASSERT_EQUAL_UINT64(CARD, limit(0, UUID0));
    accept("100%");
    TEST_ASSERT_EQUAL_UINT64(CARD, limit(0, UUID0));
}

static void test_a_card_that_no_rule_names_is_unlimited(void)
{
    accept("0=8G,3=4G");
    TEST_ASSERT_EQUAL_UINT64(8 * G, limit(0, UUID0));
    TEST_ASSERT_EQUAL_UINT64(RULES_UNLIMITED, limit(1, UUID1));
    TEST_ASSERT_EQUAL_UINT64(4 * G, limit(3, UUID1));
    TEST_ASSERT_EQUAL_UINT64(RULES_UNLIMITED, limit(RULES_NO_ORDINAL, UUID1));
    rules.count = 0;
    TEST_ASSERT_EQUAL_UINT64(RULES_UNLIMITED, limit(0, UUID0));
}

static void test_the_most_exact_rule_wins_in_any_order(void)
{
    static const char *const orders[] = {
        "1G,0=2G," UUID0 "=3G",
        UUID0 "=3G,0=2G,1G",
        "0=2G," UUID0 "=3G,1G",
        "GPU-09e4f000=9G,1G,0=2G," UUID0 "=3G",
    };

    for (size_t i = 0; i < sizeof(orders) / sizeof(*orders); i++) {
        accept(orders[i]);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(3 * G, limit(0, UUID0), orders[i]);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(2 * G, limit(0, UUID1), orders[i]);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(1 * G, limit(5, UUID1), orders[i]);
    }
    accept("GPU-09e4f0=4G,GPU-09e4f001=5G");
    TEST_ASSERT_EQUAL_UINT64(4 * G, limit(0, UUID0));
    TEST_ASSERT_EQUAL_UINT64(5 * G, limit(0, UUID1));
}

static void test_a_uuid_matches_by_its_beginning_and_in_any_case(void)
{
    accept("gpu-09E4F000=3G");
    TEST_ASSERT_EQUAL_UINT64(3 * G, limit(4, UUID0));
    TEST_ASSERT_EQUAL_UINT64(RULES_UNLIMITED, limit(4, UUID1));
    accept(UUID0 "0=3G"); /* longer than the card's own: another card */
    TEST_ASSERT_EQUAL_UINT64(RULES_UNLIMITED, limit(0, UUID0));
    TEST_ASSERT_EQUAL_UINT64(RULES_UNLIMITED, limit(0, ""));
}

static void test_a_slice_of_a_card_is_found_by_either_name(void)
{
    accept("MIG-09e4f000-9ce7-42ee-4029-20a51f94f29d=3G");
    TEST_ASSERT_EQUAL_UINT64(3 * G, limit(0, UUID0)); /* the driver tells sixteen bytes, no prefix */
    TEST_ASSERT_EQUAL_UINT64(3 * G, limit(0, "MIG-09e4f000-9ce7-42ee-4029-20a51f94f29d"));
    TEST_ASSERT_EQUAL_UINT64(RULES_UNLIMITED, limit(0, UUID1));
}

static void test_blanks_around_the_parts_do_not_matter(void)
{
    accept(" 0 = 8G ,\t1 =\t4G ");
    TEST_ASSERT_EQUAL_UINT64(8 * G, limit(0, UUID0));
    TEST_ASSERT_EQUAL_UINT64(4 * G, limit(1, UUID0));
}

static void test_what_is_not_a_rule_is_refused_with_the_reason(void)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "not a size"},
        {" ", "not a size"},
        {",", "not a size"},
        {"8G,", "not a size"},
        {",8G", "not a size"},
        {"0=", "not a size"},
        {"0=8G,,1=4G", "not a size"},
        {"0==8G", "not a size"},
        {"0=1=8G", "not a size"},
        {"eight", "not a size"},
        {"0%", "a share is from 0.1% to 100%"},
        {"8G;0=4G", "a device is a number or a UUID"},
        {"=8G", "a device is missing before '='"},
        {" =8G", "a device is missing before '='"},
        {"-1=8G", "a device is a number or a UUID"},
        {"x=8G", "a device is a number or a UUID"},
        {"1024=8G", "a device is a number or a UUID"},
        {"99999999999999999999=8G", "a device is a number or a UUID"},
        {"GPU=8G", "a device is a number or a UUID"},
        {"GPU-=8G", "a UUID looks like GPU-09e4f000-9ce7-42ee-4029-20a51f94f29d"},
        {UUID0 "-and-much-more-than-that=8G", "a UUID looks like GPU-09e4f000-9ce7-42ee-4029-20a51f94f29d"},
        {"0", "a limit of zero leaves no room for CUDA; write none for no limit"},
        {"0=0", "a limit of zero leaves no room for CUDA; write none for no limit"},
        {"0.0001K", "a limit of zero leaves no room for CUDA; write none for no limit"},
        {"8G,4G", "the same device is named twice"},
        {"0=8G,0=4G", "the same device is named twice"},
        {"0=8G,00=4G", "the same device is named twice"},
        {"GPU-0a=8G,gpu-0A=4G", "the same device is named twice"},
        {"none,none", "the same device is named twice"},
        {"99999999999999999999", "the number is too large"},
        {"0=99999999T", "the number is too large"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        const char *why = "";

        TEST_ASSERT_EQUAL_INT_MESSAGE(-EINVAL, rules_parse(bad[i].text, &rules, &why), bad[i].text);
        TEST_ASSERT_EQUAL_STRING_MESSAGE(bad[i].why, why, bad[i].text);
    }
}

static void test_more_devices_than_there_is_room_for_are_refused(void)
{
    char text[16 * (RULES_MAX_RULES + 1)] = "";
    const char *why = "";

    for (int i = 0; i < RULES_MAX_RULES; i++)
        sprintf(text + strlen(text), "%s%d=1G", i ? "," : "", i);
    accept(text);
    TEST_ASSERT_EQUAL_INT(RULES_MAX_RULES, rules.count);
    strcat(text, ",100=1G");
    TEST_ASSERT_EQUAL_INT(-EINVAL, rules_parse(text, &rules, &why));
    TEST_ASSERT_EQUAL_STRING("too many devices", why);
}

static void test_rules_by_number_are_told_apart(void)
{
    accept("8G," UUID0 "=4G");
    TEST_ASSERT_FALSE(rules_use_ordinals(&rules));
    TEST_ASSERT_TRUE(rules_name_cards(&rules));
    accept("8G,1023=4G"); /* the greatest number */
    TEST_ASSERT_TRUE(rules_use_ordinals(&rules));
    TEST_ASSERT_TRUE(rules_name_cards(&rules));
    accept("8G");
    TEST_ASSERT_FALSE(rules_use_ordinals(&rules));
    TEST_ASSERT_FALSE(rules_name_cards(&rules));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_one_limit_holds_for_every_card);
    RUN_TEST(test_none_is_no_limit_in_any_case_of_letters);
    RUN_TEST(test_a_bound_of_zero_is_none);
    RUN_TEST(test_the_longest_uuid_is_a_rule_and_a_longer_one_is_not);
    RUN_TEST(test_a_limit_above_the_card_is_the_card);
    RUN_TEST(test_a_card_that_no_rule_names_is_unlimited);
    RUN_TEST(test_the_most_exact_rule_wins_in_any_order);
    RUN_TEST(test_a_uuid_matches_by_its_beginning_and_in_any_case);
    RUN_TEST(test_a_slice_of_a_card_is_found_by_either_name);
    RUN_TEST(test_blanks_around_the_parts_do_not_matter);
    RUN_TEST(test_what_is_not_a_rule_is_refused_with_the_reason);
    RUN_TEST(test_more_devices_than_there_is_room_for_are_refused);
    RUN_TEST(test_rules_by_number_are_told_apart);
    return UNITY_END();
}
