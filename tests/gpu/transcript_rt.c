/* transcript_rt: what the CUDA runtime answers, step by step: the runtime's half of the differential
 * transcript.
 *
 * The same source is linked with the static runtime (nvcc's default), with the shared one, and with simgpu's.
 * The output is compared between native and wrapped runs, and between simgpu and the real card
 * (golden/transcript_rt.txt). transcript/runner.h has the rules and the options. Owns no lock.
 */
#include "transcript/runner.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB   ((size_t)1 << 20)
#define BYTES 5000000u

/* Calls fn, prints "section: fn(arguments as written) -> code". */
#define RT(fn, ...) say_rc(#fn "(" #__VA_ARGS__ ")", fn(__VA_ARGS__))

static cudaError_t say_rc(const char *what, cudaError_t rc)
{
    tx_say("%s -> %d", what, (int)rc);
    return rc;
}

static void last_error(void)
{
    cudaError_t peeked = cudaPeekAtLastError(), first = cudaGetLastError(), second = cudaGetLastError();
    tx_say("last error: peek %d, get %d, then %d", (int)peeked, (int)first, (int)second);
}

static long wrong_bytes(const void *device, int expected, size_t bytes)
{
    long wrong = -1;
    unsigned char *copy = malloc(bytes);
    if (copy && cudaMemcpy(copy, device, bytes, cudaMemcpyDeviceToHost) == cudaSuccess) {
        wrong = 0;
        for (size_t i = 0; i < bytes; i++)
            wrong += copy[i] != expected;
    }
    free(copy);
    return wrong;
}

static void run_start(void)
{
    int n = 0, device = -1, version = 0;
    RT(cudaRuntimeGetVersion, &version);
    tx_say("runtime version at least 12000: %s", tx_yes(version >= 12000));
    RT(cudaGetDeviceCount, &n);
    tx_say("at least one device: %s", tx_yes(n >= 1));
    RT(cudaGetDevice, &device);
    tx_say("device %d", device);
    RT(cudaSetDevice, n);
    last_error();
    RT(cudaSetDevice, -1);
    last_error();
    RT(cudaSetDevice, 0);
    RT(cudaFree, NULL);
    RT(cudaDeviceSynchronize);
    last_error();
}

static void run_malloc(void)
{
    void *p = (void *)1, *q = NULL;
    RT(cudaMalloc, &p, 0);
    tx_say("0 bytes give NULL: %s", tx_yes(!p));
    RT(cudaFree, p);
    RT(cudaMalloc, NULL, 4096);
    last_error();
    RT(cudaMalloc, &p, (size_t)1 << 50);
    tx_say("NULL after a refusal: %s", tx_yes(!p));
    last_error();
    RT(cudaMalloc, &p, SIZE_MAX);
    last_error();
    RT(cudaMalloc, &p, BYTES);
    tx_say("aligned to 256: %s", tx_yes((uintptr_t)p % 256 == 0));
    tx_say("fresh, bytes not 0: %ld", wrong_bytes(p, 0, BYTES));
    RT(cudaMemset, p, 0x3c, BYTES);
    tx_say("wrong bytes: %ld", wrong_bytes(p, 0x3c, BYTES));
    RT(cudaFree, (char *)p + 512);
    last_error();
    RT(cudaFree, &q);
    last_error();
    RT(cudaFree, p);
    RT(cudaFree, p);
    last_error();
    RT(cudaMalloc, &q, 1);
    RT(cudaFree, q);
    last_error();
}

static void run_info(void)
{
    size_t free_bytes = 0, total = 0, before = 0;
    struct cudaDeviceProp prop;
    void *p = NULL;
    memset(&prop, 0, sizeof(prop));
    RT(cudaFree, NULL);
    RT(cudaMemGetInfo, &before, &total);
    RT(cudaGetDeviceProperties, &prop, 0);
    tx_say("totalGlobalMem is the total of cudaMemGetInfo: %s", tx_yes(prop.totalGlobalMem == total));
    tx_say("it has a name: %s", tx_yes(prop.name[0] != 0));
    tx_say("unified addressing %d, managed %d, maps host memory %d", prop.unifiedAddressing,
           prop.managedMemory, prop.canMapHostMemory);
    tx_say("free below total: %s", tx_yes(before < total));
    RT(cudaMalloc, &p, 64 * MIB);
    RT(cudaMemGetInfo, &free_bytes, &total);
    tx_say("free fell by 64 MiB: %s", tx_yes(before - free_bytes == 64 * MIB));
    RT(cudaFree, p);
    RT(cudaMemGetInfo, &free_bytes, &total);
    tx_say("free is back: %s", tx_yes(before == free_bytes));
    RT(cudaMalloc, &p, total);
    last_error();
    RT(cudaGetDeviceProperties, &prop, 4096);
    last_error();
}

static void run_kinds(void)
{
    void *p = NULL, *host = NULL;
    size_t pitch = 0;
    RT(cudaMallocPitch, &p, &pitch, 100, 10);
    tx_say("pitch %zu", pitch);
    RT(cudaFree, p);
    RT(cudaMallocManaged, &p, 65536, cudaMemAttachGlobal);
    if (p) {
        memset(p, 7, 65536);
        tx_say("managed, wrong bytes: %ld", wrong_bytes(p, 7, 65536));
        RT(cudaFree, p);
    }
    RT(cudaMallocHost, &host, 65536);
    RT(cudaFreeHost, host);
    RT(cudaFreeHost, NULL);
    RT(cudaHostAlloc, &host, 65536, cudaHostAllocPortable);
    RT(cudaFree, host);
    last_error();
    RT(cudaFreeHost, host);
    RT(cudaFreeHost, host);
    last_error();
}

static void run_async(void)
{
    void *p = NULL, *q = NULL;
    cudaStream_t s = NULL;
    RT(cudaStreamCreateWithFlags, &s, cudaStreamNonBlocking);
    RT(cudaMallocAsync, &p, BYTES, s);
    RT(cudaMemsetAsync, p, 9, BYTES, s);
    RT(cudaStreamSynchronize, s);
    tx_say("wrong bytes: %ld", wrong_bytes(p, 9, BYTES));
    RT(cudaFreeAsync, p, s);
    RT(cudaMallocAsync, &p, BYTES, s);
    RT(cudaFree, p);
    RT(cudaMalloc, &q, BYTES);
    RT(cudaFreeAsync, q, s);
    RT(cudaStreamSynchronize, s);
    RT(cudaMallocAsync, &p, 0, s);
    RT(cudaFreeAsync, NULL, s);
    last_error();
    RT(cudaMallocAsync, &p, (size_t)1 << 50, s);
    last_error();
    RT(cudaStreamDestroy, s);
    last_error();
}

static void say_attributes(const char *what, const void *p)
{
    struct cudaPointerAttributes a;
    memset(&a, 0xff, sizeof(a));
    cudaError_t rc = cudaPointerGetAttributes(&a, p);
    tx_say("%s -> %d, type %d, device %d, device pointer is the pointer: %s, host pointer is: %s", what,
           (int)rc, (int)a.type, a.device, tx_yes(a.devicePointer == p), tx_yes(a.hostPointer == p));
}

static void run_attributes(void)
{
    void *p = NULL, *host = NULL, *managed = NULL, *own = malloc(64);
    RT(cudaMalloc, &p, BYTES);
    RT(cudaMallocHost, &host, 65536);
    RT(cudaMallocManaged, &managed, 65536, cudaMemAttachGlobal);
    say_attributes("device memory", p);
    say_attributes("inside it", (char *)p + 4096);
    say_attributes("host memory", host);
    say_attributes("managed memory", managed);
    say_attributes("malloc memory", own);
    last_error();
    RT(cudaFree, p);
    say_attributes("freed memory", p);
    last_error();
    RT(cudaFree, managed);
    RT(cudaFreeHost, host);
    free(own);
}

static void run_reset(void)
{
    void *p = NULL, *q = NULL;
    size_t before = 0, after = 0, total = 0;
    RT(cudaMemGetInfo, &before, &total);
    RT(cudaMalloc, &p, 64 * MIB);
    RT(cudaDeviceReset);
    RT(cudaMemGetInfo, &after, &total);
    tx_say("the reset gave the memory back: %s", tx_yes(after + 32 * MIB >= before));
    RT(cudaFree, p);
    last_error();
    RT(cudaMalloc, &q, BYTES);
    RT(cudaMemset, q, 1, BYTES);
    tx_say("after it all works again, wrong bytes: %ld", wrong_bytes(q, 1, BYTES));
    RT(cudaFree, q);
    RT(cudaDeviceReset);
    RT(cudaDeviceReset);
    last_error();
}

static void run_capture(void)
{
    static const struct {
        enum cudaStreamCaptureMode mode;
        const char *name;
    } modes[] = {{cudaStreamCaptureModeGlobal, "global"},
                 {cudaStreamCaptureModeThreadLocal, "thread-local"},
                 {cudaStreamCaptureModeRelaxed, "relaxed"}};
    cudaStream_t s = NULL;
    RT(cudaStreamCreateWithFlags, &s, cudaStreamNonBlocking);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        void *p = NULL;
        cudaGraph_t graph = NULL;
        tx_say("%s:", modes[i].name);
        RT(cudaStreamBeginCapture, s, modes[i].mode);
        RT(cudaMalloc, &p, 4096);
        RT(cudaStreamEndCapture, s, &graph);
        tx_say("a graph: %s", tx_yes(graph != NULL));
        last_error();
        if (graph)
            RT(cudaGraphDestroy, graph);
        if (p)
            RT(cudaFree, p);
    }
    RT(cudaStreamDestroy, s);
}

static void run_fork(void)
{
    void *p = NULL;
    int status = 0;
    fflush(stdout);
    for (int late = 0; late < 2; late++) {
        pid_t pid = fork();
        if (pid == 0) {
            RT(cudaMalloc, &p, 4096);
            last_error();
            RT(cudaFree, p);
            fflush(stdout);
            _exit(0);
        }
        while (waitpid(pid, &status, 0) < 0)
            ;
        tx_say("child %s the parent used CUDA: exit %d", late ? "after" : "before",
               WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        if (!late)
            RT(cudaMalloc, &p, 4096);
    }
    RT(cudaMemset, p, 2, 4096);
    tx_say("the parent's memory, wrong bytes: %ld", wrong_bytes(p, 2, 4096));
    RT(cudaFree, p);
}

static void thread_allocates(void *arg)
{
    void **p = arg;
    RT(cudaMalloc, p, 4096);
    RT(cudaMalloc, p + 1, (size_t)1 << 50);
}

static void run_threads(void)
{
    void *p[2] = {NULL, NULL};
    tx_in_thread(thread_allocates, p);
    last_error();
    RT(cudaMemset, p[0], 3, 4096);
    tx_say("memory of another thread, wrong bytes: %ld", wrong_bytes(p[0], 3, 4096));
    RT(cudaFree, p[0]);
}

static void run_errors(void)
{
    static const int codes[] = {0, 1, 2, 3, 4, 100, 101, 201, 400, 600, 700, 801, 900, 901, 999, 12345};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        tx_say("%d: %s: %s", codes[i], cudaGetErrorName((cudaError_t)codes[i]),
               cudaGetErrorString((cudaError_t)codes[i]));
}

static const struct runner_section sections[] = {
    {"start", run_start, "first calls"},
    {"malloc", run_malloc, "cudaMalloc, cudaFree and the last error"},
    {"info", run_info, "what is said of the card's memory"},
    {"kinds", run_kinds, "pitched, managed and host memory"},
    {"async", run_async, "stream-ordered allocation"},
    {"attributes", run_attributes, "pointer attributes"},
    {"reset", run_reset, "cudaDeviceReset"},
    {"capture", run_capture, "cudaMalloc in a capture"},
    {"fork", run_fork, "forked children"},
    {"threads", run_threads, "memory passed between threads"},
    {"errors", run_errors, "names and texts of codes"},
};

/* The runtime opens the driver by itself; this only tells whether there is one. */
static bool open_driver(bool by_dlsym)
{
    (void)by_dlsym;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver)
        fprintf(stderr, "no CUDA driver: %s\n", dlerror());
    return driver != NULL;
}

int main(int argc, char **argv)
{
    const struct runner r = {
        .sections = sections, .count = sizeof(sections) / sizeof(sections[0]), .open = open_driver};
    return runner_main(argc, argv, &r);
}
