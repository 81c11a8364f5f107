/* sim_card: the simulated cards of this machine, as all processes see them.
 *
 * GPUCAP_SIM names the cards ("2x16G", "16G", "1x24G,1x8G"; default "1x16G"), with optional settings after a
 * semicolon ("2x16G;ctx=64M"); "8G/mig" is a MIG instance, which CUDA and NVML know by a UUID "MIG-...". What
 * NVML shows of the cards GPUCAP_SIM_NVML can restrict (../nvml/nvml_view.h), and GPUCAP_SIM_FAULT makes
 * calls of the driver fail (sim_fault.h). GPUCAP_SIM_ID (default: the user's id) names the machine: processes
 * with the same id and the same cards share them through one file in /dev/shm, mode 0600. Each process owns
 * one slot and holds a file lock on it that dies with the process, so that memory of a killed process is free
 * again for the next one who looks. Owns one lock (in the shared file) that is never held across anything
 * that blocks.
 */
#ifndef SIMGPU_CARD_H
#define SIMGPU_CARD_H

#include "tools/simgpu/engine/sim_card_spec.h"

#include <stdint.h>
#include <sys/types.h>

struct sim_card_process {
    pid_t pid;
    uint64_t bytes;
};

/* Parses GPUCAP_SIM, maps the shared file, claims a slot. Idempotent and thread-safe.
 * 0; -EINVAL for a bad specification (said on stderr); another -errno. */
int sim_card_open(void);
int sim_card_count(void);
const struct sim_card_info *sim_card_info(int card);

/* Takes bytes of a card for this process: 0, or -ENOMEM if they are not free. Exact across processes. */
int sim_card_charge(int card, uint64_t bytes);
void sim_card_uncharge(int card, uint64_t bytes);

/* Counts the contexts that this process has on a card. */
void sim_card_enter(int card);
void sim_card_leave(int card);

uint64_t sim_card_used(int card);                /* by all living processes */
uint64_t sim_card_own(int card, uint64_t *most); /* by this process, and the most it ever had */
int sim_card_processes(int card, struct sim_card_process *out,
                       int max); /* those that use the card; returns how many */

void sim_card_forget(void); /* in a child after fork: the slot is the parent's */

#endif
