/* fleet_meter: device memory of each process, from NVML. Works on a GPU and on simgpu (whose NVML is beside
 * this executable). Without NVML, or in a container where NVML reports the host's process ids, the figures
 * stay 0. Owns no lock. */
#ifndef HARNESS_FLEET_METER_H
#define HARNESS_FLEET_METER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Opens NVML for the card that children see now (fleet_place.h). Returns false if there is no NVML; then
 * every figure is 0. */
bool fleet_meter_open(void);
void fleet_meter_close(void);

/* Asks NVML once for all processes. fleet_meter_of answers from that. */
void fleet_meter_look(void);
uint64_t fleet_meter_of(pid_t pid);

/* Bytes in use on the first card, and its size. */
uint64_t fleet_meter_used(void);
uint64_t fleet_meter_total(void);

#endif
