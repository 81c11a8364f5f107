/* measure: how much device memory this process uses, as the driver counts it (NVML).
 *
 * Loading NVML takes about 15 ms (measured), so a thread does it while the driver starts up, which takes 200
 * ms and more. If that thread has not begun, the caller loads NVML itself instead of waiting: it may hold the
 * dynamic loader's lock (as a library's constructor does), for which the thread waits. Owns one lock, never
 * held while NVML works.
 */
#ifndef GPUCAP_MEASURE_H
#define GPUCAP_MEASURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns true if NVML certainly lists this process under its own number: outside of all containers. */
bool measure_knows_pid(void);

/* Starts the loading thread. Later calls do nothing. */
void measure_start(void);

/* Waits until NVML is loaded. Call it after cuInit and before the first context: without a context this
 * process is not on NVML's list, so all that are listed then are others. */
void measure_ready(void);

/* A card as NVML identifies it. */
struct measure_card {
    const char *uuid;       /* "GPU-...", also of a slice, which NVML calls "MIG-..." */
    _Atomic(void *) handle; /* NVML's handle, looked up at the first measurement */
    /* Set while this process has a context here: NVML must list it, and a new entry may be ours. */
    atomic_bool present;
    atomic_bool listed; /* NVML has listed this process here before */
};

/* Writes the bytes that this process uses on the card. Returns 0, or:
 * - -ENOENT if it certainly has no context there, or one that is ending. NVML then does not list it, whatever
 *   memory it holds (measured).
 * - -ESRCH if NVML does not list it although it should, or its number there is not known.
 * - -ENODATA without an answer. */
int measure_used(struct measure_card *card, uint64_t *bytes);

/* Writes the bytes that all processes use on the card. Returns 0 or -ENODATA. */
int measure_all(struct measure_card *card, uint64_t *bytes);

/* Writes what is free on the card as NVML says. Returns 0 or -ENODATA. */
int measure_free(struct measure_card *card, uint64_t *bytes);

/* Returns true after measure_end: the program is exiting, and there are no figures any more. */
bool measure_is_over(void);

/* For exit handlers: stops NVML from being loaded or started from now on. Waits for threads that are doing
 * that, 3 s at most for loading and for starting each. */
void measure_end(void);

#endif
