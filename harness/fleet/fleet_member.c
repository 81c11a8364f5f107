/* fleet_member: starts, reads and ends one program of a fleet. See fleet_member.h. */
#include "harness/fleet/fleet_member.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/fleet/fleet_place.h"

#define READ_BYTES    (64 * 1024) /* read from one member per round */
#define ARGUMENTS_MAX 256
#define OUT_OF_MEMORY "out of memory" /* as CUDA's own error text has it */
#define LOST_STATUS   (127 << 8)      /* wait status if the child was reaped elsewhere */
#define DRAIN_ROUNDS  64              /* 4 MiB: more than a pipe holds */

uint64_t fleet_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

void fleet_member_prepare(struct fleet_member *member, const struct fleet_job *job)
{
    FILE *log = member->log;

    memset(member, 0, sizeof(*member));
    member->job = job;
    member->log = log;
    member->pipe[0] = member->pipe[1] = -1;
    member->progress.loss = NAN;
}

/* ---- in the child, before exec ---- */

static void write_error(int report, int error)
{
    /* If this fails, the parent still sees that the child has ended. */
    if (write(report, &error, sizeof(error)) < 0)
        _exit(127);
    _exit(127);
}

static void become_member(const struct fleet_job *job, pid_t parent, int out, int err)
{
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0)
        dup2(nothing, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    for (const char *const *variable = job->env; variable && *variable; variable++)
        putenv((char *)(uintptr_t)*variable);
}

/* Begins the command line with `gpucap run` and its options. Returns how many words these are. */
static int begin_command(const struct fleet_job *job, int report, char **all)
{
    static char gpucap[PATH_MAX], maximum[128], each[128], run[] = "run", dashes[] = "--";
    int count = 0;

    if (!fleet_beside("gpucap", gpucap))
        write_error(report, ENOENT);
    snprintf(maximum, sizeof(maximum), "--max=%s", job->cap);
    snprintf(each, sizeof(each), "--each=%s", job->each ? job->each : "");
    all[count++] = gpucap;
    all[count++] = run;
    all[count++] = maximum;
    if (job->each)
        all[count++] = each;
    for (const char *const *word = job->run; word && *word; word++) {
        if (count == ARGUMENTS_MAX / 2)
            write_error(report, E2BIG);
        all[count++] = (char *)(uintptr_t)*word;
    }
    all[count++] = dashes;
    return count;
}

static void execute(const struct fleet_job *job, int report)
{
    char program[PATH_MAX];
    char *all[ARGUMENTS_MAX];
    int count = job->cap ? begin_command(job, report, all) : 0;

    all[count++] = (char *)(uintptr_t)fleet_program(job->argv[0], program);
    for (char *const *argument = job->argv + 1; *argument; argument++) {
        if (count == ARGUMENTS_MAX - 1)
            write_error(report, E2BIG);
        all[count++] = *argument;
    }
    all[count] = NULL;
    execvp(all[0], all);
    write_error(report, errno);
}

/* ---- in the fleet ---- */

static bool open_pipes(int pipes[3][2])
{
    for (int i = 0; i < 3; i++) {
        if (pipe2(pipes[i], O_CLOEXEC)) {
            while (i-- > 0) {
                close(pipes[i][0]);
                close(pipes[i][1]);
            }
            return false;
        }
    }
    return true;
}

static void not_started(struct fleet_member *member, int error)
{
    member->end = FLEET_NOT_STARTED;
    member->pid = 0;
    member->code = error;
    member->ended_ns = fleet_now();
    snprintf(member->reason, sizeof(member->reason), "%s",
             member->job->argv[0]); /* the end names the error */
}

static void close_pipes(struct fleet_member *member)
{
    for (int i = 0; i < 2; i++) {
        if (member->pipe[i] >= 0)
            close(member->pipe[i]);
        member->pipe[i] = -1;
    }
}

void fleet_member_start(struct fleet_member *member)
{
    const pid_t parent = getpid();
    int pipes[3][2], error = 0;

    member->started_ns = fleet_now();
    if (!open_pipes(pipes)) {
        not_started(member, errno);
        return;
    }
    fflush(NULL);
    member->pid = fork();
    if (member->pid == 0) {
        become_member(member->job, parent, pipes[0][1], pipes[1][1]);
        execute(member->job, pipes[2][1]);
    }
    const int fork_error = errno;
    for (int i = 0; i < 3; i++)
        close(pipes[i][1]);
    member->pipe[0] = pipes[0][0];
    member->pipe[1] = pipes[1][0];
    if (member->pid < 0) {
        error = fork_error;
    } else {
        setpgid(member->pid, member->pid); /* the child does this too; one of the two is first */
        fcntl(member->pipe[0], F_SETFL, O_NONBLOCK);
        fcntl(member->pipe[1], F_SETFL, O_NONBLOCK);
        if (read(pipes[2][0], &error, sizeof(error)) != sizeof(error))
            error = 0; /* the pipe was closed by exec */
    }
    close(pipes[2][0]);
    if (error && member->pid > 0)
        waitpid(member->pid, NULL, 0);
    if (error) {
        close_pipes(member);
        not_started(member, error);
        return;
    }
    member->end = FLEET_RUNNING;
}

static void hear_out(const char *line, void *arg)
{
    struct fleet_member *member = arg;

    const size_t used = strlen(member->result), length = strlen(line);

    if (!strchr(line, '=') || used + length + 2 > sizeof(member->result))
        return;
    snprintf(member->result + used, sizeof(member->result) - used, "%s%s", used ? " " : "", line);
}

static void hear_err(const char *line, void *arg)
{
    struct fleet_member *member = arg;

    if (fleet_line_progress(line, &member->progress)) {
        member->last_ns = fleet_now();
        if (!member->first_ns) {
            member->first_ns = member->last_ns;
            member->first_step = member->progress.step;
        }
        return;
    }
    if (member->reason_fixed)
        return;
    snprintf(member->reason, sizeof(member->reason), "%s", line);
    member->reason_fixed = strcasestr(line, OUT_OF_MEMORY) != NULL;
}

void fleet_member_read(struct fleet_member *member, int which)
{
    char bytes[READ_BYTES];
    const ssize_t count = read(member->pipe[which], bytes, sizeof(bytes));

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0) {
        fleet_lines_end(&member->lines[which], which ? hear_err : hear_out, member);
        close(member->pipe[which]);
        member->pipe[which] = -1;
        return;
    }
    if (member->log && member->said_bytes < FLEET_LOG_MAX) {
        const uint64_t room = FLEET_LOG_MAX - member->said_bytes;

        fwrite(bytes, 1, (size_t)count < room ? (size_t)count : room, member->log);
    }
    member->said_bytes += (uint64_t)count;
    fleet_lines_feed(&member->lines[which], bytes, (size_t)count, which ? hear_err : hear_out, member);
}

/* Returns true if the program is `train`, whose exit statuses are known. */
static bool is_train(const struct fleet_member *member)
{
    const char *name = member->job->argv[0] ? member->job->argv[0] : "";
    const char *slash = strrchr(name, '/');

    return strcmp(slash ? slash + 1 : name, "train") == 0;
}

static void judge(struct fleet_member *member, int status)
{
    const bool ours = member->end == FLEET_STOPPED || member->end == FLEET_TIMED_OUT;

    member->exited = WIFEXITED(status);
    member->code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    if (WIFEXITED(status) && member->code == 0)
        member->end = FLEET_OK;
    else if (ours)
        return;
    else if (WIFSIGNALED(status))
        member->end = FLEET_KILLED;
    else
        member->end = (member->code == FLEET_NO_MEMORY_STATUS && is_train(member)) || member->reason_fixed
                          ? FLEET_NO_MEMORY
                          : FLEET_FAILED;
}

void fleet_member_reap(struct fleet_member *member)
{
    siginfo_t info = {0};
    int status = 0;

    if (member->pid <= 0)
        return;
    if (waitid(P_PID, (id_t)member->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid != member->pid)
        return; /* an error means that it has ended, which waitpid will report */
    member->ended_ns = fleet_now();
    /* Not reaped yet, so the group's id cannot have been reused. */
    kill(-member->pid, SIGKILL);
    if (waitpid(member->pid, &status, 0) < 0)
        status = LOST_STATUS;
    member->pid = 0;
    for (int which = 0; which < 2; which++) {
        for (int round = 0; round < DRAIN_ROUNDS && member->pipe[which] >= 0; round++) {
            const uint64_t before = member->said_bytes;

            fleet_member_read(member, which);
            if (member->said_bytes == before)
                break;
        }
        fleet_lines_end(&member->lines[which], which ? hear_err : hear_out, member);
    }
    close_pipes(member);
    judge(member, status);
}

void fleet_member_signal(const struct fleet_member *member, int signal)
{
    if (member->pid > 0)
        kill(-member->pid, signal);
}

static const char *meaning(const struct fleet_member *member)
{
    if (!member->exited || !is_train(member))
        return "";
    return member->code == FLEET_NOT_FINITE_STATUS ? " (loss not finite)"
           : member->code == FLEET_UNSAVED_STATUS  ? " (not saved)"
                                                   : "";
}

void fleet_member_ending(const struct fleet_member *member, char *text, size_t size)
{
    switch (member->end) {
    case FLEET_WAITING:
        snprintf(text, size, "waiting");
        break;
    case FLEET_RUNNING:
        snprintf(text, size, "running");
        break;
    case FLEET_OK:
        snprintf(text, size, "ok");
        break;
    case FLEET_NO_MEMORY:
        snprintf(text, size, "out of memory");
        break;
    case FLEET_FAILED:
        snprintf(text, size, "exit status %d%s", member->code, meaning(member));
        break;
    case FLEET_KILLED:
        snprintf(text, size, "killed by signal %d (%s)", member->code, strsignal(member->code));
        break;
    case FLEET_STOPPED:
        snprintf(text, size, "stopped%s", meaning(member));
        break;
    case FLEET_TIMED_OUT:
        snprintf(text, size, "timed out%s", meaning(member));
        break;
    case FLEET_NOT_STARTED:
        snprintf(text, size, "not started: %s", strerror(member->code));
        break;
    }
}

double fleet_member_step_ms(const struct fleet_member *member)
{
    const double said = fleet_line_number(member->result, "step_ms", NAN);
    const uint64_t steps = member->progress.step - member->first_step;

    if (isfinite(said) && said > 0)
        return said;
    return steps ? (double)(member->last_ns - member->first_ns) / 1e6 / (double)steps : NAN;
}

double fleet_member_seconds_left(const struct fleet_member *member)
{
    const struct fleet_progress *progress = &member->progress;
    const uint64_t done = progress->step - member->first_step;

    if (member->end != FLEET_RUNNING || done == 0 || progress->step > progress->steps)
        return NAN;
    return (double)(member->last_ns - member->first_ns) / 1e9 / (double)done *
           (double)(progress->steps - progress->step);
}

uint64_t fleet_member_steps(const struct fleet_member *member)
{
    const double said = fleet_line_number(member->result, "steps", NAN);
    const double from = fleet_line_number(member->result, "from", 0);
    const uint64_t step = member->progress.step;

    if (said >= 1 && said < 1e15)
        return from > 0 && from <= said ? (uint64_t)(said - from) : (uint64_t)said;
    /* The first line of `train` is that of the first step it did. */
    return is_train(member) && member->first_step && member->first_step <= step
               ? step - (member->first_step - 1)
               : step;
}

double fleet_member_seconds(const struct fleet_member *member)
{
    const uint64_t end = member->ended_ns ? member->ended_ns : fleet_now();

    return member->started_ns ? (double)(end - member->started_ns) / 1e9 : 0;
}
