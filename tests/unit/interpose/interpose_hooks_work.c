/* The hooks on work, captures, figures and start, over a fake driver. The rest of the library is the test's
 * own. */
#include <pthread.h>
#include <string.h>
#include <unity.h>

#include "interpose/account/device.h"
#include "interpose/account/measure.h"
#include "interpose/hook/hooks.h"
#include "interpose/hook/memops.h"
#include "interpose/hook/resolve.h"
#include "interpose/hook/seen.h"
#include "interpose/library.h"
#include "interpose/pool/capture.h"
#include "interpose/pool/pools.h"
#include "interpose/pool/streams.h"
#include "interpose/recorded.h"
#include "interpose/refusal.h"

#define STREAM_KEY 0x900
#define THREAD_KEY 0x800
#define CARD       4

atomic_bool rebind_pending;
_Thread_local uintptr_t streams_last, streams_thread = THREAD_KEY;
_Thread_local uint16_t owner_current = 6;
_Thread_local uint32_t owner_stack = 7;
static atomic_int mode = LIBRARY_ON;
_Atomic(atomic_int *) library_state = &mode;
static struct device device = {.ordinal = CARD};
static struct pool pool = {.ordinal = 2};
static struct options options;
static char driver_function, hook_function;

static struct fake {
    CUresult result; /* the driver's */
    CUstreamCaptureStatus status, status_after;
    bool foreign, capturing, inactive, unlimited, no_device, only_card, bad_rules, knows_pid, roomy;
    /* what happened */
    char order[32]; /* one letter for each call */
    uintptr_t key;
    CUcontext context;
    CUstream waited_for;
    char unknown[64];
    int full_card, measure_starts, measure_readies, begun, refused, started;
    uint64_t full_bytes;
    struct recording_event noted;
    int notes;
    int trims; /* how many more calls of pools_reclaimable find that idle memory has just gone back */
    uint64_t given;
} fake;

static void happen(char letter)
{
    const size_t used = strlen(fake.order);

    TEST_ASSERT_LESS_THAN_size_t(sizeof(fake.order) - 1, used);
    fake.order[used] = letter;
    fake.order[used + 1] = '\0';
}

/* ---- the test's own library ---- */

uintptr_t streams_new_key(void)
{
    return THREAD_KEY;
}

bool streams_submit_slow(uintptr_t key)
{
    happen('w');
    fake.key = key;
    return fake.foreign;
}

void streams_submit_end(void)
{
    happen('W');
}

void streams_end(CUstream stream)
{
    (void)stream;
    happen('x');
}

void streams_distrust(void)
{
    happen('d');
}

void pools_before_flag(void)
{
    happen('f');
}

void capture_begin(uintptr_t stream, uintptr_t thread, CUcontext context)
{
    TEST_ASSERT_EQUAL_HEX64(THREAD_KEY, thread);
    happen('b');
    fake.key = stream;
    fake.context = context;
}

void capture_end(uintptr_t stream, uintptr_t thread)
{
    TEST_ASSERT_EQUAL_HEX64(THREAD_KEY, thread);
    happen('e');
    fake.key = stream;
}

bool capture_any(void)
{
    return fake.capturing;
}

uint64_t route_given_back(void)
{
    return fake.given;
}

bool route_active(void)
{
    return !fake.inactive;
}

struct device *device_get(CUdevice ordinal)
{
    TEST_ASSERT_EQUAL_INT(CARD, ordinal);
    return fake.unlimited ? NULL : &device;
}

bool device_only(CUdevice *ordinal)
{
    *ordinal = 9;
    return fake.only_card;
}

bool device_check_rules(void)
{
    return !fake.bad_rules;
}

struct account_view account_view(struct account *account)
{
    TEST_ASSERT_EQUAL_PTR(&device.account, account);
    return (struct account_view){.room = (fake.roomy ? 3000 : 300) + fake.given};
}

uint64_t pools_reclaimable(CUdevice ordinal)
{
    TEST_ASSERT_EQUAL_INT(CARD, ordinal);
    if (fake.trims) { /* before this lock could be had */
        fake.trims--;
        fake.given += 10;
    }
    return 50 - fake.given;
}

struct pool *pools_of(uint64_t address)
{
    return address == 0x1000 ? &pool : NULL;
}

void refusal_note_full(int ordinal, uint64_t bytes)
{
    fake.full_card = ordinal;
    fake.full_bytes = bytes;
}

void events_publish(struct recording_event *slot)
{
    fake.notes++;
    fake.noted = *slot;
}

void rebind_pending_now(void)
{
    happen('r');
}

void *hooks_for(void *address)
{
    return address == &driver_function ? &hook_function : address;
}

bool hooks_own(const void *address)
{
    return address == &hook_function;
}

void resolve_passed_on(const char *name)
{
    strcpy(fake.unknown, name);
}

enum library_mode library_begin(void)
{
    return LIBRARY_ON;
}

const struct options *library_options(void)
{
    return &options;
}

bool options_any_limit(const struct options *of)
{
    return of->max.count > 0;
}

bool library_cuda_started(void)
{
    return fake.started++ == 0;
}

void library_refuse(void)
{
    fake.refused++;
}

bool measure_knows_pid(void)
{
    return fake.knows_pid;
}

void measure_start(void)
{
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", fake.order, "while the driver starts");
    fake.measure_starts++;
}

void measure_ready(void)
{
    fake.measure_readies++;
}

void recorded_begin(const struct options *of)
{
    TEST_ASSERT_EQUAL_PTR(&options, of);
    fake.begun++;
}

/* ---- the test's own driver ---- */

static CUresult launch_host(CUstream stream, CUhostFn function, void *argument)
{
    (void)stream, (void)function, (void)argument;
    happen('c');
    return fake.result;
}

static CUresult launch_host_v2(CUstream stream, CUhostFn function, void *argument, unsigned mode_of_wait)
{
    (void)mode_of_wait;
    return launch_host(stream, function, argument);
}

static CUresult copy_with_attributes(CUdeviceptr to, CUdeviceptr from, size_t size, CUmemcpyAttributes *how,
                                     CUstream stream)
{
    (void)to, (void)from, (void)size, (void)how, (void)stream;
    happen('c');
    return fake.result;
}

static CUresult set_memory(CUdeviceptr address, unsigned char value, size_t count)
{
    (void)address, (void)value, (void)count;
    happen('c');
    return fake.result;
}

static CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)stream, (void)address, (void)value, (void)flags;
    happen('c');
    return fake.result;
}

static CUresult launch_everywhere(CUDA_LAUNCH_PARAMS *list, unsigned count, unsigned flags)
{
    (void)list, (void)count, (void)flags;
    happen('c');
    return fake.result;
}

static CUresult synchronize(CUstream stream)
{
    happen('s');
    fake.waited_for = stream;
    return CUDA_ERROR_LAUNCH_FAILED;
}

/* A thread that is cancelled here would leave a capture open. */
static void cannot_be_cancelled(void)
{
    int state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_setcancelstate(state, NULL);
    TEST_ASSERT_EQUAL_INT(PTHREAD_CANCEL_DISABLE, state);
}

static CUresult begin_capture(CUstream stream, CUstreamCaptureMode how)
{
    (void)stream, (void)how;
    cannot_be_cancelled();
    happen('c');
    return fake.result;
}

static CUresult recapture(CUstream stream, CUstreamCaptureMode how, CUgraph graph,
                          CUgraphRecaptureCallback callback, void *data)
{
    (void)graph, (void)callback, (void)data;
    return begin_capture(stream, how);
}

static CUresult end_capture(CUstream stream, CUgraph *graph)
{
    (void)stream, (void)graph;
    cannot_be_cancelled();
    happen('c');
    fake.status = fake.status_after;
    return fake.result;
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = fake.status;
    return CUDA_SUCCESS;
}

static CUresult get_context(CUstream stream, CUcontext *context)
{
    (void)stream;
    *context = (CUcontext)0x55;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUstream stream)
{
    (void)stream;
    happen('c');
    return fake.result;
}

static CUresult get_info(size_t *free_bytes, size_t *total)
{
    if (free_bytes)
        *free_bytes = 1000;
    if (total)
        *total = 8000;
    return fake.result;
}

static CUresult get_card(CUdevice *ordinal)
{
    *ordinal = CARD;
    return fake.no_device ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

static CUresult get_total(size_t *bytes, CUdevice ordinal)
{
    (void)ordinal;
    if (bytes)
        *bytes = 8000;
    return fake.result;
}

static CUresult find(const char *symbol, void **function, int version, cuuint64_t flags)
{
    (void)version, (void)flags;
    if (function)
        *function = !strcmp(symbol, "known")  ? &driver_function
                    : !strcmp(symbol, "ours") ? &hook_function
                    : !strcmp(symbol, "none") ? NULL
                                              : (void *)&fake;
    return fake.result;
}

static CUresult find_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *status)
{
    (void)status;
    return find(symbol, function, version, flags);
}

static CUresult start(unsigned flags)
{
    (void)flags;
    happen('c');
    return fake.result;
}

void setUp(void)
{
    fake = (struct fake){.full_card = -1, .knows_pid = true};
    options = (struct options){.pool = true};
    streams_last = 0;
    atomic_store(&events_on, false);
    atomic_store(&memops_synchronous, false);
    atomic_store(&rebind_pending, false);
    atomic_store(&device.limit, 5000);
    driver_entries.cuLaunchHostFunc = driver_entries.cuLaunchHostFunc_ptsz = launch_host;
    driver_entries.cuMemsetD8_v2 = driver_entries.cuMemsetD8_v2_ptds = set_memory;
    driver_entries.cuStreamWaitValue32 = wait_value;
    driver_entries.cuLaunchCooperativeKernelMultiDevice = launch_everywhere;
    driver_entries.cuStreamSynchronize = synchronize;
    driver_entries.cuStreamBeginCapture_v2 = begin_capture;
    driver_entries.cuStreamBeginRecaptureToGraph = recapture;
    driver_entries.cuStreamBeginRecaptureToGraph_ptsz = recapture;
    driver_entries.cuStreamGetCtx_ptsz = get_context;
    driver_entries.cuLaunchHostFunc_v2 = launch_host_v2;
    driver_entries.cuMemcpyWithAttributesAsync_ptsz = copy_with_attributes;
    driver_entries.cuStreamEndCapture = end_capture;
    driver_entries.cuStreamIsCapturing = is_capturing;
    driver_entries.cuStreamGetCtx = get_context;
    driver_entries.cuStreamDestroy_v2 = destroy;
    driver_entries.cuMemGetInfo_v2 = get_info;
    driver_entries.cuCtxGetDevice = get_card;
    driver_entries.cuDeviceTotalMem_v2 = get_total;
    driver_entries.cuGetProcAddress = find;
    driver_entries.cuGetProcAddress_v2 = find_v2;
    driver_entries.cuInit = start;
}

void tearDown(void) {}

/* ---- work ---- */

static const CUstream stream = (CUstream)STREAM_KEY;

static void test_work_is_reported_before_it_is_submitted(void)
{
    TEST_ASSERT_EQUAL_INT(0, cuLaunchHostFunc(stream, NULL, NULL));
    TEST_ASSERT_EQUAL_STRING("wc", fake.order);
    TEST_ASSERT_EQUAL_HEX64(STREAM_KEY, fake.key);
    fake = (struct fake){.foreign = true, .result = CUDA_ERROR_INVALID_HANDLE};
    TEST_ASSERT_EQUAL_INT(fake.result, cuLaunchHostFunc(NULL, NULL, NULL));
    TEST_ASSERT_EQUAL_STRING_MESSAGE("wcW", fake.order, "an error ends the submission too");
    TEST_ASSERT_EQUAL_HEX64(1, fake.key);
    cuLaunchHostFunc_ptsz(NULL, NULL, NULL);
    TEST_ASSERT_EQUAL_HEX64(THREAD_KEY, fake.key);
}

static void test_work_that_waits_for_a_flag_or_has_many_streams_is_announced(void)
{
    cuStreamWaitValue32(stream, 0, 0, 0);
    TEST_ASSERT_EQUAL_STRING("fwc", fake.order);
    fake = (struct fake){0};
    cuLaunchCooperativeKernelMultiDevice(NULL, 2, 0);
    TEST_ASSERT_EQUAL_STRING("dwc", fake.order);
}

static void test_fills_wait_for_the_device_once_memory_is_synchronous(void)
{
    TEST_ASSERT_EQUAL_INT(0, cuMemsetD8_v2(0, 0, 1));
    TEST_ASSERT_EQUAL_STRING("wc", fake.order);
    atomic_store(&memops_synchronous, true);
    TEST_ASSERT_EQUAL_INT_MESSAGE(CUDA_ERROR_LAUNCH_FAILED, cuMemsetD8_v2(0, 0, 1), "the wait's answer");
    TEST_ASSERT_EQUAL_PTR(CU_STREAM_LEGACY, fake.waited_for);
    cuMemsetD8_v2_ptds(0, 0, 1);
    TEST_ASSERT_EQUAL_PTR(CU_STREAM_PER_THREAD, fake.waited_for);
    fake = (struct fake){.result = CUDA_ERROR_INVALID_VALUE};
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(0, 0, 1));
    TEST_ASSERT_EQUAL_STRING("wc", fake.order);
    fake = (struct fake){.capturing = true};
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, cuMemsetD8_v2(0, 0, 1), "beside a capture we cannot wait");
}

static void test_work_by_entry_points_of_newer_drivers_is_reported(void)
{
    TEST_ASSERT_EQUAL_INT(0, cuLaunchHostFunc_v2(stream, NULL, NULL, 1));
    TEST_ASSERT_EQUAL_STRING("wc", fake.order);
    TEST_ASSERT_EQUAL_HEX64(STREAM_KEY, fake.key);
    fake = (struct fake){.foreign = true};
    TEST_ASSERT_EQUAL_INT(0, cuMemcpyWithAttributesAsync_ptsz(0, 0, 1, NULL, NULL));
    TEST_ASSERT_EQUAL_STRING("wcW", fake.order);
    TEST_ASSERT_EQUAL_HEX64(THREAD_KEY, fake.key);
}

/* ---- captures ---- */

static void test_a_capture_is_announced_first_and_taken_back_if_refused(void)
{
    TEST_ASSERT_EQUAL_INT(0, cuStreamBeginCapture_v2(stream, 0));
    TEST_ASSERT_EQUAL_STRING("bwc", fake.order);
    TEST_ASSERT_EQUAL_PTR((CUcontext)0x55, fake.context);
    fake = (struct fake){.result = CUDA_ERROR_ILLEGAL_STATE};
    TEST_ASSERT_EQUAL_INT(fake.result, cuStreamBeginCapture_v2(stream, 0));
    TEST_ASSERT_EQUAL_STRING("bwce", fake.order);
    TEST_ASSERT_EQUAL_HEX64(STREAM_KEY, fake.key);
}

/* A free beside a capture that is not known of would end it. */
static void test_a_capture_into_a_graph_that_exists_is_announced_as_well(void)
{
    TEST_ASSERT_EQUAL_INT(0, cuStreamBeginRecaptureToGraph(stream, 0, NULL, NULL, NULL));
    TEST_ASSERT_EQUAL_STRING("bwc", fake.order);
    TEST_ASSERT_EQUAL_HEX64(STREAM_KEY, fake.key);
    fake = (struct fake){.result = CUDA_ERROR_INVALID_VALUE};
    TEST_ASSERT_EQUAL_INT(fake.result, cuStreamBeginRecaptureToGraph_ptsz(NULL, 0, NULL, NULL, NULL));
    TEST_ASSERT_EQUAL_STRING("bwce", fake.order);
    TEST_ASSERT_EQUAL_HEX64(THREAD_KEY, fake.key);
}

/* Returns true if a capture counts as ended after cuStreamEndCapture. */
static bool ends(CUresult result, CUstreamCaptureStatus before, CUstreamCaptureStatus after)
{
    CUgraph graph;

    fake = (struct fake){.result = result, .status = before, .status_after = after};
    TEST_ASSERT_EQUAL_INT(result, cuStreamEndCapture(stream, &graph));
    return strchr(fake.order, 'e') != NULL;
}

static void test_a_capture_ends_when_the_stream_no_longer_captures(void)
{
    const CUstreamCaptureStatus none = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUstreamCaptureStatus active = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    const CUstreamCaptureStatus broken = CU_STREAM_CAPTURE_STATUS_INVALIDATED;

    TEST_ASSERT_TRUE(ends(CUDA_SUCCESS, active, none));
    TEST_ASSERT_TRUE(ends(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, broken, none));
    TEST_ASSERT_FALSE(ends(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, active, active));
    TEST_ASSERT_FALSE(ends(CUDA_ERROR_ILLEGAL_STATE, active, none)); /* another thread has ended it */
    TEST_ASSERT_FALSE(ends(CUDA_ERROR_INVALID_VALUE, none, none));
}

static void test_a_capture_ends_with_its_stream(void)
{
    fake.capturing = true;
    fake.status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    TEST_ASSERT_EQUAL_INT(0, cuStreamDestroy_v2(stream));
    TEST_ASSERT_EQUAL_STRING("xce", fake.order);
    fake.order[0] = '\0';
    fake.result = CUDA_ERROR_INVALID_HANDLE;
    cuStreamDestroy_v2(stream);
    TEST_ASSERT_EQUAL_STRING("xc", fake.order);
    fake = (struct fake){.capturing = true};
    cuStreamDestroy_v2(stream); /* not one that captures */
    TEST_ASSERT_EQUAL_STRING("xc", fake.order);
}

/* ---- figures ---- */

static void test_free_and_total_are_those_of_the_limit(void)
{
    size_t free_bytes, total;

    TEST_ASSERT_EQUAL_INT(0, cuMemGetInfo_v2(&free_bytes, &total));
    TEST_ASSERT_EQUAL_UINT64(350, free_bytes);
    TEST_ASSERT_EQUAL_UINT64(5000, total);
    TEST_ASSERT_EQUAL_INT(0, cuMemGetInfo_v2(NULL, NULL));
    TEST_ASSERT_EQUAL_INT(0, cuDeviceTotalMem_v2(&total, CARD));
    TEST_ASSERT_EQUAL_UINT64(5000, total);
    TEST_ASSERT_EQUAL_INT(0, cuDeviceTotalMem_v2(NULL, CARD));
    atomic_store(&device.limit, 10000); /* more than the card has */
    fake.roomy = true;
    cuMemGetInfo_v2(&free_bytes, &total);
    TEST_ASSERT_EQUAL_UINT64(1050, free_bytes);
    TEST_ASSERT_EQUAL_UINT64(8000, total);
    cuDeviceTotalMem_v2(&total, CARD);
    TEST_ASSERT_EQUAL_UINT64(8000, total);
    fake.unlimited = true;
    cuMemGetInfo_v2(&free_bytes, &total);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(1050, free_bytes, "what our pools hold idle is free");
    TEST_ASSERT_EQUAL_UINT64(8000, total);
    fake.no_device = true;
    cuMemGetInfo_v2(&free_bytes, &total);
    TEST_ASSERT_EQUAL_UINT64(1000, free_bytes);
    fake = (struct fake){.inactive = true};
    atomic_store(&device.limit, 5000);
    cuMemGetInfo_v2(&free_bytes, &total);
    TEST_ASSERT_EQUAL_UINT64(1000, free_bytes);
    cuDeviceTotalMem_v2(&total, CARD);
    TEST_ASSERT_EQUAL_UINT64(8000, total);
    fake = (struct fake){.result = CUDA_ERROR_INVALID_CONTEXT};
    TEST_ASSERT_EQUAL_INT(fake.result, cuMemGetInfo_v2(&free_bytes, &total));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(1000, free_bytes, "nothing is added to an error");
}

static void test_what_goes_back_to_the_driver_meanwhile_is_told_as_free(void)
{
    size_t free_bytes, total;

    fake.trims = 3;
    TEST_ASSERT_EQUAL_INT(0, cuMemGetInfo_v2(&free_bytes, &total));
    TEST_ASSERT_EQUAL_UINT64(350, free_bytes);
    TEST_ASSERT_EQUAL_INT(0, fake.trims);
}

static void test_a_recording_has_the_card_of_each_block(void)
{
    seen_note(CUDA_SUCCESS, RECORDING_ASYNC, 3, 0x1000, 10, stream);
    TEST_ASSERT_EQUAL_INT_MESSAGE(3, fake.noted.device, "the one that is given");
    TEST_ASSERT_EQUAL_INT(RECORDING_ALLOC, fake.noted.head.type);
    TEST_ASSERT_EQUAL_INT(RECORDING_ASYNC, fake.noted.kind);
    TEST_ASSERT_EQUAL_HEX64(0x1000, fake.noted.address);
    TEST_ASSERT_EQUAL_UINT64(10, fake.noted.bytes);
    TEST_ASSERT_EQUAL_HEX64(STREAM_KEY, fake.noted.other);
    TEST_ASSERT_EQUAL_INT(6, fake.noted.owner);
    TEST_ASSERT_EQUAL_INT(7, fake.noted.stack);
    seen_note(CUDA_SUCCESS, RECORDING_MALLOC, ROUTE_CURRENT, 0x1000, 10, NULL);
    TEST_ASSERT_EQUAL_INT_MESSAGE(2, fake.noted.device, "its pool's");
    seen_note(CUDA_SUCCESS, RECORDING_MALLOC, ROUTE_CURRENT, 0x2000, 10, NULL);
    TEST_ASSERT_EQUAL_INT_MESSAGE(CARD, fake.noted.device, "the current one");
    fake.only_card = true;
    seen_note(CUDA_SUCCESS, RECORDING_MALLOC, ROUTE_CURRENT, 0x2000, 10, NULL);
    TEST_ASSERT_EQUAL_INT(9, fake.noted.device);
    fake.only_card = false;
    fake.no_device = true;
    seen_note(CUDA_SUCCESS, RECORDING_MALLOC, ROUTE_CURRENT, 0x2000, 10, NULL);
    TEST_ASSERT_EQUAL_INT(0, fake.noted.device);
}

static void test_a_recording_has_full_cards_and_no_other_failures(void)
{
    seen_note(CUDA_ERROR_INVALID_VALUE, RECORDING_MALLOC, ROUTE_CURRENT, 0, 10, NULL);
    TEST_ASSERT_EQUAL_INT(-1, fake.full_card);
    seen_note(CUDA_ERROR_OUT_OF_MEMORY, RECORDING_MALLOC, ROUTE_CURRENT, 0, 10, NULL);
    TEST_ASSERT_EQUAL_INT(CARD, fake.full_card);
    TEST_ASSERT_EQUAL_UINT64(10, fake.full_bytes);
    TEST_ASSERT_EQUAL_INT(0, fake.notes);
}

static void test_a_recording_has_one_block_for_the_graphs_of_a_card(void)
{
    seen_graphs(1, 500);
    TEST_ASSERT_EQUAL_INT(0, fake.notes);
    atomic_store(&events_on, true);
    seen_graphs(1, 500);
    TEST_ASSERT_EQUAL_INT(RECORDING_ALLOC, fake.noted.head.type);
    TEST_ASSERT_EQUAL_UINT64(2, fake.noted.address);
    TEST_ASSERT_EQUAL_UINT64(500, fake.noted.bytes);
    TEST_ASSERT_EQUAL_INT(1, fake.noted.device);
    seen_graphs(1, 0);
    TEST_ASSERT_EQUAL_INT(RECORDING_FREE, fake.noted.head.type);
    TEST_ASSERT_EQUAL_INT(RECORDING_GRAPH, fake.noted.kind);
    TEST_ASSERT_EQUAL_UINT64(2, fake.noted.address);
}

/* ---- start ---- */

static void test_a_look_up_by_the_driver_gives_the_hook(void)
{
    void *function = NULL;

    TEST_ASSERT_EQUAL_INT(0, cuGetProcAddress("known", &function, 12000, 0));
    TEST_ASSERT_EQUAL_PTR(&hook_function, function);
    TEST_ASSERT_EQUAL_INT(0, cuGetProcAddress_v2("ours", &function, 12000, 0, NULL));
    TEST_ASSERT_EQUAL_PTR(&hook_function, function);
    TEST_ASSERT_EQUAL_INT(0, cuGetProcAddress("none", &function, 12000, 0));
    TEST_ASSERT_EQUAL_INT(0, cuGetProcAddress("none", NULL, 12000, 0));
    TEST_ASSERT_EQUAL_STRING("", fake.unknown);
    atomic_store(&rebind_pending, true);
    cuGetProcAddress("unknown", &function, 12000, 0);
    TEST_ASSERT_EQUAL_PTR(&fake, function);
    TEST_ASSERT_EQUAL_STRING("unknown", fake.unknown);
    TEST_ASSERT_EQUAL_STRING("r", fake.order);
    fake = (struct fake){.result = CUDA_ERROR_NOT_FOUND};
    TEST_ASSERT_EQUAL_INT(fake.result, cuGetProcAddress("known", &function, 12000, 0));
    TEST_ASSERT_EQUAL_PTR(&driver_function, function);
    cuGetProcAddress("unknown", &function, 12000, 0);
    TEST_ASSERT_EQUAL_STRING("", fake.unknown);
}

/* In this order: cuInit remembers that CUDA has started. */
static void test_cuda_is_refused_if_limits_cannot_be_kept(void)
{
    atomic_store(&mode, LIBRARY_REFUSE);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_PERMITTED, cuInit(0));
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", fake.order, "the driver is not started");
    atomic_store(&mode, LIBRARY_ON);
    fake.result = CUDA_ERROR_NO_DEVICE;
    options.max.count = 1;
    fake.knows_pid = false;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NO_DEVICE, cuInit(0));
    TEST_ASSERT_EQUAL_INT(1, fake.measure_starts);
    TEST_ASSERT_EQUAL_INT(0, fake.started + fake.measure_readies + fake.begun + fake.refused);

    fake = (struct fake){.result = CUDA_ERROR_NO_DEVICE, .knows_pid = true};
    cuInit(0);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, fake.measure_starts, "NVML knows us by our number: there is time");
    strcpy(options.record, "f");
    fake.order[0] = '\0';
    cuInit(0);
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, fake.measure_starts, "a recording begins with a figure");

    fake = (struct fake){.bad_rules = true};
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_PERMITTED, cuInit(0));
    TEST_ASSERT_EQUAL_INT(1, fake.refused);
    TEST_ASSERT_EQUAL_INT(1, fake.started);
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, fake.measure_starts,
                                  "NVML looks at the cards before our context exists");
    TEST_ASSERT_EQUAL_INT(1, fake.measure_readies);
    TEST_ASSERT_EQUAL_INT(1, fake.begun);
}

static void test_a_program_may_start_cuda_again_and_again(void)
{
    options.max.count = 1;
    fake.knows_pid = false;
    fake.started = 1;
    atomic_store(&rebind_pending, true);
    TEST_ASSERT_EQUAL_INT(0, cuInit(0));
    TEST_ASSERT_EQUAL_STRING("cr", fake.order);
    TEST_ASSERT_EQUAL_INT(0, fake.measure_starts + fake.measure_readies + fake.begun + fake.refused);
    atomic_store(&mode, LIBRARY_PASS);
    fake.bad_rules = true;
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, cuInit(0), "without limits nothing is checked");
    atomic_store(&mode, LIBRARY_ON);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_work_is_reported_before_it_is_submitted);
    RUN_TEST(test_work_that_waits_for_a_flag_or_has_many_streams_is_announced);
    RUN_TEST(test_work_by_entry_points_of_newer_drivers_is_reported);
    RUN_TEST(test_fills_wait_for_the_device_once_memory_is_synchronous);
    RUN_TEST(test_a_capture_is_announced_first_and_taken_back_if_refused);
    RUN_TEST(test_a_capture_into_a_graph_that_exists_is_announced_as_well);
    RUN_TEST(test_a_capture_ends_when_the_stream_no_longer_captures);
    RUN_TEST(test_a_capture_ends_with_its_stream);
    RUN_TEST(test_free_and_total_are_those_of_the_limit);
    RUN_TEST(test_what_goes_back_to_the_driver_meanwhile_is_told_as_free);
    RUN_TEST(test_a_recording_has_the_card_of_each_block);
    RUN_TEST(test_a_recording_has_full_cards_and_no_other_failures);
    RUN_TEST(test_a_recording_has_one_block_for_the_graphs_of_a_card);
    RUN_TEST(test_a_look_up_by_the_driver_gives_the_hook);
    RUN_TEST(test_cuda_is_refused_if_limits_cannot_be_kept);
    RUN_TEST(test_a_program_may_start_cuda_again_and_again);
    return UNITY_END();
}
