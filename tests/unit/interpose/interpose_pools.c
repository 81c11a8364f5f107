/* pools: which pool serves a context or an address, what a pool may take under which limit, and who is
 * visited while a context ends. The pools themselves, driver, cards and accounts are the test's own. */
#include "interpose/pool/pools.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unity.h>

#include "interpose/account/device.h"
#include "interpose/account/drivers_pools.h"
#include "interpose/see/events.h"
#include "log_fake.h"

#define MIB  (UINT64_C(1) << 20)
#define SPAN (1024 * MIB)

static const char contexts[128]; /* addresses to be contexts; those from 100 on are green */
#define CONTEXT(i) ((CUcontext)(uintptr_t)&contexts[i])

static struct options options;

static struct fake {
    CUcontext current;
    CUcontext pushed; /* above it */
    int primary;      /* of CONTEXT(100): this one of the others */
    CUdevice card;
    bool ended; /* the driver allocates nothing in the current context */
    size_t free;
    struct device *device, *guarded;
    uint64_t kept;
    bool admit, grant, in_the_way;
    int open; /* what opening a pool returns */
} fake;

static struct {
    int opened, closed, guards, settles, polls, forbids, flags, distrusts;
    int tries, awaits, settled, given, admitted, admissions_ended;
    bool settled_well;
    uint64_t bytes, slack, trimmed, waited_epoch;
    int wait_ends;
    bool wait_well;
    struct recording_event gone;
} got;

static uint64_t idle[POOLS_MAX]; /* by card: what a trim would give */

/* ---- the test's own library ---- */

static CUresult CUDAAPI get_current(CUcontext *context)
{
    *context = fake.pushed ? fake.pushed : fake.current;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_device(CUdevice *ordinal)
{
    *ordinal = fake.card;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_stream_context(CUstream stream, CUcontext *primary, CUgreenCtx *green)
{
    const bool is_green = !fake.pushed && (const char *)fake.current >= &contexts[100];

    (void)stream;
    *primary = is_green ? CONTEXT((const char *)fake.current - &contexts[100] + fake.primary) : fake.current;
    *green = is_green ? (CUgreenCtx)fake.current : NULL;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI push(CUcontext context)
{
    fake.pushed = context;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI pop(CUcontext *context)
{
    *context = fake.pushed;
    fake.pushed = NULL;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI get_info(size_t *free_bytes, size_t *total)
{
    *free_bytes = fake.free;
    *total = 4096 * MIB;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI allocate(CUdeviceptr *address, size_t bytes)
{
    (void)address, (void)bytes;
    return fake.ended ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_OUT_OF_MEMORY;
}

int pool_open(struct pool *pool, CUcontext context, CUdevice ordinal, const struct pool_budget *budget,
              uint32_t slack)
{
    CUcontext now;

    get_current(&now);
    TEST_ASSERT_EQUAL_PTR(context, now);
    if (fake.open)
        return fake.open;
    got.opened++;
    got.slack = slack;
    pool->context = context;
    pool->ordinal = ordinal;
    pool->budget = *budget;
    pool->vmm.base = SPAN * (1 + (uint64_t)((const char *)context - contexts));
    pool->vmm.span = SPAN;
    return 0;
}

void pool_close(struct pool *pool, bool context_lives)
{
    TEST_ASSERT_FALSE(context_lives);
    pool->context = NULL;
    got.closed++;
}

void pool_guard(struct pool *pool)
{
    (void)pool;
    got.guards++;
}

void pool_wait_all(struct pool *pool)
{
    (void)pool;
    got.settles++;
}

uint64_t pool_trim(struct pool *pool, uint64_t bytes)
{
    const uint64_t chunks = (bytes + 4 * MIB - 1) / (4 * MIB) * (4 * MIB); /* it gives whole chunks */
    const uint64_t given = chunks && chunks < idle[pool->ordinal] ? chunks : idle[pool->ordinal];

    got.trimmed += given;
    return given;
}

uint64_t pool_reclaimable(struct pool *pool)
{
    return idle[pool->ordinal];
}

struct pool_stats pool_stats(struct pool *pool)
{
    return (struct pool_stats){.physical = 100 * MIB + idle[pool->ordinal], .live = 100 * MIB};
}

bool pool_stats_at_exit(struct pool *pool, struct pool_stats *stats)
{
    *stats = pool_stats(pool);
    return true;
}

void fence_poll(struct fence *fence)
{
    (void)fence;
    got.polls++;
}

void fence_forbid_joins(void)
{
    got.forbids++;
}

void fence_expect_flags(void)
{
    got.flags++;
}

uint64_t fence_wait_begin(struct fence *fence)
{
    (void)fence;
    return 42;
}

void fence_wait_end(struct fence *fence, uint64_t epoch, bool success)
{
    (void)fence;
    got.wait_ends++;
    got.waited_epoch = epoch;
    got.wait_well = success;
}

static int streams_ends; /* calls that may end a context, under way */

void streams_context_end_begin(CUcontext context)
{
    (void)context;
    streams_ends++;
}

void streams_context_end_abort(CUcontext context)
{
    (void)context;
    streams_ends--;
}

void streams_distrust(void)
{
    got.distrusts++;
}

bool streams_in_order(void)
{
    return false;
}

uint64_t drivers_pools_idle_on(CUdevice ordinal)
{
    return (uint64_t)ordinal * 1000 * MIB;
}

int device_find(CUdevice ordinal, struct device **device)
{
    (void)ordinal;
    *device = fake.device;
    return ordinal == 63 ? -ENODEV : 0;
}

struct device *device_guarded_current(void)
{
    return fake.guarded;
}

bool device_admit(struct device *device, uint64_t bytes)
{
    TEST_ASSERT_EQUAL_PTR(fake.guarded, device);
    got.admitted++;
    got.bytes = bytes;
    return fake.admit;
}

void device_end_admission(struct device *device, uint64_t bytes)
{
    TEST_ASSERT_NOT_NULL(device);
    got.admissions_ended++;
    got.bytes = bytes;
}

uint64_t ledger_kept(const struct ledger *ledger)
{
    (void)ledger;
    return fake.kept;
}

bool account_try(struct account *account, uint64_t need, bool *busy)
{
    TEST_ASSERT_EQUAL_PTR(&fake.device->account, account);
    got.tries++;
    got.bytes = need;
    *busy = fake.in_the_way;
    return fake.grant;
}

void account_await(struct account *account)
{
    (void)account;
    got.awaits++;
}

void account_settle(struct account *account, uint64_t need, bool success, bool hidden)
{
    (void)account;
    TEST_ASSERT_FALSE(hidden);
    got.settled++;
    got.settled_well = success;
    got.bytes = need;
}

void account_give(struct account *account, uint64_t bytes, bool hidden)
{
    (void)account;
    TEST_ASSERT_FALSE(hidden);
    got.given++;
    got.bytes = bytes;
}

uint64_t account_room(struct account *account)
{
    (void)account;
    return 50 * MIB;
}

void events_publish(struct recording_event *slot)
{
    got.gone = *slot;
}

/* ---- tests ---- */

static int next_context;
static struct device card;

void setUp(void)
{
    driver_entries = (struct driver_table){.cuCtxGetCurrent = get_current,
                                           .cuCtxGetDevice = get_device,
                                           .cuStreamGetCtx_v2 = get_stream_context,
                                           .cuCtxPushCurrent_v2 = push,
                                           .cuCtxPopCurrent_v2 = pop,
                                           .cuMemGetInfo_v2 = get_info,
                                           .cuMemAlloc_v2 = allocate};
    options = (struct options){.pool = true, .deferred = true, .decay = 5, .slack.permille = 30};
    pools_setup(&options);
    atomic_store(&events_on, true);
    fake = (struct fake){.free = 100 * MIB, .grant = true, .admit = true};
    memset(&got, 0, sizeof(got));
    memset(idle, 0, sizeof(idle));
    log_fake_clear();
}

/* Ends all contexts, so that each test begins with no pool. */
void tearDown(void)
{
    for (int i = 0; i < next_context; i++)
        pools_context_end(CONTEXT(i));
    next_context = 0;
}

/* Returns the pool of a new context on a card, which becomes the current one. */
static struct pool *open_on(CUdevice ordinal)
{
    fake.current = CONTEXT(next_context++);
    fake.card = ordinal;
    return pools_current();
}

static void test_each_context_has_one_pool_and_is_found_by_address(void)
{
    struct pool *first = open_on(0);

    TEST_ASSERT_NOT_NULL(first);
    TEST_ASSERT_EQUAL_UINT64(30, got.slack);
    TEST_ASSERT_EQUAL_INT(0, got.distrusts); /* one context alone */
    TEST_ASSERT_EQUAL_PTR(first, pools_current());
    TEST_ASSERT_EQUAL_PTR(first, pools_of(first->vmm.base));
    struct pool *second = open_on(1);
    TEST_ASSERT_TRUE(second && second != first);
    TEST_ASSERT_EQUAL_INT(2, got.opened);
    TEST_ASSERT_GREATER_THAN_INT(0, got.distrusts); /* equal handles are different streams now */
    TEST_ASSERT_GREATER_THAN_INT(0, got.forbids);
    TEST_ASSERT_EQUAL_PTR(second, pools_current_if_open());
    fake.current = first->context;
    TEST_ASSERT_EQUAL_PTR(first, pools_current());
    TEST_ASSERT_EQUAL_PTR(first, pools_of(first->vmm.base));
    TEST_ASSERT_EQUAL_PTR(second, pools_of(second->vmm.base + SPAN - 1));
    TEST_ASSERT_NULL(pools_of(second->vmm.base + SPAN));
    TEST_ASSERT_NULL(pools_of(first->vmm.base - 1));
}

static void test_a_context_without_a_pool(void)
{
    TEST_ASSERT_NULL(pools_current()); /* no context */
    options.pool = false;
    TEST_ASSERT_NULL(open_on(0));
    options.pool = true;
    fake.ended = true;
    TEST_ASSERT_NULL(open_on(0)); /* it has ended and is still current */
    fake.ended = false;
    TEST_ASSERT_NULL(open_on(63)); /* its card cannot be named */
    fake.open = -ENOTSUP;
    TEST_ASSERT_NULL(open_on(0));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(log_fake_infos, "no virtual memory management"), log_fake_infos);
    log_fake_clear();
    fake.open = -ENOMEM;
    TEST_ASSERT_NULL(open_on(0));
    TEST_ASSERT_EQUAL_STRING("", log_fake_infos); /* said once */
    TEST_ASSERT_NULL(pools_current_if_open());
    TEST_ASSERT_EQUAL_INT(0, got.opened);
}

static void test_a_green_context_uses_the_pool_of_its_primary(void)
{
    next_context = 2;
    fake.current = CONTEXT(100);
    struct pool *pool = pools_current();
    TEST_ASSERT_NOT_NULL(pool);
    TEST_ASSERT_EQUAL_PTR(CONTEXT(0), pool->context);
    TEST_ASSERT_NULL(fake.pushed); /* the stack of contexts is as before */
    TEST_ASSERT_EQUAL_PTR(CONTEXT(0), pools_owner(fake.current));
    TEST_ASSERT_EQUAL_PTR(pool, pools_current());
    TEST_ASSERT_EQUAL_PTR(CONTEXT(100), pools_owner_if_green(CONTEXT(100))); /* none has been made */
    const int distrusts = got.distrusts;
    pools_expect_green();
    TEST_ASSERT_EQUAL_INT(distrusts + 1, got.distrusts); /* each has default streams of its own */
    TEST_ASSERT_EQUAL_PTR(CONTEXT(0), pools_owner_if_green(CONTEXT(100)));
    pools_forget_green();
    fake.current = CONTEXT(0);
    TEST_ASSERT_EQUAL_PTR(pool, pools_current());
    TEST_ASSERT_EQUAL_INT(1, got.opened);
    fake.current = CONTEXT(100);
    TEST_ASSERT_EQUAL_PTR(pool, pools_current());
    fake.primary = 1; /* it ends, and the next one with this handle is of another primary */
    pools_forget_green();
    TEST_ASSERT_EQUAL_PTR(CONTEXT(1), pools_current()->context);
}

static void test_a_handle_that_is_used_again_is_another_context(void)
{
    struct pool *pool = open_on(0);
    const uint64_t base = pool->vmm.base;

    pools_context_end_begin(pool->context);
    pools_context_end(CONTEXT(0));
    TEST_ASSERT_EQUAL_INT(1, got.closed);
    TEST_ASSERT_EQUAL_INT(EVENTS_GONE, got.gone.head.type);
    TEST_ASSERT_EQUAL_UINT64(base, got.gone.address);
    TEST_ASSERT_EQUAL_UINT64(SPAN, got.gone.bytes);
    TEST_ASSERT_NULL(pools_of(base));
    TEST_ASSERT_NULL(pools_current_if_open());
    TEST_ASSERT_NOT_NULL(pools_current());
    TEST_ASSERT_EQUAL_INT(2, got.opened);
    TEST_ASSERT_NOT_NULL(pools_of(base));
    idle[0] = MIB;
    TEST_ASSERT_EQUAL_UINT64(MIB, pools_reclaimable(0)); /* it is not ending */
}

static void test_a_guarded_pool_is_told(void)
{
    options.guard = true;
    open_on(0);
    TEST_ASSERT_EQUAL_INT(1, got.guards);
}

static void test_strict_and_zeroed_memory_rely_on_no_order(void)
{
    TEST_ASSERT_EQUAL_INT(0, got.distrusts + got.forbids);
    options.deferred = false;
    pools_setup(&options);
    TEST_ASSERT_EQUAL_INT(1, got.distrusts);
    TEST_ASSERT_EQUAL_INT(1, got.forbids);
    options.deferred = options.zero = true;
    pools_setup(&options);
    TEST_ASSERT_EQUAL_INT(2, got.distrusts);
    TEST_ASSERT_EQUAL_INT(2, got.forbids);
}

static void test_another_card_or_a_flag_ends_what_was_relied_on(void)
{
    open_on(0);
    open_on(1);
    memset(&got, 0, sizeof(got));
    pools_distrust();
    TEST_ASSERT_EQUAL_INT(2, got.settles);
    TEST_ASSERT_EQUAL_INT(1, got.distrusts);
    TEST_ASSERT_EQUAL_INT(1, got.forbids);
    TEST_ASSERT_EQUAL_INT(0, got.flags);
    pools_before_flag();
    TEST_ASSERT_EQUAL_INT(2, got.polls); /* open epochs are closed */
    TEST_ASSERT_EQUAL_INT(2, got.distrusts);
    TEST_ASSERT_EQUAL_INT(2, got.forbids);
    TEST_ASSERT_EQUAL_INT(1, got.flags);
}

static void test_a_limited_pool_asks_the_account(void)
{
    fake.device = &card;
    struct pool_budget budget = open_on(0)->budget;

    TEST_ASSERT_EQUAL_UINT64(50 * MIB, budget.room(budget.owner));
    fake.free = 20 * MIB;
    TEST_ASSERT_EQUAL_UINT64(20 * MIB, budget.room(budget.owner));
    TEST_ASSERT_FALSE(budget.fits(budget.owner, 20 * MIB + 1)); /* the card is full */
    TEST_ASSERT_EQUAL_INT(0, got.tries);
    TEST_ASSERT_TRUE(budget.fits(budget.owner, 20 * MIB));
    TEST_ASSERT_EQUAL_INT(1, got.settled); /* it was only a question */
    TEST_ASSERT_FALSE(got.settled_well);
    TEST_ASSERT_EQUAL_UINT64(20 * MIB, got.bytes);
    TEST_ASSERT_TRUE(budget.take(budget.owner, 4 * MIB));
    budget.settle(budget.owner, 4 * MIB, true);
    TEST_ASSERT_EQUAL_INT(2, got.settled);
    TEST_ASSERT_TRUE(got.settled_well);
    budget.give(budget.owner, 6 * MIB);
    TEST_ASSERT_EQUAL_INT(1, got.given);
    TEST_ASSERT_EQUAL_UINT64(6 * MIB, got.bytes);
    fake.grant = false;
    TEST_ASSERT_FALSE(budget.fits(budget.owner, MIB));
    TEST_ASSERT_FALSE(budget.take(budget.owner, MIB));
    TEST_ASSERT_EQUAL_INT(2, got.settled);
    TEST_ASSERT_EQUAL_INT(0, got.admitted);
}

static void test_an_unlimited_pool_is_admitted_beside_the_min_of_others(void)
{
    struct pool_budget budget = open_on(0)->budget;

    TEST_ASSERT_TRUE(budget.take(budget.owner, MIB)); /* nothing is kept */
    budget.settle(budget.owner, MIB, true);
    TEST_ASSERT_EQUAL_INT(0, got.admitted + got.admissions_ended);
    TEST_ASSERT_TRUE(budget.fits(budget.owner, 100 * MIB));
    TEST_ASSERT_EQUAL_UINT64(100 * MIB, budget.room(budget.owner));
    fake.guarded = &card;
    fake.kept = 40 * MIB;
    TEST_ASSERT_TRUE(budget.fits(budget.owner, 60 * MIB));
    TEST_ASSERT_FALSE(budget.fits(budget.owner, 60 * MIB + 1));
    TEST_ASSERT_EQUAL_UINT64(60 * MIB, budget.room(budget.owner));
    TEST_ASSERT_TRUE(budget.take(budget.owner, 2 * MIB));
    TEST_ASSERT_EQUAL_INT(1, got.admitted);
    budget.settle(budget.owner, 2 * MIB, false);
    TEST_ASSERT_EQUAL_INT(1, got.admissions_ended);
    TEST_ASSERT_EQUAL_UINT64(2 * MIB, got.bytes);
    fake.admit = false;
    TEST_ASSERT_FALSE(budget.take(budget.owner, 2 * MIB));
    fake.kept = 200 * MIB; /* more than is free */
    TEST_ASSERT_FALSE(budget.fits(budget.owner, 1));
    TEST_ASSERT_EQUAL_UINT64(0, budget.room(budget.owner));
    TEST_ASSERT_EQUAL_INT(0, got.tries + got.settled);
    budget.give(budget.owner, MIB);
    TEST_ASSERT_EQUAL_INT(0, got.given);
}

static void test_others_in_flight_are_awaited_once(void)
{
    fake.device = &card;
    struct pool *pool = open_on(0);

    TEST_ASSERT_FALSE(pools_await(pool));
    fake.grant = false;
    fake.in_the_way = true;
    TEST_ASSERT_FALSE(pool->budget.take(pool->budget.owner, MIB));
    fake.in_the_way = false;
    TEST_ASSERT_FALSE(pool->budget.take(pool->budget.owner, 2 * MIB)); /* not only the last request counts */
    TEST_ASSERT_TRUE(pools_await(pool));
    TEST_ASSERT_EQUAL_INT(1, got.awaits);
    TEST_ASSERT_FALSE(pools_await(pool));
    TEST_ASSERT_EQUAL_INT(1, got.awaits);
}

static void test_a_wait_of_the_program_ends_epochs_and_without_decay_gives_back(void)
{
    struct pool *pool = open_on(0);
    const CUcontext first = pool->context;

    idle[0] = 8 * MIB;
    struct pools_wait wait = pools_before_wait(NULL);
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    TEST_ASSERT_EQUAL_INT(PTHREAD_CANCEL_DISABLE, state); /* the wait would never end the epoch */
    TEST_ASSERT_EQUAL_PTR(pool, wait.pool);
    pools_after_wait(&wait, false);
    TEST_ASSERT_EQUAL_UINT64(42, got.waited_epoch);
    TEST_ASSERT_FALSE(got.wait_well);
    open_on(1);
    wait = pools_before_wait(first);
    TEST_ASSERT_EQUAL_PTR(pool, wait.pool);
    pools_after_wait(&wait, true);
    TEST_ASSERT_TRUE(got.wait_well);
    TEST_ASSERT_EQUAL_UINT64(0, got.trimmed);
    options.decay = 0;
    pools_after_wait(&wait, false);
    TEST_ASSERT_EQUAL_UINT64(0, got.trimmed);
    pools_after_wait(&wait, true);
    TEST_ASSERT_EQUAL_UINT64(8 * MIB, got.trimmed);
    fake.current = CONTEXT(50);
    wait = pools_before_wait(NULL); /* of a context without a pool */
    TEST_ASSERT_NULL(wait.pool);
    pools_after_wait(&wait, true);
    TEST_ASSERT_EQUAL_INT(4, got.wait_ends);
}

static void test_sums_are_of_one_card_and_a_trim_stops_when_it_has_enough(void)
{
    open_on(2);
    open_on(2);
    open_on(3);
    idle[2] = 10 * MIB;
    idle[3] = 70 * MIB;
    TEST_ASSERT_EQUAL_UINT64(20 * MIB, pools_reclaimable(2));
    TEST_ASSERT_EQUAL_UINT64(2020 * MIB, pools_idle_on(2)); /* with the driver's own */
    TEST_ASSERT_EQUAL_UINT64(18 * MIB, pools_trim(2, 15 * MIB));
    TEST_ASSERT_EQUAL_UINT64(18 * MIB, got.trimmed);
    TEST_ASSERT_EQUAL_UINT64(8 * MIB, pools_trim(2, 5 * MIB)); /* more than was asked for is enough */
    got.trimmed = 0;
    TEST_ASSERT_EQUAL_UINT64(10 * MIB, pools_trim(2, 10 * MIB)); /* the second is not asked for it too */
    TEST_ASSERT_EQUAL_UINT64(10 * MIB, got.trimmed);
    TEST_ASSERT_EQUAL_UINT64(0, pools_trim(4, MIB));
}

static int visits;

static void count(struct pool *pool, void *argument)
{
    (void)pool, (void)argument;
    visits++;
}

static int visited(void (*each)(void (*visit)(struct pool *pool, void *argument), void *argument))
{
    visits = 0;
    each(count, NULL);
    return visits;
}

static void test_a_context_that_may_end_is_not_visited(void)
{
    streams_ends = 0;
    open_on(0);
    open_on(0);
    TEST_ASSERT_EQUAL_INT(2, visited(pools_each));
    TEST_ASSERT_EQUAL_INT(2, visited(pools_each_waiting));
    pools_context_end_begin(CONTEXT(0));
    pools_context_end_begin(CONTEXT(0)); /* two threads try it */
    TEST_ASSERT_EQUAL_INT(2, streams_ends);
    TEST_ASSERT_EQUAL_INT(1, visited(pools_each));
    TEST_ASSERT_EQUAL_INT(1, visited(pools_each_waiting));
    pools_context_end_abort(CONTEXT(0));
    TEST_ASSERT_EQUAL_INT(1, visited(pools_each));
    pools_context_end_abort(CONTEXT(0));
    TEST_ASSERT_EQUAL_INT(0, streams_ends);
    pools_context_end_abort(CONTEXT(0)); /* one too many */
    TEST_ASSERT_EQUAL_INT(2, visited(pools_each));
    pools_context_end_begin(CONTEXT(0));
    TEST_ASSERT_EQUAL_INT(1, visited(pools_each));
    pools_context_end_abort(CONTEXT(0));
}

static pthread_mutex_t visit_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool in_visit, ended;

static void linger(struct pool *pool, void *unused)
{
    (void)pool, (void)unused;
    atomic_store(&in_visit, true);
    pthread_mutex_lock(&visit_lock);
    TEST_ASSERT_FALSE(atomic_load(&ended)); /* the end waits for the visit */
    pthread_mutex_unlock(&visit_lock);
}

static void *visit_all(void *unused)
{
    pools_each_waiting(linger, NULL);
    return unused;
}

static void *end_first(void *unused)
{
    pools_context_end_begin(CONTEXT(0));
    atomic_store(&ended, true);
    return unused;
}

static void test_the_end_of_a_context_waits_for_a_visit_and_nothing_else_does(void)
{
    pthread_t visitor, ender;

    open_on(0);
    pthread_mutex_lock(&visit_lock);
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&visitor, NULL, visit_all, NULL));
    while (!atomic_load(&in_visit))
        sched_yield();
    TEST_ASSERT_EQUAL_INT(1, visited(pools_each)); /* the lock is free meanwhile */
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&ender, NULL, end_first, NULL));
    while (visited(pools_each) != 0) /* until it has begun */
        sched_yield();
    pthread_mutex_unlock(&visit_lock);
    pthread_join(visitor, NULL);
    pthread_join(ender, NULL);
    TEST_ASSERT_TRUE(atomic_load(&ended));
}

static void test_the_report_is_for_level_info_and_a_child_has_no_pools(void)
{
    open_on(5);
    pools_report();
    TEST_ASSERT_EQUAL_STRING("", log_fake_infos);
    options.log = OPTIONS_LOG_INFO;
    pools_report();
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(log_fake_infos, "pool of device 5: "), log_fake_infos);
    pools_after_fork();
    TEST_ASSERT_EQUAL_INT(0, visited(pools_each));
    TEST_ASSERT_NULL(pools_current_if_open());
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_each_context_has_one_pool_and_is_found_by_address);
    RUN_TEST(test_a_context_without_a_pool);
    RUN_TEST(test_a_green_context_uses_the_pool_of_its_primary);
    RUN_TEST(test_a_handle_that_is_used_again_is_another_context);
    RUN_TEST(test_a_guarded_pool_is_told);
    RUN_TEST(test_strict_and_zeroed_memory_rely_on_no_order);
    RUN_TEST(test_another_card_or_a_flag_ends_what_was_relied_on);
    RUN_TEST(test_a_limited_pool_asks_the_account);
    RUN_TEST(test_an_unlimited_pool_is_admitted_beside_the_min_of_others);
    RUN_TEST(test_others_in_flight_are_awaited_once);
    RUN_TEST(test_a_wait_of_the_program_ends_epochs_and_without_decay_gives_back);
    RUN_TEST(test_sums_are_of_one_card_and_a_trim_stops_when_it_has_enough);
    RUN_TEST(test_a_context_that_may_end_is_not_visited);
    RUN_TEST(test_the_end_of_a_context_waits_for_a_visit_and_nothing_else_does);
    RUN_TEST(test_the_report_is_for_level_info_and_a_child_has_no_pools);
    return UNITY_END();
}
