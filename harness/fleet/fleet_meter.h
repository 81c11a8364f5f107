/* fleet_meter: how much device memory each process holds, asked of NVML from outside.
 *
 * Works on a GPU and on simgpu (whose NVML lies beside this executable). Without NVML, or in a container
 * where NVML numbers processes as the host does, nothing is found and the figures stay 0. Owns no lock. */
#ifndef HARNESS_FLEET_METER_H
#define HARNESS_FLEET_METER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Of the card that children see now (fleet_place.h). False, and every answer is 0, when there is no NVML. */
bool fleet_meter_open(void);
void fleet_meter_close(void);

/* Asks NVML once for all processes; then fleet_meter_of answers from that. */
void fleet_meter_look(void);
uint64_t fleet_meter_of(pid_t pid);

/* All that is in use on the first card, and its size. */
uint64_t fleet_meter_used(void);
uint64_t fleet_meter_total(void);

#endif
