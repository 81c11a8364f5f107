/* account with a ledger: leases, claims beside guarantees of other jobs, and the wait for a job's budget. One
 * thread; races are in interpose_account.c. */
#include "interpose/account/account.h"
#include "ledger_support.h"

#include <errno.h>
#include <unity.h>

#define MB      (UINT64_C(1) << 20)
#define PAGE    LIMIT_PAGE
#define BUDGET  (1024 * MB)
#define RESERVE (64 * MB)
#define CONTEXT (100 * MB)

static struct account account;
static struct ledger *own;
static uint64_t truth;     /* the driver's figure */
static uint64_t freed_now; /* freed while the driver is asked, after it has looked */

static int ask_driver(void *context, uint64_t *bytes)
{
    TEST_ASSERT_EQUAL_PTR(&account, context);
    *bytes = truth;
    if (freed_now) {
        truth -= freed_now;
        account_give(&account, freed_now, false);
        freed_now = 0;
    }
    return 0;
}

static int ask_in_vain(void *context, uint64_t *bytes)
{
    (void)context, (void)bytes;
    return -ENODATA;
}

static int free_on_card(void *context, uint64_t *bytes)
{
    (void)context;
    *bytes = 500 * MB;
    return 0;
}

static int free_unknown(void *context, uint64_t *bytes)
{
    (void)context, (void)bytes;
    return -ENODATA;
}

void setUp(void)
{
    test_begin();
    truth = CONTEXT;
    freed_now = 0;
    own = test_join(JOB, BUDGET);
    account_init(&account, BUDGET, RESERVE, ask_driver, &account);
    account.ledger = own;
    account.free_on_card = free_on_card;
}

void tearDown(void)
{
    pthread_mutex_destroy(&account.lock);
    pthread_cond_destroy(&account.settled);
    test_end();
}

static void allocate(uint64_t bytes)
{
    TEST_ASSERT_TRUE(account_take(&account, bytes));
    truth += bytes;
    account_settle(&account, bytes, true, false);
}

static uint64_t published(void)
{
    return atomic_load(&ledger_own_slot(own)->used);
}

static uint64_t claimed(void)
{
    return atomic_load(&ledger_own_slot(own)->claim);
}

static void test_only_what_is_leased_is_promised(void)
{
    account_view(&account);
    TEST_ASSERT_EQUAL_UINT64(CONTEXT, ledger_lease(own));
    TEST_ASSERT_FALSE(account_promise(&account, PAGE));
    TEST_ASSERT_EQUAL_UINT64(0, atomic_load(&account.promised));
    allocate(PAGE); /* leases a little more than it needs */
    TEST_ASSERT_TRUE(account_promise(&account, PAGE));
    account_forget_promise(&account, PAGE);
}

static void test_a_process_has_no_more_room_than_its_own_limit_leaves(void)
{
    account_set_limit(&account, BUDGET / 2);
    TEST_ASSERT_EQUAL_UINT64(BUDGET / 2 - RESERVE - CONTEXT, account_view(&account).room);
    account_set_limit(&account, 2 * BUDGET);
    TEST_ASSERT_EQUAL_UINT64(BUDGET - RESERVE - CONTEXT, account_view(&account).room);
}

/* They give back what they have idle; what they use they keep. */
static void test_what_others_lease_and_do_not_use_is_told_as_free(void)
{
    struct ledger *holders[] = {test_join(JOB, 0), test_join(JOB, 0)};

    for (int i = 0; i < 2; i++) {
        TEST_ASSERT_EQUAL_INT(0, ledger_extend(holders[i], 300 * MB));
        ledger_publish_used(holders[i], 50 * MB);
    }
    TEST_ASSERT_EQUAL_UINT64(BUDGET - RESERVE - CONTEXT - 100 * MB, account_view(&account).room);
}

static void test_what_the_driver_takes_by_itself_is_leased(void)
{
    account_view(&account);
    truth += 200 * MB;
    account_view(&account);
    TEST_ASSERT_EQUAL_UINT64(CONTEXT + 200 * MB, ledger_lease(own));
}

static void test_what_was_taken_since_the_last_measurement_is_leased(void)
{
    account_view(&account);
    for (int i = 0; i < 3; i++)
        allocate(100 * MB);
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(CONTEXT + 300 * MB, ledger_lease(own));
}

static void test_a_lease_is_not_lowered_below_what_was_measured(void)
{
    account_view(&account);
    ledger_settle(own, PAGE);
    account_lower_lease(&account);
    TEST_ASSERT_EQUAL_UINT64(CONTEXT, ledger_lease(own));
}

static void test_what_is_only_guessed_is_not_leased(void)
{
    account.measure = ask_in_vain;
    TEST_ASSERT_EQUAL_UINT64(ACCOUNT_CONTEXT_GUESS, account_view(&account).used);
    TEST_ASSERT_EQUAL_UINT64(0, ledger_lease(own));
}

/* Others of the job can have the bytes. */
static void test_what_the_own_limit_refuses_is_not_leased(void)
{
    account_view(&account);
    account_set_limit(&account, BUDGET / 2);
    TEST_ASSERT_FALSE(account_take(&account, BUDGET / 2));
    TEST_ASSERT_EQUAL_UINT64(CONTEXT, ledger_lease(own));
}

static int estimate_card(void *context, uint64_t *bytes)
{
    (void)context;
    *bytes = 700 * MB; /* of all processes */
    return 0;
}

static void test_what_other_processes_use_on_the_card_is_not_leased(void)
{
    account.estimate = estimate_card;
    allocate(PAGE);
    TEST_ASSERT_LESS_THAN_UINT64(700 * MB, ledger_lease(own));
}

static void test_freed_memory_is_not_published_as_used(void)
{
    allocate(64 * MB);
    account_view(&account);
    TEST_ASSERT_EQUAL_UINT64(CONTEXT + 64 * MB, published());
    account_give(&account, 32 * MB, false);
    TEST_ASSERT_EQUAL_UINT64(CONTEXT + 32 * MB, published());
    truth -= 32 * MB;
    account_view(&account);
    TEST_ASSERT_EQUAL_UINT64(CONTEXT + 32 * MB, published());
    freed_now = 32 * MB; /* the driver's answer still includes it */
    account_view(&account);
    TEST_ASSERT_EQUAL_UINT64(CONTEXT, published());
}

/* Another job has 300 of the 500 MiB that are free on the card for itself. */
static void guard(void)
{
    struct ledger *other = test_open();

    TEST_ASSERT_EQUAL_INT(
        0, ledger_join_within(other, "other", &(struct ledger_limits){.max = BUDGET, .min = 300 * MB}));
    TEST_ASSERT_TRUE(ledger_is_guarded(own));
}

static void test_beside_guarantees_nothing_is_promised_and_no_claim_is_left(void)
{
    account_view(&account);
    allocate(PAGE);
    guard();
    TEST_ASSERT_FALSE(account_promise(&account, PAGE));
    TEST_ASSERT_TRUE(account_take(&account, 100 * MB));
    TEST_ASSERT_EQUAL_UINT64(100 * MB, claimed());
    account_settle(&account, 100 * MB, false, false);
    TEST_ASSERT_EQUAL_UINT64(0, claimed());
    TEST_ASSERT_TRUE(account_take(&account, 100 * MB));
    account_settle_pooled(&account, 100 * MB, 0);
    TEST_ASSERT_EQUAL_UINT64(0, claimed());
    TEST_ASSERT_TRUE(account_grow_begin(&account, 100 * MB));
    TEST_ASSERT_EQUAL_UINT64(100 * MB, claimed());
    account_grow_end(&account, 100 * MB, false);
    TEST_ASSERT_EQUAL_UINT64(0, claimed());
}

static void test_a_refusal_is_counted_and_leaves_no_claim(void)
{
    guard();
    const unsigned long before = account_denials(&account);
    TEST_ASSERT_FALSE(account_take(&account, 250 * MB)); /* the card */
    TEST_ASSERT_EQUAL_UINT64(before + 1, account_denials(&account));
    account_set_limit(&account, CONTEXT + RESERVE + 50 * MB);
    TEST_ASSERT_FALSE(account_take(&account, 100 * MB)); /* the limit */
    TEST_ASSERT_EQUAL_UINT64(before + 2, account_denials(&account));
    TEST_ASSERT_EQUAL_UINT64(0, claimed());
    TEST_ASSERT_TRUE(account_take(&account, 50 * MB));
    TEST_ASSERT_EQUAL_UINT64(before + 2, account_denials(&account));
    account_settle(&account, 50 * MB, false, false);
}

static void test_guarantees_refuse_nothing_where_the_free_memory_of_the_card_is_unknown(void)
{
    guard();
    account.free_on_card = free_unknown;
    allocate(250 * MB);
    TEST_ASSERT_EQUAL_UINT64(0, claimed());
}

static void test_bytes_of_a_dead_process_are_taken_before_a_refusal(void)
{
    struct member member = member_start(JOB, 0);

    TEST_ASSERT_EQUAL_INT64(0, member_do(&member, ORDER_EXTEND, BUDGET, 0));
    TEST_ASSERT_FALSE(account_take(&account, PAGE));
    member_kill(&member);
    allocate(500 * MB);
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(CONTEXT + 500 * MB, ledger_lease(own));
}

static void test_the_budget_is_waited_for_only_if_it_can_be_enough(void)
{
    struct ledger *holder = test_join(JOB, 0);

    account_view(&account);
    account_set_limit(&account, 512 * MB);
    TEST_ASSERT_EQUAL_INT(-ENOMEM, account_wait_for_budget(&account, 512 * MB, 1));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(holder, 800 * MB));
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, account_wait_for_budget(&account, 200 * MB, 1));
    TEST_ASSERT_EQUAL_UINT64(0, account.awaited);
}

/* Other processes may ask for idle memory between the wait and the request. */
static void test_what_was_waited_for_is_kept_until_it_is_taken(void)
{
    account_view(&account);
    TEST_ASSERT_EQUAL_INT(0, account_wait_for_budget(&account, 200 * MB, 1));
    account_settle_lease(&account);
    TEST_ASSERT_EQUAL_UINT64(CONTEXT + RESERVE + 200 * MB, ledger_lease(own));
    account_end_wait(&account, 200 * MB);
    account_settle_lease(&account);
    TEST_ASSERT_EQUAL_UINT64(CONTEXT, ledger_lease(own));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_only_what_is_leased_is_promised);
    RUN_TEST(test_a_process_has_no_more_room_than_its_own_limit_leaves);
    RUN_TEST(test_what_others_lease_and_do_not_use_is_told_as_free);
    RUN_TEST(test_what_the_driver_takes_by_itself_is_leased);
    RUN_TEST(test_what_was_taken_since_the_last_measurement_is_leased);
    RUN_TEST(test_a_lease_is_not_lowered_below_what_was_measured);
    RUN_TEST(test_what_is_only_guessed_is_not_leased);
    RUN_TEST(test_what_the_own_limit_refuses_is_not_leased);
    RUN_TEST(test_what_other_processes_use_on_the_card_is_not_leased);
    RUN_TEST(test_freed_memory_is_not_published_as_used);
    RUN_TEST(test_beside_guarantees_nothing_is_promised_and_no_claim_is_left);
    RUN_TEST(test_a_refusal_is_counted_and_leaves_no_claim);
    RUN_TEST(test_guarantees_refuse_nothing_where_the_free_memory_of_the_card_is_unknown);
    RUN_TEST(test_bytes_of_a_dead_process_are_taken_before_a_refusal);
    RUN_TEST(test_the_budget_is_waited_for_only_if_it_can_be_enough);
    RUN_TEST(test_what_was_waited_for_is_kept_until_it_is_taken);
    return UNITY_END();
}
