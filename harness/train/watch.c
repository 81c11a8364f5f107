/* A thread that watches the other ranks of this machine by descriptors of their processes. See watch.h. Must
 * never call MPI, which belongs to the main thread. Owns no lock. */
#include "harness/train/watch.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    LOOK_MS = 200,   /* between two looks for errors of NCCL */
    GRACE_MS = 10000 /* for the main thread to end once a rank is gone */
};

/* Where a rank runs. Process numbers mean the same where boot and namespace are the same. */
struct place {
    char boot[WATCH_BOOT_BYTES];
    uint64_t namespace;
    int64_t pid;
};

struct watch {
    struct nccl_comm *nccl;
    int rank, size;
    pthread_t thread;
    bool started;
    atomic_bool over;
    struct pollfd *fd; /* of each rank, -1 for those that are not watched, and `size`: to stop */
    struct place *place;
};

void watch_read_boot(char boot[WATCH_BOOT_BYTES])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    memset(boot, 0, WATCH_BOOT_BYTES);
    if (!file)
        return;
    if (!fgets(boot, WATCH_BOOT_BYTES, file))
        boot[0] = 0;
    fclose(file);
}

static void find_place(struct place *place)
{
    struct stat status;

    memset(place, 0, sizeof(*place));
    place->pid = getpid();
    watch_read_boot(place->boot);
    if (!stat("/proc/self/ns/pid", &status))
        place->namespace = status.st_ino;
}

/* Ends the process unless watch_close comes in time. */
static void wait_for_close(struct watch *watch)
{
    if (poll(&watch->fd[watch->size], 1, GRACE_MS) > 0)
        return;
    status_fail(STATUS_FAILED, "replica %d of %d hangs and is ended", watch->rank, watch->size);
    _exit(STATUS_FAILED);
}

static void *run_watch(void *arg)
{
    struct watch *watch = arg;
    nfds_t count = (nfds_t)watch->size + 1;

    while (poll(watch->fd, count, LOOK_MS) >= 0 && !watch->fd[watch->size].revents) {
        int gone = 0;
        bool failed = watch->nccl && nccl_has_failed(watch->nccl);

        while (gone < watch->size && !watch->fd[gone].revents)
            gone++;
        if (gone == watch->size && !failed)
            continue;
        atomic_store(&watch->over, true);
        if (gone < watch->size)
            status_fail(STATUS_FAILED, "replica %d of %d (process %lld) has ended: the run ends too", gone,
                        watch->size, (long long)watch->place[gone].pid);
        else
            status_fail(STATUS_FAILED, "NCCL has failed between replicas: the run ends");
        if (watch->nccl)
            nccl_abort(watch->nccl);
        wait_for_close(watch);
        break;
    }
    return NULL;
}

static void open_descriptors(struct watch *watch)
{
    const struct place *mine = &watch->place[watch->rank];

    for (int i = 0; i < watch->size; i++) {
        const struct place *place = &watch->place[i];

        if (i != watch->rank && mine->boot[0] && mine->namespace &&
            strncmp(place->boot, mine->boot, sizeof(mine->boot)) == 0 && place->namespace == mine->namespace)
            watch->fd[i].fd = (int)syscall(SYS_pidfd_open, (pid_t)place->pid, 0);
    }
    watch->fd[watch->size].fd = eventfd(0, EFD_CLOEXEC);
}

enum status watch_open(struct watch **out, struct comm *comm, struct nccl_comm *nccl)
{
    struct watch *watch = calloc(1, sizeof(*watch));
    size_t count = (size_t)comm->size;
    struct place place;

    if (!watch)
        return status_fail(STATUS_NO_MEMORY, "out of host memory");
    *out = watch;
    watch->nccl = nccl;
    watch->rank = comm->rank;
    watch->size = comm->size;
    watch->place = calloc(count, sizeof(*watch->place));
    watch->fd = calloc(count + 1, sizeof(*watch->fd));
    if (!watch->place || !watch->fd)
        return status_fail(STATUS_NO_MEMORY, "out of host memory");
    for (int i = 0; i <= watch->size; i++)
        watch->fd[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    find_place(&place);
    if (comm->gather(&place, sizeof(place), watch->place))
        return status_fail(STATUS_FAILED, "MPI could not exchange the process ids of the replicas");
    open_descriptors(watch);
    if (watch->fd[watch->size].fd >= 0)
        watch->started = pthread_create(&watch->thread, NULL, run_watch, watch) == 0;
    return watch->started ? STATUS_OK : status_fail(STATUS_FAILED, "a thread cannot be started");
}

void watch_close(struct watch *watch)
{
    const uint64_t one = 1;

    if (!watch)
        return;
    if (watch->started && write(watch->fd[watch->size].fd, &one, sizeof(one)) == (ssize_t)sizeof(one))
        pthread_join(watch->thread, NULL);
    for (int i = 0; i <= watch->size && watch->fd; i++)
        if (watch->fd[i].fd >= 0)
            close(watch->fd[i].fd);
    free(watch->fd);
    free(watch->place);
    free(watch);
}

bool watch_has_seen_the_end(struct watch *watch)
{
    return watch && atomic_load(&watch->over);
}
