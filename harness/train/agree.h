/* Checks that the processes of an MPI job agree on options, weights and step before they train together.
 * Otherwise the average of their gradients would be meaningless, or they would wait for each other for ever.
 * Each function is collective: all ranks call it. */
#ifndef HARNESS_AGREE_H
#define HARNESS_AGREE_H

#include "harness/train/comm.h"
#include "harness/train/trainer.h"

/* Fails on a rank whose options are not those of rank 0, as far as they change the computation. */
enum status agree_on_options(struct comm *comm, const struct train_options *options);

/* Sets *why_not to NULL if NCCL can average: each rank has it, and a card of its own, wherever the rank runs
 * and whatever devices it sees. Otherwise to the reason. */
enum status agree_on_nccl(struct comm *comm, int device, const char **why_not);

/* Fails on a rank that starts from another step or from other weights than rank 0. Reads the weights if they
 * come from a file; waits for the device then. */
enum status agree_on_start(struct comm *comm, struct trainer *trainer);

#endif
