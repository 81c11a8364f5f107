/* One parameter of a checkpoint: its entry in the table, and its contents between device and file, in one of
 * three forms (checkpoint_format.h). Waits for the device. */
#ifndef HARNESS_CHECKPOINT_PARAM_H
#define HARNESS_CHECKPOINT_PARAM_H

#include "harness/train/checkpoint_file.h"
#include "harness/train/trainer.h"

/* full: floats and the optimizer's state, to continue a training. The others hold weights only, for
 * evaluation. int8: packed weights as they are (param_pack). sparse: matrices without their zeros. */
enum checkpoint_kind { CHECKPOINT_FULL, CHECKPOINT_SMALL_INT8, CHECKPOINT_SMALL_SPARSE };

/* Fills in the entry. Counts the weights that are not zero for a sparse one. */
enum status checkpoint_param_entry(struct trainer *trainer, struct param *param, enum checkpoint_kind kind,
                                   struct checkpoint_entry *entry);

/* Returns STATUS_NOT_FINITE, with a message, if one of these floats is infinite or not a number, unless
 * --on-nan=go. */
enum status checkpoint_check_finite(const struct trainer *trainer, const void *bytes, size_t count);

/* Writes the contents that the entry describes. Checks that they are finite. */
enum status checkpoint_param_save(struct trainer *trainer, struct checkpoint_file *file, struct param *param,
                                  const struct checkpoint_entry *entry);

/* Returns true if a parameter of this model can have these contents: in a full checkpoint, or a small one. */
bool checkpoint_param_fits(const struct param *param, const struct checkpoint_entry *entry, bool small);

/* Reads the contents into the parameter. From a small checkpoint: gives the optimizer's state back, and for
 * bytes the floats too. */
enum status checkpoint_param_load(struct trainer *trainer, struct checkpoint_file *file, struct param *param,
                                  const struct checkpoint_entry *entry, bool small);

#endif
