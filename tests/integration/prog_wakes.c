/* prog_wakes: a process of a job frees memory for which another one waits. The other one is this program as
 * well: it joins the ledger a second time, in the library's own words, and enters itself into the queue by
 * hand. So it never reminds anybody, and what was freed leaves the lease only if the free itself tells. One
 * scenario a run, for a card of 2 GiB and a job of 1 GiB. GPUCAP_LEDGER names the folder.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "interpose/account/ledger_file.h"
#include "prog_check.h"

#define BLOCK      (256 * MIB)
#define PATIENCE_S 200 /* ends a hang; nothing may count on being faster */
#define JOB        "both"

static struct ledger *ledger;

static void open_card(const char *uuid, void *unused)
{
    const struct ledger_limits limits = {.max = LEDGER_UNLIMITED};
    char why[LEDGER_WHY];

    (void)unused;
    MUST(0, ledger_open_existing(&ledger, getenv("GPUCAP_LEDGER"), uuid, why));
    MUST(0, ledger_join_within(ledger, JOB, &limits));
}

/* Returns the lease of this program as the library has it. */
static uint64_t lease(void)
{
    struct ledger_entry entry;

    for (int i = 0; i < LEDGER_SLOTS; i++) {
        if (i != ledger->slot && ledger_read(ledger, i, &entry) && entry.pid == getpid())
            return atomic_load(&ledger->file->slots[i].lease);
    }
    return 0;
}

static void begin_wait(void)
{
    MUST(0, ledger_each_card(getenv("GPUCAP_LEDGER"), open_card, NULL));
    MUST(true, lease() >= BLOCK);
    MUST(0, ledger_lock(ledger));
    struct ledger_slot *slot = ledger_own_slot(ledger);
    atomic_store(&slot->waits_for, 4096 * MIB);
    atomic_store(&slot->ticket, ++ledger->job->tickets);
    atomic_fetch_add(&ledger->job->waiting, 1);
    ledger_unlock(ledger);
}

/* Waits until the library has given up the lease of the block. */
static void expect_given(uint64_t before)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    for (int i = 0; i < PATIENCE_S * 1000 && lease() + BLOCK > before; i++)
        nanosleep(&pause, NULL);
    MUST(true, lease() + BLOCK <= before);
}

static void expect_told(uint64_t before)
{
    expect_given(before);
    ledger_close(ledger);
}

static void stream_ordered(void)
{
    CUdeviceptr block;

    prog_context(0);
    MUST(0, cuMemAllocAsync(&block, BLOCK, NULL));
    MUST(0, cuStreamSynchronize(NULL));
    begin_wait();
    const uint64_t before = lease();
    MUST(0, cuMemFreeAsync(block, NULL));
    expect_told(before);
}

/* One after the other, in a short time. */
static void stream_ordered_frees(void)
{
    enum { BLOCKS = 3 };
    CUdeviceptr blocks[BLOCKS];

    prog_context(0);
    for (int i = 0; i < BLOCKS; i++)
        MUST(0, cuMemAllocAsync(&blocks[i], BLOCK, NULL));
    MUST(0, cuStreamSynchronize(NULL));
    begin_wait();
    for (int i = 0; i < BLOCKS; i++) {
        const uint64_t before = lease();

        MUST(0, cuMemFreeAsync(blocks[i], NULL));
        expect_given(before);
    }
    ledger_close(ledger);
}

static void stream_ordered_plain_free(void)
{
    CUdeviceptr block;

    prog_context(0);
    MUST(0, cuMemAllocAsync(&block, BLOCK, NULL));
    MUST(0, cuStreamSynchronize(NULL));
    begin_wait();
    const uint64_t before = lease();
    MUST(0, cuMemFree(block));
    expect_told(before);
}

static atomic_bool let_go;

static void until_let_go(void *unused)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    (void)unused;
    while (!atomic_load(&let_go))
        nanosleep(&pause, NULL);
}

/* The stream comes to the free some time after the call, and the program calls nothing more. */
static void stream_ordered_behind_work(void)
{
    const struct timespec while_ = {.tv_nsec = 20000000};
    CUdeviceptr block;
    CUstream stream;

    prog_context(0);
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(0, cuMemAllocAsync(&block, BLOCK, stream));
    MUST(0, cuStreamSynchronize(stream));
    begin_wait();
    const uint64_t before = lease();
    MUST(0, cuLaunchHostFunc(stream, until_let_go, NULL));
    MUST(0, cuMemFreeAsync(block, stream));
    nanosleep(&while_, NULL); /* the first look at the pool is most likely over */
    atomic_store(&let_go, true);
    expect_told(before);
}

/* Takes memory in a graph, which frees it again: the driver keeps it for the next launch. */
static void graph_trim(void)
{
    CUgraphExec exec;
    CUgraph graph;
    CUdeviceptr block;
    CUstream stream;

    prog_context(0);
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(0, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(0, cuMemAllocAsync(&block, BLOCK, stream));
    MUST(0, cuMemsetD8Async(block, 1, 16, stream));
    MUST(0, cuMemFreeAsync(block, stream));
    MUST(0, cuStreamEndCapture(stream, &graph));
    MUST(0, cuGraphInstantiate(&exec, graph, 0));
    MUST(0, cuGraphLaunch(exec, stream));
    MUST(0, cuMemAllocAsync(&block, BLOCK, stream));
    MUST(0, cuStreamSynchronize(stream));
    begin_wait();
    const uint64_t before = lease();
    MUST(0, cuMemFreeAsync(block, stream));
    expect_given(before);
    MUST(0, cuDeviceGraphMemTrim(0)); /* right after another free */
    expect_told(before - BLOCK);
}

static void pool_destroyed(void)
{
    cuuint64_t keep = UINT64_MAX;
    CUdeviceptr block;

    prog_context(0);
    CUmemoryPool pool = prog_pool(0);
    MUST(0, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    MUST(0, cuMemAllocFromPoolAsync(&block, BLOCK, pool, NULL));
    MUST(0, cuMemFreeAsync(block, NULL));
    MUST(0, cuStreamSynchronize(NULL));
    begin_wait();
    const uint64_t before = lease();
    MUST(0, cuMemPoolDestroy(pool));
    expect_told(before);
}

static void remove_ledger(const char *uuid, void *unused)
{
    char path[LEDGER_PATH];

    (void)unused;
    snprintf(path, sizeof(path), "%s/%s.ledger", getenv("GPUCAP_LEDGER"), uuid);
    MUST(0, unlink(path));
}

/* The ledger goes away; then this program runs until it is ended. */
static void ledger_removed(void)
{
    prog_context(0);
    MUST(0, ledger_each_card(getenv("GPUCAP_LEDGER"), remove_ledger, NULL));
    sleep(PATIENCE_S);
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {
        {"stream_ordered", stream_ordered},
        {"stream_ordered_frees", stream_ordered_frees},
        {"stream_ordered_plain_free", stream_ordered_plain_free},
        {"stream_ordered_behind_work", stream_ordered_behind_work},
        {"graph_trim", graph_trim},
        {"pool_destroyed", pool_destroyed},
        {"ledger_removed", ledger_removed},
    };

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
