/* fleet_mps: runs a CUDA MPS server for the children, where NVIDIA's control program is installed. It uses
 * a temporary folder and runs in the foreground of a process group that dies with this process. Owns no
 * lock. */
#ifndef HARNESS_FLEET_MPS_H
#define HARNESS_FLEET_MPS_H

/* Returns why MPS cannot be used here, or NULL if it may work. */
const char *fleet_mps_missing(void);

/* Starts the server and sets the environment for children started later. Returns 0, or -1 after a message
 * on stderr. */
int fleet_mps_start(void);
void fleet_mps_stop(void);

#endif
