/* Watches the other processes of an MPI job from a thread of its own, because a rank that was killed makes
 * the streams of the others hang: says so, aborts NCCL, and ends this process if it does not end by itself.
 * Processes on other machines are MPI's to watch, and NCCL's. */
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

/* Every rank must call this. `nccl` may be NULL. Where the kernel cannot watch processes, MPI alone does. */
enum status watch_open(struct watch **out, struct comm *comm, struct nccl_comm *nccl);

/* Call when all ranks have trained to the end, and after a failure. Accepts NULL, as does the next. */
void watch_close(struct watch *watch);

/* Returns true if a rank has ended or NCCL has failed: what the devices computed since may be wrong. */
bool watch_has_seen_the_end(struct watch *watch);

#endif
