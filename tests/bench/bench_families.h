/* bench_families: programs whose sizes vary, as those of deep learning do: a family is a kind of program, and
 * a seed picks its depth, width, batches, and what varies from step to step. The same seed gives the same
 * program everywhere. */
#ifndef GPUCAP_BENCH_FAMILIES_H
#define GPUCAP_BENCH_FAMILIES_H

#include "bench_program.h"

unsigned families_count(void);
const char *families_name(unsigned family);
/* The family of a name, or -1. */
int families_find(const char *name);

/* Writes a program. The caller forgets it. */
void families_write(unsigned family, uint64_t seed, struct program *program);
/* How long a program of a family would run on an H200, in seconds: nominal (see the table). */
double families_seconds(unsigned family, const struct program *program);

#endif
