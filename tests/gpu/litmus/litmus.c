/* litmus: runs each scenario many times, in processes of its own, so that a crash is one line of output and
 * what a pool has learned in one scenario does not affect another. See litmus.h.
 *
 *     litmus [--repeat=N] [--only=NAME] [--allocator=driver|unfenced] [--hold-us=N] [--list]
 *
 * driver: cuMemAlloc and cuMemFree, which may be those of libgpucap.so. unfenced: a list of freed blocks in
 * front of them, which must fail. hold-us: how long the gate stays shut for a call that waits. One line per
 * scenario: "litmus name=... runs=... wrong=...". A process that dies is one wrong run. Exit status 1 if any
 * run was wrong, 77 without a driver. The starting process never touches the driver.
 */
#include "litmus.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NO_DRIVER     77
#define USAGE         64
#define REPEAT        100
#define HOLD_US       300
#define PROCESS_LIMIT 300 /* seconds, to end a process that hangs */

struct options {
    unsigned repeat, hold_us, first;
    const char *only, *child;
    bool unfenced;
};

static const struct litmus_scenario *find(const char *name)
{
    for (unsigned i = 0; i < litmus_scenario_count; i++) {
        if (!strcmp(litmus_scenarios[i].name, name))
            return &litmus_scenarios[i];
    }
    return NULL;
}

/* The child process: does some runs. */
static int play(const struct options *o)
{
    static struct litmus l;
    const struct litmus_scenario *scenario = find(o->child);
    unsigned wrong = 0;
    if (!scenario)
        return USAGE;
    alarm(PROCESS_LIMIT);
    if (!driver_open(DRIVER_BY_DLSYM))
        return NO_DRIVER;
    l.unfenced = o->unfenced;
    l.hold_us = o->hold_us;
    litmus_open(&l);
    for (unsigned i = 0; i < o->repeat; i++)
        wrong += litmus_run(&l, scenario, o->first + i);
    printf("%u\n", wrong);
    return 0;
}

static void become(const struct litmus_scenario *scenario, const struct options *o, unsigned first,
                   unsigned runs)
{
    char child[64], repeat[32], from[32], hold[32];
    snprintf(child, sizeof(child), "--child=%s", scenario->name);
    snprintf(repeat, sizeof(repeat), "--repeat=%u", runs);
    snprintf(from, sizeof(from), "--first=%u", first);
    snprintf(hold, sizeof(hold), "--hold-us=%u", o->hold_us);
    if (scenario->decay)
        setenv("GPUCAP_DECAY", scenario->decay, 1);
    execl("/proc/self/exe", "litmus", child, repeat, from, hold,
          o->unfenced ? "--allocator=unfenced" : "--allocator=driver", (char *)NULL);
    _exit(USAGE);
}

/* Does some runs in a process of their own. Returns how many were wrong. */
static unsigned run_batch(const struct litmus_scenario *scenario, const struct options *o, unsigned first,
                          unsigned runs)
{
    unsigned wrong = 0;
    int ends[2], status = 0;
    if (pipe(ends)) {
        perror("litmus: pipe");
        exit(USAGE);
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        become(scenario, o, first, runs);
    }
    close(ends[1]);
    FILE *from = fdopen(ends[0], "r");
    const bool told = from && fscanf(from, "%u", &wrong) == 1;
    if (from)
        fclose(from);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_DRIVER)
        exit(NO_DRIVER);
    if (told && status == 0)
        return wrong;
    fprintf(stderr, "litmus: a process of %s ended with %s %d\n", scenario->name,
            WIFSIGNALED(status) ? "signal" : "status",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return wrong + 1;
}

static bool run_scenario(const struct litmus_scenario *scenario, const struct options *o)
{
    unsigned done = 0, wrong = 0;
    while (done < o->repeat) {
        const unsigned left = o->repeat - done;
        const unsigned runs = left < scenario->batch ? left : scenario->batch;
        wrong += run_batch(scenario, o, done, runs);
        done += runs;
    }
    printf("litmus name=%s runs=%u wrong=%u\n", scenario->name, done, wrong);
    return wrong == 0;
}

static void list(void)
{
    for (unsigned i = 0; i < litmus_scenario_count; i++)
        printf("%-16s %s\n", litmus_scenarios[i].name, litmus_scenarios[i].what);
}

static bool set_option(struct options *o, char option, const char *value)
{
    switch (option) {
    case 'r':
        o->repeat = (unsigned)strtoul(value, NULL, 10);
        return o->repeat != 0;
    case 'o':
        o->only = value;
        return find(value) != NULL;
    case 'a':
        o->unfenced = !strcmp(value, "unfenced");
        return o->unfenced || !strcmp(value, "driver");
    case 'h':
        o->hold_us = (unsigned)strtoul(value, NULL, 10);
        return true;
    case 'c':
        o->child = value;
        return true;
    case 'f':
        o->first = (unsigned)strtoul(value, NULL, 10);
        return true;
    default:
        return false;
    }
}

int main(int argc, char **argv)
{
    static const struct option names[] = {{"repeat", required_argument, NULL, 'r'},
                                          {"only", required_argument, NULL, 'o'},
                                          {"allocator", required_argument, NULL, 'a'},
                                          {"hold-us", required_argument, NULL, 'h'},
                                          {"child", required_argument, NULL, 'c'},
                                          {"first", required_argument, NULL, 'f'},
                                          {"list", no_argument, NULL, 'l'},
                                          {0}};
    struct options o = {.repeat = REPEAT, .hold_us = HOLD_US};
    bool right = true;
    int option;
    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (option == 'l') {
            list();
            return 0;
        }
        if (!set_option(&o, (char)option, optarg)) {
            fprintf(stderr, "litmus: a bad argument (see the head of litmus.c)\n");
            return USAGE;
        }
    }
    if (o.child)
        return play(&o);
    for (unsigned i = 0; i < litmus_scenario_count; i++) {
        if (!o.only || !strcmp(o.only, litmus_scenarios[i].name))
            right = run_scenario(&litmus_scenarios[i], &o) && right;
    }
    return right ? 0 : 1;
}
