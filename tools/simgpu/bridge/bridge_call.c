/* bridge_call: what every entry point does before and after its work. See bridge_call.h.
 *
 * Owns one lock, script_lock, for the fault script only; it is never held during the work of a call.
 */
#include "tools/simgpu/bridge/bridge_call.h"

#include "tools/simgpu/engine/sim_device.h"
#include "tools/simgpu/engine/sim_dmabuf.h"
#include "tools/simgpu/engine/sim_lock.h"
#include "tools/simgpu/engine/sim_object.h"
#include "tools/simgpu/engine/sim_state.h"
#include "tools/simgpu/engine/sim_stream_work.h"
#include "tools/simgpu/simgpu.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const symbols[ENTRY_COUNT] = {
#define ENTRY(base, symbol, version) [ENTRY_##symbol] = #symbol,
#define ENTRY_PT(base, symbol, version, per_thread, thread_version)                                          \
    [ENTRY_##symbol] = #symbol, [ENTRY_##per_thread] = #per_thread,
#define ALIAS(base, symbol, version)
#include "tools/simgpu/bridge/entries.def"
#undef ENTRY
#undef ENTRY_PT
#undef ALIAS
};

static _Atomic uint64_t counts[ENTRY_COUNT];
static _Atomic uint64_t total;
static pthread_mutex_t script_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_fault_script script; /* guarded by script_lock */
static _Atomic bool armed;             /* the script has a rule */
static bool script_is_bad;             /* written once, before the first read */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Returns the number of an entry point, or -1. */
static int entry_of(const char *symbol, size_t length)
{
    int i;

    for (i = 0; i < ENTRY_COUNT; i++)
        if (strlen(symbols[i]) == length && memcmp(symbols[i], symbol, length) == 0)
            return i;
    return -1;
}

static int set_script(const char *text, const char *where)
{
    struct sim_fault_script parsed;
    char why[256];

    if (sim_fault_parse(&parsed, text, entry_of, why, sizeof(why)) != 0) {
        fprintf(stderr, "simgpu: %s: %s\n", where, why);
        return -1;
    }
    pthread_mutex_lock(&script_lock);
    script = parsed;
    atomic_store(&armed, parsed.count > 0);
    pthread_mutex_unlock(&script_lock);
    return 0;
}

static void read_environment(void)
{
    const char *text = getenv("GPUCAP_SIM_FAULT");

    if (text)
        script_is_bad = set_script(text, "GPUCAP_SIM_FAULT") != 0;
}

bool sim_call_script_is_bad(void)
{
    return script_is_bad;
}

static struct sim_fault_rule rule_for(enum sim_entry entry, uint64_t nth, uint64_t nth_of_all)
{
    const struct sim_fault_rule *rule;
    struct sim_fault_rule found = {.action = FAULT_NONE};

    pthread_mutex_lock(&script_lock);
    rule = sim_fault_match(&script, (int)entry, nth, nth_of_all);
    if (rule)
        found = *rule;
    pthread_mutex_unlock(&script_lock);
    return found;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static void cancel(void)
{
    pthread_cancel(pthread_self());
    pthread_testcancel();
}

static void be_slow(int ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    nanosleep(&pause, NULL);
}

struct sim_call sim_call_enter(enum sim_entry entry, bool anytime)
{
    struct sim_call call = {.refused = CUDA_SUCCESS};
    uint64_t nth, nth_of_all;

    pthread_once(&once, read_environment);
    nth = atomic_fetch_add(&counts[entry], 1) + 1;
    nth_of_all = atomic_fetch_add(&total, 1) + 1;
    if (atomic_load(&armed)) {
        struct sim_fault_rule rule = rule_for(entry, nth, nth_of_all);

        if (rule.action == FAULT_KILL)
            die();
        if (rule.action == FAULT_CANCEL)
            cancel();
        if (rule.action == FAULT_SLOW)
            be_slow(rule.code);
        if (rule.action == FAULT_RETURN)
            call.refused = (CUresult)rule.code;
        call.kill_after = rule.action == FAULT_KILL_AFTER;
    }
    if (call.refused == CUDA_SUCCESS && !anytime)
        call.refused = sim_stream_on_worker() ? CUDA_ERROR_NOT_PERMITTED : sim_state_check();
    if (call.refused == CUDA_SUCCESS && !anytime)
        sim_dmabuf_sweep();
    return call;
}

CUresult sim_call_leave(const struct sim_call *call, CUresult result)
{
    if (call->kill_after)
        die();
    return result;
}

/* ---- simgpu.h ---- */

unsigned long simgpu_calls(const char *symbol)
{
    int entry = symbol ? entry_of(symbol, strlen(symbol)) : -1;

    return entry < 0 ? 0 : (unsigned long)atomic_load(&counts[entry]);
}

unsigned long simgpu_calls_total(void)
{
    return (unsigned long)atomic_load(&total);
}

void simgpu_reset_calls(void)
{
    int i;

    for (i = 0; i < ENTRY_COUNT; i++)
        atomic_store(&counts[i], 0);
    atomic_store(&total, 0);
}

int simgpu_set_fault(const char *text)
{
    pthread_once(&once, read_environment);
    return set_script(text ? text : "", "fault script");
}

unsigned long long simgpu_used(int device)
{
    uint64_t most = 0;

    sim_dmabuf_sweep();
    return sim_device_get(device) ? sim_card_own(sim_device_get(device)->card, &most) : 0;
}

unsigned long long simgpu_most_used(int device)
{
    uint64_t most = 0;

    if (sim_device_get(device))
        sim_card_own(sim_device_get(device)->card, &most);
    return most;
}

unsigned long simgpu_leaks(void)
{
    static const enum sim_object_kind counted[] = {OBJECT_BLOCK,   OBJECT_HANDLE, OBJECT_RESERVATION,
                                                   OBJECT_MAPPING, OBJECT_ARRAY,  OBJECT_MIPMAP,
                                                   OBJECT_STREAM,  OBJECT_EVENT,  OBJECT_GREEN};
    unsigned long sum = 0;
    size_t i;

    sim_lock_take();
    for (i = 0; i < sizeof(counted) / sizeof(counted[0]); i++)
        sum += sim_object_count(counted[i]);
    sim_lock_drop();
    return sum;
}
