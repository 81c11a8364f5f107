/* bench_start: what gpucap adds to the start of a process, in a job of many.
 *
 * A process has started when it has a context and its first block; its time counts from before the fork.
 * Processes start natively and as one job under gpucap, in two ways:
 *
 *     alternately  one after the other, native and under gpucap in turn; all stay alive, so that the last
 *                  ones find a full ledger
 *     together     all of one kind at once; the time is that until the last has started, for each process
 *
 * Prints one line of key=value for each way and engine, in milliseconds: median (ms) and best, the median of
 * the differences to native (more), and the median of the processor time that a process took (cpu). Asserts
 * no bound. The ledger lies in a folder of its own. */
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "bench_child.h"
#include "bench_cuda.h"

#define PROCESSES_MAX 480 /* a ledger has 512 slots */
#define PASSES_MAX    99
#define FILES_SPARE   32
#define BLOCK         (UINT64_C(2) << 20)
#define MS            1e-6

enum { NATIVE, WRAPPED, ENGINES };

static const struct bench_engine engines[ENGINES] = {
    [NATIVE] = {"native", NULL, BENCH_PLAIN},
    [WRAPPED] = {"gpucap", "strict", BENCH_PLAIN},
};

/* Each kind has a simulated machine of its own, so that a process meets only its like. Small contexts: 256
 * must fit. */
static const char *const machines[ENGINES] = {[NATIVE] = "1x140G;ctx=16M", [WRAPPED] = "1x141G;ctx=16M"};

static const char usage[] = "usage: bench_start [option...]\n"
                            "  --processes=N  of each kind (256)\n"
                            "  --passes=N     of the processes that start together (3)\n"
                            "  --simulated    on the simulated device (always, without an NVIDIA device)\n";

static unsigned processes = 256, passes = 3;
static struct bench_place place;
static char ledger[] = "/dev/shm/gpucap-bench-XXXXXX";

/* ---- a process that starts ---- */

static void *entry(void *library, const char *name)
{
    void *address = dlsym(library, name);

    if (!address)
        bench_fail("there is no %s", name);
    return address;
}

static void must(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS)
        bench_fail("%s = %d", call, (int)result);
}

/* What a process tells of its start: when it had started, and what processor time it took; ns. */
struct start {
    uint64_t at, cpu;
};

static uint64_t cpu_ns(void)
{
    struct timespec spent;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * 1000000000U + (uint64_t)spent.tv_nsec;
}

/* Starts, writes a struct start to stdout, and ends when the other end of the pipe `gate` is closed. */
static int run_child(int gate)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    CUcontext context;
    CUdeviceptr block;
    char none;

    if (!library)
        bench_fail("%s", dlerror());
    CUresult (*init)(unsigned) = entry(library, "cuInit");
    CUresult (*retain)(CUcontext *, CUdevice) = entry(library, "cuDevicePrimaryCtxRetain");
    CUresult (*set_current)(CUcontext) = entry(library, "cuCtxSetCurrent");
    CUresult (*alloc)(CUdeviceptr *, size_t) = entry(library, "cuMemAlloc_v2");

    must(init(0), "cuInit");
    must(retain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(set_current(context), "cuCtxSetCurrent");
    must(alloc(&block, BLOCK), "cuMemAlloc");
    const struct start start = {.at = bench_now(), .cpu = cpu_ns()};
    if (write(STDOUT_FILENO, &start, sizeof(start)) != sizeof(start) || read(gate, &none, 1) != 0)
        return 1;
    return 0;
}

/* ---- the parent ---- */

/* Processes that live until release(). */
struct crowd {
    pid_t pids[2 * PROCESSES_MAX];
    int gate[2];
    unsigned count;
};

static void open_gate(struct crowd *crowd)
{
    crowd->count = 0;
    if (pipe2(crowd->gate, O_CLOEXEC))
        bench_fail("no pipe");
}

static void release(struct crowd *crowd)
{
    bool well = true;

    close(crowd->gate[1]);
    for (unsigned i = 0; i < crowd->count; i++)
        well = bench_reap(crowd->pids[i]) && well;
    close(crowd->gate[0]);
    if (!well)
        bench_fail("a process ended with an error");
}

static int begin_start(struct crowd *crowd, int engine)
{
    char gate[16], child[] = "--child";
    char *const arguments[] = {child, gate, NULL};
    const int kept[] = {crowd->gate[0], -1};
    int from;

    snprintf(gate, sizeof(gate), "%d", crowd->gate[0]);
    if (place.simulated)
        setenv("GPUCAP_SIM", machines[engine], 1);
    crowd->pids[crowd->count++] = bench_spawn(&engines[engine], &place, arguments, kept, &from);
    return from;
}

static struct start started(int from)
{
    struct start start;

    if (read(from, &start, sizeof(start)) != sizeof(start))
        bench_fail("a process did not start");
    close(from);
    return start;
}

/* Milliseconds of the starts of each engine. */
struct times {
    double wall[ENGINES][PROCESSES_MAX], cpu[ENGINES][PROCESSES_MAX];
};

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, unsigned count)
{
    qsort(values, count, sizeof(*values), compare);
    return values[count / 2];
}

static void print(const char *way, struct times *times, unsigned count)
{
    static double more[PROCESSES_MAX];

    for (unsigned i = 0; i < count; i++)
        more[i] = times->wall[WRAPPED][i] - times->wall[NATIVE][i];
    for (int engine = 0; engine < ENGINES; engine++) {
        const double wall = median(times->wall[engine], count); /* sorts them */

        printf("what=start way=%s processes=%u engine=%s ms=%.2f best=%.2f more=%.2f cpu=%.2f\n", way,
               processes, engines[engine].name, wall, times->wall[engine][0],
               engine == NATIVE ? 0 : median(more, count), median(times->cpu[engine], count));
    }
    fflush(stdout);
}

static void start_alternately(void)
{
    static struct times times;
    static struct crowd crowd;

    open_gate(&crowd);
    for (unsigned i = 0; i < processes; i++) {
        for (int j = 0; j < ENGINES; j++) {
            const int engine = (int)(i + (unsigned)j) % ENGINES; /* neither is always the first */
            const uint64_t begin = bench_now();
            const struct start start = started(begin_start(&crowd, engine));

            times.wall[engine][i] = (double)(start.at - begin) * MS;
            times.cpu[engine][i] = (double)start.cpu * MS;
        }
    }
    release(&crowd);
    print("alternately", &times, processes);
}

/* Starts all processes of an engine, and enters the times for each of them. */
static void start_at_once(int engine, struct times *times, unsigned pass)
{
    static struct crowd crowd;
    static int from[PROCESSES_MAX];
    const uint64_t begin = bench_now();
    uint64_t last = 0, cpu = 0;

    open_gate(&crowd);
    for (unsigned i = 0; i < processes; i++)
        from[i] = begin_start(&crowd, engine);
    for (unsigned i = 0; i < processes; i++) {
        const struct start start = started(from[i]);

        last = start.at > last ? start.at : last;
        cpu += start.cpu;
    }
    release(&crowd);
    times->wall[engine][pass] = (double)(last - begin) * MS / processes;
    times->cpu[engine][pass] = (double)cpu * MS / processes;
}

static void start_together(void)
{
    static struct times times;

    for (unsigned pass = 0; pass < passes; pass++) {
        for (int engine = 0; engine < ENGINES; engine++)
            start_at_once(engine, &times, pass);
    }
    print("together", &times, passes);
}

/* ---- surroundings ---- */

static int remove_entry(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
    (void)stat, (void)type, (void)walk;
    return remove(path);
}

static void remove_ledger(void)
{
    nftw(ledger, remove_entry, 4, FTW_DEPTH | FTW_PHYS);
}

/* All children that have gpucap are one job. */
static void prepare(void)
{
    struct rlimit files;

    if (!mkdtemp(ledger))
        bench_fail("no folder for the ledger");
    atexit(remove_ledger);
    setenv("GPUCAP_LEDGER", ledger, 1);
    setenv("GPUCAP_GROUP", "bench_start", 1);
    setenv("GPUCAP_MAX", "90%", 1);
    setenv("HOME", "/nonexistent", 1); /* no settings of the user */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < processes + FILES_SPARE) {
        files.rlim_cur = processes + FILES_SPARE;
        if (setrlimit(RLIMIT_NOFILE, &files))
            bench_fail("%u processes need more open files than ulimit -n allows", processes);
    }
}

static unsigned number(const char *text, unsigned most)
{
    const uint64_t value = bench_bytes(text);

    if (value < 1 || value > most)
        bench_fail("'%s' is not from 1 to %u", text, most);
    return (unsigned)value;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"processes", required_argument, NULL, 'n'},
        {"passes", required_argument, NULL, 'p'},
        {"simulated", no_argument, NULL, 's'},
        {"child", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    bool simulated = false;
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'n':
            processes = number(optarg, PROCESSES_MAX);
            break;
        case 'p':
            passes = number(optarg, PASSES_MAX);
            break;
        case 's':
            simulated = true;
            break;
        case 'c':
            return run_child(atoi(optarg));
        default:
            fputs(usage, option == 'h' ? stdout : stderr);
            return option == 'h' ? 0 : 2;
        }
    }
    place.simulated = bench_simulated(simulated);
    prepare();
    start_alternately();
    start_together();
    return 0;
}
