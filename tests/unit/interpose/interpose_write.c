/* recording_write: the file of a recording, with a disk that can be full and writes that are interrupted. */
#include "interpose/see/recording_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unity.h>

static char folder[] = "/tmp/interpose_write.XXXXXX", path[64], why[RECORDING_WRITE_WHY];
static struct recording_write file;
static const struct recording_head head = {
    .magic = RECORDING_MAGIC, .version = 1, .head_bytes = sizeof(head)};

static struct fake {
    int interrupted;  /* so many writes are interrupted by a signal */
    int short_writes; /* so many write one byte only */
    bool full;        /* a write gets no byte out, and says no more than that */
    int fails_after;  /* so many writes until one fails with EIO; 0: none */
} fake;

static ssize_t fake_write(int fd, const void *bytes, size_t count)
{
    if (fake.interrupted-- > 0) {
        errno = EINTR;
        return -1;
    }
    if (fake.full)
        return 0;
    if (fake.fails_after && --fake.fails_after == 0) {
        errno = EIO;
        return -1;
    }
    return write(fd, bytes, fake.short_writes-- > 0 ? 1 : count);
}

static off_t size_of_file(void)
{
    struct stat now;

    TEST_ASSERT_EQUAL_INT(0, stat(path, &now));
    return now.st_size;
}

static int open_it(void)
{
    return recording_write_open(&file, path, &head, why);
}

static void add_records(void)
{
    static const uint64_t records[16] = {1, 2, 3};

    TEST_ASSERT_EQUAL_INT(0, recording_write_reserve(&file, sizeof(records)));
    recording_write_add(&file, records, sizeof(records));
}

void setUp(void)
{
    fake = (struct fake){0};
    recording_write_system.write = fake_write;
    unlink(path);
}

void tearDown(void)
{
    recording_write_close(&file);
    unlink(path);
}

static void test_a_block_is_written_whole_however_often_it_is_interrupted(void)
{
    fake = (struct fake){.interrupted = 3, .short_writes = 5};
    TEST_ASSERT_EQUAL_INT(0, open_it());
    TEST_ASSERT_EQUAL_INT(sizeof(head), size_of_file());
    struct recording_head written = {.version = 0};
    const int fd = open(path, O_RDONLY);
    TEST_ASSERT_EQUAL_INT(sizeof(written), read(fd, &written, sizeof(written)));
    close(fd);
    TEST_ASSERT_EQUAL_MEMORY(&head, &written, sizeof(head)); /* each byte once, in order */
    add_records();
    fake = (struct fake){.interrupted = 2, .short_writes = 4};
    TEST_ASSERT_EQUAL_INT(0, recording_write_flush(&file));
    TEST_ASSERT_EQUAL_INT(file.whole, size_of_file());
    TEST_ASSERT_GREATER_THAN_INT(sizeof(head) + sizeof(struct recording_block), size_of_file());
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, recording_write_flush(&file), "there is nothing more");
    TEST_ASSERT_EQUAL_INT(file.whole, size_of_file());
}

/* With a limit on files the kernel sends SIGXFSZ, which would end the test. */
static void test_a_file_that_may_not_grow_is_refused(void)
{
    struct rlimit before, none;

    TEST_ASSERT_EQUAL_INT(0, getrlimit(RLIMIT_FSIZE, &before));
    none = (struct rlimit){0, before.rlim_max};
    TEST_ASSERT_EQUAL_INT(0, setrlimit(RLIMIT_FSIZE, &none));
    const int rc = open_it();
    setrlimit(RLIMIT_FSIZE, &before);
    TEST_ASSERT_EQUAL_INT(-EFBIG, rc);
    TEST_ASSERT_NOT_NULL(strstr(why, strerror(EFBIG)));
}

static void test_a_full_disk_leaves_whole_blocks(void)
{
    TEST_ASSERT_EQUAL_INT(0, open_it());
    add_records();
    TEST_ASSERT_EQUAL_INT(0, recording_write_flush(&file));
    const off_t whole = size_of_file();
    add_records();
    fake = (struct fake){.short_writes = 10, .fails_after = 6};
    TEST_ASSERT_EQUAL_INT(-EIO, recording_write_flush(&file));
    TEST_ASSERT_EQUAL_INT_MESSAGE(whole, size_of_file(), "half a block is cut off");
    add_records();
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, recording_write_flush(&file), "given up");
    TEST_ASSERT_EQUAL_INT(whole, size_of_file());
    recording_write_close(&file);
    fake = (struct fake){.full = true};
    TEST_ASSERT_EQUAL_INT(-ENOSPC, open_it());
    TEST_ASSERT_NOT_NULL(strstr(why, strerror(ENOSPC)));
    TEST_ASSERT_EQUAL_INT(-1, file.fd);
}

static void test_a_file_that_is_not_ours_stays_as_it_is(void)
{
    static const char text[] = "a thesis, unfinished";
    int fd = open(path, O_RDWR | O_CREAT, 0600);

    TEST_ASSERT_EQUAL_INT(sizeof(text), write(fd, text, sizeof(text)));
    TEST_ASSERT_EQUAL_INT(-EPERM, open_it());
    TEST_ASSERT_NOT_NULL(strstr(why, "exists and is not a recording"));
    TEST_ASSERT_EQUAL_INT(0, ftruncate(fd, 4)); /* too short to tell */
    TEST_ASSERT_EQUAL_INT(-EPERM, open_it());
    TEST_ASSERT_EQUAL_INT(4, size_of_file());
    TEST_ASSERT_EQUAL_INT(0, ftruncate(fd, 0));
    TEST_ASSERT_EQUAL_INT(0, flock(fd, LOCK_SH)); /* another process records */
    TEST_ASSERT_EQUAL_INT(-EPERM, open_it());
    TEST_ASSERT_NOT_NULL(strstr(why, "in use by another process"));
    close(fd);
    TEST_ASSERT_EQUAL_INT(0, open_it());
    recording_write_close(&file);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, open_it(), "an old recording is replaced");
}

static void test_links_folders_and_pipes_are_refused(void)
{
    TEST_ASSERT_EQUAL_INT(0, symlink("/dev/null", path));
    TEST_ASSERT_EQUAL_INT(-ELOOP, open_it());
    TEST_ASSERT_NOT_NULL(strstr(why, "it is a link"));
    unlink(path);
    TEST_ASSERT_EQUAL_INT(0, mkfifo(path, 0600));
    TEST_ASSERT_EQUAL_INT(-EPERM, open_it());
    TEST_ASSERT_NOT_NULL(strstr(why, "is not a file"));
}

static void test_a_descriptor_that_the_program_has_taken_over_gets_nothing(void)
{
    TEST_ASSERT_EQUAL_INT(0, open_it());
    add_records();
    char other[96];
    snprintf(other, sizeof(other), "%s.data", path);
    const int data = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
    TEST_ASSERT_EQUAL_INT(file.fd,
                          dup2(data, file.fd)); /* it closed our number, and opened a file of its own */
    const int taken = file.fd;
    TEST_ASSERT_EQUAL_INT(-EBADF, recording_write_flush(&file));
    struct stat now;
    TEST_ASSERT_EQUAL_INT(0, fstat(data, &now));
    TEST_ASSERT_EQUAL_INT(0, now.st_size);
    recording_write_close(&file);
    TEST_ASSERT_NOT_EQUAL_INT_MESSAGE(-1, fcntl(taken, F_GETFD), "nor is it closed");
    close(taken);
    close(data);
    unlink(other);
}

static void test_names_of_files(void)
{
    char out[RECORDING_WRITE_PATH], expected[128], host[64] = "";

    gethostname(host, sizeof(host) - 1);
    snprintf(expected, sizeof(expected), "a-%d-%s-%%", (int)getpid(), host);
    TEST_ASSERT_EQUAL_INT(0, recording_write_name("a-%p-%h-%%", out));
    TEST_ASSERT_EQUAL_STRING(expected, out);
    TEST_ASSERT_EQUAL_INT(-EINVAL, recording_write_name("a%s", out));
    TEST_ASSERT_EQUAL_INT(-EINVAL, recording_write_name("a%", out));
    TEST_ASSERT_EQUAL_INT(-EINVAL, recording_write_name("", out));
}

static void test_the_longest_name_fits(void)
{
    static char name[RECORDING_WRITE_PATH + 1], out[RECORDING_WRITE_PATH];

    memset(name, 'x', RECORDING_WRITE_PATH);
    TEST_ASSERT_EQUAL_INT(-ENAMETOOLONG, recording_write_name(name, out));
    name[RECORDING_WRITE_PATH - 1] = '\0';
    TEST_ASSERT_EQUAL_INT(0, recording_write_name(name, out));
    TEST_ASSERT_EQUAL_STRING(name, out);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 2;
    snprintf(path, sizeof(path), "%s/r", folder);
    UNITY_BEGIN();
    RUN_TEST(test_a_block_is_written_whole_however_often_it_is_interrupted);
    RUN_TEST(test_a_file_that_may_not_grow_is_refused);
    RUN_TEST(test_a_full_disk_leaves_whole_blocks);
    RUN_TEST(test_a_file_that_is_not_ours_stays_as_it_is);
    RUN_TEST(test_links_folders_and_pipes_are_refused);
    RUN_TEST(test_a_descriptor_that_the_program_has_taken_over_gets_nothing);
    RUN_TEST(test_names_of_files);
    RUN_TEST(test_the_longest_name_fits);
    rmdir(folder);
    return UNITY_END();
}
