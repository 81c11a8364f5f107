/* fleet_place: where the programs of this build are, and which card the children see: the GPU, or a simulated
 * one, chosen through the environment that every child inherits.
 *
 * Changes this process's environment; never the system's. Owns no lock: one thread. */
#ifndef HARNESS_FLEET_PLACE_H
#define HARNESS_FLEET_PLACE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The path of a file beside this executable; false when there is none. */
bool fleet_beside(const char *name, char path[PATH_MAX]);

/* argv[0] of a command: a name without a slash means the program beside this one, if there is one. */
const char *fleet_program(const char *name, char path[PATH_MAX]);

bool fleet_place_simulated(void);
/* Whether a driver answers here with at least one device; asked in a child, so that no driver stays loaded.
 */
bool fleet_place_has_gpu(void);

/* From now on children see simulated cards after `spec` (tools/simgpu/engine/sim_card_spec.h): a machine of
 * their own, empty, apart from every earlier one. NULL leaves spec and machine to the environment. 0, or -1
 * with a message on stderr. */
int fleet_place_simulate(const char *spec);
/* Removes what the machine that fleet_place_simulate made has left in shared memory. Its users must be gone.
 */
void fleet_place_clean(void);

#endif
