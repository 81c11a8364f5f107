/* limit: the policy, checked as properties over every small state and over many hostile ones. Pure: no lock.
 */
#include "interpose/account/limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <unity.h>

#define PAGE        LIMIT_PAGE
#define RANDOM_RUNS 400000

typedef unsigned __int128 wide; /* sums that cannot wrap */

void setUp(void) {}
void tearDown(void) {}

static wide taken(const struct limit_state *s)
{
    return (wide)s->measured + s->unmeasured + s->in_flight;
}

static void fail_with(const char *what, const struct limit_state *s, uint64_t need, bool fresh)
{
    char text[400];

    snprintf(text, sizeof(text),
             "%s: limit %llx reserve %llx measured %llx unmeasured %llx in_flight %llx stale %d need %llx "
             "fresh %d",
             what, (unsigned long long)s->limit, (unsigned long long)s->reserve,
             (unsigned long long)s->measured, (unsigned long long)s->unmeasured,
             (unsigned long long)s->in_flight, s->stale, (unsigned long long)need, fresh);
    TEST_FAIL_MESSAGE(text);
}

static void check_verdict(const struct limit_state *s, uint64_t need, bool fresh)
{
    const bool fits = taken(s) + need + s->reserve <= s->limit;
    const bool hopeless = (wide)s->measured + need + s->reserve > s->limit;

    switch (limit_decide(s, need, fresh)) {
    case LIMIT_GRANT:
        if (!fits)
            fail_with("granted past the limit", s, need, fresh);
        if (s->stale)
            fail_with("granted on an old figure", s, need, fresh);
        break;
    case LIMIT_REFUSE:
        if (!hopeless)
            fail_with("refused what the driver's own figure has room for", s, need, fresh);
        if (!fresh && (wide)need + s->reserve <= s->limit)
            fail_with("refused without asking the driver", s, need, fresh);
        break;
    case LIMIT_MEASURE:
        if (fresh && !s->stale && !s->unmeasured)
            fail_with("would measure for ever", s, need, fresh);
        break;
    case LIMIT_WAIT:
        if (!s->in_flight || !fresh)
            fail_with("waits for nobody", s, need, fresh);
        break;
    }
}

/* What is said to be free must be granted, and not a page more. */
static void check_room(const struct limit_state *s)
{
    const uint64_t room = limit_room(s);

    if (room % PAGE)
        fail_with("room is not whole pages", s, room, true);
    if (taken(s) + room + s->reserve > s->limit && room)
        fail_with("room past the limit", s, room, true);
    if (s->stale)
        return;
    if (room && limit_decide(s, room, true) != LIMIT_GRANT)
        fail_with("room was not granted", s, room, true);
    if (room < UINT64_MAX - 2 * PAGE && limit_decide(s, room + PAGE, true) == LIMIT_GRANT)
        fail_with("more than room was granted", s, room + PAGE, true);
}

/* When so much has been given back, `need` fits, and not before. */
static void check_short(const struct limit_state *s, uint64_t need)
{
    const uint64_t missing = limit_short(s, need);
    const wide all = taken(s) + need + s->reserve, most = all < UINT64_MAX ? all : UINT64_MAX;

    if (most > (wide)s->limit + missing)
        fail_with("what is missing would not be enough", s, need, true);
    if (missing && most < (wide)s->limit + missing)
        fail_with("more is said to be missing than is", s, need, true);
}

static void check(const struct limit_state *s, uint64_t need)
{
    check_short(s, need);
    check_verdict(s, need, false);
    check_verdict(s, need, true);
    check_room(s);
}

static void test_every_small_state_keeps_the_promises(void)
{
    enum { N = 7 };
    struct limit_state s;

    for (int code = 0; code < N * N * N * N * N * N * 2; code++) {
        int c = code / 2;

        s.stale = code & 1;
        s.limit = (uint64_t)(c % N) * PAGE, c /= N;
        s.reserve = (uint64_t)(c % N) * PAGE, c /= N;
        s.measured = (uint64_t)(c % N) * PAGE, c /= N;
        s.unmeasured = (uint64_t)(c % N) * PAGE, c /= N;
        s.in_flight = (uint64_t)(c % N) * PAGE, c /= N;
        check(&s, (uint64_t)(c + 1) * PAGE); /* a request is never 0 */
    }
}

static uint64_t random_state = 88172645463325252ULL;

static uint64_t random64(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

/* Small, large, next to a power of two, next to the end of the range. */
static uint64_t random_bytes(void)
{
    uint64_t r = random64(), near = UINT64_C(1) << (r >> 8) % 64;

    switch (r % 5) {
    case 0:
        return random64() % 8;
    case 1:
        return UINT64_MAX - random64() % 8;
    case 2:
        return near - random64() % 3;
    case 3:
        return near;
    default:
        return random64() >> (r >> 8) % 64;
    }
}

/* The largest number means "no limit", for which limit is never asked. */
static uint64_t random_limit(void)
{
    return random_bytes() & ~UINT64_C(1);
}

static uint64_t random_need(void)
{
    return random_bytes() | 1;
}

static void test_no_hostile_number_wraps_into_a_grant(void)
{
    for (int i = 0; i < RANDOM_RUNS; i++) {
        struct limit_state s = {
            .limit = random_limit(),
            .reserve = random_bytes(),
            .measured = random_bytes(),
            .unmeasured = random_bytes(),
            .in_flight = random_bytes(),
            .stale = random64() % 4 == 0,
        };

        check(&s, random_need());
    }
}

static void test_without_other_processes_a_fresh_figure_decides_at_once(void)
{
    for (int i = 0; i < RANDOM_RUNS; i++) {
        struct limit_state s = {
            .limit = random_limit(), .reserve = random_bytes(), .measured = random_bytes()};
        uint64_t need = random_need();
        enum limit_verdict verdict = limit_decide(&s, need, true);

        if (verdict != ((wide)s.measured + need + s.reserve <= s.limit ? LIMIT_GRANT : LIMIT_REFUSE))
            fail_with("not decided", &s, need, true);
    }
}

static void test_far_from_the_limit_no_figure_is_asked_for(void)
{
    struct limit_state s = {.limit = 100 * PAGE, .reserve = 10 * PAGE, .measured = 30 * PAGE};

    TEST_ASSERT_EQUAL_INT(LIMIT_GRANT, limit_decide(&s, 30 * PAGE, false));
    TEST_ASSERT_EQUAL_INT(LIMIT_MEASURE, limit_decide(&s, 31 * PAGE, false));
    s.unmeasured = 20 * PAGE;
    s.in_flight = 9 * PAGE;
    TEST_ASSERT_EQUAL_INT(LIMIT_GRANT, limit_decide(&s, 1 * PAGE, false));
    TEST_ASSERT_EQUAL_INT(LIMIT_MEASURE, limit_decide(&s, 2 * PAGE, false));
    s.stale = true;
    TEST_ASSERT_EQUAL_INT(LIMIT_MEASURE, limit_decide(&s, 1 * PAGE, false));
}

static void test_what_can_never_fit_is_refused_without_asking(void)
{
    struct limit_state s = {.limit = 100 * PAGE, .reserve = 10 * PAGE, .stale = true};

    TEST_ASSERT_EQUAL_INT(LIMIT_REFUSE, limit_decide(&s, 91 * PAGE, false));
    TEST_ASSERT_EQUAL_INT(LIMIT_REFUSE, limit_decide(&s, UINT64_MAX, false));
    TEST_ASSERT_EQUAL_INT(LIMIT_MEASURE, limit_decide(&s, 90 * PAGE, false));
}

static void test_a_request_is_rounded_up_and_never_down(void)
{
    TEST_ASSERT_EQUAL_UINT64(0, limit_round(0));
    TEST_ASSERT_EQUAL_UINT64(PAGE, limit_round(1));
    TEST_ASSERT_EQUAL_UINT64(PAGE, limit_round(PAGE));
    TEST_ASSERT_EQUAL_UINT64(2 * PAGE, limit_round(PAGE + 1));
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, limit_round(UINT64_MAX));
    TEST_ASSERT_EQUAL_UINT64(0, limit_round_step(0));
    TEST_ASSERT_EQUAL_UINT64(LIMIT_STEP, limit_round_step(1));
    TEST_ASSERT_EQUAL_UINT64(2 * LIMIT_STEP, limit_round_step(LIMIT_STEP + 1));
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, limit_round_step(UINT64_MAX));
    for (int i = 0; i < RANDOM_RUNS; i++) {
        uint64_t bytes = random_bytes(), rounded = limit_round(bytes);

        TEST_ASSERT_TRUE(rounded >= bytes);
        TEST_ASSERT_TRUE(rounded == UINT64_MAX || (rounded % PAGE == 0 && rounded - bytes < PAGE));
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_every_small_state_keeps_the_promises);
    RUN_TEST(test_no_hostile_number_wraps_into_a_grant);
    RUN_TEST(test_without_other_processes_a_fresh_figure_decides_at_once);
    RUN_TEST(test_far_from_the_limit_no_figure_is_asked_for);
    RUN_TEST(test_what_can_never_fit_is_refused_without_asking);
    RUN_TEST(test_a_request_is_rounded_up_and_never_down);
    return UNITY_END();
}
