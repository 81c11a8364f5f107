/* The peak floating point operations per second of cards, for matrix products without sparsity, by NVIDIA's
 * data sheets. Pure. */
#ifndef HARNESS_CARD_PEAK_H
#define HARNESS_CARD_PEAK_H

#include "harness/base/train_options.h"

/* Returns the peak of the card of that name (with blanks or underscores), in operations per second; 0 if the
 * card is unknown, is a MIG slice, or does not support the precision. */
double card_peak(const char *name, enum precision precision);

/* Writes the part of a result line that says how many operations per second were done, and as a share of the
 * peak of so many cards if that is known: " tflops=391.20 mfu=0.3956". Returns text. */
const char *card_peak_words(const char *name, enum precision precision, double flops_per_s, int cards,
                            char text[64]);

#endif
