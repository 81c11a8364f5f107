/* ledger: the files themselves. Those that are damaged, foreign or of another version are replaced if no
 * process uses them, and refused with a sentence otherwise. */
#include "ledger_support.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

#define ONE_USER     1234 /* users and a group that need not exist */
#define ANOTHER_USER 4321
#define GROUP        5555
#define LEDGER_FDS   1000 /* the first one of a ledger (HIGH_FD) */

static char path[2 * LEDGER_PATH]; /* of the ledger's file */
static char why[LEDGER_WHY];

void setUp(void)
{
    test_begin();
    snprintf(path, sizeof(path), "%s/" CARD ".ledger", test_folder);
    why[0] = '\0';
}

void tearDown(void)
{
    test_end();
}

static int try_open(void)
{
    struct ledger *ledger = NULL;

    why[0] = '\0';
    const int rc = ledger_open(&ledger, test_folder, CARD, why);
    if (rc == 0)
        ledger_close(ledger);
    return rc;
}

static int try_look(void)
{
    struct ledger *ledger = NULL;

    why[0] = '\0';
    const int rc = ledger_open_existing(&ledger, test_folder, CARD, why);
    if (rc == 0)
        ledger_close(ledger);
    return rc;
}

static void overwrite(off_t at, const void *bytes, size_t count)
{
    const int fd = open(path, O_RDWR | O_CREAT, 0600);

    TEST_ASSERT_GREATER_OR_EQUAL_INT(0, fd);
    TEST_ASSERT_EQUAL_INT((int)count, pwrite(fd, bytes, count, at));
    close(fd);
}

static void assert_replaced(void)
{
    struct ledger *ledger = test_join(JOB, 1000);

    TEST_ASSERT_EQUAL_INT(0, ledger->slot);
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 1000));
    TEST_ASSERT_EQUAL_UINT64(1000, test_sum(ledger));
    TEST_ASSERT_EQUAL_UINT64(1000, test_living(ledger));
    test_close(ledger);
}

/* ---- places ---- */

static void test_folder_is_the_one_asked_for_or_the_users(void)
{
    char folder[LEDGER_PATH], expected[LEDGER_PATH + 8];

    setenv("XDG_RUNTIME_DIR", test_folder, 1);
    snprintf(expected, sizeof(expected), "%s/gpucap", test_folder);
    TEST_ASSERT_EQUAL_INT(0, ledger_folder("/a/b", folder, sizeof(folder)));
    TEST_ASSERT_EQUAL_STRING("/a/b", folder);
    TEST_ASSERT_EQUAL_INT(0, ledger_folder(NULL, folder, sizeof(folder)));
    TEST_ASSERT_EQUAL_STRING(expected, folder);
    snprintf(expected, sizeof(expected), "/dev/shm/gpucap-%u", (unsigned)geteuid());
    setenv("XDG_RUNTIME_DIR", "/nonexistent/user/1", 1);
    TEST_ASSERT_EQUAL_INT(0, ledger_folder(NULL, folder, sizeof(folder)));
    TEST_ASSERT_EQUAL_STRING(expected, folder);
    setenv("XDG_RUNTIME_DIR", "/dev/null", 1);
    TEST_ASSERT_EQUAL_INT(0, ledger_folder(NULL, folder, sizeof(folder)));
    TEST_ASSERT_EQUAL_STRING(expected, folder);
    setenv("XDG_RUNTIME_DIR", "relative", 1);
    TEST_ASSERT_EQUAL_INT(0, ledger_folder("", folder, sizeof(folder)));
    TEST_ASSERT_EQUAL_STRING(expected, folder);
    if (geteuid() == 0) { /* else / is another user's */
        setenv("XDG_RUNTIME_DIR", test_folder, 1);
        TEST_ASSERT_EQUAL_INT(0, chown(test_folder, ONE_USER, GROUP));
    } else {
        setenv("XDG_RUNTIME_DIR", "/", 1);
    }
    TEST_ASSERT_EQUAL_INT(0, ledger_folder(NULL, folder, sizeof(folder)));
    TEST_ASSERT_EQUAL_STRING(expected, folder);
    unsetenv("XDG_RUNTIME_DIR");
    TEST_ASSERT_EQUAL_INT(0, ledger_folder(NULL, folder, sizeof(folder)));
    TEST_ASSERT_EQUAL_STRING(expected, folder);
    TEST_ASSERT_EQUAL_INT(-ENAMETOOLONG, ledger_folder("/a/b", folder, 4));
    TEST_ASSERT_EQUAL_INT(0, ledger_folder("/a/b", folder, 5));
}

static void test_folder_and_file_are_made_for_the_user_alone(void)
{
    struct stat status;

    rmdir(test_folder);
    test_open();
    TEST_ASSERT_EQUAL_INT(0, stat(test_folder, &status));
    TEST_ASSERT_EQUAL_HEX16(0700, status.st_mode & 07777);
    TEST_ASSERT_EQUAL_INT(0, stat(path, &status));
    TEST_ASSERT_EQUAL_HEX16(0600, status.st_mode & 07777);
    TEST_ASSERT_EQUAL_INT64(sizeof(struct ledger_file), status.st_size);
    /* All pages are there: where memory is short, one that is not would end the program. */
    TEST_ASSERT_GREATER_OR_EQUAL_INT64(status.st_size, status.st_blocks * 512);
}

static void test_folder_that_cannot_be_created_is_reported(void)
{
    struct ledger *ledger;
    char longer[LEDGER_PATH + 10];

    TEST_ASSERT_EQUAL_INT(-ENOENT, ledger_open(&ledger, "/nowhere/at/all", CARD, why));
    TEST_ASSERT_NOT_NULL(strstr(why, "/nowhere/at/all"));
    memset(longer, 'a', sizeof(longer));
    longer[0] = '/';
    longer[sizeof(longer) - 1] = '\0';
    TEST_ASSERT_EQUAL_INT(-ENAMETOOLONG, ledger_open(&ledger, longer, CARD, why));
}

/* The folder of the test, by a path of `length` characters. */
static int try_path_of(size_t length)
{
    char longer[LEDGER_PATH + 1];
    struct ledger *ledger;

    memset(longer, '/', length);
    memcpy(longer, test_folder, strlen(test_folder));
    longer[length] = '\0';
    const int rc = ledger_open(&ledger, longer, CARD, why);
    if (rc == 0)
        ledger_close(ledger);
    return rc;
}

static void test_path_of_the_folder_has_room_for_its_end(void)
{
    TEST_ASSERT_EQUAL_INT(0, try_path_of(LEDGER_PATH - 1));
    TEST_ASSERT_EQUAL_INT(-ENAMETOOLONG, try_path_of(LEDGER_PATH));
}

static void test_looking_makes_nothing(void)
{
    struct ledger *ledger;
    struct stat status;

    TEST_ASSERT_EQUAL_INT(-ENOENT, try_look());
    TEST_ASSERT_NOT_NULL(strstr(why, CARD));
    TEST_ASSERT_EQUAL_INT(-1, stat(path, &status));
    rmdir(test_folder);
    TEST_ASSERT_EQUAL_INT(-ENOENT, ledger_open_existing(&ledger, test_folder, CARD, why));
    TEST_ASSERT_EQUAL_INT(-1, stat(test_folder, &status));
}

static void test_names_that_are_no_uuid_are_refused(void)
{
    static const char *const names[] = {
        "",    "../x",  "a/b",
        "a.b", "a\x1b", "0123456789012345678901234567890123456789012345678901234567890123456789"};
    struct ledger *ledger;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        TEST_ASSERT_EQUAL_INT(-EINVAL, ledger_open(&ledger, test_folder, names[i], why));
        TEST_ASSERT_NOT_NULL(strstr(why, "UUID"));
    }
    TEST_ASSERT_EQUAL_INT(0, rmdir(test_folder)); /* nothing was made */
}

static void count_card(const char *uuid, void *argument)
{
    TEST_ASSERT_EQUAL_STRING(CARD, uuid);
    ++*(int *)argument;
}

static void test_each_card_of_a_folder_is_visited(void)
{
    /* the last but one is too long by one character: AddressSanitizer would see it copied */
    static const char *const others[] = {".ledger",
                                         "x.ledger.old",
                                         "a b.ledger",
                                         "a\x1b[2J.ledger",
                                         "012345678901234567890123456789012345678901234567.ledger",
                                         "0123456789012345678901234567890123456789012345678.ledger"};
    char name[2 * LEDGER_PATH];
    int count = 0;

    test_open();
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        snprintf(name, sizeof(name), "%s/%s", test_folder, others[i]);
        close(open(name, O_RDWR | O_CREAT, 0600));
    }
    TEST_ASSERT_EQUAL_INT(0, ledger_each_card(test_folder, count_card, &count));
    TEST_ASSERT_EQUAL_INT(1, count);
    TEST_ASSERT_EQUAL_INT(-ENOENT, ledger_each_card("/nowhere/at/all", count_card, &count));
}

static bool no_map;

void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    return no_map ? MAP_FAILED : __real_mmap(address, length, protection, flags, fd, offset);
}

/* The number that the next descriptor of a ledger would get. */
static int next_fd(void)
{
    const int fd = fcntl(STDERR_FILENO, F_DUPFD, LEDGER_FDS);

    close(fd);
    return fd;
}

static void test_a_file_that_cannot_be_mapped_is_not_left_open(void)
{
    test_open();
    const int before = next_fd();
    no_map = true;
    const int rc = try_open();
    no_map = false;
    TEST_ASSERT_EQUAL_INT(-ENOMEM, rc);
    TEST_ASSERT_NOT_NULL(strstr(why, CARD));
    TEST_ASSERT_EQUAL_INT(before, next_fd());
}

/* ---- damage ---- */

static void test_file_of_any_size_is_replaced_if_no_process_uses_it(void)
{
    static const off_t sizes[] = {0,
                                  1,
                                  63,
                                  64,
                                  4096,
                                  sizeof(struct ledger_file) - 1,
                                  sizeof(struct ledger_file) + 1,
                                  8 * (off_t)sizeof(struct ledger_file)};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        struct stat status;

        TEST_ASSERT_EQUAL_INT(0, try_open());
        TEST_ASSERT_EQUAL_INT(0, truncate(path, sizes[i]));
        TEST_ASSERT_EQUAL_INT(-ENODATA, try_look());
        assert_replaced();
        TEST_ASSERT_EQUAL_INT(0, stat(path, &status));
        TEST_ASSERT_EQUAL_INT64(sizeof(struct ledger_file), status.st_size);
    }
}

static const struct {
    off_t at;
    const char *bytes;
    size_t count;
} damages[] = {
    {offsetof(struct ledger_head, magic), "X", 1},
    {offsetof(struct ledger_head, version), "\x08\0\0\0", 4}, /* newer */
    {offsetof(struct ledger_head, version), "\x06\0\0\0", 4}, /* older */
    {offsetof(struct ledger_head, bytes), "\x01", 1},
    {offsetof(struct ledger_head, uuid), "GPU-0000", 8},
    {offsetof(struct ledger_head, uuid), "012345678901234567890123456789012345678901234567", 48},
};

/* And with the head, all that stands behind it goes. */
static void test_file_with_another_head_is_replaced_if_no_process_uses_it(void)
{
    char garbage[1000];

    memset(garbage, 'g', sizeof(garbage));
    for (size_t i = 0; i < sizeof(damages) / sizeof(*damages); i++) {
        TEST_ASSERT_EQUAL_INT(0, try_open());
        overwrite(offsetof(struct ledger_file, jobs), garbage, sizeof(garbage));
        overwrite(damages[i].at, damages[i].bytes, damages[i].count);
        TEST_ASSERT_EQUAL_INT(-ENODATA, try_look());
        TEST_ASSERT_NOT_NULL(strstr(why, CARD));
        assert_replaced();
    }
}

static void test_file_with_another_head_is_refused_while_a_process_uses_it(void)
{
    struct member first = member_start(JOB, 1000), member = member_start(JOB, 1000);
    struct ledger_head head;
    const int fd = open(path, O_RDONLY);

    member_end(&first); /* the other one is in the second slot */
    TEST_ASSERT_EQUAL_INT(sizeof(head), pread(fd, &head, sizeof(head), 0));
    close(fd);
    member_do(&member, ORDER_EXTEND, 700, 0);
    for (size_t i = 0; i < sizeof(damages) / sizeof(*damages); i++) {
        overwrite(damages[i].at, damages[i].bytes, damages[i].count);
        TEST_ASSERT_EQUAL_INT(-EPROTONOSUPPORT, try_open());
        TEST_ASSERT_NOT_NULL(strstr(why, CARD));
        TEST_ASSERT_NOT_NULL(strstr(why, "version"));
        TEST_ASSERT_EQUAL_INT(-EPROTONOSUPPORT, try_look());
        overwrite(0, &head, sizeof(head));
    }
    /* the process that uses it has not noticed */
    TEST_ASSERT_EQUAL_INT64(700, member_do(&member, ORDER_LEASE, 0, 0));
    TEST_ASSERT_EQUAL_UINT64(300, ledger_room(test_join(JOB, 0)));
    overwrite(damages[1].at, damages[1].bytes, damages[1].count);
    member_kill(&member);
}

static void test_dead_processes_do_not_keep_a_damaged_file(void)
{
    struct member member = member_start(JOB, 1000);

    member_do(&member, ORDER_EXTEND, 700, 0);
    overwrite(0, "damaged", 7);
    TEST_ASSERT_EQUAL_INT(-EPROTONOSUPPORT, try_open());
    member_kill(&member);
    assert_replaced();
}

/* A reader has the file mapped, without a slot. */
static void test_replacing_a_file_does_not_harm_who_has_it_mapped(void)
{
    struct ledger *reader = test_open(), *again;
    struct ledger_entry entry;

    overwrite(0, "damaged", 7);
    again = test_join(JOB, 1000);
    TEST_ASSERT_TRUE(ledger_read(reader, again->slot, &entry)); /* it is the same file */
    TEST_ASSERT_EQUAL_INT(0, ledger_join(reader, JOB, 0));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(again, 600));
    TEST_ASSERT_EQUAL_UINT64(400, ledger_room(reader));
}

/* Reads the file over and over, as `gpucap top` does. */
static void read_for_ever(int ready)
{
    struct ledger *ledger;
    struct ledger_entry entry;
    char byte = 1;

    test_after_fork();
    if (ledger_open(&ledger, test_folder, CARD, why) || write(ready, &byte, 1) != 1)
        _exit(1);
    for (;;)
        ledger_read(ledger, LEDGER_SLOTS - 1, &entry);
}

static void test_reader_survives_that_a_file_is_replaced(void)
{
    int ready[2], status;
    char byte;

    TEST_ASSERT_EQUAL_INT(0, pipe2(ready, O_CLOEXEC));
    const pid_t reader = fork();
    if (reader == 0)
        read_for_ever(ready[1]);
    TEST_ASSERT_EQUAL_INT(1, read(ready[0], &byte, 1));
    for (int i = 0; i < 500; i++) {
        overwrite(0, "damaged", 7);
        TEST_ASSERT_EQUAL_INT(0, try_open());
    }
    kill(reader, SIGKILL);
    TEST_ASSERT_EQUAL_INT(reader, waitpid(reader, &status, 0));
    TEST_ASSERT_EQUAL_INT(SIGKILL, WTERMSIG(status)); /* not SIGBUS before */
    close(ready[0]);
    close(ready[1]);
}

static void test_garbage_behind_the_head_is_survived(void)
{
    struct ledger *ledger = test_join(JOB, 1000);
    struct ledger_entry entry;

    memset((char *)ledger->file + sizeof(struct ledger_head), 0xff,
           sizeof(*ledger->file) - sizeof(struct ledger_head));
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 500)); /* a max of all ones is none */
    ledger_settle(ledger, 400);
    TEST_ASSERT_EQUAL_UINT64(400, ledger->lease);
    TEST_ASSERT_FALSE(ledger_ask(ledger, 1, 0));
    for (int i = -1; i <= LEDGER_SLOTS; i++)
        ledger_read(ledger, i, &entry);
    TEST_ASSERT_EQUAL_INT(0, try_open());
}

static void test_another_process_that_sets_the_file_up_is_waited_for_but_not_for_ever(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LEDGER_SETUP_BYTE, .l_len = 1};

    TEST_ASSERT_EQUAL_INT(0, try_open());
    const int fd = open(path, O_RDWR);
    TEST_ASSERT_EQUAL_INT(0, fcntl(fd, F_OFD_SETLK, &lock));
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, try_open(), "a finished file needs no wait");
    overwrite(0, "damaged", 7);
    TEST_ASSERT_EQUAL_INT(-ETIMEDOUT, try_open());
    TEST_ASSERT_NOT_NULL(strstr(why, CARD));
    close(fd);
    TEST_ASSERT_EQUAL_INT(0, try_open());
}

/* ---- what is no ledger ---- */

static void test_links_are_not_followed(void)
{
    char target[2 * LEDGER_PATH];

    snprintf(target, sizeof(target), "%s/target", test_folder);
    close(open(target, O_RDWR | O_CREAT, 0600));
    TEST_ASSERT_EQUAL_INT(0, symlink(target, path));
    TEST_ASSERT_EQUAL_INT(-ELOOP, try_open());
    TEST_ASSERT_NOT_NULL(strstr(why, CARD));
    unlink(path);
    TEST_ASSERT_EQUAL_INT(0, link(target, path));
    TEST_ASSERT_EQUAL_INT(-EACCES, try_open());
    TEST_ASSERT_NOT_NULL(strstr(why, "link"));
}

static void test_folder_that_is_a_link_is_refused(void)
{
    char target[2 * LEDGER_PATH], link_path[2 * LEDGER_PATH];
    struct ledger *ledger;

    snprintf(target, sizeof(target), "%s/real", test_folder);
    snprintf(link_path, sizeof(link_path), "%s/link", test_folder);
    TEST_ASSERT_EQUAL_INT(0, mkdir(target, 0700));
    TEST_ASSERT_EQUAL_INT(0, symlink(target, link_path));
    TEST_ASSERT_LESS_THAN_INT(0, ledger_open(&ledger, link_path, CARD, why));
    TEST_ASSERT_NOT_NULL(strstr(why, link_path));
    TEST_ASSERT_EQUAL_INT(0, rmdir(target)); /* nothing was made in it */
}

static void test_fifo_and_folder_are_refused_at_once(void)
{
    TEST_ASSERT_EQUAL_INT(0, mkfifo(path, 0600));
    TEST_ASSERT_EQUAL_INT(-EACCES, try_open());
    TEST_ASSERT_NOT_NULL(strstr(why, CARD));
    unlink(path);
    TEST_ASSERT_EQUAL_INT(0, mkdir(path, 0700));
    TEST_ASSERT_EQUAL_INT(-EISDIR, try_open());
}

static void test_folder_that_others_may_write_to_is_refused(void)
{
    TEST_ASSERT_EQUAL_INT(0, chmod(test_folder, 0777));
    TEST_ASSERT_EQUAL_INT(-EACCES, try_open());
    TEST_ASSERT_NOT_NULL(strstr(why, test_folder));
    TEST_ASSERT_EQUAL_INT(0, chmod(test_folder, 01777));
    TEST_ASSERT_EQUAL_INT(-EACCES, try_open());
    TEST_ASSERT_EQUAL_INT(0, chmod(test_folder, 0755));
    TEST_ASSERT_EQUAL_INT(0, try_open());
}

static void test_file_is_for_the_group_only_where_the_group_may_write_to_the_folder(void)
{
    struct stat status;

    TEST_ASSERT_EQUAL_INT(0, chmod(test_folder, 0755));
    TEST_ASSERT_EQUAL_INT(0, try_open());
    TEST_ASSERT_EQUAL_INT(0, stat(path, &status));
    TEST_ASSERT_EQUAL_HEX16(0600, status.st_mode & 07777);
}

/* ---- limits of the program's ---- */

static int open_little(void)
{
    const struct rlimit little = {sizeof(struct ledger_file) - 1, sizeof(struct ledger_file) - 1};

    setrlimit(RLIMIT_FSIZE, &little);
    return try_open();
}

/* The kernel sends SIGXFSZ, which would kill a program that writes no such file itself. */
static void test_a_program_that_may_not_write_so_much_is_not_killed(void)
{
    const pid_t child = fork();
    int status;

    if (child == 0)
        _exit(-open_little());
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
    TEST_ASSERT_TRUE_MESSAGE(WIFEXITED(status), "it was killed");
    TEST_ASSERT_EQUAL_INT(EFBIG, WEXITSTATUS(status));
    assert_replaced();
}

/* ---- other users ---- */

/* What `action` returns in a process of that user. */
static int as_user(uid_t user, int (*action)(void))
{
    const pid_t child = fork();
    int status;

    if (child == 0) {
        if (setgroups(0, NULL) || setgid(GROUP) || setuid(user))
            _exit(255);
        _exit(-action());
    }
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
    TEST_ASSERT_TRUE_MESSAGE(WIFEXITED(status), "it was killed");
    return -WEXITSTATUS(status);
}

static int join_and_take(void)
{
    struct ledger *ledger;

    umask(077); /* the file is for the group all the same */
    int rc = ledger_open(&ledger, test_folder, CARD, why);
    if (rc == 0)
        rc = ledger_join(ledger, JOB, 1000);
    return rc ? rc : ledger_extend(ledger, 301);
}

static void need_root(void)
{
    if (geteuid() != 0)
        TEST_IGNORE_MESSAGE("only root can be several users");
}

static void test_folder_of_another_user_is_refused(void)
{
    need_root();
    TEST_ASSERT_EQUAL_INT(0, chown(test_folder, ONE_USER, GROUP));
    TEST_ASSERT_EQUAL_INT(0, chmod(test_folder, 0755));
    TEST_ASSERT_EQUAL_INT(-EACCES, try_open());
    TEST_ASSERT_NOT_NULL(strstr(why, "another user"));
    TEST_ASSERT_EQUAL_INT(-EACCES, as_user(ANOTHER_USER, try_open));
    TEST_ASSERT_EQUAL_INT(0, as_user(ONE_USER, try_open));
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, try_look(), "root may look");
    TEST_ASSERT_EQUAL_INT(-EACCES, as_user(ANOTHER_USER, try_look));
}

static void test_file_of_another_user_is_refused(void)
{
    need_root();
    TEST_ASSERT_EQUAL_INT(0, chown(test_folder, ONE_USER, GROUP));
    TEST_ASSERT_EQUAL_INT(0, chmod(test_folder, 0755));
    TEST_ASSERT_EQUAL_INT(0, as_user(ONE_USER, try_open));
    TEST_ASSERT_EQUAL_INT(0, chown(path, ANOTHER_USER, GROUP));
    TEST_ASSERT_EQUAL_INT(0, chmod(path, 0666));
    TEST_ASSERT_EQUAL_INT(-EACCES, as_user(ONE_USER, try_open));
}

static void test_group_shares_a_folder_that_root_has_made_for_it(void)
{
    need_root();
    TEST_ASSERT_EQUAL_INT(0, chown(test_folder, 0, GROUP));
    TEST_ASSERT_EQUAL_INT(0, chmod(test_folder, 02770));
    TEST_ASSERT_EQUAL_INT(0, as_user(ONE_USER, join_and_take));
    struct ledger *ledger = test_join(JOB, 0); /* root looks too */
    TEST_ASSERT_EQUAL_INT(0, ledger_extend(ledger, 700));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, as_user(ANOTHER_USER, join_and_take));
    ledger_settle(ledger, 699);
    TEST_ASSERT_EQUAL_INT(0, as_user(ANOTHER_USER, join_and_take));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_folder_is_the_one_asked_for_or_the_users);
    RUN_TEST(test_folder_and_file_are_made_for_the_user_alone);
    RUN_TEST(test_folder_that_cannot_be_created_is_reported);
    RUN_TEST(test_path_of_the_folder_has_room_for_its_end);
    RUN_TEST(test_looking_makes_nothing);
    RUN_TEST(test_names_that_are_no_uuid_are_refused);
    RUN_TEST(test_each_card_of_a_folder_is_visited);
    RUN_TEST(test_a_file_that_cannot_be_mapped_is_not_left_open);
    RUN_TEST(test_file_of_any_size_is_replaced_if_no_process_uses_it);
    RUN_TEST(test_file_with_another_head_is_replaced_if_no_process_uses_it);
    RUN_TEST(test_file_with_another_head_is_refused_while_a_process_uses_it);
    RUN_TEST(test_dead_processes_do_not_keep_a_damaged_file);
    RUN_TEST(test_replacing_a_file_does_not_harm_who_has_it_mapped);
    RUN_TEST(test_reader_survives_that_a_file_is_replaced);
    RUN_TEST(test_garbage_behind_the_head_is_survived);
    RUN_TEST(test_another_process_that_sets_the_file_up_is_waited_for_but_not_for_ever);
    RUN_TEST(test_links_are_not_followed);
    RUN_TEST(test_folder_that_is_a_link_is_refused);
    RUN_TEST(test_fifo_and_folder_are_refused_at_once);
    RUN_TEST(test_folder_that_others_may_write_to_is_refused);
    RUN_TEST(test_file_is_for_the_group_only_where_the_group_may_write_to_the_folder);
    RUN_TEST(test_a_program_that_may_not_write_so_much_is_not_killed);
    RUN_TEST(test_folder_of_another_user_is_refused);
    RUN_TEST(test_file_of_another_user_is_refused);
    RUN_TEST(test_group_shares_a_folder_that_root_has_made_for_it);
    return UNITY_END();
}
