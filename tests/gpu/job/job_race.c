/* job_race: the controller. See job_race.h.
 *
 *     job_race --library=FILE --budget=MIB --context=MIB [--processes=16] [--threads=8] [--seconds=60]
 *              [--largest=MIB] [--part=70] [--kill-ms=0] [--deaths=0]
 *
 * --context is what the context of one process takes, --part how much of the rest all may want together while
 * nothing may be refused, in percent. With --kill-ms, a random worker is killed and replaced every so many
 * milliseconds; FREE_MS after its end, the others may want what it held. With --deaths, a process that holds
 * nearly everything is killed so many times while another one asks for that memory. Prints a line with PASS
 * or FAIL for each promise. Exit status: 0, 1 if one failed, 77 without NVML. */
#include "job_race.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "job_watch.h"

#define NO_NVML    77
#define RESERVE    64     /* MiB, as the option reserve has it */
#define FREE_MS    100    /* after which a dead process's bytes must be available */
#define PHASE_MS   3000   /* of each phase: more is wanted than there is, and less */
#define STUCK_MS   20000  /* a worker that has asked for nothing for so long hangs */
#define START_MS   120000 /* for all contexts */
#define END_MS     20000
#define GREED      3 /* times the budget, in the greedy phase */
#define FOLDER_MAX 64

extern char **environ;

static struct {
    const char *library;
    uint64_t budget, context, largest, part, processes, threads, seconds, kill_ms, deaths;
} options = {.largest = 256, .part = 70, .processes = 16, .threads = 8, .seconds = 60};

static struct job_race_page *page;
static int page_fd;
static char folder[FOLDER_MAX], self[4096];
static struct worker {
    pid_t pid;
    uint64_t gone_at;    /* ms when a killed worker ended: its bytes may not be wanted yet; 0: none */
    unsigned long asked; /* when last looked at */
    uint64_t asked_at;   /* ms, when that number last changed */
} workers[JOB_RACE_WORKERS];
static struct job_watch watch;
static uint64_t slowest_end; /* ms from SIGKILL until the process was gone */
static unsigned long kills, deaths_of_others;
static bool failed;

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static uint64_t now_ms(void)
{
    return now_ns() / 1000000U;
}

static void verdict(bool passed, const char *text)
{
    printf("%s %s\n", passed ? "PASS" : "FAIL", text);
    fflush(stdout);
    failed = failed || !passed;
}

/* ---- processes ---- */

static void set_environment(void)
{
    char max[32];

    snprintf(max, sizeof(max), "%lluM", (unsigned long long)options.budget);
    setenv("LD_PRELOAD", options.library, 1);
    setenv("GPUCAP_MAX", max, 1);
    setenv("GPUCAP_GROUP", "race", 1);
    setenv("GPUCAP_LEDGER", folder, 1);
    setenv("GPUCAP_LOG", "quiet", 1); /* refusals are counted here */
    setenv("HOME", "/nonexistent", 1);
}

static pid_t start(const char *role, unsigned number)
{
    char fd_text[16], number_text[16];
    char *argv[] = {self, (char *)role, fd_text, number_text, NULL};
    pid_t pid = -1;

    snprintf(fd_text, sizeof(fd_text), "%d", page_fd);
    snprintf(number_text, sizeof(number_text), "%u", number);
    if (posix_spawn(&pid, self, NULL, NULL, argv, environ))
        return -1;
    return pid;
}

static void start_worker(unsigned i)
{
    atomic_store(&page->of[i].started, false);
    workers[i] = (struct worker){.pid = start("worker", i), .asked_at = now_ms()};
}

/* ---- the race ---- */

static uint64_t wanted(void)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < page->workers; i++)
        sum += atomic_load(&page->of[i].wanted);
    return sum;
}

static unsigned started(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < page->workers; i++)
        count += atomic_load(&page->of[i].started);
    return count;
}

/* What all may want together so that everything must be granted. */
static uint64_t modest(void)
{
    const uint64_t taken = options.processes * options.context + RESERVE;

    return options.budget > taken ? (options.budget - taken) * options.part / 100 * JOB_RACE_MIB : 0;
}

/* Waits for workers that have died, and starts others in their place. */
static void replace_dead(void)
{
    for (unsigned i = 0; i < page->workers; i++) {
        struct worker *worker = &workers[i];
        int status;

        if (worker->pid > 0 && waitpid(worker->pid, &status, WNOHANG) == worker->pid) {
            if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
                deaths_of_others++;
                fprintf(stderr, "job_race: worker %u ended with status %#x\n", i, (unsigned)status);
            }
            worker->pid = -1;
            worker->gone_at = now_ms();
        }
        if (worker->pid < 0 && worker->gone_at && now_ms() >= worker->gone_at + FREE_MS) {
            atomic_store(&page->of[i].wanted, 0);
            start_worker(i);
        }
    }
}

static void kill_one(void)
{
    const unsigned i = (unsigned)rand() % page->workers;
    const uint64_t begin = now_ms();

    if (workers[i].pid <= 0 || !atomic_load(&page->of[i].started))
        return;
    kill(workers[i].pid, SIGKILL);
    kills++;
    while (waitpid(workers[i].pid, NULL, 0) < 0 && errno == EINTR)
        ;
    workers[i].pid = -1;
    workers[i].gone_at = now_ms();
    slowest_end = now_ms() - begin > slowest_end ? now_ms() - begin : slowest_end;
}

/* Returns the number of a worker that asks for nothing any more, or -1. */
static int stuck_worker(void)
{
    for (unsigned i = 0; i < page->workers; i++) {
        struct worker *worker = &workers[i];
        const unsigned long asked = atomic_load(&page->of[i].asked);

        if (asked != worker->asked || !atomic_load(&page->of[i].started)) {
            worker->asked = asked;
            worker->asked_at = now_ms();
        } else if (worker->pid > 0 && now_ms() > worker->asked_at + STUCK_MS) {
            return (int)i;
        }
    }
    return -1;
}

/* Greedy and modest phases take turns. A modest one counts once the workers have given back what is too much,
 * and what they gave back is gone. */
static void change_phase(void)
{
    static uint64_t next;
    static bool greedy = true;

    if (!greedy && atomic_load(&page->phase) % 2 == 0 && wanted() <= modest())
        atomic_fetch_add(&page->phase, 1);
    if (now_ms() < next)
        return;
    next = now_ms() + PHASE_MS;
    if (atomic_load(&page->phase) % 2)
        atomic_fetch_add(&page->phase, 1);
    greedy = !greedy;
    atomic_store(&page->most, greedy ? options.budget * GREED * JOB_RACE_MIB : modest());
}

static int race_on(void)
{
    uint64_t begin = now_ms(), last_kill = 0;
    int stuck = -1;

    atomic_store(&page->most, modest());
    for (unsigned i = 0; i < page->workers; i++)
        start_worker(i);
    while (started() < page->workers && now_ms() < begin + START_MS) {
        job_watch_sample(&watch, folder);
        usleep(1000);
    }
    printf("figure job_race: %u of %u contexts after %.1f s\n", started(), page->workers,
           (double)(now_ms() - begin) / 1000);
    begin = now_ms();
    while (now_ms() < begin + options.seconds * 1000 && stuck < 0) {
        change_phase();
        if (options.kill_ms && now_ms() >= last_kill + options.kill_ms) {
            last_kill = now_ms();
            kill_one();
        }
        replace_dead();
        job_watch_sample(&watch, folder);
        stuck = stuck_worker();
        usleep(500);
    }
    return stuck;
}

/* Ends the workers. Returns how many did not end by themselves. */
static unsigned end_race(void)
{
    const uint64_t until = now_ms() + END_MS;
    unsigned left = 0;

    atomic_store(&page->phase, 0);
    atomic_store(&page->most, 0);
    for (unsigned i = 0; i < page->workers; i++) {
        pid_t reaped = 0;

        if (workers[i].pid <= 0)
            continue;
        while ((reaped = waitpid(workers[i].pid, NULL, WNOHANG)) == 0 && now_ms() < until)
            usleep(1000);
        if (reaped == 0) {
            left++;
            kill(workers[i].pid, SIGKILL);
            waitpid(workers[i].pid, NULL, 0);
        }
    }
    return left;
}

static void report(int stuck, unsigned left)
{
    unsigned long asked = 0, refused = 0, wrongly = 0, odd = 0;
    char text[512], how[64] = "";

    for (unsigned i = 0; i < page->workers; i++) {
        asked += atomic_load(&page->of[i].asked);
        refused += atomic_load(&page->of[i].refused);
        wrongly += atomic_load(&page->of[i].wrongly);
        odd += atomic_load(&page->of[i].other_codes);
    }
    if (options.kill_ms)
        snprintf(how, sizeof(how), ", %lu killed", kills);
    snprintf(
        text, sizeof(text),
        "budget: %llu processes x %llu threads, %llu s%s: NVML %llu, ledger %llu of %llu MiB (card %llu, %s, "
        "%lu samples)",
        (unsigned long long)options.processes, (unsigned long long)options.threads,
        (unsigned long long)options.seconds, how, (unsigned long long)(watch.nvml_peak / JOB_RACE_MIB),
        (unsigned long long)(watch.ledger_peak / JOB_RACE_MIB), (unsigned long long)options.budget,
        (unsigned long long)(watch.card_peak / JOB_RACE_MIB), watch.by_process ? "by process" : "by card",
        watch.samples);
    verdict(watch.nvml_peak <= options.budget * JOB_RACE_MIB &&
                watch.ledger_peak <= options.budget * JOB_RACE_MIB && watch.ledger_peak,
            text);
    snprintf(text, sizeof(text),
             "refusals: %lu while at most %llu MiB were wanted; %lu while more was wanted than there is; %lu "
             "requests%s",
             wrongly, (unsigned long long)(modest() / JOB_RACE_MIB), refused, asked, how);
    verdict(wrongly == 0 && odd == 0 && asked > 0, text);
    snprintf(text, sizeof(text),
             "nothing hangs: %d stuck, %u did not end, %lu other answers, %lu died by themselves%s",
             stuck >= 0, left, odd, deaths_of_others, how);
    verdict(stuck < 0 && left == 0 && odd == 0 && deaths_of_others == 0, text);
    if (options.kill_ms)
        printf("figure job_race: a killed process was gone after at most %llu ms\n",
               (unsigned long long)slowest_end);
}

/* ---- the death of a holder ---- */

static bool await(_Bool (*is)(void))
{
    const uint64_t until = now_ms() + START_MS;

    while (!is() && now_ms() < until)
        usleep(100);
    return is();
}

static bool holds(void)
{
    return atomic_load(&page->step) == 1 && atomic_load(&page->of[0].started);
}

static bool is_refused(void)
{
    return atomic_load(&page->of[0].refused) != 0;
}

static bool is_served(void)
{
    return atomic_load(&page->step) == 3;
}

/* Returns the ms from the end of the holder until the taker was served, or -1. */
static double one_death(void)
{
    const uint64_t rest = options.budget - 2 * options.context - RESERVE;
    double ms = -1;
    int status = 1;

    memset((void *)page, 0, sizeof(*page));
    atomic_store(&page->hold_bytes, rest * 9 / 10 * JOB_RACE_MIB);
    const pid_t holder = start("holder", 0), taker = start("taker", 0);
    if (holder > 0 && taker > 0 && await(holds)) {
        atomic_store(&page->step, 2);
        await(is_refused); /* so that it asks again and again */
        kill(holder, SIGKILL);
        waitpid(holder, NULL, 0);
        const uint64_t gone = now_ns();
        if (await(is_served))
            ms = atomic_load(&page->got_at) < gone ? 0 : (double)(atomic_load(&page->got_at) - gone) / 1e6;
    } else if (holder > 0) {
        kill(holder, SIGKILL);
        waitpid(holder, NULL, 0);
    }
    if (taker > 0 && ms < 0)
        kill(taker, SIGKILL);
    if (taker > 0)
        waitpid(taker, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? ms : -1;
}

static void die_often(void)
{
    double worst = 0;
    char text[160];
    bool all = true;

    for (uint64_t i = 0; i < options.deaths && all; i++) {
        const double ms = one_death();

        all = ms >= 0;
        worst = ms > worst ? ms : worst;
    }
    snprintf(text, sizeof(text),
             "death: a killed process's bytes were another's after at most %.1f ms (bound %d), %llu times%s",
             worst, FREE_MS, (unsigned long long)options.deaths, all ? "" : "; one was not served");
    verdict(all && worst <= FREE_MS, text);
}

/* ---- start ---- */

static bool parse(int argc, char **argv)
{
    static const struct option names[] = {{"library", required_argument, NULL, 'l'},
                                          {"budget", required_argument, NULL, 'b'},
                                          {"context", required_argument, NULL, 'c'},
                                          {"processes", required_argument, NULL, 'p'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {"largest", required_argument, NULL, 'g'},
                                          {"part", required_argument, NULL, 'a'},
                                          {"kill-ms", required_argument, NULL, 'k'},
                                          {"deaths", required_argument, NULL, 'd'},
                                          {NULL, 0, NULL, 0}};
    int option;

    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        const uint64_t number = optarg ? strtoull(optarg, NULL, 10) : 0;

        switch (option) {
        case 'l':
            options.library = optarg;
            break;
        case 'b':
            options.budget = number;
            break;
        case 'c':
            options.context = number;
            break;
        case 'p':
            options.processes = number;
            break;
        case 't':
            options.threads = number;
            break;
        case 's':
            options.seconds = number;
            break;
        case 'g':
            options.largest = number;
            break;
        case 'a':
            options.part = number;
            break;
        case 'k':
            options.kill_ms = number;
            break;
        case 'd':
            options.deaths = number;
            break;
        default:
            return false;
        }
    }
    return options.library && options.processes && options.processes <= JOB_RACE_WORKERS && options.threads &&
           options.threads <= JOB_RACE_WORKERS && options.largest >= 2 && modest() >= options.largest;
}

static bool make_page(void)
{
    page_fd = memfd_create("job_race", 0);
    if (page_fd < 0 || ftruncate(page_fd, sizeof(*page)))
        return false;
    page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);
    return page != MAP_FAILED;
}

static int play(int argc, char **argv)
{
    page = argc == 4 ? mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[2]), 0)
                     : MAP_FAILED;
    if (page == MAP_FAILED)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a controller that is stopped leaves nothing on the card */
    if (!strcmp(argv[1], "holder"))
        return job_race_hold(page);
    return !strcmp(argv[1], "taker") ? job_race_take(page) : job_race_work(page, (unsigned)atoi(argv[3]));
}

static void remove_folder(void)
{
    char command[FOLDER_MAX + 16];

    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    unsetenv("LD_PRELOAD");
    if (system(command)) /* NOLINT(concurrency-mt-unsafe): one thread */
        fprintf(stderr, "job_race: cannot remove %s\n", folder);
}

int main(int argc, char **argv)
{
    if (argc > 1 && argv[1][0] != '-')
        return play(argc, argv);
    if (!parse(argc, argv)) {
        fprintf(stderr,
                "usage: job_race --library=FILE --budget=MIB --context=MIB [--processes=16] [--threads=8] "
                "[--seconds=60] [--largest=256] [--part=70] [--kill-ms=0] [--deaths=0]\n");
        return 2;
    }
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0 || !make_page())
        return 2;
    if (!job_watch_start()) {
        fprintf(stderr, "job_race: no NVML\n");
        return NO_NVML;
    }
    snprintf(folder, sizeof(folder), "/dev/shm/job-race-XXXXXX");
    if (!mkdtemp(folder))
        return 2;
    set_environment();
    if (options.deaths) {
        die_often();
    } else {
        page->workers = (unsigned)options.processes;
        page->threads = (unsigned)options.threads;
        page->largest = options.largest * JOB_RACE_MIB;
        const int stuck = race_on();
        report(stuck, end_race());
    }
    remove_folder();
    return failed;
}
