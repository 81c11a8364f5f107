/* sim_card_file: the file in /dev/shm that the processes of one simulated machine share, and the slot that
 * this process owns in it. Used by sim_card.c only.
 *
 * A slot is owned by a lock on one byte of the file, taken on an open file description that nothing but the
 * mapping of the file keeps alive. Such a lock ends with the process (and with nothing earlier: no close() in
 * the program can reach it), and MADV_DONTFORK keeps it from living on in a forked child.
 */
#ifndef SIMGPU_CARD_FILE_H
#define SIMGPU_CARD_FILE_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>
#include "tools/simgpu/engine/sim_card_spec.h"

#define CARD_SLOTS        1024
#define CARD_MACHINE_NAME 64

struct sim_card_slot {
    int64_t pid;                         /* 0: never used or given back */
    uint64_t bytes[CARD_MAX_DEVICES];    /* what the process holds; meaningful only while its lock is held */
    uint64_t contexts[CARD_MAX_DEVICES]; /* that it has: NVML lists it, even if they take no memory */
};

/* The layout of the file. A change needs a new CARD_FILE_VERSION. */
struct sim_card_shared {
    uint64_t magic;
    uint32_t version;
    uint32_t size;
    uint64_t spec_hash;
    uint64_t slots_seen;  /* slots at and after this one were never used; guarded by lock */
    pthread_mutex_t lock; /* robust and shared; guards slot[]. No sum is stored, so a killed owner leaves
                             nothing to repair */
    struct sim_card_slot slot[CARD_SLOTS];
};

struct sim_card_file {
    char path[160];
    dev_t dev;
    ino_t ino;
    struct sim_card_shared *shared; /* this mapping also holds the slot's lock */
    int slot;
    int opening; /* the descriptor in use while the file is opened or asked, else -1: a forked child closes it
                  */
};

#define CARD_FILE_CLOSED                                                                                     \
    {                                                                                                        \
        .slot = -1, .opening = -1                                                                            \
    }

/* Maps the file (made new when nobody uses it) and claims a slot: 0 or -errno, and then nothing is held. The
 * first one also removes the files that killed processes left. */
int sim_card_file_open(struct sim_card_file *file, const char *machine, const struct sim_card_spec *spec);
/* Gives the slot back, and removes the file when nobody else uses it. */
void sim_card_file_close(struct sim_card_file *file);
/* In a forked child: drops what was inherited and leaves the parent's slot alone. */
void sim_card_file_forget(struct sim_card_file *file);

/* The shared lock: 0 or -errno. */
int sim_card_file_lock(struct sim_card_file *file);
void sim_card_file_unlock(struct sim_card_file *file);
/* How many slots are worth a look. Needs the shared lock. */
int sim_card_file_slots(const struct sim_card_file *file);

/* Zeroes the slots of dead processes. Needs the shared lock. */
void sim_card_file_reap(struct sim_card_file *file);

#endif
