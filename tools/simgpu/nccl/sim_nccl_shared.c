/* sim_nccl_shared: the memory that the ranks of one communicator share. See sim_nccl_shared.h. Never trusts a
 * unique id, since it comes from the program. Owns one mutex, for the list of files that this process has
 * made and that still have a name. */
#include "tools/simgpu/nccl/sim_nccl_shared.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/simgpu/nccl/sim_nccl_error.h"

#define DIRECTORY "/dev/shm/"
#define PREFIX    "simgpu-nccl-"

enum { NAME_BYTES = 64, SLOTS = 2 };

static const uint64_t magic = 0x6c63636e6d6973ull; /* "simnccl" */
static const size_t slots_from =
    64 * (size_t)1024; /* offset of the first slot, behind struct sim_nccl_shared */
static const size_t rank_bytes = (size_t)SLOTS * SIM_NCCL_SLOT;
static const size_t file_bytes = 64 * (size_t)1024 + (size_t)SIM_NCCL_RANKS * SLOTS * SIM_NCCL_SLOT;

_Static_assert(sizeof(struct sim_nccl_shared) <= 64 * 1024, "the structure must fit in front of the slots");
_Static_assert(NAME_BYTES < NCCL_UNIQUE_ID_BYTES, "a file name must fit into an id");

/* A file of this process that still waits for ranks. */
struct waiting {
    struct waiting *next;
    char name[NAME_BYTES];
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct waiting *waiting;

/* ---- names ---- */

static void path_of(const char *name, char *path, size_t size)
{
    snprintf(path, size, DIRECTORY "%s", name);
}

static void remove_name(const char *name)
{
    char path[sizeof(DIRECTORY) + NAME_MAX];

    path_of(name, path, sizeof(path));
    unlink(path);
}

/* Removes the files of processes that have ended: no rank can join them any more. */
static void remove_abandoned(void)
{
    DIR *folder = opendir(DIRECTORY);
    char prefix[NAME_BYTES];
    struct dirent *entry;

    if (!folder)
        return;
    snprintf(prefix, sizeof(prefix), PREFIX "%u-", (unsigned)geteuid());
    while ((entry = readdir(folder))) {
        long pid = strncmp(entry->d_name, prefix, strlen(prefix)) == 0
                       ? strtol(entry->d_name + strlen(prefix), NULL, 10)
                       : 0;

        if (pid > 0 && kill((pid_t)pid, 0) && errno == ESRCH)
            remove_name(entry->d_name);
    }
    closedir(folder);
}

/* At exit: removes the files that not all ranks have joined. */
__attribute__((destructor)) static void remove_names(void)
{
    pthread_mutex_lock(&lock);
    while (waiting) {
        struct waiting *entry = waiting;

        waiting = entry->next;
        remove_name(entry->name);
        free(entry);
    }
    pthread_mutex_unlock(&lock);
}

static bool remember(const char *name)
{
    struct waiting *entry = calloc(1, sizeof(*entry));

    if (!entry)
        return false;
    memcpy(entry->name, name, sizeof(entry->name)); /* zero-terminated by open_new() */
    pthread_mutex_lock(&lock);
    entry->next = waiting;
    waiting = entry;
    pthread_mutex_unlock(&lock);
    return true;
}

/* ---- creating and joining ---- */

static struct sim_nccl_shared *map_file(int fd)
{
    void *shared = mmap(NULL, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return shared == MAP_FAILED ? NULL : shared;
}

static int open_new(char *name)
{
    char path[sizeof(DIRECTORY) + NAME_MAX];
    uint64_t number;

    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return -1;
    snprintf(name, NAME_BYTES, PREFIX "%u-%ld-%016llx", (unsigned)geteuid(), (long)getpid(),
             (unsigned long long)number);
    path_of(name, path, sizeof(path));
    return open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

ncclResult_t sim_nccl_shared_create(ncclUniqueId *id)
{
    struct sim_nccl_shared *shared = NULL;
    int fd;

    memset(id, 0, sizeof(*id));
    remove_abandoned();
    fd = open_new(id->internal);
    if (fd < 0)
        return sim_nccl_fail(ncclSystemError, "cannot create a file in " DIRECTORY ": %s", strerror(errno));
    /* Allocate the pages now, so that a full /dev/shm is an error here and not a SIGBUS later. */
    if (!posix_fallocate(fd, 0, (off_t)slots_from) && !ftruncate(fd, (off_t)file_bytes))
        shared = map_file(fd);
    close(fd);
    if (!shared || !remember(id->internal)) {
        remove_name(id->internal);
        sim_nccl_shared_leave(shared);
        return sim_nccl_fail(ncclSystemError, "no shared memory for a communicator");
    }
    shared->magic = magic;
    sim_nccl_shared_leave(shared);
    return ncclSuccess;
}

static bool is_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

    return memchr(name, 0, NAME_BYTES) && strncmp(name, PREFIX, strlen(PREFIX)) == 0 &&
           strspn(name, allowed) == strlen(name);
}

static ncclResult_t claim_rank(struct sim_nccl_shared *shared, int size, int rank, const unsigned char *card)
{
    uint32_t none = 0;
    struct sim_nccl_rank_state *state = &shared->rank[rank];

    if (!atomic_compare_exchange_strong(&shared->size, &none, (uint32_t)size) && none != (uint32_t)size)
        return sim_nccl_fail(ncclInvalidArgument, "this rank says %d ranks, another one says %u", size, none);
    if (atomic_exchange(&state->taken, 1))
        return sim_nccl_fail(ncclInvalidUsage, "rank %d of %d has already joined", rank, size);
    memcpy(state->card, card, SIM_NCCL_CARD);
    return ncclSuccess;
}

ncclResult_t sim_nccl_shared_enter(const ncclUniqueId *id, int size, int rank, const unsigned char *card,
                                   struct sim_nccl_shared **out)
{
    char path[sizeof(DIRECTORY) + NAME_MAX];
    struct sim_nccl_shared *shared = NULL;
    ncclResult_t result;
    int fd;

    if (!is_name(id->internal))
        return sim_nccl_fail(ncclInvalidArgument, "the unique id is not from ncclGetUniqueId");
    path_of(id->internal, path, sizeof(path));
    fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return sim_nccl_fail(ncclSystemError, "cannot open the communicator of this unique id: %s",
                             strerror(errno));
    if (lseek(fd, 0, SEEK_END) == (off_t)file_bytes &&
        !posix_fallocate(fd, (off_t)(slots_from + (size_t)rank * rank_bytes), (off_t)rank_bytes))
        shared = map_file(fd);
    close(fd);
    if (!shared)
        return sim_nccl_fail(ncclSystemError, "no shared memory for rank %d", rank);
    result = shared->magic == magic
                 ? claim_rank(shared, size, rank, card)
                 : sim_nccl_fail(ncclInvalidArgument, "the unique id names a file of another kind");
    if (result != ncclSuccess) {
        sim_nccl_shared_leave(shared);
        return result;
    }
    if (atomic_fetch_add(&shared->joined, 1) + 1 == (uint32_t)size)
        remove_name(id->internal);
    sim_nccl_shared_wake(shared);
    *out = shared;
    return ncclSuccess;
}

void sim_nccl_shared_leave(struct sim_nccl_shared *shared)
{
    if (shared)
        munmap(shared, file_bytes);
}

/* ---- waiting ---- */

void sim_nccl_shared_wake(struct sim_nccl_shared *shared)
{
    atomic_fetch_add(&shared->changes, 1);
    syscall(SYS_futex, &shared->changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void wait_for_change(struct sim_nccl_shared *shared, uint32_t seen)
{
    syscall(SYS_futex, &shared->changes, FUTEX_WAIT, seen, NULL, NULL, 0);
}

bool sim_nccl_shared_wait_joined(struct sim_nccl_shared *shared, const atomic_bool *stop)
{
    for (;;) {
        uint32_t seen = atomic_load(&shared->changes);

        if (atomic_load(&shared->joined) >= atomic_load(&shared->size))
            return true;
        if (atomic_load(stop))
            return false;
        wait_for_change(shared, seen);
    }
}

void sim_nccl_shared_publish(struct sim_nccl_shared *shared, int rank, uint64_t stage)
{
    atomic_store(&shared->rank[rank].stage, stage);
    sim_nccl_shared_wake(shared);
}

static bool all_reached(struct sim_nccl_shared *shared, uint64_t stage)
{
    uint32_t size = atomic_load(&shared->size);

    for (uint32_t i = 0; i < size; i++)
        if (atomic_load(&shared->rank[i].stage) < stage)
            return false;
    return true;
}

bool sim_nccl_shared_wait_stage(struct sim_nccl_shared *shared, uint64_t stage, const atomic_bool *stop)
{
    for (;;) {
        uint32_t seen = atomic_load(&shared->changes);

        if (atomic_load(stop))
            return false;
        if (all_reached(shared, stage))
            return true;
        wait_for_change(shared, seen);
    }
}

char *sim_nccl_shared_slot(struct sim_nccl_shared *shared, int rank, uint64_t stage)
{
    return (char *)shared + slots_from + (size_t)rank * rank_bytes + (stage % SLOTS) * SIM_NCCL_SLOT;
}
