/* job_loan: one process keeps memory idle, another one asks for it and says how long that took. They know
 * nothing of gpucap and meet by files in a folder.
 *
 *     job_loan lender FOLDER MIB ROUNDS          takes and frees MIB, writes ready.N, works on until done.N
 *     job_loan borrower FOLDER MIB ROUND WAY     waits for ready.ROUND, asks by WAY (malloc, create), prints
 *                                                the milliseconds, gives it back and writes done.ROUND
 *
 * The lender may be another program that writes the same files (py/job_torch.py). Exit status: 0, 1 if a
 * request was refused, 2 for other failures. Owns no lock.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB     ((size_t)1 << 20)
#define WAIT_S  120
#define REST_US 50000 /* the lender is at its usual work again */

static const char *folder;

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static const char *path_of(const char *word, int round)
{
    static char path[4096];

    snprintf(path, sizeof(path), "%s/%s.%d", folder, word, round);
    return path;
}

static bool is_there(const char *word, int round)
{
    return access(path_of(word, round), F_OK) == 0;
}

static void write_file(const char *word, int round)
{
    const int fd = open(path_of(word, round), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    if (fd >= 0)
        close(fd);
}

/* One thing that a program does between two others. */
static bool work(void)
{
    void *block;

    if (cudaMalloc(&block, 4 * MIB))
        return false;
    return cudaMemset(block, 1, 4 * MIB) == cudaSuccess && cudaFree(block) == cudaSuccess;
}

static int lend(size_t bytes, int rounds)
{
    for (int round = 1; round <= rounds; round++) {
        const double until = now_ms() + WAIT_S * 1e3;
        void *block;

        if (cudaMalloc(&block, bytes) || cudaFree(block))
            return 1;
        write_file("ready", round);
        while (!is_there("done", round)) {
            if (!work() || now_ms() > until)
                return 2;
        }
    }
    return 0;
}

/* cudaMalloc, or cuMemCreate, which the runtime does not have. Returns the driver's code. */
static int take(const char *way, size_t bytes)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *block;
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUmemGenericAllocationHandle handle;

    if (!library)
        return -1;
    *(void **)&create = dlsym(library, "cuMemCreate");
    const double begin = now_ms();
    const int code =
        !strcmp(way, "malloc") ? (int)cudaMalloc(&block, bytes) : (int)create(&handle, bytes, &prop, 0);
    printf("ms=%.1f\ncode=%d\n", now_ms() - begin, code);
    return code; /* what was got goes back with the process */
}

static int borrow(size_t bytes, int round, const char *way)
{
    const double until = now_ms() + WAIT_S * 1e3;

    if (!work())
        return 2;
    while (!is_there("ready", round)) {
        if (now_ms() > until)
            return 2;
        usleep(1000);
    }
    usleep(REST_US);
    const int code = take(way, bytes);
    return code == 0 ? 0 : code == 2 ? 1 : 2;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: job_loan lender FOLDER MIB ROUNDS | borrower FOLDER MIB ROUND WAY\n");
        return 2;
    }
    folder = argv[2];
    const size_t bytes = strtoull(argv[3], NULL, 10) * MIB;
    const int number = (int)strtol(argv[4], NULL, 10);
    return !strcmp(argv[1], "lender") ? lend(bytes, number) : argc > 5 ? borrow(bytes, number, argv[5]) : 2;
}
