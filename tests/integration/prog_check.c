/* prog_check: steps and scenarios of programs that check themselves. See prog_check.h. */
#include "prog_check.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self, *scenario;
static int line = -1; /* socket to the other process */
static bool other;

void prog_must(long long expected, long long actual, const char *what, const char *file, int at)
{
    if (expected == actual)
        return;
    const char *name = strrchr(file, '/');
    fprintf(stderr, "%s:%d:%s %s is %lld, not %lld\n", name ? name + 1 : file, at,
            other ? " (other process)" : "", what, actual, expected);
    exit(1);
}

int prog_main(int argc, char **argv, const struct prog_scenario *scenarios, size_t count)
{
    self = argv[0];
    scenario = argc > 1 ? argv[1] : "";
    if (argc > 2) {
        line = atoi(argv[2]);
        other = true;
    }
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(scenario, scenarios[i].name)) {
            scenarios[i].run();
            return 0;
        }
        if (!strcmp(scenario, "--list"))
            puts(scenarios[i].name);
    }
    if (!strcmp(scenario, "--list"))
        return 0;
    fprintf(stderr, "no scenario %s\n", scenario);
    return 2;
}

CUcontext prog_context(int card)
{
    CUcontext context;

    MUST(0, cuInit(0));
    MUST(0, cuDevicePrimaryCtxRetain(&context, card));
    MUST(0, cuCtxSetCurrent(context));
    return context;
}

CUgreenCtx prog_green(void)
{
    CUdevResource whole, part;
    CUdevResourceDesc description;
    unsigned int count = 1;
    CUgreenCtx made;

    MUST(0, cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
    MUST(0, cuDevSmResourceSplitByCount(&part, &count, &whole, NULL, 0, 16));
    MUST(0, cuDevResourceGenerateDesc(&description, &part, 1));
    MUST(0, cuGreenCtxCreate(&made, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return made;
}

CUmemoryPool prog_pool(int card)
{
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = card}};
    CUmemoryPool pool;

    MUST(0, cuMemPoolCreate(&pool, &properties));
    return pool;
}

void prog_fill(CUdeviceptr block, unsigned char byte, size_t bytes)
{
    MUST(0, cuMemsetD8(block, byte, bytes));
    MUST(0, cuCtxSynchronize());
}

/* By pages first: a sanitizer looks at every byte that is compared here. */
long prog_wrong(CUdeviceptr block, unsigned char byte, size_t bytes)
{
    unsigned char *host = malloc(bytes), right[4096];
    long wrong = 0;

    MUST(true, host != NULL);
    MUST(0, cuMemcpyDtoH(host, block, bytes));
    memset(right, byte, sizeof(right));
    for (size_t at = 0; at < bytes; at += sizeof(right)) {
        const size_t count = bytes - at < sizeof(right) ? bytes - at : sizeof(right);

        if (memcmp(host + at, right, count) == 0)
            continue;
        for (size_t i = at; i < at + count; i++)
            wrong += host[i] != byte;
    }
    free(host);
    return wrong;
}

void *prog_nvml(void **library)
{
    void *card = NULL;

    *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    MUST(true, *library != NULL);
    int (*init)(void) = (int (*)(void))dlsym(*library, "nvmlInit_v2");
    int (*handle)(unsigned, void **) =
        (int (*)(unsigned, void **))dlsym(*library, "nvmlDeviceGetHandleByIndex_v2");
    MUST(0, init());
    MUST(0, handle(0, &card));
    return card;
}

bool prog_is_other(void)
{
    return other;
}

pid_t prog_start(bool bare)
{
    int ends[2];
    char end[16];

    MUST(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
    const pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        snprintf(end, sizeof(end), "%d", ends[1]);
        if (bare)
            unsetenv("LD_PRELOAD");
        execl(self, self, scenario, end, (char *)NULL);
        _exit(127);
    }
    MUST(true, pid > 0);
    close(ends[1]);
    if (line >= 0)
        close(line);
    line = ends[0];
    return pid;
}

void prog_send(const void *data, size_t bytes)
{
    MUST(bytes, send(line, data, bytes, MSG_NOSIGNAL));
}

void prog_receive(void *data, size_t bytes)
{
    MUST(bytes, recv(line, data, bytes, 0));
}

void prog_signal(void)
{
    prog_send("x", 1);
}

void prog_await(void)
{
    char x;

    prog_receive(&x, 1);
}

bool prog_poll(void)
{
    char x;

    return recv(line, &x, 1, MSG_DONTWAIT | MSG_PEEK) >= 0;
}

bool prog_is_bare(void)
{
    return getenv("LD_PRELOAD") == NULL;
}

void prog_join(pid_t pid)
{
    int status;

    MUST(pid, waitpid(pid, &status, 0));
    MUST(0, status);
}

void prog_reap(pid_t pid)
{
    MUST(pid, waitpid(pid, NULL, 0));
}
