/* measure: see measure.h.
 *
 * In a container NVML may list this process under its number outside. Then the entry that appeared since NVML
 * was loaded counts as ours, if there is exactly one, on a card where we have a context. Owns lock (changes
 * of state), never held while NVML works; NVML itself is thread-safe. Runs on the host program's threads,
 * whose stacks may be small.
 */
#include "interpose/account/measure.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "interpose/base/clock.h"
#include "interpose/base/lock.h"
#include "interpose/base/pages.h"
#include "interpose/base/thread.h"
#include "interpose/driver/nvml.h"

#define LIST_SHORT 64   /* processes on one card that fit on the stack */
#define LIST_MAX   4096 /* and in mapped memory */
#define EARLY_MAX  1024
/* To load or start NVML: they may need a lock that another thread must release first. */
#define WAIT_NS UINT64_C(3000000000)

enum { IDLE, LOADING, STARTING, READY, FAILED };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static atomic_int state = IDLE;   /* written with lock held */
static atomic_uint listed_pid;    /* number under which NVML lists us; 0: not known yet */
static atomic_bool over;          /* measure_end was called */
static atomic_bool forking;       /* a fork is in progress, whose thread has waited already and holds lock */
static atomic_bool early_is_sure; /* the list below was made before any context of ours */
static struct timespec patience;  /* until when threads wait for the current step; guarded by lock */

/* Processes on the cards before our first context; written while STARTING, read when READY. */
static unsigned early_pids[EARLY_MAX];
static unsigned early_count;

/* A card's processes, on the stack or in mapped memory. */
struct list {
    unsigned count;
    struct nvml_process *entries;
    struct nvml_process few[LIST_SHORT];
    size_t mapped; /* bytes */
};

static void free_list(struct list *list)
{
    if (list->mapped)
        munmap(list->entries, list->mapped);
}

/* Reads the processes of a card. Returns 0 (free_list must follow) or -ENODATA. */
static int read_list(nvml_device device, struct list *list)
{
    static atomic_bool was_long; /* then the short list is not tried: NVML looks at every process each time */
    nvml_return rc = NVML_INSUFFICIENT_SIZE;

    list->entries = list->few;
    list->mapped = 0;
    list->count = LIST_SHORT;
    if (!atomic_load_explicit(&was_long, memory_order_relaxed))
        rc = nvml.processes(device, &list->count, list->few);
    if (rc == NVML_INSUFFICIENT_SIZE) {
        const size_t bytes = LIST_MAX * sizeof(*list->entries);

        list->entries = pages_map(bytes);
        if (!list->entries)
            return -ENODATA;
        list->mapped = bytes;
        list->count = LIST_MAX;
        rc = nvml.processes(device, &list->count, list->entries);
        atomic_store_explicit(&was_long, rc == NVML_OK && list->count > LIST_SHORT, memory_order_relaxed);
    }
    if (rc == NVML_OK)
        return 0;
    free_list(list);
    return -ENODATA;
}

static void note_early_processes(void)
{
    unsigned cards = 0;

    if (!nvml.count || !nvml.handle_by_index || nvml.count(&cards) != NVML_OK)
        return;
    for (unsigned card = 0; card < cards; card++) {
        struct list list;
        nvml_device device;

        if (nvml.handle_by_index(card, &device) != NVML_OK || read_list(device, &list))
            continue;
        for (unsigned i = 0; i < list.count && early_count < EARLY_MAX; i++)
            early_pids[early_count++] = list.entries[i].pid;
        free_list(&list);
    }
}

static bool was_early(unsigned pid)
{
    for (unsigned i = 0; i < early_count; i++) {
        if (early_pids[i] == pid)
            return true;
    }
    return false;
}

/* Goes from one state to the next. Returns false if another thread has changed the state. */
static bool advance(int from, int to)
{
    pthread_mutex_lock(&lock);
    const bool moved = atomic_load(&state) == from;
    if (moved) {
        if (to == LOADING || to == STARTING)
            patience = clock_after(WAIT_NS);
        atomic_store(&state, to);
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return moved;
}

/* Loads NVML, and starts it unless another thread does. */
static void load(void)
{
    if (!nvml_open()) {
        advance(LOADING, FAILED);
        return;
    }
    if (!advance(LOADING, STARTING))
        return;
    const bool ready = nvml.init() == NVML_OK;
    if (ready && !measure_knows_pid()) /* else NVML lists us under our own number */
        note_early_processes();
    advance(STARTING, ready ? READY : FAILED);
}

static void *load_aside(void *unused)
{
    load();
    return unused;
}

static bool is_settled(void)
{
    const int now = atomic_load(&state);

    return now == READY || now == FAILED || now == IDLE;
}

/* Waits until NVML is ready or has failed, 3 s at most. The caller holds the lock. */
static void wait_settled(void)
{
    struct timespec until = clock_after(WAIT_NS);

    if (patience.tv_sec < until.tv_sec) /* unless the clock was set back */
        until = patience;
    while (!is_settled() && pthread_cond_timedwait(&changed, &lock, &until) == 0)
        continue;
}

/* Waits for the thread of measure_start to end, 3 s at most. */
static void finish(void)
{
    if (is_settled() || atomic_load(&forking))
        return;
    lock_mutex_take(&lock);
    wait_settled();
    lock_mutex_release(&lock);
}

bool measure_is_over(void)
{
    return atomic_load(&over);
}

/* NVML's exit handlers must not run while it is being started, nor may it be loaded while they run. */
void measure_end(void)
{
    atomic_store(&over, true);
    nvml_end();
    if (is_settled())
        return;
    advance(LOADING, FAILED);
    finish();
}

/* Holds the lock over a fork, so that no change of state is cut in half. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
    wait_settled();
    atomic_store(&forking, true);
}

static void after_fork(void)
{
    atomic_store(&forking, false);
    pthread_mutex_unlock(&lock);
}

/* The loading thread does not exist in the child: what it had not finished counts as failed. */
static void after_fork_child(void)
{
    atomic_store(&listed_pid, 0);
    if (atomic_load(&state) == STARTING)
        atomic_store(&state, FAILED);
    after_fork();
}

bool measure_knows_pid(void)
{
    static const char first[] = "pid:[4026531836]"; /* the kernel's fixed number of the first namespace */
    char link[sizeof(first)];

    return readlink("/proc/self/ns/pid", link, sizeof(link)) == (ssize_t)sizeof(first) - 1 &&
           !memcmp(link, first, sizeof(first) - 1);
}

void measure_start(void)
{
    if (atomic_load(&state) != IDLE || !advance(IDLE, LOADING))
        return;
    /* If these fail, only a fork or an exit at a bad moment goes wrong. */
    pthread_atfork(before_fork, after_fork, after_fork_child);
    atexit(measure_end);
    thread_start(load_aside, NULL); /* without it, the first measurement loads NVML */
}

/* Returns true if NVML is ready; loads it if no thread does. */
static bool make_ready(void)
{
    measure_start();
    if (atomic_load(&state) == LOADING)
        load();
    finish();
    return atomic_load(&state) == READY;
}

void measure_ready(void)
{
    lock_disable_cancel();
    if (make_ready())
        atomic_store(&early_is_sure, true);
    lock_restore_cancel();
}

/* Adds up what NVML lists under a number. Returns 0, -ESRCH: no entry, -ENODATA: one without a figure. */
static int sum_of(const struct nvml_process *list, unsigned count, unsigned pid, uint64_t *bytes)
{
    int rc = -ESRCH;

    *bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        if (list[i].pid != pid)
            continue;
        if (list[i].used == NVML_NOT_AVAILABLE)
            return -ENODATA;
        *bytes += list[i].used;
        rc = 0;
    }
    return rc;
}

/* Returns the only entry that was not there before us; 0 if there are several or none. */
static unsigned only_newcomer(const struct nvml_process *list, unsigned count)
{
    unsigned newcomer = 0;

    for (unsigned i = 0; i < count; i++) {
        if (was_early(list[i].pid) || list[i].pid == newcomer)
            continue;
        if (newcomer)
            return 0;
        newcomer = list[i].pid;
    }
    return newcomer;
}

/* Returns the number under which we are listed: our own, else that of the only new entry; 0 if not known. An
 * entry with our number that was there before us is a process outside our container. A new entry on a card
 * where we have no context is another process. */
static unsigned recognize(const struct nvml_process *list, unsigned count, bool present)
{
    const unsigned own = (unsigned)getpid();
    const bool taken = atomic_load(&early_is_sure) && was_early(own);

    for (unsigned i = 0; i < count; i++) {
        if (list[i].pid == own && !taken)
            return own;
    }
    return present && !measure_knows_pid() ? only_newcomer(list, count) : 0;
}

/* Looks up a slice: the driver returns its UUID without saying that it is one. */
static bool find_slice(const char *uuid, nvml_device *device)
{
    char name[NVML_UUID_TEXT];

    if (strncmp(uuid, "GPU-", 4) || snprintf(name, sizeof(name), "MIG-%s", uuid + 4) >= (int)sizeof(name))
        return false;
    return nvml.handle_by_uuid(name, device) == NVML_OK;
}

static nvml_device handle_of(struct measure_card *card)
{
    void *known = atomic_load_explicit(&card->handle, memory_order_relaxed);
    nvml_device device = known;

    if (!known && (nvml.handle_by_uuid(card->uuid, &device) == NVML_OK || find_slice(card->uuid, &device)))
        atomic_store_explicit(&card->handle, (void *)device, memory_order_relaxed);
    return device;
}

/* Finds our own bytes in a list. A process without a context is not listed, whatever memory it holds. */
static int find_own(const struct nvml_process *list, unsigned count, bool present, uint64_t *bytes)
{
    unsigned pid = atomic_load_explicit(&listed_pid, memory_order_relaxed);

    *bytes = 0;
    if (!pid)
        pid = recognize(list, count, present);
    if (!pid)
        return !present && measure_knows_pid() ? -ENOENT : -ESRCH;
    int rc = sum_of(list, count, pid, bytes);
    if (rc == -ESRCH && !present)
        return -ENOENT;
    if (rc == 0)
        atomic_store_explicit(&listed_pid, pid, memory_order_relaxed);
    return rc;
}

/* Begins a question about a card. Returns NVML's handle of it, or NULL. Disables cancellation until
 * end_question: locks of ours or of NVML would stay taken. */
static nvml_device begin_question(struct measure_card *card)
{
    lock_disable_cancel();
    return make_ready() ? handle_of(card) : NULL;
}

static int end_question(int rc)
{
    lock_restore_cancel();
    return rc;
}

int measure_used(struct measure_card *card, uint64_t *bytes)
{
    nvml_device device = begin_question(card);
    struct list list;
    int rc = -ENODATA;

    if (device && read_list(device, &list) == 0) {
        rc = find_own(list.entries, list.count, atomic_load(&card->present), bytes);
        free_list(&list);
        if (rc == 0)
            atomic_store_explicit(&card->listed, true, memory_order_relaxed);
        else if (rc == -ESRCH && measure_knows_pid() && atomic_load(&card->listed))
            rc = -ENOENT; /* its context is ending */
    }
    return end_question(rc);
}

int measure_all(struct measure_card *card, uint64_t *bytes)
{
    nvml_device device = begin_question(card);
    struct list list;
    int rc = -ENODATA;

    *bytes = 0;
    if (device && read_list(device, &list) == 0) {
        rc = list.count ? 0 : -ENODATA;
        for (unsigned i = 0; i < list.count; i++) {
            if (list.entries[i].used == NVML_NOT_AVAILABLE)
                rc = -ENODATA;
            else
                *bytes += list.entries[i].used;
        }
        free_list(&list);
    }
    return end_question(rc);
}

int measure_free(struct measure_card *card, uint64_t *bytes)
{
    nvml_device device = begin_question(card);
    struct nvml_memory memory;
    const int rc = device && nvml.memory(device, &memory) == NVML_OK ? 0 : -ENODATA;

    *bytes = rc ? 0 : memory.free;
    return end_question(rc);
}
