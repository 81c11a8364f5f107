/* sim_card_file: the file in /dev/shm that the processes of one simulated machine share, and the slot that
 * this process owns in it. Used by sim_card.c only.
 *
 * A process owns a slot by a lock on one byte of the file. Only the mapping keeps the lock's open file
 * description alive, so the lock ends exactly when the process ends: the program has no descriptor to close,
 * and MADV_DONTFORK keeps forked children from inheriting the mapping.
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
    int64_t pid;                         /* 0: the slot is free */
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
    int opening; /* descriptor in use during an operation on the file, else -1; a forked child closes it */
};

#define CARD_FILE_CLOSED                                                                                     \
    {                                                                                                        \
        .slot = -1, .opening = -1                                                                            \
    }

/* Maps the file, or makes a new one if no living process uses it, and claims a slot. Returns 0, or a negative
 * errno and holds nothing. The first process of a machine also removes the files that killed processes left.
 */
int sim_card_file_open(struct sim_card_file *file, const char *machine, const struct sim_card_spec *spec);
/* Releases the slot, and removes the file if no other process uses it. */
void sim_card_file_close(struct sim_card_file *file);
/* Call in a forked child: drops what it inherited without touching the parent's slot. */
void sim_card_file_forget(struct sim_card_file *file);

/* Takes the shared lock. Returns 0 or a negative errno. */
int sim_card_file_lock(struct sim_card_file *file);
void sim_card_file_unlock(struct sim_card_file *file);
/* Returns the number of slots that were ever used. The caller holds the shared lock. */
int sim_card_file_slots(const struct sim_card_file *file);

/* Zeroes the slots of dead processes. The caller holds the shared lock. */
void sim_card_file_reap(struct sim_card_file *file);

#endif
