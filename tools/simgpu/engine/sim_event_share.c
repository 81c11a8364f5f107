/* sim_event_share: interprocess events. See sim_event_share.h. */
#include "tools/simgpu/engine/sim_event_share.h"

#include "tools/simgpu/engine/sim_lock.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TICKET_MAGIC UINT64_C(0x31657465766e6773) /* "sgnveteI" */
#define SLOTS        4096
#define POLL_NS      50000

struct sim_shared_event {
    _Atomic uint64_t recorded;
    _Atomic uint64_t done;
};

/* What a CUipcEventHandle carries. */
struct ticket {
    uint64_t magic;
    int32_t pid;
    int32_t fd;
    int32_t slot;
    int32_t reserved[11];
};

_Static_assert(sizeof(struct ticket) == CU_IPC_HANDLE_SIZE, "a ticket fills the handle");

struct arena { /* the mapped file of another process */
    struct arena *next;
    ino_t inode;
    struct sim_shared_event *events;
};

static int own_fd = -1;
static struct sim_shared_event *own; /* SLOTS of them */
static bool taken[SLOTS];
static int next_slot; /* advances cyclically, so that a slot is reused as late as possible */
static struct arena *arenas;

static bool open_own(void)
{
    void *mapped;

    if (own)
        return true;
    own_fd = memfd_create("simgpu-events", MFD_CLOEXEC);
    if (own_fd < 0 || ftruncate(own_fd, sizeof(*own) * SLOTS) != 0)
        return false;
    mapped = mmap(NULL, sizeof(*own) * SLOTS, PROT_READ | PROT_WRITE, MAP_SHARED, own_fd, 0);
    own = mapped == MAP_FAILED ? NULL : mapped;
    return own != NULL;
}

struct sim_shared_event *sim_share_new(int *slot)
{
    int i;

    if (!open_own())
        return NULL;
    for (i = 0; i < SLOTS; i++) {
        *slot = (next_slot + i) % SLOTS;
        if (!taken[*slot]) {
            taken[*slot] = true;
            next_slot = (*slot + 1) % SLOTS;
            return &own[*slot];
        }
    }
    return NULL;
}

void sim_share_drop(int slot)
{
    if (slot >= 0)
        taken[slot] = false;
}

uint64_t sim_share_record(struct sim_shared_event *event)
{
    return atomic_fetch_add(&event->recorded, 1) + 1;
}

uint64_t sim_share_recorded(const struct sim_shared_event *event)
{
    return atomic_load(&event->recorded);
}

uint64_t sim_share_done_address(struct sim_shared_event *event)
{
    return (uint64_t)(uintptr_t)&event->done;
}

bool sim_share_is_done(const struct sim_shared_event *event)
{
    return atomic_load(&event->done) >= atomic_load(&event->recorded);
}

void sim_share_wait(const struct sim_shared_event *event)
{
    struct timespec pause = {.tv_nsec = POLL_NS};
    uint64_t wanted = atomic_load(&event->recorded);

    while (atomic_load(&event->done) < wanted)
        nanosleep(&pause, NULL);
}

/* Maps the other process's file once. Lock held. */
static struct sim_shared_event *map_arena(int fd)
{
    size_t size = sizeof(struct sim_shared_event) * SLOTS;
    struct arena *arena;
    struct stat file;
    void *mapped;

    if (fstat(fd, &file) != 0 || (size_t)file.st_size < size)
        return NULL;
    for (arena = arenas; arena; arena = arena->next)
        if (arena->inode == file.st_ino)
            return arena->events;
    arena = malloc(sizeof(*arena));
    if (!arena)
        return NULL;
    mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        free(arena);
        return NULL;
    }
    *arena = (struct arena){.next = arenas, .inode = file.st_ino, .events = mapped};
    arenas = arena;
    return arena->events;
}

void sim_share_export(CUipcEventHandle *out, int slot)
{
    struct ticket ticket = {.magic = TICKET_MAGIC, .pid = getpid(), .fd = own_fd, .slot = slot};

    memcpy(out, &ticket, sizeof(ticket));
}

CUresult sim_share_open(struct sim_shared_event **out, CUipcEventHandle handle)
{
    struct sim_shared_event *events;
    struct ticket ticket;
    char path[64];
    int fd;

    memcpy(&ticket, &handle, sizeof(ticket));
    if (ticket.magic != TICKET_MAGIC || ticket.slot < 0 || ticket.slot >= SLOTS)
        return CUDA_ERROR_INVALID_VALUE;
    if (ticket.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT; /* as for memory: a process cannot open its own handle */
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", ticket.pid, ticket.fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock_take();
    events = map_arena(fd);
    sim_lock_drop();
    close(fd);
    if (!events)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = &events[ticket.slot];
    return CUDA_SUCCESS;
}
