/* startup: what a preloaded library costs a program's whole run: native and wrapped in turn, medians
 * compared.
 *
 *     startup [--runs=N] [--env=NAME=VALUE]... -- PROGRAM [ARG...]
 *
 * --env settings go to the wrapped runs only. Both kinds alternate, and which comes first alternates too, so
 * that a machine that warms up or slows down favours neither. Prints "key=value" lines in milliseconds;
 * asserts no bound. Owns no lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_RUNS 15
#define MOST_RUNS    1000

extern char **environ;

enum { NATIVE, WRAPPED, KINDS };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static char **with_settings(char **settings, size_t count)
{
    size_t n = 0;
    while (environ[n])
        n++;
    char **env = calloc(n + count + 1, sizeof(*env));
    if (!env)
        abort();
    memcpy(env, settings, count * sizeof(*env)); /* in front: the first of a name is what counts */
    memcpy(env + count, environ, n * sizeof(*env));
    return env;
}

static double one_run(char **argv, char **env)
{
    posix_spawn_file_actions_t quiet;
    pid_t pid;
    int status = 0;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    double begin = now_ms();
    int rc = posix_spawnp(&pid, argv[0], &quiet, NULL, argv, env);
    while (!rc && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    double spent = now_ms() - begin;
    posix_spawn_file_actions_destroy(&quiet);
    if (rc || status) {
        fprintf(stderr, "startup: %s: %s, status %d\n", argv[0], rc ? strerror(rc) : "failed", status);
        exit(1);
    }
    return spent;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *sorted, int n, double q)
{
    return sorted[(int)(q * (n - 1) + 0.5)];
}

int main(int argc, char **argv)
{
    static double ms[KINDS][MOST_RUNS], difference[MOST_RUNS];
    int runs = DEFAULT_RUNS, i = 1;
    size_t settings = 0;
    char *setting[64];
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (!strncmp(argv[i], "--runs=", 7))
            runs = atoi(argv[i] + 7);
        else if (!strncmp(argv[i], "--env=", 6) && settings < 64)
            setting[settings++] = argv[i] + 6;
        else
            break;
    }
    if (i + 1 >= argc || strcmp(argv[i], "--") != 0 || runs < 1 || runs > MOST_RUNS) {
        fprintf(stderr, "usage: startup [--runs=N] [--env=NAME=VALUE]... -- PROGRAM [ARG...]\n");
        return 2;
    }
    char **wrapped = with_settings(setting, settings);
    one_run(argv + i + 1, environ); /* the files are in memory afterwards */
    one_run(argv + i + 1, wrapped);
    for (int r = 0; r < runs; r++) {
        for (int turn = 0; turn < KINDS; turn++) {
            int kind = (turn + r) % KINDS;
            ms[kind][r] = one_run(argv + i + 1, kind == WRAPPED ? wrapped : environ);
        }
        difference[r] = ms[WRAPPED][r] - ms[NATIVE][r];
    }
    free(wrapped);
    qsort(ms[NATIVE], (size_t)runs, sizeof(double), by_size);
    qsort(ms[WRAPPED], (size_t)runs, sizeof(double), by_size);
    qsort(difference, (size_t)runs, sizeof(double), by_size);
    printf("runs=%d\nnative_ms=%.3f\nwrapped_ms=%.3f\n", runs, quantile(ms[NATIVE], runs, 0.5),
           quantile(ms[WRAPPED], runs, 0.5));
    printf("difference_ms=%.3f\ndifference_q1_ms=%.3f\ndifference_q3_ms=%.3f\n",
           quantile(difference, runs, 0.5), quantile(difference, runs, 0.25),
           quantile(difference, runs, 0.75));
    return 0;
}
