/* ledger_open: folders and files of ledgers. See ledger.h. */
#include "interpose/account/ledger_file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpose/base/clock.h"
#include "interpose/base/withhold.h"

#define SUFFIX   ".ledger"
#define HIGH_FD  1000 /* above numbers that programs choose; the kernel closes it after the driver's files */
#define PAUSE_NS 1000000L

/* Returns $XDG_RUNTIME_DIR, or NULL if that is no folder of the user's: a batch job may have inherited the
 * name from another machine, a shell of `su` from another user. */
static const char *runtime_folder(void)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat folder;

    const bool is_own = runtime && *runtime == '/' && stat(runtime, &folder) == 0 &&
                        S_ISDIR(folder.st_mode) && folder.st_uid == geteuid();

    return is_own ? runtime : NULL;
}

int ledger_folder(const char *asked, char *path, size_t size)
{
    const char *runtime = runtime_folder();
    int length;

    if (asked && *asked)
        length = snprintf(path, size, "%s", asked);
    else if (runtime)
        length = snprintf(path, size, "%s/gpucap", runtime);
    else
        length = snprintf(path, size, "/dev/shm/gpucap-%u", (unsigned)geteuid());
    return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}

__attribute__((format(printf, 3, 4))) static int fail(int error, char why[LEDGER_WHY], const char *format,
                                                      ...)
{
    va_list arguments;

    va_start(arguments, format);
    /* clang-tidy 14 does not see va_start. NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    vsnprintf(why, LEDGER_WHY, format, arguments);
    va_end(arguments);
    return -error;
}

/* Returns true for a file of ours, or one that root has made for several users. Root may look into a ledger
 * of any user, but does not join it. */
static bool is_trusted(const struct stat *file, bool make)
{
    return file->st_uid == geteuid() || file->st_uid == 0 || (!make && geteuid() == 0);
}

static int open_folder(const char *path, bool make, char why[LEDGER_WHY])
{
    struct stat folder;

    if (make && mkdir(path, 0700) && errno != EEXIST)
        return fail(errno, why, "the folder %.150s cannot be made: %s", path, strerror(errno));
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return fail(errno, why, "the folder %.150s cannot be opened: %s", path, strerror(errno));
    if (fstat(fd, &folder) || !is_trusted(&folder, make) || (folder.st_mode & S_IWOTH)) {
        close(fd);
        return fail(EACCES, why, "the folder %.150s belongs to another user, or others may write to it",
                    path);
    }
    return fd;
}

static bool is_uuid(const char *text)
{
    const size_t length = strnlen(text, LEDGER_UUID);

    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)text[i]) && text[i] != '-')
            return false;
    }
    return length > 0 && length < LEDGER_UUID;
}

static int open_file(int folder, const char *uuid, bool make, char why[LEDGER_WHY])
{
    char name[LEDGER_UUID + sizeof(SUFFIX)];
    struct stat file, around;

    if (!is_uuid(uuid))
        return fail(EINVAL, why, "'%.60s' is no UUID of a card", uuid);
    if (fstat(folder, &around))
        return fail(errno, why, "the folder of the ledgers cannot be read: %s", strerror(errno));
    snprintf(name, sizeof(name), "%s" SUFFIX, uuid);
    const mode_t mode = around.st_mode & S_IWGRP ? 0660 : 0600;
    const int fd =
        openat(folder, name, O_RDWR | (make ? O_CREAT : 0) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, mode);
    if (fd < 0)
        return fail(errno, why, "the ledger %.60s cannot be opened: %s", name, strerror(errno));
    if (fstat(fd, &file) || !S_ISREG(file.st_mode) || file.st_nlink != 1 ||
        (!is_trusted(&file, make) && around.st_uid != 0)) {
        close(fd);
        return fail(EACCES, why, "the ledger %.60s belongs to another user, is a link, or is no plain file",
                    name);
    }
    if (mode == 0660 && file.st_uid == geteuid())
        (void)fchmod(fd, mode); /* overrides the umask */
    const int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

static int lock_setup(int fd, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = LEDGER_SETUP_BYTE, .l_len = 1};
    const uint64_t until = clock_ms() + LEDGER_PATIENCE_MS;

    while (fcntl(fd, F_OFD_SETLK, &lock)) {
        if (errno != EAGAIN && errno != EACCES)
            return -errno;
        if (clock_ms() > until)
            return -ETIMEDOUT;
        clock_sleep(PAUSE_NS);
    }
    return 0;
}

static bool in_use(int fd)
{
    struct flock lock = ledger_slot_lock(0, LEDGER_SLOTS);

    return fcntl(fd, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK;
}

static bool is_whole(int fd, const char *uuid)
{
    struct ledger_head head;
    struct stat file;

    return fstat(fd, &file) == 0 && file.st_size == (off_t)sizeof(struct ledger_file) &&
           pread(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) && head.magic == LEDGER_MAGIC &&
           head.version == LEDGER_VERSION && head.bytes == sizeof(struct ledger_file) &&
           memchr(head.uuid, '\0', sizeof(head.uuid)) && !strcmp(head.uuid, uuid);
}

/* Writes zeros over the whole file, so that it has all its pages: if memory is short, a later access to a
 * missing page would kill the program. Never shortens the file: a process may have mapped it. */
static bool clear_file(int fd)
{
    static const char zeros[4096];
    const off_t size = sizeof(struct ledger_file);

    if (ftruncate(fd, size))
        return false;
    errno = ENOSPC; /* if a write is cut short */
    for (off_t at = 0; at < size;) {
        const off_t left = size - at;
        const ssize_t put = pwrite(fd, zeros, left < (off_t)sizeof(zeros) ? (size_t)left : sizeof(zeros), at);

        if (put <= 0)
            return false;
        at += put;
    }
    return true;
}

/* Writes a new ledger. Returns 0 or -errno. */
static int write_file(int fd, const char *uuid)
{
    struct ledger_head head = {
        .magic = LEDGER_MAGIC, .version = LEDGER_VERSION, .bytes = sizeof(struct ledger_file)};
    struct withheld signals;

    strncpy(head.uuid, uuid, sizeof(head.uuid) - 1);
    withhold_begin(&signals);
    /* The head is written last: a file without one is set up again. */
    const int error =
        clear_file(fd) && pwrite(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) ? 0 : errno;
    withhold_end(&signals, error);
    return -error;
}

/* Sets up the file unless it is valid. The caller holds the setup lock. */
static int set_up(int fd, const char *uuid, char why[LEDGER_WHY])
{
    if (is_whole(fd, uuid))
        return 0;
    if (in_use(fd))
        return fail(EPROTONOSUPPORT, why,
                    "the ledger of %.48s is damaged or of another version of gpucap, and programs use it",
                    uuid);
    const int rc = write_file(fd, uuid);
    return rc ? fail(-rc, why, "the ledger of %.48s cannot be written: %s", uuid, strerror(-rc)) : 0;
}

/* Says what is wrong with a file that is not whole, and that may not be replaced. */
static int judge(int fd, const char *uuid, char why[LEDGER_WHY])
{
    if (is_whole(fd, uuid)) /* it was being set up */
        return 0;
    return in_use(fd) ? fail(EPROTONOSUPPORT, why,
                             "the ledger of %.48s is of another version, and programs use it", uuid)
                      : fail(ENODATA, why,
                             "the ledger of %.48s is of another version, and no program uses it", uuid);
}

static int open_in(const char *folder, const char *uuid, bool make, char why[LEDGER_WHY])
{
    const int around = open_folder(folder, make, why);
    if (around < 0)
        return around;
    const int fd = open_file(around, uuid, make, why);
    close(around);
    return fd;
}

static int open_checked(const char *folder, const char *uuid, bool make, char why[LEDGER_WHY])
{
    const int fd = open_in(folder, uuid, make, why);

    if (fd < 0 || is_whole(fd, uuid)) /* the head is written last */
        return fd;
    int rc = lock_setup(fd, F_WRLCK);
    if (rc == -ETIMEDOUT)
        fail(-rc, why, "another process is making the ledger of %.48s and does not go on", uuid);
    else if (rc)
        fail(-rc, why, "the ledger of %.48s cannot be locked: %s", uuid, strerror(-rc));
    else
        rc = make ? set_up(fd, uuid, why) : judge(fd, uuid, why);
    lock_setup(fd, F_UNLCK);
    if (rc)
        close(fd);
    return rc ? rc : fd;
}

static int open_ledger(struct ledger **ledger, const char *folder, const char *uuid, bool make,
                       char why[LEDGER_WHY])
{
    struct stat status;

    if (strlen(folder) >= LEDGER_PATH)
        return fail(ENAMETOOLONG, why, "the path of the ledger's folder is too long");
    const int fd = open_checked(folder, uuid, make, why);
    if (fd < 0)
        return fd;
    struct ledger *made = calloc(1, sizeof(*made));
    void *file = mmap(NULL, sizeof(*made->file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!made || file == MAP_FAILED || fstat(fd, &status)) {
        free(made);
        if (file != MAP_FAILED)
            munmap(file, sizeof(*made->file));
        close(fd);
        return fail(ENOMEM, why, "no memory for the ledger of %.48s", uuid);
    }
    *made = (struct ledger){.file = file,
                            .fd = fd,
                            .device = status.st_dev,
                            .inode = status.st_ino,
                            .slot = -1,
                            .patience_ms = LEDGER_PATIENCE_MS,
                            .slow_ms = LEDGER_SLOW_MS};
    made->waiting = made->high = &made->file->card_waiting; /* until it joins */
    strcpy(made->folder, folder);
    strcpy(made->uuid, uuid);
    pthread_mutex_init(&made->queue, NULL);
    pthread_mutex_init(&made->mutex, NULL);
    *ledger = made;
    return 0;
}

void ledger_reopen(struct ledger *ledger)
{
    char why[LEDGER_WHY];

    if (ledger_is_open(ledger))
        return;
    const int fd = open_in(ledger->folder, ledger->uuid, false, why);
    if (fd < 0)
        return;
    if (ledger_is_file(ledger, fd))
        ledger->fd = fd; /* the old number now belongs to the program */
    else
        close(fd); /* the path names another file now */
}

int ledger_open(struct ledger **ledger, const char *folder, const char *uuid, char why[LEDGER_WHY])
{
    return open_ledger(ledger, folder, uuid, true, why);
}

int ledger_open_existing(struct ledger **ledger, const char *folder, const char *uuid, char why[LEDGER_WHY])
{
    return open_ledger(ledger, folder, uuid, false, why);
}

void ledger_after_fork(struct ledger *ledger)
{
    if (ledger_is_open(ledger))
        close(ledger->fd);
    /* The mapping holds the parent's lock on its slot as the descriptor does. */
    (void)mmap(ledger->file, sizeof(*ledger->file), PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    ledger->fd = -1;
    ledger->slot = -1;
    ledger->job = NULL;
    ledger->lease = 0;
    pthread_mutex_init(&ledger->queue, NULL); /* a thread of the parent may have held them */
    pthread_mutex_init(&ledger->mutex, NULL);
}

int ledger_each_card(const char *folder, void (*visit)(const char *uuid, void *argument), void *argument)
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;

    if (!listing)
        return -errno;
    while ((entry = readdir(listing))) {
        const size_t length = strlen(entry->d_name), suffix = sizeof(SUFFIX) - 1;
        char uuid[LEDGER_UUID];

        if (length <= suffix || length - suffix >= sizeof(uuid) ||
            strcmp(entry->d_name + length - suffix, SUFFIX) != 0)
            continue;
        memcpy(uuid, entry->d_name, length - suffix);
        uuid[length - suffix] = '\0';
        if (is_uuid(uuid))
            visit(uuid, argument);
    }
    closedir(listing);
    return 0;
}
