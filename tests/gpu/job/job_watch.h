/* job_watch: how much memory a job uses, as NVML and the ledger have it. Owns no lock.
 *
 * NVML is opened at run time with declarations of its stable interface: nvml.h is not everywhere. It may name
 * processes by the host's numbers, so every process that was not there before counts.
 */
#ifndef TESTS_GPU_JOB_WATCH_H
#define TESTS_GPU_JOB_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct job_watch {
    uint64_t nvml_peak;   /* of the processes together */
    uint64_t card_peak;   /* growth of the whole card, some MiB of the driver's per process included */
    uint64_t ledger_peak; /* of the sum of the job's leases */
    uint64_t used_peak;   /* of the sum of what the processes say that they use */
    unsigned long samples;
    bool by_process; /* NVML names processes: else nvml_peak is the card's growth */
};

/* Opens NVML and notes what is used now. Returns false if there is none. */
bool job_watch_start(void);

/* Takes one sample. `folder` is the ledger's. */
void job_watch_sample(struct job_watch *watch, const char *folder);

#endif
