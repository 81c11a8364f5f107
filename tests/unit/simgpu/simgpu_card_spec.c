/* What GPUCAP_SIM may say and what it must not. */
#include "tools/simgpu/engine/sim_card_spec.h"
#include "unity.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GIB ((uint64_t)1 << 30)
#define MIB ((uint64_t)1 << 20)

static struct sim_card_spec spec;
static char why[96];

void setUp(void)
{
    memset(&spec, 0, sizeof(spec));
    why[0] = 0;
}

void tearDown(void) {}

static int parse(const char *text)
{
    /* An exact copy on the heap, so that the address sanitizer sees a read past the end. */
    size_t size = strlen(text) + 1;
    char *copy = malloc(size);
    TEST_ASSERT_NOT_NULL(copy);
    memcpy(copy, text, size);
    int err = sim_card_spec_parse(copy, &spec, why, sizeof(why));
    free(copy);
    return err;
}

static void test_counts_and_sizes_make_cards(void)
{
    TEST_ASSERT_EQUAL_INT(0, parse("2x16G"));
    TEST_ASSERT_EQUAL_INT(2, spec.count);
    TEST_ASSERT_EQUAL_UINT64(16 * GIB, spec.card[1].capacity);
    TEST_ASSERT_EQUAL_INT(0, parse("1x24G,512mib,2X8gb"));
    TEST_ASSERT_EQUAL_INT(4, spec.count);
    TEST_ASSERT_EQUAL_UINT64(512 * MIB, spec.card[1].capacity);
    TEST_ASSERT_EQUAL_UINT64(8 * GIB, spec.card[3].capacity);
    TEST_ASSERT_EQUAL_INT(0, parse("1073741824"));
    TEST_ASSERT_EQUAL_UINT64(GIB, spec.card[0].capacity);
}

static void test_a_context_takes_518_mib_or_a_sixteenth_of_a_small_card(void)
{
    TEST_ASSERT_EQUAL_INT(0, parse("16G,1G,100M"));
    TEST_ASSERT_EQUAL_UINT64(518 * MIB, spec.card[0].context_bytes);
    TEST_ASSERT_EQUAL_UINT64(64 * MIB, spec.card[1].context_bytes);
    TEST_ASSERT_EQUAL_UINT64(8 * MIB, spec.card[2].context_bytes);
    TEST_ASSERT_EQUAL_INT(0, parse("16G;ctx=64M"));
    TEST_ASSERT_EQUAL_UINT64(64 * MIB, spec.card[0].context_bytes);
    TEST_ASSERT_EQUAL_INT(0, parse("16G;ctx=0"));
    TEST_ASSERT_EQUAL_UINT64(0, spec.card[0].context_bytes);
}

static void test_a_machine_without_cards_is_possible(void)
{
    TEST_ASSERT_EQUAL_INT(0, parse("none"));
    TEST_ASSERT_EQUAL_INT(0, spec.count);
}

static void test_bad_text_is_refused_with_a_reason_and_changes_nothing(void)
{
    static const char *const bad[] = {
        "",
        "x",
        "0x16G",
        "17x16G",
        "16x1G,1G",
        "16G,",
        ",16G",
        "16Q",
        "-1G",
        "1.5G",
        "3M",
        "65T",
        "16G;",
        "16G;x=1",
        "16G;ctx=",
        "16G;ctx=1Z",
        "nonex",
        "2x",
        "2xx16G",
        "16G/",
        "16G/gpu",
        "16G/mig/mig",
        "/mig",
        "none/mig",
        "16G;ctx=64M/mig",
        "16G 8G",
        " 16G",
        "16G;ctx=64M;",
        "99999999999999999999999G",
        "18446744073709551615T",
        "1x16G\n",
        "\xff\xfe",
        "16G;ctx=18446744073709551615",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        spec.count = -7;
        why[0] = 0;
        TEST_ASSERT_EQUAL_INT_MESSAGE(-EINVAL, parse(bad[i]), bad[i]);
        TEST_ASSERT_EQUAL_INT_MESSAGE(-7, spec.count, bad[i]);
        TEST_ASSERT_NOT_EQUAL_CHAR(0, why[0]);
    }
}

static void test_uuids_differ_by_index_and_never_change(void)
{
    struct sim_card_spec other;
    TEST_ASSERT_EQUAL_INT(0, parse("16x1G"));
    other = spec;
    TEST_ASSERT_EQUAL_INT(0, parse("4G,15x2G"));
    for (int i = 0; i < CARD_MAX_DEVICES; i++) {
        TEST_ASSERT_EQUAL_MEMORY(other.card[i].uuid, spec.card[i].uuid, sizeof(spec.card[i].uuid));
        for (int j = 0; j < i; j++)
            TEST_ASSERT_TRUE(memcmp(spec.card[i].uuid, spec.card[j].uuid, sizeof(spec.card[i].uuid)) != 0);
    }
}

static void test_the_hash_names_the_meaning_and_not_the_text(void)
{
    TEST_ASSERT_EQUAL_INT(0, parse("2x16G"));
    uint64_t hash = sim_card_spec_hash(&spec);
    TEST_ASSERT_EQUAL_INT(0, parse("16G,16384M"));
    TEST_ASSERT_EQUAL_UINT64(hash, sim_card_spec_hash(&spec));
    TEST_ASSERT_EQUAL_INT(0, parse("2x16G;ctx=64M"));
    TEST_ASSERT_TRUE(hash != sim_card_spec_hash(&spec));
}

static void test_a_group_can_be_mig_instances(void)
{
    char text[CARD_UUID_TEXT];
    TEST_ASSERT_EQUAL_INT(0, parse("1G,2x2G/MIG,1G;ctx=8M"));
    TEST_ASSERT_EQUAL_INT(4, spec.count);
    for (int i = 0; i < spec.count; i++) {
        bool mig = i == 1 || i == 2;
        TEST_ASSERT_EQUAL_INT(mig, spec.card[i].mig);
        TEST_ASSERT_EQUAL_INT(mig, memcmp(spec.card[i].uuid, spec.card[i].gpu_uuid, 16) != 0);
        sim_card_spec_uuid_text(&spec.card[i], text);
        TEST_ASSERT_EQUAL_STRING_LEN(mig ? "MIG-" : "GPU-", text, 4);
        TEST_ASSERT_EQUAL_UINT(40, strlen(text));
    }
    TEST_ASSERT_EQUAL_UINT64(8 * MIB, spec.card[2].context_bytes);
    uint64_t hash = sim_card_spec_hash(&spec);
    TEST_ASSERT_EQUAL_INT(0, parse("1G,2G/mig,2G,1G;ctx=8M"));
    TEST_ASSERT_TRUE(hash != sim_card_spec_hash(&spec));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_counts_and_sizes_make_cards);
    RUN_TEST(test_a_context_takes_518_mib_or_a_sixteenth_of_a_small_card);
    RUN_TEST(test_a_machine_without_cards_is_possible);
    RUN_TEST(test_bad_text_is_refused_with_a_reason_and_changes_nothing);
    RUN_TEST(test_uuids_differ_by_index_and_never_change);
    RUN_TEST(test_the_hash_names_the_meaning_and_not_the_text);
    RUN_TEST(test_a_group_can_be_mig_instances);
    return UNITY_END();
}
