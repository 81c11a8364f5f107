/* route_grow: what the driver takes for itself: stacks, contexts on two cards, graphs; and what ends with a
 * context. The account is the real one. Nothing can be measured, so that its own books show. */
#include "interpose/route.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unity.h>

#include "interpose/account/known_kernels.h"
#include "interpose/account/limit.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "interpose/recorded.h"
#include "interpose/refusal.h"
#include "interpose/see/events.h"
#include "interpose/share/ipc.h"
#include "apart.h"
#include "ledger_support.h"

#define CARDS    2
#define PAGE     LIMIT_PAGE
#define LIMIT    (1000 * PAGE)
#define THREADS  1024
#define GUESS    ACCOUNT_CONTEXT_GUESS
#define FIRST    ((CUcontext)0x100)
#define SECOND   ((CUcontext)0x200)
#define CONTEXTS 64                 /* that route_grow.c knows */
#define OTHER    ((CUcontext)0x300) /* on the other card */

static struct device cards[CARDS];
static struct fake {
    CUdevice current;
    CUcontext context; /* the current one */
    int find;          /* what device_find returns */
    bool unlimited, guarded;
    int admits;     /* so many admissions succeed */
    uint64_t lent;  /* the next lend_more frees so much */
    uint64_t freed; /* by another thread, just before the next route_make_room finds nothing */
    uint64_t given_back;
    uint64_t idle;       /* that pools_trim gives */
    uint64_t card_used;  /* by all processes; more than the limit only if it is set */
    uint64_t free_bytes; /* on the card; 0: not known */
    uint64_t comes_free; /* of that, after the next request to other processes */
} fake;
static struct got {
    int said, kept, unknown, distrusts, loans, ends, listens, starts, exports, imports, pools_ends, made,
        ended;
    int captures, uncharged, drivers_trims, pool_changes, pushed, retries, asked;
    enum refusal_of whose;
    uint64_t bytes, admitted, trimmed;
    uint64_t freed_kinds; /* of the events, one digit each */
} got;

/* ---- the rest of the library ---- */

bool route_active(void)
{
    return true;
}

bool route_limited(void)
{
    return !fake.unlimited;
}

uint64_t route_given_back(void)
{
    return fake.given_back;
}

bool route_make_room(CUdevice ordinal, uint64_t bytes)
{
    (void)bytes;
    account_give(&cards[ordinal].account, fake.freed, false);
    fake.given_back += fake.freed;
    fake.freed = 0;
    return false;
}

bool route_retry(struct route_attempt *attempt)
{
    (void)attempt;
    got.retries++;
    return false;
}

CUresult route_refuse_unknown(enum blocks_kind kind)
{
    TEST_ASSERT_EQUAL_INT(BLOCKS_ASYNC, kind); /* asks nothing of the driver */
    got.unknown++;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void route_uncharge(const struct block *block)
{
    account_give(&cards[block->device].account, block->bytes, false);
    got.uncharged++;
}

int device_find(CUdevice ordinal, struct device **device)
{
    *device = fake.find == 0 && !fake.unlimited ? &cards[ordinal] : NULL;
    return fake.find;
}

int device_find_current(struct device **device)
{
    return device_find(fake.current, device);
}

struct device *device_get(CUdevice ordinal)
{
    return fake.unlimited ? NULL : &cards[ordinal];
}

struct device *device_list(CUdevice ordinal)
{
    return &cards[ordinal];
}

struct device *device_guarded(CUdevice ordinal)
{
    return fake.guarded ? &cards[ordinal] : NULL;
}

struct device *device_guarded_current(void)
{
    return device_guarded(fake.current);
}

bool device_admit(struct device *device, uint64_t bytes)
{
    (void)device;
    if (fake.admits-- <= 0)
        return false;
    got.admitted += bytes;
    return true;
}

void device_end_admission(struct device *device, uint64_t bytes)
{
    (void)device;
    got.admitted -= bytes;
}

void device_each(void (*visit)(struct device *device))
{
    visit(&cards[0]);
    visit(&cards[1]);
}

bool device_set_limit(struct device *device, uint64_t bytes)
{
    if (bytes > LIMIT)
        return false;
    account_set_limit(&device->account, bytes);
    return true;
}

enum recording_limit device_limit_kind(const struct device *device)
{
    (void)device;
    return RECORDING_LIMIT_PROCESS;
}

int device_free_bytes(struct device *device, uint64_t *bytes)
{
    (void)device;
    *bytes = fake.free_bytes;
    return fake.free_bytes ? 0 : -ENODATA;
}

void lend_listen(struct device *device)
{
    (void)device;
    got.listens++;
}

void lend_start(struct device *device)
{
    (void)device;
    got.starts++;
}

bool lend_more(struct loan *loan)
{
    if (fake.lent == 0)
        return false;
    account_give(&loan->device->account, fake.lent, false);
    fake.lent = 0;
    got.loans++;
    return true;
}

void lend_end(const struct loan *loan)
{
    (void)loan;
    got.ends++;
}

bool lend_on_card(CUdevice ordinal, uint64_t bytes)
{
    (void)ordinal, (void)bytes;
    got.asked++;
    fake.free_bytes += fake.comes_free;
    return fake.comes_free;
}

void refusal_say(struct device *device, enum refusal_of whose, uint64_t bytes)
{
    TEST_ASSERT_EQUAL_PTR(&cards[fake.current], device);
    got.said++;
    got.whose = whose;
    got.bytes = bytes;
}

void refusal_say_kept(struct device *device, uint64_t bytes)
{
    TEST_ASSERT_EQUAL_PTR(&cards[fake.current], device);
    got.kept++;
    got.bytes = bytes;
}

uint64_t pools_trim(CUdevice ordinal, uint64_t bytes)
{
    (void)ordinal;
    got.trimmed = bytes;
    return fake.idle < bytes ? fake.idle : bytes;
}

bool drivers_pools_trim(CUdevice ordinal)
{
    (void)ordinal;
    got.drivers_trims++;
    return true;
}

void drivers_pools_current_changes(void)
{
    got.pool_changes++;
}

void pools_distrust(void)
{
    got.distrusts++;
}

CUcontext pools_owner_if_green(CUcontext context)
{
    return context;
}

void pools_context_end_begin(CUcontext context)
{
    (void)context;
    got.pools_ends += 100;
}

void pools_context_end_abort(CUcontext context)
{
    (void)context;
    got.pools_ends -= 100;
}

void pools_context_end(CUcontext context)
{
    (void)context;
    got.pools_ends++;
}

void ipc_exports_ending(CUcontext context, bool ending)
{
    (void)context;
    got.exports += ending ? 100 : -100;
}

void ipc_imports_ending(CUcontext context, bool ending)
{
    (void)context;
    got.imports += ending ? 100 : -100;
}

void ipc_exports_end(CUcontext context)
{
    (void)context;
    got.exports++;
}

void ipc_imports_end(CUcontext context)
{
    (void)context;
    got.imports++;
}

void capture_context_end(CUcontext context)
{
    (void)context;
    got.captures++;
}

void recorded_context_made(CUdevice ordinal, CUcontext context)
{
    (void)ordinal, (void)context;
    got.made++;
}

void recorded_context_ended(CUcontext context)
{
    (void)context;
    got.ended++;
}

void events_publish(struct recording_event *slot)
{
    TEST_ASSERT_EQUAL_INT(RECORDING_FREE, slot->head.type);
    got.freed_kinds = 10 * got.freed_kinds + slot->kind;
}

/* ---- the driver ---- */

static int cannot_measure(void *context, uint64_t *bytes)
{
    (void)context, (void)bytes;
    return -ENODATA;
}

static CUresult current_context(CUcontext *context)
{
    *context = fake.context;
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
    (void)context;
    got.pushed++;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *context)
{
    (void)context;
    got.pushed--;
    return CUDA_SUCCESS;
}

static CUresult memory_info(size_t *free_bytes, size_t *total)
{
    *total = 4 * LIMIT;
    *free_bytes = 4 * LIMIT - fake.card_used;
    return CUDA_SUCCESS;
}

void setUp(void)
{
    atomic_store(&events_on, true);
    fake = (struct fake){.context = FIRST, .card_used = 10 * PAGE};
    got = (struct got){0};
    for (int i = 0; i < CARDS; i++) {
        memset(&cards[i], 0, sizeof(cards[i]));
        cards[i].ordinal = i;
        cards[i].threads = THREADS;
        cards[i].limit = LIMIT;
        account_init(&cards[i].account, LIMIT, 0, cannot_measure, &cards[i]);
        cards[i].account.present = &cards[i].card.present;
    }
    driver.cuCtxGetCurrent = current_context;
    driver.cuCtxPushCurrent_v2 = push;
    driver.cuCtxPopCurrent_v2 = pop;
    driver.cuMemGetInfo_v2 = memory_info;
}

/* The contexts of a test end with it; then nothing of them is left in the books. */
void tearDown(void)
{
    static CUcontext const contexts[] = {FIRST, SECOND, OTHER};
    int state;

    for (int i = 0; i < 3; i++)
        route_context_end(contexts[i]);
    for (int i = 0; i < CARDS; i++)
        TEST_ASSERT_EQUAL_UINT64(0, cards[i].account.grown + cards[i].account.state.in_flight);
    TEST_ASSERT_EQUAL_UINT64(0, got.admitted);
    TEST_ASSERT_EQUAL_INT(0, got.pushed);
    TEST_ASSERT_NULL(blocks_check());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    TEST_ASSERT_EQUAL_INT(PTHREAD_CANCEL_ENABLE, state);
    blocks_clear();
}

static uint64_t room(int card)
{
    return account_view(&cards[card].account).room;
}

static CUresult make_context(CUdevice card, CUcontext context)
{
    struct route_growth growth;
    CUresult result = route_grow_context_begin(&growth, card);

    if (result != CUDA_SUCCESS)
        return result;
    route_grow_context_end(&growth, card, context);
    fake.current = card;
    fake.context = context;
    return route_context_made(card, context);
}

static void add_block(enum blocks_kind kind, uint64_t key, CUcontext context, int card)
{
    TEST_ASSERT_EQUAL_INT(0, blocks_reserve());
    blocks_add(
        &(struct block){.key = key, .kind = kind, .bytes = PAGE, .context = (void *)context, .device = card});
    TEST_ASSERT_TRUE(account_take(&cards[card].account, PAGE));
    account_settle(&cards[card].account, PAGE, true, false);
}

/* ---- growth ---- */

static void test_growth_lasts_until_its_context_ends(void)
{
    struct route_growth growth;

    make_context(0, FIRST);
    const uint64_t before = room(0);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_begin(&growth, 3 * PAGE));
    route_grow_end(&growth);
    TEST_ASSERT_EQUAL_UINT64(before - 3 * PAGE, room(0));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_begin(&growth, 0)); /* not known: a page */
    TEST_ASSERT_EQUAL_UINT64(PAGE, growth.bytes);
    route_grow_abort(&growth);
    TEST_ASSERT_EQUAL_UINT64(before - 3 * PAGE, room(0));
    TEST_ASSERT_TRUE(route_grow_graph_begin(&growth, 0, PAGE, false));
    TEST_ASSERT_EQUAL_UINT64(PAGE, cards[0].account.state.in_flight);
    route_grow_graph_end(&growth);
    TEST_ASSERT_EQUAL_UINT64(before - 3 * PAGE, room(0));
    route_context_end(FIRST);
    TEST_ASSERT_EQUAL_UINT64(LIMIT, room(0)); /* without a context nothing is used */
}

static void test_growth_beyond_the_limit_is_refused_or_borrowed(void)
{
    struct route_growth growth;

    make_context(0, FIRST);
    const uint64_t all = room(0);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, route_grow_begin(&growth, all + PAGE));
    TEST_ASSERT_EQUAL_INT(REFUSAL_DRIVER, got.whose);
    TEST_ASSERT_EQUAL_UINT64(all + PAGE, got.bytes);
    TEST_ASSERT_FALSE(route_grow_graph_begin(&growth, 0, all + PAGE, true));
    add_block(BLOCKS_ARRAY, 1, FIRST, 0);
    fake.lent = PAGE;
    for (int borrow = 0; borrow < 2; borrow++)
        TEST_ASSERT_EQUAL_INT(borrow, route_grow_graph_begin(&growth, 0, all, borrow));
    route_grow_graph_end(&growth);
    TEST_ASSERT_EQUAL_INT(1, got.loans);
    TEST_ASSERT_EQUAL_INT(1, got.said);
    cards[0].account.charged += PAGE; /* what was lent was given twice */
}

static void test_what_another_thread_gives_back_serves_growth(void)
{
    struct route_growth growth;

    make_context(0, FIRST);
    const uint64_t all = room(0);
    add_block(BLOCKS_ARRAY, 1, FIRST, 0);
    fake.freed = PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_begin(&growth, all));
    route_grow_abort(&growth);
    TEST_ASSERT_EQUAL_INT(0, got.loans);
    cards[0].account.charged += PAGE; /* what was freed was given twice */
}

static void test_a_stack_grows_by_what_it_has_not(void)
{
    struct route_growth growth;

    make_context(0, FIRST);
    const uint64_t before = room(0);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_stack_begin(&growth, ROUTE_STACK));
    TEST_ASSERT_NULL(growth.device);
    for (uint64_t size = 2; size < 5; size += 2) {
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS,
                              route_grow_stack_begin(&growth, size * PAGE / THREADS + ROUTE_STACK));
        TEST_ASSERT_EQUAL_UINT64(2 * PAGE, growth.bytes);
        route_grow_end(&growth);
    }
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_stack_begin(&growth, 3 * PAGE / THREADS));
    TEST_ASSERT_NULL(growth.device);
    TEST_ASSERT_EQUAL_UINT64(before - 4 * PAGE, room(0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, route_grow_stack_begin(&growth, UINT64_MAX / 2));
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, got.bytes);
    fake.context = SECOND; /* has a stack of its own */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_stack_begin(&growth, 2 * PAGE / THREADS + ROUTE_STACK));
    TEST_ASSERT_EQUAL_UINT64(2 * PAGE, growth.bytes);
    route_grow_end(&growth);
    fake.context = OTHER;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_stack_begin(&growth, ROUTE_STACK + 1));
    TEST_ASSERT_EQUAL_UINT64(PAGE, growth.bytes);
    route_grow_abort(&growth);
}

static void test_a_stack_that_the_driver_refuses_is_asked_for_again(void)
{
    const uint64_t stack = 2 * PAGE / THREADS + ROUTE_STACK;
    struct route_growth growth, larger;

    make_context(0, FIRST);
    const uint64_t before = room(0);
    for (int i = 0; i < 2; i++) {
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_stack_begin(&growth, stack));
        TEST_ASSERT_EQUAL_UINT64(2 * PAGE, growth.bytes);
        route_grow_result(&growth, CUDA_ERROR_INVALID_VALUE);
        TEST_ASSERT_EQUAL_UINT64(before, room(0));
    }
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_stack_begin(&growth, stack));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_stack_begin(&larger, stack + PAGE / THREADS));
    route_grow_result(&growth, CUDA_ERROR_INVALID_VALUE);
    route_grow_result(&larger, CUDA_SUCCESS); /* another thread's */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_stack_begin(&growth, stack + PAGE / THREADS));
    TEST_ASSERT_NULL(growth.device);
}

static void test_a_heap_grows_by_what_it_has_not(void)
{
    struct route_growth growth;

    make_context(0, FIRST);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_heap_begin(&growth, CU_LIMIT_MALLOC_HEAP_SIZE, 2 * PAGE));
    route_grow_heap_end(&growth, CU_LIMIT_MALLOC_HEAP_SIZE, 2 * PAGE);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_heap_begin(&growth, CU_LIMIT_MALLOC_HEAP_SIZE, 3 * PAGE));
    TEST_ASSERT_EQUAL_UINT64(PAGE, growth.bytes);
    route_grow_abort(&growth);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_heap_begin(&growth, CU_LIMIT_PRINTF_FIFO_SIZE, 2 * PAGE));
    TEST_ASSERT_EQUAL_UINT64(2 * PAGE, growth.bytes); /* that of printf is another */
    route_grow_abort(&growth);
}

static void grow_heap(CUlimit which, uint64_t bytes)
{
    struct route_growth growth;

    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_heap_begin(&growth, which, bytes));
    TEST_ASSERT_NOT_NULL(growth.device);
    TEST_ASSERT_EQUAL_UINT64(bytes, growth.bytes);
    route_grow_heap_end(&growth, which, bytes);
}

/* Each time a second context grows and ends, in the place of the one before it. */
static void test_a_new_context_has_none_of_the_growth_of_the_last_one(void)
{
    struct route_growth growth;

    cards[0].context_bytes = 8 * PAGE;
    make_context(0, FIRST);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_begin(&growth, 100 * PAGE));
    route_grow_end(&growth);
    make_context(0, SECOND);
    for (int i = 0; i < 2; i++) {
        fake.context = i ? OTHER : SECOND;
        grow_heap(CU_LIMIT_MALLOC_HEAP_SIZE, 2 * PAGE);
        grow_heap(CU_LIMIT_PRINTF_FIFO_SIZE, 2 * PAGE);
        TEST_ASSERT_EQUAL_UINT64((i ? 104 : 112) * PAGE, cards[0].account.grown);
        route_context_end(fake.context);
        TEST_ASSERT_EQUAL_UINT64(100 * PAGE, cards[0].account.grown);
    }
}

/* Without a limit, beside the min of another job. */
static void test_an_admission_of_growth_ends(void)
{
    struct route_growth growth;

    fake.unlimited = fake.guarded = true;
    fake.admits = 2;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_begin(&growth, PAGE));
    TEST_ASSERT_EQUAL_UINT64(PAGE, got.admitted);
    route_grow_end(&growth);
    TEST_ASSERT_TRUE(route_grow_graph_begin(&growth, 0, PAGE, true));
    route_grow_graph_end(&growth);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, route_grow_begin(&growth, PAGE));
    TEST_ASSERT_EQUAL_INT(1, got.kept);
    TEST_ASSERT_FALSE(route_grow_graph_begin(&growth, 0, PAGE, true));
    TEST_ASSERT_EQUAL_INT(2, got.retries);
    TEST_ASSERT_FALSE(route_grow_graph_begin(&growth, 0, PAGE, false)); /* there is another way yet */
    TEST_ASSERT_EQUAL_INT(2, got.retries);
    fake.unlimited = false;
}

static void test_a_card_that_is_not_known_gets_nothing(void)
{
    struct route_growth growth;

    fake.find = -ENODEV;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, route_grow_begin(&growth, PAGE));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, route_grow_stack_begin(&growth, PAGE));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_PERMITTED, route_grow_context_begin(&growth, 0));
    TEST_ASSERT_EQUAL_INT(3, got.unknown);
    TEST_ASSERT_FALSE(route_grow_graph_begin(&growth, 0, PAGE, true));
    fake.find = -ENXIO; /* no context: the driver answers */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_begin(&growth, PAGE));
    TEST_ASSERT_NULL(growth.device);
}

/* ---- contexts ---- */

static void test_each_card_counts_its_own_contexts(void)
{
    for (int i = 0; i < CARDS; i++)
        cards[i].context_bytes = 8 * PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, make_context(0, FIRST));
    TEST_ASSERT_EQUAL_INT(1, got.made); /* a recording names its card */
    TEST_ASSERT_EQUAL_UINT64(LIMIT - GUESS, room(0));
    TEST_ASSERT_EQUAL_UINT64(LIMIT, room(1));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, make_context(1, OTHER));
    TEST_ASSERT_EQUAL_UINT64(LIMIT - GUESS, room(1)); /* the first one of its card */
    TEST_ASSERT_EQUAL_INT(1, got.distrusts);          /* a second one of the process */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, make_context(0, SECOND));
    TEST_ASSERT_EQUAL_UINT64(LIMIT - GUESS - 8 * PAGE, room(0));
    TEST_ASSERT_EQUAL_INT(2, got.distrusts);
    TEST_ASSERT_EQUAL_INT(3, got.listens); /* each process of a job can be asked */
    TEST_ASSERT_EQUAL_INT(3, got.starts);
    route_context_end(FIRST);
    TEST_ASSERT_TRUE(cards[0].card.present);
    route_context_end(SECOND);
    TEST_ASSERT_FALSE(cards[0].card.present);
    TEST_ASSERT_TRUE(cards[1].card.present);
    TEST_ASSERT_EQUAL_UINT64(LIMIT, room(0));
    TEST_ASSERT_EQUAL_UINT64(LIMIT - GUESS, room(1));
}

/* card.present counts one of them, whichever ends. */
static void test_of_three_contexts_two_remain_when_one_ends(void)
{
    cards[0].context_bytes = 8 * PAGE;
    make_context(0, FIRST);
    make_context(0, SECOND);
    make_context(0, OTHER);
    TEST_ASSERT_EQUAL_UINT64(LIMIT - GUESS - 16 * PAGE, room(0));
    route_context_end(FIRST);
    TEST_ASSERT_EQUAL_UINT64(LIMIT - GUESS - 8 * PAGE, room(0));
}

static void test_a_context_has_the_driver_asked_again_and_is_seen_without_a_limit(void)
{
    room(0);
    TEST_ASSERT_FALSE(cards[0].account.state.stale);
    make_context(0, FIRST);
    TEST_ASSERT_TRUE(cards[0].account.state.stale);
    route_context_end(FIRST);
    fake.unlimited = true;
    make_context(1, OTHER);
    TEST_ASSERT_TRUE(cards[1].card.present);
    fake.unlimited = false;
}

static void test_a_context_that_does_not_fit_is_forgotten(void)
{
    fake.card_used = LIMIT + PAGE;
    cards[0].account.charged = LIMIT + PAGE; /* and so is this process's own figure */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, make_context(0, FIRST));
    TEST_ASSERT_EQUAL_UINT64(0, cards[0].context_bytes);
    TEST_ASSERT_FALSE(cards[0].card.present);
    cards[0].account.charged = 0;
    fake.card_used = LIMIT; /* just fits */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, make_context(0, SECOND));
    TEST_ASSERT_EQUAL_UINT64(GUESS, cards[0].context_bytes); /* others are on the card, too */
    route_context_end(SECOND);
    TEST_ASSERT_EQUAL_UINT64(0, cards[0].context_bytes); /* the next one may be another size */
}

static uint64_t figure; /* the driver's, of this process */

static int measure_figure(void *context, uint64_t *bytes)
{
    (void)context;
    *bytes = figure;
    return 0;
}

static struct ledger *use_ledger(struct ledger *ledger)
{
    cards[0].ledger = cards[0].account.ledger = ledger;
    return ledger;
}

static void leave_ledger(void)
{
    route_context_end(FIRST);
    route_context_end(SECOND);
    use_ledger(NULL);
    test_end();
}

/* The job's other processes rely on the figure. */
static void test_the_size_of_a_context_is_measured_while_there_is_one(void)
{
    struct route_growth growth;

    test_begin();
    struct ledger *ledger = use_ledger(test_join(JOB, LIMIT));
    cards[0].account.measure = measure_figure;
    fake.card_used = LIMIT;
    figure = PAGE;
    add_block(BLOCKS_HANDLE, 1, NULL, 0); /* which is not the context's */
    figure = 9 * PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, make_context(0, FIRST));
    TEST_ASSERT_EQUAL_UINT64(8 * PAGE, ledger->file->context_bytes);
    cards[0].context_bytes = 0; /* as after the end of a third one */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_context_begin(&growth, 0));
    TEST_ASSERT_EQUAL_UINT64(8 * PAGE, growth.bytes);
    route_grow_context_end(&growth, 0, NULL);
    figure = 16 * PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, make_context(0, SECOND));
    TEST_ASSERT_EQUAL_UINT64(8 * PAGE, ledger->file->context_bytes);
    leave_ledger();
}

/* A guess must not become that of others, and they wait no longer for a context that does not fit. */
static void test_the_size_of_a_context_that_is_not_known_is_not_told(void)
{
    struct route_growth growth;

    test_begin();
    struct ledger *ledger = use_ledger(test_join(JOB, LIMIT));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, make_context(0, FIRST));
    TEST_ASSERT_EQUAL_UINT64(0, ledger->file->context_bytes);
    route_context_end(FIRST);
    cards[0].account.measure = measure_figure;
    figure = PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_grow_context_begin(&growth, 0));
    TEST_ASSERT_NOT_EQUAL(0, ledger->file->sizing);
    route_grow_context_end(&growth, 0, SECOND);
    fake.card_used = figure = LIMIT + PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, route_context_made(0, SECOND));
    TEST_ASSERT_EQUAL_UINT32(0, ledger->file->sizing);
    leave_ledger();
}

static void test_a_context_of_a_process_with_a_min_is_published(void)
{
    test_begin();
    struct ledger *ledger = use_ledger(test_open());
    TEST_ASSERT_EQUAL_INT(
        0, ledger_join_within(ledger, NULL, &(struct ledger_limits){.max = LIMIT, .min = 20 * PAGE}));
    cards[0].account.measure = measure_figure;
    figure = 8 * PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, make_context(0, FIRST));
    TEST_ASSERT_EQUAL_UINT64(8 * PAGE, atomic_load(&ledger_own_slot(ledger)->used));
    leave_ledger();
}

/* Another job has a min of 20 pages, and the card has less beside a context. */
static void test_others_are_asked_for_what_a_min_lacks_beside_a_context(void)
{
    test_begin();
    struct ledger *ledger = use_ledger(test_join(NULL, LIMIT));
    TEST_ASSERT_EQUAL_INT(
        0, ledger_join_within(test_open(), JOB, &(struct ledger_limits){.max = LIMIT, .min = 20 * PAGE}));
    TEST_ASSERT_EQUAL_UINT64(20 * PAGE, ledger_kept(ledger));
    fake.free_bytes = fake.comes_free = 10 * PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, make_context(0, FIRST));
    TEST_ASSERT_EQUAL_INT(1, got.asked);
    route_context_end(FIRST);
    fake.free_bytes = 10 * PAGE;
    fake.comes_free = 1;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, make_context(0, SECOND));
    TEST_ASSERT_EQUAL_INT(1 + 4, got.asked); /* a few times */
    leave_ledger();
}

static CUresult CUDAAPI one_card(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

/* Memory of a context ends with it, and is noted as what it was. Its kernels end too. */
static void test_the_end_of_a_context_ends_its_memory_and_no_other(void)
{
    const CUfunction kernel = (CUfunction)0x300;

    make_context(0, FIRST);
    make_context(1, OTHER);
    add_block(BLOCKS_LINEAR, 1, FIRST, 0);
    add_block(BLOCKS_MIPMAP, 2, FIRST, 0);
    add_block(BLOCKS_ARRAY, 3, OTHER, 1);
    add_block(BLOCKS_HANDLE, 4, NULL, 0);
    driver_entries.cuDeviceGetCount = one_card;
    known_kernels_add(kernel);
    TEST_ASSERT_TRUE(known_kernels_has(kernel));
    route_context_end_begin(FIRST);
    TEST_ASSERT_FALSE(known_kernels_has(kernel));
    TEST_ASSERT_EQUAL_INT(100, got.pools_ends);
    route_context_end_abort(FIRST); /* the driver has refused */
    TEST_ASSERT_EQUAL_INT(0, got.pools_ends + got.exports + got.imports);
    TEST_ASSERT_EQUAL_UINT64(4, blocks_count());
    TEST_ASSERT_EQUAL_INT(0, got.pool_changes);
    route_context_end(FIRST);
    TEST_ASSERT_EQUAL_INT(1, got.pool_changes);
    TEST_ASSERT_EQUAL_INT(2, got.uncharged);
    TEST_ASSERT_EQUAL_UINT64(2, blocks_count());
    TEST_ASSERT_FALSE(cards[0].card.present); /* the handle outlives it, and counts by itself */
    TEST_ASSERT_TRUE(got.freed_kinds == 10 * RECORDING_MALLOC + RECORDING_ARRAY ||
                     got.freed_kinds == 10 * RECORDING_ARRAY + RECORDING_MALLOC);
    TEST_ASSERT_EQUAL_INT(1, got.pools_ends);
    TEST_ASSERT_EQUAL_INT(1, got.exports);
    TEST_ASSERT_EQUAL_INT(1, got.imports);
    TEST_ASSERT_EQUAL_INT(1, got.captures);
    TEST_ASSERT_EQUAL_INT(1, got.ended);
    route_context_end(OTHER);
}

/* With more contexts than can be known, all on another card. */
static void test_each_context_counts_though_it_is_not_known(void)
{
    account_set_limit(&cards[1].account, UINT64_C(1) << 45);
    for (uintptr_t i = 0; i < CONTEXTS; i++)
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, make_context(1, (CUcontext)(0x1000 + 0x100 * i)));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, make_context(0, FIRST));
    const uint64_t before = room(0);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, make_context(0, SECOND));
    TEST_ASSERT_LESS_THAN_UINT64(before, room(0));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, make_context(1, OTHER));
    for (uintptr_t i = 0; i < CONTEXTS; i++)
        route_context_end((CUcontext)(0x1000 + 0x100 * i));
    TEST_ASSERT_TRUE(cards[1].card.present); /* that one is left */
}

static void test_a_lower_limit_has_what_is_above_it_given_back(void)
{
    make_context(0, FIRST);
    TEST_ASSERT_FALSE(route_set_limit(&cards[0], LIMIT + 1));
    TEST_ASSERT_TRUE(route_set_limit(&cards[0], GUESS));
    TEST_ASSERT_EQUAL_UINT64(0, got.trimmed);
    fake.idle = PAGE;
    TEST_ASSERT_TRUE(route_set_limit(&cards[0], GUESS - PAGE));
    TEST_ASSERT_EQUAL_UINT64(PAGE, got.trimmed);
    TEST_ASSERT_EQUAL_INT(0, got.drivers_trims);
    TEST_ASSERT_TRUE(route_set_limit(&cards[0], GUESS - 2 * PAGE));
    TEST_ASSERT_EQUAL_INT(1, got.drivers_trims);
    route_context_end(FIRST);
    cards[0].account.measure = measure_figure;
    figure = 10 * PAGE;
    TEST_ASSERT_TRUE(route_set_limit(&cards[0], 100 * PAGE));
    room(0);
    figure = 150 * PAGE; /* the driver has grown by itself */
    TEST_ASSERT_TRUE(route_set_limit(&cards[0], 99 * PAGE));
    TEST_ASSERT_EQUAL_UINT64(51 * PAGE, got.trimmed);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_growth_lasts_until_its_context_ends);
    RUN_TEST(test_growth_beyond_the_limit_is_refused_or_borrowed);
    RUN_TEST(test_what_another_thread_gives_back_serves_growth);
    RUN_TEST(test_a_stack_grows_by_what_it_has_not);
    RUN_TEST(test_a_stack_that_the_driver_refuses_is_asked_for_again);
    RUN_TEST(test_a_heap_grows_by_what_it_has_not);
    RUN_TEST(test_a_new_context_has_none_of_the_growth_of_the_last_one);
    RUN_TEST(test_an_admission_of_growth_ends);
    RUN_TEST(test_a_card_that_is_not_known_gets_nothing);
    RUN_TEST(test_each_card_counts_its_own_contexts);
    RUN_TEST(test_of_three_contexts_two_remain_when_one_ends);
    RUN_TEST(test_a_context_has_the_driver_asked_again_and_is_seen_without_a_limit);
    RUN_TEST(test_a_context_that_does_not_fit_is_forgotten);
    RUN_TEST(test_the_size_of_a_context_is_measured_while_there_is_one);
    RUN_TEST(test_the_size_of_a_context_that_is_not_known_is_not_told);
    RUN_TEST(test_a_context_of_a_process_with_a_min_is_published);
    RUN_TEST(test_others_are_asked_for_what_a_min_lacks_beside_a_context);
    RUN_TEST(test_the_end_of_a_context_ends_its_memory_and_no_other);
    RUN_APART(test_each_context_counts_though_it_is_not_known);
    RUN_TEST(test_a_lower_limit_has_what_is_above_it_given_back);
    return UNITY_END();
}
