/* Checkpoints: all that a training needs to go on with the same bits. Written to a file beside the target,
 * flushed to the disk and renamed over it, so that the target is the last good one at every moment. Read
 * only after the whole file has been checked, so that a bad one changes nothing. */
#ifndef HARNESS_CHECKPOINT_H
#define HARNESS_CHECKPOINT_H

#include "harness/base/status.h"

struct trainer;

/* Whether there is a place for it, asked before hours of training: a folder that can be written to, and
 * nothing at path that a file must not replace, such as a device. */
enum status checkpoint_can_save(const char *path);

enum status checkpoint_save(struct trainer *trainer, const char *path);
enum status checkpoint_load(struct trainer *trainer, const char *path);

#endif
