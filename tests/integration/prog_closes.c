/* prog_closes: a process closes another one's block while its device is at work, and other threads do other
 * things. One scenario a run; both processes are this program (prog_is_other). */
#include "prog_share.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define CARD_PAGE (2 * MIB)
#define MOMENT_US 175000 /* in which another thread comes to wait, also with sanitizers */

/* ---- beside a close that waits for work, which goes on when another thread has done something ---- */

static CUcontext shared_context;
static atomic_bool closing, let_go;

static void until_let_go(void *unused)
{
    (void)unused;
    while (!atomic_load(&let_go))
        usleep(1000);
}

static void *closes(void *block)
{
    MUST(0, cuCtxSetCurrent(shared_context));
    atomic_store(&closing, true);
    MUST(0, cuIpcCloseMemHandle((CUdeviceptr)block));
    return NULL;
}

/* Opens what is sent in the current context, and closes it behind work that does not end by itself. */
static pthread_t close_beside_work(void)
{
    const CUdeviceptr block = open_sent();
    pthread_t closer;
    CUstream stream;

    MUST(0, cuCtxGetCurrent(&shared_context));
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(0, cuLaunchHostFunc(stream, until_let_go, NULL));
    MUST(0, pthread_create(&closer, NULL, closes, (void *)(uintptr_t)block));
    while (!atomic_load(&closing))
        usleep(1000);
    usleep(MOMENT_US);
    return closer;
}

/* The process that only shares a block, as often as the other one wants to open it. */
static void share_often(int times)
{
    pid_t pid = prog_start(false);
    CUdeviceptr block;

    MUST(0, cuMemAlloc(&block, MIB));
    prog_fill(block, 3, MIB);
    for (int i = 0; i < times; i++)
        send_handle(block);
    prog_join(pid);
}

static void forks_beside_a_close(void)
{
    prog_context(0);
    if (!prog_is_other()) {
        share_often(1);
        return;
    }
    const pthread_t closer = close_beside_work();
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    prog_reap(child);
    atomic_store(&let_go, true);
    MUST(0, pthread_join(closer, NULL));
}

/* The same block is opened again meanwhile, and stays valid. */
static void opens_beside_a_close(void)
{
    prog_context(0);
    if (!prog_is_other()) {
        share_often(2);
        return;
    }
    const pthread_t closer = close_beside_work();
    const CUdeviceptr again = open_sent();
    MUST(0, prog_wrong(again, 3, MIB));
    atomic_store(&let_go, true);
    MUST(0, pthread_join(closer, NULL));
    MUST(0, prog_wrong(again, 3, MIB));
    MUST(0, cuIpcCloseMemHandle(again));
}

static void *destroys(void *context)
{
    MUST(0, cuCtxDestroy(context));
    return NULL;
}

/* The end of a context waits for its work too. */
static void context_ends_beside_a_close(void)
{
    CUcontext first = prog_context(0), context;
    pthread_t ender;

    if (!prog_is_other()) {
        share_often(1);
        return;
    }
    MUST(0, cuCtxCreate(&context, NULL, 0, 0));
    const pthread_t closer = close_beside_work();
    MUST(0, cuCtxSetCurrent(first));
    MUST(0, pthread_create(&ender, NULL, destroys, context));
    usleep(MOMENT_US);
    atomic_store(&let_go, true);
    MUST(0, pthread_join(closer, NULL));
    MUST(0, pthread_join(ender, NULL));
}

/* ---- beside the end of a context, and under work that ends later ---- */

#define GATE_US      700000 /* the other process acts before the gate opens, also with sanitizers */
#define BARE_GATE_US 100000 /* without the library, which is what may go wrong */
#define LENT         48 /* more blocks than are freed before the library looks at the work of their context */

static useconds_t gate_us(void)
{
    return prog_is_bare() ? BARE_GATE_US : GATE_US;
}

static void gate(void *unused)
{
    (void)unused;
    usleep(gate_us());
}

/* What was freed is closed elsewhere while the context that it was in is being destroyed. */
static void closed_while_context_ends(void)
{
    CUdeviceptr blocks[LENT], other;
    CUcontext context;

    prog_context(0);
    if (prog_is_other()) {
        for (int i = 0; i < LENT; i++)
            blocks[i] = open_sent();
        prog_signal();
        prog_await();
        usleep(gate_us() / 4);
        for (int i = 0; i < LENT; i++)
            MUST(0, cuIpcCloseMemHandle(blocks[i]));
        return;
    }
    pid_t pid = prog_start(false);
    MUST(0, cuMemAlloc(&other, MIB));
    MUST(0, cuCtxCreate(&context, NULL, 0, 0));
    for (int i = 0; i < LENT; i++) {
        MUST(0, cuMemAlloc(&blocks[i], CARD_PAGE));
        send_handle(blocks[i]);
    }
    prog_await();
    for (int i = 0; i < LENT; i++)
        MUST(0, cuMemFree(blocks[i]));
    MUST(0, cuLaunchHostFunc(NULL, gate, NULL));
    prog_signal();
    MUST(0, cuCtxDestroy(context)); /* waits for it */
    prog_join(pid);
}

/* A block is closed beside a capture, and its context destroyed while another context closes one. */
static void closes_while_context_ends(void)
{
    CUcontext first = prog_context(0), context;
    CUdeviceptr block, mine;
    pthread_t thread;
    CUstream stream;
    CUgraph graph;

    if (!prog_is_other()) {
        pid_t pid = prog_start(false);
        MUST(0, cuMemAlloc(&block, MIB));
        send_handle(block);
        send_handle(block);
        prog_join(pid);
        return;
    }
    mine = open_sent();
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(0, cuCtxCreate(&context, NULL, 0, 0));
    block = open_sent();
    MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(0, cuIpcCloseMemHandle(block));
    MUST(0, cuStreamEndCapture(stream, &graph));
    MUST(0, cuGraphDestroy(graph));
    MUST(0, cuLaunchHostFunc(NULL, gate, NULL));
    MUST(0, cuCtxSetCurrent(first));
    MUST(0, pthread_create(&thread, NULL, destroys, context));
    usleep(gate_us() / 4);
    MUST(0, cuIpcCloseMemHandle(mine));
    MUST(0, pthread_join(thread, NULL));
}

/* A block is closed beside a capture while a stream has yet to fill it. Until that is done its owner, who has
 * freed it, does not use the memory again. */
static void closed_under_work(void)
{
    CUdeviceptr block, own;
    CUstream capturing, working;
    CUgraph graph;

    prog_context(0);
    if (!prog_is_other()) {
        pid_t pid = prog_start(false);
        MUST(0, cuMemAlloc(&block, CARD_PAGE));
        send_handle(block);
        prog_await();
        MUST(0, cuMemFree(block));
        usleep(gate_us() / 2);
        MUST(0, cuMemAlloc(&own, CARD_PAGE));
        prog_fill(own, 5, CARD_PAGE);
        prog_join(pid);
        MUST(0, prog_wrong(own, 5, CARD_PAGE));
        return;
    }
    MUST(0, cuMemAlloc(&own, MIB));
    MUST(0, cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamCreate(&working, CU_STREAM_NON_BLOCKING));
    block = open_sent();
    MUST(0, cuLaunchHostFunc(working, gate, NULL));
    MUST(0, cuMemsetD8Async(block, 9, CARD_PAGE, working));
    MUST(0, cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(0, cuIpcCloseMemHandle(block));
    MUST(0, cuStreamEndCapture(capturing, &graph));
    MUST(0, cuGraphDestroy(graph));
    prog_signal();
    MUST(0, cuStreamSynchronize(working));
}

/* ---- beside captures ---- */

static CUipcMemHandle sent;

static void *open_and_close(void *unused)
{
    CUdeviceptr block;

    MUST(0, cuCtxSetCurrent(shared_context));
    while (!atomic_load(&let_go)) {
        MUST(0, cuIpcOpenMemHandle(&block, sent, OPEN_FLAGS));
        MUST(0, cuIpcCloseMemHandle(block));
    }
    return unused;
}

#define CAPTURES_S 2 /* in most runs, a close that ignores captures destroys one sooner */

static void captures_beside_closes(void)
{
    const time_t until = time(NULL) + (prog_is_bare() ? 1 : 1 + CAPTURES_S);
    pthread_t closer;
    CUstream stream;
    CUgraph graph;

    shared_context = prog_context(0);
    if (!prog_is_other()) {
        share_often(1);
        return;
    }
    prog_receive(&sent, sizeof(sent));
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(0, pthread_create(&closer, NULL, open_and_close, NULL));
    while (time(NULL) < until) {
        MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        MUST(0, cuStreamEndCapture(stream, &graph));
        MUST(0, cuGraphDestroy(graph));
    }
    atomic_store(&let_go, true);
    MUST(0, pthread_join(closer, NULL));
}

static void close_beside_a_capture(void)
{
    const CUdeviceptr block = open_sent();
    CUstream stream;
    CUgraph graph;

    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(0, cuMemsetD8Async(block, 1, MIB, stream));
    MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(0, cuIpcCloseMemHandle(block));
    MUST(0, cuStreamEndCapture(stream, &graph));
}

/* Closed beside a capture, it goes back to its owner when that has ended, without another call for it. */
static void closed_beside_a_capture(void)
{
    CUdeviceptr block, own;

    prog_context(0);
    if (prog_is_other()) {
        MUST(0, cuMemAlloc(&own, MIB));
        close_beside_a_capture();
        prog_signal();
        prog_await();
        return;
    }
    pid_t pid = prog_start(false);
    MUST(0, cuMemAlloc(&block, BIG));
    send_handle(block);
    prog_await();
    MUST(0, cuMemFree(block));
    await_room();
    prog_signal();
    prog_join(pid);
}

/* Likewise by a process that has neither a pool nor a limit of its own. */
static void closed_without_a_pool(void)
{
    if (!prog_is_other()) {
        prog_context(0);
        share_often(1);
        return;
    }
    setenv("GPUCAP_POOL", "off", 1); /* before the first call */
    prog_context(0);
    close_beside_a_capture();
}

/* The process that shares a block until the other one has closed it, and then gets its memory back. */
static void share_until_closed(void)
{
    const pid_t pid = prog_start(false);
    CUdeviceptr block;

    MUST(0, cuMemAlloc(&block, BIG));
    send_handle(block);
    prog_await();
    MUST(0, cuMemFree(block));
    await_room();
    prog_signal();
    prog_join(pid);
}

/* ---- in a green context ---- */

/* What is opened in a green context belongs to the primary one, and goes back also when the green one has
 * ended. */
static void closed_after_a_green_context(void)
{
    CUcontext primary = prog_context(0), partial;
    CUdeviceptr block;

    if (!prog_is_other()) {
        share_until_closed();
        return;
    }
    const CUgreenCtx green = prog_green();
    MUST(0, cuCtxFromGreenCtx(&partial, green));
    MUST(0, cuCtxSetCurrent(partial));
    block = open_sent();
    MUST(0, cuCtxSetCurrent(primary));
    MUST(0, cuGreenCtxDestroy(green));
    prog_fill(block, 1, MIB);
    MUST(0, cuIpcCloseMemHandle(block));
    prog_signal();
    prog_await();
}

/* ---- where the wait fails ---- */

static void set_fault(const char *script)
{
    void (*set)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "simgpu_set_fault");

    MUST(true, set != NULL);
    set(script);
}

/* What could not be waited for stays mapped while work may use it, and goes back when that is done. */
static void closed_beside_a_failure(void)
{
    CUdeviceptr block, own;
    CUstream busy, other;

    prog_context(0);
    if (!prog_is_other()) {
        share_until_closed();
        return;
    }
    MUST(0, cuMemAlloc(&own, MIB));
    block = open_sent();
    MUST(0, cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    MUST(0, cuLaunchHostFunc(busy, until_let_go, NULL));
    set_fault("cuEventSynchronize:*=999");
    MUST(0, cuIpcCloseMemHandle(block));
    set_fault("");
    MUST(0, cuMemsetD8Async(block, 1, MIB, other));
    MUST(0, cuStreamSynchronize(other));
    atomic_store(&let_go, true);
    prog_signal();
    prog_await();
}

/* A block that is open in two contexts outlives the end of one. */
static void opened_in_two_contexts(void)
{
    CUcontext ending;
    CUdeviceptr block;

    const CUcontext primary = prog_context(0);
    if (!prog_is_other()) {
        share_often(2);
        return;
    }
    MUST(0, cuCtxCreate(&ending, NULL, 0, 0));
    block = open_sent();
    MUST(0, prog_wrong(block, 3, MIB));
    MUST(0, cuCtxSetCurrent(primary));
    block = open_sent();
    MUST(0, cuCtxDestroy(ending));
    MUST(0, prog_wrong(block, 3, MIB));
    MUST(0, cuIpcCloseMemHandle(block));
}

/* A freed block stays for the process that has it open, and is opened by no other. */
static void opened_after_its_free(void)
{
    CUipcMemHandle handle;
    CUdeviceptr block;

    prog_context(0);
    if (prog_is_other() && getenv("PROG_LATE")) {
        prog_receive(&handle, sizeof(handle));
        MUST(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&block, handle, OPEN_FLAGS));
        return;
    }
    if (prog_is_other()) {
        open_sent();
        prog_signal();
        pause();
    }
    const pid_t holder = prog_start(false);
    MUST(0, cuMemAlloc(&block, MIB));
    MUST(0, cuIpcGetMemHandle(&handle, block));
    prog_send(&handle, sizeof(handle));
    prog_await();
    MUST(0, cuMemFree(block));
    setenv("PROG_LATE", "1", 1);
    const pid_t late = prog_start(false);
    prog_send(&handle, sizeof(handle));
    prog_join(late);
    MUST(0, kill(holder, SIGKILL));
    prog_reap(holder);
}

/* A block that could not be mapped is not open: it goes back when its owner has freed it. */
static void open_that_fails(void)
{
    CUipcMemHandle handle;
    CUdeviceptr block;

    prog_context(0);
    if (!prog_is_other()) {
        share_until_closed();
        return;
    }
    prog_receive(&handle, sizeof(handle));
    set_fault("cuMemImportFromShareableHandle:*=999");
    MUST(true, cuIpcOpenMemHandle(&block, handle, OPEN_FLAGS) != CUDA_SUCCESS);
    set_fault("");
    prog_signal();
    prog_await();
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"forks_beside_a_close", forks_beside_a_close},
        {"opens_beside_a_close", opens_beside_a_close},
        {"context_ends_beside_a_close", context_ends_beside_a_close},
        {"closed_while_context_ends", closed_while_context_ends},
        {"closes_while_context_ends", closes_while_context_ends},
        {"closed_under_work", closed_under_work},
        {"captures_beside_closes", captures_beside_closes},
        {"closed_beside_a_capture", closed_beside_a_capture},
        {"closed_without_a_pool", closed_without_a_pool},
        {"closed_after_a_green_context", closed_after_a_green_context},
        {"closed_beside_a_failure", closed_beside_a_failure},
        {"open_that_fails", open_that_fails},
        {"opened_after_its_free", opened_after_its_free},
        {"opened_in_two_contexts", opened_in_two_contexts},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
