/* prog_ipc: memory of one process in another, by cuIpcGetMemHandle and cuIpcOpenMemHandle. One scenario per
 * run; both processes are this program (prog_is_other). */
#define CUDA_ENABLE_DEPRECATED /* cuCtxDetach */
#include "prog_share.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ODD_BYTES 5000000u
#define CARD_PAGE (2 * MIB)

/* ---- data ---- */

static const size_t sizes[] = {1, 4096, MIB, ODD_BYTES, 130 * MIB + 3};
#define SIZES (sizeof(sizes) / sizeof(*sizes))

static void share_other(void)
{
    for (size_t i = 0; i < SIZES; i++) {
        CUdeviceptr block = open_sent(), base;
        size_t bytes;

        MUST(0, cuMemGetAddressRange(&base, &bytes, block + sizes[i] - 1));
        MUST(block, base);
        MUST(sizes[i], bytes);
        MUST(0, prog_wrong(block, (unsigned char)i, sizes[i]));
        prog_fill(block, (unsigned char)(100 + i), sizes[i]);
        MUST(0, cuIpcCloseMemHandle(block));
        MUST(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(block));
        prog_signal();
    }
}

static void share(void)
{
    CUdeviceptr block, neighbour;

    prog_context(0);
    if (prog_is_other()) {
        share_other();
        return;
    }
    pid_t pid = prog_start(false);
    for (size_t i = 0; i < SIZES; i++) {
        MUST(0, cuMemAlloc(&neighbour, 1000)); /* so that blocks begin in the middle of a page */
        prog_fill(neighbour, 77, 1000);
        MUST(0, cuMemAlloc(&block, sizes[i]));
        prog_fill(block, (unsigned char)i, sizes[i]);
        send_handle(block);
        prog_await();
        MUST(0, prog_wrong(block, (unsigned char)(100 + i), sizes[i]));
        MUST(0, prog_wrong(neighbour, 77, 1000));
        MUST(0, cuMemFree(block));
    }
    prog_join(pid);
}

static uint64_t attribute(CUpointer_attribute which, CUdeviceptr at)
{
    uint64_t word[2] = {0, 0};

    MUST(0, cuPointerGetAttribute(word, which, at));
    return word[0];
}

/* An opened block behaves almost as any other; its context is the one it was opened in. */
static void opened(void)
{
    CUcontext context = prog_context(0);
    CUdeviceptr block;
    uint64_t word;

    if (!prog_is_other()) {
        pid_t pid = prog_start(false);
        MUST(0, cuMemAlloc(&block, ODD_BYTES));
        send_handle(block);
        prog_join(pid);
        return;
    }
    CUdeviceptr own;
    MUST(0, cuMemAlloc(&own, ODD_BYTES));
    block = open_sent();
    const CUdeviceptr last = block + ODD_BYTES - 1, base = block / CARD_PAGE * CARD_PAGE;
    MUST((uintptr_t)context, attribute(CU_POINTER_ATTRIBUTE_CONTEXT, block + 1));
    MUST(CU_MEMORYTYPE_DEVICE, attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block));
    MUST(0, attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, block));
    MUST(0, attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, block));
    MUST(0, attribute(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, block));
    MUST(0, attribute(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, block));
    MUST(0, attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, block));
    MUST(ODD_BYTES, attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, last));
    MUST(base, attribute(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, last));
    MUST((last - base) / CARD_PAGE * CARD_PAGE + CARD_PAGE,
         attribute(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, last));
    MUST(CUDA_ERROR_INVALID_VALUE,
         cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_RANGE_SIZE, block + ODD_BYTES));
    const uint64_t id = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, block);
    MUST(true, id != 0 && id != attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, own));
    MUST(0, attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, last));
    attribute(CU_POINTER_ATTRIBUTE_P2P_TOKENS, block);
    MUST(1, attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, last));
    MUST(CUDA_ERROR_INVALID_VALUE, cuMemFree(block)); /* it is not ours to free */
    MUST(0, cuIpcCloseMemHandle(block));
    MUST(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MAPPED, block));
}

/* ---- earlier work ---- */

#define GATE_US      350000 /* the other process writes before the gate opens, also with sanitizers */
#define BARE_GATE_US 50000  /* without the library, which is what may let it */

/* Of a large block only so much is written: the rest would only take its time. */
static size_t touched(size_t bytes)
{
    return bytes < MIB ? bytes : MIB;
}

static void gate(void *unused)
{
    (void)unused;
    usleep(prog_is_bare() ? BARE_GATE_US : GATE_US);
}

/* A block is freed while a stream has yet to fill it, and a block of the same size is allocated and shared.
 * Only the other process's work may show in it. */
static void share_again(size_t bytes, CUstream stream)
{
    CUdeviceptr block;

    MUST(0, cuMemAlloc(&block, bytes));
    MUST(0, cuLaunchHostFunc(stream, gate, NULL));
    MUST(0, cuMemsetD8Async(block, 1, touched(bytes), stream));
    MUST(0, cuMemFree(block));
    MUST(0, cuMemAlloc(&block, bytes));
    send_handle(block);
    prog_await();
    MUST(0, cuCtxSynchronize());
    MUST(0, prog_wrong(block, 2, touched(bytes)));
    MUST(0, cuMemFree(block));
}

static void fill_sent(size_t bytes)
{
    CUdeviceptr block = open_sent();

    prog_fill(block, 2, touched(bytes));
    MUST(0, cuIpcCloseMemHandle(block));
    prog_signal();
}

static void at_rest(void)
{
    static const size_t shared[] = {4096, 96 * MIB};
    CUstream streams[2];
    CUdeviceptr scratch;
    pid_t pid = 0;

    prog_context(0);
    if (!prog_is_other()) {
        pid = prog_start(false);
        prog_await();
        for (int i = 0; i < 2; i++)
            MUST(0, cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        MUST(0, cuMemAlloc(&scratch, MIB));
    } else {
        prog_signal();
    }
    for (int several = 0; several < 2; several++) {
        for (size_t i = 0; i < sizeof(shared) / sizeof(*shared); i++) {
            if (prog_is_other()) {
                fill_sent(shared[i]);
                continue;
            }
            MUST(0, cuMemsetD8Async(scratch, 0, MIB, streams[several]));
            share_again(shared[i], streams[0]);
        }
    }
    if (!prog_is_other())
        prog_join(pid);
}

/* ---- codes ---- */

static void codes(void)
{
    CUipcMemHandle handle, again, inside;
    CUdeviceptr block, p = 0, q = 0;

    prog_context(0);
    if (!prog_is_other()) {
        MUST(0, cuMemAlloc(&block, ODD_BYTES));
        MUST(0, cuIpcGetMemHandle(&handle, block));
        MUST(0, cuIpcGetMemHandle(&again, block));
        MUST(0, memcmp(&handle, &again, sizeof(handle)));
        MUST(0, cuIpcGetMemHandle(&inside, block + 4096));
        MUST(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(NULL, block));
        MUST(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle(&p, handle, OPEN_FLAGS));
        MUST(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(block));
        pid_t pid = prog_start(false);
        prog_send(&handle, sizeof(handle));
        prog_await();
        MUST(0, cuMemFree(block));
        MUST(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, block));
        prog_signal();
        prog_join(pid);
        return;
    }
    prog_receive(&handle, sizeof(handle));
    MUST(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&p, handle, 0));
    MUST(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(NULL, handle, OPEN_FLAGS));
    MUST(0, cuIpcOpenMemHandle(&p, handle, OPEN_FLAGS));
    MUST(0, cuIpcOpenMemHandle(&q, handle, OPEN_FLAGS));
    MUST(p, q); /* opened twice it is at one address */
    MUST(0, cuIpcCloseMemHandle(p));
    MUST(0, cuMemsetD8(p, 1, ODD_BYTES)); /* and closed once it is still there */
    MUST(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(p + 1));
    MUST(0, cuIpcCloseMemHandle(p));
    MUST(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(p));
    prog_signal();
    prog_await();
    MUST(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&p, handle, OPEN_FLAGS)); /* freed meanwhile */
    CUcontext none = NULL;
    MUST(0, cuCtxSetCurrent(none));
    MUST(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle(&p, handle, OPEN_FLAGS));
    MUST(CUDA_ERROR_INVALID_CONTEXT, cuIpcCloseMemHandle(p));
}

/* ---- how long an exported block lives; the card has room for one BIG block, not for two ---- */

/* A page of every MiB, and so one of every chunk: under a sanitizer all of it takes a minute. */
static void fill_big(CUdeviceptr block, unsigned char byte)
{
    for (size_t at = 0; at < BIG; at += MIB)
        prog_fill(block + at, byte, 4096);
}

static long wrong_in_big(CUdeviceptr block, unsigned char byte)
{
    long wrong = 0;

    for (size_t at = 0; at < BIG; at += MIB)
        wrong += prog_wrong(block + at, byte, 4096);
    return wrong;
}

/* A block that its owner has freed stays valid for the process that has it open, and is released when that
 * closes it. */
static void freed_while_open(void)
{
    CUdeviceptr block, others[4];
    CUcontext same;

    prog_context(0);
    if (prog_is_other()) {
        block = open_sent();
        prog_signal();
        prog_await();
        MUST(0, wrong_in_big(block, 0x5a));
        MUST(0, cuCtxAttach(&same, 0));
        MUST(0, cuCtxDetach(same)); /* it stays, and so does what is open in it */
        MUST(0, cuIpcCloseMemHandle(block));
        prog_signal();
        prog_await();
        return;
    }
    pid_t pid = prog_start(false);
    MUST(0, cuMemAlloc(&block, BIG));
    fill_big(block, 0x5a);
    send_handle(block);
    prog_await();
    MUST(0, cuMemFree(block));
    for (int i = 0; i < 4; i++) {
        MUST(0, cuMemAlloc(&others[i], 20 * MIB));
        prog_fill(others[i], 0xee, 20 * MIB);
    }
    prog_signal();
    prog_await();
    await_room();
    prog_signal();
    prog_join(pid);
}

/* Blocks that are exported again and again and never opened leave nothing behind. */
static void never_opened(void)
{
    CUcontext same;
    CUipcMemHandle handle;
    CUdeviceptr block;

    prog_context(0);
    for (int i = 0; i < 20; i++) {
        MUST(0, cuMemAlloc(&block, BIG + (size_t)i * MIB));
        MUST(0, cuIpcGetMemHandle(&handle, block));
        MUST(0, cuCtxAttach(&same, 0));
        MUST(0, cuCtxDetach(same)); /* it stays */
        MUST(0, cuMemFree(block));
    }
}

/* The process that has it open is killed: the memory is released. */
static void killed(void)
{
    CUdeviceptr block;

    prog_context(0);
    if (prog_is_other()) {
        block = open_sent();
        MUST(0, prog_wrong(block, 1, 4096));
        prog_signal();
        pause();
        return;
    }
    pid_t pid = prog_start(false);
    MUST(0, cuMemAlloc(&block, BIG));
    fill_big(block, 1);
    send_handle(block);
    prog_await();
    MUST(0, cuMemFree(block));
    MUST(0, kill(pid, SIGKILL));
    prog_reap(pid);
    await_room();
}

/* An opened block is charged to its owner and fits under a small cap. */
static void not_charged(void)
{
    CUdeviceptr block;

    if (prog_is_other())
        setenv("GPUCAP_MAX", getenv("PROG_OTHER_MAX"), 1); /* before the first call */
    prog_context(0);
    if (prog_is_other()) {
        block = open_sent();
        MUST(0, wrong_in_big(block, 9));
        MUST(0, cuMemAlloc(&block, 10 * MIB));
        return;
    }
    pid_t pid = prog_start(false);
    MUST(0, cuMemAlloc(&block, BIG));
    fill_big(block, 9);
    send_handle(block);
    prog_join(pid);
}

/* ---- ends ---- */

static void exporter_dies(void)
{
    CUipcMemHandle handle;
    CUdeviceptr block;

    prog_context(0);
    if (prog_is_other()) { /* here the other one exports */
        MUST(0, cuMemAlloc(&block, MIB));
        send_handle(block);
        pause();
    }
    pid_t pid = prog_start(false);
    prog_receive(&handle, sizeof(handle));
    MUST(0, cuIpcOpenMemHandle(&block, handle, OPEN_FLAGS));
    MUST(0, kill(pid, SIGKILL));
    prog_reap(pid);
    prog_fill(block, 3, MIB); /* what is open stays */
    MUST(0, prog_wrong(block, 3, MIB));
    MUST(0, cuIpcCloseMemHandle(block));
    MUST(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenMemHandle(&block, handle, OPEN_FLAGS));
}

static void context_ends(void)
{
    CUcontext context;
    CUipcMemHandle handle;
    CUdeviceptr block;

    prog_context(0);
    MUST(0, cuCtxCreate(&context, NULL, 0, 0));
    if (prog_is_other()) {
        block = open_sent();
        MUST(0, cuCtxDestroy(context)); /* with something open in it */
        prog_context(0);
        prog_signal();
        prog_receive(&handle, sizeof(handle));
        prog_await();
        MUST(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&block, handle, OPEN_FLAGS));
        return;
    }
    pid_t pid = prog_start(false);
    MUST(0, cuMemAlloc(&block, MIB));
    send_handle(block);
    prog_await();
    send_handle(block);
    MUST(0, cuCtxDestroy(context)); /* with something exported from it */
    prog_signal();
    prog_join(pid);
}

/* A child of the exporter that never uses CUDA changes nothing, neither alive nor at its end. */
static void forks(void)
{
    CUdeviceptr block;

    prog_context(0);
    if (prog_is_other()) {
        for (int i = 0; i < 3; i++) {
            block = open_sent();
            pid_t child = fork();
            if (child == 0)
                exit(0);
            prog_reap(child);
            MUST(0, prog_wrong(block, (unsigned char)i, MIB));
            MUST(0, cuIpcCloseMemHandle(block));
            prog_signal();
        }
        return;
    }
    pid_t pid = prog_start(false);
    for (int i = 0; i < 3; i++) {
        MUST(0, cuMemAlloc(&block, MIB));
        prog_fill(block, (unsigned char)i, MIB);
        send_handle(block);
        pid_t child = fork();
        if (child == 0)
            exit(0);
        prog_await();
        prog_reap(child);
    }
    prog_join(pid);
}

/* A child of the exporter by raw clone(), without fork handlers, ends normally. */
static void clones(void)
{
    CUdeviceptr block;

    prog_context(0);
    if (prog_is_other()) {
        block = open_sent();
        MUST(0, prog_wrong(block, 7, MIB));
        MUST(0, cuIpcCloseMemHandle(block));
        prog_signal();
        return;
    }
    pid_t pid = prog_start(false);
    CUipcMemHandle handle;
    MUST(0, cuMemAlloc(&block, MIB));
    prog_fill(block, 7, MIB);
    MUST(0, cuIpcGetMemHandle(&handle, block));
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        exit(0);
    prog_reap(child);
    send_handle(block);
    prog_await();
    prog_join(pid);
}

static void unwrapped(void)
{
    CUipcMemHandle handle;
    CUdeviceptr block;

    prog_context(0);
    if (prog_is_other()) {
        prog_receive(&handle, sizeof(handle));
        MUST(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&block, handle, OPEN_FLAGS));
        return;
    }
    pid_t pid = prog_start(true);
    MUST(0, cuMemAlloc(&block, MIB));
    send_handle(block);
    prog_join(pid);
}

/* ---- many at once ---- */

#define MANY    40
#define THREADS 4

static CUipcMemHandle many[MANY];
static CUcontext shared_context;

static void *open_many(void *seed)
{
    CUdeviceptr block;

    MUST(0, cuCtxSetCurrent(shared_context));
    for (int i = 0; i < 3 * MANY; i++) {
        const int which = (int)(((uintptr_t)seed * 17 + (unsigned)i * 7) % MANY);

        MUST(0, cuIpcOpenMemHandle(&block, many[which], OPEN_FLAGS));
        MUST(0, prog_wrong(block, (unsigned char)which, 1000));
        MUST(0, cuIpcCloseMemHandle(block));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t ids[THREADS];
    CUdeviceptr block;

    shared_context = prog_context(0);
    if (!prog_is_other()) {
        pid_t pid = prog_start(false);
        for (int i = 0; i < MANY; i++) {
            MUST(0, cuMemAlloc(&block, 1000 + (size_t)i * 100000));
            prog_fill(block, (unsigned char)i, 1000);
            send_handle(block);
        }
        prog_join(pid);
        return;
    }
    for (int i = 0; i < MANY; i++)
        prog_receive(&many[i], sizeof(many[i]));
    for (uintptr_t i = 0; i < THREADS; i++)
        MUST(0, pthread_create(&ids[i], NULL, open_many, (void *)i));
    for (int i = 0; i < THREADS; i++)
        MUST(0, pthread_join(ids[i], NULL));
}

/* On a card that is not the current one; and on one that the other process does not see. */
static void cards(void)
{
    CUdeviceptr block;
    CUipcMemHandle handle;
    int card = 7;

    if (prog_is_other() && getenv("PROG_BLIND"))
        setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    prog_context(prog_is_other() ? 0 : 1);
    if (!prog_is_other()) {
        MUST(0, cuMemAlloc(&block, MIB));
        prog_fill(block, 4, MIB);
        pid_t pid = prog_start(false);
        send_handle(block);
        prog_join(pid);
        setenv("PROG_BLIND", "1", 1);
        pid = prog_start(false);
        send_handle(block);
        prog_join(pid);
        return;
    }
    if (getenv("PROG_BLIND")) {
        prog_receive(&handle, sizeof(handle));
        MUST(CUDA_ERROR_INVALID_DEVICE, cuIpcOpenMemHandle(&block, handle, OPEN_FLAGS));
        return;
    }
    block = open_sent();
    MUST(0, cuPointerGetAttribute(&card, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block));
    MUST(1, card);
    MUST(0, prog_wrong(block, 4, MIB));
}

/* Ends with handles made and blocks open. */
static void leave(void)
{
    CUdeviceptr block;

    prog_context(0);
    if (prog_is_other()) {
        open_sent();
        prog_signal();
        return;
    }
    pid_t pid = prog_start(false);
    MUST(0, cuMemAlloc(&block, MIB));
    send_handle(block);
    prog_await();
    prog_join(pid);
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"share", share},
        {"opened", opened},
        {"at_rest", at_rest},
        {"codes", codes},
        {"freed_while_open", freed_while_open},
        {"never_opened", never_opened},
        {"killed", killed},
        {"not_charged", not_charged},
        {"exporter_dies", exporter_dies},
        {"context_ends", context_ends},
        {"forks", forks},
        {"clones", clones},
        {"unwrapped", unwrapped},
        {"threads", threads},
        {"cards", cards},
        {"leave", leave},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
