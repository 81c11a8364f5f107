/* inquiry: see inquiry.h. */
#include "interpose/account/inquiry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpose/account/ledger.h"

#define PATH_MOST (LEDGER_PATH + 64)

static void name(char path[PATH_MOST], const char *folder, const char *what, pid_t pid)
{
    snprintf(path, PATH_MOST, "%.*s/%s.%ld", LEDGER_PATH, folder, what, (long)pid);
}

/* Writes a file whole, under another name first. */
static int put(const char *path, uid_t uid, const char *text)
{
    char other[PATH_MOST + 32];
    const size_t length = strlen(text);

    snprintf(other, sizeof(other), "%s.%ld.new", path, (long)getpid());
    unlink(other);
    const int fd = open(other, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd < 0)
        return -errno;
    int rc = uid != geteuid() && fchown(fd, uid, (gid_t)-1) ? -errno : 0;
    if (rc == 0 && write(fd, text, length) != (ssize_t)length)
        rc = -EIO;
    close(fd);
    if (rc == 0 && rename(other, path))
        rc = -errno;
    if (rc)
        unlink(other);
    return rc;
}

/* Reads a whole file of the user `uid`. Returns its length or -errno. */
static ssize_t get(const char *path, uid_t uid, char *text, size_t size)
{
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat file;
    ssize_t length = -EPERM;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_uid == uid &&
        (file.st_mode & (S_IWGRP | S_IWOTH)) == 0) {
        length = read(fd, text, size - 1);
        length = length < 0 ? -errno : length;
    }
    close(fd);
    if (length >= 0)
        text[length] = '\0';
    return length;
}

int inquiry_ask(const char *folder, pid_t pid, uid_t uid, const char *text)
{
    char path[PATH_MOST];

    if (strlen(text) >= INQUIRY_QUESTION)
        return -ENAMETOOLONG;
    name(path, folder, "answer", pid); /* of an earlier request */
    unlink(path);
    name(path, folder, "ask", pid);
    return put(path, uid, text);
}

ssize_t inquiry_hear(const char *folder, pid_t pid, uid_t uid, char answer[INQUIRY_ANSWER])
{
    char path[PATH_MOST];

    name(path, folder, "ask", pid);
    unlink(path);
    name(path, folder, "answer", pid);
    const ssize_t length = get(path, uid, answer, INQUIRY_ANSWER);
    if (length >= 0)
        unlink(path);
    return length;
}

bool inquiry_take(const char *folder, char text[INQUIRY_QUESTION])
{
    char path[PATH_MOST];

    name(path, folder, "ask", getpid());
    const ssize_t length = get(path, geteuid(), text, INQUIRY_QUESTION);
    if (length < 0)
        return false;
    unlink(path);
    return true;
}

int inquiry_answer(const char *folder, const char *text)
{
    char path[PATH_MOST];

    name(path, folder, "answer", getpid());
    return put(path, geteuid(), text);
}
