/* ipc_fake: see ipc_fake.h. */
#include "ipc_fake.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/base/clock.h"
#include "interpose/pool/pool_reach.h"
#include "interpose/settings/log.h"
#include "interpose/share/ipc_import.h"

/* The engine's own table of the driver: the fake is all there is. */
atomic_bool driver_bound;
struct driver_table driver_entries;

struct driver_table *driver_bind_now(void)
{
    return &driver_entries;
}

/* ---- the test's own pool and driver ---- */

struct pool ipc_fake_pools[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unpinned = PTHREAD_COND_INITIALIZER;
/* guarded by lock */
static struct fake_block {
    uint64_t id; /* 0: freed */
    int pins;
} blocks[2][IPC_FAKE_BLOCKS];
static uint64_t last_id;
int ipc_fake_waits;
atomic_int ipc_fake_fail_backing, ipc_fake_fail_uuid, ipc_fake_fail_export;
atomic_ulong ipc_fake_polls;
atomic_int ipc_fake_polling;

static bool fails(atomic_int *left)
{
    return atomic_load(left) > 0 && atomic_fetch_sub(left, 1) > 0;
}

static struct fake_block *block_at(const struct pool *pool, uint64_t address)
{
    return &blocks[pool - ipc_fake_pools][(address - IPC_FAKE_BASE) / 0x10000 % IPC_FAKE_BLOCKS];
}

int pool_pin(struct pool *pool, uint64_t address)
{
    pthread_mutex_lock(&lock);
    struct fake_block *block = block_at(pool, address);
    block->pins += block->id != 0;
    const int rc = block->id ? 0 : -EINVAL;
    pthread_mutex_unlock(&lock);
    return rc;
}

int pool_unpin(struct pool *pool, uint64_t address)
{
    pthread_mutex_lock(&lock);
    block_at(pool, address)->pins--;
    pthread_cond_broadcast(&unpinned);
    pthread_mutex_unlock(&lock);
    return 0;
}

int pool_block(struct pool *pool, uint64_t address, bool inside, struct pool_block *block)
{
    (void)inside;
    pthread_mutex_lock(&lock);
    *block = (struct pool_block){.address = address, .asked = 4096, .id = block_at(pool, address)->id};
    pthread_mutex_unlock(&lock);
    return block->id ? 0 : -EINVAL;
}

int pool_backing(struct pool *pool, uint64_t address, struct vmm_chunk **chunks, uint64_t *count,
                 uint64_t *offset)
{
    (void)pool;
    if (fails(&ipc_fake_fail_backing))
        return -ENOMEM;
    *count = address == IPC_FAKE_AT(IPC_FAKE_BLOCKS - 1) ? IPC_FAKE_MANY : 2;
    *offset = 512;
    *chunks = calloc(*count, sizeof(**chunks));
    for (uint64_t i = 0; i < *count; i++)
        (*chunks)[i] = (struct vmm_chunk){.handle = i + 1, .bytes = VMM_PAGE};
    return 0;
}

void pool_wait_all(struct pool *pool)
{
    (void)pool;
    ipc_fake_waits++;
}

static CUresult CUDAAPI get_uuid(CUuuid *uuid, CUdevice ordinal)
{
    memset(uuid, 7 + ordinal, sizeof(*uuid));
    return fails(&ipc_fake_fail_uuid) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static _Thread_local CUstreamCaptureMode mode;

static CUresult CUDAAPI exchange_mode(CUstreamCaptureMode *exchanged)
{
    const CUstreamCaptureMode before = mode;

    mode = *exchanged;
    *exchanged = before;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI export_chunk(void *fd, CUmemGenericAllocationHandle handle,
                                     CUmemAllocationHandleType type, unsigned long long flags)
{
    (void)handle, (void)type, (void)flags;
    if (mode !=
        CU_STREAM_CAPTURE_MODE_RELAXED) /* it might end a capture; the service's thread asserts nothing */
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (ipc_fake_fail_export > 0 && atomic_fetch_sub(&ipc_fake_fail_export, 1) == 1)
        return CUDA_ERROR_UNKNOWN;
    *(int *)fd = memfd_create("chunk", MFD_CLOEXEC);
    return *(int *)fd < 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult CUDAAPI push(CUcontext context)
{
    return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult CUDAAPI pop(CUcontext *context)
{
    (void)context;
    return CUDA_SUCCESS;
}

int ipc_fake_opened;

int ipc_imports_open(const struct ipc_ticket *ticket, CUcontext context, CUdeviceptr *address)
{
    (void)ticket, (void)context;
    *address = IPC_FAKE_BASE;
    ipc_fake_opened++;
    return 0;
}

void ipc_imports_before_fork(void) {}

void ipc_imports_after_fork(bool in_child)
{
    (void)in_child;
}

int __real_poll(struct pollfd *list, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *list, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *list, nfds_t count, int timeout)
{
    atomic_fetch_add(&ipc_fake_polls, 1);
    atomic_fetch_add(&ipc_fake_polling, 1);
    const int ready = __real_poll(list, count, timeout);
    atomic_fetch_sub(&ipc_fake_polling, 1);
    return ready;
}

/* ---- helpers ---- */

int ipc_fake_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = -3; /* ".", ".." and the folder itself */

    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

void ipc_fake_allocate(int pool, int i)
{
    pthread_mutex_lock(&lock);
    TEST_ASSERT_EQUAL_INT(0, blocks[pool][i].pins);
    blocks[pool][i].id = ++last_id;
    pthread_mutex_unlock(&lock);
}

void ipc_fake_free(int pool, int i)
{
    pthread_mutex_lock(&lock);
    blocks[pool][i].id = 0;
    pthread_mutex_unlock(&lock);
    ipc_freed(&ipc_fake_pools[pool], IPC_FAKE_AT(i));
}

int ipc_fake_pins(int pool, int i)
{
    pthread_mutex_lock(&lock);
    const int n = blocks[pool][i].pins;
    pthread_mutex_unlock(&lock);
    return n;
}

bool ipc_fake_unpinned(int pool, int i)
{
    const struct timespec until = clock_after(IPC_FAKE_PATIENCE * UINT64_C(1000000));
    int rc = 0;

    pthread_mutex_lock(&lock);
    while (blocks[pool][i].pins && rc == 0)
        rc = pthread_cond_timedwait(&unpinned, &lock, &until);
    pthread_mutex_unlock(&lock);
    return rc == 0;
}

struct ipc_ticket ipc_fake_export(int pool, int i)
{
    struct ipc_ticket ticket;
    CUipcMemHandle handle;

    TEST_ASSERT_EQUAL_INT(0, ipc_export(&ipc_fake_pools[pool], IPC_FAKE_AT(i), &handle));
    memcpy(&ticket, &handle, sizeof(ticket));
    return ticket;
}

int ipc_fake_take(void *argument, const struct ipc_chunks *chunks, const int *fds)
{
    struct ipc_fake_got *got = argument;

    for (unsigned i = 0; i < chunks->count; i++) {
        TEST_ASSERT_TRUE(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
        if (chunks->list[i].id == got->wanted) {
            got->count++;
            got->last = chunks->list[i];
        }
    }
    return 0;
}

unsigned ipc_fake_on_board(const struct ipc_source *source, uint64_t id)
{
    struct ipc_fake_got got = {.wanted = id};

    TEST_ASSERT_EQUAL_INT(0, ipc_source_look(source, ipc_fake_take, &got));
    return got.count;
}

struct ipc_source *ipc_fake_source(const struct ipc_ticket *ticket)
{
    struct ipc_source *source = NULL;

    TEST_ASSERT_EQUAL_INT(0, ipc_source_get(ticket, &source));
    return source;
}

void ipc_fake_setup(void)
{
    driver_entries = (struct driver_table){.cuDeviceGetUuid_v2 = get_uuid,
                                           .cuMemExportToShareableHandle = export_chunk,
                                           .cuThreadExchangeStreamCaptureMode = exchange_mode,
                                           .cuCtxPushCurrent_v2 = push,
                                           .cuCtxPopCurrent_v2 = pop};
    atomic_store(&driver_bound, true);
    for (int i = 0; i < 2; i++) {
        ipc_fake_pools[i].context = (CUcontext)&ipc_fake_pools[i];
        ipc_fake_pools[i].ordinal = i;
        ipc_fake_pools[i].vmm.properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    ipc_fake_fail_backing = ipc_fake_fail_uuid = ipc_fake_fail_export = 0;
}

void ipc_fake_forget(int pool, int i)
{
    pthread_mutex_lock(&lock);
    blocks[pool][i] = (struct fake_block){.id = 0};
    pthread_mutex_unlock(&lock);
}

void ipc_fake_expect_descriptors(int expected)
{
    const uint64_t until = clock_ms() + IPC_FAKE_PATIENCE;

    while (ipc_fake_descriptors() != expected && clock_ms() < until)
        usleep(1000);
    TEST_ASSERT_EQUAL_INT(expected, ipc_fake_descriptors());
}
