/* Watches the other processes of an MPI job from a thread of its own, because the streams of the others hang
 * when a rank is killed. Then prints a message, aborts NCCL, and ends this process if it does not end by
 * itself. MPI and NCCL watch the processes on other machines. */
#ifndef HARNESS_WATCH_H
#define HARNESS_WATCH_H

#include <stdbool.h>

#include "harness/base/status.h"
#include "harness/train/comm.h"
#include "harness/train/nccl.h"

enum { WATCH_BOOT_BYTES = 40 };

/* Reads the kernel's boot id, which tells one machine from another; empty if there is none. */
void watch_read_boot(char boot[WATCH_BOOT_BYTES]);

struct watch;

/* Every rank must call this. `nccl` may be NULL. If the kernel cannot watch processes, only MPI does. */
enum status watch_open(struct watch **out, struct comm *comm, struct nccl_comm *nccl);

/* Call when all ranks have trained to the end, and after a failure. Accepts NULL, as does the next. */
void watch_close(struct watch *watch);

/* Returns true if a rank has ended or NCCL has failed: what the devices computed since may be wrong. */
bool watch_has_seen_the_end(struct watch *watch);

#endif
