/* Checkpoints: everything that a training needs to continue with the same bits. A checkpoint is written to
 * a file beside the target, flushed and renamed over it, so that the target is always a complete one.
 * Loading checks the whole file first; a bad file changes nothing. */
#ifndef HARNESS_CHECKPOINT_H
#define HARNESS_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/base/status.h"

struct trainer;

/* Checks before the training that `path` can be written later: its folder is writable, and `path` is not
 * something that a rename must not replace, such as a device or a file of another kind. */
enum status checkpoint_can_save(const char *path);

/* `keep`: how many checkpoints to keep at `path`; the older ones are path.1, path.2, and so on. Returns
 * STATUS_UNSAVED if the file cannot be written: the old file is unchanged, and a later try may succeed. */
enum status checkpoint_save(struct trainer *trainer, const char *path, uint64_t keep);

/* After pruning or packing: writes the weights alone, for evaluation, to the file of --save with the ending
 * .pruned (`sparse`: matrices without their zeros) or .int8. Sets *bytes to its size. */
enum status checkpoint_save_small(struct trainer *trainer, bool sparse, uint64_t *bytes);

/* Returns true if there is a checkpoint at `path` whose matrices are bytes. Prints nothing if there is none.
 */
bool checkpoint_is_int8(const char *path);

/* Loads any of these. After a small one only evaluation is possible (trainer->small): the optimizer's state,
 * and for bytes the floats, are given back. */
enum status checkpoint_load(struct trainer *trainer, const char *path);

#endif
