/* Weights in and out as safetensors, with PyTorch's names and layouts (harness/model/names.h), in float:
 * --load-weights and --save-weights. Such a file has no optimizer state and no position; checkpoints have
 * (checkpoint.h). */
#ifndef HARNESS_WEIGHTS_H
#define HARNESS_WEIGHTS_H

#include "harness/train/trainer.h"

/* Replaces all weights and statistics. A file that is damaged, or of another model, is refused before
 * anything is changed. Waits for the device. */
enum status weights_load(struct trainer *trainer, const char *path);

/* Writes all weights and statistics to a temporary file and renames it. Waits for the device. */
enum status weights_save(struct trainer *trainer, const char *path);

/* Checks before a training whether its weights can be written. */
enum status weights_can_save(const char *path);

#endif
