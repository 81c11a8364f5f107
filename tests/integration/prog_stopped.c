/* prog_stopped: a process opens and closes blocks of another one that is stopped, or has died. Both processes
 * are this program; here the other one exports. */
#include "prog_share.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* ---- the exporter ---- */

/* Exports new blocks; each is full of its number. */
static void export_blocks(CUdeviceptr *blocks, int count, size_t bytes)
{
    for (int i = 0; i < count; i++) {
        MUST(0, cuMemAlloc(&blocks[i], bytes));
        prog_fill(blocks[i], (unsigned char)i, bytes);
        send_handle(blocks[i]);
    }
}

static void stop(pid_t exporter)
{
    int status;

    MUST(0, kill(exporter, SIGSTOP));
    MUST(exporter, waitpid(exporter, &status, WUNTRACED));
    MUST(true, WIFSTOPPED(status));
}

/* A child that has nothing to do with CUDA. */
static void fork_once(void)
{
    const pid_t child = fork();

    if (child == 0)
        _exit(0);
    prog_reap(child);
}

/* How many sockets this process has. */
static int open_sockets(void)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    char target[64];
    int n = 0;

    MUST(true, folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        const ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target));

        n += length > 7 && memcmp(target, "socket:", 7) == 0;
    }
    closedir(folder);
    return n;
}

/* ---- after the first contact ---- */

#define FEW 4

/* All that an importer does with blocks of an exporter that it knows. */
static void use_stopped(const CUipcMemHandle *handles)
{
    CUdeviceptr block, again;

    for (int i = 1; i < FEW; i++) {
        MUST(0, cuIpcOpenMemHandle(&block, handles[i], OPEN_FLAGS));
        MUST(0, prog_wrong(block, (unsigned char)i, MIB));
        MUST(0, cuIpcOpenMemHandle(&again, handles[i], OPEN_FLAGS));
        MUST(true, again == block);
        fork_once();
        MUST(0, cuIpcCloseMemHandle(again));
        MUST(0, cuIpcCloseMemHandle(block));
    }
    MUST(0, cuIpcOpenMemHandle(&block, handles[1], OPEN_FLAGS));
    MUST(0, cuIpcCloseMemHandle(block));
}

/* Blocks that were exported before and after the importer made contact, none of which it has had open. */
static void known_exporter(void)
{
    CUipcMemHandle handles[FEW];
    CUdeviceptr blocks[FEW], first;

    prog_context(0);
    if (prog_is_other()) {
        export_blocks(blocks, FEW / 2, MIB);
        prog_await();
        MUST(0, cuMemFree(blocks[0]));
        for (int i = FEW / 2; i < FEW; i++) {
            MUST(0, cuMemAlloc(&blocks[i], MIB));
            prog_fill(blocks[i], (unsigned char)i, MIB);
            send_handle(blocks[i]);
        }
        prog_await();
        return;
    }
    const pid_t exporter = prog_start(false);
    for (int i = 0; i < FEW / 2; i++)
        prog_receive(&handles[i], sizeof(handles[i]));
    MUST(0, cuIpcOpenMemHandle(&first, handles[0], OPEN_FLAGS));
    prog_signal();
    for (int i = FEW / 2; i < FEW; i++)
        prog_receive(&handles[i], sizeof(handles[i]));
    stop(exporter);
    use_stopped(handles);
    MUST(0, prog_wrong(first, 0, MIB)); /* freed, and still open here */
    MUST(0, cuIpcCloseMemHandle(first));
    MUST(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&first, handles[0], OPEN_FLAGS));
    MUST(0, kill(exporter, SIGCONT));
    prog_signal();
    prog_join(exporter);
}

/* ---- the first contact ---- */

static CUcontext shared_context;
static CUipcMemHandle sent;
static atomic_bool opened;

static void *open_stopped(void *unused)
{
    CUdeviceptr block;

    MUST(0, cuCtxSetCurrent(shared_context));
    MUST(0, cuIpcOpenMemHandle(&block, sent, OPEN_FLAGS));
    atomic_store(&opened, true);
    MUST(0, prog_wrong(block, 0, MIB));
    MUST(0, cuIpcCloseMemHandle(block));
    return unused;
}

/* One thread waits for the exporter's first word; other threads do not wait for that thread, nor does fork.
 */
static void unknown_exporter(void)
{
    CUipcMemHandle own;
    CUdeviceptr block;
    pthread_t opener;

    shared_context = prog_context(0);
    if (prog_is_other()) {
        export_blocks(&block, 1, MIB);
        prog_await();
        return;
    }
    const pid_t exporter = prog_start(false);
    prog_receive(&sent, sizeof(sent));
    MUST(0, cuMemAlloc(&block, MIB));
    stop(exporter);
    const int before = open_descriptors();
    MUST(0, pthread_create(&opener, NULL, open_stopped, NULL));
    while (open_descriptors() == before) /* it has not asked yet */
        usleep(1000);
    fork_once();
    MUST(0, cuIpcGetMemHandle(&own, block));
    MUST(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(block));
    MUST(0, cuMemFree(block));
    fork_once();
    MUST(false, atomic_load(&opened));
    MUST(0, kill(exporter, SIGCONT));
    MUST(0, pthread_join(opener, NULL));
    prog_signal();
    prog_join(exporter);
}

/* ---- closes that the exporter does not hear of at once ---- */

#define MANY      1000 /* packets fill a socket's queue several times over */
#define MANY_SIZE (256 * 1024)

static void closes_many(void)
{
    static CUdeviceptr blocks[MANY];
    CUipcMemHandle handle;

    prog_context(0);
    if (prog_is_other()) {
        export_blocks(blocks, MANY, MANY_SIZE);
        prog_await();
        for (int i = 0; i < MANY; i++)
            MUST(0, cuMemFree(blocks[i]));
        prog_signal();
        prog_await();
        await_room();
        return;
    }
    const pid_t exporter = prog_start(false);
    for (int i = 0; i < MANY; i++) {
        prog_receive(&handle, sizeof(handle));
        MUST(0, cuIpcOpenMemHandle(&blocks[i], handle, OPEN_FLAGS));
    }
    prog_signal();
    prog_await();
    stop(exporter);
    for (int i = 0; i < MANY; i++)
        MUST(0, cuIpcCloseMemHandle(blocks[i]));
    MUST(0, kill(exporter, SIGCONT));
    prog_signal();
    prog_join(exporter);
}

/* ---- an exporter that dies ---- */

/* Its memory is released: neither descriptors kept here nor those in a socket's queue hold it. */
static void dead_exporter(void)
{
    CUdeviceptr small, big;
    CUipcMemHandle handle;

    prog_context(0);
    if (prog_is_other()) {
        export_blocks(&small, 1, MIB);
        export_blocks(&big, 1, BIG);
        pause();
    }
    const pid_t exporter = prog_start(false);
    const int sockets = open_sockets();
    small = open_sent();
    prog_receive(&handle, sizeof(handle));
    MUST(0, kill(exporter, SIGKILL));
    prog_reap(exporter);
    await_room();
    for (int i = 0; i < 20000 && open_sockets() > sockets + 1; i++)
        usleep(10000);
    MUST(true, open_sockets() <= sockets + 1); /* the connection of what is open */
    MUST(0, prog_wrong(small, 0, MIB));        /* what is open stays */
    MUST(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenMemHandle(&big, handle, OPEN_FLAGS));
    MUST(0, cuIpcCloseMemHandle(small));
    if (dlsym(RTLD_DEFAULT, "simgpu_used")) /* a driver may have sockets of its own */
        MUST(sockets, open_sockets());
}

/* ---- children ---- */

/* A child has the sockets that its parent had before anything was shared, and no others. */
static void must_inherit(int sockets)
{
    const pid_t child = fork();
    int status;

    if (child == 0)
        _exit(open_sockets() == sockets ? 0 : 1);
    MUST(child, waitpid(child, &status, 0));
    MUST(0, status);
}

static void children(void)
{
    CUdeviceptr block;

    prog_context(0);
    const bool exporter = prog_is_other();
    const pid_t other = exporter ? 0 : prog_start(false);
    const int sockets = open_sockets();
    if (exporter) {
        export_blocks(&block, 1, MIB);
        prog_await();
        must_inherit(sockets);
        prog_signal();
        return;
    }
    block = open_sent();
    must_inherit(sockets);
    prog_signal();
    prog_await();
    prog_join(other);
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"known_exporter", known_exporter},
        {"unknown_exporter", unknown_exporter},
        {"closes_many", closes_many},
        {"dead_exporter", dead_exporter},
        {"children", children},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
