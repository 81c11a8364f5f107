/* recording_print: lines about recordings on stdout, at most 80 columns wide. Owns no lock. */
#ifndef GPUCAP_RECORDING_PRINT_H
#define GPUCAP_RECORDING_PRINT_H

#include "tools/gpucap/recording_words.h"

/* Prints "  label        first 3.05 GiB | second 767 MiB", on as many lines as it needs. */
void recording_print_holders(const char *label, const struct recording_holder *holders, int count);

/* Prints as much of a sentence with a list as fits into `width`, up to a comma, and ends the line. */
void recording_print_cut(char *sentence, int width);

#endif
