/* The public calls (gpucap.h): what they add up, and what they write into the program's memory. Pools, cards
 * and owners are the test's own. */
#include "interpose/gpucap.h"

#include <string.h>
#include <unity.h>

#include "interpose/account/device.h"
#include "interpose/library.h"
#include "interpose/pool/pools.h"
#include "interpose/recorded.h"
#include "interpose/route.h"
#include "interpose/see/tags.h"

#define CARD 1

static atomic_int mode;
_Atomic(atomic_int *) library_state = &mode;
static struct device device;
static struct pool pools[3] = {{.ordinal = CARD}, {.ordinal = 0}, {.ordinal = CARD}};
static struct fake {
    bool limited, recording, no_pools;
    uint64_t limit_set, trimmed;
    int owners;
} fake;

/* ---- the test's own library ---- */

enum library_mode library_begin(void)
{
    return LIBRARY_ON;
}

struct device *device_get(CUdevice ordinal)
{
    return fake.limited && ordinal == CARD ? &device : NULL;
}

struct account_view account_view(struct account *account)
{
    (void)account;
    return (struct account_view){.limit = 512, .used = 100};
}

void pools_each(void (*visit)(struct pool *pool, void *argument), void *argument)
{
    for (int i = 0; i < 3 && !fake.no_pools; i++)
        visit(&pools[i], argument);
}

void pool_poll(struct pool *pool)
{
    (void)pool;
}

/* Each figure of pool i is 1000 * i + its place. */
struct pool_stats pool_stats(struct pool *pool)
{
    const uint64_t n = 1000 * (uint64_t)(pool - pools);

    return (struct pool_stats){.live = n + 1,
                               .live_count = n + 2,
                               .cached = n + 3,
                               .pending = n + 4,
                               .physical = n + 5,
                               .peak_live = n + 6,
                               .peak_physical = n + 7,
                               .largest = 9000 - n,
                               .stranded = n + 8,
                               .hits = n + 9,
                               .stitches = n + 10,
                               .stitched_chunks = n + 11,
                               .grows = n + 12,
                               .waits = n + 13,
                               .joins = n + 14,
                               .trims = n + 15,
                               .driver_calls = n + 16,
                               .room_ns = n + 17,
                               .wait_ns = n + 18};
}

uint64_t pools_trim(CUdevice ordinal, uint64_t bytes)
{
    TEST_ASSERT_EQUAL_INT(CARD, ordinal);
    fake.trimmed = bytes;
    return bytes / 2;
}

bool route_set_limit(struct device *of, uint64_t bytes)
{
    TEST_ASSERT_EQUAL_PTR(&device, of);
    fake.limit_set = bytes;
    return bytes < 1000;
}

bool tags_set(const char *name)
{
    return name != NULL;
}

bool tags_read(const char *name, uint64_t *live, uint64_t *peak)
{
    *live = 3;
    *peak = 4;
    return !strcmp(name, "known");
}

bool recorded_owners(void (*visit)(const struct recorded_owner *row, void *argument), void *argument)
{
    for (int i = 0; fake.recording && i < fake.owners; i++) {
        const struct recorded_owner row = {.device = i == 1 ? 0 : CARD,
                                           .owner = "cuBLAS",
                                           .kind = "malloc",
                                           .tag = "t",
                                           .bytes = (uint64_t)i,
                                           .blocks = 7,
                                           .peak = 8};

        visit(&row, argument);
    }
    return fake.recording;
}

void setUp(void)
{
    mode = LIBRARY_ON;
    fake = (struct fake){.limited = true, .recording = true, .owners = 4};
}

void tearDown(void) {}

/* ---- tests ---- */

static void test_figures_are_the_sums_over_the_pools_of_the_card(void)
{
    struct gpucap_stats s;

    TEST_ASSERT_EQUAL_INT(0, gpucap_stats(CARD, &s, sizeof(s)));
    const uint64_t sums[] = {
        s.live,          s.live_count, s.cached, s.pending,      s.physical,        s.peak_live,
        s.peak_physical, s.fragmented, s.hits,   s.stitches,     s.stitched_chunks, s.grows,
        s.waits,         s.joins,      s.trims,  s.driver_calls, s.room_ns,         s.wait_ns};
    for (uint64_t i = 0; i < sizeof(sums) / sizeof(*sums); i++)
        TEST_ASSERT_EQUAL_UINT64(2000 + 2 * (i + 1), sums[i]);
    TEST_ASSERT_EQUAL_UINT64(9000, s.largest_free);
    TEST_ASSERT_EQUAL_UINT64(512, s.limit);
    TEST_ASSERT_EQUAL_UINT64(100, s.used);
    fake.limited = false;
    TEST_ASSERT_EQUAL_INT(0, gpucap_stats(CARD, &s, sizeof(s)));
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, s.limit);
    TEST_ASSERT_EQUAL_INT(-1, gpucap_stats(2, &s, sizeof(s))); /* no pool and no limit */
    fake.limited = fake.no_pools = true;
    TEST_ASSERT_EQUAL_INT(0, gpucap_stats(CARD, &s, sizeof(s)));
    TEST_ASSERT_EQUAL_INT(-1, gpucap_stats(CARD, NULL, sizeof(s)));
    mode = LIBRARY_PASS;
    TEST_ASSERT_EQUAL_INT(-1, gpucap_stats(CARD, &s, sizeof(s)));
}

/* A program that was built with an older or a newer header. */
static void test_no_more_is_written_than_the_program_has_room_for(void)
{
    struct {
        struct gpucap_stats stats;
        char behind[16];
    } room;

    memset(&room, 0x55, sizeof(room));
    TEST_ASSERT_EQUAL_INT(0, gpucap_stats(CARD, &room.stats, 16));
    for (size_t i = 16; i < sizeof(room); i++)
        TEST_ASSERT_EQUAL_HEX8(0x55, ((unsigned char *)&room)[i]);
    TEST_ASSERT_EQUAL_INT(0, gpucap_stats(CARD, &room.stats, sizeof(room)));
    for (size_t i = 0; i < sizeof(room.behind); i++)
        TEST_ASSERT_EQUAL_HEX8(0x55, room.behind[i]);
}

static void test_trims_and_limits_are_passed_on(void)
{
    uint64_t given = 0;

    TEST_ASSERT_EQUAL_INT(0, gpucap_trim(CARD, 10, &given));
    TEST_ASSERT_EQUAL_UINT64(10, fake.trimmed);
    TEST_ASSERT_EQUAL_UINT64(5, given);
    TEST_ASSERT_EQUAL_INT(0, gpucap_trim(CARD, 10, NULL));
    TEST_ASSERT_EQUAL_INT(-1, gpucap_trim(2, 10, &given));
    TEST_ASSERT_EQUAL_INT(0, gpucap_set_limit(CARD, 900));
    TEST_ASSERT_EQUAL_UINT64(900, fake.limit_set);
    TEST_ASSERT_EQUAL_INT(-1, gpucap_set_limit(CARD, 1000));
    TEST_ASSERT_EQUAL_INT(-1, gpucap_set_limit(0, 900));
    fake.limit_set = 900;
    TEST_ASSERT_EQUAL_INT(-1, gpucap_set_limit(CARD, 0));
    TEST_ASSERT_EQUAL_UINT64(900, fake.limit_set);
    mode = LIBRARY_PASS;
    TEST_ASSERT_EQUAL_INT(-1, gpucap_trim(CARD, 10, &given));
    TEST_ASSERT_EQUAL_INT(-1, gpucap_set_limit(CARD, 900));
}

static void test_tags_are_read_if_there_is_room_for_both_figures(void)
{
    uint64_t live = 0, peak = 0;

    TEST_ASSERT_EQUAL_INT(0, gpucap_tag("known"));
    TEST_ASSERT_EQUAL_INT(-1, gpucap_tag(NULL));
    TEST_ASSERT_EQUAL_INT(0, gpucap_tag_stats("known", &live, &peak));
    TEST_ASSERT_EQUAL_UINT64(3, live);
    TEST_ASSERT_EQUAL_UINT64(4, peak);
    TEST_ASSERT_EQUAL_INT(-1, gpucap_tag_stats("unknown", &live, &peak));
    TEST_ASSERT_EQUAL_INT(-1, gpucap_tag_stats("known", NULL, &peak));
    TEST_ASSERT_EQUAL_INT(-1, gpucap_tag_stats("known", &live, NULL));
}

static void test_owners_of_a_card_are_listed_as_far_as_there_is_room(void)
{
    struct gpucap_owner list[4];
    size_t count = 2;

    memset(list, 0x55, sizeof(list));
    TEST_ASSERT_EQUAL_INT(0, gpucap_owners(CARD, list, sizeof(*list), &count));
    TEST_ASSERT_EQUAL_size_t(3, count); /* one is on another card */
    TEST_ASSERT_EQUAL_UINT64(0, list[0].bytes);
    TEST_ASSERT_EQUAL_UINT64(2, list[1].bytes);
    TEST_ASSERT_EQUAL_STRING("cuBLAS", list[1].owner);
    TEST_ASSERT_EQUAL_STRING("malloc", list[1].kind);
    TEST_ASSERT_EQUAL_STRING("t", list[1].tag);
    TEST_ASSERT_EQUAL_UINT64(7, list[1].blocks);
    TEST_ASSERT_EQUAL_UINT64(8, list[1].peak);
    TEST_ASSERT_EQUAL_HEX8(0x55, ((unsigned char *)&list[2])[0]); /* no room for it */
    memset(list, 0x55, sizeof(list));
    TEST_ASSERT_EQUAL_INT(0, gpucap_owners(CARD, list, 8, &count)); /* entries of an older header */
    TEST_ASSERT_EQUAL_HEX8(0x55, ((unsigned char *)list)[24]);
    TEST_ASSERT_EQUAL_INT(0, gpucap_owners(CARD, NULL, 8, &count));
    TEST_ASSERT_EQUAL_size_t(3, count);
    TEST_ASSERT_EQUAL_INT(-1, gpucap_owners(CARD, list, sizeof(*list), NULL));
    fake.recording = false;
    TEST_ASSERT_EQUAL_INT(-1, gpucap_owners(CARD, list, sizeof(*list), &count));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_figures_are_the_sums_over_the_pools_of_the_card);
    RUN_TEST(test_no_more_is_written_than_the_program_has_room_for);
    RUN_TEST(test_trims_and_limits_are_passed_on);
    RUN_TEST(test_tags_are_read_if_there_is_room_for_both_figures);
    RUN_TEST(test_owners_of_a_card_are_listed_as_far_as_there_is_room);
    return UNITY_END();
}
