/* size: what people may write for a number of bytes, and what they may not. Pure functions: nothing shared,
 * no lock. */
#include "interpose/settings/size.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unity.h>

#define K UINT64_C(1024)
#define M (K * K)
#define G (K * M)
#define T (K * G)

void setUp(void) {}
void tearDown(void) {}

static int parse(const char *text, struct size_value *out)
{
    return size_parse(text, strlen(text), out);
}

static void test_every_form_of_a_byte_count_is_read_exactly(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"1", 1},
        {"4096", 4096},
        {"7b", 7},
        {"7B", 7},
        {"1k", K},
        {"1K", K},
        {"1kb", K},
        {"1KB", K},
        {"1KiB", K},
        {"1kib", K},
        {"512M", 512 * M},
        {"512MB", 512 * M},
        {"512MiB", 512 * M},
        {"8G", 8 * G},
        {"8gib", 8 * G},
        {"2T", 2 * T},
        {"1.5G", G + G / 2},
        {"1.5GiB", G + G / 2},
        {"0.5K", 512},
        {"0.000001G", G / 1000000},
        {"1.999999T", T + T / 1000000 * 999999 + T % 1000000 * 999999 / 1000000},
        {"007M", 7 * M},
        {"18446744073709551615", UINT64_MAX},
        {"16777215T", 16777215 * T},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct size_value v = {.bytes = 42, .is_percent = true};

        TEST_ASSERT_EQUAL_INT_MESSAGE(0, parse(cases[i].text, &v), cases[i].text);
        TEST_ASSERT_FALSE_MESSAGE(v.is_percent, cases[i].text);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(cases[i].bytes, v.bytes, cases[i].text);
    }
}

static void test_every_form_of_a_percentage_is_read_exactly(void)
{
    static const struct {
        const char *text;
        uint32_t permille;
    } cases[] = {{"1%", 10},       {"50%", 500}, {"12.5%", 125}, {"100%", 1000},
                 {"100.0%", 1000}, {"0.1%", 1},  {"99.9%", 999}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct size_value v = {0};

        TEST_ASSERT_EQUAL_INT_MESSAGE(0, parse(cases[i].text, &v), cases[i].text);
        TEST_ASSERT_TRUE_MESSAGE(v.is_percent, cases[i].text);
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(cases[i].permille, v.permille, cases[i].text);
    }
}

static void test_what_is_not_a_size_is_refused_and_changes_nothing(void)
{
    static const char *const bad[] = {
        "",       " ",    "G",          "%",    "-1",    "+1",   "1.",   ".5G",        "1.5",
        "1.5b",   "1,5G", "1e9",        "0x10", "8 G",   " 8G",  "8G ",  "8GG",        "8Gi",
        "8iB",    "8P",   "8Kbit",      "8bb",  "eight", "50%%", "50 %", "%50",        "50.55%",
        "1.2.3G", "1.G",  "1.0000001G", "8G\n", "inf",   "nan",  "none", "8\xc2\xa0G", "\xef\xbc\x98G",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct size_value v = {.bytes = 42, .permille = 7};

        TEST_ASSERT_EQUAL_INT_MESSAGE(-EINVAL, parse(bad[i], &v), bad[i]);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(42, v.bytes, bad[i]);
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(7, v.permille, bad[i]);
    }
}

static void test_a_percentage_is_more_than_nothing_and_at_most_all(void)
{
    static const char *const odd[] = {"0%", "0.0%", "100.1%", "101%", "1000%"};

    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
        struct size_value v = {.permille = 7};

        TEST_ASSERT_EQUAL_INT_MESSAGE(-EDOM, parse(odd[i], &v), odd[i]);
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(7, v.permille, odd[i]);
    }
    TEST_ASSERT_NOT_EQUAL(0, strcmp(size_why(-EDOM), size_why(-EINVAL)));
}

static void test_what_does_not_fit_in_64_bits_is_out_of_range(void)
{
    static const char *const huge[] = {"18446744073709551616",  "99999999999999999999999", "16777216T",
                                       "18014398509481984K",    "17592186044416M",         "17179869184G",
                                       "18446744073709551615K", "99999999999999999999%"};

    for (size_t i = 0; i < sizeof(huge) / sizeof(*huge); i++) {
        struct size_value v;

        TEST_ASSERT_EQUAL_INT_MESSAGE(-ERANGE, parse(huge[i], &v), huge[i]);
    }
}

static void test_reads_no_further_than_it_is_told(void)
{
    struct size_value v;
    const char *text = "12G,34M";
    char digits[10000];

    TEST_ASSERT_EQUAL_INT(0, size_parse(text, 3, &v));
    TEST_ASSERT_EQUAL_UINT64(12 * G, v.bytes);
    TEST_ASSERT_EQUAL_INT(0, size_parse(text, 1, &v));
    TEST_ASSERT_EQUAL_UINT64(1, v.bytes);
    TEST_ASSERT_EQUAL_INT(-EINVAL, size_parse("8\0G", 3, &v));
    memset(digits, '0', sizeof(digits)); /* long, and still zero */
    TEST_ASSERT_EQUAL_INT(0, size_parse(digits, sizeof(digits), &v));
    TEST_ASSERT_EQUAL_UINT64(0, v.bytes);
    memset(digits, '9', sizeof(digits));
    TEST_ASSERT_EQUAL_INT(-ERANGE, size_parse(digits, sizeof(digits), &v));
}

static void test_a_percentage_never_wraps_and_never_passes_the_whole(void)
{
    static const uint64_t totals[] = {0, 1, 999, 1000, 1001, G, 80 * G + 7, UINT64_MAX - 1, UINT64_MAX};

    for (size_t i = 0; i < sizeof(totals) / sizeof(*totals); i++) {
        uint64_t before = 0;

        for (uint32_t permille = 1; permille <= 1000; permille++) {
            struct size_value v = {.is_percent = true, .permille = permille};
            uint64_t part = size_resolve(&v, totals[i]);

            TEST_ASSERT_TRUE(part <= totals[i]);
            TEST_ASSERT_TRUE(part >= before);
            TEST_ASSERT_EQUAL_UINT64((uint64_t)((unsigned __int128)totals[i] * permille / 1000), part);
            before = part;
        }
        TEST_ASSERT_EQUAL_UINT64(totals[i], before);
    }
}

static void test_a_size_is_shown_as_a_person_would_write_it(void)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 bytes"},
                 {1023, "1023 bytes"},
                 {K, "1K"},
                 {123 * K, "123K"},
                 {518 * M, "518M"},
                 {4 * G, "4G"},
                 {G + G / 2, "1.5G"},
                 {2 * T, "2T"},
                 {UINT64_MAX, "16777215T"},
                 {1024 * T, "1024T"},
                 {G - 1, "1G"},
                 {2000 * M, "2G"},
                 {1900 * M, "1.9G"},
                 {1996 * M, "1.9G"},
                 {150 * M + 600 * K, "151M"},
                 {99 * M + 1000 * K, "100M"},
                 {150 * M + 511 * K, "150M"},
                 {150 * M + 512 * K, "151M"},
                 {1023 * M + 512 * K, "1G"},
                 {100 * M + 300 * K, "100M"},
                 {99 * M + 300 * K, "99.3M"}};
    char text[SIZE_TEXT];

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        TEST_ASSERT_EQUAL_STRING(cases[i].text, size_format(cases[i].bytes, text));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_every_form_of_a_byte_count_is_read_exactly);
    RUN_TEST(test_every_form_of_a_percentage_is_read_exactly);
    RUN_TEST(test_what_is_not_a_size_is_refused_and_changes_nothing);
    RUN_TEST(test_a_percentage_is_more_than_nothing_and_at_most_all);
    RUN_TEST(test_what_does_not_fit_in_64_bits_is_out_of_range);
    RUN_TEST(test_reads_no_further_than_it_is_told);
    RUN_TEST(test_a_percentage_never_wraps_and_never_passes_the_whole);
    RUN_TEST(test_a_size_is_shown_as_a_person_would_write_it);
    return UNITY_END();
}
