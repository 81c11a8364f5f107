/* nvml_watch: runs a program and watches, by NVML, how much device memory it holds.
 *
 *     nvml_watch [--cap=BYTES|4G] [--env=NAME=VALUE]... -- PROGRAM [ARG...]
 *
 * Polls about every millisecond the memory of every process of the program's tree, and prints "key=value"
 * lines on stderr (stdout is the program's): the peak of one process, the peak of all together, the growth of
 * the whole card. Exit status: the program's own when that is not 0; 1 when a process passed the cap; 77 when
 * there is no NVML. --env sets the program's environment only: an LD_PRELOAD meant for it never reaches the
 * watcher. NVML is opened at run time with declarations of its stable interface below: nvml.h is not
 * everywhere. Owns no lock.
 *
 * In a container NVML may name processes by numbers of the host. A process that was not there before, and
 * whose number is unknown here, is then taken for the program's; "matched_by=elsewhere" says so. When NVML
 * names no process at all, the growth of the card stands in ("matched_by=card").
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "interpose/driver/nvml_types.h"

#define POLL_NS        1000000
#define MOST_DEVICES   16
#define MOST_PROCESSES 128
#define NO_NVML        77

static struct {
    int (*init)(void);
    int (*count)(unsigned *);
    int (*by_index)(unsigned, nvml_device *);
    int (*memory)(nvml_device, struct nvml_memory *);
    int (*processes)(nvml_device, unsigned *, struct nvml_process *);
    nvml_device device[MOST_DEVICES];
    unsigned devices;
} nvml;

static struct {
    unsigned known[MOST_PROCESSES]; /* those that were there before */
    unsigned known_count;
    uint64_t card_before[MOST_DEVICES];
    uint64_t peak_process, peak_tree, peak_card;
    long samples, in_tree, elsewhere;
} seen;

extern char **environ;

static bool open_nvml(void)
{
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        fprintf(stderr, "no NVML: %s\n", dlerror());
        return false;
    }
    *(void **)&nvml.init = dlsym(lib, "nvmlInit_v2");
    *(void **)&nvml.count = dlsym(lib, "nvmlDeviceGetCount_v2");
    *(void **)&nvml.by_index = dlsym(lib, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&nvml.memory = dlsym(lib, "nvmlDeviceGetMemoryInfo");
    *(void **)&nvml.processes = dlsym(lib, "nvmlDeviceGetComputeRunningProcesses_v3");
    if (!nvml.init || !nvml.count || !nvml.by_index || !nvml.memory || !nvml.processes) {
        fprintf(stderr, "NVML lacks a function that is needed here\n");
        return false;
    }
    if (nvml.init() || nvml.count(&nvml.devices))
        return false;
    if (nvml.devices > MOST_DEVICES)
        nvml.devices = MOST_DEVICES;
    for (unsigned i = 0; i < nvml.devices; i++) {
        if (nvml.by_index(i, &nvml.device[i]))
            return false;
    }
    return true;
}

static unsigned list(unsigned device, struct nvml_process *out)
{
    unsigned n = MOST_PROCESSES;
    return nvml.processes(nvml.device[device], &n, out) ? 0 : n;
}

static uint64_t card_used(unsigned device)
{
    struct nvml_memory m;
    return nvml.memory(nvml.device[device], &m) ? 0 : m.used;
}

static void look_before(void)
{
    struct nvml_process p[MOST_PROCESSES];
    for (unsigned d = 0; d < nvml.devices; d++) {
        unsigned n = list(d, p);
        for (unsigned i = 0; i < n && seen.known_count < MOST_PROCESSES; i++)
            seen.known[seen.known_count++] = p[i].pid;
        seen.card_before[d] = card_used(d);
    }
}

static bool was_there_before(unsigned pid)
{
    for (unsigned i = 0; i < seen.known_count; i++) {
        if (seen.known[i] == pid)
            return true;
    }
    return false;
}

static pid_t parent_of(pid_t pid)
{
    char path[64], line[512];
    int parent = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return -1;
    if (fgets(line, sizeof(line), f)) {
        const char *after_name = strrchr(line, ')'); /* the name may hold blanks and brackets */
        if (!after_name || sscanf(after_name + 1, " %*c %d", &parent) != 1)
            parent = 0;
    }
    fclose(f);
    return parent;
}

enum relation { STRANGER, IN_TREE, ELSEWHERE };

static enum relation relation_of(unsigned pid, pid_t root)
{
    pid_t p = (pid_t)pid;
    if (was_there_before(pid))
        return STRANGER;
    if (p != root && parent_of(p) < 0)
        return ELSEWHERE;
    for (int depth = 0; p > 1 && depth < 64; depth++, p = parent_of(p)) {
        if (p == root)
            return IN_TREE;
    }
    return STRANGER;
}

static void sample(pid_t root)
{
    uint64_t tree = 0;
    for (unsigned d = 0; d < nvml.devices; d++) {
        struct nvml_process p[MOST_PROCESSES];
        unsigned n = list(d, p);
        for (unsigned i = 0; i < n; i++) {
            enum relation r = p[i].used == NVML_NOT_AVAILABLE ? STRANGER : relation_of(p[i].pid, root);
            if (r == STRANGER)
                continue;
            *(r == IN_TREE ? &seen.in_tree : &seen.elsewhere) += 1;
            tree += p[i].used;
            if (p[i].used > seen.peak_process)
                seen.peak_process = p[i].used;
        }
        uint64_t used = card_used(d);
        if (used > seen.card_before[d] && used - seen.card_before[d] > seen.peak_card)
            seen.peak_card = used - seen.card_before[d];
    }
    if (tree > seen.peak_tree)
        seen.peak_tree = tree;
    seen.samples++;
}

static uint64_t size_of(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    const char *units = "KMGT", *unit = *end ? strchr(units, *end) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        value *= 1024;
    return (uint64_t)value;
}

static int report(uint64_t cap, int status)
{
    bool named = seen.in_tree || seen.elsewhere;
    uint64_t peak = named ? seen.peak_process : seen.peak_card;
    bool over = cap && peak > cap;
    fprintf(stderr,
            "nvml_peak=%llu\nnvml_tree_peak=%llu\nnvml_card_growth=%llu\nsamples=%ld\nmatched_by=%s\n",
            (unsigned long long)peak, (unsigned long long)seen.peak_tree, (unsigned long long)seen.peak_card,
            seen.samples,
            seen.in_tree     ? "tree"
            : seen.elsewhere ? "elsewhere"
                             : "card");
    if (cap)
        fprintf(stderr, "cap=%llu\nwithin_cap=%s\n", (unsigned long long)cap, over ? "no" : "yes");
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return code ? code : over;
}

int main(int argc, char **argv)
{
    uint64_t cap = 0;
    pid_t pid;
    int status = 0, i = 1;
    char *settings[64];
    int setting_count = 0;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (!strncmp(argv[i], "--cap=", 6))
            cap = size_of(argv[i] + 6);
        else if (!strncmp(argv[i], "--env=", 6) && strchr(argv[i] + 6, '=') && setting_count < 64)
            settings[setting_count++] = argv[i] + 6;
        else
            break;
    }
    if (i + 1 >= argc || strcmp(argv[i], "--") != 0) {
        fprintf(stderr, "usage: nvml_watch [--cap=4G] [--env=NAME=VALUE]... -- PROGRAM [ARG...]\n");
        return 2;
    }
    if (!open_nvml())
        return NO_NVML;
    look_before();
    for (int s = 0; s < setting_count; s++) /* after NVML is loaded: nothing is preloaded here any more */
        putenv(settings[s]);
    int rc = posix_spawnp(&pid, argv[i + 1], NULL, NULL, argv + i + 1, environ);
    if (rc) {
        fprintf(stderr, "nvml_watch: cannot run %s: %s\n", argv[i + 1], strerror(rc));
        return 127;
    }
    while (waitpid(pid, &status, WNOHANG) == 0) {
        sample(pid);
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
    return report(cap, status);
}
