/* route_pool: cuMemAlloc and cuMemFree through the pool: what the program gets, what is undone, and who is
 * told. The pool, the driver and the other processes are the test's own. */
#include "interpose/route.h"

#include <errno.h>
#include <pthread.h>
#include <unity.h>

#include "interpose/library.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/decay.h"
#include "interpose/pool/pools.h"
#include "interpose/refusal.h"
#include "interpose/route_fill.h"
#include "interpose/see/events.h"
#include "interpose/share/ipc.h"

#define MIB     (UINT64_C(1) << 20)
#define BLOCK   UINT64_C(0x70000000)
#define HERE    ((CUcontext)0x100)
#define ELSE    ((CUcontext)0x200)
#define STREAM  ((CUstream)0x300)
#define NOTHING UINT64_C(0xabc)

static struct device card;
static struct pool pool;
static struct options options;
static struct fake {
    int refuse;                                          /* so many calls of pool_alloc fail */
    int awaits;                                          /* so many times others are in flight */
    uint64_t room;                                       /* left by the limit */
    uint64_t idle;                                       /* on the card */
    uint64_t missing;                                    /* to the limit */
    int makes_room, lends, lends_on_card, waits_on_card; /* so many times */
    bool guarded;
    bool captures; /* a stream */
    bool takes;    /* STREAM captures */
    bool no_block;
    CUresult native; /* the driver's answer to a request that never fits */
    CUresult fill;
    CUresult pass;   /* the fence's answer */
    CUresult stream; /* of cuStreamGetCtx */
    CUcontext stream_context, green_of;
    bool pinned; /* other processes have the block open */
    bool given;  /* by another thread, while the pool is asked */
} fake;
static struct got {
    int allocs, frees, ends, said, said_kept, full, trims, wakes, lent, ipc, waits, fills, filled_behind,
        notes, polls;
    int may_be_met;
    bool done;
    uint64_t bytes, filled_bytes;
    unsigned char value;
    const void *stream;
} got;

/* ---- the rest of the library ---- */

static atomic_int mode = LIBRARY_ON;
_Atomic(atomic_int *) library_state = &mode;
_Thread_local bool pool_freed_pinned;
static uint64_t given_back;

enum library_mode library_begin(void)
{
    return LIBRARY_ON;
}

const struct options *library_options(void)
{
    return &options;
}

static bool passive;

bool route_active(void)
{
    return !passive;
}

uint64_t route_given_back(void)
{
    return given_back;
}

bool route_make_room_for(CUdevice ordinal, uint64_t bytes,
                         uint64_t (*missing)(struct account *account, uint64_t need))
{
    (void)bytes, (void)missing;
    TEST_ASSERT_EQUAL_INT(pool.ordinal, ordinal);
    return fake.makes_room-- > 0;
}

uint64_t account_short_to_take(struct account *account, uint64_t need)
{
    (void)account, (void)need;
    return fake.missing;
}

uint64_t limit_round(uint64_t bytes)
{
    return (bytes + 2 * MIB - 1) & ~(2 * MIB - 1);
}

struct device *device_guarded(CUdevice ordinal)
{
    TEST_ASSERT_EQUAL_INT(pool.ordinal, ordinal);
    return fake.guarded ? &card : NULL;
}

struct pool *pools_current(void)
{
    return &pool;
}

struct pool *pools_of(uint64_t address)
{
    return address >= BLOCK && address < BLOCK + 64 * MIB ? &pool : NULL;
}

void pool_poll(struct pool *polled)
{
    TEST_ASSERT_EQUAL_PTR(&pool, polled);
    got.polls++;
}

bool pools_await(const struct pool *waiting)
{
    TEST_ASSERT_EQUAL_PTR(&pool, waiting);
    return fake.awaits-- > 0;
}

uint64_t pools_idle_on(CUdevice ordinal)
{
    TEST_ASSERT_EQUAL_INT(pool.ordinal, ordinal);
    return fake.idle;
}

static bool fits(void *owner, uint64_t bytes)
{
    (void)owner;
    got.may_be_met++;
    return bytes <= fake.room;
}

int pool_alloc(struct pool *from, uint64_t bytes, uint64_t *address)
{
    TEST_ASSERT_EQUAL_PTR(&pool, from);
    got.allocs++;
    got.bytes = bytes;
    given_back += fake.given;
    fake.given = false;
    if (fake.refuse-- > 0)
        return -ENOMEM;
    *address = BLOCK;
    return 0;
}

int pool_free(struct pool *from, uint64_t address, bool done)
{
    TEST_ASSERT_EQUAL_PTR(&pool, from);
    got.frees++;
    got.done = done;
    if (fake.no_block || address != BLOCK)
        return -EINVAL;
    pool_freed_pinned = fake.pinned;
    return 0;
}

bool pool_has_block(struct pool *in, uint64_t address)
{
    (void)in;
    return !fake.no_block && address == BLOCK;
}

bool pool_knows_block(struct pool *in, uint64_t address)
{
    return pool_has_block(in, address);
}

uint64_t pool_trim(struct pool *of, uint64_t bytes)
{
    (void)of;
    got.trims += bytes == UINT64_MAX;
    return 0;
}

CUresult fence_pass(struct fence *fence, const struct fence_check *check)
{
    TEST_ASSERT_EQUAL_PTR(&pool.fence, fence);
    int state;

    if (check) { /* a cancelled thread would keep the block */
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
        TEST_ASSERT_EQUAL_INT(PTHREAD_CANCEL_DISABLE, state);
    }
    got.waits++;
    const CUresult result = check ? check->call(check->argument) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? fake.pass : result;
}

CUresult fill_block(struct pool *of, uint64_t address, uint64_t bytes, unsigned char value)
{
    TEST_ASSERT_EQUAL_PTR(&pool, of);
    TEST_ASSERT_EQUAL_UINT64(BLOCK, address);
    got.fills++;
    got.filled_bytes = bytes;
    got.value = value;
    return fake.fill;
}

bool fill_freed(struct pool *of, uint64_t address)
{
    (void)of, (void)address;
    got.fills++;
    return fake.fill == CUDA_SUCCESS;
}

void fill_freed_behind(struct pool *of, uint64_t address, CUstream stream)
{
    (void)of, (void)address;
    got.filled_behind++;
    TEST_ASSERT_EQUAL_PTR(STREAM, stream);
}

bool capture_any(void)
{
    return fake.captures;
}

bool capture_takes(CUstream stream)
{
    return fake.takes && stream == STREAM;
}

CUresult capture_wait_stream(CUstream stream)
{
    TEST_ASSERT_EQUAL_PTR(STREAM, stream);
    got.waits++;
    return fake.pass;
}

void decay_wake(void)
{
    got.wakes++;
}

void ipc_freed(struct pool *of, uint64_t address)
{
    (void)of;
    TEST_ASSERT_EQUAL_UINT64(BLOCK, address);
    got.ipc++;
}

bool lend_more(struct loan *loan)
{
    TEST_ASSERT_EQUAL_PTR(pool.budget.owner, loan->device);
    TEST_ASSERT_EQUAL_UINT64(4 * MIB, loan->need);
    return fake.lends-- > 0;
}

void lend_end(const struct loan *loan)
{
    (void)loan;
    got.ends++;
}

bool lend_on_card(CUdevice ordinal, uint64_t bytes)
{
    (void)bytes;
    TEST_ASSERT_EQUAL_INT(pool.ordinal, ordinal);
    return fake.lends_on_card-- > 0;
}

bool lend_wait_on_card(struct lend_wait *wait, CUdevice ordinal, uint64_t bytes)
{
    (void)wait, (void)ordinal, (void)bytes;
    return fake.waits_on_card-- > 0;
}

void lend_freed(struct device *device)
{
    TEST_ASSERT_EQUAL_PTR(pool.budget.owner, device);
    got.lent++;
}

void refusal_say(struct device *device, enum refusal_of whose, uint64_t bytes)
{
    TEST_ASSERT_EQUAL_PTR(&card, device);
    TEST_ASSERT_EQUAL_INT(REFUSAL_PROGRAM, whose);
    TEST_ASSERT_EQUAL_UINT64(3 * MIB, bytes);
    got.said++;
}

void refusal_say_kept(struct device *device, uint64_t bytes)
{
    TEST_ASSERT_EQUAL_PTR(&card, device);
    TEST_ASSERT_EQUAL_UINT64(3 * MIB, bytes);
    got.said_kept++;
}

void refusal_note_full(int ordinal, uint64_t bytes)
{
    TEST_ASSERT_EQUAL_INT(pool.ordinal, ordinal);
    TEST_ASSERT_EQUAL_UINT64(3 * MIB, bytes);
    got.full++;
}

void events_publish(struct recording_event *slot)
{
    TEST_ASSERT_EQUAL_INT(RECORDING_FREE, slot->head.type);
    TEST_ASSERT_EQUAL_UINT64(0, got.frees); /* before the memory is given up */
    got.notes++;
    got.stream = (const void *)(uintptr_t)slot->other;
}

/* ---- the driver ---- */

static CUresult refuse_natively(CUdeviceptr *address, size_t bytes)
{
    TEST_ASSERT_EQUAL_UINT64(NEVER_FITS, bytes);
    *address = 0;
    return fake.native;
}

static CUresult context_of(CUstream stream, CUcontext *context)
{
    TEST_ASSERT_EQUAL_PTR(STREAM, stream);
    *context = fake.stream_context;
    return fake.stream;
}

static CUresult green_context_of(CUstream stream, CUcontext *primary, CUgreenCtx *green)
{
    (void)stream;
    *primary = fake.green_of;
    *green = (CUgreenCtx)(uintptr_t)(fake.green_of != NULL);
    return CUDA_SUCCESS;
}

void setUp(void)
{
    atomic_store(&events_on, true);
    fake = (struct fake){.native = CUDA_ERROR_OUT_OF_MEMORY, .stream_context = HERE};
    got = (struct got){0};
    options = (struct options){.decay = 1};
    pool.ordinal = 3;
    pool.context = HERE;
    pool.budget = (struct pool_budget){.owner = &card, .fits = fits};
    driver.cuMemAlloc_v2 = refuse_natively;
    driver.cuStreamGetCtx = context_of;
    driver.cuStreamGetCtx_v2 = green_context_of;
    pool_freed_pinned = false;
}

void tearDown(void)
{
    int state;

    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    TEST_ASSERT_EQUAL_INT(PTHREAD_CANCEL_ENABLE, state);
}

/* ---- allocation ---- */

static void expect_alloc(CUresult expected, CUdeviceptr expected_address)
{
    CUdeviceptr address = NOTHING;
    CUresult result;

    TEST_ASSERT_TRUE(route_pool_alloc(&address, 3 * MIB, &result));
    TEST_ASSERT_EQUAL_INT(expected, result);
    TEST_ASSERT_EQUAL_UINT64(expected_address, address);
}

static void test_a_block_is_the_pools(void)
{
    CUdeviceptr address;
    CUresult result;

    expect_alloc(CUDA_SUCCESS, BLOCK);
    TEST_ASSERT_EQUAL_UINT64(3 * MIB, got.bytes);
    TEST_ASSERT_EQUAL_INT(0, got.fills + got.said + got.full);
    TEST_ASSERT_FALSE(route_pool_alloc(NULL, 1, &result)); /* the driver reports these */
    TEST_ASSERT_FALSE(route_pool_alloc(&address, 0, &result));
}

static void test_each_way_of_making_room_is_tried_in_turn(void)
{
    fake.refuse = fake.awaits = 1; /* others were in flight */
    expect_alloc(CUDA_SUCCESS, BLOCK);
    TEST_ASSERT_EQUAL_INT(2, got.allocs);
    fake = (struct fake){.refuse = 1, .given = true, .stream_context = HERE}; /* another thread gave back */
    expect_alloc(CUDA_SUCCESS, BLOCK);
    fake = (struct fake){.refuse = 1, .idle = 2 * MIB, .room = MIB, .makes_room = 1}; /* just enough */
    expect_alloc(CUDA_SUCCESS, BLOCK);
    fake = (struct fake){.refuse = 1, .idle = MIB, .room = MIB, .makes_room = 1, .lends = 1};
    expect_alloc(CUDA_SUCCESS, BLOCK); /* not enough: idle memory is kept, and more is borrowed */
    TEST_ASSERT_EQUAL_INT(1, fake.makes_room);
    got.ends = 0;
    fake = (struct fake){.refuse = 2, .lends = 1, .lends_on_card = 1};
    expect_alloc(CUDA_SUCCESS, BLOCK);
    TEST_ASSERT_EQUAL_INT(1, got.ends);
    fake = (struct fake){.refuse = 3, .lends_on_card = 3}; /* others took what was lent */
    expect_alloc(CUDA_SUCCESS, BLOCK);
    fake = (struct fake){.refuse = 1, .waits_on_card = 1};
    expect_alloc(CUDA_SUCCESS, BLOCK);
    TEST_ASSERT_EQUAL_INT(0, got.said + got.full);
}

static void test_a_refusal_is_the_drivers_own_and_says_why(void)
{
    fake.refuse = 1;
    expect_alloc(CUDA_ERROR_OUT_OF_MEMORY, 0);
    TEST_ASSERT_EQUAL_INT(1, got.said);
    fake.refuse = 1;
    fake.native = CUDA_ERROR_ILLEGAL_ADDRESS;
    expect_alloc(CUDA_ERROR_ILLEGAL_ADDRESS, 0);
    TEST_ASSERT_EQUAL_INT(1, got.said);
    TEST_ASSERT_EQUAL_INT(0, got.full);
    fake.refuse = 1;
    fake.native = CUDA_SUCCESS;
    expect_alloc(CUDA_ERROR_OUT_OF_MEMORY, 0);
    fake.native = CUDA_ERROR_OUT_OF_MEMORY;
    fake.refuse = fake.missing = fake.lends_on_card = 1; /* at the limit the card's memory is of no use */
    expect_alloc(CUDA_ERROR_OUT_OF_MEMORY, 0);
    TEST_ASSERT_EQUAL_INT(3, got.said);
}

/* A process without a limit. */
static void test_a_full_card_is_noted_and_what_is_kept_for_others_is_said(void)
{
    pool.budget.owner = NULL;
    fake.refuse = 1;
    expect_alloc(CUDA_ERROR_OUT_OF_MEMORY, 0);
    TEST_ASSERT_EQUAL_INT(1, got.full);
    fake.refuse = 1;
    fake.guarded = true;
    expect_alloc(CUDA_ERROR_OUT_OF_MEMORY, 0);
    TEST_ASSERT_EQUAL_INT(1, got.said_kept);
    TEST_ASSERT_EQUAL_INT(1, got.full);
    TEST_ASSERT_EQUAL_INT(0, got.said);
}

static void test_a_capture_that_forbids_it_refuses_and_writes_nothing(void)
{
    fake.captures = true;
    fake.native = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    expect_alloc(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, NOTHING);
    TEST_ASSERT_EQUAL_INT(0, got.allocs);
    fake.native = CUDA_ERROR_OUT_OF_MEMORY; /* it may */
    expect_alloc(CUDA_SUCCESS, BLOCK);
}

static void test_a_block_that_cannot_be_filled_is_given_back(void)
{
    options.zero = true;
    expect_alloc(CUDA_SUCCESS, BLOCK);
    TEST_ASSERT_EQUAL_UINT64(3 * MIB, got.filled_bytes);
    TEST_ASSERT_EQUAL_INT(0, got.value);
    options = (struct options){.fill = true};
    expect_alloc(CUDA_SUCCESS, BLOCK);
    TEST_ASSERT_EQUAL_INT(FILL_FRESH, got.value);
    fake.fill = CUDA_ERROR_LAUNCH_FAILED;
    expect_alloc(CUDA_ERROR_LAUNCH_FAILED, 0);
    TEST_ASSERT_EQUAL_INT(1, got.frees);
    TEST_ASSERT_FALSE(got.done);
}

/* ---- release ---- */

static void expect_free(CUresult expected)
{
    CUresult result;

    TEST_ASSERT_TRUE(route_pool_free(BLOCK, &result));
    TEST_ASSERT_EQUAL_INT(expected, result);
}

static void test_a_strict_free_waits_and_then_tells_who_waits_for_memory(void)
{
    CUresult result;

    expect_free(CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_INT(1, got.waits);
    TEST_ASSERT_EQUAL_INT(1, got.frees);
    TEST_ASSERT_TRUE(got.done);
    TEST_ASSERT_EQUAL_INT(1, got.notes);
    TEST_ASSERT_EQUAL_INT(1, got.wakes);
    TEST_ASSERT_EQUAL_INT(1, got.lent);
    TEST_ASSERT_EQUAL_INT(0, got.trims + got.ipc);
    TEST_ASSERT_FALSE(route_pool_free(0, &result));
    TEST_ASSERT_FALSE(route_pool_free(BLOCK - 1, &result));
}

static void test_a_strict_free_that_fails_frees_nothing(void)
{
    fake.pass = CUDA_ERROR_LAUNCH_FAILED;
    expect_free(CUDA_ERROR_LAUNCH_FAILED);
    TEST_ASSERT_EQUAL_INT(0, got.frees + got.notes);
    fake.no_block = true;
    expect_free(CUDA_ERROR_INVALID_VALUE);
    TEST_ASSERT_EQUAL_INT(0, got.frees + got.notes);
}

static void test_a_deferred_free_does_not_wait(void)
{
    options.deferred = true;
    expect_free(CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_INT(0, got.waits);
    TEST_ASSERT_FALSE(got.done);
    got = (struct got){0};
    fake.captures = true; /* it may forbid the free */
    fake.native = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    expect_free(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    fake.no_block = true;
    expect_free(CUDA_ERROR_INVALID_VALUE);
    TEST_ASSERT_EQUAL_INT(0, got.frees + got.notes);
}

/* A fill that may still run is work on the block. */
static void test_a_freed_block_is_filled_behind_its_work(void)
{
    options.fill = true;
    expect_free(CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_INT(1, got.fills);
    TEST_ASSERT_TRUE(got.done);
    got = (struct got){0};
    fake.fill = CUDA_ERROR_UNKNOWN;
    expect_free(CUDA_SUCCESS);
    TEST_ASSERT_FALSE(got.done);
}

static void test_without_decay_memory_goes_back_at_once(void)
{
    options.decay = 0;
    expect_free(CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_INT(1, got.trims);
    TEST_ASSERT_EQUAL_INT(0, got.wakes);
}

static void test_who_holds_a_freed_block_is_told_once(void)
{
    fake.pinned = true;
    expect_free(CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_INT(1, got.ipc);
    TEST_ASSERT_FALSE(pool_freed_pinned);
}

static bool free_async(CUresult *result)
{
    got = (struct got){0};
    return route_pool_free_async(BLOCK, STREAM, result);
}

static void test_a_free_in_the_order_of_a_stream(void)
{
    CUresult result;

    TEST_ASSERT_TRUE(free_async(&result));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, result);
    TEST_ASSERT_EQUAL_INT(0, got.waits);
    TEST_ASSERT_FALSE(got.done);
    TEST_ASSERT_EQUAL_PTR(STREAM, got.stream);
    TEST_ASSERT_EQUAL_INT(1, got.lent);
    TEST_ASSERT_EQUAL_INT(1, got.polls); /* an event behind the stream's work, and no later work */
    options.deferred = true;
    TEST_ASSERT_TRUE(free_async(&result));
    TEST_ASSERT_EQUAL_INT(0, got.polls);
    options = (struct options){.decay = 1};
    options.fill = true;
    TEST_ASSERT_TRUE(free_async(&result));
    TEST_ASSERT_EQUAL_INT(1, got.filled_behind);
    fake.stream_context = ELSE; /* no event of ours covers it */
    TEST_ASSERT_TRUE(free_async(&result));
    TEST_ASSERT_EQUAL_INT(1, got.waits);
    TEST_ASSERT_EQUAL_INT(0, got.filled_behind);
    fake.green_of = HERE; /* a part of the block's own context */
    TEST_ASSERT_TRUE(free_async(&result));
    TEST_ASSERT_EQUAL_INT(0, got.waits);
    fake.green_of = ELSE;
    fake.pass = CUDA_ERROR_LAUNCH_FAILED;
    TEST_ASSERT_TRUE(free_async(&result));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_LAUNCH_FAILED, result);
    TEST_ASSERT_EQUAL_INT(0, got.frees + got.notes + got.lent);
    fake.stream = CUDA_ERROR_INVALID_HANDLE;
    TEST_ASSERT_TRUE(free_async(&result));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_HANDLE, result);
    TEST_ASSERT_EQUAL_INT(0, got.frees);
    fake.takes = true;
    TEST_ASSERT_FALSE(free_async(&result)); /* the driver reports it */
}

static void test_once_the_library_has_ended_the_driver_answers(void)
{
    CUdeviceptr address;
    CUresult result;

    passive = true;
    TEST_ASSERT_FALSE(route_pool_alloc(&address, 512, &result));
    TEST_ASSERT_FALSE(route_pool_free(BLOCK, &result));
    TEST_ASSERT_FALSE(route_pool_free_async(BLOCK, NULL, &result));
    passive = false;
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_once_the_library_has_ended_the_driver_answers);
    RUN_TEST(test_a_block_is_the_pools);
    RUN_TEST(test_each_way_of_making_room_is_tried_in_turn);
    RUN_TEST(test_a_refusal_is_the_drivers_own_and_says_why);
    RUN_TEST(test_a_full_card_is_noted_and_what_is_kept_for_others_is_said);
    RUN_TEST(test_a_capture_that_forbids_it_refuses_and_writes_nothing);
    RUN_TEST(test_a_block_that_cannot_be_filled_is_given_back);
    RUN_TEST(test_a_strict_free_waits_and_then_tells_who_waits_for_memory);
    RUN_TEST(test_a_strict_free_that_fails_frees_nothing);
    RUN_TEST(test_a_deferred_free_does_not_wait);
    RUN_TEST(test_a_freed_block_is_filled_behind_its_work);
    RUN_TEST(test_without_decay_memory_goes_back_at_once);
    RUN_TEST(test_who_holds_a_freed_block_is_told_once);
    RUN_TEST(test_a_free_in_the_order_of_a_stream);
    return UNITY_END();
}
