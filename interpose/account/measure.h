/* measure: how much device memory this process really uses, by the driver's own word (NVML).
 *
 * Loading NVML takes about 15 ms (measured), so it happens on a thread of its own while the driver starts up,
 * which takes 200 ms and more. Nobody depends on that thread: a caller who comes while it has not begun loads
 * NVML himself, because he may hold the dynamic loader's lock (a library's constructor does) that the thread
 * waits for.
 */
#ifndef GPUCAP_MEASURE_H
#define GPUCAP_MEASURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* True where NVML lists this process under its own number for sure: outside of every container. */
bool measure_knows_pid(void);

/* Begins, once; later calls do nothing. */
void measure_start(void);

/* Waits until NVML is loaded. To be called after cuInit and before the first context: then every process that
 * is listed by now is somebody else. */
void measure_ready(void);

/* A card, as NVML knows it. */
struct measure_card {
    const char *uuid;       /* "GPU-...", also of a slice, which NVML calls "MIG-..." */
    _Atomic(void *) handle; /* NVML's; found at the first question */
    /* This process has made a context on the card: NVML must list it there, and who is new there may be it.
     */
    atomic_bool present;
};

/* Bytes of this process on the card. 0; -ESRCH if NVML does not list this process where it should; -ENODATA
 * if there is no NVML or it cannot tell. */
int measure_used(struct measure_card *card, uint64_t *bytes);

/* Waits a while for the thread of measure_start, if it still runs. */
void measure_finish(void);

/* For exit handlers: NVML is neither loaded nor started from now on. Waits a while for threads that do. */
void measure_end(void);

#endif
