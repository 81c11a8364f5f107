/* cards: NVML's facts about the cards of this machine. NVML needs no context, so asking costs no device
 * memory. It is loaded at run time. Without it, or for a card that it does not know, there are no facts, and
 * callers show none. Owns no lock. */
#ifndef GPUCAP_CARDS_H
#define GPUCAP_CARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CARDS_NAME 96

struct cards; /* an open NVML */

struct cards_facts {
    bool known;
    int number; /* as NVML counts: every card of the machine; -1: unknown */
    char name[CARDS_NAME];
    uint64_t total, free;
};

/* Loads NVML from the folder, or as any program would if that is NULL. Returns NULL if there is none. */
struct cards *cards_open(const char *folder);
void cards_close(struct cards *cards);

/* Fills facts for a card; facts->known is false if `cards` is NULL or does not know the UUID. */
void cards_read(const struct cards *cards, const char *uuid, struct cards_facts *facts);

/* Calls visit(uuid, argument) for every card that NVML lists, and for each MIG slice. */
void cards_each(const struct cards *cards, void (*visit)(const char *uuid, void *argument), void *argument);

/* Lists the processes that compute on a card. Returns their number, or -1 if NVML does not report them. */
struct cards_process {
    pid_t pid;
    uint64_t used; /* UINT64_MAX: not known */
};
int cards_processes(const struct cards *cards, const char *uuid, struct cards_process *list, int room);

/* Writes the driver's release, such as 580.159.03; "" if it is unknown. */
void cards_release(const struct cards *cards, char *release, size_t size);

/* Opens a library of the driver from the folder, or as any program would if that is NULL. */
void *cards_load(const char *folder, const char *name);

/* One function to find in a library. */
struct cards_lookup {
    const char *name;
    const char *fallback; /* an older name of the same function; NULL: none */
    void *target;         /* the function pointer to fill */
};
/* Fills every function pointer. Returns the first missing name, or NULL. */
const char *cards_resolve(void *library, const struct cards_lookup *lookups, size_t count);

#endif
