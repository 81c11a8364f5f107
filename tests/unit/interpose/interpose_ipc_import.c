/* ipc_import: what is mapped for a block of another process, and what is left when it is closed, cannot be
 * opened, or its context ends. The exporter, the driver, the fence and captures are the test's own. */
#include "interpose/pool/capture.h"
#include "interpose/share/ipc.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/base/lock.h"
#include "interpose/pool/decay.h"
#include "interpose/share/ipc_import.h"
#include "interpose/share/ipc_source.h"

#define PAGE   UINT64_C(0x200000)
#define BASE   UINT64_C(0x700000000000)
#define OFFSET 512
#define ONE    ((CUcontext)0x100)
#define OTHER  ((CUcontext)0x200)
#define CHUNKS 3

static const uint64_t sizes[CHUNKS] = {PAGE, 2 * PAGE, PAGE};
static const struct ipc_ticket ticket = {.id = 5, .bytes = 3 * PAGE, .offset = OFFSET};

static struct fake {
    int calls, fail_at; /* of the driver; the n-th fails, 0: none */
    int reservations, handles, maps, descriptors_used;
    int gets, puts, takes, drops, links, looks, asks;
    int take_rc;
    unsigned on_board;      /* chunks of the block on the board */
    bool is_done, captures; /* the fence's answer */
    bool wait_fails;
    void (*at_unmap)(void);
    CUcontext ends; /* while a block is fetched */
    int woken, waits;
    CUdevice current;
    uint64_t reserved, mapped;
    CUdevice access[2];
    size_t access_count;
    struct ipc_chunk lie; /* the last chunk, if its bytes are not 0 */
    struct ipc_chunks chunks;
} fake;

/* ---- the driver ---- */

static CUresult answer(void)
{
    return ++fake.calls == fake.fail_at ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult get_count(int *count)
{
    *count = 2;
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice ordinal)
{
    memset(uuid, 'A' + ordinal, sizeof(*uuid));
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device)
{
    *device = fake.current;
    return answer();
}

static CUstreamCaptureMode mode;

static CUresult exchange_mode(CUstreamCaptureMode *exchanged)
{
    const CUstreamCaptureMode before = mode;

    mode = *exchanged;
    *exchanged = before;
    return CUDA_SUCCESS;
}

static CUresult import_handle(CUmemGenericAllocationHandle *handle, void *fd, CUmemAllocationHandleType type)
{
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_MODE_RELAXED, mode); /* or it might end a capture */
    TEST_ASSERT_EQUAL_INT(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, type);
    TEST_ASSERT_EQUAL_INT(100 + fake.descriptors_used % CHUNKS, (int)(intptr_t)fd);
    if (answer() != CUDA_SUCCESS)
        return CUDA_ERROR_UNKNOWN;
    *handle = 1000 + (uint64_t)fake.descriptors_used++ % CHUNKS;
    fake.handles++;
    return CUDA_SUCCESS;
}

static CUresult release_handle(CUmemGenericAllocationHandle handle)
{
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(1000, handle);
    fake.handles--;
    return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *base, size_t bytes, size_t alignment, CUdeviceptr wanted,
                        unsigned long long flags)
{
    (void)alignment, (void)wanted, (void)flags;
    TEST_ASSERT_EQUAL_UINT64(4 * PAGE, bytes);
    if (answer() != CUDA_SUCCESS)
        return CUDA_ERROR_UNKNOWN;
    *base = BASE + fake.reserved;
    fake.reserved += 64 * PAGE;
    fake.reservations++;
    fake.mapped = 0;
    return CUDA_SUCCESS;
}

static CUresult map_handle(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                           unsigned long long flags)
{
    (void)flags;
    if (answer() != CUDA_SUCCESS)
        return CUDA_ERROR_UNKNOWN;
    TEST_ASSERT_EQUAL_UINT64(0, offset);
    TEST_ASSERT_EQUAL_HEX64(BASE + fake.reserved - 64 * PAGE + fake.mapped, at); /* side by side, in order */
    TEST_ASSERT_EQUAL_UINT64(sizes[handle - 1000], bytes);
    fake.mapped += bytes;
    fake.maps++;
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr base, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    TEST_ASSERT_EQUAL_HEX64(BASE + fake.reserved - 64 * PAGE, base);
    TEST_ASSERT_EQUAL_UINT64(4 * PAGE, bytes);
    fake.access_count = count;
    for (size_t i = 0; i < count; i++) {
        TEST_ASSERT_EQUAL_INT(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, access[i].flags);
        fake.access[i] = access[i].location.id;
    }
    return answer();
}

static CUresult unmap_range(CUdeviceptr base, size_t bytes)
{
    if (fake.at_unmap)
        fake.at_unmap();
    TEST_ASSERT_EQUAL_UINT64(0, (base - BASE) % (64 * PAGE));
    for (uint64_t at = 0; at < bytes; at += sizes[fake.maps % CHUNKS])
        fake.maps--;
    return CUDA_SUCCESS;
}

static CUresult free_address(CUdeviceptr base, size_t bytes)
{
    (void)base;
    TEST_ASSERT_EQUAL_UINT64(4 * PAGE, bytes);
    fake.reservations--;
    return CUDA_SUCCESS;
}

/* ---- the exporter ---- */

static struct ipc_source *const source = (struct ipc_source *)&fake;

int ipc_source_get(const struct ipc_ticket *of, struct ipc_source **out)
{
    (void)of;
    *out = source;
    fake.gets++;
    return 0;
}

void ipc_source_put(struct ipc_source *of)
{
    TEST_ASSERT_EQUAL_PTR(source, of);
    fake.puts++;
}

int ipc_source_take(struct ipc_source *of, uint64_t id)
{
    TEST_ASSERT_EQUAL_PTR(source, of);
    TEST_ASSERT_EQUAL_UINT64(5, id);
    fake.takes += fake.take_rc == 0;
    return fake.take_rc;
}

void ipc_source_drop(struct ipc_source *of, uint64_t id)
{
    TEST_ASSERT_EQUAL_PTR(source, of);
    TEST_ASSERT_EQUAL_UINT64(5, id);
    fake.drops++;
}

static int hand_over(unsigned first, unsigned count, ipc_source_taker *take, void *argument)
{
    int fds[CHUNKS + 1];

    fake.chunks.count = 0;
    for (unsigned i = first; i < first + count; i++) {
        struct ipc_chunk *chunk = &fake.chunks.list[fake.chunks.count];

        *chunk = (struct ipc_chunk){
            .id = 5, .bytes = ticket.bytes, .offset = OFFSET, .chunk_bytes = i < CHUNKS ? sizes[i] : PAGE};
        memset(&chunk->card, 'B', sizeof(chunk->card));
        if (i == CHUNKS - 1 && fake.lie.bytes)
            *chunk = fake.lie;
        fds[fake.chunks.count++] = 100 + (int)i % CHUNKS;
    }
    return take(argument, &fake.chunks, fds);
}

int ipc_source_look(const struct ipc_source *of, ipc_source_taker *take, void *argument)
{
    TEST_ASSERT_EQUAL_PTR(source, of);
    fake.looks++;
    if (fake.ends) {
        ipc_imports_ending(fake.ends, true);
        ipc_imports_end(fake.ends);
    }
    return fake.on_board ? hand_over(0, fake.on_board, take, argument) : 0;
}

int ipc_source_connect(struct ipc_link *link, const struct ipc_ticket *to)
{
    (void)link, (void)to;
    fake.links++;
    return 0;
}

int ipc_source_ask(const struct ipc_link *link, uint64_t id, uint64_t first, ipc_source_taker *take,
                   void *argument)
{
    (void)link;
    TEST_ASSERT_EQUAL_UINT64(5, id);
    fake.asks++;
    return first < CHUNKS ? hand_over((unsigned)first, 1, take, argument) : 0;
}

void ipc_source_disconnect(struct ipc_link *link)
{
    (void)link;
    fake.links--;
}

/* ---- the rest of the library ---- */

CUresult capture_wait_context(CUcontext context)
{
    TEST_ASSERT_TRUE(context == ONE || context == OTHER);
    fake.waits++;
    return fake.wait_fails ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

bool capture_any(void)
{
    return fake.captures;
}

void decay_wake(void)
{
    fake.woken++;
}

void fence_poll(struct fence *fence)
{
    (void)fence;
}

uint64_t fence_epoch_quietly(struct fence *fence)
{
    (void)fence;
    return 9;
}

bool fence_done(struct fence *fence, uint64_t epoch)
{
    (void)fence;
    TEST_ASSERT_EQUAL_UINT64(9, epoch);
    return fake.is_done;
}

void setUp(void)
{
    fake = (struct fake){.on_board = CHUNKS, .is_done = true};
    driver_entries.cuDeviceGetCount = get_count;
    driver_entries.cuDeviceGetUuid_v2 = get_uuid;
    driver_entries.cuCtxGetDevice = get_device;
    driver_entries.cuMemImportFromShareableHandle = import_handle;
    driver_entries.cuThreadExchangeStreamCaptureMode = exchange_mode;
    driver_entries.cuMemRelease = release_handle;
    driver_entries.cuMemAddressReserve = reserve;
    driver_entries.cuMemMap = map_handle;
    driver_entries.cuMemSetAccess = set_access;
    driver_entries.cuMemUnmap = unmap_range;
    driver_entries.cuMemAddressFree = free_address;
}

static void expect_nothing_left(void)
{
    struct ipc_block block;

    TEST_ASSERT_EQUAL_INT(0, fake.reservations);
    TEST_ASSERT_EQUAL_INT(0, fake.maps);
    TEST_ASSERT_EQUAL_INT(0, fake.handles);
    TEST_ASSERT_EQUAL_INT(0, fake.links);
    TEST_ASSERT_EQUAL_INT(fake.gets, fake.puts);
    TEST_ASSERT_EQUAL_INT(fake.takes, fake.drops);
    TEST_ASSERT_EQUAL_INT(IPC_NOT_OURS, ipc_find(BASE + OFFSET, &block));
    TEST_ASSERT_EQUAL_INT(0, lock_depth);
}

void tearDown(void)
{
    expect_nothing_left();
}

static CUdeviceptr open_in(CUcontext context)
{
    CUdeviceptr address = 0;

    TEST_ASSERT_EQUAL_INT(0, ipc_imports_open(&ticket, context, &address));
    return address;
}

/* ---- promises ---- */

static void test_a_block_is_mapped_from_all_its_chunks(void)
{
    struct ipc_block block, again;

    for (unsigned on_board = 0; on_board <= CHUNKS; on_board++) { /* the exporter is asked for the rest */
        fake.on_board = on_board;
        fake.asks = fake.descriptors_used = 0;
        const CUdeviceptr address = open_in(ONE);
        const uint64_t base = BASE + fake.reserved - 64 * PAGE;

        TEST_ASSERT_EQUAL_INT(CHUNKS - (int)on_board, fake.asks);
        TEST_ASSERT_EQUAL_HEX64(base + OFFSET, address);
        TEST_ASSERT_EQUAL_INT(IPC_BLOCK, ipc_find(address, &block));
        TEST_ASSERT_EQUAL_INT(IPC_BLOCK, ipc_find(address + ticket.bytes - 1, &block));
        TEST_ASSERT_EQUAL_INT(IPC_BESIDE, ipc_find(address - 1, &again));
        TEST_ASSERT_EQUAL_INT(IPC_BESIDE, ipc_find(address + ticket.bytes, &again));
        TEST_ASSERT_EQUAL_INT(IPC_NOT_OURS, ipc_find(base + 4 * PAGE, &again));
        TEST_ASSERT_EQUAL_INT(IPC_NOT_OURS, ipc_find(base - 1, &again));
        TEST_ASSERT_EQUAL_HEX64(address, block.start);
        TEST_ASSERT_EQUAL_UINT64(ticket.bytes, block.bytes);
        TEST_ASSERT_EQUAL_PTR(ONE, block.context);
        TEST_ASSERT_EQUAL_INT(1, block.ordinal); /* the memory is on card B */
        TEST_ASSERT_EQUAL_INT(0, ipc_close(address));
    }
}

static void test_a_block_of_another_card_can_be_reached_from_both(void)
{
    const CUdeviceptr address = open_in(ONE);

    TEST_ASSERT_EQUAL_size_t(2, fake.access_count);
    TEST_ASSERT_EQUAL_INT(1, fake.access[0] + fake.access[1]);
    TEST_ASSERT_EQUAL_INT(0, ipc_close(address));
    fake.current = 1;
    const CUdeviceptr here = open_in(ONE);
    TEST_ASSERT_EQUAL_size_t(1, fake.access_count);
    TEST_ASSERT_EQUAL_INT(1, fake.access[0]);
    TEST_ASSERT_EQUAL_INT(0, ipc_close(here));
}

static void test_a_block_is_open_until_its_last_close(void)
{
    struct ipc_block block, other_block;
    const CUdeviceptr address = open_in(ONE), other = open_in(OTHER);

    TEST_ASSERT_EQUAL_HEX64(address, open_in(ONE));
    TEST_ASSERT_NOT_EQUAL_UINT64(address, other);
    TEST_ASSERT_EQUAL_INT(IPC_BLOCK, ipc_find(address, &block));
    TEST_ASSERT_EQUAL_INT(IPC_BLOCK, ipc_find(other, &other_block));
    TEST_ASSERT_NOT_EQUAL_UINT64(block.id, other_block.id);
    TEST_ASSERT_EQUAL_INT(0, ipc_close(address));
    TEST_ASSERT_EQUAL_INT(0, fake.waits);
    TEST_ASSERT_EQUAL_INT(IPC_BLOCK, ipc_find(address, &block));
    TEST_ASSERT_EQUAL_INT(-ENOENT, ipc_close(address + 1));
    TEST_ASSERT_EQUAL_INT(0, ipc_close(address));
    TEST_ASSERT_EQUAL_INT(1, fake.waits); /* for work on it */
    TEST_ASSERT_EQUAL_INT(-ENOENT, ipc_close(address));
    TEST_ASSERT_EQUAL_INT(IPC_BLOCK, ipc_find(other, &block));
    TEST_ASSERT_EQUAL_INT(0, ipc_close(other));
}

static void test_an_open_that_fails_leaves_nothing(void)
{
    CUdeviceptr address;
    int failures = 0;

    for (int at = 1; at < 100; at++) {
        const int puts = fake.puts;

        fake.calls = fake.descriptors_used = 0;
        fake.fail_at = at;
        if (ipc_imports_open(&ticket, ONE, &address) == 0)
            break;
        failures++;
        TEST_ASSERT_EQUAL_INT(puts + 1, fake.puts);
        expect_nothing_left();
    }
    TEST_ASSERT_EQUAL_INT(1 + CHUNKS + 1 + CHUNKS + 1, failures); /* every call of the driver */
    fake.fail_at = 0;
    TEST_ASSERT_EQUAL_INT(0, ipc_close(address));
    fake.take_rc = -ENOENT;
    TEST_ASSERT_EQUAL_INT(-ENOENT, ipc_imports_open(&ticket, ONE, &address));
}

static void test_chunks_that_are_not_of_the_block_are_refused(void)
{
    static const struct ipc_chunk right = {.id = 5, .bytes = 3 * PAGE, .offset = OFFSET, .chunk_bytes = PAGE};
    CUdeviceptr address;

    for (int i = 0; i < 6; i++) {
        fake.lie = right;
        memset(&fake.lie.card, i == 0 ? 'A' : 'B', sizeof(fake.lie.card));
        fake.lie.bytes += i == 1;
        fake.lie.offset += i == 2;
        fake.lie.chunk_bytes = i == 3 ? 0 : i == 4 ? PAGE + 512 : i == 5 ? VMM_SPAN - 2 * PAGE : PAGE;
        fake.descriptors_used = 0;
        TEST_ASSERT_EQUAL_INT(-EPROTO, ipc_imports_open(&ticket, ONE, &address));
        expect_nothing_left();
    }
    fake.lie.bytes = 0;
    fake.on_board = CHUNKS + 1; /* one too many */
    fake.descriptors_used = 0;
    TEST_ASSERT_EQUAL_INT(-EPROTO, ipc_imports_open(&ticket, ONE, &address));
}

static void test_what_is_closed_beside_a_capture_is_unmapped_when_its_work_is_done(void)
{
    struct fence fence = {.context = ONE}, other_fence = {.context = OTHER};
    struct ipc_block block;
    const CUdeviceptr address = open_in(ONE);

    fake.captures = true;
    TEST_ASSERT_EQUAL_INT(0, ipc_close(address));
    TEST_ASSERT_EQUAL_INT(1, fake.woken); /* somebody has to look again */
    TEST_ASSERT_EQUAL_INT(IPC_BESIDE, ipc_find(address, &block));
    ipc_imports_sweep(&fence);
    TEST_ASSERT_EQUAL_INT(1, fake.reservations);
    fake.captures = fake.is_done = false;
    ipc_imports_sweep(&fence);
    TEST_ASSERT_EQUAL_INT(1, fake.reservations);
    fake.is_done = true;
    ipc_imports_sweep(&other_fence);
    TEST_ASSERT_EQUAL_INT(1, fake.reservations);
    ipc_imports_sweep(&fence);
    TEST_ASSERT_EQUAL_INT(0, fake.reservations);
}

static void test_a_close_unmaps_all_that_was_closed_in_its_context(void)
{
    CUdeviceptr closed[2];

    fake.captures = true;
    for (int i = 0; i < 2;
         i++) { /* the second open is a new one only while the first cannot be opened again */
        closed[i] = open_in(i ? OTHER : ONE);
        TEST_ASSERT_EQUAL_INT(0, ipc_close(closed[i]));
    }
    TEST_ASSERT_EQUAL_INT(2, fake.reservations);
    fake.captures = false;
    const CUdeviceptr again = open_in(ONE);
    TEST_ASSERT_EQUAL_HEX64(closed[0], again); /* it is still mapped */
    TEST_ASSERT_EQUAL_INT(0, ipc_close(again));
    TEST_ASSERT_EQUAL_INT(1, fake.reservations); /* work of another context is not waited for */
    fake.wait_fails = true;
    const CUdeviceptr other = open_in(OTHER);
    TEST_ASSERT_EQUAL_INT(0, ipc_close(other));
    TEST_ASSERT_EQUAL_INT(1, fake.reservations); /* it may still be in use */
    ipc_imports_end(OTHER);
}

static void test_a_close_unmaps_what_was_closed_beside_a_capture(void)
{
    struct ipc_ticket second = ticket;
    const CUdeviceptr first = open_in(ONE);
    CUdeviceptr address;

    second.key[0] = 1; /* of another exporter */
    fake.captures = true;
    TEST_ASSERT_EQUAL_INT(0, ipc_close(first));
    fake.descriptors_used = 0;
    TEST_ASSERT_EQUAL_INT(0, ipc_imports_open(&second, ONE, &address));
    TEST_ASSERT_NOT_EQUAL_UINT64(first, address);
    fake.captures = false;
    TEST_ASSERT_EQUAL_INT(0, ipc_close(address));
    TEST_ASSERT_EQUAL_INT(0, fake.reservations); /* both */
}

static void test_a_context_that_ends_takes_its_blocks_along_and_no_others(void)
{
    struct ipc_block block;
    const CUdeviceptr address = open_in(ONE), other = open_in(OTHER);

    ipc_imports_ending(ONE, true);
    TEST_ASSERT_EQUAL_INT(0, ipc_close(address));
    TEST_ASSERT_EQUAL_INT(0, fake.waits); /* the context may be gone */
    ipc_imports_ending(ONE, false);
    ipc_imports_sweep(&(struct fence){.context = ONE});
    TEST_ASSERT_EQUAL_INT(1, fake.reservations); /* it did not end */
    const CUdeviceptr second = open_in(ONE);
    ipc_imports_ending(ONE, true);
    ipc_imports_end(ONE);
    TEST_ASSERT_EQUAL_INT(IPC_NOT_OURS, ipc_find(second, &block));
    TEST_ASSERT_EQUAL_INT(IPC_BLOCK, ipc_find(other, &block));
    TEST_ASSERT_EQUAL_INT(0, ipc_close(other));
}

/* What a fork does, and then its child: no driver call, no import, and no lock taken. */
static void test_a_block_is_not_opened_in_a_context_that_ends_meanwhile(void)
{
    CUdeviceptr address = 0;

    fake.ends = ONE;
    TEST_ASSERT_EQUAL_INT(-ECANCELED, ipc_imports_open(&ticket, ONE, &address));
    TEST_ASSERT_EQUAL_UINT64(0, address);
    expect_nothing_left();
    fake.ends = OTHER; /* another context does not matter */
    address = open_in(ONE);
    fake.ends = NULL;
    TEST_ASSERT_EQUAL_HEX64(address, open_in(ONE));
    TEST_ASSERT_EQUAL_INT(0, ipc_close(address));
    TEST_ASSERT_EQUAL_INT(0, ipc_close(address));
}

static void test_a_forked_child_has_no_imports(void)
{
    const CUdeviceptr address = open_in(ONE);
    struct ipc_block block;

    ipc_imports_before_fork();
    TEST_ASSERT_EQUAL_INT(1, lock_depth);
    ipc_imports_after_fork(false);
    TEST_ASSERT_EQUAL_INT(0, lock_depth);
    TEST_ASSERT_EQUAL_INT(IPC_BLOCK, ipc_find(address, &block));
    ipc_imports_before_fork();
    ipc_imports_after_fork(true);
    TEST_ASSERT_EQUAL_INT(0, lock_depth);
    TEST_ASSERT_EQUAL_INT(1, fake.reservations); /* the parent's */
    TEST_ASSERT_EQUAL_INT(IPC_NOT_OURS, ipc_find(address, &block));
    TEST_ASSERT_EQUAL_INT(-ENOENT, ipc_close(address));
    setUp();
}

/* The thread that unmaps is the parent's: nothing in the child waits for it. */
static void fork_here(void)
{
    int status = -1;

    fake.at_unmap = NULL;
    ipc_imports_before_fork();
    const pid_t child = fork();
    ipc_imports_after_fork(child == 0);
    if (child == 0) {
        alarm(100);
        if (TEST_PROTECT()) {
            open_in(ONE);
            ipc_imports_ending(ONE, true);
            _exit(0);
        }
        _exit(1);
    }
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
}

static void test_a_child_forked_during_an_unmap_does_not_wait_for_its_end(void)
{
    open_in(ONE);
    fake.at_unmap = fork_here;
    ipc_imports_end(ONE);
    TEST_ASSERT_NULL(fake.at_unmap);
    expect_nothing_left();
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_block_is_mapped_from_all_its_chunks);
    RUN_TEST(test_a_block_of_another_card_can_be_reached_from_both);
    RUN_TEST(test_a_block_is_open_until_its_last_close);
    RUN_TEST(test_an_open_that_fails_leaves_nothing);
    RUN_TEST(test_chunks_that_are_not_of_the_block_are_refused);
    RUN_TEST(test_what_is_closed_beside_a_capture_is_unmapped_when_its_work_is_done);
    RUN_TEST(test_a_close_unmaps_all_that_was_closed_in_its_context);
    RUN_TEST(test_a_close_unmaps_what_was_closed_beside_a_capture);
    RUN_TEST(test_a_context_that_ends_takes_its_blocks_along_and_no_others);
    RUN_TEST(test_a_block_is_not_opened_in_a_context_that_ends_meanwhile);
    RUN_TEST(test_a_forked_child_has_no_imports);
    RUN_TEST(test_a_child_forked_during_an_unmap_does_not_wait_for_its_end);
    return UNITY_END();
}
