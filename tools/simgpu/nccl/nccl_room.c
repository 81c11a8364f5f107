/* nccl_room: the memory that the ranks of one communicator share. See nccl_room.h. Must never trust an id: it
 * comes from the program. Owns one mutex, for the list of rooms that wait for their ranks. */
#include "tools/simgpu/nccl/nccl_room.h"

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

#include "tools/simgpu/nccl/nccl_error.h"

#define DIRECTORY "/dev/shm/"
#define PREFIX    "simgpu-nccl-"

enum { NAME_BYTES = 64, SLOTS = 2 };

static const uint64_t magic = 0x6c63636e6d6973ull;  /* "simnccl" */
static const size_t slots_from = 64 * (size_t)1024; /* the seats are in front of the slots */
static const size_t rank_bytes = (size_t)SLOTS * NCCL_ROOM_SLOT;
static const size_t room_bytes = 64 * (size_t)1024 + (size_t)NCCL_ROOM_RANKS * SLOTS * NCCL_ROOM_SLOT;

_Static_assert(sizeof(struct nccl_room) <= 64 * 1024, "the seats fit in front of the slots");
_Static_assert(NAME_BYTES < NCCL_UNIQUE_ID_BYTES, "a name fits into an id");

/* Rooms of this process whose name is still there. */
struct waiting {
    struct waiting *next;
    char name[NAME_BYTES];
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct waiting *rooms;

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

/* Removes the rooms of processes that have ended: no rank can join them any more. */
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

/* A program that ends without all its ranks leaves no file. */
__attribute__((destructor)) static void remove_rooms(void)
{
    pthread_mutex_lock(&lock);
    while (rooms) {
        struct waiting *room = rooms;

        rooms = room->next;
        remove_name(room->name);
        free(room);
    }
    pthread_mutex_unlock(&lock);
}

static bool remember(const char *name)
{
    struct waiting *room = calloc(1, sizeof(*room));

    if (!room)
        return false;
    memcpy(room->name, name, sizeof(room->name)); /* ended by a zero: open_new made it */
    pthread_mutex_lock(&lock);
    room->next = rooms;
    rooms = room;
    pthread_mutex_unlock(&lock);
    return true;
}

/* ---- making and entering ---- */

static struct nccl_room *map_room(int fd)
{
    void *room = mmap(NULL, room_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return room == MAP_FAILED ? NULL : room;
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

ncclResult_t nccl_room_create(ncclUniqueId *id)
{
    struct nccl_room *room = NULL;
    int fd;

    memset(id, 0, sizeof(*id));
    remove_abandoned();
    fd = open_new(id->internal);
    if (fd < 0)
        return nccl_fail(ncclSystemError, "a file in " DIRECTORY " cannot be made: %s", strerror(errno));
    /* Real pages for the seats now, so that a full /dev/shm is an error and not a SIGBUS later. */
    if (!posix_fallocate(fd, 0, (off_t)slots_from) && !ftruncate(fd, (off_t)room_bytes))
        room = map_room(fd);
    close(fd);
    if (!room || !remember(id->internal)) {
        remove_name(id->internal);
        nccl_room_leave(room);
        return nccl_fail(ncclSystemError, "no shared memory for a communicator");
    }
    room->magic = magic;
    nccl_room_leave(room);
    return ncclSuccess;
}

static bool is_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

    return memchr(name, 0, NAME_BYTES) && strncmp(name, PREFIX, strlen(PREFIX)) == 0 &&
           strspn(name, allowed) == strlen(name);
}

static ncclResult_t take_seat(struct nccl_room *room, int size, int rank, const unsigned char *card)
{
    uint32_t none = 0;
    struct nccl_seat *seat = &room->seat[rank];

    if (!atomic_compare_exchange_strong(&room->size, &none, (uint32_t)size) && none != (uint32_t)size)
        return nccl_fail(ncclInvalidArgument, "one rank says %d ranks, another says %u", size, none);
    if (atomic_exchange(&seat->taken, 1))
        return nccl_fail(ncclInvalidUsage, "rank %d of %d has come already", rank, size);
    memcpy(seat->card, card, NCCL_ROOM_CARD);
    return ncclSuccess;
}

ncclResult_t nccl_room_enter(const ncclUniqueId *id, int size, int rank, const unsigned char *card,
                             struct nccl_room **out)
{
    char path[sizeof(DIRECTORY) + NAME_MAX];
    struct nccl_room *room = NULL;
    ncclResult_t result;
    int fd;

    if (!is_name(id->internal))
        return nccl_fail(ncclInvalidArgument, "the unique id is not from ncclGetUniqueId");
    path_of(id->internal, path, sizeof(path));
    fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return nccl_fail(ncclSystemError, "the communicator of this unique id is not there: %s",
                         strerror(errno));
    if (lseek(fd, 0, SEEK_END) == (off_t)room_bytes &&
        !posix_fallocate(fd, (off_t)(slots_from + (size_t)rank * rank_bytes), (off_t)rank_bytes))
        room = map_room(fd);
    close(fd);
    if (!room)
        return nccl_fail(ncclSystemError, "no shared memory for rank %d", rank);
    result = room->magic == magic ? take_seat(room, size, rank, card)
                                  : nccl_fail(ncclInvalidArgument, "the unique id leads to another file");
    if (result != ncclSuccess) {
        nccl_room_leave(room);
        return result;
    }
    if (atomic_fetch_add(&room->joined, 1) + 1 == (uint32_t)size)
        remove_name(id->internal);
    nccl_room_wake(room);
    *out = room;
    return ncclSuccess;
}

void nccl_room_leave(struct nccl_room *room)
{
    if (room)
        munmap(room, room_bytes);
}

/* ---- waiting ---- */

void nccl_room_wake(struct nccl_room *room)
{
    atomic_fetch_add(&room->news, 1);
    syscall(SYS_futex, &room->news, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void wait_for_news(struct nccl_room *room, uint32_t seen)
{
    syscall(SYS_futex, &room->news, FUTEX_WAIT, seen, NULL, NULL, 0);
}

bool nccl_room_wait_joined(struct nccl_room *room, const atomic_bool *stop)
{
    for (;;) {
        uint32_t seen = atomic_load(&room->news);

        if (atomic_load(&room->joined) >= atomic_load(&room->size))
            return true;
        if (atomic_load(stop))
            return false;
        wait_for_news(room, seen);
    }
}

void nccl_room_publish(struct nccl_room *room, int rank, uint64_t stage)
{
    atomic_store(&room->seat[rank].stage, stage);
    nccl_room_wake(room);
}

static bool all_have_come_to(struct nccl_room *room, uint64_t stage)
{
    uint32_t size = atomic_load(&room->size);

    for (uint32_t i = 0; i < size; i++)
        if (atomic_load(&room->seat[i].stage) < stage)
            return false;
    return true;
}

bool nccl_room_wait_stage(struct nccl_room *room, uint64_t stage, const atomic_bool *stop)
{
    for (;;) {
        uint32_t seen = atomic_load(&room->news);

        if (atomic_load(stop))
            return false;
        if (all_have_come_to(room, stage))
            return true;
        wait_for_news(room, seen);
    }
}

char *nccl_room_slot(struct nccl_room *room, int rank, uint64_t stage)
{
    return (char *)room + slots_from + (size_t)rank * rank_bytes + (stage % SLOTS) * NCCL_ROOM_SLOT;
}
