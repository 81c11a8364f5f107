/* recorder, recording_write: which files a recording may be written to. What is in them is in
 * interpose_recorder.c. */
#include "interpose/see/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

#include "interpose/see/events.h"
#include "recording_decode.h"

static char folder[] = "/tmp/interpose_recorder_files.XXXXXX", path[64], why[RECORDING_WRITE_WHY];

void setUp(void)
{
    snprintf(path, sizeof(path), "%s/recording", folder);
    unlink(path);
}

void tearDown(void)
{
    events_switch(false);
}

static void begin(void)
{
    const struct recorder_settings settings = {.file = path, .job = "job"};

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, recorder_open(&settings, why), why);
}

static void note_alloc(void)
{
    events_note(&(struct recording_event){
        .head.type = RECORDING_ALLOC, .kind = RECORDING_MALLOC, .address = 0x1000, .bytes = 1});
}

static int try_open(void)
{
    const struct recorder_settings settings = {.file = path, .job = ""};
    const int rc = recorder_open(&settings, why);

    if (rc == 0)
        recorder_close();
    return rc;
}

static void test_only_recordings_are_overwritten(void)
{
    char other[80];
    FILE *file = fopen(path, "w");

    fputs("a letter", file);
    fclose(file);
    TEST_ASSERT_NOT_EQUAL(0, try_open());
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(why, "not a recording"), why);
    struct stat kind;
    stat(path, &kind);
    TEST_ASSERT_EQUAL_INT(8, kind.st_size);
    unlink(path);
    snprintf(other, sizeof(other), "%s/other", folder);
    TEST_ASSERT_EQUAL_INT(0, symlink(other, path));
    TEST_ASSERT_NOT_EQUAL(0, try_open());
    TEST_ASSERT_NOT_EQUAL_MESSAGE(0, access(other, F_OK), "a link is not followed");
    unlink(path);
    TEST_ASSERT_EQUAL_INT(0, mkfifo(path, 0600));
    TEST_ASSERT_NOT_EQUAL(0, try_open());
    unlink(path);
    TEST_ASSERT_EQUAL_INT(0, try_open());
    stat(path, &kind);
    TEST_ASSERT_EQUAL_INT(0600, kind.st_mode & 0777);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, try_open(), "an old recording may be replaced");
    snprintf(path, sizeof(path), "%s/no/such/folder", folder);
    TEST_ASSERT_EQUAL_INT(-ENOENT, try_open());
}

static void test_two_processes_do_not_write_one_file(void)
{
    begin();
    const pid_t child = fork();
    if (child == 0) {
        recorder_after_fork();
        _exit(try_open() == 0 ? 1 : !strstr(why, "%p"));
    }
    int status;
    waitpid(child, &status, 0);
    TEST_ASSERT_EQUAL_INT(0, status);
    note_alloc();
    recorder_close();
    struct recording_decode r;
    const char *reason;
    TEST_ASSERT_TRUE_MESSAGE(recording_decode(&r, path, &reason), reason);
    TEST_ASSERT_EQUAL_size_t(1, recording_decode_count(&r, RECORDING_ALLOC));
    recording_decode_free(&r);
}

/* Returns the descriptor of the recording. */
static int find_descriptor(void)
{
    char link[64], to[128];

    for (int fd = 3; fd < 256; fd++) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(link, to, sizeof(to) - 1);
        if (length > 0 && (to[length] = '\0', !strcmp(to, path)))
            return fd;
    }
    TEST_FAIL_MESSAGE("the recording is not open");
    return -1;
}

static void test_a_file_of_the_program_is_never_written_to(void)
{
    char other[80];
    struct stat kind;

    begin();
    TEST_ASSERT_EQUAL_INT(0, recorder_step(true));
    snprintf(other, sizeof(other), "%s/other", folder);
    const int fd = find_descriptor();
    const int mine = open(other, O_RDWR | O_CREAT, 0600);
    TEST_ASSERT_EQUAL_INT(fd,
                          dup2(mine, fd)); /* the program closes what it does not know, and opens its own */
    note_alloc();
    TEST_ASSERT_EQUAL_INT(-EBADF, recorder_step(true));
    recorder_close();
    TEST_ASSERT_EQUAL_INT(0, fstat(fd, &kind));
    TEST_ASSERT_EQUAL_INT(0, kind.st_size);
    close(fd);
    close(mine);
    unlink(other);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    UNITY_BEGIN();
    RUN_TEST(test_only_recordings_are_overwritten);
    RUN_TEST(test_two_processes_do_not_write_one_file);
    RUN_TEST(test_a_file_of_the_program_is_never_written_to);
    snprintf(path, sizeof(path), "%s/recording", folder);
    unlink(path);
    rmdir(folder);
    return UNITY_END();
}
