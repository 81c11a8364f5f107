/* Names, locks and renames of checkpoint files. See checkpoint_place.h. Two locks of the file system are
 * used: a writer holds that of its temporary file, and renames happen under the folder's. */
#include "harness/train/checkpoint_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPORARY ".tmp-"

/* Writes the folder of `path`, with a slash at its end, or ".". */
static void folder_of(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');

    snprintf(folder, PATH_MAX, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
}

static int open_folder(const char *path)
{
    char folder[PATH_MAX];

    folder_of(path, folder);
    return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Removes a temporary file if its lock is free: its writer has died. */
static void remove_if_dead(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);

    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(folder, name, 0);
    close(fd);
}

static void remove_dead(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t length = strlen(base);
    int fd = open_folder(path);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;

    if (!folder) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((entry = readdir(folder))) {
        if (strncmp(entry->d_name, base, length) == 0 &&
            strncmp(entry->d_name + length, TEMPORARY, strlen(TEMPORARY)) == 0)
            remove_if_dead(fd, entry->d_name);
    }
    closedir(folder);
}

/* Returns a new file with its lock held, or -1. EAGAIN: another process removed it before it was locked,
 * because it looked like that of a dead writer. */
static int create_locked(const char *name)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    struct stat info;

    if (fd < 0)
        return -1;
    /* Where the file system has no locks, no process can take it for dead either. */
    if (flock(fd, LOCK_EX) || fstat(fd, &info) || info.st_nlink > 0)
        return fd;
    close(fd);
    errno = EAGAIN;
    return -1;
}

int checkpoint_place_create(const char *path, char temporary[PATH_MAX])
{
    enum { TRIES = 1000 };

    remove_dead(path);
    for (unsigned i = 0; i < TRIES; i++) {
        int fd;

        if (snprintf(temporary, PATH_MAX, "%s" TEMPORARY "%ld-%u", path, (long)getpid(), i) >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = create_locked(temporary);
        if (fd >= 0 || (errno != EEXIST && errno != EAGAIN))
            return fd;
    }
    return -1;
}

static bool old_name(const char *path, uint64_t number, char name[PATH_MAX])
{
    return snprintf(name, PATH_MAX, "%s.%llu", path, (unsigned long long)number) < PATH_MAX;
}

/* Moves the older checkpoints on and gives the newest a second name, so that it keeps its first one until the
 * rename. What cannot be kept is not worth a failure. */
static void rotate(const char *path, uint64_t keep)
{
    char from[PATH_MAX];
    char to[PATH_MAX];

    for (uint64_t i = keep - 1; i >= 2; i--) {
        if (old_name(path, i - 1, from) && old_name(path, i, to))
            rename(from, to);
    }
    if (!old_name(path, 1, to))
        return;
    unlink(to);
    if (link(path, to) && errno != ENOENT)
        rename(path, to); /* a file system without links: for a moment nothing is at `path` */
}

int checkpoint_place_commit(const char *temporary, const char *path, uint64_t keep)
{
    int folder = open_folder(path);
    int failed;
    int error;

    if (folder >= 0)
        flock(folder, LOCK_EX);
    if (keep > 1)
        rotate(path, keep);
    failed = rename(temporary, path);
    error = errno;
    if (folder >= 0) {
        fsync(folder); /* so that the rename survives a crash */
        close(folder);
    }
    errno = error;
    return failed;
}
