/* Notes on options that were given but do nothing in this run. */
#ifndef HARNESS_OPTION_NOTES_H
#define HARNESS_OPTION_NOTES_H

#include <stdio.h>

#include "harness/base/train_options.h"

/* Writes a line for each option that differs from its default and has no effect. The training itself would
 * not show that the option was ignored. */
void option_notes_print(const struct train_options *options, FILE *out);

/* Writes that line for one option, which needs what is named, if it differs from its default. */
void option_notes_unused(const struct train_options *options, const char *name, const char *needs, FILE *out);

#endif
