/* bench_expandable: how much PyTorch's cache with expandable segments would hold for a program, roughly. One
 * segment for blocks of up to 1 MiB, mapped by 2 MiB, and one for all others, mapped by 20 MiB; best fit in
 * each; pages are mapped when needed and never unmapped. */
#ifndef GPUCAP_BENCH_EXPANDABLE_H
#define GPUCAP_BENCH_EXPANDABLE_H

#include "bench_program.h"

/* Bytes that are mapped at the end, which is their peak. */
uint64_t expandable_held(const struct program *program);

#endif
