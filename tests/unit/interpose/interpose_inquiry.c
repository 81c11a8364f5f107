/* inquiry: a request reaches its process, an answer comes back, and files that others have made do not
 * count. */
#include "interpose/account/inquiry.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unity.h>

#define NOBODY 65534

static char folder[] = "/tmp/interpose_inquiry.XXXXXX", text[INQUIRY_QUESTION], answer[INQUIRY_ANSWER];

void setUp(void) {}

void tearDown(void) {}

static const char *file(const char *what)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%s.%ld", folder, what, (long)getpid());
    return path;
}

static void write_file(const char *path, mode_t mode)
{
    FILE *f = fopen(path, "w");

    TEST_ASSERT_NOT_NULL(f);
    fputs("stop", f);
    fclose(f);
    chmod(path, mode);
}

static void test_a_request_is_taken_once_and_answered(void)
{
    TEST_ASSERT_FALSE(inquiry_take(folder, text));
    TEST_ASSERT_EQUAL_INT(0, inquiry_ask(folder, getpid(), geteuid(), "start off /tmp/file"));
    TEST_ASSERT_TRUE(inquiry_take(folder, text));
    TEST_ASSERT_EQUAL_STRING("start off /tmp/file", text);
    TEST_ASSERT_FALSE(inquiry_take(folder, text));
    TEST_ASSERT_EQUAL_INT(-ENOENT, inquiry_hear(folder, getpid(), geteuid(), answer));
    TEST_ASSERT_EQUAL_INT(0, inquiry_answer(folder, "recording"));
    TEST_ASSERT_EQUAL_INT(9, inquiry_hear(folder, getpid(), geteuid(), answer));
    TEST_ASSERT_EQUAL_STRING("recording", answer);
    TEST_ASSERT_EQUAL_INT(-ENOENT, inquiry_hear(folder, getpid(), geteuid(), answer));
}

static void test_an_old_answer_is_not_taken_for_a_new_one(void)
{
    TEST_ASSERT_EQUAL_INT(0, inquiry_answer(folder, "old"));
    TEST_ASSERT_EQUAL_INT(0, inquiry_ask(folder, getpid(), geteuid(), "owners"));
    TEST_ASSERT_EQUAL_INT(-ENOENT, inquiry_hear(folder, getpid(), geteuid(), answer));
    TEST_ASSERT_FALSE_MESSAGE(inquiry_take(folder, text), "a request without an answer is taken back");
}

static void test_a_long_request_is_refused(void)
{
    static char long_text[INQUIRY_QUESTION + 1];

    memset(long_text, 'x', INQUIRY_QUESTION);
    TEST_ASSERT_EQUAL_INT(-ENAMETOOLONG, inquiry_ask(folder, getpid(), geteuid(), long_text));
    TEST_ASSERT_EQUAL_INT(-ENOENT, inquiry_ask("/nonexistent", getpid(), geteuid(), "stop"));
}

static void test_files_that_others_could_have_made_do_not_count(void)
{
    char other[128];

    write_file(file("ask"), 0666);
    TEST_ASSERT_FALSE_MESSAGE(inquiry_take(folder, text), "others may write to it");
    unlink(file("ask"));
    snprintf(other, sizeof(other), "%s/other", folder);
    write_file(other, 0600);
    TEST_ASSERT_EQUAL_INT(0, symlink(other, file("ask")));
    TEST_ASSERT_FALSE_MESSAGE(inquiry_take(folder, text), "a link");
    unlink(file("ask"));
    TEST_ASSERT_EQUAL_INT(0, mkfifo(file("ask"), 0600));
    TEST_ASSERT_FALSE_MESSAGE(inquiry_take(folder, text), "a pipe");
    unlink(file("ask"));
    if (geteuid() == 0) {
        TEST_ASSERT_EQUAL_INT(0, chown(other, NOBODY, (gid_t)-1));
        TEST_ASSERT_EQUAL_INT(0, rename(other, file("ask")));
        TEST_ASSERT_FALSE_MESSAGE(inquiry_take(folder, text), "another user's");
        unlink(file("ask"));
        TEST_ASSERT_EQUAL_INT(0, inquiry_ask(folder, getpid(), NOBODY, "stop"));
        struct stat made;
        TEST_ASSERT_EQUAL_INT(0, stat(file("ask"), &made));
        TEST_ASSERT_EQUAL_INT_MESSAGE(NOBODY, made.st_uid, "root asks in the name of the process's user");
        unlink(file("ask"));
    }
    unlink(other);
}

static void test_a_request_that_cannot_be_put_leaves_nothing_behind(void)
{
    TEST_ASSERT_EQUAL_INT(0, mkdir(file("ask"), 0700));
    TEST_ASSERT_EQUAL_INT(-EISDIR, inquiry_ask(folder, getpid(), geteuid(), "stop"));
    TEST_ASSERT_EQUAL_INT(0, rmdir(file("ask")));
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, rmdir(folder), "a file is left");
    TEST_ASSERT_EQUAL_INT(0, mkdir(folder, 0700));
}

static void test_an_answer_that_is_not_written_whole_does_not_count(void)
{
    struct rlimit before, little;

    memset(answer, 'x', sizeof(answer) - 1);
    answer[sizeof(answer) - 1] = '\0';
    signal(SIGXFSZ, SIG_IGN);
    TEST_ASSERT_EQUAL_INT(0, getrlimit(RLIMIT_FSIZE, &before));
    little = before;
    little.rlim_cur = 4096; /* as on a full disk */
    TEST_ASSERT_EQUAL_INT(0, setrlimit(RLIMIT_FSIZE, &little));
    const int rc = inquiry_answer(folder, answer);
    setrlimit(RLIMIT_FSIZE, &before);
    TEST_ASSERT_EQUAL_INT(-EIO, rc);
    TEST_ASSERT_EQUAL_INT(-ENOENT, inquiry_hear(folder, getpid(), geteuid(), answer));
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    UNITY_BEGIN();
    RUN_TEST(test_a_request_is_taken_once_and_answered);
    RUN_TEST(test_an_old_answer_is_not_taken_for_a_new_one);
    RUN_TEST(test_a_long_request_is_refused);
    RUN_TEST(test_files_that_others_could_have_made_do_not_count);
    RUN_TEST(test_a_request_that_cannot_be_put_leaves_nothing_behind);
    RUN_TEST(test_an_answer_that_is_not_written_whole_does_not_count);
    rmdir(folder);
    return UNITY_END();
}
