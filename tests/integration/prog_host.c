/* prog_host: a host program that watches what is done to it: its environment, its signal handlers, its umask,
 * its malloc, errno. prog_host WAY. Prints one line per thing that changed. Knows nothing of gpucap. */
#include "prog_driver.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIGNALS 65
#define MIB     (1024 * 1024)

extern char **environ;

/* A malloc of its own, as programs with jemalloc or tcmalloc linked in have: from one array, never reused. */
#ifdef PROG_OWN_MALLOC
#include <stdlib.h>

static alignas(64) char arena[64 * MIB];
static atomic_size_t used;
static atomic_ulong calls;

struct head {
    alignas(16) size_t bytes;
};

static void *from_arena(size_t bytes, size_t alignment)
{
    size_t at = atomic_fetch_add(&used, bytes + alignment + sizeof(struct head));

    atomic_fetch_add(&calls, 1);
    if (at + bytes + alignment + sizeof(struct head) > sizeof(arena))
        return NULL;
    uintptr_t p = ((uintptr_t)arena + at + sizeof(struct head) + alignment - 1) & ~(uintptr_t)(alignment - 1);
    ((struct head *)p)[-1].bytes = bytes;
    return (void *)p;
}

static int in_arena(const void *p)
{
    return (const char *)p >= arena && (const char *)p < arena + sizeof(arena);
}

void *malloc(size_t bytes)
{
    return from_arena(bytes, 16);
}

void *calloc(size_t count, size_t bytes)
{
    return from_arena(count * bytes, 16); /* fresh memory is zero */
}

void *realloc(void *old, size_t bytes)
{
    void *p = from_arena(bytes, 16);

    if (p && old)
        memcpy(p, old, ((struct head *)old)[-1].bytes < bytes ? ((struct head *)old)[-1].bytes : bytes);
    return p;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return from_arena(bytes, alignment < 16 ? 16 : alignment);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    *out = aligned_alloc(alignment, bytes);
    return *out ? 0 : ENOMEM;
}

void free(void *p)
{
    if (p && !in_arena(p)) {
        static const char foreign[] = "freed a pointer that is not ours\n";

        (void)!write(STDOUT_FILENO, foreign, sizeof(foreign) - 1);
    }
}
#endif

static struct sigaction actions[SIGNALS];
static char environment[65536];

static void copy_environment(char *out, size_t size)
{
    size_t at = 0;

    for (char **e = environ; *e && at < size; e++)
        at += (size_t)snprintf(out + at, size - at, "%s\n", *e);
}

static void remember(void)
{
    for (int i = 1; i < SIGNALS; i++)
        sigaction(i, NULL, &actions[i]);
    copy_environment(environment, sizeof(environment));
}

static void compare(void)
{
    static char now[sizeof(environment)];
    sigset_t blocked;
    mode_t mask = umask(0);

    umask(mask);
    copy_environment(now, sizeof(now));
    if (strcmp(now, environment))
        printf("the environment changed\n");
    for (int i = 1; i < SIGNALS; i++) {
        struct sigaction action;

        if (sigaction(i, NULL, &action) == 0 && action.sa_handler != actions[i].sa_handler)
            printf("the handler of signal %d changed\n", i);
    }
    sigemptyset(&blocked);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    for (int i = 1; i < SIGNALS; i++) {
        if (sigismember(&blocked, i) == 1)
            printf("signal %d is blocked\n", i);
    }
    if (mask != 027)
        printf("the umask changed\n");
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUdeviceptr address, more;
    size_t free_bytes, total;

    umask(027);
    remember();
    if (argc < 2 || !prog_driver_open(argv[1]))
        return 4;
    int a = cu.cuInit(0), b = cu.cuCtxCreate(&context, 0, 0), c = cu.cuMemAlloc(&address, 16 * MIB);
    errno = 12345;
    int d = cu.cuMemAlloc(&more, (size_t)64 << 30), e = cu.cuMemGetInfo(&free_bytes, &total),
        f = cu.cuMemFree(address);
    if (errno != 12345)
        printf("errno changed to %d\n", errno);
    printf("%d %d %d %d %d %d\n", a, b, c, d, e, f);
    compare();
    printf("destroy %d\n", (int)cu.cuCtxDestroy(context));
#ifdef PROG_OWN_MALLOC
    printf("own malloc %s\n", atomic_load(&calls) ? "used" : "not used");
#endif
    return 0;
}
