/* fleet_mps: a CUDA MPS server of our own for the children, where NVIDIA's control program is installed.
 *
 * Lives in a temporary folder, in the foreground of a process group that dies with us. Owns no lock. */
#ifndef HARNESS_FLEET_MPS_H
#define HARNESS_FLEET_MPS_H

#include <stdbool.h>

/* Why it cannot be used here, or NULL when it can be tried. */
const char *fleet_mps_missing(void);
/* Sets the environment for the children started from now on. 0, or -1 with a message on stderr. */
int fleet_mps_start(void);
void fleet_mps_stop(void);

#endif
