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

/* Gives the newest checkpoint a second name, path.0, so that it keeps its first one until the rename. What
 * cannot be kept is not worth a failure. Returns true if there is a path.0 now. */
static bool keep_newest(const char *path, char second[PATH_MAX])
{
    struct stat info;

    if (!old_name(path, 0, second) || lstat(path, &info) || !S_ISREG(info.st_mode))
        return false;
    unlink(second); /* of a process that died between the two renames */
    /* On a file system without links nothing is at `path` for a moment. */
    return link(path, second) == 0 || rename(path, second) == 0;
}

/* Moves path.0 to path.1, that one to path.2, and so on. */
static void rotate(const char *path, uint64_t keep)
{
    char from[PATH_MAX];
    char to[PATH_MAX];

    for (uint64_t i = keep - 1; i >= 1; i--) {
        if (old_name(path, i - 1, from) && old_name(path, i, to))
            rename(from, to);
    }
}

/* Brings path.0 back to its place. If it is another name of the same file, rename leaves both. */
static void undo(const char *path, const char *second)
{
    if (rename(second, path) == 0)
        unlink(second);
}

int checkpoint_place_commit(const char *temporary, const char *path, uint64_t keep)
{
    int folder = open_folder(path);
    char second[PATH_MAX];
    bool kept;
    int failed;
    int error;

    if (folder >= 0)
        flock(folder, LOCK_EX);
    kept = keep > 1 && keep_newest(path, second);
    failed = rename(temporary, path);
    error = errno;
    if (kept && failed)
        undo(path, second);
    else if (kept)
        rotate(path, keep);
    if (folder >= 0) {
        fsync(folder); /* so that the rename survives a crash */
        close(folder);
    }
    errno = error;
    return failed;
}
