/* bench_ledger: what it costs to reserve memory of a shared budget, beside other locks between processes.
 *
 * One operation raises a sum by some bytes and lowers it again, each under the lock: ledger_extend and
 * ledger_settle, or the same additions under flock() or a process-shared semaphore. A number of processes do
 * that at once for some milliseconds. Prints one line of key=value for each lock and number of processes: the
 * median and the best round in nanoseconds that one operation takes a process. The locks take turns, round by
 * round, so that a machine that is slow for a second is slow for all. */
#include <fcntl.h>
#include <getopt.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "interpose/account/ledger.h"
#include "interpose/base/clock.h"
#include "tests/support/ledger_short.h"

#define ROUNDS_MAX    99
#define PROCESSES_MAX 128
#define BATCH         16 /* operations between two looks at the clock */
#define BYTES         4096
#define CARD          "GPU-be9c"
#define COUNT(list)   (sizeof(list) / sizeof(*(list)))

static const char usage[] = "usage: bench_ledger [option...]\n"
                            "  --rounds=N     rounds of each figure (9)\n"
                            "  --ms=N         milliseconds of a round (100)\n"
                            "  --processes=N  processes that compete (16)\n";

static unsigned rounds = 9, ms = 100, processes = 16;
static char folder[] = "/dev/shm/gpucap-bench-XXXXXX", path[sizeof(folder) + 16];

/* What all processes share. */
static struct shared {
    sem_t semaphore;
    atomic_uint ready, go;
    volatile uint64_t sum;
    uint64_t ns, operations; /* under the semaphore, when a process is through */
} * shared;

static void fail(const char *what)
{
    fprintf(stderr, "bench_ledger: ");
    perror(what);
    exit(1);
}

/* ---- the locks ---- */

static struct ledger *ledger;
static int file;

static void open_ledger(void)
{
    char why[LEDGER_WHY];

    if (ledger_open(&ledger, folder, CARD, why) || ledger_join(ledger, "bench", UINT64_C(1) << 20)) {
        fprintf(stderr, "bench_ledger: no ledger: %s\n", why);
        exit(1);
    }
}

static void reserve_by_ledger(void)
{
    if (ledger_extend(ledger, BYTES))
        fail("ledger_extend");
    ledger_settle(ledger, 0);
}

static void open_file(void)
{
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        fail(path);
}

static void reserve_by_flock(void)
{
    flock(file, LOCK_EX);
    shared->sum += BYTES;
    flock(file, LOCK_UN);
    flock(file, LOCK_EX);
    shared->sum -= BYTES;
    flock(file, LOCK_UN);
}

static void open_nothing(void) {}

static void reserve_by_semaphore(void)
{
    sem_wait(&shared->semaphore);
    shared->sum += BYTES;
    sem_post(&shared->semaphore);
    sem_wait(&shared->semaphore);
    shared->sum -= BYTES;
    sem_post(&shared->semaphore);
}

static const struct engine {
    const char *name;
    void (*open)(void);
    void (*reserve)(void);
} engines[] = {
    {"ledger", open_ledger, reserve_by_ledger},
    {"flock", open_file, reserve_by_flock},
    {"semaphore", open_nothing, reserve_by_semaphore},
};
#define ENGINES COUNT(engines)

/* ---- a round ---- */

static void compete(const struct engine *engine)
{
    uint64_t operations = 0, start, now;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    engine->open();
    engine->reserve();
    shared->ready++;
    while (!shared->go)
        usleep(100);
    start = now = clock_ns();
    while (now - start < ms * UINT64_C(1000000)) {
        for (int i = 0; i < BATCH; i++)
            engine->reserve();
        operations += BATCH;
        now = clock_ns();
    }
    sem_wait(&shared->semaphore);
    shared->ns += now - start;
    shared->operations += operations;
    sem_post(&shared->semaphore);
    _exit(0);
}

/* Nanoseconds of one operation. */
static double measure(const struct engine *engine, unsigned count)
{
    pid_t children[PROCESSES_MAX];

    shared->ready = shared->go = 0;
    shared->ns = shared->operations = shared->sum = 0;
    for (unsigned i = 0; i < count; i++) {
        children[i] = fork();
        if (children[i] < 0)
            fail("fork");
        if (children[i] == 0)
            compete(engine);
    }
    while (shared->ready < count && waitpid(-1, NULL, WNOHANG) == 0)
        usleep(100);
    shared->go = 1;
    for (unsigned i = 0; i < count; i++) {
        int status;

        if (waitpid(children[i], &status, 0) != children[i] || status)
            fail(engine->name);
    }
    return (double)shared->ns / (double)shared->operations;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure_all(unsigned count)
{
    static double ns[ENGINES][ROUNDS_MAX];

    for (unsigned round = 0; round < rounds; round++) {
        for (size_t e = 0; e < ENGINES; e++)
            ns[e][round] = measure(&engines[e], count);
    }
    for (size_t e = 0; e < ENGINES; e++) {
        qsort(ns[e], rounds, sizeof(double), compare);
        printf("what=reserve engine=%s processes=%u ns=%.0f best=%.0f\n", engines[e].name, count,
               ns[e][rounds / 2], ns[e][0]);
    }
    fflush(stdout);
}

static void remove_folder(void)
{
    char name[sizeof(folder) + 32];

    unlink(path);
    snprintf(name, sizeof(name), "%s/" CARD ".ledger", folder);
    unlink(name);
    rmdir(folder);
}

static unsigned number(const char *text, unsigned most)
{
    char *end;
    const unsigned long value = strtoul(text, &end, 10);

    if (!*text || *end || value < 1 || value > most) {
        fprintf(stderr, "bench_ledger: '%s' is not from 1 to %u\n", text, most);
        exit(2);
    }
    return (unsigned)value;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"rounds", required_argument, NULL, 'r'},
        {"ms", required_argument, NULL, 'm'},
        {"processes", required_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'r':
            rounds = number(optarg, ROUNDS_MAX);
            break;
        case 'm':
            ms = number(optarg, 60000);
            break;
        case 'p':
            processes = number(optarg, PROCESSES_MAX);
            break;
        default:
            fputs(usage, option == 'h' ? stdout : stderr);
            return option == 'h' ? 0 : 2;
        }
    }
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || sem_init(&shared->semaphore, 1, 1) || !mkdtemp(folder))
        fail("start");
    snprintf(path, sizeof(path), "%s/flock", folder);
    measure_all(1);
    measure_all(processes);
    remove_folder();
    return 0;
}
