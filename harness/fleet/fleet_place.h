/* fleet_place: finds the programs of this build, and sets the environment by which children see the GPU or a
 * simulated card. Changes only this process's environment. Owns no lock: one thread. */
#ifndef HARNESS_FLEET_PLACE_H
#define HARNESS_FLEET_PLACE_H

#include <limits.h>
#include <stdbool.h>

/* Sets `path` to a file beside this executable. Returns false if there is none. */
bool fleet_beside(const char *name, char path[PATH_MAX]);

/* Resolves argv[0] of a command: a name without a slash means the program beside this one, if there is one.
 */
const char *fleet_program(const char *name, char path[PATH_MAX]);

bool fleet_place_simulated(void);

/* Returns true if a driver with at least one device is found. Asks in a child process, so that this one
 * loads no driver. */
bool fleet_place_has_gpu(void);

/* Children started later see simulated cards as `spec` says (tools/simgpu/engine/sim_card_spec.h), on a new,
 * empty simulated machine, which has its own ledgers unless GPUCAP_LEDGER names a folder. NULL leaves this to
 * the environment. Returns 0, or -1 after a message on stderr.
 */
int fleet_place_simulate(const char *spec);

/* Removes the shared memory and the ledgers of the machine that fleet_place_simulate made. Its processes must
 * have ended. */
void fleet_place_clean(void);

#endif
