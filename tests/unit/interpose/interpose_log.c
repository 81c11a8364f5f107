/* log: what reaches standard error, and what a program never notices of it. Standard error is a pipe of the
 * test's own; what identifies a file can be changed. */
#include "interpose/settings/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

static struct fake {
    bool on; /* descriptor 2 has the identity below */
    bool no_birth;
    unsigned long long device, inode, born;
} fake;
static int reader = -1, saved_stderr = -1;

int __real_fstat(int descriptor, struct stat *out);
int __wrap_fstat(int descriptor, struct stat *out);
int __wrap_fstat(int descriptor, struct stat *out)
{
    const int rc = __real_fstat(descriptor, out);

    if (fake.on && descriptor == STDERR_FILENO) {
        out->st_dev = fake.device;
        out->st_ino = fake.inode;
    }
    return rc;
}

int __real_statx(int folder, const char *path, int flags, unsigned mask, struct statx *out);
int __wrap_statx(int folder, const char *path, int flags, unsigned mask, struct statx *out);
int __wrap_statx(int folder, const char *path, int flags, unsigned mask, struct statx *out)
{
    if (!fake.on)
        return __real_statx(folder, path, flags, mask, out);
    *out =
        (struct statx){.stx_mask = fake.no_birth ? 0 : STATX_BTIME, .stx_btime.tv_sec = (int64_t)fake.born};
    return 0;
}

/* Returns what was written since the last call. */
static const char *written(void)
{
    static char text[8192];
    const ssize_t got = read(reader, text, sizeof(text) - 1);

    text[got > 0 ? got : 0] = '\0';
    return text;
}

void setUp(void)
{
    int ends[2];

    fake = (struct fake){0};
    TEST_ASSERT_EQUAL_INT(0, pipe2(ends, O_NONBLOCK | O_CLOEXEC));
    reader = ends[0];
    saved_stderr = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    log_new_stderr();
    log_set(OPTIONS_LOG_INFO);
}

void tearDown(void)
{
    fake.on = false;
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(reader);
    log_new_stderr();
}

static void test_what_is_said_is_one_line_of_text(void)
{
    log_error("cannot write '%s'", "a\n\x1b[2J\tb\x7f\xc3\xa4");
    TEST_ASSERT_EQUAL_STRING("gpucap: cannot write 'a??[2J?b?\xc3\xa4'\n", written());
}

static void test_the_level_decides_what_is_said(void)
{
    log_error("a %d", 1);
    log_info("b %s", "two");
    TEST_ASSERT_EQUAL_STRING("gpucap: a 1\ngpucap: b two\n", written());
    log_set(OPTIONS_LOG_ERROR);
    log_error("c");
    log_info("d");
    TEST_ASSERT_EQUAL_STRING("gpucap: c\n", written());
    log_set(OPTIONS_LOG_QUIET);
    log_error("e");
    log_info("f");
    TEST_ASSERT_EQUAL_STRING("", written());
}

static void test_what_is_said_once_is_said_once(void)
{
    for (int i = 0; i < 3; i++)
        LOG_ERROR_ONCE("number %d", i);
    TEST_ASSERT_EQUAL_STRING("gpucap: number 0\n", written());
}

static void test_a_long_line_is_cut_and_ended(void)
{
    char text[2000];
    char line[4096];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    log_error("%s", text);
    const ssize_t got = read(reader, line, sizeof(line));
    TEST_ASSERT_EQUAL_INT(1023, got);
    TEST_ASSERT_EQUAL_CHAR('\n', line[got - 1]);
    TEST_ASSERT_NULL(memchr(line, '\0', (size_t)got));
}

static void test_errno_stays(void)
{
    close(reader);
    errno = 77;
    log_error("into a closed pipe");
    TEST_ASSERT_EQUAL_INT(77, errno);
    log_new_stderr();
    TEST_ASSERT_EQUAL_INT(77, errno);
    reader = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static bool is_pending(void)
{
    sigset_t pending;

    sigpending(&pending);
    return sigismember(&pending, SIGPIPE);
}

static void test_a_pipe_that_nobody_reads_raises_no_signal(void)
{
    sigset_t mask, before, after;

    close(reader);
    sigemptyset(&mask);
    pthread_sigmask(SIG_SETMASK, &mask, &before);
    log_error("into a closed pipe"); /* SIGPIPE would end the test */
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    TEST_ASSERT_FALSE_MESSAGE(sigismember(&after, SIGPIPE), "the mask is the program's own");

    sigaddset(&mask, SIGPIPE);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    log_error("into a closed pipe");
    TEST_ASSERT_FALSE_MESSAGE(is_pending(), "ours is taken back");
    pthread_kill(pthread_self(), SIGPIPE);
    log_error("into a closed pipe");
    TEST_ASSERT_TRUE_MESSAGE(is_pending(), "the program's own stays");
    const struct timespec at_once = {0};
    TEST_ASSERT_EQUAL_INT(SIGPIPE, sigtimedwait(&mask, NULL, &at_once));
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    TEST_ASSERT_TRUE(sigismember(&after, SIGPIPE));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    reader = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void test_a_full_file_raises_no_signal(void)
{
    const int full = memfd_create("full", MFD_CLOEXEC);
    struct rlimit before, none;

    TEST_ASSERT_EQUAL_INT(0, getrlimit(RLIMIT_FSIZE, &before));
    none = (struct rlimit){0, before.rlim_max};
    dup2(full, STDERR_FILENO);
    log_new_stderr();
    TEST_ASSERT_EQUAL_INT(0, setrlimit(RLIMIT_FSIZE, &none));
    log_error("beyond the limit"); /* SIGXFSZ would end the test */
    setrlimit(RLIMIT_FSIZE, &before);
    log_error("below it");
    struct stat now;
    TEST_ASSERT_EQUAL_INT(0, fstat(full, &now));
    TEST_ASSERT_EQUAL_INT(strlen("gpucap: below it\n"), now.st_size);
    close(full);
}

/* Remembers one file as standard error, puts another in its place, and returns what it gets. */
static const char *after_change(struct fake before, struct fake now)
{
    fake = before;
    log_new_stderr();
    fake = now;
    log_error("for stderr");
    return written();
}

static void test_another_file_at_descriptor_2_gets_nothing(void)
{
    const struct fake file = {.on = true, .device = 5, .inode = 6, .born = 7};
    struct fake other = file;

    TEST_ASSERT_EQUAL_STRING("gpucap: for stderr\n", after_change(file, file));
    other.inode++;
    TEST_ASSERT_EQUAL_STRING("", after_change(file, other));
    other = file;
    other.device++;
    TEST_ASSERT_EQUAL_STRING("", after_change(file, other));
    other = file;
    other.born++; /* ext4 gives a new file the number of a deleted one */
    TEST_ASSERT_EQUAL_STRING("", after_change(file, other));
    other.no_birth = true;
    TEST_ASSERT_EQUAL_STRING("gpucap: for stderr\n", after_change(other, other));
    const struct fake none = {.on = true}; /* the program had no standard error */
    TEST_ASSERT_EQUAL_STRING("", after_change(none, none));
}

static void test_a_closed_descriptor_2_is_no_standard_error(void)
{
    close(STDERR_FILENO);
    log_error("nowhere");
    log_new_stderr();
    const int file = open("/dev/null", O_WRONLY);
    TEST_ASSERT_EQUAL_INT(STDERR_FILENO, file);
    log_error("nowhere"); /* not the file that it was */
    TEST_ASSERT_EQUAL_STRING("", written());
}

static void test_a_forked_child_speaks_too(void)
{
    const pid_t child = fork();

    if (child == 0) {
        fake = (struct fake){.on = true, .device = 1, .inode = 2, .born = 3};
        log_new_stderr(); /* has its own standard error */
        log_error("child");
        _exit(0);
    }
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, NULL, 0));
    TEST_ASSERT_EQUAL_STRING("gpucap: child\n", written());
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_the_level_decides_what_is_said);
    RUN_TEST(test_what_is_said_is_one_line_of_text);
    RUN_TEST(test_what_is_said_once_is_said_once);
    RUN_TEST(test_a_long_line_is_cut_and_ended);
    RUN_TEST(test_errno_stays);
    RUN_TEST(test_a_pipe_that_nobody_reads_raises_no_signal);
    RUN_TEST(test_a_full_file_raises_no_signal);
    RUN_TEST(test_another_file_at_descriptor_2_gets_nothing);
    RUN_TEST(test_a_closed_descriptor_2_is_no_standard_error);
    RUN_TEST(test_a_forked_child_speaks_too);
    return UNITY_END();
}
