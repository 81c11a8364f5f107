/* The hooks on queries about addresses and on shared memory, over a fake driver: what they ask it, and what
 * they change in its answer. Pools and blocks of other processes are the test's own. */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/hook/hooks.h"
#include "interpose/hook/memops.h"
#include "interpose/hook/pointer.h"
#include "interpose/hook/seen.h"
#include "interpose/pool/pools.h"
#include "interpose/share/ipc.h"

#define POOL    (UINT64_C(1) << 40) /* addresses of a pool, and of an opened block */
#define OPENED  (UINT64_C(2) << 40)
#define FOREIGN (UINT64_C(3) << 40)
#define START   (POOL + VMM_PAGE - 512)
#define BYTES   1000
#define CARD    4
#define ID_BASE (UINT64_C(1) << 61)

#define ATTRIBUTE(name) CU_POINTER_ATTRIBUTE_##name

atomic_bool memops_synchronous;
_Thread_local uint16_t owner_current;
_Thread_local uint32_t owner_stack;

static struct pool pool = {.ordinal = CARD, .context = (CUcontext)0x50};
static struct fake {
    CUresult result; /* the driver's */
    CUdeviceptr asked;
    CUpointer_attribute attribute;
    unsigned count;
    uint64_t writes; /* what the driver writes for an attribute */
    bool inactive, is_synchronous, decompresses, not_ours, no_context;
    bool ended, captures; /* the current context has ended; a capture is open */
    int expose_rc, sync_rc, peer_rc, ipc_rc;
    int exposed, settled, synced, pushed, popped, disabled, not_alone, peers_added, peers_removed;
    CUdevice peer;
    bool sync_on;
    uint64_t exported;
    CUcontext opened_in;
    int driver_opens, driver_closes, notes, kept;
    uint64_t seen_bytes;
} fake;

/* ---- the test's own library ---- */

bool capture_any(void)
{
    return fake.captures;
}

bool route_active(void)
{
    return !fake.inactive;
}

struct pool *pools_of(uint64_t address)
{
    return address >= POOL && address < OPENED ? &pool : NULL;
}

struct pool *pools_current(void)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, fake.pushed - fake.popped, "asked in the peer's context");
    return &pool;
}

CUcontext pools_owner(CUcontext context)
{
    return (CUcontext)((uintptr_t)context + 1);
}

void pools_distrust(void)
{
    fake.not_alone++;
}

int pool_block(struct pool *of, uint64_t address, bool inside, struct pool_block *block)
{
    TEST_ASSERT_EQUAL_PTR(&pool, of);
    *block =
        (struct pool_block){.address = START, .asked = BYTES, .id = 9, .sync_memops = fake.is_synchronous};
    return address == START || (inside && address - START < BYTES) ? 0 : -EINVAL;
}

int pool_set_sync_memops(struct pool *of, uint64_t address, bool on)
{
    (void)of;
    TEST_ASSERT_EQUAL_HEX64(START, address);
    fake.synced++;
    fake.sync_on = on;
    return fake.sync_rc;
}

int pool_expose(struct pool *of, uint64_t address)
{
    (void)of;
    TEST_ASSERT_EQUAL_HEX64(START, address);
    fake.exposed++;
    return fake.expose_rc;
}

void pool_wait_all(struct pool *of)
{
    (void)of;
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, fake.exposed, "first exposed, so that no later free is missed");
    fake.settled++;
}

int pool_add_peer(struct pool *of, CUdevice peer)
{
    (void)of;
    fake.peers_added++;
    fake.peer = peer;
    return fake.peer_rc;
}

void pool_remove_peer(struct pool *of, CUdevice peer)
{
    (void)of;
    fake.peers_removed++;
    fake.peer = peer;
}

bool vmm_decompresses(const struct vmm *vmm)
{
    (void)vmm;
    return fake.decompresses;
}

enum ipc_place ipc_find(uint64_t address, struct ipc_block *block)
{
    if (address < OPENED || address >= FOREIGN)
        return IPC_NOT_OURS;
    *block = (struct ipc_block){
        .start = OPENED, .bytes = BYTES, .id = 77, .context = (CUcontext)0x60, .ordinal = CARD + 1};
    return address - OPENED < BYTES ? IPC_BLOCK : IPC_BESIDE;
}

int ipc_export(struct pool *of, uint64_t address, CUipcMemHandle *handle)
{
    (void)of, (void)handle;
    fake.exported = address;
    return fake.ipc_rc;
}

bool ipc_is_ours(const CUipcMemHandle *handle)
{
    (void)handle;
    return !fake.not_ours;
}

int ipc_open(const CUipcMemHandle *handle, CUcontext context, CUdeviceptr *address)
{
    (void)handle;
    fake.opened_in = context;
    *address = OPENED;
    return fake.ipc_rc;
}

int ipc_close(CUdeviceptr address)
{
    return address == OPENED ? 0 : -ENOENT;
}

void owner_enter(void *return_address)
{
    (void)return_address;
}

void events_publish(struct recording_event *slot)
{
    fake.kept += slot->head.type == EVENTS_KEPT;
}

void seen_note(CUresult result, enum recording_kind kind, CUdevice ordinal, uint64_t address, uint64_t bytes,
               CUstream stream)
{
    (void)stream;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, result);
    TEST_ASSERT_EQUAL_INT(RECORDING_IMPORT, kind);
    TEST_ASSERT_EQUAL_INT(ROUTE_CURRENT, ordinal);
    TEST_ASSERT_EQUAL_HEX64(OPENED, address);
    fake.seen_bytes = bytes;
    fake.notes++;
}

/* ---- the test's own driver ---- */

static CUresult get_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    fake.asked = address;
    if (base)
        *base = 1;
    if (bytes)
        *bytes = 2;
    return fake.result;
}

static CUresult get_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    fake.asked = address;
    fake.attribute = attribute;
    if (data)
        memcpy(data, &fake.writes, sizeof(fake.writes));
    return fake.result;
}

static CUresult get_attributes(unsigned count, CUpointer_attribute *attributes, void **data,
                               CUdeviceptr address)
{
    fake.asked = address;
    fake.count = count;
    for (unsigned i = 0; i < count; i++) {
        (void)attributes[i];
        if (data[i])
            memcpy(data[i], &fake.writes, sizeof(fake.writes));
    }
    return fake.result;
}

static CUresult set_attribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    (void)value;
    fake.asked = address;
    fake.attribute = attribute;
    return fake.result;
}

static CUresult get_handle(void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
                           unsigned long long flags)
{
    (void)handle, (void)bytes, (void)type, (void)flags;
    fake.asked = address;
    return fake.result;
}

static CUresult push(CUcontext context)
{
    TEST_ASSERT_EQUAL_PTR((CUcontext)0x70, context);
    fake.pushed++;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *context)
{
    (void)context;
    fake.popped++;
    return CUDA_SUCCESS;
}

static CUresult get_card(CUdevice *card)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(fake.pushed, fake.popped, "the program's own context is current again");
    *card = 2;
    return CUDA_SUCCESS;
}

static CUresult enable_peer(CUcontext peer, unsigned flags)
{
    (void)peer, (void)flags;
    return fake.result;
}

static CUresult disable_peer(CUcontext peer)
{
    (void)peer;
    fake.disabled++;
    return fake.result;
}

static CUresult get_current(CUcontext *context)
{
    *context = fake.no_context ? NULL : (CUcontext)0x70;
    return CUDA_SUCCESS;
}

static CUresult ipc_get(CUipcMemHandle *handle, CUdeviceptr address)
{
    (void)handle;
    fake.asked = address;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult ipc_driver_open(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags)
{
    (void)address, (void)handle, (void)flags;
    fake.driver_opens++;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult mem_alloc(CUdeviceptr *address, size_t bytes)
{
    (void)address, (void)bytes;
    TEST_ASSERT_FALSE_MESSAGE(fake.captures, "it might end the capture");
    return fake.ended ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult ipc_driver_close(CUdeviceptr address)
{
    (void)address;
    fake.driver_closes++;
    return CUDA_ERROR_UNKNOWN;
}

void setUp(void)
{
    fake = (struct fake){0};
    atomic_store(&memops_synchronous, false);
    atomic_store(&events_on, false);
    driver_entries.cuMemGetAddressRange_v2 = get_range;
    driver_entries.cuPointerGetAttribute = get_attribute;
    driver_entries.cuPointerGetAttributes = get_attributes;
    driver_entries.cuPointerSetAttribute = set_attribute;
    driver_entries.cuMemGetHandleForAddressRange = get_handle;
    driver_entries.cuCtxPushCurrent_v2 = push;
    driver_entries.cuCtxPopCurrent_v2 = pop;
    driver_entries.cuCtxGetDevice = get_card;
    driver_entries.cuCtxGetCurrent = get_current;
    driver_entries.cuCtxEnablePeerAccess = enable_peer;
    driver_entries.cuCtxDisablePeerAccess = disable_peer;
    driver_entries.cuIpcGetMemHandle = ipc_get;
    driver_entries.cuIpcOpenMemHandle = ipc_driver_open;
    driver_entries.cuIpcOpenMemHandle_v2 = ipc_driver_open;
    driver_entries.cuIpcCloseMemHandle = ipc_driver_close;
    driver_entries.cuMemAlloc_v2 = mem_alloc;
}

void tearDown(void) {}

static uint64_t attribute(CUpointer_attribute name, CUdeviceptr address)
{
    uint64_t value = UINT64_C(0x5555555555555555);

    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, cuPointerGetAttribute(&value, name, address));
    return value;
}

/* ---- addresses ---- */

static void test_the_range_of_a_block_is_the_programs(void)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;

    TEST_ASSERT_EQUAL_INT(0, cuMemGetAddressRange_v2(&base, &bytes, START + 999));
    TEST_ASSERT_EQUAL_HEX64(START, base);
    TEST_ASSERT_EQUAL_UINT64(BYTES, bytes);
    TEST_ASSERT_EQUAL_INT(0, cuMemGetAddressRange_v2(NULL, NULL, START));
    cuMemGetAddressRange_v2(&base, &bytes, START + BYTES); /* in no block */
    TEST_ASSERT_EQUAL_HEX64(POINTER_NOWHERE, fake.asked);
    TEST_ASSERT_EQUAL_UINT64(1, base);
    cuMemGetAddressRange_v2(&base, &bytes, OPENED + 1);
    TEST_ASSERT_EQUAL_HEX64(OPENED, base);
    cuMemGetAddressRange_v2(&base, &bytes, OPENED + BYTES); /* beside it */
    TEST_ASSERT_EQUAL_HEX64(POINTER_NOWHERE, fake.asked);
    cuMemGetAddressRange_v2(&base, &bytes, FOREIGN);
    TEST_ASSERT_EQUAL_HEX64(FOREIGN, fake.asked);
    TEST_ASSERT_EQUAL_UINT64(1, base);
    fake.result = CUDA_ERROR_DEINITIALIZED;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_DEINITIALIZED, cuMemGetAddressRange_v2(&base, &bytes, START));
    TEST_ASSERT_EQUAL_UINT64(1, base);
    fake.inactive = true; /* after exit, and in a forked child */
    cuMemGetAddressRange_v2(&base, &bytes, START + BYTES);
    TEST_ASSERT_EQUAL_HEX64(START + BYTES, fake.asked);
}

static void test_attributes_of_a_block_are_not_those_of_a_chunk(void)
{
    fake.is_synchronous = true;
    TEST_ASSERT_EQUAL_HEX64(0x50, attribute(ATTRIBUTE(CONTEXT), START));
    TEST_ASSERT_EQUAL_HEX64(UINT64_C(0x5555555500000001), attribute(ATTRIBUTE(SYNC_MEMOPS), START));
    TEST_ASSERT_EQUAL_HEX64(ID_BASE + 9, attribute(ATTRIBUTE(BUFFER_ID), START));
    TEST_ASSERT_EQUAL_HEX64(ID_BASE + 9, attribute(ATTRIBUTE(MEMORY_BLOCK_ID), START));
    TEST_ASSERT_EQUAL_HEX64(START, attribute(ATTRIBUTE(RANGE_START_ADDR), START + 5));
    TEST_ASSERT_EQUAL_UINT64(BYTES, attribute(ATTRIBUTE(RANGE_SIZE), START + 5));
    TEST_ASSERT_EQUAL_HEX64(POOL, attribute(ATTRIBUTE(MAPPING_BASE_ADDR), START));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(2 * VMM_PAGE, attribute(ATTRIBUTE(MAPPING_SIZE), START),
                                     "it lies on two pages");
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, fake.asked, "the driver was not asked");
    fake.writes = 0x0101;
    TEST_ASSERT_EQUAL_HEX64(0x0101, attribute(ATTRIBUTE(IS_LEGACY_CUDA_IPC_CAPABLE), START));
    TEST_ASSERT_EQUAL_HEX64(START, fake.asked);
    TEST_ASSERT_EQUAL_HEX64(0x0100, attribute(ATTRIBUTE(IS_HW_DECOMPRESS_CAPABLE), START));
    fake.decompresses = true;
    TEST_ASSERT_EQUAL_HEX64(0x0101, attribute(ATTRIBUTE(IS_HW_DECOMPRESS_CAPABLE), START));
    TEST_ASSERT_EQUAL_HEX64(0x0100, attribute(ATTRIBUTE(ALLOWED_HANDLE_TYPES), START));
    TEST_ASSERT_EQUAL_HEX64(0x0101, attribute(ATTRIBUTE(DEVICE_ORDINAL), START + 3));
    TEST_ASSERT_EQUAL_HEX64(START + 3, fake.asked);
    fake.result = CUDA_ERROR_INVALID_VALUE;
    uint64_t value = 7;
    TEST_ASSERT_EQUAL_INT(fake.result, cuPointerGetAttribute(&value, ATTRIBUTE(ALLOWED_HANDLE_TYPES), START));
    TEST_ASSERT_EQUAL_HEX64(0x0101, value);
    TEST_ASSERT_EQUAL_INT(fake.result, cuPointerGetAttribute(NULL, ATTRIBUTE(RANGE_SIZE), START));
}

static void test_attributes_of_an_opened_block(void)
{
    fake.writes = 0x0101;
    fake.decompresses = true;
    TEST_ASSERT_EQUAL_HEX64(0x60, attribute(ATTRIBUTE(CONTEXT), OPENED));
    TEST_ASSERT_EQUAL_HEX64(ID_BASE + 77, attribute(ATTRIBUTE(BUFFER_ID), OPENED));
    TEST_ASSERT_EQUAL_HEX64(0x0100, attribute(ATTRIBUTE(IS_LEGACY_CUDA_IPC_CAPABLE), OPENED));
    TEST_ASSERT_EQUAL_HEX64(0x0100, attribute(ATTRIBUTE(IS_HW_DECOMPRESS_CAPABLE), OPENED));
    TEST_ASSERT_EQUAL_HEX64(0x0101, attribute(ATTRIBUTE(SYNC_MEMOPS), OPENED + 5));
    TEST_ASSERT_EQUAL_HEX64_MESSAGE(OPENED, fake.asked, "the first chunk stands for all");
    TEST_ASSERT_EQUAL_HEX64(0x0101, attribute(ATTRIBUTE(DEVICE_ORDINAL), OPENED + 5));
    TEST_ASSERT_EQUAL_HEX64(OPENED + 5, fake.asked);
    struct pointer_block block;
    TEST_ASSERT_EQUAL_INT(POINTER_BLOCK, pointer_look(OPENED, &block));
    TEST_ASSERT_EQUAL_INT(CARD + 1, block.ordinal);
    TEST_ASSERT_NULL(block.pool);
    TEST_ASSERT_EQUAL_INT(POINTER_BLOCK, pointer_look(START + 1, &block));
    TEST_ASSERT_EQUAL_INT(CARD, block.ordinal);
    TEST_ASSERT_EQUAL_PTR(&pool, block.pool);
}

static void test_an_address_in_no_block_is_repeated_as_the_program_gave_it(void)
{
    static const CUpointer_attribute names[] = {ATTRIBUTE(HOST_POINTER), ATTRIBUTE(DEVICE_POINTER),
                                                ATTRIBUTE(MEMORY_TYPE)};
    const CUdeviceptr address = START + BYTES;
    uint64_t values[3] = {0};
    void *data[3] = {&values[0], &values[1], &values[2]};

    fake.writes = POINTER_NOWHERE;
    TEST_ASSERT_EQUAL_HEX64(address, attribute(ATTRIBUTE(HOST_POINTER), address));
    TEST_ASSERT_EQUAL_HEX64(POINTER_NOWHERE, fake.asked);
    TEST_ASSERT_EQUAL_HEX64(address, attribute(ATTRIBUTE(DEVICE_POINTER), address));
    TEST_ASSERT_EQUAL_HEX64(POINTER_NOWHERE, attribute(ATTRIBUTE(MEMORY_TYPE), address));
    TEST_ASSERT_EQUAL_INT(0, cuPointerGetAttributes(3, (CUpointer_attribute *)names, data, address));
    TEST_ASSERT_EQUAL_HEX64(POINTER_NOWHERE, fake.asked);
    TEST_ASSERT_EQUAL_HEX64(address, values[0]);
    TEST_ASSERT_EQUAL_HEX64(address, values[1]);
    TEST_ASSERT_EQUAL_HEX64(POINTER_NOWHERE, values[2]);
    fake.writes = 0; /* "no answer" stays */
    TEST_ASSERT_EQUAL_HEX64(0, attribute(ATTRIBUTE(HOST_POINTER), address));
}

static void test_several_attributes_at_once(void)
{
    CUpointer_attribute names[] = {ATTRIBUTE(RANGE_SIZE), ATTRIBUTE(CONTEXT), ATTRIBUTE(RANGE_SIZE)};
    uint64_t values[2] = {0};
    void *data[3] = {&values[0], &values[1], NULL};

    TEST_ASSERT_EQUAL_INT(0, cuPointerGetAttributes(3, names, data, START + 1));
    TEST_ASSERT_EQUAL_HEX64_MESSAGE(POINTER_NOWHERE, fake.asked, "only to have the arguments checked");
    TEST_ASSERT_EQUAL_UINT64(BYTES, values[0]);
    TEST_ASSERT_EQUAL_HEX64(0x50, values[1]);
    values[0] = 0;
    TEST_ASSERT_EQUAL_INT(0, cuPointerGetAttributes(2, names, data, FOREIGN));
    TEST_ASSERT_EQUAL_HEX64(FOREIGN, fake.asked);
    fake.result = CUDA_ERROR_INVALID_VALUE;
    TEST_ASSERT_EQUAL_INT(fake.result, cuPointerGetAttributes(2, names, data, START));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, values[0], "nothing is added to an error");
}

static void test_synchronous_memory_is_exposed_and_settled(void)
{
    const unsigned on = 256, off = 0;

    TEST_ASSERT_EQUAL_INT(0, cuPointerSetAttribute(&on, ATTRIBUTE(SYNC_MEMOPS), START + 1));
    TEST_ASSERT_TRUE(fake.sync_on && atomic_load(&memops_synchronous));
    TEST_ASSERT_EQUAL_INT(1, fake.exposed);
    TEST_ASSERT_EQUAL_INT(1, fake.settled);
    TEST_ASSERT_EQUAL_INT(0, cuPointerSetAttribute(&off, ATTRIBUTE(SYNC_MEMOPS), START));
    TEST_ASSERT_FALSE(fake.sync_on);
    TEST_ASSERT_EQUAL_INT(1, fake.exposed);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(&on, ATTRIBUTE(CONTEXT), START));
    TEST_ASSERT_EQUAL_INT(2, fake.synced);
    fake.sync_rc = -EINVAL; /* freed meanwhile */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          cuPointerSetAttribute(&off, ATTRIBUTE(SYNC_MEMOPS), START));
    fake = (struct fake){.expose_rc = -EINVAL};
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          cuPointerSetAttribute(&on, ATTRIBUTE(SYNC_MEMOPS), START));
    TEST_ASSERT_EQUAL_INT(0, fake.settled + fake.synced);
    cuPointerSetAttribute(&on, ATTRIBUTE(SYNC_MEMOPS), START + BYTES);
    TEST_ASSERT_EQUAL_HEX64(POINTER_NOWHERE, fake.asked);
    cuPointerSetAttribute(&on, ATTRIBUTE(SYNC_MEMOPS), OPENED + 1);
    TEST_ASSERT_EQUAL_HEX64(OPENED + 1, fake.asked);
    cuPointerSetAttribute(NULL, ATTRIBUTE(SYNC_MEMOPS), START);
    TEST_ASSERT_EQUAL_HEX64(START, fake.asked);
}

static void test_tokens_for_other_devices_make_a_block_synchronous(void)
{
    uint64_t token[2];

    fake.result = CUDA_ERROR_NOT_SUPPORTED;
    cuPointerGetAttribute(token, ATTRIBUTE(P2P_TOKENS), START + 8);
    TEST_ASSERT_EQUAL_INT(0, fake.exposed);
    fake.result = CUDA_SUCCESS;
    TEST_ASSERT_EQUAL_INT(0, cuPointerGetAttribute(token, ATTRIBUTE(P2P_TOKENS), START + 8));
    TEST_ASSERT_EQUAL_HEX64(START, fake.asked);
    TEST_ASSERT_EQUAL_INT(1, fake.exposed);
    TEST_ASSERT_TRUE(fake.sync_on);
}

static void test_a_descriptor_covers_a_block_rounded_to_pages(void)
{
    const CUdeviceptr page = START & ~((CUdeviceptr)sysconf(_SC_PAGESIZE) - 1);
    const size_t bytes = 2 * (size_t)sysconf(_SC_PAGESIZE);
    int handle;

    cuMemGetHandleForAddressRange(&handle, page, bytes, 0, 0);
    TEST_ASSERT_EQUAL_HEX64(page, fake.asked);
    TEST_ASSERT_EQUAL_INT(1, fake.exposed);
    TEST_ASSERT_EQUAL_INT(1, fake.settled);
    cuMemGetHandleForAddressRange(&handle, page, bytes + 1, 0, 0);
    TEST_ASSERT_EQUAL_HEX64_MESSAGE(POINTER_NOWHERE, fake.asked, "beyond the last page of the block");
    cuMemGetHandleForAddressRange(&handle, START, (size_t)-1, 0, 0);
    TEST_ASSERT_EQUAL_HEX64(POINTER_NOWHERE, fake.asked);
    cuMemGetHandleForAddressRange(&handle, FOREIGN, bytes, 0, 0);
    TEST_ASSERT_EQUAL_HEX64(FOREIGN, fake.asked);
    TEST_ASSERT_EQUAL_INT(1, fake.exposed);
}

static void test_another_card_gets_access_to_the_pool_as_well(void)
{
    TEST_ASSERT_EQUAL_INT(0, cuCtxEnablePeerAccess((CUcontext)0x70, 0));
    TEST_ASSERT_EQUAL_INT(1, fake.peers_added);
    TEST_ASSERT_EQUAL_INT(2, fake.peer);
    TEST_ASSERT_EQUAL_INT(1, fake.not_alone);
    TEST_ASSERT_EQUAL_INT(0, fake.disabled);
    TEST_ASSERT_EQUAL_INT(0, cuCtxDisablePeerAccess((CUcontext)0x70));
    TEST_ASSERT_EQUAL_INT(1, fake.peers_removed);
    TEST_ASSERT_EQUAL_INT(2, fake.peer);
    fake = (struct fake){.peer_rc = -ENOMEM};
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess((CUcontext)0x70, 0));
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, fake.disabled, "what the driver has done is undone");
    fake = (struct fake){.result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED};
    TEST_ASSERT_EQUAL_INT(fake.result, cuCtxEnablePeerAccess((CUcontext)0x70, 0));
    TEST_ASSERT_EQUAL_INT(fake.result, cuCtxDisablePeerAccess((CUcontext)0x70));
    TEST_ASSERT_EQUAL_INT(0, fake.peers_added + fake.peers_removed + fake.not_alone);
}

/* ---- shared memory ---- */

static void test_a_block_is_exported_from_its_start(void)
{
    static const struct {
        int rc;
        CUresult code;
    } codes[] = {{0, CUDA_SUCCESS},
                 {-EXDEV, CUDA_ERROR_INVALID_CONTEXT},
                 {-ENODEV, CUDA_ERROR_INVALID_DEVICE},
                 {-ENOTSUP, CUDA_ERROR_NOT_SUPPORTED},
                 {-ENOMEM, CUDA_ERROR_OUT_OF_MEMORY},
                 {-ENOSPC, CUDA_ERROR_OUT_OF_MEMORY},
                 {-ETIMEDOUT, CUDA_ERROR_TIMEOUT},
                 {-ECANCELED, CUDA_ERROR_CONTEXT_IS_DESTROYED},
                 {-EIO, CUDA_ERROR_MAP_FAILED},
                 {-ECONNREFUSED, CUDA_ERROR_INVALID_HANDLE},
                 {-ECONNRESET, CUDA_ERROR_INVALID_HANDLE},
                 {-EPIPE, CUDA_ERROR_INVALID_HANDLE},
                 {-EMFILE, CUDA_ERROR_OPERATING_SYSTEM},
                 {-ENFILE, CUDA_ERROR_OPERATING_SYSTEM},
                 {-ENOENT, CUDA_ERROR_INVALID_VALUE}};
    CUipcMemHandle handle;

    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
        fake.ipc_rc = codes[i].rc;
        TEST_ASSERT_EQUAL_INT(codes[i].code, cuIpcGetMemHandle(&handle, START + 3));
        TEST_ASSERT_EQUAL_HEX64(START, fake.exported);
    }
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, cuIpcGetMemHandle(&handle, START + BYTES));
    TEST_ASSERT_EQUAL_HEX64(POINTER_NOWHERE, fake.asked);
    cuIpcGetMemHandle(&handle, OPENED); /* natively an opened block cannot be exported either */
    TEST_ASSERT_EQUAL_HEX64(OPENED, fake.asked);
    cuIpcGetMemHandle(NULL, START);
    TEST_ASSERT_EQUAL_HEX64(START, fake.asked);
    fake.no_context = true;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, cuIpcGetMemHandle(&handle, START));
}

static void test_no_block_is_opened_in_a_context_that_has_ended(void)
{
    const unsigned lazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    CUipcMemHandle handle = {{0}};
    CUdeviceptr address = 0;

    fake.ended = true;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuIpcOpenMemHandle_v2(&address, handle, lazy));
    TEST_ASSERT_NULL(fake.opened_in);
    TEST_ASSERT_EQUAL_HEX64(0, address);
    fake.captures = true;
    TEST_ASSERT_EQUAL_INT(0, cuIpcOpenMemHandle_v2(&address, handle, lazy));
}

static void test_our_handles_are_opened_by_us_and_others_by_the_driver(void)
{
    const unsigned lazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    CUipcMemHandle handle = {{0}};
    CUdeviceptr address = 0;

    TEST_ASSERT_EQUAL_INT(0, cuIpcOpenMemHandle_v2(&address, handle, lazy));
    TEST_ASSERT_EQUAL_HEX64(OPENED, address);
    TEST_ASSERT_EQUAL_PTR((CUcontext)0x71, fake.opened_in); /* in the pool of its owner */
    TEST_ASSERT_EQUAL_INT(0, cuIpcOpenMemHandle(&address, handle, lazy));
    TEST_ASSERT_EQUAL_INT(0, fake.notes);
    atomic_store(&events_on, true);
    TEST_ASSERT_EQUAL_INT(0, cuIpcOpenMemHandle_v2(&address, handle, lazy));
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, fake.notes, "a recording knows it");
    TEST_ASSERT_EQUAL_UINT64(BYTES, fake.seen_bytes);
    TEST_ASSERT_EQUAL_INT(0, fake.driver_opens);
    fake.ipc_rc = -EIO;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_MAP_FAILED, cuIpcOpenMemHandle_v2(&address, handle, lazy));
    TEST_ASSERT_EQUAL_INT(1, fake.notes);
    fake.no_context = true;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&address, handle, lazy));
    fake.no_context = false;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, cuIpcOpenMemHandle_v2(&address, handle, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, cuIpcOpenMemHandle_v2(NULL, handle, lazy));
    fake.not_ours = true;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, cuIpcOpenMemHandle(&address, handle, lazy));
    TEST_ASSERT_EQUAL_INT(3, fake.driver_opens);
}

static void test_what_is_not_ours_is_closed_by_the_driver(void)
{
    TEST_ASSERT_EQUAL_INT(0, cuIpcCloseMemHandle(OPENED));
    TEST_ASSERT_EQUAL_INT(0, fake.driver_closes);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, cuIpcCloseMemHandle(FOREIGN));
    TEST_ASSERT_EQUAL_INT(1, fake.driver_closes);
    fake.no_context = true; /* the driver says what is wrong */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNKNOWN, cuIpcCloseMemHandle(OPENED));
    atomic_store(&events_on, true);
    fake.kept = 0;
    cuIpcCloseMemHandle(OPENED);
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, fake.kept, "a recording knows that it stays open");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_the_range_of_a_block_is_the_programs);
    RUN_TEST(test_attributes_of_a_block_are_not_those_of_a_chunk);
    RUN_TEST(test_attributes_of_an_opened_block);
    RUN_TEST(test_an_address_in_no_block_is_repeated_as_the_program_gave_it);
    RUN_TEST(test_several_attributes_at_once);
    RUN_TEST(test_synchronous_memory_is_exposed_and_settled);
    RUN_TEST(test_tokens_for_other_devices_make_a_block_synchronous);
    RUN_TEST(test_a_descriptor_covers_a_block_rounded_to_pages);
    RUN_TEST(test_another_card_gets_access_to_the_pool_as_well);
    RUN_TEST(test_a_block_is_exported_from_its_start);
    RUN_TEST(test_no_block_is_opened_in_a_context_that_has_ended);
    RUN_TEST(test_our_handles_are_opened_by_us_and_others_by_the_driver);
    RUN_TEST(test_what_is_not_ours_is_closed_by_the_driver);
    return UNITY_END();
}
