/* prog_process: one CUDA process that becomes several, or several threads, or ends in the middle:
 * prog_process WAY MODE. Prints the driver's answers. Knows nothing of gpucap; without it every mode ends the
 * same way. */
#include "prog_driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB     (1024 * 1024)
#define THREADS 4
#define FORKS   20

extern char **environ;
static const char *self, *way;
static CUcontext context;

static void say_info(const char *who)
{
    size_t free_bytes = 0, total = 0;
    int rc = cu.cuMemGetInfo(&free_bytes, &total);

    printf("%s info %d free=%zu total=%zu\n", who, rc, free_bytes / MIB, total / MIB);
    fflush(stdout);
}

static void begin(void)
{
    int a = cu.cuInit(0), b = cu.cuCtxCreate(&context, 0, 0);

    if (a || b)
        printf("begin %d %d\n", a, b);
}

static int take(size_t bytes)
{
    CUdeviceptr address;

    return (int)cu.cuMemAlloc(&address, bytes);
}

static int fill(void)
{
    int n = 0;

    while (take(16 * MIB) == 0)
        n++;
    return n;
}

/* The child's exit status, or minus the signal. */
static int wait_for(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- forks ---- */

/* A child that never uses CUDA, by a proper exit with all its handlers. */
static void fork_idle(void)
{
    begin();
    take(100 * MIB);
    say_info("before");
    pid_t pid = fork();
    if (pid == 0)
        exit(7);
    printf("child %d\n", wait_for(pid));
    say_info("after");
    printf("fill %d\n", fill());
}

/* A child that tries to use CUDA although its parent has started it. */
static void fork_use(void)
{
    CUdeviceptr address;
    size_t free_bytes, total;

    begin();
    cu.cuMemAlloc(&address, 100 * MIB);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        CUdeviceptr more;
        int a = cu.cuMemAlloc(&more, MIB), b = cu.cuMemGetInfo(&free_bytes, &total),
            c = cu.cuMemFree(address), d = cu.cuInit(0);

        printf("child alloc %d info %d free %d init %d\n", a, b, c, d);
        exit(0);
    }
    printf("child %d\n", wait_for(pid));
    say_info("after");
    printf("free %d\n", (int)cu.cuMemFree(address));
    say_info("at last");
}

static void child_program(void)
{
    begin();
    say_info("child");
    printf("child fill %d\n", fill());
    fflush(stdout);
}

/* A child that is the first to use CUDA; then the parent does. */
static void fork_first(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        child_program();
        exit(0);
    }
    printf("child %d\n", wait_for(pid));
    child_program();
}

static void start_self(const char *mode, bool vforked)
{
    char *argv[] = {(char *)(uintptr_t)self, (char *)(uintptr_t)way, (char *)(uintptr_t)mode, NULL};
    pid_t pid = -1;

    fflush(stdout);
    if (!vforked) {
        posix_spawn(&pid, self, NULL, NULL, argv, environ);
    } else {
        pid = vfork();
        if (pid == 0) {
            execv(self, argv);
            _exit(9);
        }
    }
    printf("child %d\n", wait_for(pid));
}

/* Programs started by a CUDA program have a cap of their own and leave the parent's alone. */
static void start_others(void)
{
    begin();
    take(100 * MIB);
    start_self("child", false);
    start_self("child", true);
    say_info("after");
    printf("fill %d\n", fill());
}

/* A child by raw clone(), without fork handlers. */
static void raw_clone(void)
{
    begin();
    take(100 * MIB);
    fflush(stdout);
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(3);
    printf("child %d\n", wait_for(pid));
    say_info("after");
    printf("fill %d\n", fill());
}

/* ---- threads ---- */

static atomic_bool stop;
static atomic_long rounds;

static void *churn(void *unused)
{
    cu.cuCtxSetCurrent(context);
    while (!atomic_load(&stop)) {
        CUdeviceptr address;

        if (cu.cuMemAlloc(&address, 8 * MIB) == CUDA_SUCCESS)
            cu.cuMemFree(address);
        atomic_fetch_add(&rounds, 1);
    }
    return unused;
}

static void start_threads(pthread_t *threads)
{
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, churn, NULL);
    while (atomic_load(&rounds) < 20)
        sched_yield();
}

static void end_threads(pthread_t *threads)
{
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* Forks while others are in the middle of a call; the children are idle or try to use CUDA. */
static void fork_racing(void)
{
    pthread_t threads[THREADS];
    int right = 0;

    begin();
    start_threads(threads);
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();

        if (pid == 0)
            _exit(i % 2 && take(MIB) != CUDA_ERROR_NOT_INITIALIZED ? 1 : 0);
        right += wait_for(pid) == 0;
    }
    end_threads(threads);
    printf("right %d\n", right);
    say_info("after");
}

static void leave_racing(bool hard)
{
    pthread_t threads[THREADS];

    begin();
    start_threads(threads);
    printf("leaving\n");
    fflush(stdout);
    if (hard)
        _exit(5);
    exit(5);
}

/* ---- a thread without a context ---- */

static void *homeless(void *argument)
{
    CUdeviceptr address = *(CUdeviceptr *)argument, more;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    size_t free_bytes, total, pitch;
    CUstream stream;

    cu.cuCtxSetCurrent(NULL);
    int a = cu.cuMemAlloc(&more, MIB), b = cu.cuMemGetInfo(&free_bytes, &total),
        c = cu.cuMemAllocPitch(&more, &pitch, 64, 64, 4),
        d = cu.cuMemAllocManaged(&more, MIB, CU_MEM_ATTACH_GLOBAL), e = cu.cuMemAllocAsync(&more, MIB, NULL),
        f = cu.cuStreamCreate(&stream, 0);
    printf("alloc %d info %d pitch %d managed %d async %d stream %d\n", a, b, c, d, e, f);
    int g = cu.cuMemCreate(&handle, 2 * MIB, &properties, 0), h = g ? -1 : (int)cu.cuMemRelease(handle);
    printf("create %d release %d total %d\n", g, h, (int)cu.cuDeviceTotalMem(&total, 0));
    printf("create too much %d\n", (int)cu.cuMemCreate(&handle, (size_t)64 << 30, &properties, 0));
    (void)address;
    return NULL;
}

static void no_context(void)
{
    CUdeviceptr address = 0;
    pthread_t thread;

    begin();
    cu.cuMemAlloc(&address, MIB);
    pthread_create(&thread, NULL, homeless, &address);
    pthread_join(thread, NULL);
    say_info("main");
}

/* ---- the end of threads and of the process ---- */

static pthread_key_t key;

static void free_at_thread_end(void *address)
{
    cu.cuMemFree((CUdeviceptr)(uintptr_t)address);
}

static void *hold(void *unused)
{
    CUdeviceptr address = 0;

    cu.cuCtxSetCurrent(context);
    cu.cuMemAlloc(&address, 32 * MIB);
    pthread_setspecific(key, (void *)(uintptr_t)address);
    return unused;
}

/* Memory that a thread gives back in its destructors. */
static void thread_end(void)
{
    begin();
    pthread_key_create(&key, free_at_thread_end);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;

        pthread_create(&thread, NULL, hold, NULL);
        pthread_join(thread, NULL);
    }
    say_info("after");
}

static void at_exit(void)
{
    int rc = take(2000 * (size_t)MIB);

    printf("at exit: %s\n", rc == 0 ? "uncapped" : "refused");
}

/* A handler that was there before CUDA, and so runs after everything CUDA has registered. */
static void exit_handler(void)
{
    atexit(at_exit);
    begin();
    printf("alloc %d\n", take(MIB));
}

/* ---- in the middle of the library ---- */

static atomic_bool no_threads; /* none can be started */

/* Fails as the C library does when the kernel refuses, with *thread already written. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

    if (atomic_load(&no_threads)) {
        memset(thread, 0x5a, sizeof(*thread));
        return EAGAIN;
    }
    if (!real)
        real = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(
            RTLD_NEXT, "pthread_create");
    return real(thread, attributes, run, argument);
}

/* Called in the middle of an allocation: the code that makes room reads the clock first. */
static _Thread_local void (*in_the_middle)(void);

int clock_gettime(clockid_t clock, struct timespec *now)
{
    void (*const act)(void) = in_the_middle;

    in_the_middle = NULL;
    if (act)
        act();
    return (int)syscall(SYS_clock_gettime, clock, now);
}

static int give_one(void)
{
    CUdeviceptr address = 0;
    int a = (int)cu.cuMemAlloc(&address, 8 * MIB), b = (int)cu.cuMemFree(address);

    return a ? a : b;
}

/* Without the helper thread, idle memory is only given back on request. */
static void no_helper(void)
{
    begin();
    atomic_store(&no_threads, true);
    printf("pair %d\n", give_one());
    printf("pair %d\n", give_one());
    atomic_store(&no_threads, false);
}

/* The library must not call a driver that has shut down, even if the program does. */
static void stay_a_while(void)
{
    prog_driver_fault("*:*=kill");
    usleep(300000);
    puts("stayed");
}

/* An exit handler that runs after the driver's and before those registered earlier. */
static void after_driver(void)
{
    printf("early %d\n", take(MIB));
    atexit(stay_a_while);
    begin();
    printf("pair %d\n", give_one());
    fflush(stdout);
}

static void leave_now(int signal)
{
    (void)signal;
    usleep(100000); /* threads that need what this one holds wait for it now */
    exit(5);
}

static void interrupt(void)
{
    raise(SIGUSR1);
}

/* A signal handler ends the program, and has interrupted an allocation. */
static void exit_inside(void)
{
    signal(SIGUSR1, leave_now);
    begin();
    printf("pair %d\n", give_one());
    fflush(stdout);
    in_the_middle = interrupt;
    take(128 * MIB);
    printf("not interrupted\n");
}

static pid_t clone_here(void)
{
    fflush(stdout);
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* A child by raw clone() ends normally. */
static void clone_exit(void)
{
    begin();
    printf("pair %d\n", give_one());
    pid_t pid = clone_here();
    if (pid == 0)
        exit(3);
    printf("child %d\n", wait_for(pid));
    printf("pair %d\n", give_one());
}

static atomic_bool inside, leave_it, outside;

static void stand_still(void)
{
    atomic_store(&inside, true);
    while (!atomic_load(&leave_it))
        usleep(1000);
}

static void *stand_inside(void *unused)
{
    cu.cuCtxSetCurrent(context);
    in_the_middle = stand_still;
    take(128 * MIB);
    atomic_store(&inside, true);
    atomic_store(&outside, true);
    return unused;
}

/* Children can be made, and end, while another thread is in the middle of an allocation. */
static void copy_inside(pid_t (*copy)(void))
{
    pthread_t thread;

    begin();
    printf("pair %d\n", give_one());
    pthread_create(&thread, NULL, stand_inside, NULL);
    pthread_detach(thread); /* a sanitizer would miss it in the copy */
    while (!atomic_load(&inside))
        usleep(1000);
    pid_t pid = copy();
    if (pid == 0) {
        take(64 * MIB); /* whatever the driver says to that */
        cu.cuInit(0);
        exit(3);
    }
    printf("child %d\n", wait_for(pid));
    atomic_store(&leave_it, true);
    while (!atomic_load(&outside))
        usleep(1000);
    printf("pair %d\n", give_one());
}

static void clone_inside(void)
{
    copy_inside(clone_here);
}

static pid_t fork_here(void)
{
    fflush(stdout);
    return fork();
}

static void fork_inside(void)
{
    copy_inside(fork_here);
}

/* ---- */

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {
    {"fork-idle", fork_idle},       {"fork-use", fork_use},     {"fork-first", fork_first},
    {"child", child_program},       {"start", start_others},    {"clone", raw_clone},
    {"fork-racing", fork_racing},   {"no-context", no_context}, {"thread-end", thread_end},
    {"exit-handler", exit_handler}, {"no-helper", no_helper},   {"after-driver", after_driver},
    {"exit-inside", exit_inside},   {"clone-exit", clone_exit}, {"clone-inside", clone_inside},
    {"fork-inside", fork_inside},
};

int main(int argc, char **argv)
{
    if (argc < 3 || !prog_driver_open(argv[1]))
        return 4;
    self = argv[0];
    way = argv[1];
    if (!strncmp(argv[2], "leave-", 6))
        leave_racing(!strcmp(argv[2], "leave-hard"));
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        if (!strcmp(modes[i].name, argv[2]))
            modes[i].run();
    }
    return 0;
}
