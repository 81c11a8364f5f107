/* sim_card_file: see sim_card_file.h. Owns the robust mutex inside the file and the byte locks on it:
 * byte 0 is held while the file is opened and made, byte 1 + i for as long as slot i has a living owner.
 * Never trusts the contents of a file that no living process has open: it makes such a file new.
 */
#include "tools/simgpu/engine/sim_card_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CARD_FILE_MAGIC   0x7570676d69736e75u
#define CARD_FILE_VERSION 2u
#define DIRECTORY         "/dev/shm"
#define FILE_PREFIX       "simgpu-"
#define OPEN_BYTE         0
#define SLOT_BYTE(slot)   (1 + (slot))
#define OPEN_TRIES        100    /* how often another process may unlink the file while we open it */
#define LOCK_YIELDS       20     /* the shared lock is held for microseconds: yield at first */
#define LOCK_NAP_NS       50000L /* then sleep this long between tries */

static struct flock byte_lock(off_t start, off_t count)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = count};
}

static bool anyone_holds(int fd, off_t start, off_t count)
{
    struct flock lock = byte_lock(start, count);
    /* An error counts as "held", so that memory in use is never taken for free. */
    return fcntl(fd, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK;
}

static int check_ours(int fd, struct stat *st)
{
    if (fstat(fd, st))
        return -errno;
    if (!S_ISREG(st->st_mode) || st->st_uid != geteuid() || (st->st_mode & (S_IRWXG | S_IRWXO)))
        return -EPERM;
    return 0;
}

/* Opens the file and waits for the lock on byte 0. Returns 0 with the descriptor in file->opening, or a
 * negative errno. */
static int open_alone(struct sim_card_file *file)
{
    for (int i = 0; i < OPEN_TRIES; i++) {
        struct stat st;
        struct flock lock = byte_lock(OPEN_BYTE, 1);
        int err, fd = open(file->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
        if (fd < 0)
            return -errno;
        file->opening = fd;
        err = check_ours(fd, &st);
        while (!err && fcntl(fd, F_OFD_SETLKW, &lock))
            err = errno == EINTR ? 0 : -errno;
        if (!err)
            err = check_ours(fd, &st);
        if (!err && st.st_nlink > 0) {
            file->dev = st.st_dev;
            file->ino = st.st_ino;
            return 0;
        }
        file->opening = -1;
        close(fd);
        if (err)
            return err;
    }
    return -EAGAIN;
}

static int make_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attr;
    int err = pthread_mutexattr_init(&attr);
    if (err)
        return -err;
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    err = pthread_mutex_init(lock, &attr);
    pthread_mutexattr_destroy(&attr);
    return -err;
}

/* Gives the file its size and real pages, so that a full /dev/shm is an error now and not a SIGBUS later. */
static int make_room(int fd, off_t size)
{
    const off_t wanted = sizeof(struct sim_card_shared);
    /* A process that is just ending may still have a file of the right size mapped, so never shorten that. */
    if (size > wanted && ftruncate(fd, wanted))
        return -errno;
    return -posix_fallocate(fd, 0, wanted);
}

static int make_header(struct sim_card_shared *shared, uint64_t spec_hash)
{
    memset(shared, 0, sizeof(*shared));
    int err = make_lock(&shared->lock);
    if (err)
        return err;
    shared->version = CARD_FILE_VERSION;
    shared->size = sizeof(*shared);
    shared->spec_hash = spec_hash;
    shared->magic = CARD_FILE_MAGIC;
    return 0;
}

static bool header_fits(const struct sim_card_shared *shared, uint64_t spec_hash)
{
    return shared->magic == CARD_FILE_MAGIC && shared->version == CARD_FILE_VERSION &&
           shared->size == sizeof(*shared) && shared->spec_hash == spec_hash;
}

static int map_shared(struct sim_card_file *file, uint64_t spec_hash)
{
    int fd = file->opening, err = 0;
    struct stat st;
    bool in_use = anyone_holds(fd, SLOT_BYTE(0), CARD_SLOTS);
    if (fstat(fd, &st))
        return -errno;
    if (in_use && st.st_size != sizeof(struct sim_card_shared))
        return -EBADMSG;
    if (!in_use)
        err = make_room(fd, st.st_size);
    if (err)
        return err;

    struct sim_card_shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED)
        return -errno;
    if (madvise(shared, sizeof(*shared), MADV_DONTFORK))
        err = -errno;
    else if (!in_use)
        err = make_header(shared, spec_hash);
    else if (!header_fits(shared, spec_hash))
        err = -EBADMSG;
    if (err)
        munmap(shared, sizeof(*shared));
    else
        file->shared = shared;
    return err;
}

static bool take_slot(struct sim_card_file *file, int slot)
{
    struct flock lock = byte_lock(SLOT_BYTE(slot), 1);
    if (fcntl(file->opening, F_OFD_SETLK, &lock))
        return false;
    if (file->shared->slots_seen <= (uint64_t)slot)
        file->shared->slots_seen = (uint64_t)slot + 1;
    file->shared->slot[slot] = (struct sim_card_slot){.pid = getpid()};
    file->slot = slot;
    return true;
}

static int claim_slot(struct sim_card_file *file)
{
    int err = sim_card_file_lock(file);
    if (err)
        return err;
    /* Try empty slots first: that is one system call, instead of one for each earlier process. */
    for (int i = 0; i < CARD_SLOTS && file->slot < 0; i++) {
        if (file->shared->slot[i].pid == 0)
            take_slot(file, i);
    }
    for (int i = 0; i < CARD_SLOTS && file->slot < 0; i++)
        take_slot(file, i);
    sim_card_file_unlock(file);
    return file->slot < 0 ? -EUSERS : 0;
}

static void stop_opening(struct sim_card_file *file)
{
    struct flock lock = byte_lock(OPEN_BYTE, 1);
    int fd = file->opening;
    lock.l_type = F_UNLCK;
    fcntl(fd, F_OFD_SETLK, &lock);
    file->opening = -1;
    close(fd);
}

/* Removes a file that no living process uses. A process that waits to open it then sees that the file has no
 * name any more and starts over. */
static void remove_if_unused(struct sim_card_file *file, const char *path)
{
    struct stat st;
    struct flock lock = byte_lock(OPEN_BYTE, 1);
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    file->opening = fd;
    /* Do not wait for the lock: a process that has the file open now removes it later itself. While we hold
     * the lock, a file that still has a name is the one that the path leads to. */
    if (!check_ours(fd, &st) && !fcntl(fd, F_OFD_SETLK, &lock) && !fstat(fd, &st) && st.st_nlink > 0 &&
        !anyone_holds(fd, SLOT_BYTE(0), CARD_SLOTS))
        unlink(path);
    stop_opening(file);
}

/* Removes the files of killed processes. Called by the process that makes a new machine. */
static void remove_leftovers(struct sim_card_file *file)
{
    char prefix[48], path[sizeof(DIRECTORY) + NAME_MAX + 1];
    struct dirent *entry;
    DIR *directory = opendir(DIRECTORY);
    if (!directory)
        return;
    snprintf(prefix, sizeof(prefix), FILE_PREFIX "%u-", (unsigned)geteuid());
    while ((entry = readdir(directory))) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)))
            continue;
        snprintf(path, sizeof(path), DIRECTORY "/%s", entry->d_name);
        remove_if_unused(file, path);
    }
    closedir(directory);
}

int sim_card_file_open(struct sim_card_file *file, const char *machine, const struct sim_card_spec *spec)
{
    uint64_t hash = sim_card_spec_hash(spec);
    *file = (struct sim_card_file)CARD_FILE_CLOSED;
    snprintf(file->path, sizeof(file->path), DIRECTORY "/" FILE_PREFIX "%u-%.*s-%016llx", (unsigned)geteuid(),
             CARD_MACHINE_NAME, machine, (unsigned long long)hash);

    int err = open_alone(file);
    if (err)
        return err;
    err = map_shared(file, hash);
    if (!err)
        err = claim_slot(file);
    bool first = !err && sim_card_file_slots(file) == 1; /* no race: we hold the lock of byte 0 */
    stop_opening(file);
    if (err)
        sim_card_file_close(file);
    else if (first)
        remove_leftovers(file);
    return err;
}

void sim_card_file_close(struct sim_card_file *file)
{
    bool claimed = file->slot >= 0;
    if (claimed && !sim_card_file_lock(file)) {
        file->shared->slot[file->slot] = (struct sim_card_slot){0};
        sim_card_file_unlock(file);
    }
    if (file->shared)
        munmap(file->shared, sizeof(*file->shared));
    if (claimed)
        remove_if_unused(file, file->path);
    *file = (struct sim_card_file)CARD_FILE_CLOSED;
}

void sim_card_file_forget(struct sim_card_file *file)
{
    /* Do not unmap: the mapping was not inherited, and its address may be in use for another one. */
    if (file->opening >= 0)
        close(file->opening);
    *file = (struct sim_card_file)CARD_FILE_CLOSED;
}

int sim_card_file_lock(struct sim_card_file *file)
{
    /* Do not block in the mutex. If a waiter is killed right after it was woken, its wake-up is lost: the
     * kernel passes it on only if no thread has taken the mutex meanwhile, and the other waiters then sleep
     * forever. */
    const struct timespec nap = {.tv_nsec = LOCK_NAP_NS};
    pthread_mutex_t *lock = &file->shared->lock;
    int err;
    for (int tries = 1; (err = pthread_mutex_trylock(lock)) == EBUSY; tries++) {
        if (tries < LOCK_YIELDS)
            sched_yield();
        else
            nanosleep(&nap, NULL);
    }
    if (err == EOWNERDEAD)
        err = pthread_mutex_consistent(lock);
    return -err;
}

void sim_card_file_unlock(struct sim_card_file *file)
{
    pthread_mutex_unlock(&file->shared->lock);
}

int sim_card_file_slots(const struct sim_card_file *file)
{
    uint64_t seen = file->shared->slots_seen;
    return seen < CARD_SLOTS ? (int)seen : CARD_SLOTS;
}

static bool holds_anything(const struct sim_card_slot *slot)
{
    for (int card = 0; card < CARD_MAX_DEVICES; card++) {
        if (slot->bytes[card] || slot->contexts[card])
            return true;
    }
    return false;
}

/* Asks only about slots that hold something: a question costs the kernel a look at every lock of the file. */
void sim_card_file_reap(struct sim_card_file *file)
{
    struct stat st;
    int fd = open(file->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    file->opening = fd;
    bool same = !fstat(fd, &st) && st.st_dev == file->dev && st.st_ino == file->ino;
    for (int i = 0; i < sim_card_file_slots(file) && same; i++) {
        if (file->shared->slot[i].pid && i != file->slot && holds_anything(&file->shared->slot[i]) &&
            !anyone_holds(fd, SLOT_BYTE(i), 1))
            file->shared->slot[i] = (struct sim_card_slot){0};
    }
    file->opening = -1;
    close(fd);
}
