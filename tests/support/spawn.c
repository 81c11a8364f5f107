/* spawn: the running half of spawn.h: start, feed, listen, time out, reap.
 *
 * The child leads its own process group, so that a time-out ends its children too. Must never block on a pipe
 * while the child blocks on another: all three are polled. Owns no lock.
 */
#include "spawn.h"
#include "spawn_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_S 250.0 /* ends a hang; no run may count on being faster */
#define CANNOT_START      127
#define CHUNK             4096

enum { IN, OUT, ERR, PIPES, END = PIPES, POLLED };

struct text {
    char *bytes;
    size_t len;
};

struct run {
    pid_t pid;
    int fd[POLLED]; /* our ends of the pipes; one that can be read when the program has ended; -1: none */
    const char *input;
    size_t input_left;
    struct text said[PIPES]; /* OUT and ERR */
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void append(struct text *t, const char *bytes, size_t len)
{
    t->bytes = spawn_alloc(t->bytes, t->len + len + 1);
    memcpy(t->bytes + t->len, bytes, len);
    t->len += len;
    t->bytes[t->len] = 0;
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* The child gets ends[i][i == IN ? 0 : 1] as its descriptor i. */
static int start(struct run *r, const struct spawn_env *env, const char *const argv[], const char *folder,
                 int ends[PIPES][2])
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, defaults;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    for (int i = 0; i < PIPES; i++)
        posix_spawn_file_actions_adddup2(&actions, ends[i][i == IN ? 0 : 1], i);
    if (folder)
        posix_spawn_file_actions_addchdir_np(&actions, folder);
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults,
              SIGPIPE);           /* ignored here, so that a child that reads nothing is no end of the test */
    sigaddset(&defaults, SIGHUP); /* ignored under nohup, and SIGINT in the background of a shell */
    sigaddset(&defaults, SIGINT);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int rc = posix_spawnp(&r->pid, argv[0], &actions, &attr, (char *const *)(uintptr_t)argv, env->vars);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

static void feed(struct run *r)
{
    ssize_t n = write(r->fd[IN], r->input, r->input_left);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        r->input += n;
        r->input_left -= (size_t)n;
    }
    if (n <= 0 || !r->input_left)
        close_end(&r->fd[IN]);
}

static void listen_to(struct run *r, int i)
{
    char buffer[CHUNK];
    ssize_t n = read(r->fd[i], buffer, sizeof(buffer));
    if (n > 0)
        append(&r->said[i], buffer, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        close_end(&r->fd[i]);
}

/* True when the time passed. Ends early when the child is gone and a grandchild still holds the pipes. */
static bool converse(struct run *r, double deadline, int *status)
{
    const int poll_ms = 50;
    bool reaped = false;
    while (r->fd[OUT] >= 0 || r->fd[ERR] >= 0 || !reaped) {
        struct pollfd p[POLLED];
        for (int i = 0; i < POLLED; i++)
            p[i] = (struct pollfd){.fd = r->fd[i], .events = i == IN ? POLLOUT : POLLIN};
        int ready = poll(p, POLLED, poll_ms);
        if (ready > 0 && p[IN].revents)
            feed(r);
        for (int i = OUT; i < PIPES && ready > 0; i++) {
            if (p[i].revents)
                listen_to(r, i);
        }
        if (!reaped && waitpid(r->pid, status, WNOHANG) == r->pid) {
            reaped = true;
            close_end(&r->fd[END]);
        } else if (reaped && ready == 0) {
            break;
        }
        if (!reaped && now_s() > deadline) {
            kill(-r->pid, SIGKILL);
            waitpid(r->pid, status, 0);
            return true;
        }
    }
    return false;
}

static bool open_pipes(struct run *r, const struct spawn_options *o, int ends[PIPES][2])
{
    r->fd[END] = -1;
    for (int i = 0; i < PIPES; i++) {
        r->fd[i] = -1;
        ends[i][0] = ends[i][1] = -1;
    }
    for (int i = 0; i < PIPES; i++) {
        if (i == IN && (!o || !o->input)) {
            ends[IN][0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
            continue;
        }
        if (pipe2(ends[i], O_CLOEXEC))
            return false;
        r->fd[i] = ends[i][i == IN ? 1 : 0];
        fcntl(r->fd[i], F_SETFL, O_NONBLOCK);
    }
    return true;
}

static bool is_refusal(const char *line)
{
    static const char *const begins[] = {"gpucap: out of memory on device ",
                                         "gpucap: out of memory: ",
                                         "gpucap:   this process uses ",
                                         "gpucap:   `gpucap why ",
                                         "gpucap:   who held the memory: ",
                                         "gpucap:   who holds the card: ",
                                         "gpucap: waiting for "};

    for (size_t i = 0; i < sizeof(begins) / sizeof(*begins); i++) {
        if (!strncmp(line, begins[i], strlen(begins[i])))
            return true;
    }
    return false;
}

/* Moves the library's lines about refusals and long waits out of err. */
static void take_refusals(struct spawn_result *result)
{
    char *to = result->err, *said = spawn_alloc(NULL, result->err_len + 1), *end = said;

    for (char *line = result->err, *next; line < result->err + result->err_len; line = next) {
        char *newline = memchr(line, '\n', (size_t)(result->err + result->err_len - line));
        next = newline ? newline + 1 : result->err + result->err_len;
        char **place = is_refusal(line) ? &end : &to;
        memmove(*place, line, (size_t)(next - line));
        *place += next - line;
    }
    *to = *end = '\0';
    result->err_len = (size_t)(to - result->err);
    result->refusals = said;
}

struct spawn_result spawn_run(const struct spawn_env *env, const char *const argv[],
                              const struct spawn_options *options)
{
    struct spawn_result result = {.status = CANNOT_START};
    struct run r = {.pid = -1};
    int ends[PIPES][2];
    int status = 0;
    double limit = options && options->timeout_s > 0 ? options->timeout_s : DEFAULT_TIMEOUT_S;

    signal(SIGPIPE, SIG_IGN);
    fflush(NULL);
    append(&r.said[OUT], "", 0);
    append(&r.said[ERR], "", 0);
    if (options && options->input) {
        r.input = options->input;
        r.input_left = options->input_len ? options->input_len : strlen(options->input);
    }
    int rc =
        open_pipes(&r, options, ends) ? start(&r, env, argv, options ? options->folder : NULL, ends) : errno;
    for (int i = 0; i < PIPES; i++)
        close_end(&ends[i][i == IN ? 0 : 1]);
    if (rc) {
        char why[256];
        int n = snprintf(why, sizeof(why), "spawn: cannot run %s: %s\n", argv[0], strerror(rc));
        append(&r.said[ERR], why, (size_t)n);
    } else {
        r.fd[END] = (int)syscall(SYS_pidfd_open, r.pid, 0); /* without it, its end is seen a moment later */
        result.timed_out = converse(&r, now_s() + limit, &status);
        result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        result.status = result.signal ? 128 + result.signal : WEXITSTATUS(status);
    }
    for (int i = 0; i < POLLED; i++)
        close_end(&r.fd[i]);
    result.out = r.said[OUT].bytes;
    result.out_len = r.said[OUT].len;
    result.err = r.said[ERR].bytes;
    result.err_len = r.said[ERR].len;
    take_refusals(&result);
    return result;
}

void spawn_result_free(struct spawn_result *result)
{
    free(result->out);
    free(result->err);
    free(result->refusals);
    *result = (struct spawn_result){0};
}
