/* --dump=FOLDER: writes what each step computed, for a comparison with another program: the batch as the
 * model read it (pictures as [n][h][w][c], floats whatever the precision), its labels, and the loss, as
 * FOLDER/step-000001.safetensors and so on. Waits for the device in every step. */
#ifndef HARNESS_DUMP_H
#define HARNESS_DUMP_H

#include "harness/train/trainer.h"

/* Writes the file of the step that was queued last, and releases its batch. The trainer's keep_input must
 * have been set before that step. */
enum status dump_step(struct trainer *trainer);

#endif
