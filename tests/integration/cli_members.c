/* cli_members: processes of a ledger, for tests of commands. See cli_members.h. */
#include "cli_members.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interpose/account/ledger_file.h"
#include "unity.h"

#define MEMBERS_MAX 32
#define LINE_BYTES  128
#define PID_TEXTS   4

static struct member members[MEMBERS_MAX];
static int count;

const char *members_folder(void)
{
    return cli_path("ledger");
}

int members_use(const char *path)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LEDGER_SLOT_BYTE, .l_len = LEDGER_SLOTS};
    const int fd = open(path, O_RDWR | O_CLOEXEC);

    TEST_ASSERT_GREATER_OR_EQUAL_INT(0, fd);
    TEST_ASSERT_EQUAL_INT(0, fcntl(fd, F_OFD_SETLK, &lock));
    return fd;
}

static void expect_line(struct member *member, const char *expected)
{
    char line[LINE_BYTES] = "";

    TEST_ASSERT_NOT_NULL_MESSAGE(fgets(line, sizeof(line), member->out), "the member has ended");
    TEST_ASSERT_EQUAL_STRING(expected, line);
}

static struct member *start(const char *const *arguments)
{
    int in[2], out[2];

    TEST_ASSERT_TRUE(count < MEMBERS_MAX);
    struct member *member = &members[count];
    TEST_ASSERT_EQUAL_INT(0, pipe2(in, O_CLOEXEC));
    TEST_ASSERT_EQUAL_INT(0, pipe2(out, O_CLOEXEC));
    const char *program = spawn_build_path("tests/integration/prog_member");
    member->pid = fork();
    TEST_ASSERT_TRUE(member->pid >= 0);
    if (member->pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        execv(program, (char *const *)arguments);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    member->in = fdopen(in[1], "w");
    member->out = fdopen(out[0], "r");
    count++;
    expect_line(member, "ready\n");
    return member;
}

static struct member *start_with(const char *uuid, const char *job, unsigned max, unsigned used,
                                 unsigned cached, const char *deaf)
{
    char sizes[3][16];

    snprintf(sizes[0], sizeof(sizes[0]), "%u", max);
    snprintf(sizes[1], sizeof(sizes[1]), "%u", used);
    snprintf(sizes[2], sizeof(sizes[2]), "%u", cached);
    return start((const char *[]){"prog_member", members_folder(), uuid, job, sizes[0], sizes[1], sizes[2],
                                  deaf, NULL});
}

struct member *members_start(const char *uuid, const char *job, unsigned max, unsigned used, unsigned cached)
{
    return start_with(uuid, job, max, used, cached, NULL);
}

struct member *members_start_deaf(const char *uuid, const char *job, unsigned max, unsigned used,
                                  unsigned cached)
{
    return start_with(uuid, job, max, used, cached, "deaf");
}

void members_tell(struct member *member, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vfprintf(member->in, format, arguments);
    va_end(arguments);
    fputc('\n', member->in);
    fflush(member->in);
    expect_line(member, "done\n");
}

const char *members_pid(const struct member *member)
{
    static char texts[PID_TEXTS][16];
    static int next;
    char *text = texts[next++ % PID_TEXTS];

    snprintf(text, sizeof(texts[0]), "%d", (int)member->pid);
    return text;
}

void members_end(void)
{
    for (int i = 0; i < count; i++) {
        kill(members[i].pid, SIGKILL);
        waitpid(members[i].pid, NULL, 0);
        fclose(members[i].in);
        fclose(members[i].out);
    }
    count = 0;
}

const char *members_sim_uuid(void)
{
    static char uuid[64];
    struct spawn_env *env = cli_env();

    spawn_env_set(env, "GPUCAP_SIM_ID", spawn_sim_id());
    struct spawn_result result = CLI_RUN(env, "doctor", MEMBERS_SIM);
    const char *found = strstr(result.out, "GPU-");
    TEST_ASSERT_NOT_NULL_MESSAGE(found, result.out);
    snprintf(uuid, sizeof(uuid), "%.*s", (int)strcspn(found, ",\n "), found);
    spawn_result_free(&result);
    spawn_env_free(env);
    return uuid;
}
