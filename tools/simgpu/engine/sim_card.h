/* sim_card: the simulated cards of this machine, as all processes see them.
 *
 * GPUCAP_SIM names the cards ("2x16G", "16G", "1x24G,1x8G"; default "1x16G"), with optional settings after a
 * semicolon ("2x16G;ctx=64M"); "8G/mig" is a MIG instance, which CUDA and NVML know by a UUID "MIG-...".
 * GPUCAP_SIM_NVML can restrict what NVML shows of the cards (../nvml/sim_nvml_view.h), and GPUCAP_SIM_FAULT
 * makes driver calls fail (sim_fault.h). GPUCAP_SIM_ID (default: the user's id) names the machine: processes
 * with the same id and the same cards share them through one file in /dev/shm, mode 0600. Each process owns
 * one slot and holds a file lock on it that ends with the process, so that the next call of any process frees
 * the memory of a killed one. Owns one lock (in the shared file), which is never held across anything that
 * blocks.
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

/* Parses GPUCAP_SIM, maps the shared file, claims a slot. Idempotent and thread-safe. Returns 0, -EINVAL for
 * a specification that does not parse (the reason goes to stderr), or another negative errno. */
int sim_card_open(void);
int sim_card_count(void);
const struct sim_card_info *sim_card_info(int card);

/* Charges this process with bytes of a card. Returns 0, or -ENOMEM if they are not free. Exact across
 * processes. */
int sim_card_charge(int card, uint64_t bytes);
void sim_card_uncharge(int card, uint64_t bytes);

/* Counts the contexts that this process has on a card. */
void sim_card_enter(int card);
void sim_card_leave(int card);

uint64_t sim_card_used(int card);                /* by all living processes */
uint64_t sim_card_own(int card, uint64_t *most); /* by this process; *most is its highest value so far */
/* Lists up to max processes that have a context on the card: as on a real card, memory alone does not put a
 * process on the list. Returns their number. */
int sim_card_processes(int card, struct sim_card_process *out, int max);

/* Call in a child after fork(): drops the inherited slot, which belongs to the parent. */
void sim_card_forget(void);

#endif
