/* route: how a request is granted, settled, refused and freed, on two cards, with the real account and the
 * real table of blocks. The driver, the pools and the other processes are the test's own. */
#include "interpose/route.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unity.h>

#include "interpose/account/limit.h"
#include "interpose/account/mappings.h"
#include "interpose/base/sums.h"
#include "interpose/library.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "interpose/refusal.h"

#define CARDS   2
#define PAGE    LIMIT_PAGE
#define LIMIT   (100 * PAGE)
#define RESERVE (4 * PAGE)
#define CONTEXT (6 * PAGE)
#define ROOM    (LIMIT - RESERVE - CONTEXT)
#define HERE    ((CUcontext)0x100)
#define POOL    ((CUmemoryPool)0x200)
#define STREAM  ((CUstream)0x300)
#define MAPPED  (UINT64_C(1) << 40) /* an address */

static struct device cards[CARDS];
static struct fake {
    CUdevice current;                     /* card of the current context; -1: no context */
    CUdevice stream_card;                 /* of STREAM */
    CUdevice pool_card;                   /* of POOL */
    int find;                             /* what device_find returns */
    bool limited[CARDS];                  /* others have no limit */
    bool guarded[CARDS];                  /* other jobs have a min there */
    bool only;                            /* the program sees one card */
    bool captures;                        /* STREAM captures */
    bool excludes;                        /* no capture may begin */
    bool cancelled;                       /* the thread that asks for the growth of a pool */
    bool old_driver;                      /* cannot tell a stream's card */
    CUresult stream_error;                /* CUDA_SUCCESS: it can be told */
    CUresult may_allocate;                /* the driver's answer to a request that never fits */
    uint64_t truth[CARDS];                /* used, by the driver */
    uint64_t idle[CARDS];                 /* of that, in our pools */
    uint64_t busy[CARDS];                 /* of that, behind work */
    uint64_t pool_idle, reserved, growth; /* of the driver's pool; growth: since the last look */
    uint64_t lent;                        /* the next lend_more frees so much on card 0 */
    uint64_t admits;                      /* admissions that succeed */
    uint64_t left;                        /* bytes of a block of a destroyed pool */
    int denials;                          /* the first so many admissions fail */
    bool lends;                           /* other processes always give something */
    bool unknown;                         /* the driver's pool of a request is not known */
    bool endless;                         /* the work on freed memory does not end */
    bool more;                            /* there is always more of it */
    bool trims;                           /* the driver's pools have something to give back */
    uint64_t behind;                      /* of that, behind the work of STREAM */
    struct pool *here;                    /* of the current context */
} fake;
static struct got {
    int probes, refusals, kept, loans, ends, freed[CARDS], listens[CARDS], freed_somewhere, pushed, maps,
        waits[CARDS], waits_here, queries, cheap_looks, tries, trims;
    struct device *refused_on;
    enum refusal_of whose;
    uint64_t refused;
    uint64_t admitted[CARDS];
    uint64_t left[CARDS]; /* of what destroyed pools held */
} got;

/* ---- the rest of the library ---- */

static atomic_int mode = LIBRARY_ON;
_Atomic(atomic_int *) library_state = &mode;
bool library_limited = true;
_Atomic uint64_t pool_given_back;

enum library_mode library_begin(void)
{
    return LIBRARY_ON;
}

void *__real_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    got.maps++;
    return __real_mmap(address, bytes, protection, flags, fd, offset);
}

int device_find(CUdevice ordinal, struct device **device)
{
    TEST_ASSERT_TRUE(ordinal >= 0 && ordinal < CARDS);
    *device = fake.find == 0 && fake.limited[ordinal] ? &cards[ordinal] : NULL;
    return fake.find;
}

int device_find_current(struct device **device)
{
    *device = NULL;
    return fake.current < 0 ? -ENXIO : device_find(fake.current, device);
}

bool device_only(CUdevice *ordinal)
{
    *ordinal = 0;
    return fake.only;
}

struct device *device_get(CUdevice ordinal)
{
    return fake.limited[ordinal] ? &cards[ordinal] : NULL;
}

struct device *device_guarded(CUdevice ordinal)
{
    return fake.guarded[ordinal] ? &cards[ordinal] : NULL;
}

struct device *device_guarded_current(void)
{
    return device_guarded(fake.current);
}

bool device_any_guarded(void)
{
    return fake.guarded[0] || fake.guarded[1];
}

bool device_admit(struct device *device, uint64_t bytes)
{
    TEST_ASSERT_LESS_THAN_INT_MESSAGE(100, ++got.tries, "it goes on for ever");
    if (fake.denials-- > 0 || fake.admits == 0)
        return false;
    fake.admits--;
    got.admitted[device->ordinal] += bytes;
    return true;
}

void device_end_admission(struct device *device, uint64_t bytes)
{
    got.admitted[device->ordinal] -= bytes;
}

uint64_t pools_idle_on(CUdevice ordinal)
{
    return fake.idle[ordinal];
}

uint64_t pools_trim(CUdevice ordinal, uint64_t bytes)
{
    const uint64_t given = sums_smaller(bytes, fake.idle[ordinal] - fake.busy[ordinal]);

    if (given) {
        fake.idle[ordinal] -= given;
        fake.truth[ordinal] -= given;
        account_give(&cards[ordinal].account, given, false);
        atomic_fetch_add(&pool_given_back, 1);
    }
    return given;
}

/* Two pools of one card and one of another; the last is visited first. */
#define OPEN 7 /* the open epoch of each */
static struct pool pools[] = {{.ordinal = 0}, {.ordinal = 1}, {.ordinal = 0}};

struct pool *pools_current_if_open(void)
{
    return fake.here;
}

void pools_each_waiting(void (*visit)(struct pool *pool, void *argument), void *argument)
{
    for (int i = sizeof(pools) / sizeof(*pools); i-- > 0;)
        visit(&pools[i], argument);
}

int pool_wait(struct pool *pool, bool *more)
{
    got.waits[pool->ordinal]++;
    got.waits_here += pool == fake.here;
    TEST_ASSERT_LESS_THAN_INT_MESSAGE(100, got.waits[pool->ordinal], "it goes on for ever");
    if (fake.endless)
        return -EIO;
    fake.busy[pool->ordinal] = 0;
    *more = fake.more;
    return 0;
}

bool fence_done(struct fence *fence, uint64_t epoch)
{
    TEST_ASSERT_EQUAL_UINT64(OPEN, epoch); /* what is freed during the wait is not waited for */
    return fence->done >= epoch;
}

CUcontext pools_owner_if_green(CUcontext context)
{
    return context;
}

bool capture_any(void)
{
    return fake.captures;
}

bool capture_exclude(void)
{
    fake.excludes = !fake.captures;
    return fake.excludes;
}

void capture_admit(void)
{
    TEST_ASSERT_TRUE(fake.excludes);
    fake.excludes = false;
}

bool capture_takes(CUstream stream)
{
    return fake.captures && stream == STREAM;
}

bool lend_more(struct loan *loan)
{
    TEST_ASSERT_NOT_NULL(loan->device);
    if (fake.lent == 0)
        return false;
    fake.truth[loan->device->ordinal] -= fake.lent;
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
    return fake.lends;
}

bool lend_wait_on_card(struct lend_wait *wait, CUdevice ordinal, uint64_t bytes)
{
    (void)wait, (void)ordinal, (void)bytes;
    return false;
}

void lend_listen(struct device *device)
{
    got.listens[device->ordinal]++;
}

void lend_freed(struct device *device)
{
    got.freed[device->ordinal]++;
}

void lend_freed_somewhere(void)
{
    got.freed_somewhere++;
}

void refusal_say(struct device *device, enum refusal_of whose, uint64_t bytes)
{
    got.refusals++;
    got.refused_on = device;
    got.whose = whose;
    got.refused = bytes;
}

void refusal_say_kept(struct device *device, uint64_t bytes)
{
    got.kept++;
    got.refused_on = device;
    got.refused = bytes;
}

bool drivers_pools_trim(CUdevice ordinal)
{
    got.trims++;
    if (got.queries) {
        fake.truth[ordinal] -= fake.behind;
        fake.behind = 0;
    }
    return fake.trims;
}

CUdevice drivers_pools_card(CUmemoryPool pool)
{
    return pool == POOL ? fake.pool_card : DRIVERS_POOLS_UNKNOWN;
}

struct drivers_pool *drivers_pools_current(CUdevice ordinal)
{
    (void)ordinal;
    return fake.unknown ? NULL : (struct drivers_pool *)0x201;
}

struct drivers_pool *drivers_pools_find(CUmemoryPool pool, CUdevice ordinal)
{
    (void)ordinal;
    return (struct drivers_pool *)pool;
}

uint64_t drivers_pools_growth(struct drivers_pool *pool, bool no_capture)
{
    (void)pool;
    TEST_ASSERT_FALSE(no_capture && !fake.excludes);
    got.cheap_looks += no_capture;
    if (fake.cancelled)
        pthread_exit(NULL);
    return fake.growth;
}

uint64_t drivers_pools_reserved(const struct drivers_pool *pool)
{
    (void)pool;
    return fake.reserved;
}

uint64_t drivers_pools_idle(const struct drivers_pool *pool)
{
    (void)pool;
    return fake.pool_idle;
}

struct drivers_pools_block drivers_pools_free_begin(CUdeviceptr address)
{
    return (struct drivers_pools_block){NULL, 1, address == 0x9000 ? fake.left : 0};
}

struct drivers_pools_block drivers_pools_free_at_once_begin(CUdeviceptr address)
{
    return (struct drivers_pools_block){NULL, 0, address == 0x9000 ? fake.left : 0};
}

void drivers_pools_free_end(const struct drivers_pools_block *block)
{
    TEST_ASSERT_EQUAL_INT(0, got.freed_somewhere); /* who is told of the free finds it */
    got.left[block->ordinal] += block->bytes;
}

/* ---- the driver ---- */

static int measure(void *card, uint64_t *bytes)
{
    *bytes = fake.truth[((struct device *)card)->ordinal];
    return 0;
}

static CUresult probe(CUdeviceptr *address, size_t bytes)
{
    TEST_ASSERT_EQUAL_UINT64(NEVER_FITS, bytes);
    *address = 0;
    got.probes++;
    return fake.may_allocate;
}

static CUresult current_context(CUcontext *context)
{
    *context = fake.current < 0 ? NULL : HERE;
    return CUDA_SUCCESS;
}

static CUresult current_card(CUdevice *ordinal)
{
    *ordinal = fake.current;
    return fake.current < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

static CUresult card_of_stream(CUstream stream, CUdevice *ordinal)
{
    TEST_ASSERT_EQUAL_PTR(STREAM, stream);
    *ordinal = fake.stream_card;
    return fake.stream_error ? fake.stream_error : fake.old_driver ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* A context of the fake is the number of its card. */
static CUresult context_of_stream(CUstream stream, CUcontext *context)
{
    TEST_ASSERT_EQUAL_PTR(STREAM, stream);
    *context = (CUcontext)(uintptr_t)(fake.stream_card + 1);
    return CUDA_SUCCESS;
}

static CUdevice below;
static CUresult push(CUcontext context)
{
    got.pushed++;
    below = fake.current;
    fake.current = (CUdevice)(uintptr_t)context - 1;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *context)
{
    got.pushed--;
    *context = (CUcontext)(uintptr_t)(fake.current + 1);
    fake.current = below;
    return CUDA_SUCCESS;
}

static CUresult memory_info(size_t *free_bytes, size_t *total)
{
    *total = LIMIT;
    *free_bytes = LIMIT - fake.truth[fake.current];
    return CUDA_SUCCESS;
}

static CUresult query(CUstream stream)
{
    (void)stream;
    got.queries++;
    return CUDA_SUCCESS;
}

void setUp(void)
{
    fake = (struct fake){.limited = {true, true}, .pool_card = 1, .stream_card = 1};
    fake.may_allocate = CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < CARDS; i++) {
        memset(&cards[i], 0, sizeof(cards[i]));
        cards[i].ordinal = i;
        fake.truth[i] = CONTEXT;
        account_init(&cards[i].account, LIMIT, RESERVE, measure, &cards[i]);
    }
    driver.cuMemAlloc_v2 = probe;
    driver.cuCtxGetCurrent = current_context;
    driver.cuCtxGetDevice = current_card;
    driver.cuStreamGetDevice = card_of_stream;
    driver.cuStreamGetCtx = context_of_stream;
    driver.cuCtxPushCurrent_v2 = push;
    driver.cuCtxPopCurrent_v2 = pop;
    driver.cuStreamQuery = query;
    driver.cuMemGetInfo_v2 = memory_info;
    got = (struct got){0};
    for (size_t i = 0; i < sizeof(pools) / sizeof(*pools); i++)
        atomic_store(&pools[i].fence.open, OPEN);
    atomic_store(&mode, LIBRARY_ON);
}

/* After each test the thread can be cancelled as before, and no context of ours is current. */
void tearDown(void)
{
    int state;

    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    TEST_ASSERT_EQUAL_INT(PTHREAD_CANCEL_ENABLE, state);
    TEST_ASSERT_EQUAL_INT(0, got.pushed);
    TEST_ASSERT_EQUAL_UINT64(0, got.admitted[0] + got.admitted[1]);
    TEST_ASSERT_NULL(blocks_check());
    blocks_clear();
    mappings_clear();
}

/* ---- steps ---- */

/* Between a grant and the driver's answer a cancelled thread would leave bytes behind. */
static void cannot_be_cancelled(void)
{
    int state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    TEST_ASSERT_EQUAL_INT(PTHREAD_CANCEL_DISABLE, state);
}

static CUresult take_on(CUdevice card, enum blocks_kind kind, uint64_t bytes, uint64_t key, CUresult answer)
{
    struct route_ticket ticket;
    CUresult result = route_enter_on(&ticket, kind, bytes, card);

    if (result != CUDA_SUCCESS)
        return result;
    if (ticket.device || ticket.beside)
        cannot_be_cancelled();
    if (answer == CUDA_SUCCESS)
        fake.truth[card] += limit_round(bytes);
    route_leave(&ticket, answer, key);
    return answer;
}

static CUresult take(enum blocks_kind kind, uint64_t bytes, uint64_t key)
{
    struct route_ticket ticket;
    CUresult result = route_enter(&ticket, kind, bytes);

    if (result != CUDA_SUCCESS)
        return result;
    if (ticket.device)
        fake.truth[ticket.device->ordinal] += limit_round(bytes);
    route_leave(&ticket, CUDA_SUCCESS, key);
    return CUDA_SUCCESS;
}

static void release(CUdevice card, enum blocks_kind kind, uint64_t bytes, uint64_t key, CUresult answer)
{
    const struct route_release freed = route_free_begin(kind, key);

    if (freed.known)
        cannot_be_cancelled();
    if (answer == CUDA_SUCCESS)
        fake.truth[card] -= limit_round(bytes);
    TEST_ASSERT_EQUAL_INT(answer, route_free_end(&freed, answer));
}

static uint64_t charged(int card)
{
    return account_glance(&cards[card].account).charged;
}

static CUresult take_async(uint64_t bytes, CUmemoryPool pool, CUstream stream, CUdevice *card)
{
    struct route_ticket ticket;
    const CUresult result = route_enter_async(&ticket, bytes, pool, stream);

    *card = result == CUDA_SUCCESS ? route_card_of(&ticket) : ROUTE_CURRENT;
    if (result == CUDA_SUCCESS)
        route_leave(&ticket, result, 0x9000);
    return result;
}

/* ---- promises ---- */

static void test_a_request_is_charged_to_its_card_until_it_is_freed(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_on(1, BLOCKS_HANDLE, PAGE + 1, 7, CUDA_SUCCESS));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, PAGE, 7)); /* handles are apart from arrays */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_MANAGED, PAGE, 8));
    TEST_ASSERT_EQUAL_UINT64(2 * PAGE, charged(1));
    TEST_ASSERT_EQUAL_UINT64(2 * PAGE, charged(0));
    TEST_ASSERT_EQUAL_INT(1, got.listens[1]); /* the card may have no context */
    TEST_ASSERT_EQUAL_UINT64(PAGE, cards[0].account.hidden);
    release(1, BLOCKS_HANDLE, PAGE + 1, 7, CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_UINT64(0, charged(1));
    TEST_ASSERT_EQUAL_INT(1, got.freed[1]);
    TEST_ASSERT_EQUAL_INT(0, got.freed[0]);
    release(0, BLOCKS_LINEAR, PAGE, 8, CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_UINT64(0, cards[0].account.hidden);
    release(0, BLOCKS_ARRAY, PAGE, 7, CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_UINT64(0, charged(0));
    TEST_ASSERT_EQUAL_UINT64(0, blocks_count());
    release(0, BLOCKS_ARRAY, 0, 7, CUDA_ERROR_INVALID_VALUE); /* no block of ours */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          take_on(1, BLOCKS_HANDLE, PAGE + 1, 7, CUDA_ERROR_INVALID_VALUE));
    TEST_ASSERT_EQUAL_INT(2, got.freed[1]); /* it was leased for the driver's call */
    TEST_ASSERT_EQUAL_INT(0, got.freed_somewhere);
    release(0, BLOCKS_LINEAR, 0, 0x9000, CUDA_SUCCESS); /* of the driver's pool */
    TEST_ASSERT_EQUAL_INT(1, got.freed_somewhere);
}

static void test_a_block_of_a_destroyed_pool_leaves_with_its_free(void)
{
    fake.left = PAGE;
    release(0, BLOCKS_LINEAR, 0, 0x9000, CUDA_ERROR_INVALID_VALUE);
    release(0, BLOCKS_HANDLE, 0, 0x9000, CUDA_ERROR_INVALID_VALUE);
    TEST_ASSERT_EQUAL_UINT64(0, got.left[1]);
    release(0, BLOCKS_LINEAR, 0, 0x9000, CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_UINT64(PAGE, got.left[1]);
}

static void test_a_block_of_the_drivers_pools_that_is_freed_at_once_is_told_as_such(void)
{
    struct route_release release = route_free_at_once_begin(0x9000);

    TEST_ASSERT_FALSE(release.known);
    fake.left = PAGE;
    release = route_free_at_once_begin(0x9000);
    route_free_end(&release, CUDA_ERROR_INVALID_VALUE);
    TEST_ASSERT_EQUAL_UINT64(0, got.left[0]);
    route_free_end(&release, CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_UINT64(PAGE, got.left[0]);
    take(BLOCKS_LINEAR, PAGE, 0x9000);
    release = route_free_at_once_begin(0x9000);
    TEST_ASSERT_TRUE_MESSAGE(release.known, "a block of our own");
    route_free_end(&release, CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_UINT64(PAGE, got.left[0]);
    TEST_ASSERT_EQUAL_UINT64(0, charged(0));
}

static void test_the_limit_is_taken_to_the_last_page_and_no_further(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, ROOM - PAGE, 1));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take(BLOCKS_ARRAY, PAGE + 1, 2));
    TEST_ASSERT_EQUAL_INT(1, got.refusals);
    TEST_ASSERT_EQUAL_PTR(&cards[0], got.refused_on);
    TEST_ASSERT_EQUAL_INT(REFUSAL_PROGRAM, got.whose);
    TEST_ASSERT_EQUAL_UINT64(PAGE + 1, got.refused);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, PAGE, 2));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take(BLOCKS_ARRAY, 1, 3));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take(BLOCKS_ARRAY, UINT64_MAX, 3));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_on(1, BLOCKS_HANDLE, ROOM, 3, CUDA_SUCCESS));
}

/* A program that may not allocate gets the driver's own error; handles and pools need no context. */
static void test_a_refusal_has_the_drivers_own_error(void)
{
    CUdevice card;

    fake.may_allocate = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, take(BLOCKS_ARRAY, LIMIT, 1));
    TEST_ASSERT_EQUAL_INT(1, got.probes);
    TEST_ASSERT_EQUAL_INT(0, got.refusals);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take_on(0, BLOCKS_HANDLE, LIMIT, 1, CUDA_SUCCESS));
    TEST_ASSERT_EQUAL_INT(REFUSAL_PROGRAM, got.whose);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take_async(LIMIT, POOL, STREAM, &card));
    TEST_ASSERT_EQUAL_INT(REFUSAL_ASYNC, got.whose);
    TEST_ASSERT_EQUAL_PTR(&cards[1], got.refused_on);
    TEST_ASSERT_EQUAL_INT(1, got.probes);
    fake.may_allocate = CUDA_SUCCESS; /* a driver that grants it */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take(BLOCKS_ARRAY, LIMIT, 1));
}

static void test_refusals_leave_nothing_behind(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, ROOM, 1));
    const int maps = got.maps;
    for (int i = 0; i < 5000; i++)
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take(BLOCKS_ARRAY, PAGE, 2));
    for (int i = 0; i < 5000; i++)
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, take_on(1, BLOCKS_HANDLE, PAGE, 2, CUDA_ERROR_UNKNOWN));
    for (int i = 0; i < 5000; i++)
        route_retained(3);                 /* no handle of ours */
    TEST_ASSERT_EQUAL_INT(maps, got.maps); /* the table has not grown */
    TEST_ASSERT_EQUAL_UINT64(1, blocks_count());
    TEST_ASSERT_EQUAL_UINT64(0, charged(1));
    TEST_ASSERT_EQUAL_UINT64(ROOM, account_view(&cards[1].account).room);
    release(0, BLOCKS_ARRAY, ROOM, 1, CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, ROOM, 2));
}

static void test_a_free_that_the_driver_refuses_keeps_the_block(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, PAGE, 1));
    release(0, BLOCKS_ARRAY, 0, 1, CUDA_ERROR_LAUNCH_FAILED);
    TEST_ASSERT_EQUAL_UINT64(PAGE, charged(0));
    TEST_ASSERT_EQUAL_UINT64(1, blocks_count());
    release(0, BLOCKS_ARRAY, 0, 1, CUDA_ERROR_DEINITIALIZED); /* the driver has ended, and its memory too */
    TEST_ASSERT_EQUAL_UINT64(0, charged(0));
    TEST_ASSERT_EQUAL_UINT64(0, blocks_count());
}

static void test_a_handle_is_charged_until_its_last_hold_and_mapping_end(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_on(1, BLOCKS_HANDLE, PAGE, 5, CUDA_SUCCESS));
    route_mapped(MAPPED, 5);
    route_retained(5);
    release(1, BLOCKS_HANDLE, 0, 5, CUDA_SUCCESS);
    release(1, BLOCKS_HANDLE, 0, 5, CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_UINT64(0, blocks_count());
    TEST_ASSERT_EQUAL_UINT64(PAGE, charged(1));
    route_retained(5); /* found again by its address */
    TEST_ASSERT_EQUAL_UINT64(1, blocks_count());
    release(1, BLOCKS_HANDLE, 0, 5, CUDA_SUCCESS);
    route_unmapped(MAPPED - PAGE, PAGE); /* the range before it */
    TEST_ASSERT_EQUAL_UINT64(PAGE, charged(1));
    route_unmapped(MAPPED, PAGE);
    TEST_ASSERT_EQUAL_UINT64(0, charged(1));
    TEST_ASSERT_EQUAL_INT(1, got.freed[1]);
}

static void test_a_handle_that_is_held_is_charged_until_its_last_release(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_on(1, BLOCKS_HANDLE, PAGE, 5, CUDA_SUCCESS));
    route_retained(5);
    release(1, BLOCKS_HANDLE, 0, 5, CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_UINT64(PAGE, charged(1));
    release(1, BLOCKS_HANDLE, 0, 5, CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_UINT64(0, charged(1));
}

static void test_all_mappings_of_a_range_end_together(void)
{
    for (uint64_t i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_on(1, BLOCKS_HANDLE, PAGE, 5 + i, CUDA_SUCCESS));
        route_mapped(MAPPED + i * PAGE, 5 + i);
        release(1, BLOCKS_HANDLE, 0, 5 + i, CUDA_SUCCESS);
    }
    TEST_ASSERT_EQUAL_UINT64(3 * PAGE, charged(1));
    route_unmapped(MAPPED, 3 * PAGE);
    TEST_ASSERT_EQUAL_UINT64(0, charged(1));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_on(1, BLOCKS_HANDLE, PAGE, 5, CUDA_SUCCESS));
    release(1, BLOCKS_HANDLE, 0, 5, CUDA_SUCCESS); /* a new handle of that number is mapped nowhere */
    TEST_ASSERT_EQUAL_UINT64(0, charged(1));
}

/* Idle memory that is just enough goes back; less than that stays. */
static void test_idle_memory_goes_back_if_it_is_enough(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, ROOM, 1));
    fake.idle[0] = fake.idle[1] = 2 * PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take(BLOCKS_ARRAY, 3 * PAGE, 2));
    TEST_ASSERT_EQUAL_UINT64(2 * PAGE, fake.idle[0]);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, 2 * PAGE, 2));
    TEST_ASSERT_EQUAL_UINT64(0, fake.idle[0]);
    TEST_ASSERT_EQUAL_UINT64(2 * PAGE, fake.idle[1]);
    release(0, BLOCKS_ARRAY, 2 * PAGE, 2, CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, PAGE, 2));
    fake.idle[0] = 10 * PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, 2 * PAGE, 3)); /* lacks one, gets room for two */
    TEST_ASSERT_EQUAL_UINT64(8 * PAGE, fake.idle[0]);
    fake.idle[0] = fake.idle[1] = fake.busy[0] = fake.busy[1] = 2 * PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, 2 * PAGE, 4)); /* behind work of this card */
    TEST_ASSERT_TRUE(got.waits[0] == 1 && got.waits[1] == 0);
    TEST_ASSERT_GREATER_THAN_INT(0, got.trims); /* and the driver's pools gave theirs, too */
}

/* This context's work ends first, most likely; the others' is waited for only if that is not enough. */
static void test_work_of_this_context_is_waited_for_first_and_until_there_is_enough(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, ROOM, 1));
    fake.here = &pools[0];
    fake.more = true;
    fake.idle[0] = fake.busy[0] = 2 * PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, 2 * PAGE, 2));
    TEST_ASSERT_EQUAL_INT(1, got.waits_here);
    TEST_ASSERT_EQUAL_INT(1, got.waits[0]);
}

static void test_memory_of_other_processes_is_borrowed_before_a_refusal(void)
{
    CUdevice card;

    fake.stream_card = 0;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, ROOM, 1));
    fake.lent = PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, PAGE, 2));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take(BLOCKS_ARRAY, PAGE, 3));
    fake.lent = LIMIT_STEP;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(PAGE, NULL, STREAM, &card));
    TEST_ASSERT_EQUAL_INT(2, got.loans);
    TEST_ASSERT_EQUAL_INT(3, got.ends);
}

/* A process without a limit on a card where another job has a min. */
static void test_an_admission_ends_with_the_drivers_answer(void)
{
    CUdevice card;

    fake.limited[0] = false;
    fake.guarded[0] = true;
    fake.admits = 3;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, PAGE + 1, 1));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_on(0, BLOCKS_HANDLE, PAGE, 1, CUDA_SUCCESS));
    fake.stream_card = 0;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(PAGE, NULL, STREAM, &card));
    TEST_ASSERT_EQUAL_UINT64(0, fake.admits);
    TEST_ASSERT_EQUAL_UINT64(0, got.admitted[0]);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take(BLOCKS_ARRAY, PAGE, 2));
    TEST_ASSERT_EQUAL_INT(1, got.kept);
    fake.pool_idle = PAGE; /* its pool need not grow */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(PAGE, NULL, STREAM, &card));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take_async(PAGE + 1, NULL, STREAM, &card));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_on(1, BLOCKS_HANDLE, PAGE, 2, CUDA_SUCCESS)); /* has a limit */
    library_limited = false;
    fake.captures = true; /* adds a node */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(PAGE + 1, NULL, STREAM, &card));
    library_limited = true;
}

/* It asks others again only as often as they may help. */
static void test_an_admission_is_tried_again_after_idle_memory_went_back(void)
{
    fake.limited[0] = false;
    fake.guarded[0] = true;
    fake.admits = fake.denials = 1;
    fake.truth[0] = 20 * PAGE;
    fake.idle[0] = 10 * PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, PAGE, 1));
    TEST_ASSERT_EQUAL_UINT64(0, fake.idle[0]);
    TEST_ASSERT_EQUAL_INT(2, got.tries);
    fake.lends = true;
    fake.idle[0] = PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take(BLOCKS_ARRAY, PAGE, 1));
}

/* The pool gives nothing back before the stream is done. */
static void test_what_a_stream_has_freed_is_waited_for_before_a_refusal(void)
{
    CUdevice card;

    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_on(1, BLOCKS_HANDLE, ROOM - 2 * LIMIT_STEP, 1, CUDA_SUCCESS));
    fake.truth[1] += 2 * LIMIT_STEP; /* the pool's */
    account_touch(&cards[1].account);
    fake.behind = LIMIT_STEP;
    fake.idle[1] = fake.busy[1] = ROOM;
    fake.trims = fake.endless = true;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(PAGE, NULL, STREAM, &card));
    TEST_ASSERT_EQUAL_UINT64(0, fake.behind);
}

static void test_a_stream_ordered_request_counts_on_the_card_of_its_pool_or_stream(void)
{
    CUdevice card;

    fake.stream_card = 0;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(PAGE, POOL, STREAM, &card));
    TEST_ASSERT_EQUAL_INT(1, card); /* the pool's */
    fake.stream_card = 1;
    for (int i = 0; i < 2; i++) {
        fake.old_driver = i;
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(PAGE, NULL, STREAM, &card));
        TEST_ASSERT_EQUAL_INT(1, card);
        TEST_ASSERT_EQUAL_INT(0, fake.current);
    }
    for (int i = 0; i < 3; i++) {
        static const CUstream defaults[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};

        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(PAGE, NULL, defaults[i], &card));
        TEST_ASSERT_EQUAL_INT(0, card); /* the current context's */
    }
    fake.pool_card = DRIVERS_POOLS_HOST;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(LIMIT, POOL, STREAM, &card));
    fake.captures = true; /* adds a node */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(LIMIT, NULL, STREAM, &card));
    TEST_ASSERT_EQUAL_INT(ROUTE_CURRENT, card);
    route_await_stream(STREAM);
    TEST_ASSERT_EQUAL_INT(0, got.queries); /* that would disturb the capture */
}

static void test_a_stream_that_is_none_is_left_to_the_driver(void)
{
    static const CUresult none[] = {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_CONTEXT};
    CUdevice card;

    for (int i = 0; i < 2; i++) {
        fake.stream_error = none[i];
        TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(LIMIT, NULL, STREAM, &card));
    }
    fake.stream_error = CUDA_ERROR_UNKNOWN;
    TEST_ASSERT_NOT_EQUAL_INT(CUDA_SUCCESS, take_async(PAGE, NULL, STREAM, &card));
    fake.stream_error = CUDA_SUCCESS;
    fake.unknown = true; /* its growth could not be counted */
    TEST_ASSERT_NOT_EQUAL_INT(CUDA_SUCCESS, take_async(PAGE, NULL, STREAM, &card));
}

static void test_the_driver_is_asked_in_the_cheap_way_only_where_no_capture_can_be_open(void)
{
    CUdevice card;

    TEST_ASSERT_EQUAL_UINT64(ROOM, account_view(&cards[1].account).room);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(PAGE, POOL, STREAM, &card));
    TEST_ASSERT_EQUAL_INT(1, got.cheap_looks);
    TEST_ASSERT_FALSE(fake.excludes);
    fake.captures = true; /* of another stream */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(PAGE, POOL, NULL, &card));
    TEST_ASSERT_EQUAL_INT(1, got.cheap_looks);
}

static void abandon(void *ticket)
{
    route_abandon(ticket);
}

static void *take_and_be_cancelled(void *unused)
{
    struct route_ticket ticket = {0};

    (void)unused;
    pthread_cleanup_push(abandon, &ticket);
    if (route_enter_async(&ticket, PAGE, POOL, STREAM) == CUDA_SUCCESS)
        route_leave(&ticket, CUDA_SUCCESS, 1);
    pthread_cleanup_pop(0);
    return &fake; /* it was not cancelled */
}

static void test_a_thread_that_is_cancelled_while_it_looks_at_a_pool_keeps_no_capture_from_beginning(void)
{
    pthread_t thread;
    void *end;

    TEST_ASSERT_EQUAL_UINT64(ROOM, account_view(&cards[1].account).room);
    fake.cancelled = true;
    pthread_create(&thread, NULL, take_and_be_cancelled, NULL);
    pthread_join(thread, &end);
    TEST_ASSERT_NULL(end);
    TEST_ASSERT_FALSE(fake.excludes);
    TEST_ASSERT_EQUAL_UINT64(0, atomic_load(&cards[1].account.promised));
}

static void test_a_pool_counts_as_it_grows_and_is_trusted_with_no_more_than_it_has_idle(void)
{
    struct route_ticket ticket;
    CUdevice card;

    TEST_ASSERT_EQUAL_UINT64(ROOM, account_view(&cards[1].account).room);
    fake.growth = 2 * PAGE;
    fake.reserved = 5 * PAGE; /* before the first request already */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(PAGE, POOL, STREAM, &card));
    TEST_ASSERT_EQUAL_UINT64(ROOM - 2 * PAGE, account_room(&cards[1].account));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, route_enter_async(&ticket, PAGE, POOL, STREAM));
    route_abandon(&ticket);
    TEST_ASSERT_TRUE(cards[1].account.state.stale); /* the driver is asked before the next grant */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_on(1, BLOCKS_HANDLE, ROOM - LIMIT_STEP + PAGE, 1, CUDA_SUCCESS));
    fake.pool_idle = PAGE;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take_async(2 * PAGE, POOL, STREAM, &card));
    const uint64_t known = account_known(&cards[1].account);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(PAGE, POOL, STREAM, &card));
    TEST_ASSERT_EQUAL_UINT64(known + 2 * PAGE, account_known(&cards[1].account));
}

static void test_without_a_card_the_driver_answers_and_an_unknown_one_is_refused(void)
{
    CUdevice card;

    fake.current = -1;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, LIMIT, 1));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take_async(LIMIT, NULL, NULL, &card));
    TEST_ASSERT_EQUAL_UINT64(0, blocks_count());
    fake.current = 0;
    fake.find = -ENODEV;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take(BLOCKS_ARRAY, 1, 1));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take_on(1, BLOCKS_HANDLE, 1, 1, CUDA_SUCCESS));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, take_async(1, NULL, NULL, &card));
    fake.find = 0;
    atomic_store(&mode, LIBRARY_REFUSE);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_PERMITTED, take(BLOCKS_ARRAY, 1, 1));
    atomic_store(&mode, LIBRARY_PASS);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, take(BLOCKS_ARRAY, 2 * LIMIT, 1));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_request_is_charged_to_its_card_until_it_is_freed);
    RUN_TEST(test_the_limit_is_taken_to_the_last_page_and_no_further);
    RUN_TEST(test_a_refusal_has_the_drivers_own_error);
    RUN_TEST(test_refusals_leave_nothing_behind);
    RUN_TEST(test_a_free_that_the_driver_refuses_keeps_the_block);
    RUN_TEST(test_a_handle_is_charged_until_its_last_hold_and_mapping_end);
    RUN_TEST(test_idle_memory_goes_back_if_it_is_enough);
    RUN_TEST(test_work_of_this_context_is_waited_for_first_and_until_there_is_enough);
    RUN_TEST(test_a_handle_that_is_held_is_charged_until_its_last_release);
    RUN_TEST(test_all_mappings_of_a_range_end_together);
    RUN_TEST(test_an_admission_is_tried_again_after_idle_memory_went_back);
    RUN_TEST(test_what_a_stream_has_freed_is_waited_for_before_a_refusal);
    RUN_TEST(test_memory_of_other_processes_is_borrowed_before_a_refusal);
    RUN_TEST(test_an_admission_ends_with_the_drivers_answer);
    RUN_TEST(test_a_stream_ordered_request_counts_on_the_card_of_its_pool_or_stream);
    RUN_TEST(test_a_stream_that_is_none_is_left_to_the_driver);
    RUN_TEST(test_the_driver_is_asked_in_the_cheap_way_only_where_no_capture_can_be_open);
    RUN_TEST(test_a_thread_that_is_cancelled_while_it_looks_at_a_pool_keeps_no_capture_from_beginning);
    RUN_TEST(test_a_pool_counts_as_it_grows_and_is_trusted_with_no_more_than_it_has_idle);
    RUN_TEST(test_without_a_card_the_driver_answers_and_an_unknown_one_is_refused);
    RUN_TEST(test_a_block_of_a_destroyed_pool_leaves_with_its_free);
    RUN_TEST(test_a_block_of_the_drivers_pools_that_is_freed_at_once_is_told_as_such);
    return UNITY_END();
}
