/* prog_leaves: a program that exits before a thread that a library has started gets to run, as happens on a
 * busy machine: prog_leaves WAY. That thread runs while exit runs destructors. Knows nothing of gpucap; its
 * libnvidia-ml.so.1 is prog_bare_nvml. */
#include "prog_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

typedef void *routine(void *);
typedef int creator(pthread_t *, const pthread_attr_t *, routine *, void *);

static atomic_int held;    /* threads that have been started and do not run yet */
static atomic_int leaving; /* exit runs destructors */
static routine *held_routine;
static void *held_argument;

static void say(const char *text)
{
    ssize_t ignored = write(STDOUT_FILENO, text, strlen(text));

    (void)ignored;
}

static void *run_late(void *unused)
{
    while (!atomic_load(&leaving))
        sched_yield();
    held_routine(held_argument);
    atomic_fetch_sub(&held, 1);
    return unused;
}

/* Threads of the preloaded library come late; the driver's do not. */
static int is_late(const void *caller)
{
    Dl_info info;

    return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "libgpucap") && !held_routine;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, routine *run, void *argument)
{
    creator *real = (creator *)dlsym(RTLD_NEXT, "pthread_create");

    if (!is_late(__builtin_return_address(0)))
        return real(thread, attributes, run, argument);
    held_routine = run;
    held_argument = argument;
    atomic_fetch_add(&held, 1);
    return real(thread, attributes, run_late, NULL);
}

__attribute__((destructor)) static void end(void)
{
    atomic_store(&leaving, 1);
    while (atomic_load(&held))
        sched_yield();
    say("ended\n");
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUdeviceptr address;

    if (argc < 2 || !prog_driver_open(argv[1]))
        return 3;
    if (cu.cuInit(0) == CUDA_SUCCESS && cu.cuCtxCreate(&context, 0, 0) == CUDA_SUCCESS)
        while (cu.cuMemAlloc(&address, 16 * MIB) == CUDA_SUCCESS)
            continue;
    say(atomic_load(&held) ? "leaving\n" : "no thread was started\n");
    exit(5);
}
