/* measure: how much device memory this process really uses, by the driver's own word (NVML).
 *
 * Loading NVML takes about 15 ms (measured), so it happens on a thread of its own while the driver starts up,
 * which takes 200 ms and more. The thread ends when NVML is ready; fork and exit wait for it.
 */
#ifndef GPUCAP_MEASURE_H
#define GPUCAP_MEASURE_H

#include <stdatomic.h>
#include <stdint.h>

/* Begins, once; later calls do nothing. */
void measure_start(void);

/* A card, as NVML knows it. */
struct measure_card {
    const char *uuid;       /* "GPU-..." */
    _Atomic(void *) handle; /* NVML's; found at the first question */
};

/* Bytes of this process on the card. 0; -ESRCH if NVML does not list this process; -ENODATA if there is no
 * NVML or it cannot tell. */
int measure_used(struct measure_card *card, uint64_t *bytes);

/* Waits for the thread of measure_start, if it still runs. */
void measure_finish(void);

#endif
