/* measure: see measure.h.
 *
 * In a container NVML may list this process under the number it has outside. Then the entry that appeared
 * since NVML was loaded is taken for ours, if there is exactly one. Owns start_lock (start and join of the
 * thread) and nothing else; NVML itself is thread-safe.
 */
#include "measure.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvml.h"

#define PROCESSES_MAX 512
#define EARLY_MAX     1024

enum { IDLE, RUNNING, READY, FAILED };

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread; /* guarded by start_lock */
static atomic_int state = IDLE;
static atomic_uint listed_pid; /* the number under which NVML lists us; 0: not known yet */
static atomic_bool joinable;

/* Who was on the cards before our context; written by the loading thread, read after it has ended. */
static unsigned early_pids[EARLY_MAX];
static unsigned early_count;

static void note_early_processes(void)
{
    struct nvml_process list[PROCESSES_MAX];
    unsigned cards = 0;

    if (!nvml.count || !nvml.handle_by_index || nvml.count(&cards) != NVML_OK)
        return;
    for (unsigned card = 0; card < cards; card++) {
        unsigned count = PROCESSES_MAX;
        nvml_device device;

        if (nvml.handle_by_index(card, &device) != NVML_OK || nvml.processes(device, &count, list) != NVML_OK)
            continue;
        for (unsigned i = 0; i < count && early_count < EARLY_MAX; i++)
            early_pids[early_count++] = list[i].pid;
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

static void *load(void *unused)
{
    (void)unused;
    bool ready = nvml_open() && nvml.init() == NVML_OK;

    if (ready)
        note_early_processes();
    atomic_store(&state, ready ? READY : FAILED);
    return NULL;
}

/* Signals are the host program's: none may be delivered to our thread. */
static int start_quietly(void)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, NULL, load, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

void measure_start(void)
{
    if (atomic_load(&state) != IDLE)
        return;
    pthread_mutex_lock(&start_lock);
    if (atomic_load(&state) == IDLE) {
        atomic_store(&state, RUNNING);
        if (start_quietly() == 0) {
            atomic_store(&joinable, true);
            pthread_mutex_unlock(&start_lock);
            /* Before the exit handlers of NVML itself, which must not run under its own initialization. */
            atexit(measure_finish);
            return;
        }
        load(NULL);
    }
    pthread_mutex_unlock(&start_lock);
}

void measure_finish(void)
{
    if (atomic_load(&state) != RUNNING && !atomic_load(&joinable))
        return;
    pthread_mutex_lock(&start_lock);
    if (atomic_load(&joinable)) {
        pthread_join(thread, NULL);
        atomic_store(&joinable, false);
    }
    pthread_mutex_unlock(&start_lock);
}

/* Adds up what NVML lists under a number: 0, -ESRCH if nothing, -ENODATA if it does not say how much. */
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

/* The number under which we are listed: our own, else that of the only newcomer; 0 if that cannot be told. */
static unsigned recognize(const struct nvml_process *list, unsigned count)
{
    const unsigned own = (unsigned)getpid();
    unsigned newcomer = 0;

    for (unsigned i = 0; i < count; i++) {
        if (list[i].pid == own)
            return own;
    }
    for (unsigned i = 0; i < count; i++) {
        if (was_early(list[i].pid) || list[i].pid == newcomer)
            continue;
        if (newcomer)
            return 0;
        newcomer = list[i].pid;
    }
    return newcomer;
}

static nvml_device handle_of(struct measure_card *card)
{
    void *known = atomic_load_explicit(&card->handle, memory_order_relaxed);
    nvml_device device = known;

    if (!known && nvml.handle_by_uuid(card->uuid, &device) == NVML_OK)
        atomic_store_explicit(&card->handle, (void *)device, memory_order_relaxed);
    return device;
}

static int ask(struct measure_card *card, uint64_t *bytes)
{
    struct nvml_process list[PROCESSES_MAX];
    unsigned count = PROCESSES_MAX;
    nvml_device device = handle_of(card);

    if (!device || nvml.processes(device, &count, list) != NVML_OK)
        return -ENODATA;
    unsigned pid = atomic_load_explicit(&listed_pid, memory_order_relaxed);
    if (pid) {
        int rc = sum_of(list, count, pid, bytes);
        return rc == -ESRCH ? 0 : rc; /* known, and now holding nothing */
    }
    pid = recognize(list, count);
    if (!pid)
        return -ESRCH;
    int rc = sum_of(list, count, pid, bytes);
    if (rc == 0)
        atomic_store_explicit(&listed_pid, pid, memory_order_relaxed);
    return rc;
}

int measure_used(struct measure_card *card, uint64_t *bytes)
{
    measure_start();
    measure_finish();
    return atomic_load(&state) == READY ? ask(card, bytes) : -ENODATA;
}
