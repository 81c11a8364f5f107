/* Weights in and out as safetensors, with PyTorch's names and layouts (harness/model/names.h), in float:
 * --load-weights and --save-weights. Optimizer and position are not in such a file: checkpoint.h has those.
 */
#ifndef HARNESS_WEIGHTS_H
#define HARNESS_WEIGHTS_H

#include "harness/train/trainer.h"

/* Replaces all weights and statistics. A file that is damaged, or of another model, is refused before
 * anything is changed. Waits for the device. */
enum status weights_load(struct trainer *trainer, const char *path);

/* Writes all weights and statistics, beside the file and then in its place. Waits for the device. */
enum status weights_save(struct trainer *trainer, const char *path);

/* Finds out before a training whether its weights can be written. */
enum status weights_can_save(const char *path);

#endif
