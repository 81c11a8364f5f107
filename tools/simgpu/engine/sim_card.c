/* sim_card: what each living process holds on each card. See sim_card.h. Sums are computed from the slots on
 * each call, so that there is no stored total that a killed process could leave wrong.
 *
 * Owns one process-local lock (state.lock, guards all of state) that is taken before the shared one of
 * sim_card_file. Neither is held across anything that blocks, except while the file is first opened.
 */
#include "tools/simgpu/engine/sim_card.h"
#include "tools/simgpu/engine/sim_card_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    bool fork_handled;
    _Atomic pid_t
        owner; /* the process that opened; in a forked child the parent's id until sim_card_forget() */
    bool open;
    struct sim_card_spec spec; /* stays valid after closing, as sim_card_info() hands out pointers into it */
    struct sim_card_file file;
    uint64_t most[CARD_MAX_DEVICES]; /* highest use of a card by this process */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = CARD_FILE_CLOSED};

static void before_fork(void)
{
    pthread_mutex_lock(&state.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&state.lock);
}

/* Runs in the only thread of a forked child, whose slot is the parent's. */
static void forget(void)
{
    sim_card_file_forget(&state.file);
    state.open = false;
    state.owner = getpid();
}

static void after_fork_child(void)
{
    if (state.owner == getpid())
        return;
    pthread_mutex_unlock(&state.lock);
    forget();
}

void sim_card_forget(void)
{
    if (!state.owner || state.owner == getpid())
        return;
    pthread_mutex_init(&state.lock, NULL); /* a thread of the parent may have held it */
    forget();
}

static int machine_name(char name[CARD_MACHINE_NAME + 1])
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    const char *id = getenv("GPUCAP_SIM_ID");
    if (!id || !*id) {
        snprintf(name, CARD_MACHINE_NAME + 1, "%u", (unsigned)geteuid());
        return 0;
    }
    size_t length = strlen(id);
    if (length > CARD_MACHINE_NAME || strspn(id, allowed) != length) {
        fprintf(stderr,
                "simgpu: GPUCAP_SIM_ID is not a name of at most %d letters, digits, '_', '.' and '-'\n",
                CARD_MACHINE_NAME);
        return -EINVAL;
    }
    memcpy(name, id, length + 1);
    return 0;
}

static int open_locked(void)
{
    char name[CARD_MACHINE_NAME + 1], why[128] = "";
    const char *text = getenv("GPUCAP_SIM");
    if (!state.fork_handled) {
        int err = pthread_atfork(before_fork, after_fork, after_fork_child);
        if (err)
            return -err;
        state.fork_handled = true;
    }
    if (!text || !*text)
        text = CARD_SPEC_DEFAULT;
    if (sim_card_spec_parse(text, &state.spec, why, sizeof(why))) {
        fprintf(stderr, "simgpu: GPUCAP_SIM: %s; expected for example 2x16G or 24G,8G;ctx=64M\n", why);
        return -EINVAL;
    }
    int err = machine_name(name);
    if (!err)
        err = sim_card_file_open(&state.file, name, &state.spec);
    if (err && err != -EINVAL)
        fprintf(stderr, "simgpu: cannot share the cards of machine %s: %s\n", name, strerror(-err));
    state.open = !err;
    return err;
}

int sim_card_open(void)
{
    int err = 0;
    sim_card_forget(); /* does nothing in the process that opened */
    pthread_mutex_lock(&state.lock);
    if (!state.open) {
        state.owner = getpid();
        err = open_locked();
    }
    pthread_mutex_unlock(&state.lock);
    return err;
}

/* Runs at dlclose() and at exit: releases the slot. Threads that still run then find the cards closed. */
__attribute__((destructor)) static void close_cards(void)
{
    pthread_mutex_lock(&state.lock);
    if (state.open && state.owner == getpid())
        sim_card_file_close(&state.file);
    state.open = false;
    pthread_mutex_unlock(&state.lock);
}

int sim_card_count(void)
{
    return state.spec.count;
}

const struct sim_card_info *sim_card_info(int card)
{
    return card >= 0 && card < state.spec.count ? &state.spec.card[card] : NULL;
}

/* Takes both locks for an operation on one card. */
static int begin(int card)
{
    if (card < 0 || card >= state.spec.count)
        return -ENODEV;
    pthread_mutex_lock(&state.lock);
    /* A child of a raw clone() gets here without a call of sim_card_forget(). */
    int err = state.open && state.owner == getpid() ? sim_card_file_lock(&state.file) : -ENODEV;
    if (err)
        pthread_mutex_unlock(&state.lock);
    return err;
}

static void end(void)
{
    sim_card_file_unlock(&state.file);
    pthread_mutex_unlock(&state.lock);
}

static uint64_t sum_slots(int card)
{
    uint64_t sum = 0;
    for (int i = 0; i < sim_card_file_slots(&state.file); i++) {
        const struct sim_card_slot *slot = &state.file.shared->slot[i];
        if (slot->pid && __builtin_add_overflow(sum, slot->bytes[card], &sum))
            return UINT64_MAX; /* overflow, which only a damaged file can cause: count the card as full */
    }
    return sum;
}

static bool fits(int card, uint64_t bytes)
{
    uint64_t used = sum_slots(card), capacity = state.spec.card[card].capacity;
    return used <= capacity && bytes <= capacity - used;
}

int sim_card_charge(int card, uint64_t bytes)
{
    int err = begin(card);
    if (err)
        return err;
    bool granted = fits(card, bytes);
    if (!granted) {
        sim_card_file_reap(&state.file);
        granted = fits(card, bytes);
    }
    if (granted) {
        uint64_t *held = &state.file.shared->slot[state.file.slot].bytes[card];
        *held += bytes;
        if (*held > state.most[card])
            state.most[card] = *held;
    }
    end();
    return granted ? 0 : -ENOMEM;
}

void sim_card_uncharge(int card, uint64_t bytes)
{
    if (begin(card))
        return;
    uint64_t *held = &state.file.shared->slot[state.file.slot].bytes[card];
    *held -= bytes < *held ? bytes : *held;
    end();
}

void sim_card_enter(int card)
{
    if (begin(card))
        return;
    state.file.shared->slot[state.file.slot].contexts[card]++;
    end();
}

void sim_card_leave(int card)
{
    if (begin(card))
        return;
    uint64_t *contexts = &state.file.shared->slot[state.file.slot].contexts[card];
    *contexts -= *contexts > 0;
    end();
}

uint64_t sim_card_used(int card)
{
    if (begin(card))
        return 0;
    sim_card_file_reap(&state.file);
    uint64_t used = sum_slots(card), capacity = state.spec.card[card].capacity;
    end();
    return used < capacity ? used : capacity;
}

uint64_t sim_card_own(int card, uint64_t *most)
{
    if (begin(card))
        return 0;
    uint64_t own = state.file.shared->slot[state.file.slot].bytes[card];
    *most = state.most[card];
    end();
    return own;
}

int sim_card_processes(int card, struct sim_card_process *out, int max)
{
    int found = 0;
    if (begin(card))
        return 0;
    sim_card_file_reap(&state.file);
    for (int i = 0; i < sim_card_file_slots(&state.file); i++) {
        const struct sim_card_slot *slot = &state.file.shared->slot[i];
        if (!slot->pid || !slot->contexts[card])
            continue;
        if (found < max)
            out[found] = (struct sim_card_process){.pid = (pid_t)slot->pid, .bytes = slot->bytes[card]};
        found++;
    }
    end();
    return found;
}
